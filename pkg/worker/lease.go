package worker

import (
	"sync"
	"time"
)

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
