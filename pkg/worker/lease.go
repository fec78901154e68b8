package worker

import (
	"sync"
	"time"

	"perago/pkg/txn"
)

// defaultCompletion bounds the update that ends a task whose TaskDef has no
// budget to say so.
const defaultCompletion = 10 * time.Second

// Limits are the times that bound one attempt.
type Limits struct {
	// Response is the lease: how long Conductor waits for a sign of life.
	Response time.Duration
	// Total is the task's whole time from its first start; 0 is without end.
	Total time.Duration
	// Heartbeat is how often the lease is extended.
	Heartbeat time.Duration
	// Completion is the time beyond the lease's end for which the final update is
	// still tried.
	Completion time.Duration
}

// LimitsOf reads the limits of a TaskDef and holds its rules; for a publish
// TaskDef the budget and its rules too. The error's text says what to change.
func LimitsOf(definition txn.TaskDefinition) (Limits, error) {
	limits := Limits{
		Response:   txn.Timeout(definition.ResponseTimeoutSeconds),
		Total:      txn.Timeout(definition.TimeoutSeconds),
		Heartbeat:  txn.Heartbeat(definition),
		Completion: defaultCompletion,
	}
	if !definition.Name.IsPublish() {
		return limits, txn.CheckTaskDefinition(definition)
	}
	budget, err := txn.CheckPublishDefinition(definition)
	if err != nil {
		return limits, err
	}
	limits.Heartbeat, limits.Completion = budget.HeartbeatInterval, budget.CompletionTimeout
	return limits, nil
}

// lease is how long an attempt may go on without a sign of life, by this
// process's monotonic clock. It counts from when a request was sent and not from
// the answer, so that it never ends later than Conductor's own.
type lease struct {
	response time.Duration
	// end is when the total timeout has passed; zero for none.
	end time.Time

	mu    sync.Mutex
	until time.Time
}

func newLease(sent time.Time, limits Limits) *lease {
	l := &lease{response: limits.Response, until: sent.Add(limits.Response)}
	if limits.Total > 0 {
		l.end = sent.Add(limits.Total)
	}
	return l
}

// renew starts the lease again from when an accepted extension was sent.
func (l *lease) renew(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := sent.Add(l.response); until.After(l.until) {
		l.until = until
	}
}

func (l *lease) deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.end.IsZero() && l.end.Before(l.until) {
		return l.end
	}
	return l.until
}

func (l *lease) left() time.Duration { return time.Until(l.deadline()) }
