package checkout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"perago/pkg/projection"
	"perago/pkg/txn"
)

// Lake is what checkout asks of lakeFS. Every method sends its request under ctx
// and fails with a *txn.ServerError.
type Lake interface {
	// Commit reads a commit by its full id.
	Commit(ctx context.Context, repository txn.Repository, id txn.CommitID) (txn.Commit, error)
	// Objects lists everything under the prefix, in byte order.
	Objects(ctx context.Context, repository txn.Repository, ref txn.CommitID, prefix txn.Prefix) iter.Seq2[txn.Object, error]
	// ReadObject opens an object for streaming; txn.ErrGone when its data was
	// removed by retention. A reading that is cut is txn.ErrRetryable.
	ReadObject(ctx context.Context, repository txn.Repository, ref txn.CommitID, path string) (io.ReadCloser, error)
}

// Attempt is what checkout needs of the worker that runs it.
type Attempt interface {
	// Current is the attempt fence: a *txn.StaleAttemptError when this attempt may
	// no longer act.
	Current(ctx context.Context) error
	// Phase times a part of the work until the returned function is called.
	Phase(name string) (end func())
}

// Downloader runs perago_checkout tasks. It keeps no state between them.
type Downloader struct {
	Lake    Lake
	Root    *os.Root
	Allowed txn.AllowList
	// Concurrency is how many downloads one task has under way.
	Concurrency int
	// NewExecutionID gives a fresh UUIDv7.
	NewExecutionID func() (txn.ExecutionID, error)
}

// Checkout is where the files are, and how many.
type Checkout struct {
	// Directory is the absolute path.
	Directory string `json:"directory"`
	Objects   int    `json:"objects"`
	// Bytes is the size of all files together.
	Bytes int64 `json:"bytes"`
}

// Result is what the task's output says.
type Result struct {
	Workspace txn.Workspace
	Checkout  Checkout
	// Violations are the guardrails that do not hold; then nothing was downloaded.
	Violations []projection.Violation
}

// Output is the task's output, also when it failed.
func (r Result) Output() map[string]any {
	switch {
	case r.Checkout.Directory != "":
		return map[string]any{"workspace": r.Workspace, "checkout": r.Checkout}
	case len(r.Violations) > 0:
		return map[string]any{"violations": r.Violations}
	}
	return nil
}

// Run downloads for one task. Its error is for txn.ResultOf. A failed one names
// no directory.
func (d *Downloader) Run(ctx context.Context, task txn.Task, attempt Attempt) (Result, error) {
	end := attempt.Phase("validate")
	run, err := d.prepare(ctx, task, attempt)
	end()
	if err != nil {
		return Result{}, err
	}

	end = attempt.Phase("list")
	objects, err := run.list(ctx)
	end()
	if err != nil {
		return Result{}, err
	}
	if violations := run.guardrails.Check(paths(objects)); len(violations) > 0 {
		// The input ref does not change, so neither would another attempt.
		violated := &projection.GuardrailError{Violations: violations}
		return Result{Violations: violations}, txn.Terminalf("", "%s at %s does not hold the %v", run.input.Prefix, run.input.Workspace.Ref.Short(), violated)
	}

	end = attempt.Phase("download")
	err = run.download(ctx, objects)
	end()
	if err == nil {
		err = attempt.Current(ctx)
	}
	if err != nil {
		return Result{}, run.discard(err)
	}
	result := Result{Workspace: run.input.Workspace, Checkout: Checkout{Directory: run.directory(), Objects: len(objects)}}
	for _, object := range objects {
		result.Checkout.Bytes += object.Size
	}
	return result, nil
}

// execution is one run of an attempt.
type execution struct {
	*Downloader
	input      txn.CheckoutInput
	guardrails projection.Guardrails
	workflow   string
	// name is of the directory below the workflow's.
	name string
	// made says that the directory is there, and this execution's.
	made bool
}

// prepare checks the input whole, asks the fence, and requires that the input
// ref exists.
func (d *Downloader) prepare(ctx context.Context, task txn.Task, attempt Attempt) (*execution, error) {
	input, err := txn.ParseCheckoutInput(task.Input, d.Allowed)
	if err != nil {
		return nil, err
	}
	run := &execution{Downloader: d, input: input, workflow: string(task.Workflow)}
	if run.guardrails, err = projection.NewGuardrails(input.Guardrails); err != nil {
		return nil, err
	}
	if err := attempt.Current(ctx); err != nil {
		return nil, err
	}
	id, err := d.NewExecutionID()
	if err != nil {
		return nil, err
	}
	run.name = fmt.Sprintf("checkout-%s-%s", task.ID, id)
	for _, segment := range []string{run.workflow, run.name} {
		if err := checkName(segment); err != nil {
			return nil, txn.Terminalf("", "the ids of the workflow and the task make no name of a directory: %v", err)
		}
	}
	_, err = d.Lake.Commit(ctx, input.Workspace.Repository, input.Workspace.Ref)
	if err := input.Workspace.InputError(err); err != nil {
		return nil, err
	}
	return run, nil
}

// directory is the absolute path of what is downloaded.
func (e *execution) directory() string { return filepath.Join(e.Root.Name(), e.workflow, e.name) }

// expired makes the end of an input's data what it is: no attempt will find it
// again.
func (e *execution) expired(err error) error {
	if !errors.Is(err, txn.ErrGone) {
		return err
	}
	ref := e.input.Workspace.Ref
	return errors.Join(txn.Terminalf("workspace.ref", "the input expired: lakeFS's retention has removed data of %s; start a new workflow from a newer commit", ref), err)
}
