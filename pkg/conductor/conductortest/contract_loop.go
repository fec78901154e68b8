package conductortest

import (
	"fmt"
	"testing"

	"perago/pkg/txn"
)

// LoopContract is what the protocol and the linter rely on of loops. The memory
// server has none, so it is for real servers alone.
func LoopContract(t *testing.T, newSubject func(t *testing.T, row func(*testing.T, Conductor))) {
	run(t, []row{
		{"loop", loopIterations},
		{"retry in a loop", loopRetry},
		{"loop inside a loop", nestedLoop},
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
