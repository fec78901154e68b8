package conductortest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"perago/pkg/txn"
)

// ServerContract is what the protocol and the linter rely on of features that the
// memory server does not have, so it is for real servers alone.
func ServerContract(t *testing.T, newSubject func(t *testing.T, row func(*testing.T, Conductor))) {
	run(t, []row{
		{"loop", loopIterations},
		{"retry in a loop", loopRetry},
		{"loop inside a loop", nestedLoop},
		{"loop that keeps its last iterations", loopKeepsLast},
		{"permissive task", permissiveTask},
		{"total timeout", totalTimeout},
		{"idempotency key", idempotencyKey},
	}, newSubject)
}

// loop is a DO_WHILE task that goes round twice.
func loop(reference string, over ...object) object {
	return object{
		"name": reference, "taskReferenceName": reference, "type": "DO_WHILE",
		"loopCondition": fmt.Sprintf("if ($.%s['iteration'] < 2) { true; } else { false; }", reference), "loopOver": over,
	}
}

// loopIterations: each iteration is a task of its own, whose reference name ends in
// its number, and an expression inside the loop means the task of its iteration.
func loopIterations(b *bench) {
	kind, next := b.taskType("t", nil), b.taskType("next", nil)
	id := b.start(b.workflow("w", nil, loop("loop", simple(kind, "one", nil), simple(next, "two", object{
		"reference": "${one.referenceTaskName}", "iteration": "${one.iteration}", "out": "${one.output.n}",
	}))), nil)
	seen := map[txn.TaskID]bool{}
	for n := 1; n <= 2; n++ {
		first := b.poll(kind, "w")
		b.equal("reference", first.ReferenceName, txn.ReferenceName(fmt.Sprintf("one__%d", n)))
		b.equal("iteration", first.Iteration, n)
		b.equal("retry count", first.RetryCount, 0)
		b.update(first, txn.TaskCompleted, object{"n": n})
		second := b.poll(next, "w")
		b.equalJSON("input", second.Input, fmt.Sprintf(`{"reference":"one__%d","iteration":%d,"out":%d}`, n, n, n))
		b.update(second, txn.TaskCompleted, nil)
		seen[first.ID] = true
	}
	b.equal("tasks", len(seen), 2)
	b.wait(id, txn.WorkflowCompleted)
}

// loopRetry: a retry keeps the reference name and the iteration.
func loopRetry(b *bench) {
	kind := b.taskType("t", object{"retryCount": 1})
	id := b.start(b.workflow("w", nil, loop("loop", simple(kind, "one", nil))), nil)
	b.update(b.poll(kind, "w"), txn.TaskCompleted, nil)
	first := b.poll(kind, "w")
	b.fail(first, txn.TaskFailed, "once")
	again := b.poll(kind, "w")
	b.equal("reference", again.ReferenceName, first.ReferenceName)
	b.equal("iteration", again.Iteration, 2)
	b.equal("retry count", again.RetryCount, 1)
	b.update(again, txn.TaskCompleted, nil)
	b.wait(id, txn.WorkflowCompleted)
}

// nestedLoop: a loop inside a loop fails by itself after the inner one's first
// iteration, for the inner condition looks for the loop under a name that it does
// not have there. perago lint says so.
func nestedLoop(b *bench) {
	kind := b.taskType("t", nil)
	id := b.start(b.workflow("w", nil, loop("outer", loop("inner", simple(kind, "one", nil)))), nil)
	b.update(b.poll(kind, "w"), txn.TaskCompleted, nil)
	b.reasonOf(b.wait(id, txn.WorkflowFailed).Reason, "Unable to evaluate condition")
}

// loopKeepsLast: with keepLastN the tasks of earlier iterations are taken out of the
// workflow, where the server knows it.
func loopKeepsLast(b *bench) {
	kind := b.taskType("t", nil)
	keeping := loop("loop", simple(kind, "one", nil))
	keeping["loopCondition"] = "if ($.loop['iteration'] < 3) { true; } else { false; }"
	keeping["inputParameters"] = object{"keepLastN": 1}
	id := b.start(b.workflow("w", nil, keeping), nil)
	for range 3 {
		b.update(b.poll(kind, "w"), txn.TaskCompleted, nil)
	}
	var left []string
	for _, task := range b.wait(id, txn.WorkflowCompleted).Tasks {
		if task.Type == kind {
			left = append(left, string(task.ReferenceName))
		}
	}
	want := "one__1 one__2 one__3"
	if b.Version.dropsIterations() {
		want = "one__3"
	}
	b.equal("tasks left on "+string(b.Version), strings.Join(left, " "), want)
}

// permissiveTask: the workflow goes on behind a permissive task that failed, and
// fails when all else has ended, where the server knows the word.
func permissiveTask(b *bench) {
	kind, next := b.taskType("t", nil), b.taskType("next", nil)
	permissive := simple(kind, "one", nil)
	permissive["permissive"] = true
	id := b.start(b.workflow("w", nil, permissive, simple(next, "two", nil)), nil)
	b.fail(b.poll(kind, "w"), txn.TaskFailed, "once")
	if b.Version.permissive() {
		b.update(b.poll(next, "w"), txn.TaskCompleted, nil)
	}
	b.wait(id, txn.WorkflowFailed)
}

// totalTimeout: a bound on all attempts of a task together ends its retries, where
// the server knows it. Conductor looks at it when an attempt has failed.
func totalTimeout(b *bench) {
	kind := b.taskType("t", object{"retryCount": 2, "retryDelaySeconds": 3, "totalTimeoutSeconds": 2, "timeoutSeconds": 2, "responseTimeoutSeconds": 1})
	id := b.start(b.workflow("w", nil, simple(kind, "one", nil)), nil)
	b.fail(b.poll(kind, "w"), txn.TaskFailed, "first")
	b.fail(b.poll(kind, "w"), txn.TaskFailed, "second")
	reason := "exceeded total timeout of 2 seconds"
	if !b.Version.totalTimeout() {
		b.fail(b.poll(kind, "w"), txn.TaskFailed, "third")
		reason = "third"
	}
	b.reasonOf(b.wait(id, txn.WorkflowFailed).Reason, reason)
}

// idempotencyKey: a start request's key is taken and ignored; two starts with one key
// are two workflows.
func idempotencyKey(b *bench) {
	kind := b.taskType("t", nil)
	name := b.workflow("w", nil, simple(kind, "one", nil))
	started := map[string]bool{}
	for range 2 {
		answer, err := b.Operator.Do(b.ctx, http.MethodPost, "/workflow", object{
			"name": name, "version": 1, "input": object{}, "idempotencyKey": b.suffix, "idempotencyStrategy": "RETURN_EXISTING",
		})
		b.must(err)
		b.equal("status", answer.Status, http.StatusOK)
		started[string(answer.Body)] = true
		b.update(b.poll(kind, "w"), txn.TaskCompleted, nil)
	}
	b.equal("workflows", len(started), 2)
}
