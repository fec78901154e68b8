package model

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"perago/pkg/conductor/conductortest"
	"perago/pkg/txn"
)

// step is one task of the workflow's definition.
type step struct {
	reference  txn.ReferenceName
	definition *txn.TaskDefinition
	// input makes the task's input when it is scheduled.
	input func(w *workflow) json.RawMessage
}

// workflow is one workflow instance. Its tasks are in the order of scheduling.
type workflow struct {
	id     txn.WorkflowID
	status txn.WorkflowStatus
	steps  []step
	// failure are the steps of its failure workflow; nil when it has none.
	failure []step
	tasks   []txn.Task
	// made counts the tasks that were ever scheduled: each has an id of its own.
	made int
	// reruns counts the reruns: time has passed at each.
	reruns int
}

// last is the newest task of a reference name; nil when there is none.
func (w *workflow) last(reference txn.ReferenceName) *txn.Task {
	for i := len(w.tasks) - 1; i >= 0; i-- {
		if w.tasks[i].ReferenceName == reference {
			return &w.tasks[i]
		}
	}
	return nil
}

// conductorModel is a Conductor with the few workflows of a scenario, small enough to
// be copied and hashed for every schedule. Retries come without delay, and a task
// times out when a scenario says so. TestTheModelIsTheMemoryServer holds it to the
// memory server.
type conductorModel struct {
	version   conductortest.Version
	workflows []*workflow
}

func (c *conductorModel) clone() *conductorModel {
	copied := &conductorModel{version: c.version, workflows: make([]*workflow, len(c.workflows))}
	for i, w := range c.workflows {
		one := *w
		one.tasks = slices.Clone(w.tasks)
		copied.workflows[i] = &one
	}
	return copied
}

// digest is the hash of what anybody can read and what decides what comes next.
func (c *conductorModel) digest() uint64 {
	var sum uint64
	for _, w := range c.workflows {
		sum = sum*31 + hashOf(string(w.id), string(w.status)) + uint64(w.made) + uint64(w.reruns)<<8
		for _, t := range w.tasks {
			sum = sum*31 + taskDigest(t)
		}
	}
	return sum
}

func taskDigest(t txn.Task) uint64 {
	return hashOf(string(t.ID), string(t.Status), string(t.Worker), string(t.Input), string(t.Output)) +
		uint64(t.RetryCount) + uint64(t.PollCount)<<8 + uint64(t.StartTime)<<16
}

func (c *conductorModel) find(id txn.TaskID) (*workflow, *txn.Task) {
	for _, w := range c.workflows {
		for i := range w.tasks {
			if w.tasks[i].ID == id {
				return w, &w.tasks[i]
			}
		}
	}
	return nil, nil
}

func (c *conductorModel) workflow(id txn.WorkflowID) *workflow {
	for _, w := range c.workflows {
		if w.id == id {
			return w
		}
	}
	return nil
}

func noSuch(what string) error {
	return &txn.ServerError{Server: "Conductor", Method: "model", Status: 404, Class: txn.ErrRefused, Kind: txn.ErrNotFound, Message: what}
}

// decide takes a workflow as far as it goes without a worker.
func (c *conductorModel) decide(w *workflow) {
	if w.status != txn.WorkflowRunning {
		return
	}
	for i := range w.steps {
		s := &w.steps[i]
		t := w.last(s.reference)
		switch {
		case t == nil:
			w.schedule(s, 0)
			return
		case t.Status.Open():
			return
		case t.Status == txn.TaskCompleted:
			continue
		case t.Status != txn.TaskFailedWithTerminalError && t.RetryCount < s.definition.RetryCount:
			w.schedule(s, t.RetryCount+1)
			return
		}
		status := txn.WorkflowFailed
		if t.Status == txn.TaskTimedOut {
			status = txn.WorkflowTimedOut
		}
		w.close(status)
		if w.failure != nil {
			id := fmt.Sprintf("%08x%s", len(c.workflows), theOne[8:])
			c.start(txn.WorkflowID(id), w.failure)
		}
		return
	}
	w.status = txn.WorkflowCompleted
}

func (w *workflow) schedule(s *step, retry int) {
	w.made++
	w.tasks = append(w.tasks, txn.Task{
		ID:       txn.TaskID(fmt.Sprintf("%s-%s-%d", w.id[:8], s.reference, w.made)),
		Workflow: w.id, Type: s.definition.Name, ReferenceName: s.reference, Status: txn.TaskScheduled,
		RetryCount: retry, Input: s.input(w), Definition: s.definition,
	})
}

func (w *workflow) close(status txn.WorkflowStatus) {
	w.status = status
	for i := range w.tasks {
		if w.tasks[i].Status.Open() {
			w.tasks[i].Status = txn.TaskCanceled
		}
	}
}

// Poll hands out one task.
func (c *conductorModel) Poll(_ context.Context, request txn.PollRequest) ([]txn.Task, error) {
	w, t := c.queued(request.Type)
	if t == nil {
		return nil, nil
	}
	t.Status, t.Worker = txn.TaskInProgress, request.Worker
	t.PollCount++
	if t.StartTime == 0 {
		// Conductor's clock, which another poll of the task reads differently.
		t.StartTime = int64(1_000_000 + 1000*t.RetryCount + t.PollCount + w.reruns*100)
	}
	return []txn.Task{*t}, nil
}

// queued is the next task of a type and its workflow; nil when there is none.
func (c *conductorModel) queued(kind txn.TaskType) (*workflow, *txn.Task) {
	for _, w := range c.workflows {
		for i := range w.tasks {
			if w.tasks[i].Type == kind && w.tasks[i].Status == txn.TaskScheduled {
				return w, &w.tasks[i]
			}
		}
	}
	return nil, nil
}

// Task reads a task.
func (c *conductorModel) Task(_ context.Context, id txn.TaskID) (txn.Task, error) {
	if _, t := c.find(id); t != nil {
		return *t, nil
	}
	return txn.Task{}, noSuch("task")
}

// WorkflowStatus reads a workflow's status.
func (c *conductorModel) WorkflowStatus(_ context.Context, id txn.WorkflowID) (txn.WorkflowStatus, error) {
	if w := c.workflow(id); w != nil {
		return w.status, nil
	}
	return "", noSuch("workflow")
}

// Workflow reads a workflow with its tasks.
func (c *conductorModel) Workflow(_ context.Context, id txn.WorkflowID) (txn.Workflow, error) {
	if w := c.workflow(id); w != nil {
		return txn.Workflow{ID: w.id, Name: "model", Status: w.status, Tasks: slices.Clone(w.tasks)}, nil
	}
	return txn.Workflow{}, noSuch("workflow")
}

// Update takes a worker's report: of a task that is over it is answered like any
// other and ignored, and whose report it is nobody asks.
func (c *conductorModel) Update(_ context.Context, result txn.TaskResult) error {
	w, t := c.find(result.Task)
	switch {
	case c.workflow(result.Workflow) == nil:
		return noSuch("workflow")
	case t == nil:
		return noSuch("task")
	case !t.Status.Open() || w.status.Terminal():
		return nil
	}
	output, err := json.Marshal(result.Output)
	if err != nil {
		return err
	}
	t.Status, t.Worker, t.Output = result.Status, result.Worker, output
	if result.Status == txn.TaskInProgress {
		t.Status = txn.TaskScheduled
	}
	c.decide(w)
	return nil
}

func (c *conductorModel) start(id txn.WorkflowID, steps []step) {
	w := &workflow{id: id, status: txn.WorkflowRunning, steps: steps}
	c.workflows = append(c.workflows, w)
	c.decide(w)
}

// timeOut is a response timeout.
func (c *conductorModel) timeOut(id txn.TaskID) {
	w, t := c.find(id)
	t.Status = txn.TaskTimedOut
	c.decide(w)
}

// terminate ends a workflow from outside.
func (c *conductorModel) terminate(id txn.WorkflowID) { c.workflow(id).close(txn.WorkflowTerminated) }

// rerun begins anew at a task, which keeps its id and its retry count, and its poll
// count as the version has it.
func (c *conductorModel) rerun(id txn.TaskID) {
	w, t := c.find(id)
	at := slices.IndexFunc(w.tasks, func(t txn.Task) bool { return t.ID == id })
	w.tasks = w.tasks[:at+1]
	w.status = txn.WorkflowRunning
	w.reruns++
	t.Status, t.StartTime, t.Output = txn.TaskScheduled, 0, nil
	if c.version.RerunResetsPolls() {
		t.PollCount = 0
	}
}

// restart forgets every task and begins anew under the same id.
func (c *conductorModel) restart(id txn.WorkflowID) {
	w := c.workflow(id)
	w.tasks, w.status = nil, txn.WorkflowRunning
	c.decide(w)
}

// retry schedules the failed task again, as a new task.
func (c *conductorModel) retry(id txn.WorkflowID) {
	w := c.workflow(id)
	for i := range w.steps {
		t := w.last(w.steps[i].reference)
		if t == nil {
			return
		}
		if t.Status != txn.TaskCompleted {
			w.status = txn.WorkflowRunning
			w.schedule(&w.steps[i], t.RetryCount+1)
			return
		}
	}
}
