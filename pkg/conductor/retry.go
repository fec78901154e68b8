package conductor

import (
	"context"
	"errors"
	"time"

	"perago/pkg/txn"
)

// Repeating is a Client that asks again when a read of a task or a workflow got no
// usable answer. It is for whoever would fail or leave something undone for want
// of one answer; an attempt's fence asks again by itself, as long as its lease
// lasts.
type Repeating struct{ *Client }

// readTime is how long one of these reads may take where the caller has no deadline:
// such callers have all the time that their lease has, and that goes on while
// Conductor answers heartbeats. A caller's deadline is the only limit where there is
// one.
const readTime = time.Minute

// Task is Client.Task, asked for up to five times within the context.
func (r Repeating) Task(ctx context.Context, id txn.TaskID) (txn.Task, error) {
	return repeat(ctx, func(ctx context.Context) (txn.Task, error) { return r.Client.Task(ctx, id) })
}

// Workflow is Client.Workflow, asked for up to five times within the context.
func (r Repeating) Workflow(ctx context.Context, id txn.WorkflowID) (txn.Workflow, error) {
	return repeat(ctx, func(ctx context.Context) (txn.Workflow, error) { return r.Client.Workflow(ctx, id) })
}

func repeat[T any](ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	_, own := ctx.Deadline()
	for pauses := txn.Pauses(); ; pauses = pauses[1:] {
		one, cancel := ctx, context.CancelFunc(func() {})
		if !own {
			one, cancel = context.WithTimeout(ctx, readTime)
		}
		value, err := read(one)
		cancel()
		if !errors.Is(err, txn.ErrRetryable) || len(pauses) == 0 {
			return value, err
		}
		timer := time.NewTimer(pauses[0])
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return value, err
		}
	}
}
