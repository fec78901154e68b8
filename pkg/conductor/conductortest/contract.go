package conductortest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"perago/pkg/conductor"
	"perago/pkg/txn"
)

// Contract holds a Conductor to what the protocol relies on. newSubject runs one
// row on a Conductor: on a fresh memory server inside a synctest bubble, or on a
// real server that rows share.
func Contract(t *testing.T, newSubject func(t *testing.T, row func(*testing.T, Conductor))) {
	run(t, slices.Concat(rows, surveyRows), newSubject)
}

// row is one line of the contract.
type row struct {
	name string
	test func(*bench)
}

func run(t *testing.T, rows []row, newSubject func(t *testing.T, row func(*testing.T, Conductor))) {
	for _, row := range rows {
		t.Run(strings.ReplaceAll(row.name, " ", "_"), func(t *testing.T) {
			newSubject(t, func(t *testing.T, c Conductor) { row.test(newBench(t, c)) })
		})
	}
}

// rows is the contract. A behaviour that a test relies on is a row here first.
var rows = []row{
	{"ping", func(b *bench) { b.must(b.Client.Ping(b.ctx)) }},
	{"poll with nothing queued", pollNothing},
	{"missing task", missingTask},
	{"missing workflow", missingWorkflow},
	{"missing definitions", missingDefinitions},
	{"unregistered task type", unregisteredType},
	{"refused definitions", refusedDefinitions},
	{"definitions pass unchanged", definitionsUnchanged},
	{"start of an unregistered workflow", startUnregistered},
	{"update of an unknown task", updateUnknown},
	{"update of a task that is over", updateOver},
	{"polled task reads the same", polledReadsSame},
	{"polled task carries its definition", polledDefinition},
	{"large integers", largeIntegers},
	{"count", pollCount},
	{"task for a waiting poll", waitingPoll},
	{"poll that would wait too long", tooLongPoll},
	{"plain IN_PROGRESS puts the task back", plainInProgress},
	{"callback", callback},
	{"extendLease", extendLease},
	{"extendLease of a task that is over", extendLeaseOver},
	{"response timeout", responseTimeout},
	{"retry by TaskDef", retryByTaskDef},
	{"exponential backoff", exponentialBackoff},
	{"retries exhausted", retriesExhausted},
	{"response timeouts exhausted", timeoutsExhausted},
	{"retry of a workflow", retryWorkflow},
	{"retry of a terminated workflow", retryTerminated},
	{"restart", restart},
	{"rerun", rerun},
	{"rerun while running", rerunRunning},
	{"zombie completes after a rerun", zombieCompletes},
	{"zombie fails after a rerun", zombieFails},
	{"zombie completes a rerun task that waits", zombieCompletesWaiting},
	{"rerun polled by the worker that had it", rerunSameWorker},
	{"update and poll in one", updateV2},
	{"terminate", terminate},
	{"terminal failure starts the failure workflow", failureWorkflow},
	{"failure workflow not registered", failureWorkflowMissing},
	{"pause", pause},
	{"optional task", optionalTask},
	{"expressions", expressions},
	{"unresolved expression", unresolved},
	{"input above the threshold is kept outside", externalPayload},
	{"input template", inputTemplate},
	{"changed TaskDef", changedTaskDef},
	{"task domain", taskDomain},
	{"every task's domain", starDomain},
	{"task log", taskLog},
}

func pollNothing(b *bench) {
	kind := b.taskType("t", nil)
	b.pollNone(kind, "")
	b.pollNone(txn.TaskType("unregistered_"+b.suffix), "")
	single := b.do("GET", "/tasks/poll/"+string(kind)+"?workerid=w", nil)
	b.equal("poll of one", single.Status, http.StatusNoContent)
	batch := b.do("GET", "/tasks/poll/batch/"+string(kind)+"?workerid=w&count=1&timeout=50", nil)
	b.equal("poll of a batch", batch, Answer{http.StatusOK, []byte("[]")})
}

func missingTask(b *bench) {
	_, err := b.Client.Task(b.ctx, "no-such-task")
	if !errors.Is(err, txn.ErrNotFound) || !errors.Is(err, txn.ErrRefused) {
		b.Errorf("got %v, want ErrNotFound", err)
	}
	b.equal("answer of "+string(b.Version), b.do("GET", "/tasks/no-such-task", nil).Status, b.Version.missingTask())
}

func missingWorkflow(b *bench) {
	const id = "00000000-0000-4000-8000-000000000000"
	if _, err := b.Client.WorkflowStatus(b.ctx, id); !errors.Is(err, txn.ErrNotFound) {
		b.Errorf("status: got %v, want ErrNotFound", err)
	}
	if _, err := b.Client.Workflow(b.ctx, id); !errors.Is(err, txn.ErrNotFound) {
		b.Errorf("workflow: got %v, want ErrNotFound", err)
	}
}

func missingDefinitions(b *bench) {
	if _, err := b.Client.TaskDefinition(b.ctx, "no_such_type"); !errors.Is(err, txn.ErrNotFound) {
		b.Errorf("task definition: got %v, want ErrNotFound", err)
	}
	if _, err := b.Client.RawWorkflowDefinition(b.ctx, "no_such_workflow", 0); !errors.Is(err, txn.ErrNotFound) {
		b.Errorf("workflow definition: got %v, want ErrNotFound", err)
	}
}

// unregisteredType: nothing refuses a type that is not registered, and its tasks
// run with the server's defaults.
func unregisteredType(b *bench) {
	kind := txn.TaskType("unregistered_" + b.suffix)
	b.start(b.workflow("w", nil, simple(kind, "only", nil)), nil)
	task := b.poll(kind, "w")
	b.equal("definition", *task.Definition, txn.TaskDefinition{
		Name: kind, RetryCount: 3, ResponseTimeoutSeconds: 3600, TimeoutPolicy: "TIME_OUT_WF", InputTemplate: json.RawMessage("{}"),
	})
	if _, err := b.Client.TaskDefinition(b.ctx, kind); !errors.Is(err, txn.ErrNotFound) {
		b.Errorf("got %v, want ErrNotFound", err)
	}
}

// refusedDefinitions: what is refused says why.
func refusedDefinitions(b *bench) {
	kind := b.taskType("t", nil)
	ownerless := b.Client.PutTaskDefinition(b.ctx, b.json(object{"name": "bad_" + b.suffix, "timeoutSeconds": 0, "responseTimeoutSeconds": 10}))
	if b.Version.ownerEmailRequired() {
		if !errors.Is(ownerless, txn.ErrRefused) || !strings.Contains(ownerless.Error(), "ownerEmail cannot be empty") {
			b.Errorf("without an owner: got %v, want a refusal", ownerless)
		}
	} else {
		b.must(ownerless)
	}
	for _, bad := range []struct {
		err  error
		want string
	}{
		{b.Client.PutTaskDefinition(b.ctx, b.json(object{"name": "bad_" + b.suffix, "ownerEmail": "contract@example.com", "timeoutSeconds": 5, "responseTimeoutSeconds": 10})),
			"responseTimeoutSeconds: 10 must be less than timeoutSeconds: 5"},
		{b.Client.PutWorkflowDefinition(b.ctx, b.json(object{"name": "w_" + b.suffix, "version": 1, "schemaVersion": 2,
			"ownerEmail": "contract@example.com", "tasks": []object{simple(kind, "only", object{"x": "${nobody.output.x}"})}})),
			"nobody"},
	} {
		if !errors.Is(bad.err, txn.ErrRefused) || !strings.Contains(bad.err.Error(), bad.want) {
			b.Errorf("got %v, want a refusal with %q", bad.err, bad.want)
		}
	}
}

func definitionsUnchanged(b *bench) {
	kind := b.taskType("t", object{"description": "before", "unknownToTheServer": true, "inputTemplate": object{"budget": object{"grace_seconds": 1.5}}})
	first, err := b.Client.RawTaskDefinition(b.ctx, kind)
	b.must(err)
	var fields object
	b.must(json.Unmarshal(first, &fields))
	b.equal("template", fields["inputTemplate"], any(object{"budget": object{"grace_seconds": 1.5}}))
	if _, kept := fields["unknownToTheServer"]; kept {
		b.Error("a field that the server does not know was kept")
	}
	// What was read may be put back, and put again.
	for range 2 {
		b.must(b.Client.PutTaskDefinition(b.ctx, first))
	}
	b.taskType("t", object{"description": "after"})
	second, err := b.Client.RawTaskDefinition(b.ctx, kind)
	b.must(err)
	b.must(json.Unmarshal(second, &fields))
	b.equal("description", fields["description"], any("after"))

	name := b.workflow("w", object{"description": "before"}, simple(kind, "only", object{"x": "${workflow.input.x}"}))
	raw, err := b.Client.RawWorkflowDefinition(b.ctx, name, 0)
	b.must(err)
	b.must(b.Client.PutWorkflowDefinition(b.ctx, raw))
	again, err := b.Client.RawWorkflowDefinition(b.ctx, name, 1)
	b.must(err)
	for _, one := range []json.RawMessage{raw, again} {
		var workflow struct {
			Name        string
			Version     int
			Description string
			Tasks       []struct{ InputParameters object }
		}
		b.must(json.Unmarshal(one, &workflow))
		b.equal("name", workflow.Name, name)
		b.equal("version", workflow.Version, 1)
		b.equal("description", workflow.Description, "before")
		b.equal("parameters", workflow.Tasks[0].InputParameters, object{"x": "${workflow.input.x}"})
	}
}

func startUnregistered(b *bench) {
	_, err := b.Client.StartWorkflow(b.ctx, conductor.StartRequest{Name: "unregistered_" + b.suffix})
	if !errors.Is(err, txn.ErrNotFound) {
		b.Errorf("got %v, want ErrNotFound", err)
	}
}

func updateUnknown(b *bench) {
	workflow, task := b.one(nil)
	for _, result := range []txn.TaskResult{
		{Task: "no-such-task", Workflow: workflow, Status: txn.TaskCompleted},
		{Task: task.ID, Workflow: "no-such-workflow", Status: txn.TaskCompleted},
	} {
		if err := b.Client.Update(b.ctx, result); !errors.Is(err, txn.ErrNotFound) {
			b.Errorf("task %s of workflow %s: got %v, want ErrNotFound", result.Task, result.Workflow, err)
		}
	}
	b.equal("status", b.task(task.ID).Status, txn.TaskInProgress)
}

func updateOver(b *bench) {
	workflow, task := b.one(nil)
	b.update(task, txn.TaskCompleted, object{"kept": "yes"})
	b.wait(workflow, txn.WorkflowCompleted)
	for _, status := range []txn.TaskStatus{txn.TaskFailed, txn.TaskCompleted, txn.TaskInProgress} {
		b.update(task, status, object{"kept": "no"})
	}
	read := b.task(task.ID)
	b.equal("status", read.Status, txn.TaskCompleted)
	b.equalJSON("output", read.Output, `{"kept":"yes"}`)
	b.wait(workflow, txn.WorkflowCompleted)
}

func polledReadsSame(b *bench) {
	before := time.Now()
	_, polled := b.one(object{"inputTemplate": object{"a": 1}})
	read := b.task(polled.ID)
	b.equal("the task as polled and as read", read, polled)
	b.equal("worker", polled.Worker, txn.WorkerID("first"))
	b.equal("status", polled.Status, txn.TaskInProgress)
	b.equal("poll count", polled.PollCount, 1)
	b.equal("retry count", polled.RetryCount, 0)
	b.equal("reference", polled.ReferenceName, txn.ReferenceName("only"))
	b.equal("current", txn.AttemptOf(polled).Current(read, txn.WorkflowRunning), nil)
	// Same machine, so the same clock.
	if at := time.UnixMilli(polled.StartTime); at.Before(before.Truncate(time.Millisecond)) || at.After(time.Now().Add(time.Millisecond)) {
		b.Errorf("start time %v is not between %v and now", at, before)
	}
}

func polledDefinition(b *bench) {
	kind := b.taskType("t", object{
		"retryCount": 3, "timeoutSeconds": 7200, "responseTimeoutSeconds": 77, "pollTimeoutSeconds": 600,
		"timeoutPolicy": "RETRY", "inputTemplate": object{"budget": object{"margin": 0.5}},
	})
	b.start(b.workflow("w", nil, simple(kind, "only", nil)), nil)
	task := b.poll(kind, "w")
	want := txn.TaskDefinition{
		Name: kind, RetryCount: 3, TimeoutSeconds: 7200, ResponseTimeoutSeconds: 77, PollTimeoutSeconds: 600,
		TimeoutPolicy: "RETRY", InputTemplate: json.RawMessage(`{"budget":{"margin":0.5}}`),
	}
	if task.Definition == nil {
		b.Fatal("the polled task has no definition")
	}
	b.equal("polled", *task.Definition, want)
	registered, err := b.Client.TaskDefinition(b.ctx, kind)
	b.must(err)
	b.equal("registered", registered, want)
}

func largeIntegers(b *bench) {
	kind := b.taskType("t", nil)
	name := b.workflow("w", nil, simple(kind, "only", object{"n": "${workflow.input.n}"}))
	id, err := b.Client.StartWorkflow(b.ctx, conductor.StartRequest{Name: name, Input: json.RawMessage(`{"n":9007199254740993}`)})
	b.must(err)
	task := b.poll(kind, "w")
	b.equal("input", string(task.Input), `{"n":9007199254740993}`)
	b.update(task, txn.TaskCompleted, object{"n": json.RawMessage("9007199254740993")})
	b.wait(id, txn.WorkflowCompleted)
	b.equal("output", string(b.task(task.ID).Output), `{"n":9007199254740993}`)
}

func pollCount(b *bench) {
	kind := b.taskType("t", nil)
	name := b.workflow("w", nil, simple(kind, "only", nil))
	const started = 3
	for range started {
		b.start(name, nil)
	}
	seen := map[txn.TaskID]bool{}
	b.eventually("every task handed out", func() bool {
		tasks, err := b.Client.Poll(b.ctx, txn.PollRequest{Type: kind, Worker: "w", Count: 2, Wait: 50 * time.Millisecond})
		b.must(err)
		if len(tasks) > 2 {
			b.Fatalf("polled %d tasks, asked for at most 2", len(tasks))
		}
		for _, task := range tasks {
			if seen[task.ID] {
				b.Fatalf("task %s was handed out twice", task.ID)
			}
			seen[task.ID] = true
		}
		return len(seen) == started
	})
	b.pollNone(kind, "")
}

// waitingPoll: on older versions a poll that waits is not woken by a task scheduled
// meanwhile and does not return it either; the next poll does. Long waits make tasks
// late by up to the wait there. On newer ones it returns the task.
func waitingPoll(b *bench) {
	kind := b.taskType("t", nil)
	name := b.workflow("w", nil, simple(kind, "only", nil))
	const wait = time.Second
	// Whether the poll is already waiting when the task is scheduled cannot be
	// seen from outside, so one poll that returns a task, or none, proves nothing.
	for range 5 {
		type answer struct {
			tasks []txn.Task
			err   error
			after time.Duration
		}
		answers := make(chan answer, 1)
		begun := time.Now()
		go func() {
			tasks, err := b.Client.Poll(b.ctx, txn.PollRequest{Type: kind, Worker: "w", Count: 1, Wait: wait})
			answers <- answer{tasks, err, time.Since(begun)}
		}()
		b.pass(wait / 4)
		b.start(name, nil)
		got := <-answers
		b.must(got.err)
		if len(got.tasks) == 0 {
			b.poll(kind, "w")
		}
		switch {
		case b.Version.pollIsWoken() && len(got.tasks) > 0 && got.after >= wait/4:
			return
		case !b.Version.pollIsWoken() && len(got.tasks) == 0 && got.after >= wait-50*time.Millisecond:
			return
		}
	}
	b.Errorf("no poll of 5 did what those of %s do: a poll that waits returns a task which comes meanwhile: %v", b.Version, b.Version.pollIsWoken())
}

// tooLongPoll: more than five seconds is refused.
func tooLongPoll(b *bench) {
	kind := b.taskType("t", nil)
	_, err := b.Client.Poll(b.ctx, txn.PollRequest{Type: kind, Worker: "w", Count: 1, Wait: 6 * time.Second})
	if !errors.Is(err, txn.ErrRefused) {
		b.Errorf("got %v, want ErrRefused", err)
	}
}

func plainInProgress(b *bench) {
	_, first := b.one(nil)
	// Start times are in milliseconds, and virtual time stands still by itself.
	b.pass(5 * time.Millisecond)
	b.must(b.Client.Update(b.ctx, txn.TaskResult{Task: first.ID, Workflow: first.Workflow, Status: txn.TaskInProgress}))
	back := b.task(first.ID)
	b.equal("status", back.Status, txn.TaskScheduled)
	b.equal("worker", back.Worker, txn.WorkerID(""))
	second := b.poll(first.Type, "second")
	b.equal("task id", second.ID, first.ID)
	b.equal("retry count", second.RetryCount, first.RetryCount)
	b.equal("poll count", second.PollCount, first.PollCount+1)
	b.equal("start time", second.StartTime, first.StartTime)
	b.equal("worker", second.Worker, txn.WorkerID("second"))
	// The worker of the body is recorded, whoever holds the task.
	b.must(b.Client.Update(b.ctx, txn.TaskResult{Task: first.ID, Workflow: first.Workflow, Worker: "third", Status: txn.TaskInProgress}))
	b.equal("worker", b.task(first.ID).Worker, txn.WorkerID("third"))
}

func callback(b *bench) {
	_, first := b.one(object{"responseTimeoutSeconds": 1})
	b.must(b.Client.Update(b.ctx, txn.TaskResult{Task: first.ID, Workflow: first.Workflow, Worker: first.Worker, Status: txn.TaskInProgress, CallbackAfterSeconds: 5}))
	sent := time.Now()
	b.equal("status while it waits", b.task(first.ID).Status, txn.TaskScheduled)
	// Longer than the response timeout: that does not run while the task waits.
	var second txn.Task
	b.eventually("the task handed out again", func() bool {
		b.must(b.Operator.Decide(b.ctx, first.Workflow))
		tasks, err := b.Client.Poll(b.ctx, txn.PollRequest{Type: first.Type, Worker: "second", Count: 1})
		b.must(err)
		if len(tasks) == 1 {
			second = tasks[0]
		}
		return len(tasks) == 1
	})
	if waited := time.Since(sent); waited < 4*time.Second {
		b.Errorf("handed out after %v, want 5 s", waited)
	}
	b.equal("task id", second.ID, first.ID)
	b.equal("poll count", second.PollCount, 2)
}

func extendLease(b *bench) {
	_, first := b.one(object{"responseTimeoutSeconds": 3})
	before := b.raw(first.ID)
	// Well past the response timeout, and past a sweep after it.
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); b.pass(500 * time.Millisecond) {
		b.must(b.Client.ExtendLease(b.ctx, first.Workflow, first.ID, first.Worker))
		b.must(b.Operator.Decide(b.ctx, first.Workflow))
		if err := txn.AttemptOf(first).CurrentTask(b.task(first.ID)); err != nil {
			b.Fatal(err)
		}
	}
	after := b.raw(first.ID)
	for _, field := range []string{"status", "workerId", "pollCount", "startTime", "scheduledTime", "retryCount", "callbackAfterSeconds"} {
		b.equal(field, after.Field(field), before.Field(field))
	}
	if after.Field("updateTime") == before.Field("updateTime") {
		b.Error("updateTime did not move")
	}
	b.pollNone(first.Type, "")
	// And it was the extending that kept it.
	b.eventually("the task timed out", func() bool {
		b.decide(first.Workflow)
		return b.task(first.ID).Status == txn.TaskTimedOut
	})
}

func extendLeaseOver(b *bench) {
	workflow, task := b.one(nil)
	b.update(task, txn.TaskCompleted, nil)
	b.wait(workflow, txn.WorkflowCompleted)
	b.must(b.Client.ExtendLease(b.ctx, task.Workflow, task.ID, task.Worker))
	b.equal("status", b.task(task.ID).Status, txn.TaskCompleted)
}

func responseTimeout(b *bench) {
	// Retried even under TIME_OUT_WF: the policy governs the other timeouts.
	workflow, first := b.one(object{"responseTimeoutSeconds": 1, "retryCount": 1, "timeoutPolicy": "TIME_OUT_WF"})
	b.eventually("the task timed out", func() bool {
		b.decide(workflow)
		return b.task(first.ID).Status == txn.TaskTimedOut
	})
	second := b.poll(first.Type, "second")
	if second.ID == first.ID {
		b.Fatal("the retry has the timed out task's id")
	}
	b.equal("retry count", second.RetryCount, 1)
	b.equal("first", b.task(first.ID).Status, txn.TaskTimedOut)
	b.update(first, txn.TaskCompleted, object{"late": true})
	b.equal("first after its late completion", b.task(first.ID).Status, txn.TaskTimedOut)
	b.update(second, txn.TaskCompleted, nil)
	b.wait(workflow, txn.WorkflowCompleted)
}

func retryByTaskDef(b *bench) {
	workflow, first := b.one(object{"retryCount": 1, "retryDelaySeconds": 2})
	failed := time.Now()
	b.fail(first, txn.TaskFailed, "once")
	second := b.poll(first.Type, "second")
	if waited := time.Since(failed); waited < 1900*time.Millisecond {
		b.Errorf("retried after %v, want 2 s", waited)
	}
	b.retried(first, second)
	b.equal("first", b.task(first.ID).Status, txn.TaskFailed)
	b.equal("its reason", b.task(first.ID).Reason, "once")
	b.update(second, txn.TaskCompleted, nil)
	done := b.wait(workflow, txn.WorkflowCompleted)
	b.equal("tasks", []txn.TaskID{done.Tasks[0].ID, done.Tasks[1].ID}, []txn.TaskID{first.ID, second.ID})
}

// retried compares a task with its retry.
func (b *bench) retried(first, second txn.Task) {
	b.Helper()
	if second.ID == first.ID {
		b.Error("the retry has the failed task's id")
	}
	b.equal("retry count", second.RetryCount, first.RetryCount+1)
	b.equal("poll count", second.PollCount, 1)
	b.equal("reference", second.ReferenceName, first.ReferenceName)
	raw := b.raw(second.ID)
	b.equal("retriedTaskId", raw.Field("retriedTaskId"), any(string(first.ID)))
	b.equal("seq of the failed task", b.raw(first.ID).Field("seq"), any(json.Number("1")))
	b.equal("seq", raw.Field("seq"), any(json.Number("2")))
}

func exponentialBackoff(b *bench) {
	_, task := b.one(object{"retryCount": 2, "retryDelaySeconds": 1, "retryLogic": "EXPONENTIAL_BACKOFF"})
	for _, want := range []time.Duration{time.Second, 2 * time.Second} {
		failed := time.Now()
		b.fail(task, txn.TaskFailed, "again")
		task = b.poll(task.Type, "w")
		if waited := time.Since(failed); waited < want-100*time.Millisecond {
			b.Errorf("retry %d after %v, want %v", task.RetryCount, waited, want)
		}
	}
	b.equal("retry count", task.RetryCount, 2)
}

// timeoutsExhausted: the workflow times out, which starts the failure workflow
// like any failure.
func timeoutsExhausted(b *bench) {
	kind := b.taskType("t", object{"responseTimeoutSeconds": 1})
	undo := b.taskType("undo", nil)
	cancel := b.workflow("cancel", nil, simple(undo, "undo", object{"status": "${workflow.input.failureStatus}"}))
	workflow := b.start(b.workflow("w", object{"failureWorkflow": cancel}, simple(kind, "only", nil)), nil)
	task := b.poll(kind, "w")
	b.eventually("the task timed out", func() bool {
		b.decide(workflow)
		return b.task(task.ID).Status == txn.TaskTimedOut
	})
	ended := b.wait(workflow, txn.WorkflowTimedOut)
	undoing := b.poll(undo, "w")
	b.equal("failure workflow", undoing.Workflow, b.failureOf(ended))
	b.equalJSON("its input", undoing.Input, `{"status":"TIMED_OUT"}`)
	b.update(undoing, txn.TaskCompleted, nil)
}

func retriesExhausted(b *bench) {
	workflow, first := b.one(object{"retryCount": 1})
	b.fail(first, txn.TaskFailed, "once")
	b.fail(b.poll(first.Type, "second"), txn.TaskFailed, "twice")
	failed := b.wait(workflow, txn.WorkflowFailed)
	b.reasonOf(failed.Reason, "twice")
	b.equal("tasks", len(failed.Tasks), 2)
}

// reasonOf: the workflow's reason quotes the task's.
func (b *bench) reasonOf(got, task string) {
	b.Helper()
	if !strings.Contains(got, task) {
		b.Errorf("reason %q does not hold the task's %q", got, task)
	}
}

func retryWorkflow(b *bench) {
	workflow, first := b.one(nil)
	b.fail(first, txn.TaskFailedWithTerminalError, "never")
	b.wait(workflow, txn.WorkflowFailed)
	b.must(b.Operator.Retry(b.ctx, workflow))
	b.equal("reason", b.wait(workflow, txn.WorkflowRunning).Reason, "")
	second := b.poll(first.Type, "second")
	b.retried(first, second)
	b.update(second, txn.TaskCompleted, nil)
	b.wait(workflow, txn.WorkflowCompleted)
}

// retryTerminated: what a terminate cancelled runs again, as a new task.
func retryTerminated(b *bench) {
	workflow, first := b.one(nil)
	b.must(b.Operator.Terminate(b.ctx, workflow, "enough"))
	b.wait(workflow, txn.WorkflowTerminated)
	b.must(b.Operator.Retry(b.ctx, workflow))
	second := b.poll(first.Type, "second")
	b.retried(first, second)
	b.equal("first", b.task(first.ID).Status, txn.TaskCanceled)
	b.update(second, txn.TaskCompleted, nil)
	b.wait(workflow, txn.WorkflowCompleted)
}

func restart(b *bench) {
	workflow, first := b.one(object{"retryCount": 1})
	b.fail(first, txn.TaskFailed, "once")
	retry := b.poll(first.Type, "second")
	b.fail(retry, txn.TaskFailedWithTerminalError, "for good")
	b.wait(workflow, txn.WorkflowFailed)
	b.must(b.Operator.Restart(b.ctx, workflow))
	again := b.poll(first.Type, "third")
	b.equal("workflow", again.Workflow, workflow)
	b.equal("retry count", again.RetryCount, 0)
	b.equal("poll count", again.PollCount, 1)
	for _, old := range []txn.TaskID{first.ID, retry.ID} {
		if again.ID == old {
			b.Error("the restarted task has an old id")
		}
		if _, err := b.Client.Task(b.ctx, old); !errors.Is(err, txn.ErrNotFound) {
			b.Errorf("an old task: got %v, want ErrNotFound", err)
		}
	}
	b.update(again, txn.TaskCompleted, nil)
	b.wait(workflow, txn.WorkflowCompleted)
}

// rerunning polls a task for a zombie, ends it from elsewhere and reruns from
// it, without anyone polling the rerun task yet.
func (b *bench) rerunning() (workflow txn.WorkflowID, zombie txn.Task) {
	b.Helper()
	workflow, zombie = b.one(nil)
	// Start times are in milliseconds, and virtual time stands still by itself.
	b.pass(5 * time.Millisecond)
	b.fail(zombie, txn.TaskFailedWithTerminalError, "from elsewhere")
	b.wait(workflow, txn.WorkflowFailed)
	b.must(b.Operator.Rerun(b.ctx, workflow, zombie.ID))
	b.equal("reason", b.wait(workflow, txn.WorkflowRunning).Reason, "")
	return workflow, zombie
}

func rerun(b *bench) {
	workflow, zombie := b.rerunning()
	waiting := b.task(zombie.ID)
	b.equal("status until polled", waiting.Status, txn.TaskScheduled)
	b.equal("worker until polled", waiting.Worker, zombie.Worker)
	b.equal("reason until reported", waiting.Reason, "from elsewhere")
	b.equal("start time until polled", waiting.StartTime, int64(0))
	counted := zombie.PollCount
	if b.Version.RerunResetsPolls() {
		counted = 0
	}
	b.equal("poll count until polled on "+string(b.Version), waiting.PollCount, counted)
	again := b.poll(zombie.Type, "second")
	b.equal("task id", again.ID, zombie.ID)
	b.equal("retry count", again.RetryCount, zombie.RetryCount)
	b.equal("poll count on "+string(b.Version), again.PollCount, counted+1)
	b.equal("worker", again.Worker, txn.WorkerID("second"))
	if again.StartTime <= zombie.StartTime {
		b.Errorf("start time %d, want later than %d", again.StartTime, zombie.StartTime)
	}
	var stale *txn.StaleAttemptError
	if err := txn.AttemptOf(zombie).CurrentTask(b.task(zombie.ID)); !errors.As(err, &stale) {
		b.Errorf("the zombie's attempt is current: %v", err)
	}
	b.update(again, txn.TaskCompleted, object{"by": "second"})
	b.wait(workflow, txn.WorkflowCompleted)
}

func rerunRunning(b *bench) {
	workflow, task := b.one(nil)
	err := b.Operator.Rerun(b.ctx, workflow, task.ID)
	var refused *StatusError
	if !errors.As(err, &refused) || refused.Answer.Status != http.StatusConflict {
		b.Errorf("got %v, want 409", err)
	}
	b.equal("task", b.task(task.ID), task)
}

func zombieCompletes(b *bench) {
	workflow, zombie := b.rerunning()
	again := b.poll(zombie.Type, "second")
	b.update(zombie, txn.TaskCompleted, object{"by": "zombie"})
	b.wait(workflow, txn.WorkflowCompleted)
	read := b.task(zombie.ID)
	b.equal("status", read.Status, txn.TaskCompleted)
	b.equalJSON("output", read.Output, `{"by":"zombie"}`)
	// What a later step can know it by.
	b.equal("poll count", read.PollCount, again.PollCount)
	b.equal("start time", read.StartTime, again.StartTime)
	b.equal("worker", read.Worker, zombie.Worker)
}

func zombieFails(b *bench) {
	workflow, zombie := b.rerunning()
	b.poll(zombie.Type, "second")
	b.fail(zombie, txn.TaskFailed, "honest")
	b.wait(workflow, txn.WorkflowFailed)
	b.equal("the live attempt", b.task(zombie.ID).Status, txn.TaskFailed)
}

// zombieCompletesWaiting: a task that nobody has polled since the rerun is completed
// by its zombie all the same. It has no start time then, and where its poll count is
// still the zombie's, nothing else tells.
func zombieCompletesWaiting(b *bench) {
	workflow, zombie := b.rerunning()
	b.update(zombie, txn.TaskCompleted, object{"by": "zombie"})
	b.wait(workflow, txn.WorkflowCompleted)
	read := b.task(zombie.ID)
	b.equal("status", read.Status, txn.TaskCompleted)
	b.equalJSON("output", read.Output, `{"by":"zombie"}`)
	b.equal("start time", read.StartTime, int64(0))
	b.equal("its poll count is the zombie's, on "+string(b.Version), read.PollCount == zombie.PollCount, !b.Version.RerunResetsPolls())
}

// rerunSameWorker: where polls are counted anew and the worker is the same, the
// start time alone tells the two attempts apart. It does on every version.
func rerunSameWorker(b *bench) {
	_, zombie := b.rerunning()
	again := b.poll(zombie.Type, zombie.Worker)
	b.equal("worker", again.Worker, zombie.Worker)
	var stale *txn.StaleAttemptError
	if err := txn.AttemptOf(zombie).CurrentTask(b.task(zombie.ID)); !errors.As(err, &stale) {
		b.Fatalf("the zombie's attempt is current: %v", err)
	}
	want := txn.StalePollCount
	if b.Version.RerunResetsPolls() {
		want = txn.StaleStartTime
	}
	b.equal("told by, on "+string(b.Version), stale.Reason, want)
	if again.StartTime <= zombie.StartTime {
		b.Errorf("start time %d, want later than %d", again.StartTime, zombie.StartTime)
	}
	b.update(again, txn.TaskCompleted, nil)
}

// updateV2: a worker that reports this way gets its next task with the answer, also
// for an update that was ignored. No worker of this project does.
func updateV2(b *bench) {
	kind := b.taskType("t", nil)
	name := b.workflow("w", nil, simple(kind, "only", nil))
	first, second := b.start(name, nil), b.start(name, nil)
	task := b.poll(kind, "w")
	report := func(task txn.Task, more object) Answer {
		result := object{"taskId": task.ID, "workflowInstanceId": task.Workflow, "workerId": "w"}
		maps.Copy(result, more)
		return b.do("POST", "/tasks/update-v2", result)
	}
	if !b.Version.updateV2() {
		b.equal("answer of "+string(b.Version), report(task, object{"status": txn.TaskCompleted}).Status, http.StatusInternalServerError)
		b.equal("status", b.task(task.ID).Status, txn.TaskInProgress)
		return
	}
	b.equal("lease extended", report(task, object{"status": txn.TaskInProgress, "extendLease": true}).Status, http.StatusNoContent)
	answer := report(task, object{"status": txn.TaskCompleted, "outputData": object{"n": 1}})
	b.equal("answer", answer.Status, http.StatusOK)
	other := first
	if task.Workflow == first {
		other = second
	}
	b.equal("the next one's workflow", answer.Field("workflowInstanceId"), any(string(other)))
	b.equal("its worker", answer.Field("workerId"), any("w"))
	b.equalJSON("output", b.task(task.ID).Output, `{"n":1}`)
	b.wait(task.Workflow, txn.WorkflowCompleted)
	b.equal("nothing more", report(task, object{"status": txn.TaskFailed}).Status, http.StatusNoContent)
	b.equal("status", b.task(task.ID).Status, txn.TaskCompleted)
}

func terminate(b *bench) {
	kind := b.taskType("t", nil)
	undo := b.taskType("undo", nil)
	cancel := b.workflow("cancel", nil, simple(undo, "undo", nil))
	workflow := b.start(b.workflow("w", object{"failureWorkflow": cancel}, simple(kind, "only", nil)), nil)
	task := b.poll(kind, "w")
	b.must(b.Operator.Terminate(b.ctx, workflow, "enough"))
	ended := b.wait(workflow, txn.WorkflowTerminated)
	b.equal("reason", ended.Reason, "enough")
	b.equal("task", b.task(task.ID).Status, txn.TaskCanceled)
	b.update(task, txn.TaskCompleted, object{"late": true})
	b.equal("task after its late completion", b.task(task.ID).Status, txn.TaskCanceled)
	b.equal("failure workflow", b.failureOf(ended), txn.WorkflowID(""))
	b.pollNone(undo, "")
}

// failureOf is the failure workflow that a workflow's output names.
func (b *bench) failureOf(workflow txn.Workflow) txn.WorkflowID {
	b.Helper()
	var output struct {
		Failure txn.WorkflowID `json:"conductor.failure_workflow"`
	}
	if workflow.Output != nil {
		b.must(json.Unmarshal(workflow.Output, &output))
	}
	return output.Failure
}

func failureWorkflow(b *bench) {
	kind := b.taskType("t", object{"retryCount": 3})
	undo := b.taskType("undo", nil)
	cancel := b.workflow("cancel", nil, simple(undo, "undo", object{
		"workflow_id": "${workflow.input.workflowId}", "reason": "${workflow.input.reason}",
		"status": "${workflow.input.failureStatus}", "task": "${workflow.input.failureTaskId}",
		"original": "${workflow.input.asked}", "failed": "${workflow.input.failedWorkflow}",
	}))
	name := b.workflow("w", object{"failureWorkflow": cancel}, simple(kind, "only", object{"a": "b"}))
	workflow := b.startIn(name, object{"asked": "for"}, map[string]string{string(kind): "d" + b.suffix, string(undo): "d" + b.suffix})
	task := b.pollIn(kind, "w", "d"+b.suffix)
	b.fail(task, txn.TaskFailedWithTerminalError, "it can never succeed")
	ended := b.wait(workflow, txn.WorkflowFailed)
	b.equal("retries", len(ended.Tasks), 1)
	started := b.failureOf(ended)
	if started == "" {
		b.Fatalf("the failed workflow's output names no failure workflow: %s", ended.Output)
	}
	// The domains are inherited.
	undoing := b.pollIn(undo, "w", "d"+b.suffix)
	b.equal("workflow", undoing.Workflow, started)
	var input struct {
		WorkflowID string `json:"workflow_id"`
		Reason     string
		Status     string
		Task       string
		Original   string
		Failed     struct {
			WorkflowID string
			Status     string
			Tasks      []struct {
				TaskID    string
				InputData object
			}
		}
	}
	b.must(json.Unmarshal(undoing.Input, &input))
	b.equal("workflow id", input.WorkflowID, string(workflow))
	b.reasonOf(input.Reason, "it can never succeed")
	b.equal("status", input.Status, "FAILED")
	b.equal("task", input.Task, string(task.ID))
	b.equal("original input", input.Original, "for")
	b.equal("failed workflow", input.Failed.WorkflowID, string(workflow))
	b.equal("failed workflow's task", input.Failed.Tasks[0].TaskID, string(task.ID))
	b.equal("failed workflow's task's input", input.Failed.Tasks[0].InputData, object{"a": "b"})
	b.update(undoing, txn.TaskCompleted, nil)
	b.wait(started, txn.WorkflowCompleted)
}

func failureWorkflowMissing(b *bench) {
	kind := b.taskType("t", nil)
	workflow := b.start(b.workflow("w", object{"failureWorkflow": "unregistered_" + b.suffix}, simple(kind, "only", nil)), nil)
	b.fail(b.poll(kind, "w"), txn.TaskFailedWithTerminalError, "no")
	ended := b.wait(workflow, txn.WorkflowFailed)
	var output object
	b.must(json.Unmarshal(ended.Output, &output))
	sentence, _ := output["conductor.failure_workflow"].(string)
	if !strings.Contains(sentence, "unregistered_"+b.suffix) {
		b.Errorf("output %s does not say that the failure workflow is missing", ended.Output)
	}
}

func pause(b *bench) {
	kind, next := b.taskType("t", nil), b.taskType("next", nil)
	workflow := b.start(b.workflow("w", nil, simple(kind, "one", nil), simple(next, "two", nil)), nil)
	task := b.poll(kind, "w")
	b.must(b.Operator.Pause(b.ctx, workflow))
	b.wait(workflow, txn.WorkflowPaused)
	b.equal("the task in progress", b.task(task.ID), task)
	b.update(task, txn.TaskCompleted, object{"done": true})
	b.equal("the task in progress", b.task(task.ID).Status, txn.TaskCompleted)
	b.pollNone(next, "")
	b.must(b.Operator.Resume(b.ctx, workflow))
	b.update(b.poll(next, "w"), txn.TaskCompleted, nil)
	b.wait(workflow, txn.WorkflowCompleted)
}

func optionalTask(b *bench) {
	kind, next := b.taskType("t", object{"retryCount": 1}), b.taskType("next", nil)
	optional := func(reference string) object {
		task := simple(kind, reference, nil)
		task["optional"] = true
		return task
	}
	workflow := b.start(b.workflow("w", nil, optional("one"), optional("two"),
		simple(next, "three", object{"x": "${one.output.x}"})), nil)
	// Retried first, then done with errors.
	first := b.poll(kind, "w")
	b.fail(first, txn.TaskFailed, "once")
	retry := b.poll(kind, "w")
	b.equal("retry count", retry.RetryCount, 1)
	b.equal("reference", retry.ReferenceName, txn.ReferenceName("one"))
	b.fail(retry, txn.TaskFailed, "twice")
	// A terminal failure is not retried.
	second := b.poll(kind, "w")
	b.equal("reference", second.ReferenceName, txn.ReferenceName("two"))
	b.fail(second, txn.TaskFailedWithTerminalError, "never")
	third := b.poll(next, "w")
	b.equalJSON("input", third.Input, `{"x":null}`)
	b.equal("one", b.task(retry.ID).Status, txn.TaskCompletedWithErrors)
	b.equal("two", b.task(second.ID).Status, txn.TaskCompletedWithErrors)
	b.update(third, txn.TaskCompleted, nil)
	b.wait(workflow, txn.WorkflowCompleted)
}

func expressions(b *bench) {
	kind, next := b.taskType("t", nil), b.taskType("next", nil)
	workflow := b.start(b.workflow("w", nil, simple(kind, "one", object{"whole": "${workflow.input}"}), simple(next, "two", object{
		"id": "${workflow.workflowId}", "task": "${one.taskId}", "retry": "${one.retryCount}", "iteration": "${one.iteration}",
		"reference": "${one.referenceTaskName}", "status": "${one.status}", "start": "${one.startTime}",
		"instance": "${one.workflowInstanceId}", "out": "${one.output.deep.er}", "list": []any{"${one.output.deep}", "fixed"},
		"text": "before ${workflow.input.word} after", "asked": "${one.input.whole}", "seq": "${one.seq}",
	})), object{"word": "middle"})
	first := b.poll(kind, "w")
	b.equalJSON("input", first.Input, `{"whole":{"word":"middle"}}`)
	b.update(first, txn.TaskCompleted, object{"deep": object{"er": 7}})
	second := b.poll(next, "w")
	want, err := json.Marshal(object{
		"id": workflow, "task": first.ID, "retry": 0, "iteration": 0, "reference": "one", "status": "COMPLETED",
		"start": first.StartTime, "instance": workflow, "out": 7, "list": []any{object{"er": 7}, "fixed"},
		"text": "before middle after", "asked": object{"word": "middle"}, "seq": nil,
	})
	b.must(err)
	b.equalJSON("input", second.Input, string(want))
}

func unresolved(b *bench) {
	kind := b.taskType("t", nil)
	b.start(b.workflow("w", nil, simple(kind, "only", object{
		"absent": "${workflow.input.absent}", "deeper": "${workflow.input.absent.deeper}", "later": "${later.output.x}",
		"inside": object{"absent": "${workflow.input.absent}"}, "present": "${workflow.input.present}",
	}), simple(kind, "later", nil)), object{"present": "here"})
	b.equalJSON("input", b.poll(kind, "w").Input,
		`{"absent":null,"deeper":null,"later":null,"inside":{"absent":null},"present":"here"}`)
}

// externalPayload: a task whose input is large is handed out with an empty one.
func externalPayload(b *bench) {
	kind := b.taskType("t", nil)
	for kib, outside := range map[int]bool{1024: false, 4096: true} {
		b.start(b.workflow(fmt.Sprintf("w%d", kib), nil, simple(kind, "only", object{"x": "${workflow.input.x}", "y": 1})), object{"x": strings.Repeat("x", kib<<10)})
		polled := b.poll(kind, "w")
		read := b.task(polled.ID)
		for how, task := range map[string]txn.Task{"polled": polled, "read": read} {
			b.equal(how+": kept outside", task.ExternalInput, outside)
			b.equal(how+": output kept outside", task.ExternalOutput, false)
			if outside {
				b.equalJSON(how, task.Input, `{}`)
			}
		}
	}
}

func inputTemplate(b *bench) {
	kind := b.taskType("t", object{"inputTemplate": object{
		"budget": object{"a": 1, "b": 2}, "other": "template", "from": "${workflow.input.word}",
	}})
	b.start(b.workflow("w", nil, simple(kind, "only", object{"budget": object{"a": 9}})), object{"word": "said"})
	b.equalJSON("input", b.poll(kind, "w").Input, `{"budget":{"a":9},"other":"template","from":"said"}`)
}

func changedTaskDef(b *bench) {
	kind := b.taskType("t", object{"retryCount": 1, "responseTimeoutSeconds": 100})
	name := b.workflow("w", nil, simple(kind, "one", nil), simple(kind, "two", nil))
	old := b.start(name, nil)
	first := b.poll(kind, "w")
	b.taskType("t", object{"retryCount": 1, "responseTimeoutSeconds": 200})
	b.fail(first, txn.TaskFailed, "once")
	retry := b.poll(kind, "w")
	b.equal("a retry in the running workflow", retry.Definition.ResponseTimeoutSeconds, int64(100))
	b.update(retry, txn.TaskCompleted, nil)
	later := b.poll(kind, "w")
	b.equal("a later task of the running workflow", later.Definition.ResponseTimeoutSeconds, int64(100))
	b.update(later, txn.TaskCompleted, nil)
	b.wait(old, txn.WorkflowCompleted)
	b.start(name, nil)
	b.equal("a workflow started afterwards", b.poll(kind, "w").Definition.ResponseTimeoutSeconds, int64(200))
}

func taskDomain(b *bench) {
	kind := b.taskType("t", nil)
	name := b.workflow("w", nil, simple(kind, "only", nil))
	domain := "d" + b.suffix
	b.startIn(name, nil, map[string]string{string(kind): domain})
	b.pollNone(kind, "")
	b.pollNone(kind, "other"+b.suffix)
	task := b.pollIn(kind, "w", domain)
	b.equal("domain", task.Domain, domain)
	// A retry and a return to the queue stay in the domain.
	b.must(b.Client.Update(b.ctx, txn.TaskResult{Task: task.ID, Workflow: task.Workflow, Status: txn.TaskInProgress}))
	b.pollNone(kind, "")
	b.equal("task", b.pollIn(kind, "w", domain).ID, task.ID)
}

func starDomain(b *bench) {
	kind, next := b.taskType("t", nil), b.taskType("next", nil)
	domain := "d" + b.suffix
	b.startIn(b.workflow("w", nil, simple(kind, "one", nil), simple(next, "two", nil)), nil, map[string]string{"*": domain})
	b.update(b.pollIn(kind, "w", domain), txn.TaskCompleted, nil)
	b.equal("domain", b.pollIn(next, "w", domain).Domain, domain)
}

// taskLog: a line for a task's log is taken as it is and leaves the task alone: it
// is no sign of life, and neither the task's state nor whether there is one is
// asked. A server without an index drops it.
func taskLog(b *bench) {
	const line = `upload: 5 of 10 objects, "half"`
	workflow, task := b.one(object{"responseTimeoutSeconds": 3})
	before := b.raw(task.ID)
	b.pass(5 * time.Millisecond)
	b.must(b.Client.LogTask(b.ctx, task.ID, line))
	b.equal("task after a line for its log", string(b.raw(task.ID).Body), string(before.Body))
	if b.Version.keepsLogs() {
		var lines []struct {
			Log    string
			TaskID txn.TaskID
		}
		b.eventually("a line in the log", func() bool {
			b.must(json.Unmarshal(b.do("GET", "/tasks/"+string(task.ID)+"/log", nil).Body, &lines))
			return len(lines) > 0
		})
		b.equal("lines", len(lines), 1)
		b.equal("line", lines[0].Log, line)
		b.equal("its task", lines[0].TaskID, task.ID)
	} else {
		b.equal("lines", b.do("GET", "/tasks/"+string(task.ID)+"/log", nil), Answer{http.StatusOK, []byte("[]")})
	}
	if err := b.Client.LogTask(b.ctx, task.ID, ""); !errors.Is(err, txn.ErrRefused) {
		b.Errorf("an empty line: got %v, want ErrRefused", err)
	}
	b.equal("an empty line", b.do("POST", "/tasks/"+string(task.ID)+"/log", nil).Status, http.StatusInternalServerError)

	// The response timeout passes all the same.
	var status txn.TaskStatus
	b.eventually("the task timed out", func() bool {
		b.must(b.Client.LogTask(b.ctx, task.ID, "still here"))
		b.decide(workflow)
		status = b.task(task.ID).Status
		return status != txn.TaskInProgress
	})
	b.equal("status", status, txn.TaskTimedOut)
	b.must(b.Client.LogTask(b.ctx, task.ID, "of a task that is over"))
	b.equal("status", b.task(task.ID).Status, txn.TaskTimedOut)
	b.must(b.Client.LogTask(b.ctx, "no-such-task", "of nobody"))
}
