package publish

import (
	"context"
	"fmt"
	"slices"

	"perago/pkg/txn"
)

// lookAbove looks whether the branch holds a commit that a merge has just answered
// with: a commit that is all that it should be may still stand beside it. Where the
// branch cannot be read, lakeFS's word stands. Above the commit it looks for late
// landings: a merge that an older attempt had sent may be there by now. They never
// fail a landed publication, and cleanup looks again.
func (e *execution) lookAbove(ctx context.Context, decision txn.PublishDecision, landed txn.CommitID) error {
	defer e.attempt.Phase("late_landings")()
	head, err := e.Lake.Head(ctx, e.step.Repository, e.step.Branch)
	if err != nil || head == landed {
		return nil
	}
	above, reached, err := e.Lake.History(ctx, e.step.Repository, head, landed, txn.HistoryLimit)
	switch {
	case err != nil:
		return nil
	case !reached:
		return &txn.InDoubtError{
			Branch: e.step.Branch, ExpectedHead: decision.ExpectedHead, Why: fmt.Sprintf("the branch is at %s", head),
			Cause: fmt.Errorf("lakeFS answered with %s, which the branch does not hold", landed),
		}
	}
	e.reportLate(landed, txn.LateLandings(e.step.Key, above))
	return nil
}

// reportLate tells of each late landing once, however often the branch is read.
func (e *execution) reportLate(published txn.CommitID, late []txn.CommitID) {
	for _, commit := range late {
		if slices.Contains(e.late, commit) {
			continue
		}
		e.late = append(e.late, commit)
		if e.LateLanding != nil {
			e.LateLanding(e.step.Repository, e.step.Branch, published, commit)
		}
	}
}
