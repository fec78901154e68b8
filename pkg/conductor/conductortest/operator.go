package conductortest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"perago/pkg/txn"
)

// Operator does by hand what people do to workflows in Conductor's UI, and reads
// what the client has no word for. The workers never do any of this.
type Operator struct {
	base string
	http *http.Client
}

// NewOperator speaks to the Conductor at serverURL (with or without /api) through
// transport.
func NewOperator(serverURL string, transport http.RoundTripper) *Operator {
	base := strings.TrimRight(serverURL, "/")
	if !strings.HasSuffix(base, "/api") {
		base += "/api"
	}
	return &Operator{base: base, http: &http.Client{Transport: transport}}
}

// Answer is what the server said.
type Answer struct {
	Status int
	Body   []byte
}

// Field is a field of a JSON object answer, nil when absent.
func (a Answer) Field(name string) any {
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(a.Body))
	decoder.UseNumber()
	if decoder.Decode(&fields) != nil {
		return nil
	}
	return fields[name]
}

// Do sends one request to a path below /api. An error is a request without an
// answer; any status is an answer.
func (o *Operator) Do(ctx context.Context, method, path string, body any) (Answer, error) {
	var reader io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return Answer{}, err
		}
		reader = bytes.NewReader(raw)
	}
	request, err := http.NewRequestWithContext(ctx, method, o.base+path, reader)
	if err != nil {
		return Answer{}, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := o.http.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	return Answer{response.StatusCode, raw}, err
}

// Terminate ends a workflow from outside.
func (o *Operator) Terminate(ctx context.Context, id txn.WorkflowID, reason string) error {
	return o.act(ctx, http.MethodDelete, "/workflow/"+string(id)+"?reason="+url.QueryEscape(reason), nil)
}

// Decide makes the server look at a workflow now: at its timeouts above all. Its
// own sweeper looks later, on the embedded queue up to a minute later or not at
// all, so a test that waits for a timeout asks for it.
func (o *Operator) Decide(ctx context.Context, id txn.WorkflowID) error {
	return o.act(ctx, http.MethodPut, "/workflow/decide/"+string(id), nil)
}

// Pause stops a workflow from scheduling more tasks.
func (o *Operator) Pause(ctx context.Context, id txn.WorkflowID) error {
	return o.act(ctx, http.MethodPut, "/workflow/"+string(id)+"/pause", nil)
}

// Resume undoes Pause.
func (o *Operator) Resume(ctx context.Context, id txn.WorkflowID) error {
	return o.act(ctx, http.MethodPut, "/workflow/"+string(id)+"/resume", nil)
}

// Retry runs the last failed task again, as a new task.
func (o *Operator) Retry(ctx context.Context, id txn.WorkflowID) error {
	return o.act(ctx, http.MethodPost, "/workflow/"+string(id)+"/retry", nil)
}

// Restart runs the workflow from its beginning under the same id.
func (o *Operator) Restart(ctx context.Context, id txn.WorkflowID) error {
	return o.act(ctx, http.MethodPost, "/workflow/"+string(id)+"/restart", nil)
}

// Rerun runs the workflow again from one task, which keeps its id.
func (o *Operator) Rerun(ctx context.Context, id txn.WorkflowID, from txn.TaskID) error {
	return o.rerun(ctx, id, from, nil)
}

func (o *Operator) rerun(ctx context.Context, id txn.WorkflowID, from txn.TaskID, input any) error {
	body := map[string]any{"reRunFromTaskId": from}
	if input != nil {
		body["taskInput"] = input
	}
	return o.act(ctx, http.MethodPost, "/workflow/"+string(id)+"/rerun", body)
}

// RerunPolled is Rerun until it took hold. Conductor puts the task back into its
// queue before it has written that the task is scheduled: a worker that polls in
// between is told nothing, the task leaves the queue as one that has ended, and
// nobody ever gets it. A look at the workflow in between ends the workflow again.
// Both are rare; an operator who sees them does what this does, and reruns again.
func (o *Operator) RerunPolled(ctx context.Context, id txn.WorkflowID, from txn.TaskID) error {
	return o.RerunWith(ctx, id, from, nil)
}

// RerunWith is RerunPolled with an input that replaces the task's whole; nil keeps
// it.
func (o *Operator) RerunWith(ctx context.Context, id txn.WorkflowID, from txn.TaskID, input any) error {
	const reruns, looks, between = 5, 30, 100 * time.Millisecond
	for range reruns {
		if err := o.rerun(ctx, id, from, input); err != nil {
			return err
		}
		for range looks {
			held, err := o.tookHold(ctx, from)
			if held || err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(between):
			}
		}
		// Nothing waits for it: it may be over already, and then this is refused.
		if err := o.Terminate(ctx, id, "the rerun did not take hold"); err != nil {
			var refused *StatusError
			if !errors.As(err, &refused) {
				return err
			}
		}
	}
	return fmt.Errorf("%d reruns of workflow %s from task %s, and none took hold", reruns, id, from)
}

// RetryTaken is Retry until it took hold. A look of Conductor's own that reads the
// workflow while a retry is being written fails it once more for the task that is
// being retried, although the new task stands already. The worker that has it then
// finds its workflow over. It is rare. An operator who sees it retries again. Conductor
// refuses that as long as the new task has not failed, and then the operator reruns from
// that task.
func (o *Operator) RetryTaken(ctx context.Context, id txn.WorkflowID) error {
	const retries, looks, between = 5, 25, 100 * time.Millisecond
	type state struct {
		Status txn.WorkflowStatus `json:"status"`
		Tasks  []struct {
			ID     txn.TaskID     `json:"taskId"`
			Status txn.TaskStatus `json:"status"`
		} `json:"tasks"`
	}
	path := "/workflow/" + string(id)
again:
	for range retries {
		var before state
		if err := o.read(ctx, path, &before); err != nil {
			return err
		}
		err := o.Retry(ctx, id)
		if refused := (*StatusError)(nil); errors.As(err, &refused) && refused.Answer.Status == http.StatusConflict && len(before.Tasks) > 0 {
			// "There are no retryable tasks": the newest has not failed.
			return o.RerunPolled(ctx, id, before.Tasks[len(before.Tasks)-1].ID)
		}
		if err != nil {
			return err
		}
		for range looks {
			var now state
			if err := o.read(ctx, path, &now); err != nil {
				return err
			}
			if begun := len(now.Tasks) > len(before.Tasks); begun && now.Status.Terminal() {
				newest := now.Tasks[len(now.Tasks)-1].Status
				if now.Status == txn.WorkflowFailed && newest != txn.TaskFailed && newest != txn.TaskFailedWithTerminalError {
					continue again
				}
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(between):
			}
		}
		return nil
	}
	return fmt.Errorf("%d retries of workflow %s, and none took hold", retries, id)
}

// tookHold says whether a task is in its queue, or with a worker, or done.
func (o *Operator) tookHold(ctx context.Context, id txn.TaskID) (bool, error) {
	var task struct {
		Status txn.TaskStatus `json:"status"`
		Type   txn.TaskType   `json:"taskType"`
		Domain string         `json:"domain"`
	}
	if err := o.read(ctx, "/tasks/"+string(id), &task); err != nil {
		return false, err
	}
	if task.Status != txn.TaskScheduled {
		return task.Status != txn.TaskCanceled, nil
	}
	waiting := map[string]int{}
	if err := o.read(ctx, "/tasks/queue/all", &waiting); err != nil {
		return false, err
	}
	queue := string(task.Type)
	if task.Domain != "" {
		queue = task.Domain + ":" + queue
	}
	return waiting[queue] > 0, nil
}

func (o *Operator) read(ctx context.Context, path string, into any) error {
	answer, err := o.Do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if answer.Status >= 300 {
		return &StatusError{http.MethodGet, path, answer}
	}
	return json.Unmarshal(answer.Body, into)
}

func (o *Operator) act(ctx context.Context, method, path string, body any) error {
	answer, err := o.Do(ctx, method, path, body)
	if err != nil {
		return err
	}
	if answer.Status >= 300 {
		return &StatusError{method, path, answer}
	}
	return nil
}

// StatusError is an answer that was a refusal.
type StatusError struct {
	Method, Path string
	Answer       Answer
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s %s: %d %s", e.Method, e.Path, e.Answer.Status, e.Answer.Body)
}
