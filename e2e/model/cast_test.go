package model

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"perago/pkg/cleanup"
	"perago/pkg/fence"
	"perago/pkg/publish"
	"perago/pkg/stage"
	"perago/pkg/telemetry"
	"perago/pkg/txn"
	"perago/pkg/worker"
)

// contents are what a run of the step may bring; the input tree has a and keep
// under the prefix.
var contents = map[string]map[string]string{
	// The input's own: a no-op.
	"same": {"a": "old", "keep": "k"},
	// Two that change the same file: one cannot be merged onto the other.
	"first":  {"a": "first", "keep": "k", "only-first": "x"},
	"second": {"a": "second", "keep": "k", "only-second": "x"},
	// Two that only add a file each: one can be merged onto the other.
	"adds-p": {"a": "old", "keep": "k", "p": "x"},
	"adds-q": {"a": "old", "keep": "k", "q": "x"},
}

var inputTree = map[string]string{"data/a": "old", "data/keep": "k", "other": "o"}

// stand is what all schedules share: nothing in it changes.
type stand struct {
	root    *os.Root
	metrics *telemetry.Metrics
	log     *slog.Logger
}

func newStand(t testing.TB) *stand {
	t.Helper()
	directory := t.TempDir()
	for name, files := range contents {
		for path, text := range files {
			file := filepath.Join(directory, string(theOne), name, path)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return &stand{root: root, metrics: telemetry.NewMetrics(), log: slog.New(slog.DiscardHandler)}
}

const (
	theIdentity = txn.ConductorIdentity("model")
	stageRef    = txn.ReferenceName("step_stage")
	publishRef  = txn.ReferenceName("step_publish")
	cleanupRef  = txn.ReferenceName("step_cleanup")
)

// The clock of execution ids and of the cleaner: what the workers do, they do
// within a minute, unless a scenario makes the cleaner's clock another.
var began = time.UnixMilli(0x01890a5dac96)

// ttl is PERAGO_SWEEP_TTL.
const ttl = 24 * time.Hour

// definition is a TaskDef of whose times none comes near.
func definition(kind txn.TaskType, retries int) *txn.TaskDefinition {
	d := &txn.TaskDefinition{Name: kind, RetryCount: retries, ResponseTimeoutSeconds: 80_000, TimeoutPolicy: "RETRY"}
	if kind.IsPublish() {
		d.InputTemplate = json.RawMessage(`{"budget": {"observed_merge_p99_seconds": 1, "safety_margin_seconds": 1, "lakefs_merge_timeout_seconds": 30,
			"conductor_completion_timeout_seconds": 15, "worker_shutdown_grace_seconds": 1, "heartbeat_interval_seconds": 70000}}`)
	}
	return d
}

// chain is the workflow: a step's stage, publish and, if asked, cleanup.
func chain(input txn.CommitID, stageRetries, publishRetries int, withCleanup bool) []step {
	workspace := txn.Workspace{Repository: repository, Branch: target, RefType: "commit", Ref: input}
	staged := func(w *workflow) json.RawMessage {
		var output struct {
			Staged    json.RawMessage `json:"staged"`
			Workspace json.RawMessage `json:"workspace"`
		}
		if err := json.Unmarshal(w.last(stageRef).Output, &output); err != nil {
			panic(err)
		}
		return asJSON(map[string]any{"staged": output.Staged, "workspace": output.Workspace})
	}
	steps := []step{
		{stageRef, definition(txn.TypeStage, stageRetries), func(*workflow) json.RawMessage {
			return asJSON(map[string]any{"workspace": workspace, "prefix": "data/", "source": map[string]any{"directory": "what the worker finds"}})
		}},
		{publishRef, definition(txn.TypePublish, publishRetries), staged},
	}
	if withCleanup {
		steps = append(steps, step{cleanupRef, definition(txn.TypeCleanup, 1), staged})
	}
	return steps
}

func asJSON(value any) json.RawMessage {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return raw
}

// cancel is the failure workflow: a cleanup of the whole workflow.
func cancel() []step {
	return []step{{cleanupRef, definition(txn.TypeCleanup, 0), func(*workflow) json.RawMessage {
		return json.RawMessage(`{"workflow_id": "` + theOne + `"}`)
	}}}
}

// cast makes the roles of a scenario.
type cast struct {
	*stand
	weakness weakness
	roles    []*role
	// last is, for each kind of worker, the newest one: its place among the roles.
	last map[txn.TaskType]int
}

func newCast(on *stand, w weakness) *cast {
	return &cast{stand: on, weakness: w, last: map[txn.TaskType]int{}}
}

func (c *cast) worker(name string, kind txn.TaskType, change func(txn.Task) txn.Task, handle func(*conductorPort) worker.Handler) {
	number := len(c.roles)
	before, notFirst := c.last[kind]
	turn := func(s *state) bool {
		_, waits := s.world.conductor.queued(kind)
		return (!notFirst || s.hasPolled(before)) && waits != nil
	}
	c.last[kind] = number
	c.roles = append(c.roles, &role{name: name, program: func(p *player) {
		ctx, stop := context.WithCancel(context.Background())
		p.number, p.stop = number, stop
		defer stop()
		port := &conductorPort{player: p, definition: *definition(kind, 0), turn: turn, change: change}
		_ = worker.New(worker.Options{
			Conductor: c.weakness.conductor(port), Worker: txn.WorkerID(name), Handlers: map[txn.TaskType]worker.Handler{kind: handle(port)},
			Concurrency: 1, PollInterval: time.Second, ReasonLength: txn.DefaultReasonLength, ShutdownGrace: time.Minute,
			Log: c.log, Metrics: c.metrics,
		}).Run(ctx)
	}})
}

// hasPolled reports whether a worker has asked for a task.
func (s *state) hasPolled(actor int) bool { return s.at[actor] != s.roles[actor].first }

// newExecutionID numbers the executions of a program.
func (p *player) newExecutionID() (txn.ExecutionID, error) {
	p.executions++
	return txn.ParseExecutionID(fmt.Sprintf("01890a5d-ac96-7%03x-8000-%012x", p.number+1, p.executions))
}

// stage is a worker that stages what it finds.
func (c *cast) stage(name, content string) {
	c.worker(name, txn.TypeStage, func(t txn.Task) txn.Task {
		var input map[string]any
		if err := json.Unmarshal(t.Input, &input); err != nil {
			panic(err)
		}
		input["source"] = map[string]any{"directory": filepath.Join(c.root.Name(), string(theOne), content)}
		t.Input, _ = json.Marshal(input)
		return t
	}, func(port *conductorPort) worker.Handler {
		stager := &stage.Stager{
			Lake: stagePort{lakePort{port.player}}, Root: c.root, Identity: theIdentity, Allowed: txn.AllowList{"*"},
			UploadConcurrency: 1, NewExecutionID: port.newExecutionID,
		}
		return func(ctx context.Context, at *worker.Attempt) (map[string]any, error) {
			result, err := stager.Run(ctx, at.Task, c.weakness.attempt(port, at))
			if err != nil {
				return nil, err
			}
			return result.Output(), nil
		}
	})
}

// publish is a worker that publishes.
func (c *cast) publish(name string) {
	c.worker(name, txn.TypePublish, nil, func(port *conductorPort) worker.Handler {
		return func(ctx context.Context, at *worker.Attempt) (map[string]any, error) {
			publisher := &publish.Publisher{
				Lake: c.weakness.publishLake(lakePort{port.player}, at.Task), Tasks: c.weakness.tasks(port), Identity: theIdentity,
				Allowed: txn.AllowList{"*"}, NewExecutionID: port.newExecutionID, Fence: fence.Prover{Lake: lakePort{port.player}},
			}
			result, err := publisher.Run(ctx, c.weakness.task(at.Task), c.weakness.attempt(port, at))
			return result.Output(), err
		}
	})
}

// cleaner is a cleanup worker's, with its clock so long after the work.
func (c *cast) cleaner(port *conductorPort, later time.Duration) *cleanup.Cleaner {
	lake := lakePort{port.player}
	return &cleanup.Cleaner{
		Lake: c.weakness.cleanupLake(lake), Workflows: port, Fence: fence.Prover{Lake: lake}, Identity: theIdentity,
		Allowed: txn.AllowList{"*"}, TTL: ttl, Now: func() time.Time { return began.Add(later) },
	}
}

// cleanup is a worker that cleans up.
func (c *cast) cleanup(name string) {
	c.worker(name, txn.TypeCleanup, nil, func(port *conductorPort) worker.Handler {
		cleaner := c.cleaner(port, time.Minute)
		return func(ctx context.Context, at *worker.Attempt) (map[string]any, error) {
			result, err := cleaner.Run(ctx, at.Task, c.weakness.attempt(port, at))
			return result.Output(), err
		}
	})
}

// sweep is the sweep of a cleanup worker.
func (c *cast) sweep(later time.Duration) {
	number := len(c.roles)
	c.roles = append(c.roles, &role{name: "sweep", optional: true, program: func(p *player) {
		ctx, stop := context.WithCancel(context.Background())
		p.number, p.stop = number, stop
		defer stop()
		_, _ = c.cleaner(&conductorPort{player: p}, later).Sweep(ctx, cleanup.Sweep{})
	}})
}

// other is a role of steps.
func (c *cast) other(name string, steps ...action) {
	c.roles = append(c.roles, &role{name: name, steps: steps, optional: true})
}

// foreign is somebody who commits to the target; without a path, nothing.
func (c *cast) foreign(path string) {
	c.other("foreign", action{call{name: "commit " + cmp.Or(path, "nothing")}, func(w *world) { w.foreign(path) }})
}

func flow(w *world) *workflow { return w.conductor.workflow(theOne) }

// timeOut is Conductor's clock, by which a task in progress may time out.
func (c *cast) timeOut(reference txn.ReferenceName) {
	c.other("clock", action{call{name: "time out " + string(reference), ready: func(s *state) bool {
		t := flow(s.world).last(reference)
		return flow(s.world).status == txn.WorkflowRunning && t != nil && t.Status == txn.TaskInProgress
	}}, func(w *world) { w.timeOut(flow(w).last(reference).ID) }})
}

func ended(s *state) bool { return flow(s.world).status.Terminal() }

// terminated and the others below are what an operator does.
func terminated() action {
	return action{call{name: "terminate", ready: func(s *state) bool { return !ended(s) }}, func(w *world) { w.terminate() }}
}

func rerun(from txn.ReferenceName) action {
	return action{call{name: "rerun " + string(from), ready: func(s *state) bool {
		return ended(s) && flow(s.world).last(from) != nil
	}}, func(w *world) { w.rerun(flow(w).last(from).ID) }}
}

func restarted() action {
	return action{call{name: "restart", ready: ended}, func(w *world) { w.restart() }}
}

func retried() action {
	return action{call{name: "retry", ready: func(s *state) bool {
		return ended(s) && flow(s.world).status != txn.WorkflowCompleted
	}}, func(w *world) { w.retry() }}
}

func (c *cast) operator(steps ...action) { c.other("operator", steps...) }
