package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"perago/pkg/telemetry"
	"perago/pkg/txn"
)

// panicError is a handler that panicked. The stack is in the log only.
type panicError struct{ value any }

func (e *panicError) Error() string {
	return fmt.Sprintf("the worker panicked: %v; its log has the stack", e.value)
}

// execute runs one polled task to its end. sent is when the poll was sent. stale
// says that the task was not this attempt's, so that nothing was reported.
func (r *Runtime) execute(task txn.Task, sent time.Time, handler Handler) (stale bool) {
	began := time.Now()
	limits, faulty := r.limits(task)
	attempt := newAttempt(task, limits, sent, r.Conductor, r.Log, r.Metrics)
	ctx, cancel := context.WithCancelCause(r.work)
	defer cancel(nil)

	this, previous := r.admit(attempt, cancel)
	if this == nil {
		attempt.log.Warn("the same attempt was handed out twice; it is already running")
		return true
	}
	defer r.dismiss(this)
	attempt.trace(r.Traces.Task(task))

	var output map[string]any
	var err error
	if faulty != nil {
		err = faulty
	} else {
		stop := r.heartbeat(ctx, attempt, cancel)
		stopWatch := r.watch(ctx, attempt)
		// Two attempts at one task never run at once. The older one is stale and
		// was told to stop; when this one is cancelled meanwhile it waits all the
		// same, because a third may be waiting for both.
		if previous != nil {
			<-previous.done
		}
		if err = context.Cause(ctx); err == nil {
			output, err = r.call(ctx, attempt, handler)
		}
		stopWatch()
		stop()
	}
	r.Metrics.Executed(task.Type, time.Since(began))
	return r.finish(attempt, output, blame(ctx, err), time.Since(sent))
}

// limits are those of the task's own TaskDef; a rule broken there is terminal,
// because the running workflow keeps the TaskDef it started with.
func (r *Runtime) limits(task txn.Task) (Limits, error) {
	if task.Definition == nil {
		return Limits{Completion: defaultCompletion}, txn.Terminalf("", "Conductor handed out the task without its TaskDef, so its time limits are unknown")
	}
	limits, err := LimitsOf(*task.Definition)
	if err != nil {
		return limits, txn.Terminalf("", "%v", err)
	}
	return limits, nil
}

// blame says why the work ended: what cut it short, if its error is only the
// echo of that. Another error, or success in spite of it, stands as it is.
func blame(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if err == nil || cause == nil || !(errors.Is(err, context.Canceled) || errors.Is(err, cause)) {
		return err
	}
	if errors.Is(cause, txn.ErrStopped) && !errors.Is(err, txn.ErrStopped) {
		return fmt.Errorf("%w: %w", txn.ErrStopped, err)
	}
	return cause
}

// call runs the handler and turns a panic into an error.
func (r *Runtime) call(ctx context.Context, attempt *Attempt, handler Handler) (output map[string]any, err error) {
	defer func() {
		if value := recover(); value != nil {
			attempt.log.Error("handler panicked", slog.Any(telemetry.KeyPanic, value), slog.String(telemetry.KeyStack, string(debug.Stack())))
			err = &panicError{value: value}
		}
	}()
	return handler(ctx, attempt)
}

// heartbeat extends the lease until stop is called, which waits for a beat in
// flight, or until the attempt turns out stale: then the work is cancelled.
func (r *Runtime) heartbeat(ctx context.Context, attempt *Attempt, cancel context.CancelCauseFunc) (stop func()) {
	ctx, cancelBeat := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause(ctx, attempt.Limits.Heartbeat) {
			err := attempt.Extend(ctx)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				attempt.log.Warn("lease lost: the work is cancelled", slog.Any(telemetry.KeyError, err))
				r.Metrics.LeaseLost()
				cancel(err)
				return
			}
		}
	}()
	return func() {
		cancelBeat()
		<-done
	}
}

// finish reports how a task ended, unless the attempt is found stale.
func (r *Runtime) finish(attempt *Attempt, output map[string]any, workErr error, took time.Duration) (isStale bool) {
	output, err := r.outputOf(attempt, output, took)
	if workErr != nil {
		err = workErr
	}
	table := txn.ResultOf(attempt.Task.Type, err)
	result := txn.TaskResult{
		Task: attempt.identity.Task, Workflow: attempt.identity.Workflow, Worker: attempt.identity.Worker,
		Status: table.Status, Output: output,
	}
	switch {
	case table.HandedBack():
		// As if it had not begun: another worker begins anew, and nothing of this
		// execution is in the way.
		result.Output = nil
	case err != nil:
		result.Reason = txn.Reason(err, r.ReasonLength, r.Redactor.Values()...)
		if said := txn.HookMessage(err); said != "" {
			// A reason has room for its beginning only.
			result.Output["hook_message"] = txn.Redact(said, r.Redactor.Values()...)
		}
	}
	// An attempt that was found stale is silent whatever its work returned; if the
	// work had landed by then, that is an event of its own.
	stale := attempt.foundStale()
	if !table.Update {
		errors.As(err, &stale)
	}
	if stale != nil {
		r.silent(attempt, stale)
		r.abandoned(attempt, result, stale)
		return true
	}

	until := attempt.Deadline().Add(attempt.Limits.Completion)
	ctx, cancel := context.WithDeadline(r.life, atLeast(until, time.Now().Add(attempt.tryTimeout())))
	defer cancel()
	what, detail := r.report(ctx, attempt, result)
	log := attempt.log.With(slog.String(telemetry.KeyStatus, string(result.Status)), slog.Duration(telemetry.KeyTook, took))
	switch what {
	case reported:
		r.Metrics.TaskOutcome(attempt.Task.Type, table.Outcome)
		attempt.span.End(table.Outcome, err)
		if table.HandedBack() {
			log.Info("task handed back: the worker stops, and another one begins it anew")
			return false
		}
		if err != nil {
			log.Warn("task failed", slog.Any(telemetry.KeyError, err))
			return false
		}
		log.Info("task completed")
	case reportStale:
		errors.As(detail, &stale)
		r.silent(attempt, stale)
		r.abandoned(attempt, result, detail)
		return true
	default:
		r.Metrics.TaskOutcome(attempt.Task.Type, "unreported")
		attempt.span.End("unreported", detail)
		log.Error("Conductor did not accept the task's end", slog.String(telemetry.KeyDelivery, string(what)), slog.Any(telemetry.KeyError, detail))
		r.abandoned(attempt, result, detail)
	}
	return false
}

// silent is the end of a stale attempt: a line and a count, and nothing sent.
func (r *Runtime) silent(attempt *Attempt, stale *txn.StaleAttemptError) {
	r.Metrics.FenceRejection("attempt", string(stale.Reason))
	outcome := txn.ResultOf(attempt.Task.Type, stale).Outcome
	r.Metrics.TaskOutcome(attempt.Task.Type, outcome)
	attempt.span.End(outcome, stale)
	attempt.log.Warn("stale attempt: nothing is reported", slog.Any(telemetry.KeyError, stale))
}

// abandoned is an event of its own: a publication stands in lakeFS although
// Conductor does not know that its task completed. The next attempt adopts it.
func (r *Runtime) abandoned(attempt *Attempt, result txn.TaskResult, why error) {
	commit := publishedCommit(result)
	if commit == "" {
		return
	}
	r.Metrics.Abandoned()
	attempt.log.Error("publication abandoned: it landed, but its task is not completed",
		slog.String(telemetry.KeyCommit, commit), slog.Any(telemetry.KeyError, why))
}

// publishedCommit is the commit of a landed publication in a task's output; empty
// when the task published nothing. A publication in doubt names a commit only
// where lakeFS said that it landed and it could not be read back.
func publishedCommit(result txn.TaskResult) string {
	publication, _ := result.Output["publication"].(map[string]any)
	outcome, _ := publication["outcome"].(string)
	commit, _ := publication["commit"].(string)
	switch txn.Outcome(outcome) {
	case txn.OutcomeNoOp, txn.OutcomeReadOnly:
		return ""
	case txn.OutcomeInDoubt:
		return commit
	}
	if result.Status != txn.TaskCompleted {
		return ""
	}
	return commit
}

// outputOf makes plain JSON of an output, with the timings. Nothing in it is
// redacted: the next task reads it, and a secret that looks like a branch or a
// commit id would break the workflow. Use cases redact the texts for people that
// they put into an output. An output that is no JSON is an error: every try of
// the update would fail.
func (r *Runtime) outputOf(attempt *Attempt, output map[string]any, took time.Duration) (map[string]any, error) {
	plain := map[string]any{}
	raw, err := json.Marshal(output)
	if err == nil && output != nil {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		// Numbers stay as they were written: a float64 would round a byte count.
		decoder.UseNumber()
		err = decoder.Decode(&plain)
	}
	if err != nil {
		plain, err = map[string]any{}, fmt.Errorf("the output of the task is not JSON: %w", err)
	}
	plain["timings"] = attempt.timingsOutput(took)
	return plain, err
}

// admit makes the attempt the newest one at its task. An older attempt is stale
// by that and is cancelled; it is returned too. Nil means that this very attempt
// is there already.
func (r *Runtime) admit(attempt *Attempt, cancel context.CancelCauseFunc) (this, previous *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	previous = r.running[attempt.identity.Task]
	if previous != nil {
		if previous.attempt.identity == attempt.identity {
			return nil, previous
		}
		stale := &txn.StaleAttemptError{Attempt: previous.attempt.identity, Reason: txn.StalePollCount, Detail: "the task was handed out again"}
		previous.attempt.setStale(stale)
		previous.cancel(stale)
	}
	this = &run{attempt: attempt, cancel: cancel, done: make(chan struct{})}
	r.running[attempt.identity.Task] = this
	return this, previous
}

// dismiss ends a run. A newer one may have taken its place meanwhile.
func (r *Runtime) dismiss(this *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(this.done)
	if r.running[this.attempt.identity.Task] == this {
		delete(r.running, this.attempt.identity.Task)
	}
}
