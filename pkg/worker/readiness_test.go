package worker

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"perago/pkg/telemetry"
	"perago/pkg/txn"
)

const unregistered = "TaskDef perago_stage is not registered in Conductor at http://conductor.example:8080: run `perago register`"

func TestTaskDefThatIsNotRegistered(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.schedule("t", stageType, "")
		h.conductor.mu.Lock()
		delete(h.conductor.definitions, stageType)
		h.conductor.mu.Unlock()
		h.stage(done)
		time.Sleep(25 * time.Second)

		if got := h.condition("TaskDef perago_stage"); got.OK || got.Sentence != unregistered {
			t.Errorf("condition %+v", got)
		}
		if polls := len(h.conductor.made("Poll")); polls != 0 {
			t.Errorf("%d polls of a type whose TaskDef is missing", polls)
		}
		if looks := len(h.conductor.made("TaskDefinition")); looks != 3 {
			t.Errorf("looked %d times in 25s, want every 10s", looks)
		}
		if said := len(h.logged("not ready")); said != 1 {
			t.Errorf("said %d times, want once:\n%s", said, h.logs)
		}
		status, body := readyz(h)
		if status != http.StatusServiceUnavailable || !strings.Contains(body, unregistered) {
			t.Errorf("/readyz is %d: %s", status, body)
		}

		h.conductor.register(stageDefinition())
		time.Sleep(6 * time.Second)
		if got := h.conductor.status("t"); got != txn.TaskCompleted {
			t.Errorf("within 10s after it was registered the task is %s", got)
		}
		if status, body := readyz(h); status != http.StatusOK {
			t.Errorf("/readyz is %d: %s", status, body)
		}
	})
}

func readyz(h *harness) (int, string) {
	recorder := httptest.NewRecorder()
	telemetry.NewHealthHandler(h.metrics.Registry(), h.Conditions).
		ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	return recorder.Code, recorder.Body.String()
}

func TestUnsoundTaskDefIsNotPolled(t *testing.T) {
	tight := publishDefinition(1, 8)
	none := publishDefinition(1, 60)
	none.InputTemplate = nil
	for name, row := range map[string]struct {
		definition txn.TaskDefinition
		sentence   string
	}{
		"no lease":  {txn.TaskDefinition{Name: stageType}, "TaskDef perago_stage: responseTimeoutSeconds is 0; a dead worker's task would never be given to another, set it to 60"},
		"no budget": {none, "TaskDef perago_publish has no inputTemplate.budget; register the shipped one and tune its numbers"},
		"budget":    {tight, "TaskDef perago_publish: responseTimeoutSeconds is 8, less than merge timeout + completion + shutdown grace + heartbeat = 9s; raise it to at least 9s"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				h.conductor.register(row.definition)
				h.start(map[txn.TaskType]Handler{row.definition.Name: done})
				time.Sleep(time.Minute)
				if got := h.condition("TaskDef " + string(row.definition.Name)); got.OK || got.Sentence != row.sentence {
					t.Errorf("condition %+v", got)
				}
				if polls := len(h.conductor.made("Poll")); polls != 0 {
					t.Errorf("%d polls", polls)
				}
			})
		})
	}
}

func TestTaskDefThatBecomesUnsoundStopsThePolls(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.stage(done)
		time.Sleep(5 * time.Second)
		h.conductor.register(txn.TaskDefinition{Name: stageType})
		time.Sleep(lookAgainHolding)
		before := len(h.conductor.made("Poll"))
		time.Sleep(time.Minute)
		if polls := len(h.conductor.made("Poll")) - before; polls != 0 || h.ready() {
			t.Errorf("%d polls, ready %v", polls, h.ready())
		}
	})
}

func TestOneMissingTypeDoesNotStopTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.schedule("t", stageType, "")
		h.start(map[txn.TaskType]Handler{stageType: done, "perago_stage_large": done})
		time.Sleep(time.Second)
		if got := h.conductor.status("t"); got != txn.TaskCompleted {
			t.Errorf("the task of the sound type is %s", got)
		}
		for _, call := range h.conductor.made("Poll") {
			if call.Poll.Type != stageType {
				t.Errorf("polled %s", call.Poll.Type)
			}
		}
		if h.ready() {
			t.Error("ready although a type is not registered")
		}
	})
}

func TestFailingCheckPausesThePolls(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		broken := make(chan error, 1)
		broken <- errors.New("lakeFS at http://lake.example answered 401 with " + secret)
		check := Check{Name: "lakeFS", Run: func(context.Context) error {
			select {
			case err := <-broken:
				broken <- err
				return err
			default:
				return nil
			}
		}}
		h.conductor.schedule("t", stageType, "")
		h.stage(done, func(o *Options) { o.Checks = []Check{check} })
		time.Sleep(time.Minute)
		if got := h.condition("lakeFS"); got.OK || got.Sentence != "lakeFS at http://lake.example answered 401 with [redacted]" {
			t.Errorf("condition %+v", got)
		}
		if got := h.conductor.status("t"); got != txn.TaskScheduled {
			t.Errorf("a worker that cannot do its work took a task: %s", got)
		}
		<-broken
		time.Sleep(lookAgainFailing + time.Second)
		if got := h.conductor.status("t"); got != txn.TaskCompleted || !h.ready() {
			t.Errorf("after the check holds the task is %s, ready %v", got, h.ready())
		}
	})
}

func TestHangingCheckFails(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.stage(done, func(o *Options) {
			o.Checks = []Check{{Name: "lakeFS", Run: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}}
		})
		if got := h.condition("lakeFS"); got.OK || got.Sentence != "not looked at yet" {
			t.Errorf("condition %+v", got)
		}
		time.Sleep(lookTimeout + time.Second)
		if got := h.condition("lakeFS"); got.OK || got.Sentence != "context deadline exceeded" {
			t.Errorf("condition %+v", got)
		}
	})
}

func TestConductorThatGoesDown(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.stage(done)
		time.Sleep(time.Minute)
		if !h.ready() {
			t.Fatalf("not ready: %+v", h.Conditions())
		}
		h.conductor.fail(down, nil)
		time.Sleep(pollRecent + time.Second)
		got := h.condition("poll of perago_stage")
		if got.OK || !strings.Contains(got.Sentence, "ago: Conductor gave no answer to GET /api: connection refused") {
			t.Errorf("condition %+v", got)
		}
		time.Sleep(lookAgainHolding)
		if got := h.condition("Conductor answers"); got.OK || got.Sentence != "Conductor at http://conductor.example:8080: Conductor gave no answer to GET /api: connection refused" {
			t.Errorf("condition %+v", got)
		}
		if got := h.condition("TaskDef perago_stage"); got.OK || !strings.HasPrefix(got.Sentence, "TaskDef perago_stage could not be read from Conductor at ") {
			t.Errorf("condition %+v", got)
		}
		// The TaskDef was sound: the polls go on asking and find the server again.
		h.conductor.fail(nil, nil)
		h.conductor.schedule("t", stageType, "")
		time.Sleep(11 * time.Second)
		if got := h.conductor.status("t"); got != txn.TaskCompleted || !h.ready() {
			t.Errorf("11s after it came back the task is %s: %+v", got, h.Conditions())
		}
	})
}

func TestConductorThatIsDownAtTheStart(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.fail(down, nil)
		h.conductor.schedule("t", stageType, "")
		h.stage(done)
		time.Sleep(time.Minute)
		if h.ready() {
			t.Error("ready")
		}
		h.conductor.fail(nil, nil)
		time.Sleep(lookAgainFailing + time.Second)
		if got := h.conductor.status("t"); got != txn.TaskCompleted || !h.ready() {
			t.Errorf("after it came up the task is %s: %+v", got, h.Conditions())
		}
	})
}

func TestBusyWorkerIsReady(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.schedule("t", stageType, "")
		h.stage(func(context.Context, *Attempt) (map[string]any, error) {
			time.Sleep(10 * time.Minute)
			return nil, nil
		}, func(o *Options) { o.Concurrency = 1 })
		time.Sleep(9 * time.Minute)
		if !h.ready() {
			t.Errorf("a worker whose slots are at work is not ready: %+v", h.Conditions())
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestStoppingWorkerIsNotReady(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.schedule("t", stageType, "")
		h.stage(untilCancelled)
		time.Sleep(time.Second)
		if !h.ready() {
			t.Fatalf("not ready: %+v", h.Conditions())
		}
		h.stop()
		synctest.Wait()
		status, body := readyz(h)
		var answer struct {
			Ready      bool
			Conditions []telemetry.Condition
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatal(err)
		}
		if status != http.StatusServiceUnavailable || answer.Ready || answer.Conditions[0].Sentence != "the worker is stopping: it takes no more tasks" {
			t.Errorf("/readyz is %d: %s", status, body)
		}
		if err := h.result(time.Minute); err != nil {
			t.Error(err)
		}
	})
}
