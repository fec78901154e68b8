package worker

import (
	"context"
	"fmt"
	"time"

	"perago/pkg/txn"
)

// Cover makes sure that the lease holds for so long, before something is begun
// that must not outlive it: it extends the lease where it is too short. It fails
// with a *txn.StaleAttemptError when the lease cannot be extended, or not by
// enough.
func (a *Attempt) Cover(ctx context.Context, need time.Duration) error {
	if a.LeaseLeft() >= need {
		return nil
	}
	if err := a.Extend(ctx); err != nil {
		return err
	}
	left := a.LeaseLeft()
	if left >= need {
		return nil
	}
	return &txn.StaleAttemptError{
		Attempt: a.identity, Reason: txn.StaleLeaseLost,
		Detail: fmt.Sprintf("%s are left and %s are needed", left.Round(time.Millisecond), need),
	}
}
