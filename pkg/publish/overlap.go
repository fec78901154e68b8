package publish

import (
	"context"
	"errors"

	"perago/pkg/txn"
)

// overlap adds to a fence error what the head holds under the step's prefix. Where
// that cannot be read, the error stays as it is.
func (e *execution) overlap(ctx context.Context, err error) error {
	var fence *txn.PublishFenceError
	if !errors.As(err, &fence) {
		return err
	}
	overlap := txn.Overlap{Stage: e.stage.ReferenceName, Prefix: e.step.Prefix}
	differs, unread := e.Lake.Differ(ctx, e.step.Repository, e.input.Staged.Commit, fence.Head, e.step.Prefix)
	if unread == nil {
		overlap.Same = !differs
		overlap.Changed, unread = e.Lake.Differ(ctx, e.step.Repository, e.step.InputRef, fence.Head, e.step.Prefix)
	}
	if unread != nil {
		return err
	}
	overlap.By = e.step.Covering(e.history)
	return fence.With(overlap)
}
