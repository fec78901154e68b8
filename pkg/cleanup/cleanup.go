package cleanup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"perago/pkg/txn"
)

// Lake is what cleanup asks of lakeFS. Every method sends its request under ctx
// and fails with a *txn.ServerError.
type Lake interface {
	// Commit reads a commit by its full id.
	Commit(ctx context.Context, repository txn.Repository, id txn.CommitID) (txn.Commit, error)
	// Head reads the commit that a branch points at.
	Head(ctx context.Context, repository txn.Repository, branch txn.Branch) (txn.CommitID, error)
	// History reads the first-parent commits from a commit down to, not including,
	// stopAt, newest first, at most limit of them; reached says that stopAt was
	// met.
	History(ctx context.Context, repository txn.Repository, from, stopAt txn.CommitID, limit int) (commits []txn.Commit, reached bool, err error)
	// Branches lists every branch, hidden ones too, whose name begins so.
	Branches(ctx context.Context, repository txn.Repository, prefix string) ([]txn.BranchHead, error)
	// BranchPages is Branches page by page; an error is the last pair.
	BranchPages(ctx context.Context, repository txn.Repository, prefix string) iter.Seq2[[]txn.BranchHead, error]
	// Repositories lists every repository there is.
	Repositories(ctx context.Context) ([]txn.Repository, error)
	// DeleteBranch may be repeated; txn.ErrNotFound when there is none.
	DeleteBranch(ctx context.Context, repository txn.Repository, branch txn.Branch) error
}

// Workflows is what cleanup asks of Conductor.
type Workflows interface {
	// Workflow reads a workflow with its tasks; txn.ErrNotFound when there is none.
	Workflow(ctx context.Context, id txn.WorkflowID) (txn.Workflow, error)
}

// Fence tells whether the hard fence is known to hold on a target.
type Fence interface {
	// Proven reports whether lakeFS would refuse a merge of source that expects
	// another head than the target's; onTarget is commits of the target, newest
	// first.
	Proven(ctx context.Context, repository txn.Repository, target txn.Branch, source txn.CommitID, onTarget []txn.Commit) bool
}

// Attempt is what cleanup needs of the worker that runs it.
type Attempt interface {
	// Current is the attempt fence: a *txn.StaleAttemptError when this attempt may
	// no longer act.
	Current(ctx context.Context) error
	// Phase times a part of the work until the returned function is called.
	Phase(name string) (end func())
}

// Config is the configuration of what deletes by age.
type Config struct {
	Interval   time.Duration `env:"PERAGO_SWEEP_INTERVAL,default=10m" desc:"Time between two sweeps: the cleanup worker's over staging branches, the stage worker's over directories on its host; 0s turns the sweep off"`
	TTL        time.Duration `env:"PERAGO_SWEEP_TTL,default=24h" desc:"How long what a workflow left is kept: a staging branch that may still be needed, from when it was made and until its workflow has ended; the directory of a workflow that did not complete, from its end. Until then an operator's retry finds both"`
	UnknownTTL time.Duration `env:"PERAGO_UNKNOWN_TTL,default=0s" desc:"How long what a workflow left is kept when Conductor does not know the workflow: a staging branch from when it was made, a directory named by a UUID from its last change; at least 168h, 0s is for ever. For a Conductor that archives or removes workflows at their end. Never set it where another Conductor's workflows use the same workspace root"`
}

// leastUnknownTTL leaves a person the time to notice a wrong CONDUCTOR_SERVER_URL
// before anything is deleted on its word.
const leastUnknownTTL = 7 * 24 * time.Hour

// Validate reports every fault of the configuration.
func (c Config) Validate() []error {
	var faults []error
	if c.UnknownTTL != 0 && c.UnknownTTL < max(leastUnknownTTL, c.TTL) {
		faults = append(faults, fmt.Errorf("PERAGO_UNKNOWN_TTL is %s; it must be 0s (off), or %s and PERAGO_SWEEP_TTL or longer", c.UnknownTTL, leastUnknownTTL))
	}
	if c.TTL < 0 {
		faults = append(faults, fmt.Errorf("PERAGO_SWEEP_TTL is %s; it must not be negative", c.TTL))
	}
	if c.Interval < 0 {
		faults = append(faults, fmt.Errorf("PERAGO_SWEEP_INTERVAL is %s; it must not be negative", c.Interval))
	}
	return faults
}

// Cleaner deletes branches: for perago_cleanup tasks, and in sweeps. It keeps no
// state between them.
type Cleaner struct {
	Lake      Lake
	Workflows Workflows
	Fence     Fence
	Identity  txn.ConductorIdentity
	Allowed   txn.AllowList
	TTL       time.Duration
	// UnknownTTL is the age from which a branch goes whose workflow Conductor does not
	// know, also when it knew none in the sweep; 0 is never.
	UnknownTTL time.Duration
	// Now is the clock that the age of a branch is measured by.
	Now func() time.Time
	// Redact takes secrets out of a text for people before it goes into the output;
	// nil changes nothing.
	Redact func(text string) string
	// Events hears what happens.
	Events Events
}

// Events are called as things happen, by one goroutine or several. A nil one is
// not called.
type Events struct {
	// Decided: what became of one branch.
	Decided func(Decided)
	// LateLanding: a commit of a step stands above the one that its completed
	// publish put out.
	LateLanding func(repository txn.Repository, target txn.Branch, published, late txn.CommitID)
	// PublishedAfterEnd: a workflow has ended, and none of its publish tasks put out
	// this publication of it.
	PublishedAfterEnd func(workflow txn.WorkflowID, repository txn.Repository, target txn.Branch, commit txn.CommitID)
	// Progress: how far a sweep is, after each page of a listing.
	Progress func(Swept)
}

// State is what became of a branch or a directory; also a metric label.
type State string

// The states.
const (
	StateDeleted State = "deleted"
	StateKept    State = "kept"
	StateFailed  State = "failed"
	// StateWouldDelete is a dry run's.
	StateWouldDelete State = "would_delete"
)

// Decided is what became of one branch, and why.
type Decided struct {
	// Workflow is empty when it is not known.
	Workflow   txn.WorkflowID
	Repository txn.Repository
	Branch     txn.Branch
	State      State
	Reason     string
	// Running says that it is kept because its workflow runs: no news.
	Running bool
}

// Kept is a branch that stays, and why.
type Kept struct {
	Branch txn.Branch `json:"branch"`
	Reason string     `json:"reason"`
}

// Result is what the task's output says. No list is nil.
type Result struct {
	Deleted []txn.Branch
	Kept    []Kept
	Errors  []string
}

// Output is the task's output.
func (r Result) Output() map[string]any {
	return map[string]any{"deleted": r.Deleted, "kept": r.Kept, "errors": r.Errors}
}

// Run cleans up for one task. It fails only when the attempt is stale or its
// context ended; every other problem is in the result.
func (c *Cleaner) Run(ctx context.Context, task txn.Task, attempt Attempt) (Result, error) {
	run := &execution{
		judge: judge{Cleaner: c}, attempt: attempt,
		result: Result{Deleted: []txn.Branch{}, Kept: []Kept{}, Errors: []string{}},
	}
	err := run.run(ctx, task)
	var stale *txn.StaleAttemptError
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return run.result, context.Cause(ctx)
	case errors.As(err, &stale):
		return run.result, err
	default:
		run.problem(err)
	}
	return run.result, nil
}

// execution is one run of an attempt.
type execution struct {
	judge
	attempt Attempt
	result  Result
}

func (e *execution) run(ctx context.Context, task txn.Task) error {
	raw, err := txn.InputOf(task)
	if err != nil {
		return err
	}
	input, err := txn.ParseCleanupInput(raw, e.Allowed)
	switch {
	case err != nil:
		return err
	case input.Staged != nil:
		return e.cleanStep(ctx, task, *input.Staged)
	case input.Workflow != "":
		return e.cleanWorkflow(ctx, input.Workflow)
	}
	return nil // the stage gave no output: there is nothing to clean
}

// cleanStep cleans the branches of one step of the task's own workflow.
func (e *execution) cleanStep(ctx context.Context, task txn.Task, staged txn.Staged) error {
	if !strings.HasPrefix(string(staged.Key), string(task.Workflow)+":") {
		return txn.Terminalf("staged.logical_task_key", "%q is not of this workflow; to clean another one, give its workflow_id", staged.Key)
	}
	if staged.StagingBranch != "" {
		if name, err := txn.ParseStagingName(staged.StagingBranch); err != nil || !name.OfStep(e.Identity, task.Workflow, staged.Key) {
			return txn.Terminalf("staged.staging_branch", "%s is not a branch of this step under this worker's Conductor identity; set the same PERAGO_CONDUCTOR_ID for every worker", staged.StagingBranch)
		}
	}
	branches, err := e.list(ctx, staged.Repository, txn.StepBranches(e.Identity, task.Workflow, staged.Key))
	if err != nil {
		return err
	}
	if err := e.readWorkflow(ctx, task.Workflow); err != nil {
		return err
	}
	if err := e.clean(ctx, staged.Repository, branches); err != nil {
		return err
	}
	return e.reportUnreported(ctx, staged.Repository, staged.Key)
}

// cleanWorkflow cleans the branches of all steps of a workflow, in the
// repositories that its tasks name.
func (e *execution) cleanWorkflow(ctx context.Context, workflow txn.WorkflowID) error {
	if err := e.readWorkflow(ctx, workflow); err != nil {
		return err
	}
	if !e.known {
		return fmt.Errorf("workflow %s is unknown to this Conductor, so its repositories are not known", workflow)
	}
	for _, task := range e.workflow.Tasks {
		if _, err := txn.InputOf(task); err != nil && ofOurs(task) {
			e.problem(fmt.Errorf("task %s does not say which repository it was given, and the sweep deletes its branches: %w", task.ReferenceName, err))
		}
	}
	for _, repository := range repositoriesOf(e.workflow) {
		if !e.Allowed.AllowsRepository(repository) {
			e.problem(fmt.Errorf("repository %s is not in PERAGO_ALLOWED_REPOSITORIES of this worker; its branches were not touched", repository))
			continue
		}
		branches, err := e.list(ctx, repository, txn.WorkflowBranches(e.Identity, workflow))
		if err == nil {
			// What the listing shows is decided on tasks read after it: a branch made
			// later is not in it, and one made before has its task in the read.
			err = e.readWorkflow(ctx, workflow)
		}
		if err == nil {
			err = e.clean(ctx, repository, branches)
		}
		if err == nil {
			err = e.reportUnreported(ctx, repository, "")
		}
		var stale *txn.StaleAttemptError
		switch {
		case errors.As(err, &stale), ctx.Err() != nil:
			return err
		case err != nil:
			e.problem(err)
		}
	}
	return nil
}

func (e *execution) list(ctx context.Context, repository txn.Repository, prefix string) ([]txn.BranchHead, error) {
	defer e.attempt.Phase("list")()
	branches, err := e.Lake.Branches(ctx, repository, prefix)
	if err != nil {
		return nil, fmt.Errorf("list the staging branches of %s: %w", repository, err)
	}
	return branches, nil
}

func (e *execution) readWorkflow(ctx context.Context, id txn.WorkflowID) error {
	defer e.attempt.Phase("read")()
	return e.read(ctx, id)
}

// clean decides on each branch and deletes exactly the names decided, with the
// attempt fence before each.
func (e *execution) clean(ctx context.Context, repository txn.Repository, branches []txn.BranchHead) error {
	defer e.attempt.Phase("delete")()
	for _, branch := range branches {
		judged, err := e.decide(ctx, repository, branch)
		switch {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			e.failed(repository, branch.Name, err)
			continue
		case !judged.Delete:
			e.keep(repository, branch.Name, judged.Reason)
			continue
		}
		if err := e.attempt.Current(ctx); err != nil {
			return err
		}
		switch err := e.delete(ctx, repository, branch.Name, judged.Reason); {
		case err == nil:
			e.result.Deleted = append(e.result.Deleted, branch.Name)
		case ctx.Err() != nil:
			return err
		default:
			e.failed(repository, branch.Name, err)
		}
	}
	return nil
}

// reportUnreported puts what landed and was put out by no task among the task's
// problems.
func (e *execution) reportUnreported(ctx context.Context, repository txn.Repository, only txn.LogicalTaskKey) error {
	defer e.attempt.Phase("late_landings")()
	found, err := e.unreported(ctx, repository, only)
	for _, one := range found {
		e.problem(one)
		e.tellUnreported(repository, one)
	}
	return err
}

// repositoriesOf is every repository that the workflow's tasks of ours were
// given, in order.
func repositoriesOf(workflow txn.Workflow) []txn.Repository {
	found := map[txn.Repository]bool{}
	for _, task := range workflow.Tasks {
		if !ofOurs(task) {
			continue
		}
		if workspace, ok := txn.WorkspaceOf(task); ok && workspace.Repository != "" {
			found[workspace.Repository] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// ofOurs reports a task that was given a workspace with branches of ours.
func ofOurs(task txn.Task) bool {
	return task.Type.IsStage() || task.Type.IsPublish() || task.Type.IsCleanup()
}

func (e *execution) keep(repository txn.Repository, branch txn.Branch, reason string) {
	e.result.Kept = append(e.result.Kept, Kept{Branch: branch, Reason: e.redacted(reason)})
	e.tell(Decided{Repository: repository, Branch: branch, State: StateKept, Reason: reason})
}

func (e *execution) failed(repository txn.Repository, branch txn.Branch, err error) {
	e.problem(err)
	e.tell(Decided{Repository: repository, Branch: branch, State: StateFailed, Reason: err.Error()})
}

func (e *execution) problem(err error) {
	e.result.Errors = append(e.result.Errors, e.redacted(err.Error()))
}

func (e *execution) redacted(text string) string {
	if e.Redact == nil {
		return text
	}
	return e.Redact(text)
}
