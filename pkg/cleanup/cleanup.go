package cleanup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	// DeleteBranch may be repeated; txn.ErrNotFound when there is none.
	DeleteBranch(ctx context.Context, repository txn.Repository, branch txn.Branch) error
}

// Workflows is what cleanup asks of Conductor.
type Workflows interface {
	// Workflow reads a workflow with its tasks; txn.ErrNotFound when there is none.
	Workflow(ctx context.Context, id txn.WorkflowID) (txn.Workflow, error)
}

// Attempt is what cleanup needs of the worker that runs it.
type Attempt interface {
	// Current is the attempt fence: a *txn.StaleAttemptError when this attempt may
	// no longer act.
	Current(ctx context.Context) error
	// Phase times a part of the work until the returned function is called.
	Phase(name string) (end func())
}

// Config is the cleanup worker's own configuration.
type Config struct {
	TTL time.Duration `env:"PERAGO_SWEEP_TTL,default=24h" desc:"Age at which a staging branch of a workflow that has ended goes, published or not; until then an operator's retry finds its evidence"`
}

// Validate reports every fault of the configuration.
func (c Config) Validate() []error {
	if c.TTL < 0 {
		return []error{fmt.Errorf("PERAGO_SWEEP_TTL is %s; it must not be negative", c.TTL)}
	}
	return nil
}

// Cleaner runs perago_cleanup tasks. It keeps no state between them.
type Cleaner struct {
	Lake      Lake
	Workflows Workflows
	Identity  txn.ConductorIdentity
	Allowed   txn.AllowList
	TTL       time.Duration
	// Now is the clock that the age of a branch is measured by.
	Now func() time.Time
	// Decided hears what became of each branch: deleted, kept or failed; nil when
	// nobody listens.
	Decided func(workflow txn.WorkflowID, repository txn.Repository, branch txn.Branch, state, reason string)
	// LateLanding hears of a commit of a step above the one that its completed
	// publish put out; nil when nobody listens.
	LateLanding func(repository txn.Repository, target txn.Branch, published, late txn.CommitID)
}

// The states of a branch after a cleanup; also a metric label.
const (
	StateDeleted = "deleted"
	StateKept    = "kept"
	StateFailed  = "failed"
)

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
		Cleaner: c, attempt: attempt,
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
	*Cleaner
	attempt  Attempt
	workflow txn.Workflow
	// known is false when Conductor has no such workflow.
	known  bool
	result Result
}

func (e *execution) run(ctx context.Context, task txn.Task) error {
	input, err := txn.ParseCleanupInput(task.Input, e.Allowed)
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
	return e.reportLateLandings(ctx, staged.Repository, staged.Key)
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
			err = e.reportLateLandings(ctx, repository, "")
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
	workflow, err := e.Workflows.Workflow(ctx, id)
	switch {
	case errors.Is(err, txn.ErrNotFound):
		e.workflow, e.known = txn.Workflow{ID: id}, false
		return nil
	case err != nil:
		return fmt.Errorf("read workflow %s: %w", id, err)
	}
	e.workflow, e.known = workflow, true
	return nil
}

// clean decides on each branch and deletes exactly the names decided, with the
// attempt fence before each.
func (e *execution) clean(ctx context.Context, repository txn.Repository, branches []txn.BranchHead) error {
	defer e.attempt.Phase("delete")()
	for _, branch := range branches {
		decision, err := e.decide(ctx, repository, branch)
		switch {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			e.failed(repository, branch.Name, err)
			continue
		case !decision.Delete:
			e.keep(repository, branch.Name, decision.Reason)
			continue
		}
		if err := e.attempt.Current(ctx); err != nil {
			return err
		}
		switch err := e.Lake.DeleteBranch(ctx, repository, branch.Name); {
		case err == nil, errors.Is(err, txn.ErrNotFound):
			e.result.Deleted = append(e.result.Deleted, branch.Name)
			e.decided(repository, branch.Name, StateDeleted, decision.Reason)
		case ctx.Err() != nil:
			return err
		default:
			e.failed(repository, branch.Name, fmt.Errorf("delete branch %s: %w", branch.Name, err))
		}
	}
	return nil
}

func (e *execution) decide(ctx context.Context, repository txn.Repository, branch txn.BranchHead) (txn.CleanupDecision, error) {
	name, err := txn.ParseStagingName(branch.Name)
	if err != nil {
		return txn.CleanupDecision{Reason: "its name is not one that perago gives"}, nil
	}
	if !name.OfWorkflow(e.Identity, e.workflow.ID) {
		return txn.CleanupDecision{Reason: "it is another workflow's"}, nil
	}
	facts := txn.CleanupFacts{
		WorkflowKnown: e.known, WorkflowStatus: e.workflow.Status,
		StepOpen: txn.StepOpen(e.workflow, name),
		Age:      e.Now().Sub(name.Execution.Time()), TTL: e.TTL,
	}
	if facts.Settled, facts.SettledWhy, err = e.settled(ctx, repository, name, branch.Head); err != nil {
		return txn.CleanupDecision{}, err
	}
	return txn.DecideCleanup(facts), nil
}

// settled reads the target and says whether the branch can still be needed.
func (e *execution) settled(ctx context.Context, repository txn.Repository, name txn.StagingName, head txn.CommitID) (bool, string, error) {
	commit, err := e.Lake.Commit(ctx, repository, head)
	if err != nil {
		return false, "", fmt.Errorf("read the commit of branch %s: %w", name.Branch(), err)
	}
	record, err := txn.ParseRecord(commit.Metadata)
	committed := err == nil && record.Execution == name.Execution
	if name.Source > 0 {
		return e.sourceSettled(ctx, repository, name, commit, committed)
	}
	if !committed {
		// The branch still points at what it was cut from: nothing was committed on
		// it, so nothing of it can have been published.
		return false, "nothing was committed on it, and its execution may still be at work", nil
	}
	targetHead, published, reached, err := e.history(ctx, repository, record.TargetBranch, record.InputRef)
	if err != nil {
		return false, "", err
	}
	decision, err := txn.DecidePublish(txn.PublishFacts{
		Step: txn.Step{
			Repository: repository, Branch: record.TargetBranch, Workflow: record.Workflow,
			Key: record.Key, Prefix: record.Prefix, InputRef: record.InputRef,
		},
		Staged: txn.Staged{Execution: name.Execution, Commit: commit.ID, InputRef: record.InputRef},
		Wanted: txn.Tree{ID: commit.MetaRange}, Head: targetHead, Range: published, Reached: reached,
	})
	settled, why := txn.Settled(txn.SettledFacts{
		WouldAdopt:  err == nil && decision.Action == txn.PublishAdopt,
		HeadIsInput: targetHead == record.InputRef,
	})
	return settled, why, nil
}

// sourceSettled is settled for a source branch: a commit on it, or none where it
// is a mark only.
func (e *execution) sourceSettled(ctx context.Context, repository txn.Repository, name txn.StagingName, commit txn.Commit, committed bool) (bool, string, error) {
	base := commit.ID
	if committed {
		if len(commit.Parents) != 1 {
			return false, fmt.Sprintf("its commit has %d parents, so it is not one of ours", len(commit.Parents)), nil
		}
		base = commit.Parents[0]
	}
	target, ok := e.targetOf(name)
	if !ok {
		return false, "no task of its step is known any more, so its target is not known", nil
	}
	targetHead, published, _, err := e.history(ctx, repository, target, base)
	if err != nil {
		return false, "", err
	}
	settled, why := txn.Settled(txn.SettledFacts{
		Source: true, HeadIsBase: targetHead == base,
		Landed: slices.ContainsFunc(published, func(c txn.Commit) bool {
			landed, err := txn.ParseRecord(c.Metadata)
			return err == nil && landed.Phase == txn.PhaseConfirm && landed.Execution == name.Execution
		}),
	})
	return settled, why, nil
}

// targetOf is the target branch of a branch's step, from the inputs of the
// workflow's stage tasks: a mark has no commit that says it.
func (e *execution) targetOf(name txn.StagingName) (txn.Branch, bool) {
	for _, task := range e.workflow.Tasks {
		if task.Type.IsStage() && name.OfStep(e.Identity, e.workflow.ID, txn.NewLogicalTaskKey(e.workflow.ID, task.ReferenceName, task.Iteration)) {
			if workspace, ok := workspaceOf(task); ok && workspace.Branch != "" {
				return workspace.Branch, true
			}
		}
	}
	return "", false
}

func (e *execution) history(ctx context.Context, repository txn.Repository, branch txn.Branch, downTo txn.CommitID) (head txn.CommitID, commits []txn.Commit, reached bool, err error) {
	if head, err = e.Lake.Head(ctx, repository, branch); err != nil {
		return "", nil, false, fmt.Errorf("read the head of %s: %w", branch, err)
	}
	if commits, reached, err = e.Lake.History(ctx, repository, head, downTo, txn.HistoryLimit); err != nil {
		return "", nil, false, fmt.Errorf("read the history of %s: %w", branch, err)
	}
	return head, commits, reached, nil
}

// reportLateLandings looks above each publication that a completed publish of the
// workflow put out, or of one step only: without the hard fence a merge that an
// older attempt had sent may land there. It is reported and never rolled back,
// and what is seen is what has landed by now.
func (e *execution) reportLateLandings(ctx context.Context, repository txn.Repository, only txn.LogicalTaskKey) error {
	defer e.attempt.Phase("late_landings")()
	for _, task := range e.workflow.Tasks {
		var output struct {
			Publication txn.Publication `json:"publication"`
		}
		if !task.Type.IsPublish() || task.Status != txn.TaskCompleted || json.Unmarshal(task.Output, &output) != nil || output.Publication.Commit == "" {
			continue
		}
		workspace, ok := workspaceOf(task)
		staged, err := txn.StagedOf(task)
		if !ok || err != nil || workspace.Repository != repository || (only != "" && staged.Key != only) || !e.Allowed.Allows(repository, workspace.Branch) {
			continue
		}
		published := output.Publication.Commit
		head, above, reached, err := e.history(ctx, repository, workspace.Branch, published)
		switch {
		case err != nil:
			return err
		case head == published || !reached:
			continue
		}
		for _, late := range txn.LateLandings(staged.Key, above) {
			e.problem(fmt.Errorf("%s holds %s of this step above the %s that it published: an older attempt's merge landed late; inspect it, and revert it if it is not wanted", workspace.Branch, late, published))
			if e.LateLanding != nil {
				e.LateLanding(repository, workspace.Branch, published, late)
			}
		}
	}
	return nil
}

// repositoriesOf is every repository that the workflow's tasks of ours were
// given, in order.
func repositoriesOf(workflow txn.Workflow) []txn.Repository {
	found := map[txn.Repository]bool{}
	for _, task := range workflow.Tasks {
		if !task.Type.IsStage() && !task.Type.IsPublish() && !task.Type.IsCleanup() {
			continue
		}
		if workspace, ok := workspaceOf(task); ok && workspace.Repository != "" {
			found[workspace.Repository] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// workspaceOf is the workspace that a task was given, unchecked: it tells where
// to look, and what is found there is decided on its own.
func workspaceOf(task txn.Task) (txn.Workspace, bool) {
	var input struct {
		Workspace txn.Workspace `json:"workspace"`
	}
	err := json.Unmarshal(task.Input, &input)
	return input.Workspace, err == nil
}

func (e *execution) keep(repository txn.Repository, branch txn.Branch, reason string) {
	e.result.Kept = append(e.result.Kept, Kept{Branch: branch, Reason: reason})
	e.decided(repository, branch, StateKept, reason)
}

func (e *execution) failed(repository txn.Repository, branch txn.Branch, err error) {
	e.problem(err)
	e.decided(repository, branch, StateFailed, err.Error())
}

func (e *execution) problem(err error) {
	e.result.Errors = append(e.result.Errors, err.Error())
}

func (e *execution) decided(repository txn.Repository, branch txn.Branch, state, reason string) {
	if e.Decided != nil {
		e.Decided(e.workflow.ID, repository, branch, state, reason)
	}
}
