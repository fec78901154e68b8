package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"perago/pkg/telemetry"
	"perago/pkg/txn"
)

// How often a condition is looked at while it fails and while it holds, what one
// look may take, and how old the last successful poll may be.
const (
	lookAgainFailing = 10 * time.Second
	lookAgainHolding = 30 * time.Second
	lookTimeout      = 5 * time.Second
	pollRecent       = 15 * time.Second
)

// Check is a condition beside Conductor that must hold for tasks to be polled,
// such as: lakeFS answers and accepts the credentials. The error's text is the
// sentence people read.
type Check struct {
	Name string
	Run  func(ctx context.Context) error
}

// readiness looks at the conditions and remembers what each last showed.
type readiness struct {
	redactor *telemetry.Redactor
	log      *slog.Logger

	mu     sync.Mutex
	looks  []*look
	queues []*queue
	// changed is closed, and replaced, whenever a gate opened.
	changed  chan struct{}
	draining bool
}

// look is one condition that is looked at again and again.
type look struct {
	name string
	run  func(ctx context.Context) error
	// gates says whether polls of a type wait for this condition.
	gates func(txn.TaskType) bool

	known bool
	// open is what the gate goes by, fault what people read. They differ when a
	// TaskDef that was sound cannot be read: that is no reason to stop.
	open  bool
	fault string
}

// queue is one poll loop as the conditions see it.
type queue struct {
	readiness *readiness
	taskType  txn.TaskType
	domain    string

	// last is when a poll last succeeded, fault why the latest one failed.
	last  time.Time
	fault string
	// busy: it waits for a slot.
	busy bool
}

// unreadableError is a TaskDef of which nothing new is known.
type unreadableError struct{ err error }

func (e *unreadableError) Error() string { return e.err.Error() }
func (e *unreadableError) Unwrap() error { return e.err }

func newReadiness(options Options) *readiness {
	r := &readiness{redactor: options.Redactor, log: options.Log, changed: make(chan struct{})}
	// The polls themselves notice a server that is down and go on asking; the
	// ping only tells people while nothing is polled.
	r.looks = append(r.looks, &look{
		name:  "Conductor answers",
		gates: func(txn.TaskType) bool { return false },
		run: func(ctx context.Context) error {
			if err := options.Conductor.Ping(ctx); err != nil {
				return fmt.Errorf("Conductor at %s: %w", options.ConductorURL, err)
			}
			return nil
		},
	})
	var types []txn.TaskType
	for taskType := range options.Handlers {
		types = append(types, taskType)
	}
	slices.Sort(types)
	for _, taskType := range types {
		r.looks = append(r.looks, &look{
			name:  "TaskDef " + string(taskType),
			gates: func(t txn.TaskType) bool { return t == taskType },
			run: func(ctx context.Context) error {
				return checkRegistered(ctx, options.Conductor, options.ConductorURL, taskType)
			},
		})
		for _, domain := range options.Domains {
			r.queues = append(r.queues, &queue{readiness: r, taskType: taskType, domain: domain})
		}
	}
	for _, check := range options.Checks {
		r.looks = append(r.looks, &look{name: check.Name, gates: func(txn.TaskType) bool { return true }, run: check.Run})
	}
	return r
}

// checkRegistered reads a TaskDef and holds its rules.
func checkRegistered(ctx context.Context, conductor Conductor, url string, taskType txn.TaskType) error {
	definition, err := conductor.TaskDefinition(ctx, taskType)
	switch {
	case isGone(err):
		return fmt.Errorf("TaskDef %s is not registered in Conductor at %s: run `perago register`", taskType, url)
	case err != nil:
		return &unreadableError{fmt.Errorf("TaskDef %s could not be read from Conductor at %s: %w", taskType, url, err)}
	}
	_, err = LimitsOf(definition)
	return err
}

// watch looks at every condition until ctx ends: often while it fails, seldom
// while it holds.
func (r *readiness) watch(ctx context.Context) {
	var all sync.WaitGroup
	for _, l := range r.looks {
		all.Go(func() {
			for {
				again := lookAgainHolding
				if !r.once(ctx, l) {
					again = lookAgainFailing
				}
				if !pause(ctx, again) {
					return
				}
			}
		})
	}
	all.Wait()
}

// once looks at a condition and reports whether it holds.
func (r *readiness) once(ctx context.Context, l *look) bool {
	lookCtx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	err := l.run(lookCtx)
	if err != nil && ctx.Err() != nil {
		return false // stopping: the error says nothing about the condition
	}
	fault := ""
	if err != nil {
		fault = txn.Reason(err, 0, r.redactor.Values()...)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if !l.known || l.fault != fault {
		if fault == "" {
			r.log.Info("condition holds", slog.String(telemetry.KeyCondition, l.name))
		} else {
			r.log.Warn("not ready", slog.String(telemetry.KeyCondition, l.name), slog.String(telemetry.KeySentence, fault))
		}
	}
	var unreadable *unreadableError
	wasOpen := l.open
	l.open = err == nil || (l.open && errors.As(err, &unreadable))
	l.known, l.fault = true, fault
	if l.open && !wasOpen {
		close(r.changed)
		r.changed = make(chan struct{})
	}
	return err == nil
}

// open waits until every gate of the type is open and reports false when ctx
// ended first.
func (r *readiness) open(ctx context.Context, taskType txn.TaskType) bool {
	for {
		r.mu.Lock()
		open, changed := r.isOpen(taskType), r.changed
		r.mu.Unlock()
		if open {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (r *readiness) isOpen(taskType txn.TaskType) bool {
	for _, l := range r.looks {
		if l.gates(taskType) && !l.open {
			return false
		}
	}
	return true
}

// drain makes the worker not ready for good.
func (r *readiness) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
}

func (r *readiness) queue(taskType txn.TaskType, domain string) *queue {
	for _, q := range r.queues {
		if q.taskType == taskType && q.domain == domain {
			return q
		}
	}
	panic(fmt.Sprintf("no queue for %s in domain %q", taskType, domain))
}

// conditions are all of them as they are now.
func (r *readiness) conditions() []telemetry.Condition {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []telemetry.Condition
	if r.draining {
		all = append(all, telemetry.Condition{Name: "worker", Sentence: "the worker is stopping: it takes no more tasks"})
	}
	for _, l := range r.looks {
		condition := telemetry.Condition{Name: l.name, OK: l.known && l.fault == "", Sentence: l.fault}
		if !l.known {
			condition.Sentence = "not looked at yet"
		}
		all = append(all, condition)
	}
	for _, q := range r.queues {
		all = append(all, q.condition(r.isOpen(q.taskType)))
	}
	return all
}

// wants notes that the loop is about to poll as soon as a slot is free. A worker
// whose slots are all at work is busy and not unready.
func (q *queue) wants() {
	q.readiness.mu.Lock()
	defer q.readiness.mu.Unlock()
	q.busy = true
}

// polls notes that a slot was free.
func (q *queue) polls() {
	q.readiness.mu.Lock()
	defer q.readiness.mu.Unlock()
	q.busy = false
}

// polled notes how a poll ended.
func (q *queue) polled(err error) {
	q.readiness.mu.Lock()
	defer q.readiness.mu.Unlock()
	if err != nil {
		q.fault = txn.Reason(err, 0, q.readiness.redactor.Values()...)
		return
	}
	q.last, q.fault = time.Now(), ""
}

func (q *queue) condition(open bool) telemetry.Condition {
	condition := telemetry.Condition{Name: "poll of " + string(q.taskType)}
	if q.domain != "" {
		condition.Name += " in domain " + q.domain
	}
	switch {
	case !open:
		condition.Sentence = "not polled while another condition fails"
	case q.last.IsZero():
		condition.Sentence = "no poll has succeeded yet"
	case time.Since(q.last) > pollRecent && !q.busy:
		condition.Sentence = fmt.Sprintf("the last successful poll was %s ago", time.Since(q.last).Round(time.Second))
	default:
		condition.OK = true
	}
	if !condition.OK && q.fault != "" {
		condition.Sentence += ": " + q.fault
	}
	return condition
}
