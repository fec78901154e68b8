package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"perago/pkg/telemetry"
	"perago/pkg/txn"
)

// Handler does the work of one task. The output goes to Conductor as JSON, on an
// error too, where it is evidence. The error is turned into a status by
// txn.ResultOf and its text into the reason.
//
// ctx ends when the attempt is found stale (its cause is a
// *txn.StaleAttemptError) or when the process stops and the grace is over. What
// must not be torn (a merge that was sent) runs under context.WithoutCancel and
// a deadline of its own.
type Handler func(ctx context.Context, a *Attempt) (output map[string]any, err error)

// Attempt is one poll of one task, as a handler sees it. It is safe for
// concurrent use.
type Attempt struct {
	// Task is the task as it was polled.
	Task txn.Task
	// Limits are those of the task's own TaskDef.
	Limits Limits

	identity  txn.Attempt
	conductor Conductor
	lease     *lease
	log       *slog.Logger
	metrics   *telemetry.Metrics
	span      *telemetry.TaskSpan

	// phase is the one that began last and has not ended; nil when there is none.
	phase atomic.Pointer[phase]

	mu      sync.Mutex
	stale   *txn.StaleAttemptError
	timings map[string]time.Duration
}

func newAttempt(task txn.Task, limits Limits, sent time.Time, conductor Conductor, log *slog.Logger, metrics *telemetry.Metrics) *Attempt {
	return &Attempt{
		Task: task, Limits: limits,
		identity: txn.AttemptOf(task), conductor: conductor,
		lease: newLease(sent, limits),
		log: log.With(
			slog.String(telemetry.KeyWorkflow, string(task.Workflow)),
			slog.String(telemetry.KeyTask, string(task.ID)),
			slog.String(telemetry.KeyTaskType, string(task.Type)),
			slog.String(telemetry.KeyStep, string(task.ReferenceName)),
		),
		metrics: metrics,
		timings: map[string]time.Duration{},
	}
}

// trace makes the attempt's phases parts of a span, and its log lines name it.
func (a *Attempt) trace(span *telemetry.TaskSpan) {
	a.span = span
	a.log = a.log.With(span.Attributes()...)
}

// Identity is the attempt as the fence compares it.
func (a *Attempt) Identity() txn.Attempt { return a.identity }

// Log is a logger that names the workflow, the task and the step.
func (a *Attempt) Log() *slog.Logger { return a.log }

// Deadline is when the lease ends unless it is extended, by the monotonic clock,
// counted from when the poll or the last accepted extension was sent.
func (a *Attempt) Deadline() time.Time { return a.lease.deadline() }

// LeaseLeft is the time until Deadline; negative when it has passed.
func (a *Attempt) LeaseLeft() time.Duration { return a.lease.left() }

// Current is the attempt fence: it reads the task and its workflow and returns a
// *txn.StaleAttemptError unless both say that this attempt may act. A read that
// fails is tried again within the lease, then the attempt counts as stale. When
// ctx ends first the error is ctx's cause.
func (a *Attempt) Current(ctx context.Context) error {
	reason := txn.StaleUnreadable
	return a.fence(ctx, &reason, func(ctx context.Context) error {
		now, err := a.readTask(ctx)
		if err != nil {
			return err
		}
		if err := a.identity.CurrentTask(now); err != nil {
			return err
		}
		status, err := a.conductor.WorkflowStatus(ctx, a.identity.Workflow)
		switch {
		case isGone(err):
			return &txn.StaleAttemptError{Attempt: a.identity, Reason: txn.StaleWorkflowStatus, Detail: "the workflow is gone"}
		case err != nil:
			return err
		}
		return a.identity.Current(now, status)
	})
}

// StillOurs is the fence asked at heartbeats and before updates: the task alone.
// Its errors are those of Current.
func (a *Attempt) StillOurs(ctx context.Context) error {
	reason := txn.StaleUnreadable
	return a.fence(ctx, &reason, a.stillOurs)
}

// stillOurs reads the task once and compares it.
func (a *Attempt) stillOurs(ctx context.Context) error {
	now, err := a.readTask(ctx)
	if err != nil {
		return err
	}
	return a.identity.CurrentTask(now)
}

// Extend renews the lease if the task is still this attempt's. Every try reads the
// task first: a try that waits may find the task in other hands, and would then
// renew their lease. Its errors are those of Current; a lease that could not be
// renewed in time is a *txn.StaleAttemptError with the reason lease_lost.
func (a *Attempt) Extend(ctx context.Context) error {
	reason := txn.StaleUnreadable
	return a.fence(ctx, &reason, func(ctx context.Context) error {
		reason = txn.StaleUnreadable
		if err := a.stillOurs(ctx); err != nil {
			return err
		}
		reason = txn.StaleLeaseLost
		if err := ctx.Err(); err != nil {
			return err
		}
		// What was sent is not called back, and whoever ends the heartbeats waits for
		// its answer: an extension that Conductor is still at when the completion
		// comes writes the task back as it was, in progress and without its output.
		call, cancel := uncancelled(ctx)
		defer cancel()
		sent := time.Now()
		err := a.conductor.ExtendLease(call, a.identity.Workflow, a.identity.Task, a.identity.Worker)
		if isGone(err) {
			return &txn.StaleAttemptError{Attempt: a.identity, Reason: txn.StaleLeaseLost, Cause: err}
		}
		if err == nil {
			a.lease.renew(sent)
		}
		return err
	})
}

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

// Phase begins a phase of the work. The function it returns ends it: the time
// goes into the output's timings, in milliseconds, into the histogram of phases,
// and into a span. A phase entered again adds to its time.
func (a *Attempt) Phase(name string) (end func()) {
	this := &phase{name: name, began: time.Now()}
	around := a.phase.Swap(this)
	endSpan := a.span.Phase(name)
	return func() {
		took := time.Since(this.began)
		endSpan()
		a.phase.CompareAndSwap(this, around)
		a.metrics.Phase(a.Task.Type, name, took)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.timings[name] += took
	}
}

// timingsOutput is every phase's time in milliseconds, to a tenth, and the total
// since the poll was sent.
func (a *Attempt) timingsOutput(total time.Duration) map[string]any {
	milliseconds := func(d time.Duration) float64 {
		return math.Round(float64(d)/float64(time.Millisecond)*10) / 10
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	output := map[string]any{"total": milliseconds(total)}
	for name, took := range a.timings {
		output[name] = milliseconds(took)
	}
	return output
}

// fence repeats one check with pauses until it succeeds, finds the attempt stale or
// the lease that runs now ends, and then gives the stated reason. Heartbeats that
// renew the lease meanwhile do not prolong it: a fence that cannot be read must not
// hold a task for ever. It tries at least once: a process that was suspended may
// wake after its lease and still own the task. Once an attempt was found stale it
// stays stale: an extension that slips through later must not bring it back to life.
func (a *Attempt) fence(ctx context.Context, atTheEnd *txn.StaleReason, check func(context.Context) error) error {
	if stale := a.foundStale(); stale != nil {
		return stale
	}
	pauses := callBackoff()
	deadline := a.Deadline()
	left := max(time.Until(deadline), time.Second)
	for {
		tryCtx, cancel := context.WithTimeout(ctx, min(left, a.tryTimeout()))
		err := check(tryCtx)
		cancel()
		var stale *txn.StaleAttemptError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &stale):
			a.setStale(stale)
			return stale
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		wait := pauses.next()
		if left = time.Until(deadline) - wait; left <= 0 {
			stale = &txn.StaleAttemptError{Attempt: a.identity, Reason: *atTheEnd, Cause: err}
			a.setStale(stale)
			return stale
		}
		if !pause(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}

// foundStale is what the first check that failed said; nil if none did.
func (a *Attempt) foundStale() *txn.StaleAttemptError {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stale
}

func (a *Attempt) setStale(stale *txn.StaleAttemptError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stale == nil {
		a.stale = stale
	}
}

// tryTimeout bounds one call inside the lease, so that a connection which hangs
// leaves time for another try.
func (a *Attempt) tryTimeout() time.Duration {
	return max(time.Second, min(10*time.Second, a.Limits.Response/3))
}

func (a *Attempt) readTask(ctx context.Context) (txn.Task, error) {
	now, err := a.conductor.Task(ctx, a.identity.Task)
	if isGone(err) {
		return txn.Task{}, &txn.StaleAttemptError{Attempt: a.identity, Reason: txn.StaleTaskGone}
	}
	if err != nil {
		return txn.Task{}, fmt.Errorf("read task %s: %w", a.identity.Task, err)
	}
	return now, nil
}

// uncancelled is a context that ends at ctx's deadline and not before.
func uncancelled(ctx context.Context) (context.Context, context.CancelFunc) {
	whole := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(whole, deadline)
	}
	return context.WithCancel(whole)
}

func isGone(err error) bool { return errors.Is(err, txn.ErrNotFound) || errors.Is(err, txn.ErrGone) }
