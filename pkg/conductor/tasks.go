package conductor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"

	"github.com/antihax/optional"
	"github.com/conductor-sdk/conductor-go/sdk/client"
	"github.com/conductor-sdk/conductor-go/sdk/model"

	"perago/pkg/txn"
)

// Poll takes up to Count tasks; none is an empty result and no error. Conductor
// takes an empty domain parameter for a domain of that name, so "" is never sent.
// Each task is
// IN_PROGRESS for the worker, with its input and its complete definition as the
// server sent them: numbers are not rounded.
//
// A poll that waits neither wakes up for a task scheduled meanwhile nor returns
// it: the next poll does. More than five seconds of waiting are refused. Both
// were seen on Conductor 3.15.0 and are rows of the contract.
//
// When the answer is lost (retryable) the server may have handed out tasks that
// nobody runs; it hands them out again after their response timeout.
func (c *Client) Poll(ctx context.Context, request txn.PollRequest) ([]txn.Task, error) {
	call := c.call(http.MethodGet, "/tasks/poll/batch/"+segment(request.Type), effectNone)
	options := &client.TaskResourceApiBatchPollOpts{
		Workerid: optional.NewString(string(request.Worker)),
		Count:    optional.NewInt32(clampInt32(int64(request.Count))),
		Timeout:  optional.NewInt32(clampInt32(request.Wait.Milliseconds())),
	}
	if request.Domain != "" {
		options.Domain = optional.NewString(request.Domain)
	}
	_, response, err := c.tasks.BatchPoll(ctx, segment(request.Type), options)
	raw, err := call.settle(response, err)
	if err != nil || raw == nil {
		return nil, err
	}
	var tasks []txn.Task
	if err := tasksOf(raw, func(one wireTask) { tasks = append(tasks, one.task()) }); err != nil {
		return nil, call.malformed(response.StatusCode, response.Header, raw, err.Error())
	}
	return tasks, nil
}

// Task reads one task. One that does not exist, or no longer does after a
// restart, is txn.ErrNotFound: Conductor 3.13.8 and 3.15.0 answer 204, newer ones 404.
func (c *Client) Task(ctx context.Context, id txn.TaskID) (txn.Task, error) {
	call := c.call(http.MethodGet, "/tasks/"+segment(id), effectNone)
	_, response, err := c.tasks.GetTask(ctx, segment(id))
	raw, err := call.settle(response, err)
	if err != nil {
		return txn.Task{}, err
	}
	if raw == nil || string(raw) == "null" {
		return txn.Task{}, call.missing(response.StatusCode)
	}
	var read wireTask
	if err := json.Unmarshal(raw, &read); err != nil {
		return txn.Task{}, call.malformed(response.StatusCode, response.Header, raw, "not a task: "+err.Error())
	}
	if !read.complete() || read.TaskId != string(id) {
		return txn.Task{}, call.malformed(response.StatusCode, response.Header, raw, "not the task that was asked for")
	}
	return read.task(), nil
}

// Update reports a task. It may be sent again after a retryable error: Conductor
// ignores an update of a task that is over, and answers 200 to it all the same,
// so a nil error does not say that the update counted. An unknown task or
// workflow is txn.ErrNotFound.
//
// A plain IN_PROGRESS gives the task back to its queue; it is no heartbeat.
func (c *Client) Update(ctx context.Context, result txn.TaskResult) error {
	call := c.call(http.MethodPost, "/tasks", effectRepeatable)
	_, response, err := c.tasks.UpdateTask(ctx, &model.TaskResult{
		TaskId:                string(result.Task),
		WorkflowInstanceId:    string(result.Workflow),
		WorkerId:              string(result.Worker),
		Status:                model.TaskResultStatus(result.Status),
		ReasonForIncompletion: result.Reason,
		OutputData:            result.Output,
		CallbackAfterSeconds:  result.CallbackAfterSeconds,
	})
	_, err = call.settle(response, err)
	return err
}

// ExtendLease starts the task's response timeout anew and leaves the task with
// its worker. For a task that is over the server answers 200 and does nothing:
// read the task to know. It may be sent again.
func (c *Client) ExtendLease(ctx context.Context, workflow txn.WorkflowID, task txn.TaskID, worker txn.WorkerID) error {
	call := c.call(http.MethodPost, "/tasks", effectRepeatable)
	// The SDK's TaskResult has no extendLease.
	body, err := json.Marshal(map[string]any{
		"workflowInstanceId": workflow, "taskId": task, "workerId": worker,
		"status": txn.TaskInProgress, "extendLease": true,
	})
	if err != nil {
		return call.notSent(err, nil, "")
	}
	_, err = c.send(ctx, call, nil, body)
	return err
}

// LogTask adds a line to a task's log, which Conductor's user interface shows
// beside the task. It is no sign of life and asks nothing of the task: one that is
// over, or unknown, is answered 200 too. A server without an index drops the line
// and answers 200 all the same, so a nil error does not say that anybody will read
// it. Sent twice, the line is there twice.
func (c *Client) LogTask(ctx context.Context, id txn.TaskID, line string) error {
	call := c.call(http.MethodPost, "/tasks/"+segment(id)+"/log", effectOnce)
	if line == "" {
		return call.notSent(errors.New("an empty line is refused"), nil, "")
	}
	_, err := c.send(ctx, call, nil, []byte(line))
	return err
}

// mostTasks is above what any answer lists: of a poll, or of one workflow.
const mostTasks = 100_000

// tasksOf reads a list of tasks one by one and ends at the first that is none. Read
// all at once, a few bytes of an answer could ask for a thousand bytes of memory:
// a list of millions of empty objects.
func tasksOf(raw json.RawMessage, take func(wireTask)) error {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('[') {
		return errors.New("not a list of tasks")
	}
	for count := 0; decoder.More(); count++ {
		var one wireTask
		switch err := decoder.Decode(&one); {
		case err != nil:
			return fmt.Errorf("not a list of tasks: %w", err)
		case !one.complete():
			return errors.New("a task without an id, a workflow or a status")
		case count == mostTasks:
			return fmt.Errorf("more than %d tasks", mostTasks)
		}
		take(one)
	}
	if _, err := decoder.Token(); err != nil {
		return fmt.Errorf("not a list of tasks: %w", err)
	}
	if decoder.More() {
		return errors.New("more behind a list of tasks")
	}
	return nil
}

func clampInt32(n int64) int32 { return int32(max(0, min(n, math.MaxInt32))) }
