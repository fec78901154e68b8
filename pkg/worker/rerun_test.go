package worker

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"perago/pkg/txn"
)

// Newer Conductors count the polls of a task that is rerun from zero again. Polled
// by the worker that had it, only its start time is another: it is the newer attempt
// all the same, and what the older one comes to is not reported.
func TestRerunThatCountsPollsAnew(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		var runs atomic.Int32
		polls := make(chan int, 2)
		h.conductor.schedule("t", stageType, "")
		h.stage(func(ctx context.Context, a *Attempt) (map[string]any, error) {
			polls <- a.Task.PollCount
			if runs.Add(1) == 1 {
				<-ctx.Done()
				return map[string]any{"by": "older"}, nil
			}
			return map[string]any{"by": "newer"}, nil
		})
		time.Sleep(time.Second)
		h.conductor.edit("t", func(task *txn.Task) { task.PollCount = 0 })
		h.conductor.rerun("t")
		time.Sleep(10 * time.Second)
		if len(polls) != 2 {
			t.Fatalf("%d attempts ran, want both", len(polls))
		}
		if first, second := <-polls, <-polls; first != 1 || second != 1 {
			t.Errorf("poll counts %d and %d, want 1 and 1", first, second)
		}
		if result := h.only("t"); result.Status != txn.TaskCompleted || result.Output["by"] != "newer" {
			t.Errorf("update %+v, want the newer attempt's completion", result)
		}
	})
}
