package worker

import (
	"context"
	"fmt"
	"time"

	"perago/pkg/txn"
)

// Cover is the attempt fence before something is begun that must not outlive the
// lease: when it returns nil, the attempt is current and the lease holds for so
// long from now. A lease that is too short is extended. The fence may have to wait
// for Conductor until too little of the lease is left; then both are repeated. It
// fails with a *txn.StaleAttemptError when the lease cannot be extended, or not by
// enough, and as Current does.
func (a *Attempt) Cover(ctx context.Context, need time.Duration) error {
	for {
		if err := a.lengthen(ctx, need); err != nil {
			return err
		}
		if err := a.Current(ctx); err != nil {
			return err
		}
		if a.LeaseLeft() >= need {
			return nil
		}
	}
}

// lengthen extends the lease where it is shorter than need.
func (a *Attempt) lengthen(ctx context.Context, need time.Duration) error {
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
