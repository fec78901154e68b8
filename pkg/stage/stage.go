package stage

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"runtime"
	"time"

	"golang.org/x/time/rate"

	"perago/pkg/projection"
	"perago/pkg/txn"
)

// Lake is what stage asks of lakeFS. Every method sends its request under ctx
// and fails with a *txn.ServerError.
type Lake interface {
	// Commit reads a commit by its full id.
	Commit(ctx context.Context, repository txn.Repository, id txn.CommitID) (txn.Commit, error)
	// Head is the commit that a branch points at; txn.ErrNotFound.
	Head(ctx context.Context, repository txn.Repository, branch txn.Branch) (txn.CommitID, error)
	// ReadObject opens an object of a commit; txn.ErrNotFound when there is none.
	ReadObject(ctx context.Context, repository txn.Repository, ref txn.CommitID, path string) (io.ReadCloser, error)
	// Objects lists everything under the prefix, in byte order.
	Objects(ctx context.Context, repository txn.Repository, ref txn.CommitID, prefix txn.Prefix) iter.Seq2[txn.Object, error]
	// CreateBranch makes a hidden branch; txn.ErrExists when the name is taken.
	// txn.ErrUnknownOutcome says that reading did not settle it: it may still come.
	CreateBranch(ctx context.Context, repository txn.Repository, name txn.Branch, source txn.CommitID) error
	// Upload may be repeated: the branch is ours alone.
	Upload(ctx context.Context, repository txn.Repository, branch txn.Branch, path string, content txn.Content) (txn.Object, error)
	// DeleteObjects fails when any path could not be removed. It may be repeated.
	DeleteObjects(ctx context.Context, repository txn.Repository, branch txn.Branch, paths []string) error
	// UploadLimit is 0 if the store takes an object of size bytes, and else the most
	// bytes that it takes.
	UploadLimit(ctx context.Context, size int64) (limit int64, err error)
	// Import makes the objects of an object-store prefix those under destination,
	// in one commit, and moves no data. txn.ErrUnknownOutcome says that it may still
	// come.
	Import(ctx context.Context, repository txn.Repository, branch txn.Branch, source txn.ImportSource, destination txn.Prefix, message string, metadata map[string]string) (txn.Commit, error)
	// CreateCommit commits what the branch holds; txn.ErrUnknownOutcome says that
	// reading did not settle it.
	CreateCommit(ctx context.Context, repository txn.Repository, branch txn.Branch, message string, metadata map[string]string) (txn.Commit, error)
}

// Attempt is what stage needs of the worker that runs it.
type Attempt interface {
	// Current is the attempt fence: a *txn.StaleAttemptError when this attempt may
	// no longer act.
	Current(ctx context.Context) error
	// Phase times a part of the work until the returned function is called.
	Phase(name string) (end func())
	// Expect says how much there is to do in the phase that began last; 0 is not
	// known. done adds to what has been done of it, from any goroutine and for each
	// piece that is read, so it only counts; bytes below 0 take back those of a try
	// that is repeated.
	Expect(objects int, bytes int64) (done func(objects int, bytes int64))
}

// The values of Config.UploadPresigned.
const (
	PresignedAuto  = "auto"
	PresignedNever = "never"
)

// Config is the stage worker's own configuration.
type Config struct {
	WorkspaceRoot     string   `env:"PERAGO_WORKSPACE_ROOT,required" desc:"Directory under which user workers write their files, as <root>/<workflow id>/<task id>/, and checkouts go; the same path on every host that shares it"`
	UploadConcurrency int      `env:"PERAGO_UPLOAD_CONCURRENCY,default=128" desc:"Uploads at once, or downloads of a checkout, for each task; a file of more than 256 KiB counts for several, up to an eighth of them"`
	UploadRateLimit   int64    `env:"PERAGO_UPLOAD_RATE_LIMIT,default=0" desc:"Bytes per second that all uploads of the process together may send; 0 is no limit"`
	UploadPresigned   string   `env:"PERAGO_UPLOAD_PRESIGNED,default=auto" desc:"auto uploads to the object store itself, by pre-signed URLs, where lakeFS offers them and the store can be reached; never uploads through lakeFS alone"`
	AllowedImports    []string `env:"PERAGO_ALLOWED_IMPORTS,default=*" desc:"Object-store prefixes that a task may import from, as URIs separated by commas; * allows all that lakeFS can read, none allows nothing"`
	RequireHardFence  bool     `env:"PERAGO_REQUIRE_HARD_FENCE,default=false" desc:"As the publish workers have it: refuse a stage from a commit without the hard fence's action file before anything is uploaded, because they would refuse to publish it"`
	// ProgressInterval is that of checkouts, too.
	ProgressInterval time.Duration `env:"PERAGO_PROGRESS_INTERVAL,default=30s" desc:"How often a stage or a checkout that takes long says how far it is: in the log, and less often in Conductor's log of the task; 0s is never"`
}

// Validate reports every fault of the configuration.
func (c Config) Validate() []error {
	var faults []error
	if c.WorkspaceRoot != "" {
		if info, err := os.Stat(c.WorkspaceRoot); err != nil {
			faults = append(faults, fmt.Errorf("PERAGO_WORKSPACE_ROOT: %w; create it or mount the volume", err))
		} else if !info.IsDir() {
			faults = append(faults, fmt.Errorf("PERAGO_WORKSPACE_ROOT: %s is not a directory", c.WorkspaceRoot))
		}
	}
	if c.UploadConcurrency < 1 || c.UploadConcurrency > 1024 {
		faults = append(faults, fmt.Errorf("PERAGO_UPLOAD_CONCURRENCY is %d; it must be between 1 and 1024", c.UploadConcurrency))
	}
	if c.UploadRateLimit < 0 || c.UploadRateLimit > 0 && c.UploadRateLimit < mostAtOnce {
		faults = append(faults, fmt.Errorf("PERAGO_UPLOAD_RATE_LIMIT is %d; it must be 0 for no limit, or at least %d bytes per second", c.UploadRateLimit, mostAtOnce))
	}
	if c.ProgressInterval != 0 && (c.ProgressInterval < time.Second || c.ProgressInterval > time.Hour) {
		faults = append(faults, fmt.Errorf("PERAGO_PROGRESS_INTERVAL is %s; it must be 0s for never, or between 1s and 1h", c.ProgressInterval))
	}
	if c.UploadPresigned != PresignedAuto && c.UploadPresigned != PresignedNever {
		faults = append(faults, fmt.Errorf("PERAGO_UPLOAD_PRESIGNED is %q; it must be %s or %s", c.UploadPresigned, PresignedAuto, PresignedNever))
	}
	if _, err := txn.ParseImportList(c.AllowedImports); err != nil {
		faults = append(faults, fmt.Errorf("PERAGO_ALLOWED_IMPORTS is not usable: %w", err))
	}
	return faults
}

// Imports is the list of object-store prefixes a task may import from. An invalid
// configuration allows none.
func (c Config) Imports() txn.ImportList {
	list, err := txn.ParseImportList(c.AllowedImports)
	if err != nil {
		return nil
	}
	return list
}

// Stager runs perago_stage tasks. It keeps no state between them.
type Stager struct {
	Lake     Lake
	Root     *os.Root
	Identity txn.ConductorIdentity
	Allowed  txn.AllowList
	// AllowedImports is what may be imported.
	AllowedImports txn.ImportList
	// UploadConcurrency is how many connections one task has for its uploads.
	UploadConcurrency int
	// UploadRate bounds the uploads of all tasks together; nil is no bound.
	UploadRate *rate.Limiter
	// FenceFile is the action file of the hard fence, as this version knows it.
	// RequireHardFence refuses an input ref that does not carry it.
	FenceFile        []byte
	RequireHardFence bool
	// Host is what people call the machine that the stager runs on.
	Host string
	// NewExecutionID gives a fresh UUIDv7.
	NewExecutionID func() (txn.ExecutionID, error)
	// WorkflowURL is a workflow's page in Conductor's UI; nil when there is none.
	WorkflowURL func(txn.WorkflowID) string
	// Staged counts what was staged; nil when nobody counts.
	Staged func(staged txn.Staged)
}

// Result is what the task's output says.
type Result struct {
	Workspace txn.Workspace
	Staged    txn.Staged
	// Violations are the guardrails that do not hold; then nothing was staged.
	Violations []projection.Violation
}

// Output is the task's output, also when it failed.
func (r Result) Output() map[string]any {
	switch {
	case r.Staged.Commit != "":
		return map[string]any{"workspace": r.Workspace, "staged": r.Staged}
	case len(r.Violations) > 0:
		return map[string]any{"violations": r.Violations}
	}
	return nil
}

// Run stages one task. Its error is for txn.ResultOf. A failed one has no staged
// reference.
func (s *Stager) Run(ctx context.Context, task txn.Task, attempt Attempt) (Result, error) {
	end := attempt.Phase("validate")
	run, err := s.begin(attempt).prepare(ctx, task)
	end()
	if err != nil {
		return Result{}, err
	}
	switch {
	case run.input.ReadOnly:
		run.staged.ReadOnly = true
		return run.finish(ctx)
	case run.input.Import != "":
		return run.runImport(ctx)
	}
	return run.runDirectory(ctx)
}

// runDirectory is Try from the files of a directory.
func (e *execution) runDirectory(ctx context.Context) (Result, error) {
	e.files = projection.NewReader(e.Root, e.directory)
	defer e.files.Close()
	compared, violations, err := e.compare(ctx)
	if err != nil {
		return Result{}, err
	}
	defer compared.close()
	if len(violations) > 0 {
		return refused(violations)
	}
	if err := e.apply(ctx, compared); err != nil {
		return Result{}, err
	}
	return e.finish(ctx)
}

// comparison is what a directory holds, and what has to change for the projection to
// be that. Both may have a temporary file.
type comparison struct {
	tree *projection.Tree
	plan projection.Plan
}

func (c comparison) close() {
	// What a temporary file says at its end no longer matters.
	_, _ = c.plan.Close(), c.tree.Close()
}

// compare finds what has to change for the projection to be the directory, and
// whether the guardrails hold. It writes nothing. The comparison is the caller's to
// close where there is no error.
func (e *execution) compare(ctx context.Context) (_ comparison, _ []projection.Violation, err error) {
	remote, stop := ahead(ctx, func(ctx context.Context) iter.Seq2[txn.Object, error] {
		return e.Lake.Objects(ctx, e.repository(), e.staged.InputRef, e.input.Prefix)
	})
	defer stop()
	end := e.attempt.Phase("scan")
	tree, err := projection.Scan(ctx, e.Root, e.directory)
	if e.workflow != "" {
		// It comes first: a directory that is set aside is missing under its name.
		if aside := projection.CheckSetAside(e.Root, e.workflow); aside != nil {
			if err == nil {
				comparison{tree: tree}.close()
			}
			err = aside
		}
	}
	end()
	if err != nil {
		if errors.Is(err, projection.ErrMissing) {
			err = e.labels.missing(e, err)
		}
		return comparison{}, nil, fmt.Errorf("scan %s: %w", e.input.Directory, err)
	}
	compared := comparison{tree: tree}
	defer func() {
		if err != nil {
			compared.close()
		}
	}()
	if tree.Len() == 0 && !e.input.AllowEmpty {
		return comparison{}, nil, &EmptyError{Directory: e.input.Directory, Prefix: e.input.Prefix}
	}

	var failed error
	violations, err := e.guardrails.Check(ctx, projection.Paths(tree, &failed))
	if err = cmp.Or(failed, err); err != nil {
		return comparison{}, nil, err
	}
	// What is removed is not known yet; all violations belong into one message.
	if len(violations) > 0 && !e.guardrails.Bounded() && !e.comparesAll {
		return compared, violations, nil
	}

	end = e.attempt.Phase("compare")
	plan, err := projection.Diff(ctx, e.input.Prefix, tree, remote, countedHashes(e.files.Hash, e.attempt), runtime.GOMAXPROCS(0))
	end()
	if err != nil {
		return comparison{}, nil, fmt.Errorf("compare %s with %s at %s: %w", e.input.Directory, e.input.Prefix, e.staged.InputRef.Short(), err)
	}
	compared.plan = plan
	if err := e.checkLargest(ctx, plan.Largest); err != nil {
		return comparison{}, nil, err
	}
	violations = append(violations, e.guardrails.CheckRemoved(plan.Removed, plan.Removed+plan.Changed+plan.Unchanged)...)
	e.staged.Added, e.staged.Changed = plan.Added, plan.Changed
	e.staged.Removed, e.staged.Unchanged = plan.Removed, plan.Unchanged
	return compared, violations, nil
}

// checkLargest refuses a file that the store cannot take. The store itself refuses such
// a file only after it has received all bytes.
func (e *execution) checkLargest(ctx context.Context, largest projection.Entry) error {
	limit, err := e.Lake.UploadLimit(ctx, largest.Size)
	switch {
	case err != nil:
		return fmt.Errorf("read the upload limit of the object store: %w", err)
	case limit != 0:
		return &projection.UnrepresentableError{Path: largest.Path, Reason: fmt.Sprintf("has %d bytes, but lakeFS uploads at most %d bytes to S3 as one object; split the file, or put it into the object store and import it", largest.Size, limit)}
	}
	return nil
}

// recheck requires that the directory is what was listed: a process that the task
// left behind may still write. It reads no file.
func (e *execution) recheck(ctx context.Context, tree *projection.Tree) error {
	defer e.attempt.Phase("recheck")()
	if err := tree.Unchanged(ctx); err != nil {
		return fmt.Errorf("%w; complete the user task only after everything that writes to %s has ended", err, e.input.Directory)
	}
	return nil
}

// verify reads back what was committed where something was removed. lakeFS says of
// each upload what it holds, but its answer to a bulk delete proves nothing.
func (e *execution) verify(ctx context.Context, tree *projection.Tree) error {
	defer e.attempt.Phase("verify")()
	staged := countedListing(e.Lake.Objects(ctx, e.repository(), e.staged.Commit, e.input.Prefix), tree.Len(), e.attempt)
	if err := projection.Verify(e.input.Prefix, tree, staged); err != nil {
		return fmt.Errorf("what was staged in %s is not what %s holds: %w", e.staged.Commit.Short(), e.input.Directory, err)
	}
	return nil
}

func refused(violations []projection.Violation) (Result, error) {
	return Result{Violations: violations}, &projection.GuardrailError{Violations: violations}
}

// EmptyError is a directory without files, where nobody said that this is meant.
type EmptyError struct {
	Directory string
	Prefix    txn.Prefix
}

func (e *EmptyError) Error() string {
	return fmt.Sprintf("%s holds no files, which would remove everything under %s; if that is meant, set allow_empty: true", e.Directory, e.Prefix)
}

// execution is one run of an attempt.
type execution struct {
	*Stager
	labels     labels
	attempt    Attempt
	counted    *counted
	input      txn.StageInput
	guardrails projection.Guardrails
	directory  string
	// workflow is the task's; empty by hand, where no sweep removes directories.
	workflow txn.WorkflowID
	// files are the directory's.
	files *projection.Reader
	// comparesAll: the plan is wanted also where a guardrail does not hold.
	comparesAll bool
	// base is the input ref's commit.
	base   txn.Commit
	staged txn.Staged
}

// labels are what an execution calls the things that it makes. They differ between
// a task's and one by hand.
type labels interface {
	// branch is the staging branch of an execution.
	branch(e *execution) txn.Branch
	message(e *execution) string
	// missing adds to the error of a directory that is not there where it was sought.
	missing(e *execution, err error) error
	metadata(e *execution) map[string]string
}

// begin makes an execution whose work is counted as the attempt's progress.
func (s *Stager) begin(attempt Attempt) *execution {
	own := *s
	e := &execution{Stager: &own, attempt: attempt, counted: &counted{Lake: s.Lake, attempt: attempt}}
	own.Lake = e.counted
	return e
}

// prepare checks the input whole, asks the fence, and requires that the input
// ref exists: nothing has been created yet.
func (e *execution) prepare(ctx context.Context, task txn.Task) (*execution, error) {
	raw, err := txn.InputOf(task)
	if err != nil {
		return nil, err
	}
	input, err := txn.ParseStageInput(raw, e.Allowed)
	if err != nil {
		return nil, err
	}
	e.labels, e.input = taskLabels{task}, input
	if e.guardrails, err = projection.NewGuardrails(input.Guardrails); err != nil {
		return nil, err
	}
	switch {
	case input.Import != "":
		if !e.AllowedImports.Allows(input.Import) {
			return nil, txn.Terminalf("source.import", "%s is not in PERAGO_ALLOWED_IMPORTS of this worker", input.Import)
		}
	case !input.ReadOnly:
		if e.directory, err = txn.SourceDirectory(e.Root.Name(), task.Workflow, input.Directory); err != nil {
			return nil, err
		}
		e.workflow = task.Workflow
	}
	if err := e.attempt.Current(ctx); err != nil {
		return nil, err
	}
	id, err := e.NewExecutionID()
	if err != nil {
		return nil, err
	}
	e.staged = txn.Staged{
		Repository: input.Workspace.Repository, Branch: input.Workspace.Branch,
		Commit: input.Workspace.Ref, InputRef: input.Workspace.Ref, Prefix: input.Prefix,
		Key:  txn.NewLogicalTaskKey(task.Workflow, task.ReferenceName, task.Iteration),
		Task: task.ID, RetryCount: task.RetryCount, PollCount: task.PollCount, StartTime: task.StartTime,
		Execution: id,
	}
	if err := e.readBase(ctx); err != nil {
		return nil, err
	}
	return e, e.checkTarget(ctx)
}

// checkTarget refuses what publish would refuse after the whole upload: a target branch
// that is not there, and, where the hard fence is required, an input ref without its
// action file. lakeFS reads the hooks of a merge from its source, and the staged
// commit has those of the input ref. A read-only step is not published.
func (e *execution) checkTarget(ctx context.Context) error {
	target := e.input.Workspace
	if e.input.ReadOnly {
		return nil
	}
	switch _, err := e.Lake.Head(ctx, target.Repository, target.Branch); {
	case errors.Is(err, txn.ErrNotFound):
		return errors.Join(txn.Terminalf("workspace.branch", "%s holds no branch %s; correct the name, or create the branch, and start a new workflow", target.Repository, target.Branch), err)
	case err != nil:
		return fmt.Errorf("read the head of %s: %w", target.Branch, err)
	}
	if !e.RequireHardFence {
		return nil
	}
	content, err := e.fenceFile(ctx)
	if err == nil && content != nil && !bytes.Equal(content, e.FenceFile) {
		// The answer may have been garbled on its way, and this task would end for good.
		// Only a second reading of the same content counts.
		first := content
		content, err = e.fenceFile(ctx)
		if err == nil && !bytes.Equal(content, first) && !bytes.Equal(content, e.FenceFile) {
			err = errors.New("two readings differ")
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("read %s of commit %s: %w", txn.FenceFile, target.Ref, err)
	case len(e.FenceFile) == 0 || !bytes.Equal(content, e.FenceFile):
		return txn.Terminalf("workspace.ref", "%v", txn.FenceFileError(target.Repository, target.Branch, target.Ref, content != nil))
	}
	return nil
}

// fenceFile reads the input ref's action file of the hard fence; nil when there is
// none. Of a longer file it reads one byte more than the known one has.
func (e *execution) fenceFile(ctx context.Context) ([]byte, error) {
	file, err := e.Lake.ReadObject(ctx, e.repository(), e.input.Workspace.Ref, txn.FenceFile)
	switch {
	case errors.Is(err, txn.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, int64(len(e.FenceFile))+1))
}

// readBase requires that the input ref exists.
func (e *execution) readBase(ctx context.Context) (err error) {
	e.base, err = e.Lake.Commit(ctx, e.repository(), e.input.Workspace.Ref)
	return e.input.Workspace.InputError(err)
}

func (e *execution) repository() txn.Repository { return e.input.Workspace.Repository }

// apply makes the staging branch and everything on it. Where nothing has to change
// there is no branch.
func (e *execution) apply(ctx context.Context, compared comparison) error {
	plan := compared.plan
	if plan.Empty() {
		e.staged.NoOp = true
		return e.recheck(ctx, compared.tree)
	}
	// The scan and hashing may have taken minutes.
	if err := e.attempt.Current(ctx); err != nil {
		return err
	}
	if err := e.createBranch(ctx); err != nil {
		return err
	}
	branch := e.staged.StagingBranch

	end := e.attempt.Phase("upload")
	e.counted.expect(plan)
	err := e.upload(ctx, branch, plan)
	end()
	if err != nil {
		return err
	}
	e.staged.Bytes = plan.Bytes

	if plan.Removed > 0 {
		end = e.attempt.Phase("remove")
		err = e.remove(ctx, branch, plan)
		end()
		if err != nil {
			return fmt.Errorf("remove %d objects from %s: %w", plan.Removed, branch, err)
		}
	}

	if err := e.recheck(ctx, compared.tree); err != nil {
		return err
	}
	end = e.attempt.Phase("commit")
	commit, err := e.Lake.CreateCommit(ctx, e.repository(), branch, e.labels.message(e), e.labels.metadata(e))
	end()
	if err != nil {
		return fmt.Errorf("commit %s: %w", branch, err)
	}
	if err := e.commit(commit); err != nil {
		return err
	}
	if plan.Removed > 0 {
		return e.verify(ctx, compared.tree)
	}
	return nil
}

// removedAtOnce is lakeFS's own bound on the paths of one request.
const removedAtOnce = 1000

// remove removes the objects of a plan, and counts them a request at a time.
func (e *execution) remove(ctx context.Context, branch txn.Branch, plan projection.Plan) error {
	removed := e.attempt.Expect(plan.Removed, 0)
	keys := make([]string, 0, removedAtOnce)
	send := func() error {
		if len(keys) == 0 {
			return nil
		}
		if err := e.Lake.DeleteObjects(ctx, e.repository(), branch, keys); err != nil {
			return err
		}
		removed(len(keys), 0)
		keys = keys[:0]
		return nil
	}
	for key, err := range plan.RemovedKeys() {
		if err != nil {
			return err
		}
		if keys = append(keys, key); len(keys) == removedAtOnce {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return send()
}

// taskLabels are those of a task's execution.
type taskLabels struct{ task txn.Task }

func (l taskLabels) branch(e *execution) txn.Branch {
	return txn.NewStagingName(e.Identity, l.task.Workflow, e.staged.Key, l.task.RetryCount, e.staged.Execution).Branch()
}

func (l taskLabels) message(e *execution) string {
	return fmt.Sprintf("Stage %s of %s for %s", l.task.ReferenceName, e.input.Prefix, e.staged.Branch)
}

func (l taskLabels) missing(e *execution, err error) error {
	if l.task.Domain == "" {
		return fmt.Errorf("%w on host %s, where this task without a domain came to; was it written on another host?", err, e.Host)
	}
	return fmt.Errorf("%w on host %s, where this task of domain %s came to; was it written on another host?", err, e.Host, l.task.Domain)
}

// metadata is that of the try commit, on the branch of this execution.
func (l taskLabels) metadata(e *execution) map[string]string {
	url := ""
	if e.WorkflowURL != nil {
		url = e.WorkflowURL(l.task.Workflow)
	}
	return txn.Record{
		Phase: txn.PhaseTry, Key: e.staged.Key, Workflow: l.task.Workflow,
		Task: l.task.ID, RetryCount: l.task.RetryCount, Execution: e.staged.Execution,
		InputRef: e.staged.InputRef, TargetBranch: e.staged.Branch, Prefix: e.staged.Prefix, StagingBranch: e.staged.StagingBranch,
	}.Metadata(url)
}

// commit takes a commit for the staged one: nobody else has written the branch.
func (e *execution) commit(commit txn.Commit) error {
	if len(commit.Parents) != 1 || commit.Parents[0] != e.staged.InputRef {
		return fmt.Errorf("the commit %s of %s has parents %v, not the input ref alone; somebody else wrote the branch", commit.ID, e.staged.StagingBranch, commit.Parents)
	}
	e.staged.Commit = commit.ID
	return nil
}

// createBranch makes the staging branch. A name whose creation could not be
// settled is abandoned, and one more is tried under a fresh execution id: should
// the first one still come, it names a whole branch and never a half-written one.
// Settling took seconds, so the fence is asked again before.
func (e *execution) createBranch(ctx context.Context) error {
	defer e.attempt.Phase("branch")()
	for fresh := true; ; fresh = false {
		branch := e.labels.branch(e)
		err := e.Lake.CreateBranch(ctx, e.repository(), branch, e.staged.InputRef)
		switch {
		case err == nil:
			e.staged.StagingBranch = branch
			return nil
		case !fresh || !errors.Is(err, txn.ErrUnknownOutcome) || ctx.Err() != nil:
			return fmt.Errorf("create branch %s: %w", branch, err)
		}
		unknown := err
		if err := e.attempt.Current(ctx); err != nil {
			return err
		}
		if e.staged.Execution, err = e.NewExecutionID(); err != nil {
			return err
		}
		if e.labels.branch(e) == branch {
			// A person chose the name, so a branch that is there may be another
			// person's. It is not touched.
			return fmt.Errorf("create branch %s: it is not known whether lakeFS made it, so nothing was uploaded; choose another name, or look whose branch it is: %w", branch, unknown)
		}
	}
}

// finish asks the fence a last time: what a stale attempt staged stays on its
// branch, unannounced.
func (e *execution) finish(ctx context.Context) (Result, error) {
	if err := e.attempt.Current(ctx); err != nil {
		return Result{}, err
	}
	if e.Staged != nil && e.staged.Commit != e.staged.InputRef {
		e.Staged(e.staged)
	}
	return Result{Workspace: e.input.Workspace, Staged: e.staged}, nil
}
