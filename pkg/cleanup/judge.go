package cleanup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

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

// judgement is the decision about one branch.
type judgement struct {
	txn.CleanupDecision
	// landed, of a staging branch: the commit by which it is published.
	landed txn.CommitID
	target txn.Branch
}

// decide reads what the decision about one branch is made of, and decides.
func (j *judge) decide(ctx context.Context, repository txn.Repository, branch txn.BranchHead) (judgement, error) {
	name, err := txn.ParseStagingName(branch.Name)
	if err != nil {
		return judgement{CleanupDecision: txn.CleanupDecision{Reason: "its name is not one that perago gives"}}, nil
	}
	if !name.OfWorkflow(j.Identity, j.workflow.ID) {
		return judgement{CleanupDecision: txn.CleanupDecision{Reason: "it is another workflow's"}}, nil
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
			return judgement{}, err
		}
		return judgement{CleanupDecision: decision}, nil
	}
	facts.Settled, facts.SettledWhy = txn.Settled(s.SettledFacts)
	if s.uncommitted && !facts.Settled {
		facts.SettledWhy = "nothing was committed on it, and its execution may still be at work"
	}
	if s.unsettled != "" {
		facts.Settled, facts.SettledWhy = false, s.unsettled
	}
	return judgement{CleanupDecision: txn.DecideCleanup(facts), landed: s.landed, target: s.target}, nil
}

// delete deletes a branch that was judged. One that is gone by then is deleted
// too: another cleanup or sweep was faster.
func (j *judge) delete(ctx context.Context, repository txn.Repository, branch txn.Branch, judged judgement) error {
	if err := j.Lake.DeleteBranch(ctx, repository, branch); err != nil && !errors.Is(err, txn.ErrNotFound) {
		return fmt.Errorf("delete branch %s: %w", branch, err)
	}
	j.tell(Decided{Repository: repository, Branch: branch, State: StateDeleted, Reason: judged.Reason})
	if judged.landed != "" && j.workflow.Status.Terminal() && !j.publishedByTask(judged.landed) && j.Events.PublishedAfterEnd != nil {
		j.Events.PublishedAfterEnd(j.workflow.ID, repository, judged.target, judged.landed)
	}
	return nil
}

func (j *judge) tell(decided Decided) {
	decided.Workflow = j.workflow.ID
	if j.Events.Decided != nil {
		j.Events.Decided(decided)
	}
}

func (j *judge) tellLate(repository txn.Repository, one late) {
	if j.Events.LateLanding != nil {
		j.Events.LateLanding(repository, one.target, one.published, one.late)
	}
}

// settling is what the target says about one branch.
type settling struct {
	txn.SettledFacts
	// unsettled is why nothing can be said; then the branch is not settled.
	unsettled string
	// uncommitted says that its execution committed nothing on it.
	uncommitted bool
	target      txn.Branch
	landed      txn.CommitID
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
	head, commits, reached, err := j.history(ctx, repository, record.TargetBranch, record.InputRef)
	if err != nil {
		return settling{}, err
	}
	step := txn.Step{
		Repository: repository, Branch: record.TargetBranch, Workflow: record.Workflow,
		Key: record.Key, Prefix: record.Prefix, InputRef: record.InputRef,
	}
	s := settling{target: record.TargetBranch, uncommitted: !committed, SettledFacts: txn.SettledFacts{
		HeadIsInput: head == record.InputRef,
		HeadIsOurs:  len(commits) > 0 && step.Owns(commits[0]),
	}}
	switch {
	case committed:
		decision, err := txn.DecidePublish(txn.PublishFacts{
			Step:   step,
			Staged: txn.Staged{Execution: name.Execution, Commit: commit.ID, InputRef: record.InputRef},
			Wanted: txn.Tree{ID: commit.MetaRange}, Head: head, Range: commits, Reached: reached,
		})
		if err == nil && decision.Action == txn.PublishAdopt {
			s.WouldAdopt, s.landed = true, decision.Adopt
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
		published, ok := publicationOf(task)
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
	s := settling{target: record.TargetBranch, SettledFacts: txn.SettledFacts{
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
		if workspace, ok := workspaceOf(task); ok && workspace.Branch != "" {
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

// late is a commit of a step above the one that its publish put out.
type late struct {
	target          txn.Branch
	published, late txn.CommitID
}

// lateLandings looks above each publication that a completed publish of the
// workflow put out, or of one step only: without the hard fence a merge that an
// older attempt had sent may land there. It is reported and never rolled back,
// and what is seen is what has landed by now.
func (j *judge) lateLandings(ctx context.Context, repository txn.Repository, only txn.LogicalTaskKey) ([]late, error) {
	var found []late
	for _, task := range j.workflow.Tasks {
		published, ok := publicationOf(task)
		if !ok {
			continue
		}
		workspace, ok := workspaceOf(task)
		staged, err := txn.StagedOf(task)
		if !ok || err != nil || workspace.Repository != repository || (only != "" && staged.Key != only) || !j.Allowed.Allows(repository, workspace.Branch) {
			continue
		}
		head, above, reached, err := j.history(ctx, repository, workspace.Branch, published)
		switch {
		case err != nil:
			return found, err
		case head == published || !reached:
			continue
		}
		for _, commit := range txn.LateLandings(staged.Key, above) {
			found = append(found, late{target: workspace.Branch, published: published, late: commit})
		}
	}
	return found, nil
}

// publishedByTask reports whether a completed publish of the workflow put this
// commit out.
func (j *judge) publishedByTask(commit txn.CommitID) bool {
	return slices.ContainsFunc(j.workflow.Tasks, func(task txn.Task) bool {
		published, ok := publicationOf(task)
		return ok && published == commit
	})
}

// publicationOf is the commit that a completed publish task put out.
func publicationOf(task txn.Task) (txn.CommitID, bool) {
	var output struct {
		Publication txn.Publication `json:"publication"`
	}
	if !task.Type.IsPublish() || task.Status != txn.TaskCompleted || json.Unmarshal(task.Output, &output) != nil {
		return "", false
	}
	return output.Publication.Commit, output.Publication.Commit != ""
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
