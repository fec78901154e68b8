package conductortest

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"perago/pkg/txn"
)

// refusal is an answer that is not a success, in Conductor's words.
type refusal struct {
	status  int
	message string
	invalid []validationError
}

func refuse(status int, format string, arguments ...any) *refusal {
	return &refusal{status: status, message: fmt.Sprintf(format, arguments...)}
}

// queued is a task id in a queue; it can be polled from its due time on.
type queued struct {
	task txn.TaskID
	due  time.Time
}

// All methods below are called with the server's lock held.

func (s *Server) milliseconds() int64 { return s.now().UnixMilli() }

func (s *Server) find(id txn.WorkflowID) (*workflow, *refusal) {
	if w, ok := s.workflows[id]; ok {
		return w, nil
	}
	return nil, refuse(http.StatusNotFound, "No such workflow found by id: %s", id)
}

type startRequest struct {
	Name          string            `json:"name"`
	Version       *int              `json:"version"`
	CorrelationID *string           `json:"correlationId"`
	Input         *object           `json:"input"`
	TaskToDomain  map[string]string `json:"taskToDomain"`
}

func (s *Server) start(request startRequest) (txn.WorkflowID, *refusal) {
	definition := s.definition(request.Name, request.Version)
	if definition == nil {
		version := "null"
		if request.Version != nil {
			version = fmt.Sprint(*request.Version)
		}
		return "", refuse(http.StatusNotFound, "No such workflow defined. name=%s, version=%s", request.Name, version)
	}
	for kind, domain := range request.TaskToDomain {
		if strings.Contains(domain, ",") {
			return "", refuse(http.StatusNotImplemented, "the memory server knows no list of domains (%s for %s)", domain, kind)
		}
	}
	// The workflow keeps its definitions as they are now.
	definition = clone(definition)
	for i := range definition.Tasks {
		known, ok := s.taskDefinitions[definition.Tasks[i].Name]
		if !ok {
			known = newTaskDefinition(definition.Tasks[i].Name)
		}
		definition.Tasks[i].TaskDefinition = known
	}
	now := s.milliseconds()
	w := &workflow{
		CreateTime: now, UpdateTime: now, StartTime: now, Status: txn.WorkflowRunning, WorkflowID: txn.WorkflowID(newUUID()),
		Input: object{}, Output: object{}, CorrelationID: request.CorrelationID, TaskToDomain: request.TaskToDomain,
		WorkflowDefinition: definition, WorkflowName: definition.Name, WorkflowVersion: definition.Version,
	}
	if request.Input != nil {
		w.Input = *request.Input
	}
	if w.TaskToDomain == nil {
		w.TaskToDomain = map[string]string{}
	}
	s.workflows[w.WorkflowID] = w
	s.decide(w)
	return w.WorkflowID, nil
}

// definition is a registered workflow definition; without a version the latest.
func (s *Server) definition(name string, version *int) *workflowDefinition {
	var found *workflowDefinition
	for v, definition := range s.workflowDefinitions[name] {
		if (version == nil && (found == nil || v > found.Version)) || (version != nil && v == *version) {
			found = definition
		}
	}
	return found
}

// decide takes a workflow as far as it goes without a worker.
func (s *Server) decide(w *workflow) {
	if w.Status != txn.WorkflowRunning {
		return
	}
	s.timeouts(w)
	for i := range w.WorkflowDefinition.Tasks {
		step := &w.WorkflowDefinition.Tasks[i]
		current := w.last(step.TaskReferenceName)
		if current == nil {
			s.schedule(w, step)
			return
		}
		if !current.over() {
			return
		}
		current.Executed = true
		switch current.Status {
		case txn.TaskCompleted, txn.TaskCompletedWithErrors:
			continue
		}
		if s.retry(w, current) {
			return
		}
		if step.Optional {
			current.Status = txn.TaskCompletedWithErrors
			continue
		}
		s.end(w, current)
		return
	}
	w.Status = txn.WorkflowCompleted
	w.EndTime = s.milliseconds()
	w.Output = s.outputOf(w)
}

// outputOf is what the definition says, else the last task's output.
func (s *Server) outputOf(w *workflow) object {
	if len(w.WorkflowDefinition.OutputParameters) > 0 {
		output, _ := w.resolve(w.WorkflowDefinition.OutputParameters).(object)
		return output
	}
	if len(w.Tasks) == 0 {
		return object{}
	}
	return clone(w.Tasks[len(w.Tasks)-1].OutputData)
}

// timeouts ends tasks whose worker has not been heard of for the response
// timeout. It runs from the last update, and only while a worker has the task.
func (s *Server) timeouts(w *workflow) {
	now := s.milliseconds()
	for _, t := range w.Tasks {
		limit := t.ResponseTimeout + t.CallbackAfterSeconds
		if t.Status != txn.TaskInProgress || t.ResponseTimeout == 0 || now-t.UpdateTime < limit*1000 {
			continue
		}
		t.Status = txn.TaskTimedOut
		t.EndTime = now
		t.Reason = pointer(fmt.Sprintf("responseTimeout: %d exceeded for the taskId: %s with Task Definition: %s", t.ResponseTimeout, t.TaskID, t.TaskDefName))
	}
}

// externalInput is the size in bytes above which an input is kept outside, the default
// of conductor.app.taskInputPayloadSizeThreshold.
const externalInput = 3072 << 10

// schedule makes a new task and queues it.
func (s *Server) schedule(w *workflow, step *workflowTask) *task {
	now := s.milliseconds()
	input, _ := w.resolve(merged(step.TaskDefinition.InputTemplate, step.InputParameters)).(object)
	t := &task{
		TaskType: step.Name, TaskDefName: step.Name, Status: txn.TaskScheduled, InputData: input, OutputData: object{},
		ReferenceTaskName: step.TaskReferenceName, Seq: len(w.Tasks) + 1, CorrelationID: w.CorrelationID,
		ScheduledTime: now, CallbackFromWorker: true, ResponseTimeout: step.TaskDefinition.ResponseTimeoutSeconds,
		WorkflowInstanceID: w.WorkflowID, WorkflowType: w.WorkflowName, TaskID: txn.TaskID(newUUID()),
		WorkflowTask: *step, TaskDefinition: step.TaskDefinition, Domain: w.domain(step.Name),
	}
	if raw, err := json.Marshal(input); err == nil && len(raw) > externalInput {
		t.InputData, t.ExternalInput = object{}, "task/input/"+string(t.TaskID)+".json"
	}
	w.Tasks = append(w.Tasks, t)
	s.tasks[t.TaskID] = t
	s.enqueue(t, 0)
	return t
}

// retry schedules the next try of a failed task, if its definition has one left.
func (s *Server) retry(w *workflow, failed *task) bool {
	if failed.Status == txn.TaskFailedWithTerminalError || failed.RetryCount >= failed.TaskDefinition.RetryCount {
		return false
	}
	s.again(w, failed, failed.TaskDefinition.delay(failed.RetryCount))
	return true
}

func (s *Server) again(w *workflow, failed *task, delay time.Duration) {
	failed.Retried = true
	failed.Executed = true
	next := s.schedule(w, &failed.WorkflowTask)
	next.RetryCount = failed.RetryCount + 1
	next.RetriedTaskID = pointer(failed.TaskID)
	next.CallbackAfterSeconds = int64(delay / time.Second)
	next.StartDelayInSeconds = next.CallbackAfterSeconds
	s.enqueue(next, delay)
}

// end fails the workflow because of a task, and starts its failure workflow.
func (s *Server) end(w *workflow, because *task) {
	status := txn.WorkflowFailed
	if because.Status == txn.TaskTimedOut {
		status = txn.WorkflowTimedOut
	}
	why := ""
	if because.Reason != nil {
		why = *because.Reason
	}
	w.Output = clone(because.OutputData)
	s.close(w, status, fmt.Sprintf("Task %s failed with status: %s and reason: '%s'", because.TaskID, status, why))
	if w.WorkflowDefinition.FailureWorkflow == nil {
		return
	}
	input := clone(w.Input)
	input["workflowId"] = string(w.WorkflowID)
	input["reason"] = *w.Reason
	input["failureStatus"] = string(status)
	input["failureTaskId"] = string(because.TaskID)
	input["failedWorkflow"] = clone[any](w)
	name := *w.WorkflowDefinition.FailureWorkflow
	started, refused := s.start(startRequest{Name: name, CorrelationID: w.CorrelationID, Input: &input, TaskToDomain: w.TaskToDomain})
	said := string(started)
	if refused != nil {
		said = fmt.Sprintf("Error workflow %s failed to start.  reason: %s", name, refused.message)
	}
	w.Output["conductor.failure_workflow"] = said
}

// close ends a workflow and cancels what is still open in it.
func (s *Server) close(w *workflow, status txn.WorkflowStatus, reason string) {
	w.Status = status
	w.Reason = &reason
	w.EndTime = s.milliseconds()
	for _, t := range w.Tasks {
		if !t.over() {
			t.Status = txn.TaskCanceled
			t.EndTime = w.EndTime
			t.Executed = true
			s.dequeue(t)
		}
	}
}

// poll hands out up to count tasks that are due.
func (s *Server) poll(kind, domain, worker string, count int) []*task {
	name := queueName(kind, domain)
	now := s.now()
	var taken []*task
	var left []queued
	for _, entry := range s.queues[name] {
		if len(taken) >= count || entry.due.After(now) {
			left = append(left, entry)
			continue
		}
		t, ok := s.tasks[entry.task]
		if !ok || t.over() {
			continue // a requeue hands out again what a worker has
		}
		t.Status = txn.TaskInProgress
		t.PollCount++
		t.WorkerID = &worker
		t.CallbackAfterSeconds = 0
		t.UpdateTime = s.milliseconds()
		if t.StartTime == 0 {
			t.StartTime = t.UpdateTime
		}
		taken = append(taken, t)
	}
	s.queues[name] = left
	return taken
}

func (s *Server) enqueue(t *task, delay time.Duration) {
	s.dequeue(t)
	s.queues[t.queue()] = append(s.queues[t.queue()], queued{t.TaskID, s.now().Add(delay)})
}

func (s *Server) dequeue(t *task) {
	s.queues[t.queue()] = slices.DeleteFunc(s.queues[t.queue()], func(q queued) bool { return q.task == t.TaskID })
}

type taskResult struct {
	WorkflowInstanceID   txn.WorkflowID `json:"workflowInstanceId"`
	TaskID               txn.TaskID     `json:"taskId"`
	Reason               *string        `json:"reasonForIncompletion"`
	CallbackAfterSeconds int64          `json:"callbackAfterSeconds"`
	WorkerID             *string        `json:"workerId"`
	Status               txn.TaskStatus `json:"status"`
	OutputData           object         `json:"outputData"`
	ExtendLease          bool           `json:"extendLease"`
}

func (s *Server) update(result taskResult) *refusal {
	switch result.Status {
	case txn.TaskInProgress, txn.TaskCompleted, txn.TaskFailed, txn.TaskFailedWithTerminalError:
	default:
		return refuse(http.StatusInternalServerError, "JSON parse error: Cannot deserialize value of type `TaskResult$Status` from String %q", result.Status)
	}
	if result.WorkflowInstanceID == "" {
		return &refusal{status: http.StatusBadRequest, invalid: []validationError{
			{"updateTask.taskResult.workflowInstanceId", "Workflow Id cannot be null or empty"}}}
	}
	t, ok := s.tasks[result.TaskID]
	if result.ExtendLease {
		if !ok {
			return refuse(http.StatusNotFound, "No such task found by id: %s", result.TaskID)
		}
		if !t.over() {
			t.UpdateTime = s.milliseconds()
		}
		return nil
	}
	w, refused := s.find(result.WorkflowInstanceID)
	if refused != nil {
		return refused
	}
	if !ok {
		return refuse(http.StatusNotFound, "No such task found by id: %s", result.TaskID)
	}
	if t.over() || w.Status.Terminal() {
		// Answered like any other, and ignored.
		return nil
	}
	t.Reason = result.Reason
	t.WorkerID = result.WorkerID
	t.CallbackAfterSeconds = result.CallbackAfterSeconds
	t.OutputData = result.OutputData
	if t.OutputData == nil {
		t.OutputData = object{}
	}
	if result.Status == txn.TaskInProgress {
		// Back into the queue, for anyone.
		t.Status = txn.TaskScheduled
		t.UpdateTime = s.milliseconds()
		s.enqueue(t, time.Duration(t.CallbackAfterSeconds)*time.Second)
	} else {
		t.Status = result.Status
		t.EndTime = s.milliseconds()
		s.dequeue(t)
	}
	s.decide(w)
	return nil
}

// updateAndPoll is update, and then a poll for the worker that reported. A task that
// is not over by the update is the last one that it gets.
func (s *Server) updateAndPoll(result taskResult) (answer, *refusal) {
	if refused := s.update(result); refused != nil {
		return answer{}, refused
	}
	updated := s.tasks[result.TaskID]
	if result.ExtendLease || !updated.over() {
		return nothing, nil
	}
	worker, domain := "", ""
	if result.WorkerID != nil {
		worker = *result.WorkerID
	}
	if updated.Domain != nil {
		domain = *updated.Domain
	}
	s.polled(updated.TaskDefName, domain, worker)
	next := s.poll(updated.TaskDefName, domain, worker, 1)
	if len(next) == 0 {
		return nothing, nil
	}
	return answer{http.StatusOK, clone(next[0])}, nil
}

func (s *Server) terminate(w *workflow, reason string) *refusal {
	if w.Status == txn.WorkflowCompleted {
		return refuse(http.StatusConflict, "Cannot terminate a COMPLETED workflow.")
	}
	w.Output = s.outputOf(w)
	s.close(w, txn.WorkflowTerminated, reason)
	return nil
}

func (s *Server) pause(w *workflow) *refusal {
	if w.Status.Terminal() {
		return refuse(http.StatusConflict, "Workflow %s has ended, status cannot be updated.", w.WorkflowID)
	}
	w.Status = txn.WorkflowPaused
	return nil
}

func (s *Server) resume(w *workflow) *refusal {
	if w.Status != txn.WorkflowPaused {
		return refuse(http.StatusInternalServerError, "The workflow %s is not PAUSED so cannot resume. Current status is %s", w.WorkflowID, w.Status)
	}
	w.Status = txn.WorkflowRunning
	s.decide(w)
	return nil
}

// retryWorkflow schedules the failed or cancelled task again, as a new task.
func (s *Server) retryWorkflow(w *workflow) *refusal {
	if !w.Status.Terminal() {
		return refuse(http.StatusNotFound, "Workflow is still running.  status=%s", w.Status)
	}
	for i := range w.WorkflowDefinition.Tasks {
		failed := w.last(w.WorkflowDefinition.Tasks[i].TaskReferenceName)
		if failed == nil {
			break
		}
		switch failed.Status {
		case txn.TaskCompleted, txn.TaskCompletedWithErrors:
			continue
		}
		s.reopen(w)
		s.again(w, failed, 0)
		return nil
	}
	return refuse(http.StatusConflict, "There are no retryable tasks! Use restart if you want to attempt entire workflow execution again.")
}

// restart forgets every task and begins anew under the same id.
func (s *Server) restart(w *workflow) *refusal {
	if !w.Status.Terminal() {
		return refuse(http.StatusConflict, "Workflow: %s is not in terminal state, unable to restart.", w.WorkflowID)
	}
	s.forget(w, 0)
	w.Output = object{}
	s.reopen(w)
	s.decide(w)
	return nil
}

// rerun begins anew at one task, which keeps its id and its retry count, and its
// poll count as the version has it.
func (s *Server) rerun(w *workflow, from txn.TaskID) *refusal {
	if !w.Status.Terminal() {
		return refuse(http.StatusConflict, "Workflow: %s.%s is not in terminal state, unable to rerun.", w.WorkflowID, w.Status)
	}
	at := slices.IndexFunc(w.Tasks, func(t *task) bool { return t.TaskID == from })
	if at < 0 {
		return refuse(http.StatusBadRequest, "Task %s not found", from)
	}
	s.forget(w, at+1)
	s.reopen(w)
	t := w.Tasks[at]
	t.Status = txn.TaskScheduled
	t.ScheduledTime = s.milliseconds()
	t.UpdateTime = t.ScheduledTime
	t.StartTime, t.EndTime = 0, 0
	t.Retried, t.Executed = false, false
	t.OutputData = object{}
	t.CallbackAfterSeconds = 0
	if s.version.RerunResetsPolls() {
		t.PollCount = 0
	}
	s.enqueue(t, 0)
	return nil
}

func (s *Server) reopen(w *workflow) {
	w.Status = txn.WorkflowRunning
	w.Reason = nil
}

// forget removes the workflow's tasks from an index on.
func (s *Server) forget(w *workflow, from int) {
	for _, t := range w.Tasks[from:] {
		s.dequeue(t)
		delete(s.tasks, t.TaskID)
	}
	w.Tasks = w.Tasks[:from]
}

// sweep lets every workflow's timeouts take effect.
func (s *Server) sweep() {
	for _, w := range s.workflows {
		s.decide(w)
	}
}

// newUUID is a random UUID (version 4): Conductor's ids are.
func newUUID() string {
	var b [16]byte
	// It never fails, says its documentation.
	_, _ = rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
