package conductor

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"perago/pkg/txn"
)

// Definitions travel as raw JSON: the SDK's models drop the fields they do not
// know, and a definition that was read and put back must be the same.

// TaskDefinition reads what the workers need of a registered task definition.
// One that is not registered is txn.ErrNotFound.
//
// A task carries the definition it was started with, which this one may have
// replaced since: limits of a polled task are in the task.
func (c *Client) TaskDefinition(ctx context.Context, name txn.TaskType) (txn.TaskDefinition, error) {
	raw, err := c.RawTaskDefinition(ctx, name)
	if err != nil {
		return txn.TaskDefinition{}, err
	}
	var read wireTaskDefinition
	if err := json.Unmarshal(raw, &read); err != nil || read.Name != string(name) {
		call := c.call(http.MethodGet, taskDefinitionPath(name), effectNone)
		return txn.TaskDefinition{}, call.malformed(http.StatusOK, nil, raw, "not the task definition that was asked for")
	}
	return read.definition(), nil
}

// RawTaskDefinition reads a task definition as the server has it.
func (c *Client) RawTaskDefinition(ctx context.Context, name txn.TaskType) (json.RawMessage, error) {
	return c.definition(ctx, c.call(http.MethodGet, taskDefinitionPath(name), effectNone), nil)
}

// RawWorkflowDefinition reads a workflow definition as the server has it.
// Version 0 is the latest.
func (c *Client) RawWorkflowDefinition(ctx context.Context, name string, version int) (json.RawMessage, error) {
	var query url.Values
	if version != 0 {
		query = url.Values{"version": {strconv.Itoa(version)}}
	}
	return c.definition(ctx, c.call(http.MethodGet, "/metadata/workflow/"+segment(name), effectNone), query)
}

// PutTaskDefinition registers a task definition, or replaces the one of its
// name. A running workflow keeps the definition it was started with. It may be
// sent again.
func (c *Client) PutTaskDefinition(ctx context.Context, raw json.RawMessage) error {
	call := c.call(http.MethodPost, "/metadata/taskdefs", effectRepeatable)
	var named struct {
		Name txn.TaskType `json:"name"`
	}
	if err := json.Unmarshal(raw, &named); err != nil {
		return call.notSent(err, nil, "a task definition is a JSON object")
	}
	if named.Name == "" {
		return call.notSent(errors.New("the task definition has no name"), nil, "")
	}
	_, err := c.RawTaskDefinition(ctx, named.Name)
	switch {
	case errors.Is(err, txn.ErrNotFound):
		_, err = c.send(ctx, call, nil, array(raw))
		return err
	case err != nil:
		return err
	}
	call.method = http.MethodPut
	_, err = c.send(ctx, call, nil, raw)
	return err
}

// PutWorkflowDefinition registers a workflow definition, or replaces the one of
// its name and version. Every task type in it has to be registered before. It may
// be sent again.
func (c *Client) PutWorkflowDefinition(ctx context.Context, raw json.RawMessage) error {
	call := c.call(http.MethodPut, "/metadata/workflow", effectRepeatable)
	if !json.Valid(raw) {
		return call.notSent(errors.New("the workflow definition is not JSON"), nil, "")
	}
	answer, err := c.send(ctx, call, nil, array(raw))
	if err != nil {
		return err
	}
	// A refusal of one definition comes inside a 200.
	var bulk struct {
		Errors map[string]string `json:"bulkErrorResults"`
	}
	if err := json.Unmarshal(answer, &bulk); answer != nil && err != nil {
		return call.malformed(http.StatusOK, nil, answer, "not the outcome of a registration")
	}
	for name, why := range bulk.Errors {
		return call.fault(http.StatusOK, txn.ErrRefused, nil, name+": "+why, "")
	}
	return nil
}

func (c *Client) definition(ctx context.Context, call call, query url.Values) (json.RawMessage, error) {
	raw, err := c.send(ctx, call, query, nil)
	if err != nil {
		return nil, err
	}
	if raw == nil || string(raw) == "null" {
		return nil, call.missing(http.StatusOK)
	}
	if !json.Valid(raw) || raw[0] != '{' {
		return nil, call.malformed(http.StatusOK, nil, raw, "not a definition")
	}
	return raw, nil
}

func taskDefinitionPath(name txn.TaskType) string { return "/metadata/taskdefs/" + segment(name) }

// array puts one value into a JSON array without touching its bytes.
func array(raw json.RawMessage) []byte {
	all := make([]byte, 0, len(raw)+2)
	all = append(all, '[')
	all = append(all, raw...)
	return append(all, ']')
}
