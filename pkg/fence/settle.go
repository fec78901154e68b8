package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"perago/pkg/txn"
)

// Settlement is what Settle did.
type Settlement struct {
	// Head is the empty commit that took the commit slot, Before the head that
	// merges under way may have expected.
	Head, Before txn.CommitID
	// Stopped is what had been staged for the branch, is not published and can no
	// longer land.
	Stopped []Unpublished
	// Loose is the same without the known action file in it: lakeFS does not ask
	// the fence for it, so a merge of it that is under way may still land.
	Loose []Unpublished
}

// Unpublished is a staging or source branch whose commit is not in the history of
// its target.
type Unpublished struct {
	Branch   txn.Branch
	Commit   txn.CommitID
	Phase    txn.Phase
	Key      txn.LogicalTaskKey
	Workflow txn.WorkflowID
}

// settleHistory bounds how far down a publication is looked for. A branch that was
// published further down than this and is still there is listed as unpublished.
const settleHistory = 16 * txn.HistoryLimit

// Settle takes the commit slot of the branch with an empty commit, so that lakeFS
// refuses every publication under way that expected the head below it, however
// late it arrives. It needs the hard fence, and says so if lakeFS did not ask it
// for that very commit: then nothing is settled.
//
// Errors: *FaultError when the fence does not hold; any other when the slot was
// not taken, or when that is not known. An error of the listing afterwards says
// that the branch is settled.
func (t Target) Settle(ctx context.Context) (Settlement, error) { return t.settle(ctx, txn.Pauses()) }

func (t Target) settle(ctx context.Context, pauses []time.Duration) (Settlement, error) {
	state, err := t.State(ctx)
	if err != nil {
		return Settlement{}, err
	}
	if state.Fault != nil {
		return Settlement{}, state.Fault
	}
	before, err := t.Lake.Commit(ctx, t.Repository, state.Head)
	if err != nil {
		return Settlement{}, err
	}
	landed, err := t.takeSlot(ctx, before, pauses)
	if err != nil {
		return Settlement{}, err
	}
	settlement := Settlement{Head: landed, Before: before.ID}
	if err := t.listUnpublished(ctx, &settlement); err != nil {
		return Settlement{}, fmt.Errorf("%s is settled by commit %s, but what can no longer land could not be listed: %w", t.Branch, landed, err)
	}
	return settlement, nil
}

func (t Target) settleCommand() string { return fmt.Sprintf("`perago settle %s`", t.Address()) }

// takeSlot sends the one merge, and holds what landed to what was meant.
func (t Target) takeSlot(ctx context.Context, before txn.Commit, pauses []time.Duration) (txn.CommitID, error) {
	record := txn.SettleRecord(t.Execution, t.Branch, before.ID)
	id, err := t.Lake.Merge(ctx, txn.Merge{
		Repository: t.Repository, Source: before.ID, Destination: t.Branch,
		Message: "perago settle", Metadata: record.Metadata(""),
	})
	// What became of it is found out also when the command is interrupted now.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	if errors.Is(err, txn.ErrUnknownOutcome) {
		id, err = t.findSlot(ctx, record, pauses, err)
		if err != nil {
			return "", err
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, txn.ErrFenceRefused):
		return "", t.overtaken(err)
	case errors.Is(err, txn.ErrHookRefused):
		return "", fmt.Errorf("a hook of another action in _lakefs_actions/ refused the commit, so nothing is settled; limit that hook to what it is for: %w", err)
	default:
		return "", fmt.Errorf("merge into %s, so nothing is settled: %w", t.Branch, err)
	}

	landed, err := t.Lake.Commit(ctx, t.Repository, id)
	if err != nil {
		return "", t.unproven(id, err)
	}
	if err := txn.CheckLanded(landed, before.MetaRange, record); err != nil {
		return "", fmt.Errorf("nothing is settled: %w", err)
	}
	runs, err := t.Lake.HookRuns(ctx, t.Repository, id)
	switch {
	case err != nil:
		return "", t.unproven(id, err)
	case txn.FenceOf(runs) == txn.FenceHard:
		return id, nil
	case len(runs) == 0:
		return "", &FaultError{
			Found: fmt.Sprintf("nothing is settled: lakeFS ran no hook for the commit %s that now is on %s, its actions are switched off (LAKEFS_ACTIONS_ENABLED, or actions.enabled in its configuration)", id, t.Branch),
			Mend:  fmt.Sprintf("switch them on, restart lakeFS and run %s again", t.settleCommand()),
		}
	}
	return "", &FaultError{
		Found: fmt.Sprintf("nothing is settled: lakeFS has no completed run of the hook %s for the commit %s that now is on %s (runs: %s)", txn.FenceHook, id, t.Branch, names(runs)),
		Mend:  "run " + t.command("verify"),
	}
}

// findSlot reads the branch until it tells what became of a merge whose answer
// was lost. Nothing is sent a second time.
func (t Target) findSlot(ctx context.Context, sent txn.Record, pauses []time.Duration, cause error) (txn.CommitID, error) {
	for turn := 0; ; turn++ {
		head, err := t.Lake.Head(ctx, t.Repository, t.Branch)
		if err == nil && head != sent.ExpectedHead {
			var commits []txn.Commit
			commits, _, err = t.Lake.History(ctx, t.Repository, head, sent.ExpectedHead, txn.HistoryLimit)
			for _, commit := range commits {
				if record, wrong := txn.ParseRecord(commit.Metadata); wrong == nil && record == sent {
					return commit.ID, nil
				}
			}
			if err == nil {
				return "", t.overtaken(cause)
			}
		}
		if turn == len(pauses) {
			if err != nil {
				cause = fmt.Errorf("%w; the branch cannot be read: %w", cause, err)
			}
			return "", fmt.Errorf("whether the commit that settles %s landed is not known; run %s again: %w", t.Branch, t.settleCommand(), cause)
		}
		timer := time.NewTimer(pauses[turn])
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

// overtaken says that somebody else's commit took the slot. What that means for
// the merges under way is told by another run, on the head that is there then.
func (t Target) overtaken(cause error) error {
	return fmt.Errorf("%s moved while it was being settled; look at what landed there, and run %s again if a doubt is left: %w", t.Branch, t.settleCommand(), cause)
}

func (t Target) unproven(id txn.CommitID, cause error) error {
	return fmt.Errorf("the commit %s landed on %s, but whether lakeFS asked the fence for it cannot be read, so it is not known that anything is settled; run %s again: %w", id, t.Branch, t.settleCommand(), cause)
}

// listUnpublished fills in what had been staged for the branch and is not in its
// history. Branches are listed before the history is read: a publication that
// lands in between is then seen to have landed.
func (t Target) listUnpublished(ctx context.Context, settlement *Settlement) error {
	branches, err := t.Lake.Branches(ctx, t.Repository, stagingBranches)
	if err != nil {
		return err
	}
	type candidate struct {
		Unpublished
		record txn.Record
		base   txn.CommitID
	}
	var candidates []candidate
	for _, branch := range branches {
		name, err := txn.ParseStagingName(branch.Name)
		if err != nil {
			continue // somebody else's
		}
		commit, err := t.Lake.Commit(ctx, t.Repository, branch.Head)
		if err != nil {
			return fmt.Errorf("read the commit of branch %s: %w", branch.Name, err)
		}
		record, err := txn.ParseRecord(commit.Metadata)
		if err != nil || record.Execution != name.Execution || record.TargetBranch != t.Branch || len(commit.Parents) != 1 ||
			(record.Phase != txn.PhaseTry && record.Phase != txn.PhaseSource) {
			// Nothing was committed on it, or not for this branch.
			continue
		}
		candidates = append(candidates, candidate{
			Unpublished: Unpublished{Branch: branch.Name, Commit: commit.ID, Phase: record.Phase, Key: record.Key, Workflow: record.Workflow},
			record:      record, base: commit.Parents[0],
		})
	}
	if len(candidates) == 0 {
		return nil
	}

	head, err := t.Lake.Head(ctx, t.Repository, t.Branch)
	if err != nil {
		return err
	}
	history := history{target: t, head: head}
	above, _, err := history.above(ctx, settlement.Before)
	if err != nil {
		return err
	}
	for _, c := range candidates {
		if slices.ContainsFunc(above, func(commit txn.Commit) bool { return commit.ID == c.base }) {
			continue // cut from what came after: it may publish as ever
		}
		since, _, err := history.above(ctx, c.base)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(since, func(commit txn.Commit) bool { return publishes(commit, c.record) }) {
			continue
		}
		// lakeFS reads the hooks from what is merged.
		held, err := Prover{t.Lake}.Carries(ctx, t.Repository, c.Commit)
		switch {
		case err != nil && !errors.Is(err, txn.ErrNotFound):
			return err
		case held:
			settlement.Stopped = append(settlement.Stopped, c.Unpublished)
		default:
			settlement.Loose = append(settlement.Loose, c.Unpublished)
		}
	}
	return nil
}

// stagingBranches is how the names of staging and source branches begin.
const stagingBranches = txn.BranchNamespace + "staging-"

// publishes reports whether a commit on the target is the publication of a staged
// commit, or the one that a source commit was made for.
func publishes(commit txn.Commit, staged txn.Record) bool {
	record, err := txn.ParseRecord(commit.Metadata)
	switch {
	case err != nil || record.Phase != txn.PhaseConfirm:
		return false
	case staged.Phase == txn.PhaseSource:
		return record.Execution == staged.Execution
	}
	return record.StagingExecution == staged.Execution
}

// history is the first-parent history of one head, read as far down as it was
// asked for.
type history struct {
	target  Target
	head    txn.CommitID
	commits []txn.Commit
	// whole says that there is no more, or that no more is read.
	whole bool
}

// above is the commits of the history above one of it; of a commit that is not in
// it, all of them.
func (h *history) above(ctx context.Context, base txn.CommitID) (commits []txn.Commit, reached bool, err error) {
	if h.head == base {
		return nil, true, nil
	}
	for i, commit := range h.commits {
		if slices.Equal(commit.Parents, []txn.CommitID{base}) {
			return h.commits[:i+1], true, nil
		}
	}
	if h.whole {
		return h.commits, false, nil
	}
	commits, reached, err = h.target.Lake.History(ctx, h.target.Repository, h.head, base, settleHistory)
	if err != nil {
		return nil, false, fmt.Errorf("read the history of %s: %w", h.target.Branch, err)
	}
	h.commits, h.whole = commits, !reached
	return commits, reached, nil
}
