package conductortest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

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
	return o.act(ctx, http.MethodPost, "/workflow/"+string(id)+"/rerun", map[string]any{"reRunFromTaskId": from})
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
