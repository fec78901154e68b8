package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"perago/pkg/txn"
)

// publication is what a publish task returns when it landed.
func publication(context.Context, *Attempt) (map[string]any, error) {
	return map[string]any{"publication": struct {
		Commit  txn.CommitID `json:"commit"`
		Outcome string       `json:"outcome"`
	}{landed, "published"}}, nil
}

const landed txn.CommitID = "5f0d2c9b6ee4e1d9a1e9f8f1f9a8d7c6b5a4938271605f4e3d2c1b0a99887766"

func TestUpdateIsTriedUntilItGetsThrough(t *testing.T) {
	for name, fault := range map[string]func(h *harness){
		"refused connections":  func(h *harness) { h.conductor.fail(on("Update", first(3, down)), nil) },
		"lost requests":        func(h *harness) { h.conductor.fail(on("Update", first(3, lost)), nil) },
		"hanging requests":     func(h *harness) { h.conductor.fail(on("Update", first(3, hang)), nil) },
		"unreadable fence":     func(h *harness) { h.conductor.fail(on("Task", first(3, down)), nil) },
		"expired credentials":  func(h *harness) { h.conductor.fail(on("Update", first(3, unauthorized)), nil) },
		"unreadable read-back": func(h *harness) { h.conductor.fail(on("Task", second(down)), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				fault(h)
				h.conductor.schedule("t", stageType, "")
				h.stage(done)
				time.Sleep(time.Minute)
				if got := h.conductor.status("t"); got != txn.TaskCompleted {
					t.Errorf("the task is %s\n%s", got, h.logs)
				}
				if got := h.counter("perago_task_outcomes_total", "outcome=completed", "task=perago_stage"); got != 1 {
					t.Errorf("completed counted %v times\n%s", got, h.logs)
				}
				failed := len(h.conductor.made("Update")) - 1
				if got := h.counter("task_update_error_total", "taskType=perago_stage"); got != float64(failed) {
					t.Errorf("%v failed updates counted, want %d", got, failed)
				}
			})
		})
	}
}

func TestUpdateWhoseAnswerGotLostIsNotRepeated(t *testing.T) {
	for name, handler := range map[string]Handler{
		"completed": done,
		"failed":    func(context.Context, *Attempt) (map[string]any, error) { return nil, errors.New("broken") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				h.conductor.schedule("t", stageType, "")
				h.conductor.fail(nil, on("Update", lost))
				h.stage(handler)
				time.Sleep(time.Minute)
				h.only("t")
				if got := h.counter("perago_task_outcomes_total", "outcome="+name, "task=perago_stage"); got != 1 {
					t.Errorf("%s counted %v times\n%s", name, got, h.logs)
				}
			})
		})
	}
}

// A completion that Conductor did not take, in all the ways it can happen.
func TestCompletionThatConductorDoesNotTake(t *testing.T) {
	for name, fault := range map[string]struct {
		fault    func(h *harness)
		delivery string
	}{
		"timed out between fence and update, answered 200": {func(h *harness) {
			h.conductor.fail(on("Update", func(context.Context, conductorCall) error {
				h.conductor.edit("t", func(task *txn.Task) { task.Status = txn.TaskTimedOut })
				return nil
			}), nil)
		}, "ignored"},
		"a zombie's completion came first": {func(h *harness) {
			h.conductor.fail(on("Update", func(context.Context, conductorCall) error {
				h.conductor.edit("t", func(task *txn.Task) { task.Status, task.Worker = txn.TaskCompleted, "zombie" })
				return nil
			}), nil)
		}, "ignored"},
		"rerun and polled by another": {func(h *harness) {
			h.conductor.fail(nil, on("Update", func(context.Context, conductorCall) error {
				h.conductor.rerun("t")
				_, err := h.conductor.memoryPoll("another")
				return err
			}))
		}, "ignored"},
		"removed": {func(h *harness) {
			h.conductor.fail(on("Update", func(context.Context, conductorCall) error {
				h.conductor.remove("t")
				return nil
			}), nil)
		}, "refused"},
		"refused": {func(h *harness) {
			h.conductor.fail(on("Update", func(context.Context, conductorCall) error {
				return &txn.ServerError{Server: "Conductor", Status: 400, Class: txn.ErrRefused, Message: "output too large"}
			}), nil)
		}, "refused"},
		"never answered": {func(h *harness) { h.conductor.fail(on("Update", lost), nil) }, "given up"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				h.conductor.register(publishDefinition(10, 60))
				h.conductor.schedule("t", publishType, "")
				fault.fault(h)
				h.start(map[txn.TaskType]Handler{publishType: publication})
				time.Sleep(5 * time.Minute)

				records := h.logged("publication abandoned: it landed, but its task is not completed")
				if len(records) != 1 || records[0]["commit"] != string(landed) || records[0]["task_id"] != "t" {
					t.Errorf("records of the abandoned publication: %v\n%s", records, h.logs)
				}
				if got := h.counter("perago_abandoned_total"); got != 1 {
					t.Errorf("abandoned counted %v times", got)
				}
				if got := h.counter("perago_task_outcomes_total", "outcome=unreported", "task=perago_publish"); got != 1 {
					t.Errorf("unreported counted %v times", got)
				}
				if got := h.logged("Conductor did not accept the task's end"); len(got) != 1 || got[0]["delivery"] != fault.delivery {
					t.Errorf("want delivery %q: %v", fault.delivery, got)
				}
				if got := h.counter("perago_task_outcomes_total", "outcome=completed", "task=perago_publish"); got != 0 {
					t.Error("a completion that was not accepted is counted as completed")
				}
				if fault.delivery == "given up" {
					// The lease began with the poll, and the budget's completion time
					// comes on top.
					updates, polled := h.conductor.made("Update"), h.conductor.made("Poll")[0].At
					if last := updates[len(updates)-1].At.Sub(polled); last > 65*time.Second || last < 50*time.Second {
						t.Errorf("the last try came %s after the poll, want shortly before 65s", last)
					}
				} else if updates := h.conductor.made("Update"); len(updates) != 1 {
					t.Errorf("%d updates", len(updates))
				}
			})
		})
	}
}

// A server that archives a workflow as it ends has no task to read back.
func TestCompletionThatEndsAndArchivesTheWorkflow(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.register(publishDefinition(10, 60))
		h.conductor.schedule("t", publishType, "")
		h.conductor.fail(nil, on("Update", func(context.Context, conductorCall) error {
			h.conductor.remove("t")
			return nil
		}))
		h.start(map[txn.TaskType]Handler{publishType: publication})
		time.Sleep(time.Minute)
		if got := h.counter("perago_abandoned_total"); got != 0 {
			t.Errorf("abandoned counted %v times", got)
		}
		if got := h.counter("perago_task_outcomes_total", "outcome=completed", "task=perago_publish"); got != 1 {
			t.Errorf("completed counted %v times\n%s", got, h.logs)
		}
	})
}

// Gone after an answer that got lost is another matter: nobody said that the
// completion arrived.
func TestCompletionThatIsLostWithItsTask(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.conductor.register(publishDefinition(10, 60))
		h.conductor.schedule("t", publishType, "")
		h.conductor.fail(nil, on("Update", func(ctx context.Context, call conductorCall) error {
			h.conductor.remove("t")
			return lost(ctx, call)
		}))
		h.start(map[txn.TaskType]Handler{publishType: publication})
		time.Sleep(time.Minute)
		if got := h.counter("perago_abandoned_total"); got != 1 {
			t.Errorf("abandoned counted %v times\n%s", got, h.logs)
		}
	})
}

func TestOnlyALandedPublicationIsAbandoned(t *testing.T) {
	for name, output := range map[string]map[string]any{
		"stage":     {"staged": map[string]any{"commit": landed}},
		"no-op":     {"publication": map[string]any{"commit": landed, "outcome": "no_op"}},
		"read-only": {"publication": map[string]any{"commit": landed, "outcome": "read_only"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				h.conductor.schedule("t", stageType, "")
				h.conductor.fail(on("Update", func(context.Context, conductorCall) error {
					h.conductor.edit("t", func(task *txn.Task) { task.Status = txn.TaskTimedOut })
					return nil
				}), nil)
				h.stage(func(context.Context, *Attempt) (map[string]any, error) { return output, nil })
				time.Sleep(time.Minute)
				if got := h.counter("perago_abandoned_total"); got != 0 {
					t.Errorf("abandoned counted %v times", got)
				}
				if got := h.counter("perago_task_outcomes_total", "outcome=unreported", "task=perago_stage"); got != 1 {
					t.Errorf("unreported counted %v times", got)
				}
			})
		})
	}
}

func TestNothingIsSentForAnAttemptThatIsStaleByThen(t *testing.T) {
	for name, change := range map[string]func(h *harness){
		"canceled": func(h *harness) {
			h.conductor.edit("t", func(task *txn.Task) { task.Status = txn.TaskCanceled })
		},
		"gone": func(h *harness) { h.conductor.remove("t") },
		"rerun and polled by another": func(h *harness) {
			h.conductor.rerun("t")
			if _, err := h.conductor.memoryPoll("another"); err != nil {
				panic(err)
			}
		},
	} {
		for _, end := range []error{nil, errors.New("broken"), txn.Terminalf("", "hopeless")} {
			t.Run(fmt.Sprintf("%s/%v", name, end), func(t *testing.T) {
				bubble(t, func(t *testing.T, h *harness) {
					h.conductor.schedule("t", stageType, "")
					h.stage(func(context.Context, *Attempt) (map[string]any, error) {
						change(h)
						return nil, end
					})
					time.Sleep(time.Minute)
					if updates := h.conductor.updates("t"); len(updates) != 0 {
						t.Errorf("a stale attempt sent %+v", updates)
					}
					if got := h.counter("perago_task_outcomes_total", "outcome=stale", "task=perago_stage"); got != 1 {
						t.Errorf("stale counted %v times", got)
					}
				})
			})
		}
	}
}

// first lets a fault happen n times.
func first(n int, fault func(context.Context, conductorCall) error) func(context.Context, conductorCall) error {
	return func(ctx context.Context, call conductorCall) error {
		if call.Number > n {
			return nil
		}
		return fault(ctx, call)
	}
}

// second lets a fault happen at the second call only.
func second(fault func(context.Context, conductorCall) error) func(context.Context, conductorCall) error {
	return func(ctx context.Context, call conductorCall) error {
		if call.Number != 2 {
			return nil
		}
		return fault(ctx, call)
	}
}

func unauthorized(context.Context, conductorCall) error {
	return &txn.ServerError{Server: "Conductor", Status: 401, Class: txn.ErrRefused, Kind: txn.ErrUnauthorized}
}
