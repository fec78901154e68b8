package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"perago/pkg/txn"
)

func TestNoTaskIsTakenThatCannotRun(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		release := make(chan struct{})
		var running, most atomic.Int32
		for i := range 5 {
			h.conductor.schedule(txn.TaskID(fmt.Sprintf("t%d", i)), stageType, "")
		}
		h.stage(func(context.Context, *Attempt) (map[string]any, error) {
			now := running.Add(1)
			for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
			}
			<-release
			running.Add(-1)
			return nil, nil
		}, func(o *Options) { o.Concurrency = 2 })

		time.Sleep(time.Minute)
		for i, want := range []txn.TaskStatus{txn.TaskInProgress, txn.TaskInProgress, txn.TaskScheduled, txn.TaskScheduled, txn.TaskScheduled} {
			if got := h.conductor.status(txn.TaskID(fmt.Sprintf("t%d", i))); got != want {
				t.Errorf("with both slots taken task %d is %s, want %s", i, got, want)
			}
		}
		if polls := h.conductor.made("Poll"); len(polls) != 2 {
			t.Errorf("%d polls without a free slot, want the 2 that filled both", len(polls))
		}
		release <- struct{}{}
		synctest.Wait()
		if polls := h.conductor.made("Poll"); len(polls) != 3 {
			t.Errorf("%d polls after a slot became free, want 3", len(polls))
		}
		close(release)
		time.Sleep(time.Second)
		for i := range 5 {
			if got := h.conductor.status(txn.TaskID(fmt.Sprintf("t%d", i))); got != txn.TaskCompleted {
				t.Errorf("task %d is %s", i, got)
			}
		}
		if most.Load() != 2 {
			t.Errorf("%d tasks ran at once, want 2", most.Load())
		}
	})
}

// A server may hold the tasks that it has until it has as many as were asked for.
func TestAPollAsksForOneTaskAndNoWait(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		for i := range 5 {
			h.conductor.schedule(txn.TaskID(fmt.Sprintf("t%d", i)), stageType, "")
		}
		h.stage(untilCancelled, func(o *Options) { o.Concurrency = 8 })
		synctest.Wait()
		polls := h.conductor.made("Poll")
		if len(polls) != 6 {
			t.Errorf("%d polls for five tasks, want 6 without a pause", len(polls))
		}
		for _, poll := range polls {
			if poll.Poll.Count != 1 || poll.Poll.Wait != 0 {
				t.Errorf("a poll asks for %d tasks and a wait of %s", poll.Poll.Count, poll.Poll.Wait)
			}
		}
	})
}

func TestTypesShareTheSlotsAndNoneStarves(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		const cleanupType txn.TaskType = "perago_cleanup"
		h.conductor.register(txn.TaskDefinition{Name: cleanupType, ResponseTimeoutSeconds: 60})
		for i := range 30 {
			h.conductor.schedule(txn.TaskID(fmt.Sprintf("stage%d", i)), stageType, "")
		}
		h.conductor.schedule("cleanup", cleanupType, "")
		slow := func(context.Context, *Attempt) (map[string]any, error) {
			time.Sleep(10 * time.Second)
			return nil, nil
		}
		h.start(map[txn.TaskType]Handler{stageType: slow, cleanupType: slow}, func(o *Options) { o.Concurrency = 1 })
		// The cleanup waits for at most the stage task at work and one whose loop
		// asked before it.
		time.Sleep(31 * time.Second)
		if got := h.conductor.status("cleanup"); got != txn.TaskCompleted {
			t.Errorf("the only cleanup task is %s behind 30 stage tasks", got)
		}
	})
}

func TestPollsNameWorkerAndDomains(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.schedule("without", stageType, "")
		h.conductor.schedule("within", stageType, "gpu")
		h.conductor.schedule("elsewhere", stageType, "other")
		h.stage(done, func(o *Options) { o.Domains = []string{"", "gpu"} })
		time.Sleep(time.Second)
		for _, call := range h.conductor.made("Poll") {
			if call.Poll.Worker != theWorker || call.Poll.Type != stageType {
				t.Errorf("poll %+v", call.Poll)
			}
			if call.Poll.Wait != 0 {
				t.Errorf("a poll waits %s on the server, which wakes none", call.Poll.Wait)
			}
		}
		for id, want := range map[txn.TaskID]txn.TaskStatus{"without": txn.TaskCompleted, "within": txn.TaskCompleted, "elsewhere": txn.TaskScheduled} {
			if got := h.conductor.status(id); got != want {
				t.Errorf("task %s is %s, want %s", id, got, want)
			}
		}
	})
}

func TestPaceOfPolls(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.stage(done)
		time.Sleep(5 * time.Second)
		if polls := len(h.conductor.made("Poll")); polls < 45 || polls > 51 {
			t.Errorf("%d polls in the first 5s at an interval of 100ms", polls)
		}
		time.Sleep(10 * time.Minute)
		before := len(h.conductor.made("Poll"))
		time.Sleep(time.Minute)
		if polls := len(h.conductor.made("Poll")) - before; polls < 59 || polls > 61 {
			t.Errorf("%d polls in a minute of a queue that was idle for 10m, want one a second", polls)
		}
		h.conductor.schedule("t", stageType, "")
		began := time.Now()
		for h.conductor.status("t") != txn.TaskCompleted {
			time.Sleep(10 * time.Millisecond)
		}
		if late := time.Since(began); late > slowestPace+10*time.Millisecond {
			t.Errorf("after an idle time a task waited %s", late)
		}
		before = len(h.conductor.made("Poll"))
		time.Sleep(time.Second)
		if polls := len(h.conductor.made("Poll")) - before; polls < 9 {
			t.Errorf("%d polls in the second after a task, want the full pace again", polls)
		}
	})
}

func TestFailingPollsBackOff(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.stage(done)
		time.Sleep(time.Second)
		h.conductor.fail(on("Poll", down), nil)
		before := len(h.conductor.made("Poll"))
		time.Sleep(10 * time.Minute)
		polls := h.conductor.made("Poll")[before:]
		// At full jitter below 10s the mean pause is 5s: 120 polls, give or take.
		if len(polls) < 60 || len(polls) > 240 {
			t.Errorf("%d polls in 10m against a server that is down", len(polls))
		}
		for i := 1; i < len(polls); i++ {
			if gap := polls[i].At.Sub(polls[i-1].At); gap > 10*time.Second {
				t.Errorf("a pause of %s", gap)
			}
		}
		h.conductor.fail(nil, nil)
		h.conductor.schedule("t", stageType, "")
		time.Sleep(11 * time.Second)
		if got := h.conductor.status("t"); got != txn.TaskCompleted {
			t.Errorf("11s after the server came back the task is %s", got)
		}
	})
}

func TestNewerAttemptReplacesTheOlderAndNeverRunsBesideIt(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		var running atomic.Int32
		causes, stops := make(chan error, 3), make(chan time.Time, 3)
		h.conductor.schedule("t", stageType, "")
		h.stage(func(ctx context.Context, a *Attempt) (map[string]any, error) {
			if running.Add(1) > 1 {
				t.Error("two attempts at one task run at once")
			}
			defer running.Add(-1)
			if a.Task.PollCount == 3 {
				return map[string]any{"poll": a.Task.PollCount}, nil
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			stops <- time.Now()
			// It takes its time to stop; meanwhile a third attempt may come.
			time.Sleep(5 * time.Second)
			return nil, ctx.Err()
		})
		reran := time.Now()
		for range 2 {
			h.conductor.rerun("t")
			time.Sleep(time.Second)
		}
		time.Sleep(30 * time.Second)
		if result := h.only("t"); result.Status != txn.TaskCompleted || fmt.Sprint(result.Output["poll"]) != "3" {
			t.Errorf("update %+v, want the third attempt's completion", result)
		}
		if ran := len(causes); ran != 1 {
			t.Errorf("%d older attempts ran, want 1: the second one never started", ran)
		}
		// At once, and not only when its heartbeat finds out.
		if stopped := (<-stops).Sub(reran); stopped > time.Second {
			t.Errorf("the older attempt was cancelled %s after the task was handed out again", stopped)
		}
		var stale *txn.StaleAttemptError
		if cause := <-causes; !errors.As(cause, &stale) {
			t.Errorf("cancelled with %v, want a stale attempt", cause)
		}
		if got := h.counter("perago_fence_rejections_total", "fence=attempt", "reason=poll_count"); got != 2 {
			t.Errorf("%v rejections counted, want 2", got)
		}
	})
}

func TestSameAttemptHandedOutTwiceRunsOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		var runs atomic.Int32
		h.conductor.schedule("t", stageType, "")
		h.stage(func(context.Context, *Attempt) (map[string]any, error) {
			runs.Add(1)
			time.Sleep(10 * time.Second)
			return nil, nil
		})
		// A repeated answer: the very task again, poll count and all.
		h.conductor.edit("t", func(task *txn.Task) {
			h.conductor.enqueue(task)
			task.PollCount--
		})
		time.Sleep(time.Minute)
		if runs.Load() != 1 {
			t.Errorf("%d runs of one attempt", runs.Load())
		}
		if result := h.only("t"); result.Status != txn.TaskCompleted {
			t.Errorf("update %+v", result)
		}
	})
}

func TestStopDrains(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.schedule("t", stageType, "")
		h.stage(func(ctx context.Context, _ *Attempt) (map[string]any, error) {
			select {
			case <-time.After(19 * time.Second):
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		h.stop()
		synctest.Wait()
		polls := len(h.conductor.made("Poll"))
		h.conductor.schedule("later", stageType, "")
		began := time.Now()
		if err := h.result(time.Minute); err != nil {
			t.Errorf("the drain ended with %v", err)
		}
		if took := time.Since(began); took != 19*time.Second {
			t.Errorf("the drain took %s, want the task's 19s", took)
		}
		if result := h.only("t"); result.Status != txn.TaskCompleted {
			t.Errorf("a task that ends within the grace is reported as %+v", result)
		}
		if now := len(h.conductor.made("Poll")); now != polls {
			t.Errorf("%d polls after the stop", now-polls)
		}
		if got := h.conductor.status("later"); got != txn.TaskScheduled {
			t.Errorf("a task that came after the stop is %s", got)
		}
	})
}

func TestStopIdleEndsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.stage(done)
		time.Sleep(10 * time.Minute)
		began := time.Now()
		h.stop()
		if err := h.result(time.Minute); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("an idle worker took %s to stop", took)
		}
	})
}

// A task that is cut short by the stop of its worker: a stage or a checkout goes back
// into its queue, everything else has failed.
func TestStop_EndsInterruptedTasks(t *testing.T) {
	const reason = "the worker was stopped: upload w/a: context canceled"
	for taskType, want := range map[txn.TaskType]txn.TaskResult{
		txn.TypeStage:    {Status: txn.TaskInProgress},
		txn.TypeCheckout: {Status: txn.TaskInProgress},
		txn.TypePublish:  {Status: txn.TaskFailed, Reason: reason},
		txn.TypeCleanup:  {Status: txn.TaskFailed, Reason: reason},
	} {
		t.Run(string(taskType), func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				definition := publishDefinition(100, 300) // no heartbeat comes in between
				definition.Name = taskType
				h.conductor.register(definition)
				h.conductor.schedule("t", taskType, "")
				h.conductor.schedule("other", taskType, "")
				h.start(map[txn.TaskType]Handler{taskType: func(ctx context.Context, _ *Attempt) (map[string]any, error) {
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), txn.ErrStopped) {
						t.Errorf("cancelled with %v", context.Cause(ctx))
					}
					return map[string]any{"evidence": "seen"}, fmt.Errorf("upload w/a: %w", ctx.Err())
				}})
				// The other task is not ours any more when the grace is over.
				time.Sleep(time.Second)
				h.stop()
				h.conductor.edit("other", func(task *txn.Task) { task.Status = txn.TaskCanceled })
				began := time.Now()
				if err := h.result(time.Minute); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took != 20*time.Second {
					t.Errorf("the stop took %s, want the grace of 20s", took)
				}
				result := h.only("t")
				evidence := result.Output["evidence"] == "seen"
				result.Output = nil
				want.Task, want.Workflow, want.Worker = "t", "workflow-of-t", theWorker
				if fmt.Sprint(result) != fmt.Sprint(want) || evidence != (want.Status == txn.TaskFailed) {
					t.Errorf("an interrupted task is reported as %+v, want %+v", result, want)
				}
				state, outcome := txn.TaskFailed, "outcome=failed"
				if want.Status == txn.TaskInProgress {
					state, outcome = txn.TaskScheduled, "outcome=handed_back"
				}
				if got := h.conductor.status("t"); got != state {
					t.Errorf("the task is %s, want %s", got, state)
				}
				if got := h.counter("perago_task_outcomes_total", outcome, "task="+string(taskType)); got != 1 {
					t.Errorf("%v times %s", got, outcome)
				}
				if updates := h.conductor.updates("other"); len(updates) != 0 {
					t.Errorf("updates of a task that is over: %+v", updates)
				}
			})
		})
	}
}

// The answer to a handing back is lost. The task is in its queue, which is what was
// wanted; or another worker has it by then, and must not lose it.
func TestStop_HandsBackOnce(t *testing.T) {
	for name, another := range map[string]bool{"the task waits": false, "another worker has it": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				h.conductor.schedule("t", stageType, "")
				h.conductor.fail(nil, on("Update", func(ctx context.Context, call conductorCall) error {
					if another {
						if _, err := h.conductor.memoryPoll("another"); err != nil {
							return err
						}
					}
					return lost(ctx, call)
				}))
				h.stage(untilCancelled)
				time.Sleep(time.Second)
				h.stop()
				if err := h.result(time.Minute); err != nil {
					t.Error(err)
				}
				h.only("t")
				outcome, state := "handed_back", txn.TaskScheduled
				if another {
					outcome, state = "unreported", txn.TaskInProgress
				}
				if got := h.conductor.status("t"); got != state {
					t.Errorf("the task is %s, want %s", got, state)
				}
				if got := h.counter("perago_task_outcomes_total", "outcome="+outcome, "task="+string(stageType)); got != 1 {
					t.Errorf("%v times %s\n%s", got, outcome, h.logs)
				}
			})
		})
	}
}

func TestWorkThatFinishesDuringInterruptionCounts(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.schedule("t", stageType, "")
		h.stage(func(ctx context.Context, _ *Attempt) (map[string]any, error) {
			<-ctx.Done()
			// A merge that was sent finishes under its own deadline.
			time.Sleep(3 * time.Second)
			return map[string]any{"done": true}, nil
		})
		h.stop()
		if err := h.result(time.Minute); err != nil {
			t.Error(err)
		}
		if result := h.only("t"); result.Status != txn.TaskCompleted {
			t.Errorf("finished work is reported as %+v", result)
		}
	})
}

func TestTasksThatDoNotEndAreLeft(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		release := make(chan struct{})
		h.conductor.schedule("t", stageType, "")
		h.stage(func(context.Context, *Attempt) (map[string]any, error) {
			<-release
			return nil, nil
		})
		h.stop()
		began := time.Now()
		err := h.result(time.Minute)
		if err == nil || !strings.Contains(err.Error(), "1 tasks did not end within 8s") {
			t.Errorf("ended with %v", err)
		}
		if took := time.Since(began); took != 28*time.Second {
			t.Errorf("a deaf task held the stop for %s", took)
		}
		close(release)
	})
}

func TestTasksOfAPollInFlightAreHandedBack(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		var runs atomic.Int32
		handler := func(context.Context, *Attempt) (map[string]any, error) {
			runs.Add(1)
			return nil, nil
		}
		// The answer of the poll is on its way while the stop comes.
		h.conductor.fail(nil, on("Poll", func(ctx context.Context, _ conductorCall) error {
			select {
			case <-time.After(3 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}))
		h.conductor.schedule("a", stageType, "")
		h.conductor.schedule("b", stageType, "")
		// One task more than was asked for.
		h.stage(handler, func(o *Options) { o.Conductor = &generousConductor{memoryConductor: h.conductor} })
		h.stop()
		if err := h.result(time.Minute); err != nil {
			t.Error(err)
		}
		for _, id := range []txn.TaskID{"a", "b"} {
			want := txn.TaskResult{Task: id, Workflow: "workflow-of-" + txn.WorkflowID(id), Worker: theWorker, Status: txn.TaskInProgress}
			if got := h.only(id); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("handed back with %+v, want %+v", got, want)
			}
			if got := h.conductor.status(id); got != txn.TaskScheduled {
				t.Errorf("task %s is %s, want SCHEDULED for another worker", id, got)
			}
		}
		if runs.Load() != 0 {
			t.Error("a task of a poll in flight at the stop was started")
		}
	})
}

func TestMoreTasksThanAskedForAreHandedBack(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		generous := &generousConductor{memoryConductor: h.conductor}
		h.conductor.schedule("a", stageType, "")
		h.conductor.schedule("b", stageType, "")
		h.stage(untilCancelled, func(o *Options) { o.Concurrency, o.Conductor = 1, generous })
		time.Sleep(time.Second)
		if a, b := h.conductor.status("a"), h.conductor.status("b"); a != txn.TaskInProgress || b != txn.TaskScheduled {
			t.Errorf("with one slot the tasks are %s and %s", a, b)
		}
	})
}

// generousConductor hands out one task more than was asked for.
type generousConductor struct{ *memoryConductor }

func (c *generousConductor) Poll(ctx context.Context, request txn.PollRequest) ([]txn.Task, error) {
	request.Count++
	return c.memoryConductor.Poll(ctx, request)
}

// A handing back whose answer got lost is not repeated once another worker has
// the task: the repetition would take it away from there.
func TestHandBackIsNotRepeatedOntoAnotherWorker(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.schedule("t", stageType, "")
		h.conductor.fail(nil, func(ctx context.Context, call conductorCall) error {
			switch call.Method {
			case "Poll":
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			case "Update":
				if _, err := h.conductor.memoryPoll("another"); err != nil {
					return err
				}
				return lost(ctx, call)
			}
			return nil
		})
		h.stage(done)
		h.stop()
		if err := h.result(time.Minute); err != nil {
			t.Error(err)
		}
		h.only("t")
		h.conductor.edit("t", func(task *txn.Task) {
			if task.Status != txn.TaskInProgress || task.Worker != "another" {
				t.Errorf("the task is %s with %s", task.Status, task.Worker)
			}
		})
	})
}

// memoryPoll is another worker's poll, outside the log of calls.
func (c *memoryConductor) memoryPoll(worker txn.WorkerID) (txn.Task, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, queue := range c.queues {
		if len(queue) == 0 {
			continue
		}
		task := c.tasks[queue[0]]
		c.queues[name] = queue[1:]
		task.Status, task.Worker = txn.TaskInProgress, worker
		task.PollCount++
		return *task, nil
	}
	return txn.Task{}, errors.New("no task is queued")
}

// A handler has tasks of its own type only: what Conductor hands out by mistake goes
// back, and is not asked for again at once.
func TestATaskOfAnotherTypeIsHandedBack(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.register(publishDefinition(1, 60))
		h.conductor.schedule("t", publishType, "")
		h.conductor.mu.Lock()
		h.conductor.queues[queueName(stageType, "")] = []txn.TaskID{"t"}
		h.conductor.queues[queueName(publishType, "")] = nil
		h.conductor.mu.Unlock()
		ran := false
		h.stage(func(context.Context, *Attempt) (map[string]any, error) { ran = true; return nil, nil }, func(o *Options) { o.Concurrency = 1 })
		if ran || h.conductor.status("t") != txn.TaskScheduled || h.only("t").Status != txn.TaskInProgress {
			t.Errorf("ran: %v, the task is %s, updates %+v", ran, h.conductor.status("t"), h.conductor.updates("t"))
		}
		want := `Conductor handed out task t of type "perago_publish" to a poll for perago_stage; it is handed back`
		if got := h.condition("poll of perago_stage"); got.OK || !strings.Contains(got.Sentence, want) {
			t.Errorf("the condition is %+v", got)
		}
		// The slot is free again.
		h.conductor.schedule("ours", stageType, "")
		time.Sleep(time.Minute)
		if got := h.conductor.status("ours"); !ran || got != txn.TaskCompleted {
			t.Errorf("the task after it is %s", got)
		}
	})
}

// handsOut hands out one attempt whatever it is asked for, up to most times.
type handsOut struct {
	*memoryConductor
	task txn.Task
	most int
}

func (c *handsOut) Poll(ctx context.Context, request txn.PollRequest) ([]txn.Task, error) {
	_, err := c.memoryConductor.Poll(ctx, request)
	if len(c.made("Poll")) > c.most {
		return nil, err
	}
	return []txn.Task{c.task}, err
}

// A server that hands out again and again what is nobody's is not asked as fast as
// it answers.
func TestStaleTasksAreNotAskedForAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		definition := stageDefinition()
		server := &handsOut{h.conductor, txn.Task{ID: "t", Workflow: "w", Type: stageType, Status: txn.TaskInProgress, Worker: theWorker, Definition: &definition}, 1000}
		h.stage(func(ctx context.Context, a *Attempt) (map[string]any, error) { return nil, a.Current(ctx) }, func(o *Options) { o.Conductor = server })
		time.Sleep(10 * time.Minute)
		if polls := len(h.conductor.made("Poll")); polls < 60 || polls > 300 {
			t.Errorf("%d polls in ten minutes", polls)
		}
		if updates := h.conductor.updates("t"); len(updates) != 0 {
			t.Errorf("updates %+v", updates)
		}
	})
}
