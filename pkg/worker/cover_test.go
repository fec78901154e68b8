package worker

import (
	"context"
	"strings"
	"testing"
	"time"

	"perago/pkg/txn"
)

// Nothing is begun that the lease cannot cover: it is extended where that helps,
// and where it does not the attempt is stale.
func TestCover(t *testing.T) {
	for name, row := range map[string]struct {
		definition txn.TaskDefinition
		need       time.Duration
		change     func(*harness)
		extended   bool
		reason     txn.StaleReason
		text       string
	}{
		"enough is left": {definition: stageDefinition(), need: 55 * time.Second},
		"an extension is enough": {
			definition: stageDefinition(), need: 56 * time.Second, extended: true,
		},
		"more than a whole lease": {
			definition: stageDefinition(), need: 61 * time.Second, extended: true,
			reason: txn.StaleLeaseLost, text: "1m0s are left and 1m1s are needed",
		},
		"the total timeout is nearer": {
			definition: txn.TaskDefinition{Name: stageType, ResponseTimeoutSeconds: 60, TimeoutSeconds: 62}, need: 58 * time.Second, extended: true,
			reason: txn.StaleLeaseLost, text: "57s are left and 58s are needed",
		},
		"another worker has the task": {
			definition: stageDefinition(), need: 56 * time.Second, reason: txn.StaleWorker,
			change: func(h *harness) { h.conductor.edit("t", func(task *txn.Task) { task.Worker = "another" }) },
		},
		"Conductor is down": {
			definition: stageDefinition(), need: 56 * time.Second, reason: txn.StaleLeaseLost,
			change: func(h *harness) { h.conductor.fail(on("ExtendLease", down), nil) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				h.conductor.register(row.definition)
				h.conductor.schedule("t", stageType, "")
				h.stage(func(ctx context.Context, a *Attempt) (map[string]any, error) {
					time.Sleep(5 * time.Second) // 55 s of a lease of 60 s are left
					if row.change != nil {
						row.change(h)
					}
					err := a.Cover(ctx, row.need)
					if got := staleReason(err); got != row.reason || err != nil && !strings.Contains(err.Error(), row.text) {
						t.Errorf("got %v, want the reason %q and %q", err, row.reason, row.text)
					}
					if row.change == nil && (len(h.conductor.made("ExtendLease")) > 0) != row.extended {
						t.Errorf("%d extensions", len(h.conductor.made("ExtendLease")))
					}
					return nil, err
				})
				time.Sleep(3 * time.Minute)
				if updates := h.conductor.updates("t"); row.reason != "" && len(updates) != 0 {
					t.Errorf("an attempt that may not begin sent %+v", updates)
				}
			})
		})
	}
}

// The fence waits for a Conductor that is away, and the lease runs on meanwhile. What
// counts is what is left of it when the fence has passed.
func TestCover_LooksAtTheLeaseAgainAfterTheFence(t *testing.T) {
	for name, away := range map[string]time.Duration{"not at all": 0, "a moment": 5 * time.Second, "most of the lease": 85 * time.Second, "nearly all of the lease": 105 * time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				// A heartbeat would hide it: there is none before the lease is nearly over.
				h.conductor.register(publishDefinition(110, 120))
				h.conductor.schedule("t", publishType, "")
				const need = 40 * time.Second
				h.start(map[txn.TaskType]Handler{publishType: func(ctx context.Context, a *Attempt) (map[string]any, error) {
					h.conductor.fail(down, nil)
					time.AfterFunc(away, func() { h.conductor.fail(nil, nil) })
					if err := a.Cover(ctx, need); err != nil {
						t.Error(err)
					}
					if left := a.LeaseLeft(); left < need {
						t.Errorf("the work begins with %s of the lease, and needs %s", left, need)
					}
					fences, beats := h.conductor.made("WorkflowStatus"), h.conductor.made("ExtendLease")
					if len(fences) == 0 || len(beats) > 0 && fences[len(fences)-1].At.Before(beats[len(beats)-1].At) {
						t.Errorf("the fence was not asked last: fences %v, extensions %v", fences, beats)
					}
					return nil, nil
				}})
				time.Sleep(3 * time.Minute)
				h.only("t")
			})
		})
	}
}

// While an extension waits for another try the task is handed out again. The next try
// would renew the lease of somebody else.
func TestExtend_ReadsTheTaskBeforeEachTry(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.schedule("t", stageType, "")
		h.stage(func(ctx context.Context, a *Attempt) (map[string]any, error) {
			h.conductor.fail(on("ExtendLease", down), nil)
			var before int
			time.AfterFunc(10*time.Second, func() {
				before = len(h.conductor.made("ExtendLease"))
				h.conductor.edit("t", func(task *txn.Task) { task.PollCount++ })
			})
			err := a.Extend(ctx)
			if staleReason(err) != txn.StalePollCount {
				t.Errorf("got %v", err)
			}
			if sent := len(h.conductor.made("ExtendLease")); before == 0 || sent != before {
				t.Errorf("%d extensions, %d of them before the task was handed out again", sent, before)
			}
			return nil, err
		})
		time.Sleep(3 * time.Minute)
	})
}

// Deadlines are this process's: a server whose clock is an hour off neither ends
// a lease nor prolongs it.
func TestTheServersClockBoundsNothing(t *testing.T) {
	for name, off := range map[string]time.Duration{"an hour ahead": time.Hour, "an hour behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				h.conductor.register(txn.TaskDefinition{Name: stageType, ResponseTimeoutSeconds: 60, TimeoutSeconds: 600})
				h.conductor.schedule("t", stageType, "")
				h.conductor.edit("t", func(task *txn.Task) { task.StartTime = time.Now().Add(off).UnixMilli() })
				h.stage(func(ctx context.Context, a *Attempt) (map[string]any, error) {
					if left := a.LeaseLeft(); left != time.Minute {
						t.Errorf("%s of a lease of 60s are left at its beginning", left)
					}
					time.Sleep(90 * time.Second) // four heartbeats
					if err := a.Current(ctx); err != nil {
						t.Error(err)
					}
					if left := a.LeaseLeft(); left != 50*time.Second {
						t.Errorf("%s are left 10s after the fourth heartbeat", left)
					}
					return nil, context.Cause(ctx)
				})
				time.Sleep(2 * time.Minute)
				if result := h.only("t"); result.Status != txn.TaskCompleted {
					t.Errorf("update %+v", result)
				}
			})
		})
	}
}
