package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"perago/pkg/txn"
)

// fenceOf says which fence held for a landed commit. It is hard when lakeFS ran
// the known hook for it to completion, from the known file: an edited one has runs
// of the same names. merged is a commit with the tree that was merged. It never
// fails a landed publication: what cannot be read counts as soft.
func (e *execution) fenceOf(ctx context.Context, landed, merged txn.CommitID) txn.Fence {
	defer e.attempt.Phase("fence")()
	runs, unread := e.Lake.HookRuns(ctx, e.step.Repository, landed)
	if unread == nil && txn.FenceOf(runs) == txn.FenceHard {
		if carries, err := e.carriesFence(ctx, merged); err == nil && carries {
			return txn.FenceHard
		}
	}
	if e.RequireHardFence && e.Unfenced != nil {
		e.Unfenced(e.task, landed, e.unfenced(ctx, landed, merged, runs, unread))
	}
	return txn.FenceSoft
}

// unfenced says why the hard fence did not hold for a landed commit, and what
// mends it.
func (e *execution) unfenced(ctx context.Context, landed, merged txn.CommitID, runs []txn.HookRun, unread error) error {
	if err := e.checkFence(ctx, merged); err != nil {
		return err
	}
	verify := e.fenceCommand("verify")
	switch {
	case unread != nil:
		return fmt.Errorf("which hooks lakeFS ran for commit %s cannot be read; give the key ci:ReadAction and run %s: %w", landed, verify, unread)
	case len(runs) == 0:
		return fmt.Errorf("lakeFS ran no hook for commit %s: its actions are switched off (LAKEFS_ACTIONS_ENABLED, or actions.enabled in its configuration); switch them on, restart lakeFS and run %s", landed, verify)
	}
	return fmt.Errorf("lakeFS has no completed run of the hook %s for commit %s; run %s", txn.FenceHook, landed, verify)
}

// requireFence refuses a source that does not carry the known action file, where
// the hard fence is required: lakeFS loads hooks from the source of a merge.
func (e *execution) requireFence(ctx context.Context, source txn.CommitID) error {
	if !e.RequireHardFence {
		return nil
	}
	defer e.attempt.Phase("fence")()
	return e.checkFence(ctx, source)
}

// checkFence says what is wrong with the action file of a commit, and what mends
// it.
func (e *execution) checkFence(ctx context.Context, commit txn.CommitID) error {
	carries, err := e.carriesFence(ctx, commit)
	switch {
	case errors.Is(err, txn.ErrNotFound):
		return txn.FenceFileError(e.step.Repository, e.step.Branch, commit, false)
	case err != nil:
		return fmt.Errorf("read %s of commit %s: %w", txn.FenceFile, commit, err)
	case !carries:
		return txn.FenceFileError(e.step.Repository, e.step.Branch, commit, true)
	}
	return nil
}

// fenceCommand is the command line that does something about the fence of the
// target.
func (e *execution) fenceCommand(verb string) string {
	return fmt.Sprintf("`perago fence %s lakefs://%s/%s`", verb, e.step.Repository, e.step.Branch)
}

// carriesFence reports whether a commit carries the known action file. It is asked
// of one commit several times.
func (e *execution) carriesFence(ctx context.Context, commit txn.CommitID) (bool, error) {
	if commit == e.carrier {
		return true, nil
	}
	carries, err := e.Fence.Carries(ctx, e.step.Repository, commit)
	if carries {
		e.carrier = commit
	}
	return carries, err
}

// fenceProven reports whether the hard fence is known to hold for a merge of
// this source: the source carries the known file, and lakeFS has run it to
// completion for some confirm commit on the target: the newest ones after the
// input ref, or the input ref itself. What cannot be read proves nothing.
func (e *execution) fenceProven(ctx context.Context, source txn.CommitID) bool {
	defer e.attempt.Phase("fence")()
	if carries, err := e.carriesFence(ctx, source); err != nil || !carries {
		return false
	}
	commits := e.history
	if input, err := e.Lake.Commit(ctx, e.step.Repository, e.step.InputRef); err == nil {
		commits = append(slices.Clone(commits), input)
	}
	return e.Fence.HasRun(ctx, e.step.Repository, e.step.Branch, commits)
}
