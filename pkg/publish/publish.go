package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"perago/pkg/txn"
)

// Lake is what publish asks of lakeFS. Every method sends its request under ctx
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
	// Differ reports whether two commits hold different objects in the projection
	// of a prefix.
	Differ(ctx context.Context, repository txn.Repository, left, right txn.CommitID, prefix txn.Prefix) (bool, error)
	// Branches lists every branch, hidden ones too, whose name begins so.
	Branches(ctx context.Context, repository txn.Repository, prefix string) ([]txn.BranchHead, error)
	// CreateBranch makes a hidden branch; txn.ErrExists when the name is taken.
	// txn.ErrUnknownOutcome says that reading did not settle it: it may still come.
	CreateBranch(ctx context.Context, repository txn.Repository, name txn.Branch, source txn.CommitID) error
	// CommitTree commits a tree whole, also one that is there already;
	// txn.ErrUnknownOutcome says that reading did not settle it.
	CommitTree(ctx context.Context, repository txn.Repository, branch txn.Branch, tree txn.MetaRangeID, message string, metadata map[string]string) (txn.Commit, error)
	// HookRuns reads which hooks lakeFS ran for a commit.
	HookRuns(ctx context.Context, repository txn.Repository, commit txn.CommitID) ([]txn.HookRun, error)
	// Merge is one squash merge. It is sent once: txn.ErrUnknownOutcome says that
	// it may have landed, or may still.
	Merge(ctx context.Context, merge txn.Merge) (txn.CommitID, error)
}

// Fence proves that the hard fence holds.
type Fence interface {
	// Carries reports whether a commit carries the known action file, which lakeFS
	// runs at the merge of that commit; txn.ErrNotFound when it has none.
	Carries(ctx context.Context, repo txn.Repository, commit txn.CommitID) (bool, error)
	// HasRun reports whether lakeFS is known to have run the fence to completion for
	// one of the newest confirm commits on the target.
	HasRun(ctx context.Context, repo txn.Repository, target txn.Branch, onTarget []txn.Commit) bool
}

// Tasks is what publish asks of Conductor.
type Tasks interface {
	// Task reads a task; txn.ErrNotFound when there is none.
	Task(ctx context.Context, id txn.TaskID) (txn.Task, error)
}

// Attempt is what publish needs of the worker that runs it.
type Attempt interface {
	// Current is the attempt fence: a *txn.StaleAttemptError when this attempt may
	// no longer act.
	Current(ctx context.Context) error
	// Cover is Current, and makes sure that the lease holds for so long when it
	// returns; a *txn.StaleAttemptError when it cannot.
	Cover(ctx context.Context, need time.Duration) error
	// Phase times a part of the work until the returned function is called.
	Phase(name string) (end func())
}

// Config is the publish worker's own configuration.
type Config struct {
	RequireHardFence bool `env:"PERAGO_REQUIRE_HARD_FENCE,default=false" desc:"Refuse to publish what was staged from a commit without the hard fence's action file (perago fence install); production needs it"`
}

// Publisher runs perago_publish tasks. It keeps no state between them.
type Publisher struct {
	Lake     Lake
	Fence    Fence
	Tasks    Tasks
	Identity txn.ConductorIdentity
	Allowed  txn.AllowList
	// NewExecutionID gives a fresh UUIDv7.
	NewExecutionID func() (txn.ExecutionID, error)
	// WorkflowURL is a workflow's page in Conductor's UI; nil when there is none.
	WorkflowURL func(txn.WorkflowID) string
	// RequireHardFence refuses to merge a source without the fence's action file.
	RequireHardFence bool
	// Unfenced hears of a landed commit that the hard fence did not hold for
	// although it is required, and why, with what mends it; nil when nobody listens.
	Unfenced func(task txn.Task, landed txn.CommitID, why error)
	// LateLanding hears of a commit of the step above the one that this staging
	// published; nil when nobody listens.
	LateLanding func(repository txn.Repository, target txn.Branch, published, late txn.CommitID)
	// Rejected hears why the publish fence refused a publication; nil when nobody
	// listens.
	Rejected func(reason string)
	// Published counts how publications end, Merged how long a merge took; nil
	// when nobody counts.
	Published func(txn.Outcome, txn.Fence)
	Merged    func(took, timeout time.Duration)
}

// Result is what the task's output says. On failure it has no workspace, and its
// publication holds what is known.
type Result struct {
	Workspace   *txn.Workspace
	Publication *txn.Publication
	// LateLandings is the commits of the step found above the published one.
	LateLandings []txn.CommitID
}

// Output is the task's output; nil when there is nothing to say.
func (r Result) Output() map[string]any {
	output := map[string]any{}
	if r.Workspace != nil {
		output["workspace"] = *r.Workspace
	}
	if r.Publication != nil {
		output["publication"] = *r.Publication
	}
	if len(r.LateLandings) > 0 {
		output["late_landings"] = r.LateLandings
	}
	return output
}

// Run publishes one task. Its error is for txn.ResultOf; the result then holds
// the evidence.
func (p *Publisher) Run(ctx context.Context, task txn.Task, attempt Attempt) (Result, error) {
	run := &execution{Publisher: p, task: task, attempt: attempt}
	publication, err := run.run(ctx)
	err = run.overlap(ctx, err)
	if publication != nil && p.Published != nil && txn.ResultOf(txn.TypePublish, err).Update {
		p.Published(publication.Outcome, publication.Fence)
	}
	if reason := rejection(err); reason != "" && p.Rejected != nil {
		p.Rejected(reason)
	}
	result := Result{Publication: publication, LateLandings: run.late}
	if err == nil {
		workspace := run.input.Workspace.At(publication.Commit)
		result.Workspace = &workspace
	}
	return result, err
}

// The reasons of the publish fence, as metric labels.
const (
	rejectedAdvanced = "advanced"
	rejectedRaced    = "raced"
	rejectedByHook   = "hook"
)

// rejection is the reason when an error is the publish fence's.
func rejection(err error) string {
	switch {
	case errors.As(err, new(*txn.PublishFenceError)):
		return rejectedAdvanced
	case errors.As(err, new(*txn.PublishRacedError)), errors.As(err, new(*txn.UnexpectedLandingError)):
		return rejectedRaced
	case errors.Is(err, txn.ErrFenceRefused):
		return rejectedByHook
	}
	return ""
}

// execution is one run of an attempt.
type execution struct {
	*Publisher
	task    txn.Task
	attempt Attempt
	input   txn.PublishInput
	budget  txn.Budget
	step    txn.Step
	// stage is the record of the task that staged.
	stage txn.Task
	// id is this execution's.
	id     txn.ExecutionID
	wanted txn.MetaRangeID
	// history is what the newest decision read of the target: immutable commits,
	// not where the branch is now.
	history []txn.Commit
	// carrier is the newest commit that was seen to carry the known action file.
	carrier txn.CommitID
	// late is the late landings that were seen and told of.
	late []txn.CommitID
}

func (e *execution) run(ctx context.Context) (*txn.Publication, error) {
	end := e.attempt.Phase("validate")
	err := e.prepare(ctx)
	end()
	if err != nil {
		return nil, err
	}
	decision, err := e.decide(ctx, true)
	if err != nil {
		return e.failed(txn.PublishDecision{}, err), err
	}
	publication, again, err := e.carryOut(ctx, decision, txn.SourceFirst)
	if !again {
		return publication, err
	}
	// The merge was refused for good, often because an earlier attempt of this step
	// landed first. What the branch holds now decides, once more and no more.
	if decision, err = e.decide(ctx, false); err != nil {
		return e.failed(decision, err), err
	}
	publication, _, err = e.carryOut(ctx, decision, txn.SourceSecond)
	return publication, err
}

// carryOut does what was decided. again says that the merge was refused for good
// and that another decision may do better.
func (e *execution) carryOut(ctx context.Context, decision txn.PublishDecision, use int) (publication *txn.Publication, again bool, err error) {
	switch decision.Action {
	case txn.PublishNothing:
		return e.nothing(), false, nil
	case txn.PublishAdopt:
		return e.adopted(ctx, decision, txn.OutcomeAlreadyPublished), false, nil
	}
	end := e.attempt.Phase("source")
	source, err := e.source(ctx, decision, use)
	end()
	if err != nil {
		return e.failed(decision, err), false, err
	}
	record := txn.ConfirmRecord(e.step, e.input.Staged, decision, source, txn.AttemptOf(e.task), e.id)
	landed, err := e.merge(ctx, record)
	switch {
	case err == nil:
		publication, err = e.verify(ctx, decision, record, landed)
		return publication, false, err
	case errors.Is(err, txn.ErrUnknownOutcome):
		return e.settle(ctx, decision, record, err)
	}
	return e.failed(decision, err), refusedByTheHead(err), err
}

// refusedByTheHead reports whether a refusal is about where the branch is: a
// conflict, which lakeFS finds before it runs a hook, or the hard fence. A
// refusal by somebody else's hook is not.
func refusedByTheHead(err error) bool {
	return errors.Is(err, txn.ErrConflict) || errors.Is(err, txn.ErrFenceRefused)
}

// prepare checks the input and the stage task's record, and reads the tree to
// publish. Nothing of the target is read yet.
func (e *execution) prepare(ctx context.Context) error {
	if e.task.Definition == nil {
		return txn.Terminalf("", "Conductor gave task %s without its definition, which holds the publish budget", e.task.ID)
	}
	budget, err := txn.CheckPublishDefinition(*e.task.Definition)
	if err != nil {
		return txn.Terminalf("", "%v", err)
	}
	e.budget = budget
	input, err := txn.InputOf(e.task)
	if err != nil {
		return err
	}
	if e.input, err = txn.ParsePublishInput(input, *e.task.Definition, e.Allowed); err != nil {
		return err
	}
	staged := e.input.Staged
	e.stage, err = e.Tasks.Task(ctx, staged.Task)
	switch {
	case errors.Is(err, txn.ErrNotFound):
		return txn.Terminalf("staged.task_id", "task %s is unknown to Conductor; rerun from the stage task", staged.Task)
	case err != nil:
		return fmt.Errorf("read the stage task: %w", err)
	}
	key, err := txn.CheckUpstream(staged, e.stage, e.task.Workflow)
	if err != nil {
		return err
	}
	e.step = txn.StepOf(staged, e.task.Workflow, key)
	if staged.StagingBranch != "" {
		name, err := txn.ParseStagingName(staged.StagingBranch)
		if err != nil {
			return txn.Terminalf("staged.staging_branch", "%v", err)
		}
		if !name.OfStep(e.Identity, e.task.Workflow, key) {
			return txn.Terminalf("staged.staging_branch", "%s was named under another Conductor identity than this worker's; set the same PERAGO_CONDUCTOR_ID for every worker", staged.StagingBranch)
		}
	}

	commit, err := e.Lake.Commit(ctx, e.step.Repository, staged.Commit)
	switch {
	case errors.Is(err, txn.ErrNotFound), errors.Is(err, txn.ErrGone):
		return errors.Join(txn.Terminalf("staged.commit", "the staged commit %s is gone; rerun from %s", staged.Commit, e.stage.ReferenceName), err)
	case err != nil:
		return fmt.Errorf("read the staged commit: %w", err)
	}
	e.wanted = commit.MetaRange
	if e.id, err = e.NewExecutionID(); err != nil {
		return err
	}
	if staged.NoOp || staged.ReadOnly {
		return nil
	}
	return txn.CheckStagedCommit(e.step, staged, commit)
}

// decide asks the attempt fence, reads the target and decides. first says that
// it is the attempt's first decision.
func (e *execution) decide(ctx context.Context, first bool) (txn.PublishDecision, error) {
	defer e.attempt.Phase("decide")()
	if err := e.attempt.Current(ctx); err != nil {
		return txn.PublishDecision{}, err
	}
	facts := txn.PublishFacts{
		Step: e.step, Staged: e.input.Staged, Wanted: e.wanted,
		FirstTry: first && e.stage.RetryCount == 0 && e.stage.PollCount == 1 && e.task.RetryCount == 0 && e.task.PollCount == 1,
	}
	if facts.Staged.ReadOnly {
		return txn.DecidePublish(facts)
	}
	var err error
	// The list comes before the head. Cleanup deletes the branch of an older
	// attempt once the target shows that its merge has landed. So a branch that is
	// missing from the list has landed or was never made, and the head that is read
	// afterwards shows the landing. In the other order a merge and a deletion
	// between the two reads would hide both.
	if facts.Staged.NoOp && facts.FirstTry {
		if facts.OtherBranches, err = e.otherBranches(ctx); err != nil {
			return txn.PublishDecision{}, err
		}
	}
	if facts.Head, err = e.Lake.Head(ctx, e.step.Repository, e.step.Branch); err != nil {
		return txn.PublishDecision{}, fmt.Errorf("read the head of %s: %w", e.step.Branch, err)
	}
	if facts.Head != e.step.InputRef {
		facts.Range, facts.Reached, err = e.Lake.History(ctx, e.step.Repository, facts.Head, e.step.InputRef, txn.HistoryLimit)
		if err != nil {
			return txn.PublishDecision{}, fmt.Errorf("read the history of %s: %w", e.step.Branch, err)
		}
		e.history = facts.Range
		e.reportLate(e.step.LandedLate(facts.Staged.Execution, facts.Range))
	}
	decision, err := txn.DecidePublish(facts)
	if err == nil && decision.Action == txn.PublishAdopt {
		err = e.checkAdoption(ctx, decision, facts)
	}
	return decision, err
}

// checkAdoption makes sure that the branch still holds what it is about to adopt.
func (e *execution) checkAdoption(ctx context.Context, decision txn.PublishDecision, facts txn.PublishFacts) error {
	at := slices.IndexFunc(facts.Range, func(c txn.Commit) bool { return c.ID == decision.Adopt })
	adoption, err := ReadAdoption(ctx, e.Lake, e.step, facts.Range[:at+1])
	if err != nil {
		return fmt.Errorf("read what %s holds of %s: %w", e.step.Branch, decision.Adopt, err)
	}
	return txn.CheckAdoption(adoption)
}

// otherBranches reports whether another execution of the step left a branch. The
// only branch of a no-op's own is the one onto which it imported what was there.
func (e *execution) otherBranches(ctx context.Context) (bool, error) {
	branches, err := e.Lake.Branches(ctx, e.step.Repository, txn.StepBranches(e.Identity, e.step.Workflow, e.step.Key))
	if err != nil {
		return false, fmt.Errorf("list the branches of this step: %w", err)
	}
	return slices.ContainsFunc(branches, func(b txn.BranchHead) bool { return b.Name != e.input.Staged.StagingBranch }), nil
}

func (e *execution) nothing() *txn.Publication {
	publication := &txn.Publication{Commit: e.step.InputRef, Outcome: txn.OutcomeNoOp, Fence: txn.FenceSoft}
	if e.input.Staged.ReadOnly {
		publication.Outcome = txn.OutcomeReadOnly
	}
	return publication
}

func (e *execution) adopted(ctx context.Context, decision txn.PublishDecision, outcome txn.Outcome) *txn.Publication {
	return &txn.Publication{
		Commit: decision.Adopt, ExpectedHead: decision.ExpectedHead, Supersedes: decision.Supersedes,
		Outcome: outcome, Fence: e.fenceOf(ctx, decision.Adopt, decision.Adopt),
	}
}

// verify reads what a merge landed as and compares it with what was decided. It
// has a deadline of its own, for the same reason as the merge.
func (e *execution) verify(ctx context.Context, decision txn.PublishDecision, record txn.Record, landed txn.CommitID) (*txn.Publication, error) {
	end := e.attempt.Phase("verify")
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.budget.CompletionTimeout)
	defer cancel()
	commit, err := e.Lake.Commit(reading, e.step.Repository, landed)
	end()
	if err != nil {
		err = &txn.InDoubtError{Branch: e.step.Branch, ExpectedHead: decision.ExpectedHead, Why: fmt.Sprintf("it landed as %s, which cannot be read", landed), Cause: err}
	} else {
		err = txn.CheckLanded(commit, e.wanted, record)
	}
	if err == nil {
		err = e.lookAbove(reading, decision, landed)
	}
	publication := &txn.Publication{
		Commit: landed, ExpectedHead: decision.ExpectedHead, Supersedes: decision.Supersedes,
		Outcome: txn.OutcomePublished, Fence: e.fenceOf(reading, landed, record.SourceCommit),
	}
	if err != nil {
		publication.Outcome = outcomeOf(err)
	}
	return publication, err
}

// merge asks the fence, with a lease that is long enough, and sends one merge, never
// again.
func (e *execution) merge(ctx context.Context, record txn.Record) (txn.CommitID, error) {
	end := e.attempt.Phase("merge")
	defer end()
	if err := e.requireFence(ctx, record.SourceCommit); err != nil {
		return "", err
	}
	// Last: nothing that may wait stands between this check and the merge.
	if err := e.attempt.Cover(ctx, e.budget.MergeTimeout+e.budget.CompletionTimeout); err != nil {
		return "", err
	}
	// A merge that was sent is not taken back by a lease that ends or a worker
	// that stops: its answer is worth having, so it has a deadline of its own.
	merging, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.budget.MergeTimeout)
	defer cancel()
	sent := time.Now()
	landed, err := e.Lake.Merge(merging, txn.Merge{
		Repository: e.step.Repository, Source: record.SourceCommit, Destination: e.step.Branch,
		Message:  fmt.Sprintf("Publish %s of %s", e.stage.ReferenceName, e.step.Prefix),
		Metadata: record.Metadata(e.workflowURL()),
	})
	if e.Merged != nil {
		e.Merged(time.Since(sent), e.budget.MergeTimeout)
	}
	if err != nil {
		return "", fmt.Errorf("merge %s into %s at %s: %w", record.SourceCommit.Short(), e.step.Branch, record.ExpectedHead.Short(), err)
	}
	return landed, nil
}

// failed is the evidence of a publication that did not happen as decided.
func (e *execution) failed(decision txn.PublishDecision, err error) *txn.Publication {
	publication := &txn.Publication{
		ExpectedHead: decision.ExpectedHead, Supersedes: decision.Supersedes,
		Outcome: outcomeOf(err), Fence: txn.FenceSoft,
	}
	var raced *txn.PublishRacedError
	var taken *txn.TakenBackError
	switch {
	case errors.As(err, &raced):
		publication.Commit = raced.Published
	case errors.As(err, &taken):
		publication.Commit = taken.Published
	}
	return publication
}

func outcomeOf(err error) txn.Outcome {
	var (
		raced   *txn.PublishRacedError
		landed  *txn.UnexpectedLandingError
		inDoubt *txn.InDoubtError
	)
	switch {
	case errors.As(err, &raced), errors.As(err, &landed):
		return txn.OutcomeRaced
	case errors.As(err, new(*txn.TakenBackError)):
		return txn.OutcomeTakenBack
	case errors.As(err, &inDoubt):
		return txn.OutcomeInDoubt
	}
	return txn.OutcomeRefused
}

func (e *execution) workflowURL() string {
	if e.WorkflowURL == nil {
		return ""
	}
	return e.WorkflowURL(e.task.Workflow)
}
