package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"perago/pkg/txn"
)

// Queue is where tasks of a type wait in a domain.
type Queue struct {
	Type   txn.TaskType
	Domain string
	// Waiting is how many tasks the queue holds.
	Waiting int
	// Polled is the latest poll; zero when nobody ever polled.
	Polled time.Time
}

// system are the types of Conductor's own tasks: no worker of anybody's takes them.
var system = []txn.TaskType{
	"FORK", "FORK_JOIN", "FORK_JOIN_DYNAMIC", "JOIN", "EXCLUSIVE_JOIN", "DO_WHILE", "SWITCH", "DECISION", "SUB_WORKFLOW", "START_WORKFLOW",
	"WAIT", "HUMAN", "EVENT", "HTTP", "LAMBDA", "INLINE", "JSON_JQ_TRANSFORM", "KAFKA_PUBLISH", "SET_VARIABLE", "TERMINATE", "NOOP", "DYNAMIC",
}

func isSystem(task txn.Task) bool { return slices.Contains(system, task.Type) }

func isPerago(task txn.Task) bool {
	return task.Type.IsStage() || task.Type.IsPublish() || task.Type.IsCleanup() || task.Type.IsCheckout()
}

// Waiting are the tasks of a workflow that have waited long for a worker. Their
// queues have to be read (Facts.Queues).
func Waiting(workflow txn.Workflow, now time.Time) []txn.Task {
	var all []txn.Task
	for _, task := range workflow.Tasks {
		if !isSystem(task) && task.WaitsLong(now) {
			all = append(all, task)
		}
	}
	return all
}

// late says why an open task does not get on, and what to do; empty when it does,
// or when that is not known.
func (f Facts) late(task txn.Task) (what, next string) {
	if f.Workflow.Status.Terminal() || isSystem(task) {
		return "", ""
	}
	switch task.Status {
	case txn.TaskInProgress:
		silent := f.Now.Sub(task.Times.Updated)
		if task.Times.ResponseTimeout <= 0 || task.Times.Updated.IsZero() || silent <= task.Times.ResponseTimeout+txn.WaitPatience/2 {
			return "", ""
		}
		return fmt.Sprintf("no sign of its worker %s for %s, and its response timeout is %s", task.Worker, seconds(silent), seconds(task.Times.ResponseTimeout)),
			fmt.Sprintf("Conductor has not noticed that the lease of %s is over; have it look: PUT /api/workflow/decide/%s", task.ReferenceName, task.Workflow)
	case txn.TaskScheduled:
		at := slices.IndexFunc(f.Queues, func(q Queue) bool { return q.Type == task.Type && q.Domain == task.Domain })
		if at < 0 {
			return "", ""
		}
		queue, where := f.Queues[at], "without a domain"
		if task.Domain != "" {
			where = "in the domain " + task.Domain
		}
		waited := seconds(f.Now.Sub(task.WaitsSince()))
		switch txn.DecideWait(task, txn.QueueState{Waiting: queue.Waiting, Polled: queue.Polled}, f.Now) {
		case txn.WaitNeverPolled:
			return fmt.Sprintf("waits for %s, and no worker ever polled for %s %s", waited, task.Type, where),
				fmt.Sprintf("start a worker that polls for %s %s", task.Type, where)
		case txn.WaitNotPolled:
			return fmt.Sprintf("waits for %s, and the last poll for %s %s was %s ago", waited, task.Type, where, seconds(f.Now.Sub(queue.Polled))),
				fmt.Sprintf("look at the workers that poll for %s %s: all are busy, or none runs", task.Type, where)
		case txn.WaitLost:
			return fmt.Sprintf("waits for %s, workers poll for %s %s, and its queue is empty: Conductor lost it", waited, task.Type, where),
				fmt.Sprintf("Conductor lost %s from its queue; put it back: POST /api/tasks/queue/requeue/%s (%s)", task.ReferenceName, task.Type, txn.RequeueTwice)
		}
	}
	return "", ""
}

func seconds(d time.Duration) string { return d.Round(time.Second).String() }

// latest are the last tries of a workflow's tasks, in the order of their first ones.
func latest(workflow txn.Workflow) []txn.Task {
	var names []txn.ReferenceName
	last := map[txn.ReferenceName]txn.Task{}
	for _, task := range workflow.Tasks {
		if _, seen := last[task.ReferenceName]; !seen {
			names = append(names, task.ReferenceName)
		}
		last[task.ReferenceName] = task
	}
	all := make([]txn.Task, 0, len(names))
	for _, name := range names {
		all = append(all, last[name])
	}
	return all
}

// failed says what to do about the tasks whose failure ended the workflow and that
// no step speaks of.
func (f Facts) failed() []string {
	if !f.Workflow.Status.Terminal() || f.Workflow.Status == txn.WorkflowCompleted {
		return nil
	}
	var all []string
	for _, task := range latest(f.Workflow) {
		switch {
		case task.Type.IsStage(), task.Type.IsPublish(), task.Type.IsCleanup(), isSystem(task):
			continue
		case task.Status != txn.TaskFailed && task.Status != txn.TaskFailedWithTerminalError && task.Status != txn.TaskTimedOut:
			continue
		}
		all = append(all, fmt.Sprintf("%s is %s%s; mend the cause and retry the workflow in Conductor, which goes on from that task, or start a new one from the head",
			task.ReferenceName, task.Status, because(task.Reason)))
	}
	return all
}

// users are the tasks that are neither perago's nor Conductor's own.
func (f Facts) users() []Attempt {
	all := []Attempt{}
	for _, task := range f.Workflow.Tasks {
		if !isPerago(task) && !isSystem(task) {
			all = append(all, f.attempt(task))
		}
	}
	return all
}

// Rest is the sentence about what to do where Next is empty; empty when something
// was not read.
func (e Explanation) Rest() string {
	switch {
	case len(e.Next) > 0, len(e.Problems) > 0:
		return ""
	case e.Status == txn.WorkflowCompleted:
		return "There is nothing to do."
	}
	return "Nothing is late. Wait: the workflow is under way."
}

// forSub is advice about a sub-workflow, said of its parent.
func forSub(sub txn.WorkflowID, next string) string {
	if strings.HasPrefix(next, "sub-workflow ") {
		return next
	}
	return fmt.Sprintf("sub-workflow %s: %s", sub, next)
}
