package conductor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/conductor-sdk/conductor-go/sdk/model"

	"perago/pkg/txn"
)

// StartRequest starts one workflow.
type StartRequest struct {
	Name string
	// Version of the definition, 0 for the latest.
	Version int
	// Input is a JSON object, sent as it is; nil for none.
	Input json.RawMessage
	// TaskToDomain routes task types to domains; "*" is every type.
	TaskToDomain  map[string]string
	CorrelationID string
}

// StartWorkflow starts a workflow and gives its id. It must not be sent twice:
// an answer that was lost is txn.ErrUnknownOutcome. A name that is not registered
// is txn.ErrNotFound.
func (c *Client) StartWorkflow(ctx context.Context, request StartRequest) (txn.WorkflowID, error) {
	call := c.call(http.MethodPost, "/workflow", effectOnce)
	body := model.StartWorkflowRequest{
		Name:          request.Name,
		Version:       clampInt32(int64(request.Version)),
		CorrelationId: request.CorrelationID,
		TaskToDomain:  request.TaskToDomain,
	}
	if request.Input != nil {
		body.Input = request.Input
	}
	_, response, err := c.workflows.StartWorkflowWithRequest(ctx, body)
	raw, err := call.settle(response, err)
	if err != nil {
		return "", err
	}
	id := string(raw)
	// Plain text on 3.15.0; a JSON string where something in between converts it.
	var quoted string
	if json.Unmarshal(raw, &quoted) == nil {
		id = quoted
	}
	if id == "" || len(id) > 256 {
		return "", call.malformed(response.StatusCode, response.Header, raw, "no workflow id in the answer")
	}
	return txn.WorkflowID(id), nil
}

// Workflow reads a workflow with its tasks, in the order they were scheduled.
// Inputs and outputs of tasks that are not Perago's are left out when they are large.
// One that does not exist is txn.ErrNotFound.
func (c *Client) Workflow(ctx context.Context, id txn.WorkflowID) (txn.Workflow, error) {
	read, err := c.readRecord(ctx, id, false)
	if err != nil {
		return txn.Workflow{}, err
	}
	return read.workflow(), nil
}

// stream sends a request whose success is read as it comes. Everything else, also an
// answer of 204, is an error.
func (c *Client) stream(ctx context.Context, call call, query url.Values) (*http.Response, *bufio.Reader, error) {
	response, err := c.do(withStream(ctx), call, query, nil)
	if response != nil && response.StatusCode == http.StatusOK {
		return response, bufio.NewReader(response.Body), nil
	}
	raw, err := call.settle(response, err)
	switch {
	case err != nil:
		return nil, nil, err
	case raw == nil:
		return nil, nil, call.missing(response.StatusCode)
	}
	return nil, nil, call.malformed(response.StatusCode, response.Header, raw, "not a workflow")
}

// WorkflowStatus reads a workflow's status and nothing else. The server sends
// the workflow's whole input and definition with it, so the answer is read as a
// stream, with no bound on its size and nothing of it kept. A workflow that does
// not exist is txn.ErrNotFound.
func (c *Client) WorkflowStatus(ctx context.Context, id txn.WorkflowID) (txn.WorkflowStatus, error) {
	call := c.call(http.MethodGet, "/workflow/"+segment(id), effectNone)
	response, body, err := c.stream(ctx, call, url.Values{"includeTasks": {"false"}})
	if err != nil {
		return "", err
	}
	defer discard(response)
	beginning, _ := body.Peek(64)
	fields, err := topLevelStrings(body, "workflowId", "status")
	switch {
	case errors.Is(err, errNoField):
		return "", call.malformed(response.StatusCode, response.Header, beginning, "a workflow without its id or without a status")
	case errors.Is(err, errNotJSON):
		return "", call.malformed(response.StatusCode, response.Header, beginning, "not a workflow")
	case err != nil:
		return "", call.noAnswer(err)
	case fields[0] != string(id):
		return "", call.malformed(response.StatusCode, response.Header, beginning, "not the workflow that was asked for")
	}
	return txn.WorkflowStatus(fields[1]), nil
}
