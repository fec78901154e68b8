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
