package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"perago/pkg/telemetry"
	"perago/pkg/txn"
)

func TestHowATaskEnds(t *testing.T) {
	for name, row := range map[string]struct {
		err     error
		status  txn.TaskStatus
		reason  string
		outcome string
	}{
		"done":     {nil, txn.TaskCompleted, "", "completed"},
		"failed":   {errors.New("upload w/a: no space"), txn.TaskFailed, "upload w/a: no space", "failed"},
		"terminal": {txn.Terminalf("workspace.ref", "is a branch name"), txn.TaskFailedWithTerminalError, "workspace.ref: is a branch name", "terminal"},
		"wrapped":  {fmt.Errorf("stage: %w", txn.Terminalf("prefix", "is unsafe")), txn.TaskFailedWithTerminalError, "stage: prefix: is unsafe", "terminal"},
		"lines":    {errors.New("one\n\ttwo\x00\xff"), txn.TaskFailed, "one two \uFFFD", "failed"},
		"stale":    {&txn.StaleAttemptError{Reason: txn.StaleWorkflowStatus}, "", "", "stale"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				h.conductor.schedule("t", stageType, "")
				h.stage(func(context.Context, *Attempt) (map[string]any, error) {
					return map[string]any{"evidence": 1}, row.err
				})
				time.Sleep(time.Minute)
				if got := h.counter("perago_task_outcomes_total", "outcome="+row.outcome, "task=perago_stage"); got != 1 {
					t.Errorf("outcome %s counted %v times", row.outcome, got)
				}
				if row.status == "" {
					if updates := h.conductor.updates("t"); len(updates) != 0 {
						t.Errorf("a stale attempt sent %+v", updates)
					}
					if got := h.counter("perago_fence_rejections_total", "fence=attempt", "reason=workflow_status"); got != 1 {
						t.Errorf("%v rejections counted", got)
					}
					if len(h.logged("stale attempt: nothing is reported")) != 1 {
						t.Errorf("no line about the stale attempt:\n%s", h.logs)
					}
					return
				}
				result := h.only("t")
				if result.Status != row.status || result.Reason != row.reason || result.Worker != theWorker {
					t.Errorf("update %+v, want %s %q", result, row.status, row.reason)
				}
				if fmt.Sprint(result.Output["evidence"]) != "1" {
					t.Errorf("output %v lost its evidence", result.Output)
				}
			})
		})
	}
}

func TestPanicIsFailedAndTheStackStaysHere(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.schedule("t", stageType, "")
		h.stage(func(context.Context, *Attempt) (map[string]any, error) {
			panic("index out of range")
		})
		time.Sleep(time.Second)
		result := h.only("t")
		if result.Status != txn.TaskFailed || result.Reason != "the worker panicked: index out of range; its log has the stack" {
			t.Errorf("update %+v", result)
		}
		records := h.logged("handler panicked")
		if len(records) != 1 || !strings.Contains(fmt.Sprint(records[0]["stack"]), "execute_test.go") {
			t.Errorf("the log has no stack: %v", records)
		}
		// The process goes on.
		h.conductor.schedule("next", stageType, "")
		time.Sleep(time.Second)
		h.only("next")
	})
}

func TestReasonIsCutAfterRedaction(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.schedule("t", stageType, "")
		const limit = 60
		h.stage(func(context.Context, *Attempt) (map[string]any, error) {
			// The limit falls into the secret.
			return nil, errors.New(strings.Repeat("я", limit-5) + secret + " said the server")
		}, func(o *Options) { o.ReasonLength = limit })
		time.Sleep(time.Second)
		reason := h.only("t").Reason
		if !utf8.ValidString(reason) || utf8.RuneCountInString(reason) > limit {
			t.Errorf("reason of %d characters: %q", utf8.RuneCountInString(reason), reason)
		}
		if strings.Contains(reason, secret[:4]) || !strings.Contains(reason, "[red") {
			t.Errorf("reason %q", reason)
		}
	})
}

// A hook's message is longer than a reason. The task's output has all of it.
func TestFailure_OutputsTheWholeMessageOfAHook(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.schedule("t", stageType, "")
		said := strings.Repeat("a line\n", 1000)
		h.stage(func(context.Context, *Attempt) (map[string]any, error) {
			return nil, fmt.Errorf("commit: %w", &txn.ServerError{Server: "lakeFS", Status: 412, Class: txn.ErrRefused, Kind: txn.ErrHookRefused, Message: said, Said: said + secret})
		})
		time.Sleep(time.Second)
		result := h.only("t")
		if result.Status != txn.TaskFailed || result.Output["hook_message"] != said+"[redacted]" || !strings.HasPrefix(result.Reason, "commit: a line a line") {
			t.Errorf("update %.300v", result)
		}
	})
}

func TestSecretsStayInside(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.schedule("t", stageType, "")
		h.stage(func(_ context.Context, a *Attempt) (map[string]any, error) {
			a.Log().Warn("header was "+secret, "error", errors.New("token "+secret))
			output := map[string]any{
				"bytes": int64(9007199254740993),
			}
			return output, fmt.Errorf("GET http://user:%s@host", secret)
		})
		time.Sleep(time.Second)
		result := h.only("t")
		raw, err := json.Marshal(result)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), secret) {
			t.Errorf("the update holds the secret: %s", raw)
		}
		if !strings.Contains(string(raw), "http://user:[redacted]@host") || !strings.Contains(string(raw), "9007199254740993") {
			t.Errorf("the rest of the update is damaged: %s", raw)
		}
		if strings.Contains(h.logs.String(), secret) || !strings.Contains(h.logs.String(), "token [redacted]") {
			t.Errorf("the log:\n%s", h.logs)
		}
	})
}

// A tenant's name is a header's value, so the process takes it for a secret. The next
// task reads the output: whatever stands in it stays as the use case wrote it.
func TestOutput_IsNeverRedacted(t *testing.T) {
	for name, failure := range map[string]error{"completed": nil, "failed": errors.New("the server said main")} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				h.conductor.schedule("t", stageType, "")
				h.stage(func(context.Context, *Attempt) (map[string]any, error) {
					return map[string]any{
						"workspace": txn.Workspace{Repository: "main-repo", Branch: "main", RefType: txn.RefTypeCommit, Ref: "ab1234cd"},
						"main":      []string{"main", "domain/main.csv"},
					}, failure
				}, func(o *Options) { o.Redactor = telemetry.NewRedactor("main", "1234") })
				time.Sleep(time.Second)
				result := h.only("t")
				delete(result.Output, "timings")
				raw, err := json.Marshal(result.Output)
				if err != nil {
					t.Fatal(err)
				}
				if want := `{"main":["main","domain/main.csv"],"workspace":{"repository":"main-repo","branch":"main","ref_type":"commit","ref":"ab1234cd"}}`; !sameJSON(t, string(raw), want) {
					t.Errorf("the output is\n%s, want\n%s", raw, want)
				}
				if failure != nil && result.Reason != "the server said [redacted]" {
					t.Errorf("the reason is %q", result.Reason)
				}
			})
		})
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var one, other any
	if err := errors.Join(json.Unmarshal([]byte(a), &one), json.Unmarshal([]byte(b), &other)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(one, other)
}

func TestTimingsOnSuccessAndFailure(t *testing.T) {
	for name, broken := range map[string]error{"success": nil, "failure": errors.New("broken")} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				h.conductor.schedule("t", stageType, "")
				h.stage(func(_ context.Context, a *Attempt) (map[string]any, error) {
					for range 2 {
						end := a.Phase("scan")
						time.Sleep(1500*time.Millisecond + 250*time.Microsecond)
						end()
					}
					end := a.Phase("upload")
					time.Sleep(2 * time.Second)
					end()
					return nil, broken
				})
				time.Sleep(time.Minute)
				result := h.only("t")
				if (broken == nil) != (result.Status == txn.TaskCompleted) {
					t.Errorf("status %s", result.Status)
				}
				timings, _ := result.Output["timings"].(map[string]any)
				want := map[string]any{"scan": 3000.5, "upload": 2000.0, "total": 5000.5}
				if fmt.Sprint(timings) != fmt.Sprint(want) {
					t.Errorf("timings %v, want %v milliseconds", timings, want)
				}
				if got := h.counter("perago_phase_duration_seconds", "phase=scan", "task=perago_stage"); got != 2 {
					t.Errorf("%v observations of the phase", got)
				}
			})
		})
	}
}

func TestOutputThatIsNoJSONFails(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.schedule("t", stageType, "")
		h.stage(func(context.Context, *Attempt) (map[string]any, error) {
			return map[string]any{"channel": make(chan int)}, nil
		})
		time.Sleep(time.Second)
		result := h.only("t")
		if result.Status != txn.TaskFailed || !strings.HasPrefix(result.Reason, "the output of the task is not JSON: ") {
			t.Errorf("update %+v", result)
		}
	})
}

func TestPolledTaskWithUnsoundLimitsIsTerminal(t *testing.T) {
	publish := publishDefinition(1, 60)
	publish.ResponseTimeoutSeconds = 8
	for name, row := range map[string]struct {
		definition *txn.TaskDefinition
		reason     string
	}{
		"none":          {nil, "Conductor handed out the task without its TaskDef, so its time limits are unknown"},
		"no lease":      {&txn.TaskDefinition{Name: stageType}, "TaskDef perago_stage: responseTimeoutSeconds is 0; a dead worker's task would never be given to another, set it to 60"},
		"total too low": {&txn.TaskDefinition{Name: stageType, ResponseTimeoutSeconds: 60, TimeoutSeconds: 60}, "TaskDef perago_stage: responseTimeoutSeconds is 60, not below timeoutSeconds 60; lower it or set timeoutSeconds to 0"},
		"budget":        {&publish, "TaskDef perago_publish: responseTimeoutSeconds is 8, less than merge timeout + completion + shutdown grace + heartbeat = 9s; raise it to at least 9s"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				// What is registered now is sound; the workflow keeps what it started
				// with.
				h.conductor.schedule("t", stageType, "")
				h.conductor.edit("t", func(task *txn.Task) { task.Definition = row.definition })
				h.stage(func(context.Context, *Attempt) (map[string]any, error) {
					t.Error("the handler ran")
					return nil, nil
				})
				time.Sleep(time.Second)
				if result := h.only("t"); result.Status != txn.TaskFailedWithTerminalError || result.Reason != row.reason {
					t.Errorf("update %+v, want the reason %q", result, row.reason)
				}
			})
		})
	}
}
