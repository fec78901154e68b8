package cleanup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"perago/pkg/txn"
)

// judge decides about the branches of one workflow. What it says of the workflow
// was read for the decisions at hand.
type judge struct {
	*Cleaner
	workflow txn.Workflow
	// known is false when Conductor has no such workflow.
	known bool
}

// read reads the workflow that the decisions are about.
func (j *judge) read(ctx context.Context, id txn.WorkflowID) error {
	workflow, err := j.Workflows.Workflow(ctx, id)
	switch {
	case errors.Is(err, txn.ErrNotFound):
		j.workflow, j.known = txn.Workflow{ID: id}, false
		return nil
	case err != nil:
		return fmt.Errorf("read workflow %s: %w", id, err)
	}
	j.workflow, j.known = workflow, true
	return nil
}

// decide reads what the decision about one branch is made of, and decides.
func (j *judge) decide(ctx context.Context, repository txn.Repository, branch txn.BranchHead) (txn.CleanupDecision, error) {
	name, err := txn.ParseStagingName(branch.Name)
	if err != nil {
		return txn.CleanupDecision{Reason: "its name is not one that perago gives"}, nil
	}
	if !name.OfWorkflow(j.Identity, j.workflow.ID) {
		return txn.CleanupDecision{Reason: "it is another workflow's"}, nil
	}
	facts := txn.CleanupFacts{
		WorkflowKnown: j.known, WorkflowStatus: j.workflow.Status,
		StepOpen: txn.StepOpen(j.workflow, name),
		Age:      j.Now().Sub(name.Execution.Time()), TTL: j.TTL,
	}
	s, err := j.settled(ctx, repository, name, branch.Head)
	if err != nil {
		// Age needs nothing of the target: a target that is gone keeps no branch for
		// ever.
		facts.SettledWhy = err.Error()
		decision := txn.DecideCleanup(facts)
		if !decision.Delete || ctx.Err() != nil {
			return txn.CleanupDecision{}, err
		}
		return decision, nil
	}
	facts.Settled, facts.SettledWhy = txn.Settled(s.SettledFacts)
	if s.uncommitted && !facts.Settled {
		facts.SettledWhy = "nothing was committed on it, and its execution may still be at work"
	}
	if s.unsettled != "" {
		facts.Settled, facts.SettledWhy = false, s.unsettled
	}
	return txn.DecideCleanup(facts), nil
}

// delete deletes a branch that was judged. One that is gone by then is deleted
// too: another cleanup or sweep was faster.
func (j *judge) delete(ctx context.Context, repository txn.Repository, branch txn.Branch, reason string) error {
	if err := j.Lake.DeleteBranch(ctx, repository, branch); err != nil && !errors.Is(err, txn.ErrNotFound) {
		return fmt.Errorf("delete branch %s: %w", branch, err)
	}
	j.tell(Decided{Repository: repository, Branch: branch, State: StateDeleted, Reason: reason})
	return nil
}

func (j *judge) tell(decided Decided) {
	decided.Workflow = j.workflow.ID
	if j.Events.Decided != nil {
		j.Events.Decided(decided)
	}
}

// settling is what the target says about one branch.
type settling struct {
	txn.SettledFacts
	// unsettled is why nothing can be said; then the branch is not settled.
	unsettled string
	// uncommitted says that its execution committed nothing on it.
	uncommitted bool
}

// settled reads the target for what tells whether the branch can still be needed.
func (j *judge) settled(ctx context.Context, repository txn.Repository, name txn.StagingName, head txn.CommitID) (settling, error) {
	commit, err := j.Lake.Commit(ctx, repository, head)
	if err != nil {
		return settling{}, fmt.Errorf("read the commit of branch %s: %w", name.Branch(), err)
	}
	record, err := txn.ParseRecord(commit.Metadata)
	committed := err == nil && record.Execution == name.Execution
	// A mark, and a staging branch that an execution left before its commit, still
	// point at what they were cut from; only the step's tasks say where they belong.
	if !committed {
		key, workspace, ok := j.stepOf(name)
		if !ok {
			return settling{unsettled: "no task of its step is known any more, so its target is not known"}, nil
		}
		record = txn.Record{Key: key, Workflow: j.workflow.ID, TargetBranch: workspace.Branch, InputRef: commit.ID, Phase: txn.PhaseTry}
	}
	if !j.Allowed.Allows(repository, record.TargetBranch) {
		return settling{unsettled: fmt.Sprintf("its target %s is not in PERAGO_ALLOWED_REPOSITORIES of this worker", record.TargetBranch)}, nil
	}
	if name.Source > 0 {
		return j.sourceSettled(ctx, repository, name, commit, record, committed)
	}
	return j.stagingSettled(ctx, repository, name, commit, record, committed)
}

func (j *judge) stagingSettled(ctx context.Context, repository txn.Repository, name txn.StagingName, commit txn.Commit, record txn.Record, committed bool) (settling, error) {
	s, err := j.published(ctx, repository, name, commit, record, committed)
	if settled, _ := txn.Settled(s.SettledFacts); err != nil || settled || !committed {
		return s, err
	}
	input, err := j.Lake.Commit(ctx, repository, record.InputRef)
	if err != nil {
		return settling{}, fmt.Errorf("read the input ref of branch %s: %w", name.Branch(), err)
	}
	s.ChangesNothing = commit.MetaRange == input.MetaRange
	return s, nil
}

// published reads what the target says about the publication of one staging.
func (j *judge) published(ctx context.Context, repository txn.Repository, name txn.StagingName, commit txn.Commit, record txn.Record, committed bool) (settling, error) {
	head, commits, reached, err := j.history(ctx, repository, record.TargetBranch, record.InputRef)
	if err != nil {
		return settling{}, err
	}
	step := txn.Step{
		Repository: repository, Branch: record.TargetBranch, Workflow: record.Workflow,
		Key: record.Key, Prefix: record.Prefix, InputRef: record.InputRef,
	}
	s := settling{uncommitted: !committed, SettledFacts: txn.SettledFacts{
		HeadIsInput: head == record.InputRef,
		HeadIsOurs:  len(commits) > 0 && step.Owns(commits[0]),
	}}
	switch {
	case committed:
		decision, err := txn.DecidePublish(txn.PublishFacts{
			Step:   step,
			Staged: txn.Staged{Execution: name.Execution, Commit: commit.ID, InputRef: record.InputRef},
			Wanted: commit.MetaRange, Head: head, Range: commits, Reached: reached,
		})
		if err == nil && decision.Action == txn.PublishAdopt {
			s.WouldAdopt = true
			return s, nil
		}
	case !reached && !s.HeadIsInput:
		// What it points at is no input ref of this target, so somebody committed
		// there, and what the execution committed may lie below.
		s.unsettled = "it does not point at a commit of its target or of its execution"
		return s, nil
	}
	if s.HeadIsInput {
		return s, nil
	}
	s.OtherPublished = j.otherPublished(name, commits)
	s.HardFenceProven = j.proven(ctx, repository, record.TargetBranch, commit.ID, record.InputRef, commits)
	return s, nil
}

// otherPublished reports whether the step's publish completed with another
// staging, whose confirm commit is among the target's commits.
func (j *judge) otherPublished(name txn.StagingName, commits []txn.Commit) bool {
	for _, task := range j.workflow.Tasks {
		published, ok := publishedBy(task)
		if !ok {
			continue
		}
		staged, err := txn.StagedOf(task)
		if err != nil || staged.Execution == name.Execution || !name.OfStep(j.Identity, j.workflow.ID, staged.Key) {
			continue
		}
		if slices.ContainsFunc(commits, func(c txn.Commit) bool { return c.ID == published }) {
			return true
		}
	}
	return false
}

// sourceSettled is settled for a source branch: a commit on it, or none where it
// is a mark only.
func (j *judge) sourceSettled(ctx context.Context, repository txn.Repository, name txn.StagingName, commit txn.Commit, record txn.Record, committed bool) (settling, error) {
	base := commit.ID
	if committed {
		if len(commit.Parents) != 1 {
			return settling{unsettled: fmt.Sprintf("its commit has %d parents, so it is not one of ours", len(commit.Parents))}, nil
		}
		base = commit.Parents[0]
	}
	head, commits, reached, err := j.history(ctx, repository, record.TargetBranch, base)
	if err != nil {
		return settling{}, err
	}
	s := settling{SettledFacts: txn.SettledFacts{
		Source: true, HeadIsBase: head == base,
		Landed: slices.ContainsFunc(commits, func(c txn.Commit) bool {
			landed, err := txn.ParseRecord(c.Metadata)
			return err == nil && landed.Phase == txn.PhaseConfirm && landed.Execution == name.Execution
		}),
	}}
	switch {
	case s.Landed || s.HeadIsBase:
	case !committed && !reached:
		s.unsettled = "it does not point at a commit of its target or of its execution"
	default:
		s.HardFenceProven = j.proven(ctx, repository, record.TargetBranch, commit.ID, base, commits)
	}
	return s, nil
}

// proven reports whether the hard fence would refuse a merge of source into the
// target; input is the last commit that commits do not hold.
func (j *judge) proven(ctx context.Context, repository txn.Repository, target txn.Branch, source, input txn.CommitID, commits []txn.Commit) bool {
	if below, err := j.Lake.Commit(ctx, repository, input); err == nil {
		commits = append(slices.Clone(commits), below)
	}
	return j.Fence.Proven(ctx, repository, target, source, commits)
}

// stepOf is the key and the workspace of a branch's step, from the workflow's
// stage tasks.
func (j *judge) stepOf(name txn.StagingName) (txn.LogicalTaskKey, txn.Workspace, bool) {
	for _, task := range j.workflow.Tasks {
		if !task.Type.IsStage() {
			continue
		}
		key := txn.NewLogicalTaskKey(j.workflow.ID, task.ReferenceName, task.Iteration)
		if !name.OfStep(j.Identity, j.workflow.ID, key) {
			continue
		}
		if workspace, ok := txn.WorkspaceOf(task); ok && workspace.Branch != "" {
			return key, workspace, true
		}
	}
	return "", txn.Workspace{}, false
}

func (j *judge) history(ctx context.Context, repository txn.Repository, branch txn.Branch, downTo txn.CommitID) (head txn.CommitID, commits []txn.Commit, reached bool, err error) {
	if head, err = j.Lake.Head(ctx, repository, branch); err != nil {
		return "", nil, false, fmt.Errorf("read the head of %s: %w", branch, err)
	}
	if commits, reached, err = j.Lake.History(ctx, repository, head, downTo, txn.HistoryLimit); err != nil {
		return "", nil, false, fmt.Errorf("read the history of %s: %w", branch, err)
	}
	return head, commits, reached, nil
}

// unreported is a publication of a step that no completed publish put out.
type unreported struct {
	target txn.Branch
	commit txn.CommitID
	// above is the publication below it that a completed publish put out: an older
	// attempt's merge landed late. Empty when none did: the workflow has ended, and
	// its publication landed all the same.
	above txn.CommitID
}

func (u unreported) Error() string {
	if u.above == "" {
		return fmt.Sprintf("%s holds %s of this step, which no publish task of the ended workflow put out: its merge landed, and its answer or its completion was lost; a retry of the workflow adopts it", u.target, u.commit)
	}
	return fmt.Sprintf("%s holds %s of this step above the %s that it published: an older attempt's merge landed late; inspect it, and revert it if it is not wanted", u.target, u.commit, u.above)
}

// unreported looks for publications of the workflow's steps, or of one only, that
// no completed publish put out. The tasks were read before the target, so a publish
// that completed in between looks like one of them. What is found is therefore
// looked for once more, with the tasks read anew, and only what is found both times
// counts.
func (j *judge) unreported(ctx context.Context, repository txn.Repository, only txn.LogicalTaskKey) ([]unreported, error) {
	found, err := j.unreportedOf(ctx, repository, only)
	if err != nil || len(found) == 0 {
		return found, err
	}
	if err := j.read(ctx, j.workflow.ID); err != nil {
		return nil, err
	}
	again, err := j.unreportedOf(ctx, repository, only)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(again, func(one unreported) bool { return !slices.Contains(found, one) }), nil
}

// unreportedOf looks for such publications once. They are reported and never rolled
// back, and what is seen is what has landed by now. Without the hard fence a merge
// that an older attempt had sent may land above what the step has published. With
// either fence, a merge that was in doubt may land after the workflow has ended.
func (j *judge) unreportedOf(ctx context.Context, repository txn.Repository, only txn.LogicalTaskKey) ([]unreported, error) {
	type published struct {
		workspace txn.Workspace
		commits   []txn.CommitID
		// open says that a publish task of the step may still put its commit out.
		open bool
		// tasks are the step's publish tasks, and first is when the first of them was
		// scheduled.
		tasks []txn.TaskID
		first time.Time
	}
	steps := map[txn.LogicalTaskKey]*published{}
	var order []txn.LogicalTaskKey
	for _, task := range j.workflow.Tasks {
		if !task.Type.IsPublish() {
			continue
		}
		workspace, ok := txn.WorkspaceOf(task)
		staged, err := txn.StagedOf(task)
		if !ok || err != nil || workspace.Repository != repository || (only != "" && staged.Key != only) || !j.Allowed.Allows(repository, workspace.Branch) {
			continue
		}
		if steps[staged.Key] == nil {
			steps[staged.Key] = &published{workspace: workspace}
			order = append(order, staged.Key)
		}
		step := steps[staged.Key]
		step.open = step.open || task.Status.Open() ||
			task.ExternalOutput // it put something out, and what cannot be seen
		step.tasks = append(step.tasks, task.ID)
		if at := task.Times.Scheduled; step.first.IsZero() || at.Before(step.first) {
			step.first = at
		}
		if commit, ok := publishedBy(task); ok {
			steps[staged.Key].commits = append(steps[staged.Key].commits, commit)
		}
	}
	var found []unreported
	for _, key := range order {
		step := steps[key]
		if step.open {
			continue
		}
		stopAt := step.workspace.Ref
		if len(step.commits) > 0 {
			stopAt = step.commits[len(step.commits)-1]
		} else if !j.workflow.Status.Terminal() {
			continue // its publish may still put it out
		}
		head, above, reached, err := j.history(ctx, repository, step.workspace.Branch, stopAt)
		switch {
		case err != nil:
			return found, err
		case head == stopAt || !reached:
			continue
		}
		if len(step.commits) == 0 {
			// A rerun or restart took the task away that made an older publication, and
			// with it what that task reported: nothing tells that it was unreported.
			above = slices.DeleteFunc(slices.Clone(above), func(c txn.Commit) bool {
				record, err := txn.ParseRecord(c.Metadata)
				return err == nil && !slices.Contains(step.tasks, record.Task) && c.Created.Before(step.first)
			})
		}
		for _, commit := range txn.LateLandings(key, above) {
			one := unreported{target: step.workspace.Branch, commit: commit}
			if len(step.commits) > 0 {
				one.above = stopAt
			}
			found = append(found, one)
		}
	}
	return found, nil
}

// tellUnreported tells of what unreportedOf found.
func (j *judge) tellUnreported(repository txn.Repository, one unreported) {
	switch {
	case one.above != "" && j.Events.LateLanding != nil:
		j.Events.LateLanding(repository, one.target, one.above, one.commit)
	case one.above == "" && j.Events.PublishedAfterEnd != nil:
		j.Events.PublishedAfterEnd(j.workflow.ID, repository, one.target, one.commit)
	}
}

// publishedBy is the commit that a completed publish task put out.
func publishedBy(task txn.Task) (txn.CommitID, bool) {
	publication, ok := txn.PublicationOf(task)
	if !ok || !task.Type.IsPublish() || task.Status != txn.TaskCompleted {
		return "", false
	}
	return publication.Commit, publication.Commit != ""
}
