package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"perago/pkg/txn"
)

// memoryConductor is the port in memory, as small as these tests need it: queues,
// the poll identity, updates that are ignored once a task is over. Its clock is
// the bubble's.
type memoryConductor struct {
	mu          sync.Mutex
	queues      map[string][]txn.TaskID
	tasks       map[txn.TaskID]*txn.Task
	workflows   map[txn.WorkflowID]txn.WorkflowStatus
	definitions map[txn.TaskType]txn.TaskDefinition
	calls       []conductorCall
	// before runs when a call arrives: an error means the call did nothing. after
	// runs when it has taken effect: an error means the answer got lost.
	before, after func(ctx context.Context, call conductorCall) error
}

// conductorCall is one call of the port, numbered from 1 for each method.
type conductorCall struct {
	Method string
	Number int
	At     time.Time
	Poll   txn.PollRequest
	Task   txn.TaskID
	Result txn.TaskResult
}

func newMemoryConductor() *memoryConductor {
	return &memoryConductor{
		queues: map[string][]txn.TaskID{}, tasks: map[txn.TaskID]*txn.Task{},
		workflows: map[txn.WorkflowID]txn.WorkflowStatus{}, definitions: map[txn.TaskType]txn.TaskDefinition{},
	}
}

func (c *memoryConductor) call(ctx context.Context, call conductorCall, do func() error) error {
	c.mu.Lock()
	call.At, call.Number = time.Now(), 1
	for _, earlier := range c.calls {
		if earlier.Method == call.Method {
			call.Number++
		}
	}
	c.calls = append(c.calls, call)
	before, after := c.before, c.after
	c.mu.Unlock()
	if before != nil {
		if err := before(ctx, call); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w: %w", call.Method, txn.ErrUnknownOutcome, err)
	}
	c.mu.Lock()
	err := do()
	c.mu.Unlock()
	if err == nil && after != nil {
		err = after(ctx, call)
	}
	return err
}

func (c *memoryConductor) Poll(ctx context.Context, request txn.PollRequest) (tasks []txn.Task, err error) {
	err = c.call(ctx, conductorCall{Method: "Poll", Poll: request}, func() error {
		name := queueName(request.Type, request.Domain)
		for len(tasks) < request.Count && len(c.queues[name]) > 0 {
			task := c.tasks[c.queues[name][0]]
			c.queues[name] = c.queues[name][1:]
			task.Status, task.Worker = txn.TaskInProgress, request.Worker
			task.PollCount++
			if task.StartTime == 0 {
				task.StartTime = time.Now().UnixMilli()
			}
			tasks = append(tasks, *task)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return tasks, nil
}

func (c *memoryConductor) Task(ctx context.Context, id txn.TaskID) (task txn.Task, err error) {
	err = c.call(ctx, conductorCall{Method: "Task", Task: id}, func() error {
		if c.tasks[id] == nil {
			return fmt.Errorf("task %s: %w: %w", id, txn.ErrRefused, txn.ErrNotFound)
		}
		task = *c.tasks[id]
		return nil
	})
	return task, err
}

func (c *memoryConductor) WorkflowStatus(ctx context.Context, id txn.WorkflowID) (status txn.WorkflowStatus, err error) {
	err = c.call(ctx, conductorCall{Method: "WorkflowStatus"}, func() error {
		status = c.workflows[id]
		if status == "" {
			return fmt.Errorf("workflow %s: %w: %w", id, txn.ErrRefused, txn.ErrNotFound)
		}
		return nil
	})
	return status, err
}

func (c *memoryConductor) Update(ctx context.Context, result txn.TaskResult) error {
	return c.call(ctx, conductorCall{Method: "Update", Task: result.Task, Result: result}, func() error {
		task := c.tasks[result.Task]
		switch {
		case task == nil:
			return fmt.Errorf("task %s: %w: %w", result.Task, txn.ErrRefused, txn.ErrNotFound)
		case !task.Status.Open():
			return nil // ignored, and answered all the same
		}
		task.Worker, task.Reason = result.Worker, result.Reason
		task.Status = result.Status
		if result.Status == txn.TaskInProgress {
			c.enqueue(task)
		}
		return nil
	})
}

func (c *memoryConductor) ExtendLease(ctx context.Context, _ txn.WorkflowID, task txn.TaskID, _ txn.WorkerID) error {
	return c.call(ctx, conductorCall{Method: "ExtendLease", Task: task}, func() error { return nil })
}

func (c *memoryConductor) TaskDefinition(ctx context.Context, name txn.TaskType) (definition txn.TaskDefinition, err error) {
	err = c.call(ctx, conductorCall{Method: "TaskDefinition"}, func() error {
		var ok bool
		if definition, ok = c.definitions[name]; !ok {
			return fmt.Errorf("taskdef %s: %w: %w", name, txn.ErrRefused, txn.ErrNotFound)
		}
		return nil
	})
	return definition, err
}

func (c *memoryConductor) Ping(ctx context.Context) error {
	return c.call(ctx, conductorCall{Method: "Ping"}, func() error { return nil })
}

// register adds a TaskDef, as `perago register` would.
func (c *memoryConductor) register(definition txn.TaskDefinition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.definitions[definition.Name] = definition
}

// schedule puts a task of a workflow of its own into its queue.
func (c *memoryConductor) schedule(id txn.TaskID, taskType txn.TaskType, domain string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	definition := c.definitions[taskType]
	workflow := txn.WorkflowID("workflow-of-" + id)
	task := &txn.Task{
		ID: id, Workflow: workflow, Type: taskType, Domain: domain,
		ReferenceName: "step_of_" + txn.ReferenceName(id), Definition: &definition,
	}
	c.tasks[id], c.workflows[workflow] = task, txn.WorkflowRunning
	c.enqueue(task)
}

// rerun puts a task back as Conductor's rerun does: same id, same retry count,
// start time 0 until it is polled.
func (c *memoryConductor) rerun(id txn.TaskID) {
	c.edit(id, func(task *txn.Task) {
		task.StartTime = 0
		c.enqueue(task)
	})
}

func (c *memoryConductor) enqueue(task *txn.Task) {
	task.Status = txn.TaskScheduled
	name := queueName(task.Type, task.Domain)
	c.queues[name] = append(c.queues[name], task.ID)
}

func (c *memoryConductor) edit(id txn.TaskID, change func(*txn.Task)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c.tasks[id])
}

func (c *memoryConductor) remove(id txn.TaskID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tasks, id)
}

func (c *memoryConductor) setWorkflow(id txn.WorkflowID, status txn.WorkflowStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workflows[id] = status
}

// fail makes calls fail from now on; nil ends it.
func (c *memoryConductor) fail(before, after func(ctx context.Context, call conductorCall) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before, c.after = before, after
}

func (c *memoryConductor) status(id txn.TaskID) txn.TaskStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tasks[id].Status
}

// made lists the calls of a method so far.
func (c *memoryConductor) made(method string) []conductorCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	var calls []conductorCall
	for _, call := range c.calls {
		if call.Method == method {
			calls = append(calls, call)
		}
	}
	return slices.Clone(calls)
}

// updates lists what was sent for a task.
func (c *memoryConductor) updates(id txn.TaskID) []txn.TaskResult {
	var results []txn.TaskResult
	for _, call := range c.made("Update") {
		if call.Task == id {
			results = append(results, call.Result)
		}
	}
	return results
}

func queueName(taskType txn.TaskType, domain string) string { return string(taskType) + " " + domain }

// on makes a fault for calls of one method.
func on(method string, fault func(ctx context.Context, call conductorCall) error) func(context.Context, conductorCall) error {
	return func(ctx context.Context, call conductorCall) error {
		if call.Method != method {
			return nil
		}
		return fault(ctx, call)
	}
}

// down is a server that does not answer.
func down(context.Context, conductorCall) error {
	return &txn.ServerError{Server: "Conductor", Method: "GET", Path: "/api", Class: txn.ErrRetryable, Message: "connection refused"}
}

// lost is an answer that got lost.
func lost(context.Context, conductorCall) error {
	return &txn.ServerError{Server: "Conductor", Method: "POST", Path: "/api/tasks", Class: txn.ErrUnknownOutcome, Message: "connection reset"}
}

// hang is a connection that never answers.
func hang(ctx context.Context, call conductorCall) error {
	<-ctx.Done()
	return fmt.Errorf("%s: %w: %w", call.Method, txn.ErrUnknownOutcome, ctx.Err())
}
