package conductor

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"perago/pkg/txn"
)

// What is here looks at a whole server and changes nothing. A worker has no use
// for it.

// Queues are the queues of a server that hold tasks, in order.
func (c *Client) Queues(ctx context.Context) ([]txn.Queue, error) {
	sizes, err := survey[map[string]int](ctx, c, "/tasks/queue/all", nil)
	var all []txn.Queue
	for name, waiting := range sizes {
		if waiting <= 0 {
			continue
		}
		// domain:type@@namespace-isolation; perago knows neither of the last two.
		domain, kind, found := strings.Cut(name, ":")
		if !found {
			domain, kind = "", name
		}
		all = append(all, txn.Queue{Type: txn.TaskType(kind), Domain: domain, Waiting: waiting})
	}
	slices.SortFunc(all, func(a, b txn.Queue) int {
		return strings.Compare(string(a.Type)+"\x00"+a.Domain, string(b.Type)+"\x00"+b.Domain)
	})
	return all, err
}

// LastPolls are the latest polls of a task type, one for each domain it was asked
// for in; none for a type that nobody ever asked for.
func (c *Client) LastPolls(ctx context.Context, kind txn.TaskType) ([]txn.LastPoll, error) {
	type entry struct {
		Domain string       `json:"domain"`
		Worker txn.WorkerID `json:"workerId"`
		At     int64        `json:"lastPollTime"`
	}
	entries, err := survey[[]entry](ctx, c, "/tasks/queue/polldata", url.Values{"taskType": {string(kind)}})
	var all []txn.LastPoll
	for _, one := range entries {
		all = append(all, txn.LastPoll{Domain: one.Domain, Worker: one.Worker, At: time.UnixMilli(one.At)})
	}
	return all, err
}

// TaskTypes are the names of all task definitions that are registered, in order.
func (c *Client) TaskTypes(ctx context.Context) ([]txn.TaskType, error) {
	type entry struct {
		Name txn.TaskType `json:"name"`
	}
	entries, err := survey[[]entry](ctx, c, "/metadata/taskdefs", nil)
	var all []txn.TaskType
	for _, one := range entries {
		all = append(all, one.Name)
	}
	slices.Sort(all)
	return all, err
}

// WorkflowsWith are the workflow definitions that hold a task whose type wanted
// says yes to, at any depth; the branches of a dynamic fork stand in no definition.
func (c *Client) WorkflowsWith(ctx context.Context, wanted func(txn.TaskType) bool) ([]txn.WorkflowVersion, error) {
	type entry struct {
		Name    string          `json:"name"`
		Version int             `json:"version"`
		Tasks   json.RawMessage `json:"tasks"`
	}
	entries, err := survey[[]entry](ctx, c, "/metadata/workflow", nil)
	var all []txn.WorkflowVersion
	for _, one := range entries {
		var tasks any
		if err := json.Unmarshal(one.Tasks, &tasks); err == nil && holds(tasks, wanted) {
			all = append(all, txn.WorkflowVersion{Name: one.Name, Version: one.Version})
		}
	}
	return all, err
}

func holds(value any, wanted func(txn.TaskType) bool) bool {
	switch v := value.(type) {
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return holds(one, wanted) })
	case map[string]any:
		if name, ok := v["name"].(string); ok && wanted(txn.TaskType(name)) {
			return true
		}
		for _, one := range v {
			if holds(one, wanted) {
				return true
			}
		}
	}
	return false
}

// Running are the workflows of a definition that have not ended, paused ones too.
// Conductor 3.15.0 looks at the name alone and gives those of other versions too.
func (c *Client) Running(ctx context.Context, of txn.WorkflowVersion) ([]txn.WorkflowID, error) {
	// Without a version the server takes 1.
	return survey[[]txn.WorkflowID](ctx, c, "/workflow/running/"+segment(of.Name), url.Values{"version": {strconv.Itoa(of.Version)}})
}

// OpenWorkflow reads a workflow with its tasks and its input. One that does not
// exist is txn.ErrNotFound.
func (c *Client) OpenWorkflow(ctx context.Context, id txn.WorkflowID) (txn.OpenWorkflow, error) {
	read, err := c.readRecord(ctx, id, true)
	if err != nil {
		return txn.OpenWorkflow{}, err
	}
	return txn.OpenWorkflow{
		Workflow: read.workflow(),
		Input:    object(read.input), Parent: read.parent, Started: time.UnixMilli(read.started),
	}, nil
}

// survey reads one JSON value.
func survey[T any](ctx context.Context, c *Client, path string, query url.Values) (value T, err error) {
	call := c.call(http.MethodGet, path, effectNone)
	raw, err := c.send(ctx, call, query, nil)
	if err != nil {
		return value, err
	}
	if raw == nil || bytes.Equal(raw, []byte("null")) {
		return value, call.missing(http.StatusOK)
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return value, call.malformed(http.StatusOK, nil, raw, "not what was asked for: "+err.Error())
	}
	return value, nil
}
