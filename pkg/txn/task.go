package txn

import (
	"encoding/json"
	"time"
)

// TaskStatus is a Conductor task's status.
type TaskStatus string

// The task statuses this protocol speaks of.
const (
	TaskScheduled               TaskStatus = "SCHEDULED"
	TaskInProgress              TaskStatus = "IN_PROGRESS"
	TaskCompleted               TaskStatus = "COMPLETED"
	TaskCompletedWithErrors     TaskStatus = "COMPLETED_WITH_ERRORS"
	TaskFailed                  TaskStatus = "FAILED"
	TaskFailedWithTerminalError TaskStatus = "FAILED_WITH_TERMINAL_ERROR"
	TaskTimedOut                TaskStatus = "TIMED_OUT"
	TaskCanceled                TaskStatus = "CANCELED"
	TaskSkipped                 TaskStatus = "SKIPPED"
)

// Open reports whether a worker may still act on a task of this status.
func (s TaskStatus) Open() bool { return s == TaskScheduled || s == TaskInProgress }

// WorkflowStatus is a Conductor workflow's status.
type WorkflowStatus string

// Every status a Conductor workflow can have.
const (
	WorkflowRunning    WorkflowStatus = "RUNNING"
	WorkflowPaused     WorkflowStatus = "PAUSED"
	WorkflowCompleted  WorkflowStatus = "COMPLETED"
	WorkflowFailed     WorkflowStatus = "FAILED"
	WorkflowTimedOut   WorkflowStatus = "TIMED_OUT"
	WorkflowTerminated WorkflowStatus = "TERMINATED"
)

// Open reports whether tasks of a workflow with this status may act. A paused
// workflow's tasks in progress go on.
func (s WorkflowStatus) Open() bool { return s == WorkflowRunning || s == WorkflowPaused }

// Terminal reports whether the workflow has ended, in whatever way.
func (s WorkflowStatus) Terminal() bool {
	switch s {
	case WorkflowCompleted, WorkflowFailed, WorkflowTimedOut, WorkflowTerminated:
		return true
	}
	return false
}

// Task is a Conductor task as a poll or a read of it shows.
type Task struct {
	ID            TaskID
	Workflow      WorkflowID
	Type          TaskType
	ReferenceName ReferenceName
	Iteration     int
	Status        TaskStatus
	RetryCount    int
	PollCount     int
	// StartTime is in Unix milliseconds, as Conductor's clock has it; 0 until the
	// task is polled.
	StartTime int64
	Worker    WorkerID
	Domain    string
	// Reason is Conductor's reasonForIncompletion.
	Reason string
	// Input and Output are JSON objects; nil when Conductor gave none.
	Input  json.RawMessage
	Output json.RawMessage
	// ExternalInput and ExternalOutput say that Conductor keeps the input or the
	// output in its external payload storage: Input or Output is empty then, and
	// means nothing.
	ExternalInput, ExternalOutput bool
	// Definition is the TaskDef in force for this task: a polled task carries it
	// whole. Nil when Conductor gave none.
	Definition *TaskDefinition
	// Times say when the task did what. They are for people, and for DecideWait; no
	// decision about data depends on them.
	Times TaskTimes
	// SubWorkflow is the workflow that a SUB_WORKFLOW task started; empty when it is
	// none.
	SubWorkflow WorkflowID
}

// TaskTimes are Conductor's times of a task; each is zero when it has none.
type TaskTimes struct {
	Scheduled, Updated, Ended time.Time
	// ResponseTimeout is how long the task may go without a sign of its worker.
	ResponseTimeout time.Duration
	// Callback is how long a worker asked to leave the task alone.
	Callback time.Duration
}

// TaskDefinition is the part of a Conductor TaskDef the workers go by.
type TaskDefinition struct {
	Name                   TaskType
	RetryCount             int
	RetryDelaySeconds      int64
	TimeoutSeconds         int64
	ResponseTimeoutSeconds int64
	// TotalTimeoutSeconds bounds all attempts together, on servers that know it; 0 for
	// no bound.
	TotalTimeoutSeconds int64
	PollTimeoutSeconds  int64
	TimeoutPolicy       string
	// InputTemplate is a JSON object; nil when there is none.
	InputTemplate json.RawMessage
}

// Workflow is a Conductor workflow with its tasks, in the order they were
// scheduled.
type Workflow struct {
	ID     WorkflowID
	Name   string
	Status WorkflowStatus
	Reason string
	// Ended is when it ended, as Conductor's clock has it; zero while it has not.
	Ended time.Time
	Tasks []Task
	// Output is a JSON object; nil when there is none.
	Output json.RawMessage
}

// TaskResult is one update of a task.
type TaskResult struct {
	Task     TaskID
	Workflow WorkflowID
	Worker   WorkerID
	Status   TaskStatus
	// Reason is for people: one sentence. Empty when the task completed.
	Reason string
	// Output is marshalled to a JSON object; nil for none.
	Output map[string]any
	// CallbackAfterSeconds only goes with IN_PROGRESS: the task is handed out
	// again after so many seconds.
	CallbackAfterSeconds int64
}

// Attempt is one poll of one task: the four fields that name a try of it and the
// poll identity. The poll identity is needed because `rerun` hands out the same
// task id and retry count again.
type Attempt struct {
	Task       TaskID
	Workflow   WorkflowID
	RetryCount int
	Worker     WorkerID
	PollCount  int
	StartTime  int64
}

// AttemptOf is the attempt that a polled task gives its poller.
func AttemptOf(polled Task) Attempt {
	return Attempt{
		Task: polled.ID, Workflow: polled.Workflow, RetryCount: polled.RetryCount,
		Worker: polled.Worker, PollCount: polled.PollCount, StartTime: polled.StartTime,
	}
}

// CurrentTask compares the attempt with the task as it reads now and returns a
// *StaleAttemptError when they differ: the part of the attempt fence that is
// asked before updates and at heartbeats.
func (a Attempt) CurrentTask(now Task) error {
	switch {
	case now.ID != a.Task:
		return &StaleAttemptError{Attempt: a, Reason: StaleTaskGone}
	case now.Status != TaskInProgress:
		return &StaleAttemptError{Attempt: a, Reason: StaleTaskStatus, Detail: string(now.Status)}
	case now.Workflow != a.Workflow:
		return &StaleAttemptError{Attempt: a, Reason: StaleWorkflowID, Detail: string(now.Workflow)}
	case now.RetryCount != a.RetryCount:
		return &StaleAttemptError{Attempt: a, Reason: StaleRetryCount}
	case now.Worker != a.Worker:
		return &StaleAttemptError{Attempt: a, Reason: StaleWorker, Detail: string(now.Worker)}
	case now.PollCount != a.PollCount:
		return &StaleAttemptError{Attempt: a, Reason: StalePollCount}
	case now.StartTime != a.StartTime:
		return &StaleAttemptError{Attempt: a, Reason: StaleStartTime}
	}
	return nil
}

// Current is the whole attempt fence: the task and its workflow.
func (a Attempt) Current(now Task, workflow WorkflowStatus) error {
	if err := a.CurrentTask(now); err != nil {
		return err
	}
	if !workflow.Open() {
		return &StaleAttemptError{Attempt: a, Reason: StaleWorkflowStatus, Detail: string(workflow)}
	}
	return nil
}

// PollRequest asks Conductor for work of one type.
type PollRequest struct {
	Type TaskType
	// Domain is the queue's domain; empty is the queue without one.
	Domain string
	Worker WorkerID
	// Count is the most tasks to hand out: at least 1.
	Count int
	// Wait is how long the server may hold the poll open. A waiting poll is not
	// woken by a new task, so keep it at 100 ms or less.
	Wait time.Duration
}
