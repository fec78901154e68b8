package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"perago/pkg/txn"
)

// Verified is the proof that the hard fence holds for what is staged from Head.
type Verified struct {
	Head    txn.CommitID
	Version int
	// Refused is what lakeFS answered to the merge that it had to refuse.
	Refused string
}

// nowhere is a commit id that no commit has.
const nowhere = txn.CommitID("0000000000000000000000000000000000000000000000000000000000000000")

// Verify proves that the server enforces the fence: it reads the action file in
// the branch's head and merges that head twice into a hidden branch cut from it,
// once with a wrong expected head and once with the right one. The branch itself
// is not touched. Hooks of other actions see the two merges too.
//
// Errors: *FaultError when the fence does not hold; any other when that could
// not be found out.
func (t Target) Verify(ctx context.Context) (verified Verified, err error) {
	state, err := t.State(ctx)
	if err != nil {
		return Verified{}, err
	}
	if state.Fault != nil {
		return Verified{}, state.Fault
	}
	verified = Verified{Head: state.Head, Version: Version}
	err = t.onProbe(ctx, state.Head, func(probe txn.Branch) (err error) {
		if verified.Refused, err = t.mustRefuse(ctx, probe, state.Head); err != nil {
			return err
		}
		return t.mustAccept(ctx, probe, state.Head)
	})
	if err != nil {
		return Verified{}, err
	}
	return verified, nil
}

// probe merges the head into the probe branch as a publication would.
func (t Target) probe(ctx context.Context, probe txn.Branch, source, expected txn.CommitID) (txn.CommitID, error) {
	return t.Lake.Merge(ctx, txn.Merge{
		Repository: t.Repository, Source: source, Destination: probe,
		Message: "perago fence verify: a probe", Metadata: txn.ProbeRecord(t.Execution, probe, expected),
	})
}

// mustRefuse is the merge that expects a head which the probe branch has not.
func (t Target) mustRefuse(ctx context.Context, probe txn.Branch, head txn.CommitID) (refusal string, err error) {
	landed, err := t.probe(ctx, probe, head, nowhere)
	switch {
	case errors.Is(err, txn.ErrFenceRefused):
		return refusalOf(err), nil
	case errors.Is(err, txn.ErrHookRefused):
		return "", t.otherHook(err)
	case err != nil:
		return "", fmt.Errorf("probe the fence with a merge that it must refuse: %w", err)
	}
	runs, err := t.Lake.HookRuns(ctx, t.Repository, landed)
	if err != nil {
		return "", fmt.Errorf("lakeFS let a merge pass that the fence must refuse, and which hooks ran for it cannot be read: %w", err)
	}
	if len(runs) == 0 {
		return "", &FaultError{
			Found: "lakeFS ran no hook for a merge that the fence must refuse: its actions are switched off (LAKEFS_ACTIONS_ENABLED, or actions.enabled in its configuration)",
			Mend:  "switch them on, restart lakeFS and run " + t.command("verify"),
		}
	}
	return "", &FaultError{
		Found: fmt.Sprintf("lakeFS let a merge pass that the fence must refuse, though it ran hooks for it (%s)", names(runs)),
		Mend:  "the hard fence does not work on this lakeFS: do not count on it, and report its version",
	}
}

// mustAccept is the merge that expects the head which the probe branch has.
func (t Target) mustAccept(ctx context.Context, probe txn.Branch, head txn.CommitID) error {
	landed, err := t.probe(ctx, probe, head, head)
	switch {
	case errors.Is(err, txn.ErrHookRefused) && !errors.Is(err, txn.ErrFenceRefused):
		return t.otherHook(err)
	case err != nil:
		return fmt.Errorf("probe the fence with a merge that it must accept: %w", err)
	}
	commit, err := t.Lake.Commit(ctx, t.Repository, landed)
	if err != nil {
		return err
	}
	if !slices.Equal(commit.Parents, []txn.CommitID{head}) {
		return fmt.Errorf("the probe merge landed as %s with the parents %v, expected the one parent %s", landed, commit.Parents, head)
	}
	runs, err := t.Lake.HookRuns(ctx, t.Repository, landed)
	if err != nil {
		return fmt.Errorf("read which hooks ran for the probe merge: %w", err)
	}
	if txn.FenceOf(runs) != txn.FenceHard {
		return &FaultError{
			Found: fmt.Sprintf("lakeFS has no completed run of the hook %s for the probe merge that it accepted (runs: %s)", txn.FenceHook, names(runs)),
			Mend:  "run " + t.command("verify") + " again, and look at the actions of the repository in lakeFS if it stays so",
		}
	}
	return nil
}

// otherHook says that a user's own hook got in the way: a fault of that hook or
// of its branch pattern, not of the fence.
func (t Target) otherHook(err error) error {
	return fmt.Errorf("a hook of another action in _lakefs_actions/ refused the probe merge, so it cannot be told whether the fence holds; limit that hook to the branches it is for: %w", err)
}

// refusalOf is what a refusal by the fence says, to be shown: the fence's own
// sentence, or the whole text where redaction has taken its beginning away.
func refusalOf(err error) string {
	_, words, ok := strings.Cut(txn.HookMessage(err), txn.FenceRefusal)
	if !ok {
		return err.Error()
	}
	sentence, _, _ := strings.Cut(words, "\n")
	return txn.FenceRefusal + sentence
}

func names(runs []txn.HookRun) string {
	var all []string
	for _, run := range runs {
		all = append(all, fmt.Sprintf("%s/%s %s", run.Action, run.Hook, run.Status))
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}
