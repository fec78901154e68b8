package publish

import (
	"context"
	"slices"

	"perago/pkg/txn"
)

// lookAbove looks for late landings above a commit that has just been published
// on the soft fence: a merge that an older attempt had sent may be there by now.
// It never fails a landed publication, and cleanup looks again.
func (e *execution) lookAbove(ctx context.Context, published txn.CommitID) {
	defer e.attempt.Phase("late_landings")()
	head, err := e.Lake.Head(ctx, e.step.Repository, e.step.Branch)
	if err != nil || head == published {
		return
	}
	if above, reached, err := e.Lake.History(ctx, e.step.Repository, head, published, txn.HistoryLimit); err == nil && reached {
		e.reportLate(published, txn.LateLandings(e.step.Key, above))
	}
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
