package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"perago/pkg/telemetry"
	"perago/pkg/txn"
)

// The pace of polls. A poll asks for one task and for no wait: a waiting poll is not
// woken by a new task, and Conductor on Redis holds a poll for 100 ms, whatever wait
// it was asked for, while it has found fewer tasks than were asked for; those it has
// found it holds as long. answerTime is what an answer may take. A queue that has
// been empty for long is asked less often, but never so seldom that a task waits
// longer than a hundredth of that time.
const (
	answerTime   = 10 * time.Second
	idleFraction = 100
	slowestPace  = time.Second
)

// finalTime is what a stopping process leaves for reports after the grace is
// over: interrupted tasks are handed back, or end with FAILED, instead of a timeout.
const finalTime = 8 * time.Second

// Conductor is what the runtime needs of the server. Errors carry the classes of
// package txn. A cancelled context ends a call; for Poll and Update that leaves
// the outcome unknown.
type Conductor interface {
	// Poll takes at most Count tasks; none is no error. Each carries its TaskDef.
	// It is not idempotent: tasks of an answer that got lost come back after their
	// response timeout.
	Poll(ctx context.Context, request txn.PollRequest) ([]txn.Task, error)
	// Task reads a task; one that is not there is txn.ErrNotFound.
	Task(ctx context.Context, id txn.TaskID) (txn.Task, error)
	// WorkflowStatus reads a workflow's status; one that is not there is
	// txn.ErrNotFound.
	WorkflowStatus(ctx context.Context, id txn.WorkflowID) (txn.WorkflowStatus, error)
	// Update reports a task. No error does not mean that it was accepted:
	// Conductor answers 200 to updates it ignores. Sending the same end twice is
	// harmless while the attempt is current.
	Update(ctx context.Context, result txn.TaskResult) error
	// ExtendLease renews the response timeout; on a task that is over it does
	// nothing and reports no error. It is idempotent.
	ExtendLease(ctx context.Context, workflow txn.WorkflowID, task txn.TaskID, worker txn.WorkerID) error
	// TaskDefinition reads a TaskDef; one that is not registered is
	// txn.ErrNotFound.
	TaskDefinition(ctx context.Context, name txn.TaskType) (txn.TaskDefinition, error)
	// Ping asks whether the server answers.
	Ping(ctx context.Context) error
}

// Options are what a Runtime needs. All fields are required unless they say
// otherwise.
type Options struct {
	Conductor Conductor
	// ConductorURL is the server's address for the sentences people read.
	ConductorURL string
	// Worker names this process start; never the same for two of them.
	Worker txn.WorkerID
	// Handlers holds one handler for each task type to poll.
	Handlers map[txn.TaskType]Handler
	// Domains are the queues' domains; "" is the queue without one. Empty means
	// only that.
	Domains []string
	// Concurrency is how many tasks run at once, over all types.
	Concurrency int
	// PollInterval is the pace at which an empty queue is asked.
	PollInterval time.Duration
	// ReasonLength is the limit of a reason in characters.
	ReasonLength int
	// ShutdownGrace is how long running tasks may go on after a stop.
	ShutdownGrace time.Duration
	// ProgressInterval is how often a task that takes long says how far it is; 0 is
	// never.
	ProgressInterval time.Duration
	// TaskLog is told as well, less often; may be nil.
	TaskLog TaskLog
	// Checks are what must hold beside Conductor; may be empty.
	Checks []Check

	Log     *slog.Logger
	Metrics *telemetry.Metrics
	// Traces may be nil.
	Traces *telemetry.Traces
	// Redactor may be nil.
	Redactor *telemetry.Redactor
}

// Runtime polls for tasks and runs them until it is stopped.
type Runtime struct {
	Options
	slots     *semaphore.Weighted
	readiness *readiness

	// work ends when the grace of a stop is over, life when finalTime is too.
	work       context.Context
	cancelWork context.CancelCauseFunc
	life       context.Context
	cancelLife context.CancelFunc

	tasks sync.WaitGroup
	mu    sync.Mutex
	// running holds, for each task id, the newest attempt at it in this process.
	running map[txn.TaskID]*run
}

// run is one attempt in this process.
type run struct {
	attempt *Attempt
	cancel  context.CancelCauseFunc
	done    chan struct{}
}

// New makes a runtime. Nothing is sent until Run.
func New(options Options) *Runtime {
	if len(options.Domains) == 0 {
		options.Domains = []string{""}
	}
	return &Runtime{
		Options:   options,
		slots:     semaphore.NewWeighted(int64(options.Concurrency)),
		readiness: newReadiness(options),
		running:   map[txn.TaskID]*run{},
	}
}

// Conditions says what must hold for the worker to be ready, and what does not.
func (r *Runtime) Conditions() []telemetry.Condition { return r.readiness.conditions() }

// Run polls and works until ctx ends, then stops in two phases: no more polls,
// tasks of a poll in flight are handed back, running tasks have the grace; then
// their contexts are cancelled and what is still ours is reported: stages and
// checkouts are handed back, everything else is FAILED (txn.ResultOf). It returns nil after a drain and an error when tasks had to be left. It runs once.
func (r *Runtime) Run(ctx context.Context) error {
	whole := context.WithoutCancel(ctx)
	r.life, r.cancelLife = context.WithCancel(whole)
	defer r.cancelLife()
	r.work, r.cancelWork = context.WithCancelCause(whole)
	defer r.cancelWork(nil)

	var loops sync.WaitGroup
	loops.Go(func() { r.readiness.watch(ctx) })
	for taskType, handler := range r.Handlers {
		for _, domain := range r.Domains {
			loops.Go(func() { r.poll(ctx, taskType, domain, handler) })
		}
	}

	<-ctx.Done()
	r.readiness.drain()
	r.Log.Info("stopping: no more polls, running tasks have the grace",
		slog.String(telemetry.KeyCause, context.Cause(ctx).Error()), slog.Int(telemetry.KeyRunning, r.runningCount()), slog.Duration(telemetry.KeyGrace, r.ShutdownGrace))

	ended := make(chan struct{})
	go func() {
		// Loops first: the last poll of one may still hand its tasks back.
		loops.Wait()
		r.tasks.Wait()
		close(ended)
	}()
	grace := time.NewTimer(r.ShutdownGrace)
	defer grace.Stop()
	select {
	case <-ended:
		r.Log.Info("drained")
		return nil
	case <-grace.C:
	}
	r.Log.Warn("the grace is over: running tasks are cancelled", slog.Int(telemetry.KeyRunning, r.runningCount()))
	r.cancelWork(txn.ErrStopped)
	final := time.NewTimer(finalTime)
	defer final.Stop()
	select {
	case <-ended:
		r.Log.Info("stopped")
		return nil
	case <-final.C:
	}
	return fmt.Errorf("%d tasks did not end within %s after they were cancelled; they come back after their response timeout", r.runningCount(), finalTime)
}

// poll asks one queue for tasks until ctx ends. Slots are taken before the poll,
// so that no task is taken that cannot run at once.
func (r *Runtime) poll(ctx context.Context, taskType txn.TaskType, domain string, handler Handler) {
	queue := r.readiness.queue(taskType, domain)
	errorPauses := pollBackoff()
	lastTask := time.Now()
	// stale says that the attempt which ended last was not this worker's to run.
	var stale atomic.Bool
	for {
		if !r.readiness.open(ctx, taskType) {
			return
		}
		queue.wants()
		if r.slots.Acquire(ctx, 1) != nil {
			return
		}
		queue.polls()
		sent := time.Now()
		tasks, err := r.send(ctx, txn.PollRequest{Type: taskType, Domain: domain, Worker: r.Worker, Count: 1})
		r.Metrics.Polled(taskType, time.Since(sent))

		stopping, taken := ctx.Err() != nil, false
		for i, task := range tasks {
			other := task.Type != taskType
			if other {
				err = fmt.Errorf("Conductor handed out task %s of type %q to a poll for %s; it is handed back", task.ID, task.Type, taskType)
				task.Type = taskType // whatever it says would be a metric's label
			}
			// A second task, which nobody asked for, has no slot. One of another type is
			// another handler's: cleanup, which never fails, would complete a publish.
			if stopping || i > 0 || other {
				r.tasks.Go(func() { r.handBack(task, sent) })
				continue
			}
			taken = true
			r.tasks.Go(func() {
				defer r.slots.Release(1)
				stale.Store(r.execute(task, sent, handler))
			})
		}
		queue.polled(err)
		if !taken {
			r.slots.Release(1)
		}
		if stopping {
			return
		}

		var wait time.Duration
		switch {
		case err != nil:
			wait = errorPauses.next()
			r.Log.Warn("poll failed", slog.String(telemetry.KeyTaskType, string(taskType)), slog.String(telemetry.KeyDomain, domain),
				slog.Any(telemetry.KeyError, err), slog.Duration(telemetry.KeyPause, wait))
		case len(tasks) > 0 && stale.Load():
			// A server that hands out what is not to be run would do so as fast as it
			// is asked.
			wait = errorPauses.next()
		case len(tasks) > 0:
			// Where one task was there may be more: ask again at once.
			errorPauses.reset()
			lastTask = time.Now()
		default:
			errorPauses.reset()
			pace := min(time.Since(lastTask)/idleFraction, slowestPace)
			wait = max(pace, r.PollInterval) - time.Since(sent)
		}
		if !pause(ctx, wait) {
			return
		}
	}
}

// send polls once. The request outlives a stop: cancelled, it could take a task
// that nobody runs or hands back.
func (r *Runtime) send(ctx context.Context, request txn.PollRequest) ([]txn.Task, error) {
	pollCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	return r.Conductor.Poll(pollCtx, request)
}

func (r *Runtime) runningCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.running)
}
