package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"perago/pkg/txn"
)

// fenceOf says which fence held for a landed commit. It never fails a landed
// publication: what cannot be read counts as soft.
func (e *execution) fenceOf(ctx context.Context, landed txn.CommitID) txn.Fence {
	defer e.attempt.Phase("fence")()
	fence := txn.FenceSoft
	if runs, err := e.Lake.HookRuns(ctx, e.step.Repository, landed); err == nil {
		fence = txn.FenceOf(runs)
	}
	if fence != txn.FenceHard && e.RequireHardFence && e.Unfenced != nil {
		e.Unfenced(e.task, landed)
	}
	return fence
}

// requireFence refuses a source that does not carry the known action file:
// lakeFS loads hooks from the source of a merge.
func (e *execution) requireFence(ctx context.Context, source txn.CommitID) error {
	if !e.RequireHardFence {
		return nil
	}
	defer e.attempt.Phase("fence")()
	mend := fmt.Sprintf("PERAGO_REQUIRE_HARD_FENCE is set; run `perago fence install lakefs://%s/%s` and start a new workflow from the head it prints", e.step.Repository, e.step.Branch)
	carries, err := e.carriesFence(ctx, source)
	switch {
	case errors.Is(err, txn.ErrNotFound):
		return fmt.Errorf("commit %s holds no %s, and %s", source, txn.FenceFile, mend)
	case err != nil:
		return fmt.Errorf("read %s of commit %s: %w", txn.FenceFile, source, err)
	case !carries:
		return fmt.Errorf("%s of commit %s is not the one that this version knows, and %s", txn.FenceFile, source, mend)
	}
	return nil
}

// carriesFence reports whether a commit carries the known action file.
func (e *execution) carriesFence(ctx context.Context, commit txn.CommitID) (bool, error) {
	file, err := e.Lake.ReadObject(ctx, e.step.Repository, commit, txn.FenceFile)
	if err != nil {
		return false, err
	}
	defer file.Close()
	// One byte more than the known file tells a longer one.
	content, err := io.ReadAll(io.LimitReader(file, int64(len(e.FenceFile))+1))
	if err != nil {
		return false, err
	}
	return len(e.FenceFile) > 0 && bytes.Equal(content, e.FenceFile), nil
}

// provenLimit is how many confirm commits are asked for a run of the fence.
const provenLimit = 8

// fenceProven reports whether the hard fence is known to hold for a merge of
// this source: the source carries the known file, and lakeFS has run it to
// completion for some confirm commit on the target: the newest ones after the
// input ref, or the input ref itself. What cannot be read proves nothing.
func (e *execution) fenceProven(ctx context.Context, source txn.CommitID) bool {
	defer e.attempt.Phase("fence")()
	if carries, err := e.carriesFence(ctx, source); err != nil || !carries {
		return false
	}
	commits := e.history[:min(len(e.history), provenLimit)]
	if input, err := e.Lake.Commit(ctx, e.step.Repository, e.step.InputRef); err == nil {
		commits = append(slices.Clone(commits), input)
	}
	for _, commit := range commits {
		record, err := txn.ParseRecord(commit.Metadata)
		if err != nil || record.Phase != txn.PhaseConfirm || record.TargetBranch != e.step.Branch {
			continue
		}
		if runs, err := e.Lake.HookRuns(ctx, e.step.Repository, commit.ID); err == nil && txn.FenceOf(runs) == txn.FenceHard {
			return true
		}
	}
	return false
}
