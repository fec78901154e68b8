package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"perago/pkg/telemetry"
	"perago/pkg/txn"
)

// delivery is what became of a task update.
type delivery string

const (
	// reported: Conductor accepted it, for a completion as read back.
	reported delivery = "reported"
	// reportStale: the attempt is not current, nothing was sent.
	reportStale delivery = "stale"
	// reportIgnored: it was sent, and the task shows another end.
	reportIgnored delivery = "ignored"
	// reportRefused: Conductor refused it for good.
	reportRefused delivery = "refused"
	// reportGivenUp: no try got through in time.
	reportGivenUp delivery = "given up"
)

// report sends an update until ctx ends. Before every try the fence reads the
// task: an update of an attempt that is no longer current would hit its
// successor. The same read tells, after a lost answer, whether an earlier try
// arrived; and after a completion whether Conductor, which answers 200 to
// updates it ignores, has taken it. The error says why it was not accepted.
func (r *Runtime) report(ctx context.Context, attempt *Attempt, result txn.TaskResult) (delivery, error) {
	pauses := callBackoff()
	sent := false
	for {
		err := r.tryReport(ctx, attempt, result, &sent)
		var end *deliveryEnd
		if errors.As(err, &end) {
			return end.what, end.err
		}
		if err != nil {
			attempt.log.Warn("task update failed, trying again", slog.Any(telemetry.KeyError, err))
		}
		if !pause(ctx, pauses.next()) {
			if err == nil {
				err = errors.New("the task is still in progress")
			}
			return reportGivenUp, err
		}
	}
}

// deliveryEnd ends the tries of a report.
type deliveryEnd struct {
	what delivery
	err  error
}

func (e *deliveryEnd) Error() string { return fmt.Sprintf("%s: %v", e.what, e.err) }

// tryReport reads the task, sends the update if the attempt is current, and
// reads a completion back. Nil and any error but a *deliveryEnd ask for another
// try. sent is set when an update may have arrived.
func (r *Runtime) tryReport(ctx context.Context, attempt *Attempt, result txn.TaskResult, sent *bool) error {
	if err := r.lookAt(ctx, attempt, result, *sent); err != nil {
		return err
	}
	began := time.Now()
	callCtx, cancel := context.WithTimeout(ctx, attempt.tryTimeout())
	defer cancel()
	err := r.Conductor.Update(callCtx, result)
	r.Metrics.Updated(attempt.Task.Type, time.Since(began), err)
	switch {
	case errors.Is(err, txn.ErrRefused) && !errors.Is(err, txn.ErrUnauthorized):
		return &deliveryEnd{reportRefused, err}
	case err != nil:
		*sent = *sent || !errors.Is(err, txn.ErrRefused)
		return err
	}
	*sent = true
	if result.Status != txn.TaskCompleted {
		return &deliveryEnd{reported, nil}
	}
	err = r.lookAt(ctx, attempt, result, true)
	var end *deliveryEnd
	var stale *txn.StaleAttemptError
	if errors.As(err, &end) && errors.As(end.err, &stale) && stale.Reason == txn.StaleTaskGone {
		// A server that archives workflows as they end has put the task away with
		// its last update. That was answered, so it is no cause for alarm.
		return &deliveryEnd{reported, nil}
	}
	return err
}

// lookAt reads the task: nil when the attempt is current, a *deliveryEnd when it
// is over one way or another, another error when the read failed.
func (r *Runtime) lookAt(ctx context.Context, attempt *Attempt, result txn.TaskResult, sent bool) error {
	callCtx, cancel := context.WithTimeout(ctx, attempt.tryTimeout())
	defer cancel()
	now, err := attempt.readTask(callCtx)
	if err == nil {
		err = attempt.identity.CurrentTask(now)
	}
	var stale *txn.StaleAttemptError
	switch {
	case !errors.As(err, &stale):
		return err
	case !sent:
		return &deliveryEnd{reportStale, stale}
	}
	// An update went out and the task is not in progress any more: is this its
	// end, of this very poll? A task that was handed back is in its queue.
	shown, end := now, result.Status
	shown.Status = txn.TaskInProgress
	if end == txn.TaskInProgress {
		end = txn.TaskScheduled
	}
	if now.Status == end && attempt.identity.CurrentTask(shown) == nil {
		return &deliveryEnd{reported, nil}
	}
	return &deliveryEnd{reportIgnored, stale}
}

// handBack returns a task that will not be started: a plain IN_PROGRESS puts it back
// into its queue at once.
func (r *Runtime) handBack(task txn.Task, sent time.Time) {
	limits, _ := r.limits(task) // an unsound TaskDef is the next worker's to report
	attempt := newAttempt(task, limits, sent, r.Conductor, r.Log, r.Metrics)
	ctx, cancel := context.WithTimeout(r.life, limits.Completion)
	defer cancel()
	what, err := r.report(ctx, attempt, txn.TaskResult{
		Task: task.ID, Workflow: task.Workflow, Worker: r.Worker,
		Status: txn.TaskInProgress, CallbackAfterSeconds: 0,
	})
	switch what {
	case reported:
		r.Metrics.TaskOutcome(task.Type, "handed_back")
		attempt.log.Info("task handed back unstarted")
	default:
		r.Metrics.TaskOutcome(task.Type, "unreported")
		attempt.log.Warn("task could not be handed back; it comes back after its response timeout",
			slog.String(telemetry.KeyDelivery, string(what)), slog.Any(telemetry.KeyError, err))
	}
}

func atLeast(t, earliest time.Time) time.Time {
	if t.Before(earliest) {
		return earliest
	}
	return t
}
