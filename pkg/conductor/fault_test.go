package conductor_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/fault"
	"perago/pkg/txn"
)

// faultBench is a memory server with one workflow whose only task is in progress,
// a client behind a wire and one without.
type faultBench struct {
	client, plain *conductor.Client
	wire          *fault.Wire
	workflow      txn.WorkflowID
	task          txn.Task
}

func newFaultBench(t *testing.T) *faultBench {
	t.Helper()
	server := conductortest.Transport(conductortest.New(nil))
	b := &faultBench{plain: newClientOn(t, conductor.Config{ServerURL: address}, server), wire: fault.NewWire(server)}
	b.client = newClientOn(t, conductor.Config{ServerURL: address}, b.wire)
	register(t, b.plain, "t", "w")
	b.workflow = b.start(t)
	b.task = b.poll(t)[0]
	return b
}

func (b *faultBench) start(t *testing.T) txn.WorkflowID {
	t.Helper()
	id, err := b.plain.StartWorkflow(t.Context(), conductor.StartRequest{Name: "w"})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (b *faultBench) poll(t *testing.T) []txn.Task {
	t.Helper()
	tasks, err := b.plain.Poll(t.Context(), txn.PollRequest{Type: "t", Worker: "w", Count: 10})
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

// Each call meets each fault once: it is sent once, because this client leaves
// repeating to its callers, its error has the class that its effect asks for, and
// the server has done it when the request got there and not else.
func TestCallsUnderEveryFault(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		effect string
		at     fault.Match
		// bodiless says that an answer without a body is a good one.
		bodiless bool
		prepare  func(*testing.T, *faultBench)
		do       func(*testing.T, *faultBench) error
		// done reports what the server has done; nil for a call that only reads.
		done func(*testing.T, *faultBench) bool
	}{
		"poll": {
			effect: "read", at: fault.Match{Path: "/tasks/poll/"},
			prepare: func(t *testing.T, b *faultBench) { b.start(t) },
			do: func(t *testing.T, b *faultBench) error {
				tasks, err := b.client.Poll(t.Context(), txn.PollRequest{Type: "t", Worker: "w", Count: 1})
				return wrong(err, len(tasks) != 1)
			},
			done: func(t *testing.T, b *faultBench) bool { return len(b.poll(t)) == 0 },
		},
		"task": {effect: "read", do: func(t *testing.T, b *faultBench) error {
			task, err := b.client.Task(t.Context(), b.task.ID)
			return wrong(err, task.ID != b.task.ID || task.Status != txn.TaskInProgress)
		}},
		"workflow status": {effect: "read", do: func(t *testing.T, b *faultBench) error {
			status, err := b.client.WorkflowStatus(t.Context(), b.workflow)
			return wrong(err, status != txn.WorkflowRunning)
		}},
		"workflow": {effect: "read", do: func(t *testing.T, b *faultBench) error {
			workflow, err := b.client.Workflow(t.Context(), b.workflow)
			return wrong(err, workflow.ID != b.workflow || len(workflow.Tasks) != 1)
		}},
		"task definition": {effect: "read", do: func(t *testing.T, b *faultBench) error {
			definition, err := b.client.TaskDefinition(t.Context(), "t")
			return wrong(err, definition.Name != "t")
		}},
		"update": {
			effect: "repeatable", at: fault.Match{Method: http.MethodPost}, bodiless: true,
			do: func(t *testing.T, b *faultBench) error {
				return b.client.Update(t.Context(), txn.TaskResult{Task: b.task.ID, Workflow: b.workflow, Worker: "w", Status: txn.TaskCompleted})
			},
			done: func(t *testing.T, b *faultBench) bool {
				task, err := b.plain.Task(t.Context(), b.task.ID)
				if err != nil {
					t.Fatal(err)
				}
				return task.Status == txn.TaskCompleted
			},
		},
		"extend lease": {
			effect: "repeatable", at: fault.Match{Method: http.MethodPost}, bodiless: true,
			do: func(t *testing.T, b *faultBench) error {
				return b.client.ExtendLease(t.Context(), b.workflow, b.task.ID, "w")
			},
		},
		"start workflow": {
			effect: "once", at: fault.Match{Method: http.MethodPost},
			do: func(t *testing.T, b *faultBench) error {
				id, err := b.client.StartWorkflow(t.Context(), conductor.StartRequest{Name: "w"})
				return wrong(err, id == "")
			},
			done: func(t *testing.T, b *faultBench) bool {
				started := len(b.poll(t))
				if started > 1 {
					t.Errorf("%d workflows", started)
				}
				return started == 1
			},
		},
	} {
		for _, f := range fault.All() {
			t.Run(name+"/"+f.Name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := newFaultBench(t)
					if c.prepare != nil {
						c.prepare(t, b)
					}
					armed := b.wire.Arm(c.at, f)
					err := c.do(t, b)
					<-armed.Over()

					var want error
					switch {
					case f.Name == "slow", f.Name == "empty" && c.bodiless:
					case f.Name == "cut" && name == "workflow status":
						// What it reads stands before the cut.
					case f.Name != "refused" && c.effect == "once":
						want = txn.ErrUnknownOutcome
					default:
						want = txn.ErrRetryable
					}
					if want == nil && err != nil || want != nil && !errors.Is(err, want) {
						t.Errorf("got %v, want %v", err, want)
					}
					if n := len(b.wire.Log()); n != 1 {
						t.Errorf("%d requests", n)
					}
					if c.done != nil {
						if done := c.done(t, b); done != (f.Server != fault.Never) {
							t.Errorf("the server has done it: %v", done)
						}
					}
				})
			})
		}
	}
}

var errWrong = errors.New("not what the server holds")

func wrong(err error, is bool) error {
	if err == nil && is {
		return errWrong
	}
	return err
}

// An update that is late arrives after it was sent again and the next attempt has
// the task: it is ignored, as any update of a task that is over.
func TestALateUpdateIsIgnored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFaultBench(t)
		armed := b.wire.Arm(fault.Match{Method: http.MethodPost}, fault.Late(time.Second))
		report := func(status txn.TaskStatus) error {
			return b.client.Update(t.Context(), txn.TaskResult{Task: b.task.ID, Workflow: b.workflow, Worker: "w", Status: status})
		}
		if err := report(txn.TaskFailed); !errors.Is(err, txn.ErrRetryable) {
			t.Errorf("got %v", err)
		}
		if err := report(txn.TaskCompleted); err != nil {
			t.Error(err)
		}
		<-armed.Over()
		if task, err := b.plain.Task(t.Context(), b.task.ID); err != nil || task.Status != txn.TaskCompleted {
			t.Errorf("the task is %s, %v", task.Status, err)
		}
	})
}

// Repeated reads get through every fault; one that stays ends them after a bounded
// time, and with the context, and a refusal is not asked for again.
func TestRepeatedReads(t *testing.T) {
	t.Parallel()
	reads := map[string]func(context.Context, *faultBench) error{
		"task": func(ctx context.Context, b *faultBench) error {
			task, err := conductor.Repeating{Client: b.client}.Task(ctx, b.task.ID)
			return wrong(err, task.ID != b.task.ID)
		},
		"workflow": func(ctx context.Context, b *faultBench) error {
			workflow, err := conductor.Repeating{Client: b.client}.Workflow(ctx, b.workflow)
			return wrong(err, workflow.ID != b.workflow)
		},
	}
	for name, read := range reads {
		for _, f := range fault.All() {
			t.Run(name+"/"+f.Name, func(t *testing.T) {
				t.Parallel()
				for times, want := range map[int]struct {
					err      error
					requests int
					most     time.Duration
				}{1: {nil, 2, time.Hour}, 4: {nil, 5, time.Hour}, 9: {txn.ErrRetryable, 5, time.Hour}, 10: {txn.ErrRetryable, 3, time.Second}} {
					if f.Name == "slow" {
						continue // a good answer
					}
					synctest.Test(t, func(t *testing.T) {
						b := newFaultBench(t)
						var holds []*fault.Hold
						for range times {
							holds = append(holds, b.wire.Arm(fault.Match{}, f))
						}
						ctx, cancel := context.WithTimeout(t.Context(), want.most)
						defer cancel()
						began := time.Now()
						err := read(ctx, b)
						took := time.Since(began)
						if want.err == nil && err != nil || want.err != nil && !errors.Is(err, want.err) {
							t.Errorf("%d times: %v, want %v", times, err, want.err)
						}
						if n := len(b.wire.Log()); n != want.requests {
							t.Errorf("%d times: %d requests, want %d", times, n, want.requests)
						}
						if took > min(3*time.Second, want.most) {
							t.Errorf("%d times: it took %s", times, took)
						}
						for _, hold := range holds[:min(times, want.requests)] {
							<-hold.Over()
						}
					})
				}
			})
		}
	}
	requests := 0
	client := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		respond(404, "application/json", conductorsOwn404)(w, r)
	})
	if _, err := (conductor.Repeating{Client: client}).Task(t.Context(), "t"); !errors.Is(err, txn.ErrNotFound) || requests != 1 {
		t.Errorf("got %v after %d requests", err, requests)
	}
}

// A Conductor that takes a read and never answers it holds nobody for ever, also
// where the caller has all the time there is.
func TestRepeatedReadsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		client := conductor.Repeating{Client: newClientOn(t, conductor.Config{ServerURL: address}, roundTripper(func(r *http.Request) (*http.Response, error) {
			asked++
			<-r.Context().Done()
			return nil, r.Context().Err()
		}))}
		began := time.Now()
		_, err := client.Task(t.Context(), "t")
		if !errors.Is(err, txn.ErrRetryable) || asked != 5 || time.Since(began) > 10*time.Minute {
			t.Errorf("task: %v after %s and %d requests", err, time.Since(began), asked)
		}
		began = time.Now()
		_, err = client.Workflow(t.Context(), "w")
		if !errors.Is(err, txn.ErrRetryable) || asked != 10 || time.Since(began) > 10*time.Minute {
			t.Errorf("workflow: %v after %s and %d requests", err, time.Since(began), asked)
		}
	})
}

// A caller's deadline is the only limit of its reads: an answer that comes after
// more than a minute is an answer.
func TestRepeating_LeavesACallItsOwnDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		client := conductor.Repeating{Client: newClientOn(t, conductor.Config{ServerURL: address}, roundTripper(func(r *http.Request) (*http.Response, error) {
			asked++
			select {
			case <-time.After(3 * time.Minute):
				return conductortest.Transport(respond(404, "application/json", conductorsOwn404)).RoundTrip(r)
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}))}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if _, err := client.Task(ctx, "t"); !errors.Is(err, txn.ErrNotFound) || asked != 1 {
			t.Errorf("%v after %d requests", err, asked)
		}
	})
}
