package conductortest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/conductor"
	"perago/pkg/txn"
)

// Conductor is one Conductor under test.
type Conductor struct {
	Client   *conductor.Client
	Operator *Operator
	// Version is which one it is.
	Version Version
}

// patience is how long a condition may take to come true. A timeout of
// Conductor's own is late by up to its sweep interval on the real server.
const patience = time.Minute

// bench is what one row of the suite works with: a Conductor, and names that no
// other row has, because two rows on one queue would steal each other's tasks.
type bench struct {
	*testing.T
	Conductor
	ctx    context.Context
	suffix string
}

func newBench(t *testing.T, c Conductor) *bench {
	return &bench{T: t, Conductor: c, ctx: t.Context(), suffix: rand.Text()[:12]}
}

// taskType registers a task type: no retry, no delay, no timeout near enough to
// matter, unless the row says otherwise.
func (b *bench) taskType(name string, overrides object) txn.TaskType {
	b.Helper()
	definition := object{
		"name": name + "_" + b.suffix, "ownerEmail": "contract@example.com",
		"retryCount": 0, "retryLogic": "FIXED", "retryDelaySeconds": 0,
		"timeoutSeconds": 0, "responseTimeoutSeconds": 3600, "timeoutPolicy": "TIME_OUT_WF",
	}
	maps.Copy(definition, overrides)
	b.must(b.Client.PutTaskDefinition(b.ctx, b.json(definition)))
	return txn.TaskType(definition["name"].(string))
}

// workflow registers a workflow of these tasks.
func (b *bench) workflow(name string, overrides object, tasks ...object) string {
	b.Helper()
	definition := object{
		"name": name + "_" + b.suffix, "version": 1, "schemaVersion": 2,
		"ownerEmail": "contract@example.com", "tasks": tasks,
	}
	maps.Copy(definition, overrides)
	b.must(b.Client.PutWorkflowDefinition(b.ctx, b.json(definition)))
	return definition["name"].(string)
}

// simple is a SIMPLE task of a workflow definition.
func simple(name txn.TaskType, reference string, input object) object {
	if input == nil {
		input = object{}
	}
	return object{"name": name, "taskReferenceName": reference, "type": "SIMPLE", "inputParameters": input}
}

func (b *bench) start(name string, input object) txn.WorkflowID {
	b.Helper()
	return b.startIn(name, input, nil)
}

func (b *bench) startIn(name string, input object, domains map[string]string) txn.WorkflowID {
	b.Helper()
	if input == nil {
		input = object{}
	}
	id, err := b.Client.StartWorkflow(b.ctx, conductor.StartRequest{Name: name, Version: 1, Input: b.json(input), TaskToDomain: domains})
	b.must(err)
	b.Cleanup(func() {
		// A workflow left running on a shared server is looked at for ever.
		_ = b.Operator.Terminate(context.Background(), id, "the test is over")
	})
	return id
}

// one starts a workflow of one task of a type of its own, and polls it.
func (b *bench) one(definition object) (txn.WorkflowID, txn.Task) {
	b.Helper()
	kind := b.taskType("t", definition)
	id := b.start(b.workflow("w", nil, simple(kind, "only", nil)), nil)
	return id, b.poll(kind, "first")
}

// poll waits for one task and takes it.
func (b *bench) poll(kind txn.TaskType, worker txn.WorkerID) txn.Task {
	b.Helper()
	return b.pollIn(kind, worker, "")
}

func (b *bench) pollIn(kind txn.TaskType, worker txn.WorkerID, domain string) txn.Task {
	b.Helper()
	var tasks []txn.Task
	b.eventually("a task of type "+string(kind), func() bool {
		var err error
		tasks, err = b.Client.Poll(b.ctx, txn.PollRequest{Type: kind, Worker: worker, Domain: domain, Count: 1, Wait: 50 * time.Millisecond})
		b.must(err)
		return len(tasks) > 0
	})
	return tasks[0]
}

// pollNone polls once and wants nothing.
func (b *bench) pollNone(kind txn.TaskType, domain string) {
	b.Helper()
	tasks, err := b.Client.Poll(b.ctx, txn.PollRequest{Type: kind, Worker: "nobody", Domain: domain, Count: 5, Wait: 50 * time.Millisecond})
	b.must(err)
	if len(tasks) != 0 {
		b.Fatalf("polled %d tasks of type %s in domain %q, want none", len(tasks), kind, domain)
	}
}

func (b *bench) update(task txn.Task, status txn.TaskStatus, output object) {
	b.Helper()
	b.must(b.Client.Update(b.ctx, txn.TaskResult{
		Task: task.ID, Workflow: task.Workflow, Worker: task.Worker, Status: status, Output: output,
	}))
}

func (b *bench) fail(task txn.Task, status txn.TaskStatus, reason string) {
	b.Helper()
	b.must(b.Client.Update(b.ctx, txn.TaskResult{
		Task: task.ID, Workflow: task.Workflow, Worker: task.Worker, Status: status, Reason: reason,
	}))
}

func (b *bench) task(id txn.TaskID) txn.Task {
	b.Helper()
	task, err := b.Client.Task(b.ctx, id)
	b.must(err)
	return task
}

// raw is a task with all its fields.
func (b *bench) raw(id txn.TaskID) Answer {
	b.Helper()
	return b.do("GET", "/tasks/"+string(id), nil)
}

func (b *bench) do(method, path string, body any) Answer {
	b.Helper()
	answer, err := b.Operator.Do(b.ctx, method, path, body)
	b.must(err)
	return answer
}

// wait waits for a workflow's status.
func (b *bench) wait(id txn.WorkflowID, want txn.WorkflowStatus) txn.Workflow {
	b.Helper()
	b.eventually("workflow "+string(want), func() bool {
		status, err := b.Client.WorkflowStatus(b.ctx, id)
		b.must(err)
		return status == want
	})
	workflow, err := b.Client.Workflow(b.ctx, id)
	b.must(err)
	return workflow
}

// decide has the workflow looked at. One that has just ended may refuse.
func (b *bench) decide(id txn.WorkflowID) {
	b.Helper()
	err := b.Operator.Decide(b.ctx, id)
	if refused := (*StatusError)(nil); err != nil && !errors.As(err, &refused) {
		b.Fatal(err)
	}
}

// eventually waits for a condition.
func (b *bench) eventually(what string, condition func() bool) {
	b.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			b.Fatalf("%s: not after %v", what, patience)
		}
		b.pass(50 * time.Millisecond)
	}
}

// pass lets time pass: real on a real server, virtual in a synctest bubble.
func (b *bench) pass(d time.Duration) {
	b.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.ctx.Done():
		b.Fatal(b.ctx.Err())
	}
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) json(value any) json.RawMessage {
	b.Helper()
	raw, err := json.Marshal(value)
	b.must(err)
	return raw
}

func (b *bench) equal(what string, got, want any) {
	b.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// equalJSON compares JSON by value.
func (b *bench) equalJSON(what string, got json.RawMessage, want string) {
	b.Helper()
	var g, w any
	if len(got) > 0 {
		b.must(json.Unmarshal(got, &g))
	}
	b.must(json.Unmarshal([]byte(want), &w))
	b.equal(what, g, w)
}
