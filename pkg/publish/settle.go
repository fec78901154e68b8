package publish

import (
	"context"
	"errors"
	"time"

	"perago/pkg/txn"
)

// settle finds out what became of a merge whose answer does not say: by the same
// table as before, read again, and never by sending it again. When the branch
// does not show it after the last pause, and the hard fence is not known to keep
// it out, the publication is in doubt: its merge may still land. The next attempt
// decides again.
func (e *execution) settle(ctx context.Context, decision txn.PublishDecision, record txn.Record, unknown error) (publication *txn.Publication, again bool, err error) {
	end := e.attempt.Phase("settle")
	defer end()
	doubt := func(why string) (*txn.Publication, bool, error) {
		err := &txn.InDoubtError{Branch: e.step.Branch, ExpectedHead: decision.ExpectedHead, Why: why, Cause: unknown}
		return e.failed(decision, err), false, err
	}
	why := ""
	for pauses := txn.Pauses(); ; pauses = pauses[1:] {
		now, err := e.decide(ctx, false)
		var (
			raced  *txn.PublishRacedError
			fenced *txn.PublishFenceError
			stale  *txn.StaleAttemptError
			taken  *txn.TakenBackError
		)
		switch {
		case errors.As(err, &stale), errors.As(err, &raced), errors.As(err, &taken):
			return e.failed(decision, err), false, err
		case errors.As(err, &fenced):
			// The branch is somebody else's now. With the hard fence our merge can no
			// longer land there; without it, it may, and then it is a race.
			if e.fenceProven(ctx, record.SourceCommit) {
				return e.failed(decision, err), false, err
			}
			why = err.Error() + "; without the hard fence it may still land"
		case ctx.Err() != nil:
			return doubt("the worker was stopped before it could be settled")
		case err != nil:
			why = "the branch cannot be read: " + err.Error()
		case now.Action == txn.PublishAdopt:
			return e.adopted(ctx, now, txn.OutcomePublished), false, nil
		case now.ExpectedHead == decision.ExpectedHead:
			why = "the branch has not moved"
		case e.fenceProven(ctx, record.SourceCommit):
			// Overtaken: the head that our merge expects is gone, and the hard fence
			// refuses it whenever it arrives.
			return e.failed(decision, unknown), true, unknown
		default:
			why = "the branch moved on, and without the hard fence it may still land"
		}
		if len(pauses) == 0 {
			return doubt(why)
		}
		timer := time.NewTimer(pauses[0])
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}
