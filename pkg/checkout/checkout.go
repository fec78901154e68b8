package checkout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync/atomic"

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
	// MD5Known reports whether the checksum of a listed object is known to be the MD5
	// of its bytes. It fails when the object is not as it was listed.
	MD5Known(ctx context.Context, repository txn.Repository, ref txn.CommitID, object txn.Object) (bool, error)
}

// Attempt is what checkout needs of the worker that runs it.
type Attempt interface {
	// Current is the attempt fence: a *txn.StaleAttemptError when this attempt may
	// no longer act.
	Current(ctx context.Context) error
	// Phase times a part of the work until the returned function is called.
	Phase(name string) (end func())
	// Expect says how much there is to do in the phase that began last; 0 is not
	// known. done adds to what has been done of it, from any goroutine and for each
	// piece that arrives, so it only counts; bytes below 0 take back those of a try
	// that is repeated.
	Expect(objects int, bytes int64) (done func(objects int, bytes int64))
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
	// ComparedBySize counts the objects of which lakeFS knows no MD5, so that only
	// their sizes were compared. The output names it when there are any.
	ComparedBySize int64 `json:"compared_by_size,omitempty"`
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
	return run.run(ctx)
}

// run lists, asks the guardrails, and downloads.
func (e *execution) run(ctx context.Context) (Result, error) {
	end := e.attempt.Phase("list")
	listed, err := e.list(ctx)
	end()
	if err != nil {
		return Result{}, err
	}
	defer listed.objects.Close()
	var failed error
	violations, err := e.guardrails.Check(ctx, listed.paths(&failed))
	if err = cmp.Or(failed, err); err != nil {
		return Result{}, err
	}
	if len(violations) > 0 {
		// The input ref does not change, so neither would another attempt.
		violated := &projection.GuardrailError{Violations: violations}
		return Result{Violations: violations}, txn.Terminalf("", "%s at %s does not hold the %v", e.input.Prefix, e.input.Workspace.Ref.Short(), violated)
	}

	end = e.attempt.Phase("download")
	err = e.download(ctx, listed)
	end()
	if err == nil {
		err = e.attempt.Current(ctx)
	}
	if err != nil {
		return Result{}, e.discard(err)
	}
	return Result{
		Workspace: e.input.Workspace,
		Checkout: Checkout{
			Directory: e.destination.path(), Objects: listed.objects.Len(), Bytes: listed.bytes, ComparedBySize: e.bySize.Load(),
		},
	}, nil
}

// execution is one run of an attempt.
type execution struct {
	*Downloader
	attempt     Attempt
	input       txn.CheckoutInput
	guardrails  projection.Guardrails
	destination destination
	// downloaded counts what arrives.
	downloaded func(objects int, bytes int64)
	made       contents
	// bySize counts the objects that were compared by size alone.
	bySize atomic.Int64
}

// contents are what an execution itself has made in its directory.
type contents struct {
	// of are the objects that it downloads.
	of *listing
	// directories is how many directories were made, in the order of the objects.
	directories int
	// files says of each object whether its file was made.
	files []bool
}

// destination is the directory that is filled. It is nobody else's.
type destination interface {
	// path is absolute.
	path() string
	create() (*os.Root, error)
	// same fails when the path names another directory than the one that create made,
	// or none.
	same(made *os.Root) error
	// discard removes what create made, and what was made in it. It does nothing
	// when nothing was made.
	discard(made *contents) error
}

// prepare checks the input whole, asks the fence, and requires that the input
// ref exists.
func (d *Downloader) prepare(ctx context.Context, task txn.Task, attempt Attempt) (*execution, error) {
	raw, err := txn.InputOf(task)
	if err != nil {
		return nil, err
	}
	input, err := txn.ParseCheckoutInput(raw, d.Allowed)
	if err != nil {
		return nil, err
	}
	run := &execution{Downloader: d, attempt: attempt, input: input}
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
	own := &taskDirectory{root: d.Root, workflow: string(task.Workflow), name: fmt.Sprintf("checkout-%s-%s", task.ID, id)}
	for _, segment := range []string{own.workflow, own.name} {
		err := projection.CheckName(segment)
		if err == nil && txn.ReservedDirectory(segment) {
			err = fmt.Errorf("%q is a name that only the sweep gives", segment)
		}
		if err != nil {
			return nil, txn.Terminalf("", "the ids of the workflow and the task make no name of a directory: %v", err)
		}
	}
	run.destination = own
	return run, run.readInput(ctx)
}

// readInput requires that the input ref exists.
func (e *execution) readInput(ctx context.Context) error {
	_, err := e.Lake.Commit(ctx, e.input.Workspace.Repository, e.input.Workspace.Ref)
	return e.input.Workspace.InputError(err)
}

// expired makes the end of an input's data what it is: no attempt will find it
// again.
func (e *execution) expired(err error) error {
	if !errors.Is(err, txn.ErrGone) {
		return err
	}
	ref := e.input.Workspace.Ref
	return errors.Join(txn.Terminalf("workspace.ref", "the input expired: lakeFS's retention has removed data of %s; start a new workflow from a newer commit", ref), err)
}
