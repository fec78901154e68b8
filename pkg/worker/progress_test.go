package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/txn"
)

// linesOfTasks is a task log in memory.
type linesOfTasks struct {
	mu    sync.Mutex
	lines []string
	// before may hold a line up or refuse it.
	before func(context.Context) error
}

func (l *linesOfTasks) LogTask(ctx context.Context, task txn.TaskID, line string) error {
	if l.before != nil {
		if err := l.before(ctx); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(task)+": "+line)
	return nil
}

func (l *linesOfTasks) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

func telling(lines *linesOfTasks) func(*Options) {
	return func(o *Options) { o.ProgressInterval, o.TaskLog = 30*time.Second, lines }
}

// uploading moves an object of 100 bytes every second, half a second beside the
// reports.
func uploading(objects int) Handler {
	return func(ctx context.Context, a *Attempt) (map[string]any, error) {
		a.Phase("scan")()
		defer a.Phase("upload")()
		done := a.Expect(objects, int64(objects)*100)
		pause(ctx, time.Second/2)
		for range objects {
			if !pause(ctx, time.Second) {
				return nil, ctx.Err()
			}
			done(1, 100)
		}
		return nil, nil
	}
}

// A task that takes long says how far it is at each interval, to Conductor at the
// first, the second, the fourth and so on.
func TestProgress(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		lines := &linesOfTasks{}
		h.stage(uploading(200), telling(lines))
		h.conductor.schedule("t1", stageType, "")
		time.Sleep(75 * time.Second)
		if n := h.counter("perago_progress_objects_total", "phase=upload", "task=perago_stage"); n != 74 {
			t.Errorf("%v objects are counted while it works, want 74", n)
		}
		time.Sleep(3 * time.Minute)
		h.only("t1")

		var got []string
		for _, record := range h.logged("progress") {
			got = append(got, fmt.Sprint(record["step"], record["phase"], record["objects"], record["objects_total"], record["objects_per_second"],
				record["bytes"], record["bytes_total"], record["bytes_per_second"]))
		}
		want := []string{}
		for n := 30; n < 200; n += 30 {
			want = append(want, fmt.Sprint("step_of_t1", "upload", n-1, 200, 1, (n-1)*100, 20000, 100))
		}
		// The first interval holds the half second.
		want[0] = fmt.Sprint("step_of_t1", "upload", 29, 200, 1, 2900, 20000, 97)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("log lines (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{
			"t1: upload for 30s, 29 of 200 objects, 2.8 KiB of 19.5 KiB, 97 B/s, about 2m57s left",
			"t1: upload for 1m0s, 59 of 200 objects, 5.8 KiB of 19.5 KiB, 100 B/s, about 2m21s left",
			"t1: upload for 2m0s, 119 of 200 objects, 11.6 KiB of 19.5 KiB, 100 B/s, about 1m21s left",
		}, lines.all()); diff != "" {
			t.Errorf("lines at Conductor (-want +got):\n%s", diff)
		}
		for name, want := range map[string]float64{"perago_progress_objects_total": 200, "perago_progress_bytes_total": 20000} {
			if n := h.counter(name, "phase=upload", "task=perago_stage"); n != want {
				t.Errorf("%s is %v, want %v", name, n, want)
			}
		}
	})
}

// What is not known is not said, and nothing at all between two phases.
func TestProgressOfWhatIsNotKnown(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		lines := &linesOfTasks{}
		h.stage(func(ctx context.Context, a *Attempt) (map[string]any, error) {
			a.Phase("validate")()
			done := a.Expect(5, 5) // of no phase
			done(1, 1)
			pause(ctx, 40*time.Second)
			defer a.Phase("scan")()
			pause(ctx, 30*time.Second)
			a.Expect(0, 0)(3, 0)
			pause(ctx, 30*time.Second)
			return nil, nil
		}, telling(lines))
		h.conductor.schedule("t1", stageType, "")
		time.Sleep(2 * time.Minute)
		h.only("t1")
		records := h.logged("progress")
		if len(records) != 2 {
			t.Fatalf("%d lines, want one at 60s and one at 90s: %v", len(records), records)
		}
		for _, record := range records {
			if record["objects_total"] != nil || record["bytes_total"] != nil {
				t.Errorf("a total that nobody knows: %v", record)
			}
		}
		if got := lines.all(); len(got) != 1 || got[0] != "t1: scan for 20s" {
			t.Errorf("lines at Conductor %q, want the one of the second interval", got)
		}
	})
}

// Bytes of a try that is repeated are taken back, and are no rate.
func TestProgressTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.stage(func(ctx context.Context, a *Attempt) (map[string]any, error) {
			defer a.Phase("upload")()
			done := a.Expect(1, 500)
			done(0, 400)
			pause(ctx, 40*time.Second)
			done(0, -400)
			pause(ctx, 30*time.Second)
			return nil, nil
		}, telling(&linesOfTasks{}))
		h.conductor.schedule("t1", stageType, "")
		time.Sleep(2 * time.Minute)
		h.only("t1")
		records := h.logged("progress")
		if len(records) != 2 || records[0]["bytes"] != 400.0 || records[1]["bytes"] != 0.0 || records[1]["bytes_per_second"] != 0.0 {
			t.Errorf("%v", records)
		}
	})
}

// A task log that fails, hangs or cannot be asked for the task costs the line and
// nothing else: the task ends when it would have.
func TestProgressCostsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		lines     func(context.Context) error
		conductor func(context.Context, conductorCall) error
	}{
		"refused": {lines: func(context.Context) error { return errors.New("no") }},
		"hangs":   {lines: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		// The 30th second is no heartbeat's.
		"unreadable": {conductor: on("Task", func(ctx context.Context, call conductorCall) error {
			if call.Number == 2 {
				return hang(ctx, call)
			}
			return nil
		})},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				lines := &linesOfTasks{before: c.lines}
				h.stage(uploading(31), telling(lines))
				h.conductor.fail(c.conductor, nil)
				h.conductor.schedule("t1", stageType, "")
				began := time.Now()
				time.Sleep(10 * time.Minute)
				if result := h.only("t1"); result.Status != txn.TaskCompleted {
					t.Errorf("%+v", result)
				}
				if took := h.conductor.made("Update")[0].At.Sub(began); took > 32*time.Second {
					t.Errorf("it took %s, want 31.6s", took)
				}
				if got := lines.all(); len(got) != 0 {
					t.Errorf("lines at Conductor %q", got)
				}
				if len(h.logged("progress")) != 1 {
					t.Errorf("%v", h.logged("progress"))
				}
			})
		})
	}
}

// A stale attempt writes nothing to Conductor, a line for its log neither.
func TestStaleAttemptLogsNothingAtConductor(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		lines := &linesOfTasks{}
		h.stage(uploading(40), telling(lines), func(o *Options) { o.Concurrency = 1 })
		h.conductor.schedule("t1", stageType, "")
		time.Sleep(25 * time.Second)
		// Behind the heartbeat at 20 s: nothing else looks before the line is due.
		h.conductor.edit("t1", func(task *txn.Task) { task.PollCount++ })
		time.Sleep(time.Minute)
		if got := lines.all(); len(got) != 0 {
			t.Errorf("lines at Conductor %q", got)
		}
		if len(h.conductor.updates("t1")) != 0 {
			t.Errorf("%+v", h.conductor.updates("t1"))
		}
	})
}

// Who asks for no progress gets none.
func TestNoProgress(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		lines := &linesOfTasks{}
		h.stage(uploading(100), func(o *Options) { o.TaskLog = lines })
		h.conductor.schedule("t1", stageType, "")
		time.Sleep(2 * time.Minute)
		h.only("t1")
		if got := h.logged("progress"); len(got) != 0 || len(lines.all()) != 0 {
			t.Errorf("%v, %q", got, lines.all())
		}
	})
}
