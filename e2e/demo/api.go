package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The demo asks the servers itself, by plain HTTP, and not through the
// product's own clients: it checks what the product did from outside.

type api struct {
	base, user, password string
}

// do sends body (bytes as they are, anything else as JSON) and returns the
// answer.
func (a api) do(ctx context.Context, method, path string, query url.Values, body any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var payload io.Reader
	contentType := "application/json"
	switch b := body.(type) {
	case nil:
	case []byte:
		payload, contentType = bytes.NewReader(b), "application/octet-stream"
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		payload = bytes.NewReader(encoded)
	}
	u := a.base + path
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, payload)
	if err != nil {
		return nil, err
	}
	if payload != nil {
		req.Header.Set("Content-Type", contentType)
	}
	if a.user != "" {
		req.SetBasicAuth(a.user, a.password)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, answer)
	}
	return answer, nil
}

func (a api) get(ctx context.Context, path string, query url.Values, into any) error {
	answer, err := a.do(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}

type lakeFS struct{ api }

type commit struct {
	ID       string            `json:"id"`
	Parents  []string          `json:"parents"`
	Message  string            `json:"message"`
	Metadata map[string]string `json:"metadata"`
}

// tree is every object of a commit with its content.
type tree map[string]string

func (l lakeFS) createRepository(ctx context.Context, name string) error {
	_, err := l.do(ctx, http.MethodPost, "/repositories", nil, map[string]string{
		"name": name, "storage_namespace": "local://" + name, "default_branch": branch,
	})
	return err
}

func (l lakeFS) commitFiles(ctx context.Context, files tree, message string) error {
	for path, content := range files {
		if _, err := l.do(ctx, http.MethodPost, "/repositories/"+repository+"/branches/"+branch+"/objects",
			url.Values{"path": {path}}, []byte(content)); err != nil {
			return err
		}
	}
	_, err := l.do(ctx, http.MethodPost, "/repositories/"+repository+"/branches/"+branch+"/commits", nil,
		map[string]string{"message": message})
	return err
}

func (l lakeFS) head(ctx context.Context) (string, error) {
	var b struct {
		CommitID string `json:"commit_id"`
	}
	err := l.get(ctx, "/repositories/"+repository+"/branches/"+branch, nil, &b)
	return b.CommitID, err
}

func (l lakeFS) tree(ctx context.Context, ref string) (tree, error) {
	var list struct {
		Results []struct {
			Path string `json:"path"`
		} `json:"results"`
		Pagination struct {
			HasMore bool `json:"has_more"`
		} `json:"pagination"`
	}
	refPath := "/repositories/" + repository + "/refs/" + ref
	if err := l.get(ctx, refPath+"/objects/ls", url.Values{"amount": {"1000"}}, &list); err != nil {
		return nil, err
	}
	if list.Pagination.HasMore {
		return nil, fmt.Errorf("%s has more than 1000 objects, which the demo does not expect", ref)
	}
	t := tree{}
	for _, o := range list.Results {
		content, err := l.do(ctx, http.MethodGet, refPath+"/objects", url.Values{"path": {o.Path}}, nil)
		if err != nil {
			return nil, err
		}
		t[o.Path] = string(content)
	}
	return t, nil
}

// log is the branch's history, newest first.
func (l lakeFS) log(ctx context.Context) ([]commit, error) {
	var list struct {
		Results []commit `json:"results"`
	}
	err := l.get(ctx, "/repositories/"+repository+"/refs/"+branch+"/commits",
		url.Values{"amount": {"1000"}, "first_parent": {"true"}}, &list)
	return list.Results, err
}

// peragoBranches are the branches that workers made, which are hidden.
func (l lakeFS) peragoBranches(ctx context.Context) ([]string, error) {
	var list struct {
		Results []struct {
			ID string `json:"id"`
		} `json:"results"`
	}
	err := l.get(ctx, "/repositories/"+repository+"/branches",
		url.Values{"prefix": {"perago-"}, "show_hidden": {"true"}, "amount": {"1000"}}, &list)
	var names []string
	for _, b := range list.Results {
		names = append(names, b.ID)
	}
	return names, err
}

type conductor struct{ api }

type workflow struct {
	ID     string         `json:"workflowId"`
	Status string         `json:"status"`
	Reason string         `json:"reasonForIncompletion"`
	Output map[string]any `json:"output"`
	Tasks  []task         `json:"tasks"`
}

type task struct {
	ID            string          `json:"taskId"`
	Type          string          `json:"taskDefName"`
	ReferenceName string          `json:"referenceTaskName"`
	Status        string          `json:"status"`
	RetryCount    int             `json:"retryCount"`
	Reason        string          `json:"reasonForIncompletion"`
	Output        json.RawMessage `json:"outputData"`
	StartTime     int64           `json:"startTime"`
	EndTime       int64           `json:"endTime"`
}

func (w workflow) ended() bool {
	switch w.Status {
	case "COMPLETED", "FAILED", "TIMED_OUT", "TERMINATED":
		return true
	}
	return false
}

func (c conductor) startWorkflow(ctx context.Context, name string, input map[string]any) (string, error) {
	id, err := c.do(ctx, http.MethodPost, "/workflow", nil, map[string]any{"name": name, "version": 1, "input": input})
	return strings.TrimSpace(string(id)), err
}

func (c conductor) workflow(ctx context.Context, id string) (workflow, error) {
	var w workflow
	err := c.get(ctx, "/workflow/"+url.PathEscape(id), url.Values{"includeTasks": {"true"}}, &w)
	return w, err
}

// waitForEnd polls a workflow until it has ended; each sees every poll.
func (c conductor) waitForEnd(ctx context.Context, id string, each func(workflow) error) (workflow, error) {
	return c.wait(ctx, id, func(w workflow) (bool, error) {
		if each != nil {
			if err := each(w); err != nil {
				return false, err
			}
		}
		return w.ended(), nil
	})
}

// failureWorkflow waits for the workflow that Conductor starts when another has
// failed: it does so a moment after it has set that one's status.
func (c conductor) failureWorkflow(ctx context.Context, id string) (string, error) {
	key := "conductor.failure_workflow"
	w, err := c.wait(ctx, id, func(w workflow) (bool, error) {
		return w.Output[key] != nil, nil
	})
	if err != nil {
		return "", fmt.Errorf("no failure workflow was started: %w", err)
	}
	return fmt.Sprint(w.Output[key]), nil
}

func (c conductor) wait(ctx context.Context, id string, until func(workflow) (bool, error)) (workflow, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, waitTime, fmt.Errorf("it took more than %s", waitTime))
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		w, err := c.workflow(ctx, id)
		done := false
		if err == nil {
			done, err = until(w)
		}
		switch {
		case ctx.Err() != nil:
			return w, fmt.Errorf("waiting for workflow %s, which is %s: %w; %s", id, w.Status, context.Cause(ctx), w.open())
		case err != nil || done:
			return w, err
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func (w workflow) open() string {
	var open []string
	for _, t := range w.Tasks {
		if t.Status == "SCHEDULED" || t.Status == "IN_PROGRESS" {
			open = append(open, t.ReferenceName+" is "+t.Status)
		}
	}
	if len(open) == 0 {
		return "no task of it is open"
	}
	return strings.Join(open, ", ")
}
