package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"perago/pkg/txn"
)

func TestAttemptFence(t *testing.T) {
	edit := func(change func(*txn.Task)) func(*harness) {
		return func(h *harness) { h.conductor.edit("t", change) }
	}
	workflow := func(status txn.WorkflowStatus) func(*harness) {
		return func(h *harness) { h.conductor.setWorkflow("workflow-of-t", status) }
	}
	for name, row := range map[string]struct {
		change func(*harness)
		reason txn.StaleReason
		// task is false when only the whole fence sees it.
		task bool
	}{
		"current":             {func(*harness) {}, "", false},
		"paused":              {workflow(txn.WorkflowPaused), "", false},
		"task gone":           {func(h *harness) { h.conductor.remove("t") }, txn.StaleTaskGone, true},
		"timed out":           {edit(func(t *txn.Task) { t.Status = txn.TaskTimedOut }), txn.StaleTaskStatus, true},
		"scheduled again":     {edit(func(t *txn.Task) { t.Status = txn.TaskScheduled }), txn.StaleTaskStatus, true},
		"another workflow":    {edit(func(t *txn.Task) { t.Workflow = "w2" }), txn.StaleWorkflowID, true},
		"another retry":       {edit(func(t *txn.Task) { t.RetryCount++ }), txn.StaleRetryCount, true},
		"another worker":      {edit(func(t *txn.Task) { t.Worker = "w2" }), txn.StaleWorker, true},
		"another poll":        {edit(func(t *txn.Task) { t.PollCount++ }), txn.StalePollCount, true},
		"another start":       {edit(func(t *txn.Task) { t.StartTime++ }), txn.StaleStartTime, true},
		"workflow failed":     {workflow(txn.WorkflowFailed), txn.StaleWorkflowStatus, false},
		"workflow terminated": {workflow(txn.WorkflowTerminated), txn.StaleWorkflowStatus, false},
		"workflow completed":  {workflow(txn.WorkflowCompleted), txn.StaleWorkflowStatus, false},
		"workflow timed out":  {workflow(txn.WorkflowTimedOut), txn.StaleWorkflowStatus, false},
		"workflow gone":       {workflow(""), txn.StaleWorkflowStatus, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				h.conductor.schedule("t", stageType, "")
				h.stage(func(ctx context.Context, a *Attempt) (map[string]any, error) {
					row.change(h)
					// The task alone first: once found stale, an attempt stays so.
					taskErr, err := a.StillOurs(ctx), a.Current(ctx)
					if got := staleReason(err); got != row.reason {
						t.Errorf("Current: %v, want the reason %q", err, row.reason)
					}
					if got := staleReason(taskErr); row.task && got != row.reason || !row.task && taskErr != nil {
						t.Errorf("StillOurs: %v", taskErr)
					}
					return nil, err
				})
				time.Sleep(time.Second)
			})
		})
	}
}

func staleReason(err error) txn.StaleReason {
	var stale *txn.StaleAttemptError
	if errors.As(err, &stale) {
		return stale.Reason
	}
	if err != nil {
		return txn.StaleReason("not stale: " + err.Error())
	}
	return ""
}

func TestFenceReadIsTriedWithinTheLease(t *testing.T) {
	for _, method := range []string{"Task", "WorkflowStatus"} {
		t.Run(method, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				h.conductor.schedule("t", stageType, "")
				h.stage(func(ctx context.Context, a *Attempt) (map[string]any, error) {
					h.conductor.fail(on(method, first(5, down)), nil)
					if err := a.Current(ctx); err != nil {
						t.Errorf("after the server came back: %v", err)
					}
					h.conductor.fail(on(method, hang), nil)
					began := time.Now()
					left := a.LeaseLeft()
					err := a.Current(ctx)
					if staleReason(err) != txn.StaleUnreadable || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("while every read hangs: %v", err)
					}
					if took := time.Since(began); took > left || took < left/2 {
						t.Errorf("given up after %s with %s of the lease left", took, left)
					}
					return nil, err
				})
				time.Sleep(3 * time.Minute)
				if updates := h.conductor.updates("t"); len(updates) != 0 {
					t.Errorf("an attempt that could not be read sent %+v", updates)
				}
			})
		})
	}
}

func TestLeaseCountsFromWhenThePollWasSent(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.fail(nil, on("Poll", func(context.Context, conductorCall) error {
			time.Sleep(7 * time.Second)
			return nil
		}))
		h.conductor.schedule("t", stageType, "")
		h.stage(func(ctx context.Context, a *Attempt) (map[string]any, error) {
			if left := a.LeaseLeft(); left != 53*time.Second {
				t.Errorf("%s of a lease of 60s are left 7s after the poll was sent", left)
			}
			time.Sleep(3 * time.Second)
			h.conductor.fail(nil, on("ExtendLease", func(context.Context, conductorCall) error {
				time.Sleep(4 * time.Second)
				return nil
			}))
			if err := a.Extend(ctx); err != nil {
				t.Error(err)
			}
			if left := a.LeaseLeft(); left != 56*time.Second {
				t.Errorf("%s are left 4s after the extension was sent", left)
			}
			if until := time.Until(a.Deadline()); until != 56*time.Second {
				t.Errorf("the deadline is in %s", until)
			}
			return nil, nil
		})
		time.Sleep(time.Minute)
		h.only("t")
	})
}

func TestTotalTimeoutBoundsTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.register(txn.TaskDefinition{Name: stageType, ResponseTimeoutSeconds: 60, TimeoutSeconds: 90})
		h.conductor.schedule("t", stageType, "")
		h.stage(func(ctx context.Context, a *Attempt) (map[string]any, error) {
			time.Sleep(50 * time.Second)
			if err := a.Extend(ctx); err != nil {
				t.Error(err)
			}
			if left := a.LeaseLeft(); left != 40*time.Second {
				t.Errorf("%s are left of a total of 90s after 50s", left)
			}
			return nil, nil
		})
		time.Sleep(2 * time.Minute)
		h.only("t")
	})
}

func TestHeartbeat(t *testing.T) {
	for name, row := range map[string]struct {
		definition txn.TaskDefinition
		every      time.Duration
	}{
		"a third of the response timeout": {stageDefinition(), 20 * time.Second},
		"a short lease":                   {txn.TaskDefinition{Name: stageType, ResponseTimeoutSeconds: 3}, time.Second},
		"from the budget":                 {publishDefinition(0.5, 60), 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				h.conductor.register(row.definition)
				h.conductor.schedule("t", row.definition.Name, "")
				// The limits are the polled task's own; what is registered later is for
				// later workflows.
				changed := row.definition
				changed.ResponseTimeoutSeconds = 3000
				h.conductor.register(changed)
				work := 10*row.every + row.every/2
				h.start(map[txn.TaskType]Handler{row.definition.Name: func(ctx context.Context, _ *Attempt) (map[string]any, error) {
					select {
					case <-time.After(work):
						return nil, nil
					case <-ctx.Done():
						return nil, context.Cause(ctx)
					}
				}})
				time.Sleep(work + time.Minute)
				polled := h.conductor.made("Poll")[0].At
				beats := h.conductor.made("ExtendLease")
				if len(beats) != 10 {
					t.Fatalf("%d beats in %s, want 10", len(beats), work)
				}
				for i, beat := range beats {
					if at := beat.At.Sub(polled); at != time.Duration(i+1)*row.every {
						t.Errorf("beat %d came after %s", i+1, at)
					}
				}
				if reads := h.conductor.made("Task"); len(reads) != 10+2 {
					t.Errorf("%d reads of the task, want one before each beat, one before the update and one after it", len(reads))
				}
				if result := h.only("t"); result.Status != txn.TaskCompleted {
					t.Errorf("update %+v", result)
				}
			})
		})
	}
}

// The work ends while Conductor is at a heartbeat: the completion waits for its
// answer, and the beat is not called back, which would leave it on its way.
func TestCompletionWaitsForAHeartbeatUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.schedule("t", stageType, "")
		h.conductor.fail(func(ctx context.Context, call conductorCall) error {
			if call.Method != "ExtendLease" {
				return nil
			}
			select {
			case <-time.After(2 * time.Second):
				return nil
			case <-ctx.Done():
				t.Error("the heartbeat was called back")
				return ctx.Err()
			}
		}, nil)
		h.stage(func(context.Context, *Attempt) (map[string]any, error) {
			time.Sleep(21 * time.Second) // a beat goes out after 20
			return nil, nil
		})
		time.Sleep(time.Minute)
		beats := h.conductor.made("ExtendLease")
		if len(beats) != 1 {
			t.Fatalf("%d beats", len(beats))
		}
		if sent := h.conductor.made("Update")[0].At.Sub(beats[0].At); sent < 2*time.Second {
			t.Errorf("the completion went out %s after the beat, which Conductor was at for 2s", sent)
		}
		if result := h.only("t"); result.Status != txn.TaskCompleted {
			t.Errorf("update %+v", result)
		}
	})
}

func TestStaleAtAHeartbeatStopsTheWork(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		stops := make(chan time.Duration, 1)
		h.conductor.schedule("t", stageType, "")
		h.stage(func(ctx context.Context, _ *Attempt) (map[string]any, error) {
			began := time.Now()
			<-ctx.Done()
			stops <- time.Since(began)
			if staleReason(context.Cause(ctx)) != txn.StaleTaskStatus {
				t.Errorf("cancelled with %v", context.Cause(ctx))
			}
			return nil, ctx.Err()
		})
		time.Sleep(25 * time.Second)
		h.conductor.edit("t", func(task *txn.Task) { task.Status = txn.TaskTimedOut })
		time.Sleep(time.Minute)
		if stopped := <-stops; stopped != 40*time.Second {
			t.Errorf("the work stopped after %s, want the next heartbeat at 40s", stopped)
		}
		if extended := len(h.conductor.made("ExtendLease")); extended != 1 {
			t.Errorf("%d extensions; none may follow the task's end", extended)
		}
		if updates := h.conductor.updates("t"); len(updates) != 0 {
			t.Errorf("a stale attempt sent %+v", updates)
		}
		if got := h.counter("perago_lease_lost_total"); got != 1 {
			t.Errorf("lease lost counted %v times", got)
		}
		if got := h.counter("perago_fence_rejections_total", "fence=attempt", "reason=task_status"); got != 1 {
			t.Errorf("%v rejections counted", got)
		}
	})
}

func TestLeaseThatCannotBeExtendedIsLost(t *testing.T) {
	for name, row := range map[string]struct {
		fault  func(context.Context, conductorCall) error
		reason txn.StaleReason
	}{
		"extension fails":  {on("ExtendLease", down), txn.StaleLeaseLost},
		"extension hangs":  {on("ExtendLease", hang), txn.StaleLeaseLost},
		"reads fail":       {on("Task", down), txn.StaleUnreadable},
		"refused for good": {on("ExtendLease", notFound), txn.StaleLeaseLost},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				causes, stops := make(chan error, 1), make(chan time.Duration, 1)
				h.conductor.schedule("t", stageType, "")
				h.stage(func(ctx context.Context, _ *Attempt) (map[string]any, error) {
					began := time.Now()
					<-ctx.Done()
					causes <- context.Cause(ctx)
					stops <- time.Since(began)
					return nil, ctx.Err()
				})
				h.conductor.fail(row.fault, nil)
				time.Sleep(3 * time.Minute)
				if cause := <-causes; staleReason(cause) != row.reason {
					t.Errorf("cancelled with %v, want the reason %s", cause, row.reason)
				}
				if stopped := <-stops; stopped > 60*time.Second || stopped < 20*time.Second {
					t.Errorf("the work stopped after %s; the lease is 60s", stopped)
				}
				if updates := h.conductor.updates("t"); len(updates) != 0 {
					t.Errorf("sent %+v", updates)
				}
			})
		})
	}
}

func notFound(context.Context, conductorCall) error {
	return &txn.ServerError{Server: "Conductor", Status: 404, Class: txn.ErrRefused, Kind: txn.ErrNotFound}
}

func TestHeartbeatsThatFailForAWhileLoseNothing(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.schedule("t", stageType, "")
		h.stage(func(ctx context.Context, _ *Attempt) (map[string]any, error) {
			select {
			case <-time.After(5 * time.Minute):
				return nil, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		})
		for range 3 {
			h.conductor.fail(down, nil)
			time.Sleep(30 * time.Second)
			h.conductor.fail(nil, nil)
			time.Sleep(30 * time.Second)
		}
		time.Sleep(4 * time.Minute)
		if result := h.only("t"); result.Status != txn.TaskCompleted {
			t.Errorf("update %+v", result)
		}
	})
}

func TestStaleStaysStale(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.schedule("t", stageType, "")
		h.stage(func(ctx context.Context, a *Attempt) (map[string]any, error) {
			h.conductor.setWorkflow("workflow-of-t", txn.WorkflowTerminated)
			before := a.Current(ctx)
			h.conductor.setWorkflow("workflow-of-t", txn.WorkflowRunning)
			for name, ask := range map[string]func(context.Context) error{"Current": a.Current, "StillOurs": a.StillOurs, "Extend": a.Extend} {
				if err := ask(ctx); before == nil || !errors.Is(err, before) {
					t.Errorf("%s says %v after %v", name, err, before)
				}
			}
			// Not even success of the work makes it report.
			return nil, nil
		})
		time.Sleep(time.Second)
		if updates := h.conductor.updates("t"); len(updates) != 0 {
			t.Errorf("sent %+v", updates)
		}
	})
}
