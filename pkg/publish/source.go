package publish

import (
	"context"
	"errors"
	"fmt"

	"perago/pkg/txn"
)

// source is the commit to merge for a decision. A first publication merges S
// itself, by its full id.
//
// S was cut from the input ref, so merging it onto an earlier publication of the
// step is a conflict, and forcing it would keep files that only the abandoned
// attempt wrote. A superseding publication therefore merges a commit made for it:
// cut from the expected head, with the wanted tree whole.
//
// An empty confirm commit merges the expected head itself. Its source branch is
// a mark that somebody may still land.
func (e *execution) source(ctx context.Context, decision txn.PublishDecision, use int) (txn.CommitID, error) {
	if decision.Action == txn.PublishFirst {
		return e.input.Staged.Commit, nil
	}
	branch, err := e.sourceBranch(ctx, use, decision.ExpectedHead)
	switch {
	case err != nil:
		return "", err
	case decision.Action == txn.PublishEmpty:
		return decision.ExpectedHead, nil
	}
	message := fmt.Sprintf("Source of %s, superseding %s", e.stage.ReferenceName, decision.Supersedes.Short())
	made, err := e.Lake.CommitTree(ctx, e.step.Repository, branch, e.wanted, message, e.sourceRecord(branch))
	if err != nil {
		return "", fmt.Errorf("commit %s: %w", branch, err)
	}
	// It will be merged by this id, so it is read by this id.
	commit, err := e.Lake.Commit(ctx, e.step.Repository, made.ID)
	if err != nil {
		return "", fmt.Errorf("read the commit of %s: %w", branch, err)
	}
	return commit.ID, e.checkSource(branch, commit, decision.ExpectedHead)
}

// checkSource holds a source commit to what it must be: the wanted tree on the
// expected head.
func (e *execution) checkSource(branch txn.Branch, commit txn.Commit, parent txn.CommitID) error {
	if len(commit.Parents) != 1 || commit.Parents[0] != parent {
		return fmt.Errorf("the commit %s of %s has parents %v, not %s alone; somebody else wrote the branch", commit.ID, branch, commit.Parents, parent)
	}
	if commit.MetaRange != e.wanted {
		return fmt.Errorf("the commit %s of %s has tree %q, not %q", commit.ID, branch, commit.MetaRange, e.wanted)
	}
	return nil
}

// sourceBranch makes a branch of this publish's execution. A name whose creation
// could not be settled is abandoned, and one more is tried under a fresh
// execution id. Settling took seconds, so the fence is asked again before.
func (e *execution) sourceBranch(ctx context.Context, use int, at txn.CommitID) (txn.Branch, error) {
	for fresh := true; ; fresh = false {
		name := txn.NewStagingName(e.Identity, e.step.Workflow, e.step.Key, e.task.RetryCount, e.id)
		name.Source = use
		err := e.Lake.CreateBranch(ctx, e.step.Repository, name.Branch(), at)
		switch {
		case err == nil:
			return name.Branch(), nil
		case !fresh || !errors.Is(err, txn.ErrUnknownOutcome) || ctx.Err() != nil:
			return "", fmt.Errorf("create branch %s: %w", name.Branch(), err)
		}
		if err := e.attempt.Current(ctx); err != nil {
			return "", err
		}
		if e.id, err = e.NewExecutionID(); err != nil {
			return "", err
		}
	}
}

func (e *execution) sourceRecord(branch txn.Branch) map[string]string {
	return txn.Record{
		Phase: txn.PhaseSource, Key: e.step.Key, Workflow: e.step.Workflow,
		Task: e.task.ID, RetryCount: e.task.RetryCount, Execution: e.id,
		InputRef: e.step.InputRef, TargetBranch: e.step.Branch, Prefix: e.step.Prefix, StagingBranch: branch,
	}.Metadata(e.workflowURL())
}
