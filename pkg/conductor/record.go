package conductor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"perago/pkg/txn"
)

// keptPayload is how much of the input or the output of a task that is not Perago's
// is kept, in bytes. What is larger is dropped: nothing of it is asked for.
const keptPayload = 4 << 10

// record is what is kept of a workflow's record. The record holds every input and
// output of every task, of users' tasks too, and has no limit of its own.
type record struct {
	id, name, status, reason string
	parent                   txn.WorkflowID
	started, ended           int64
	input, output            json.RawMessage
	tasks                    []txn.Task
}

// workflow is the record as the protocol speaks of it.
func (r record) workflow() txn.Workflow {
	workflow := txn.Workflow{
		ID: txn.WorkflowID(r.id), Name: r.name, Status: txn.WorkflowStatus(r.status),
		Reason: r.reason, Output: object(r.output), Tasks: r.tasks,
	}
	// A workflow that was retried still has the end of the time before.
	if workflow.Status.Terminal() && r.ended > 0 {
		workflow.Ended = time.UnixMilli(r.ended)
	}
	return workflow
}

// readRecord reads a workflow's record as it comes. What it keeps has at most limit
// bytes for each value, and for the inputs and outputs of Perago's tasks together;
// everything else is passed by in constant memory.
func (c *Client) readRecord(ctx context.Context, id txn.WorkflowID, withInput bool) (record, error) {
	call := c.call(http.MethodGet, "/workflow/"+segment(id), effectNone)
	response, body, err := c.stream(ctx, call, url.Values{"includeTasks": {"true"}})
	if err != nil {
		return record{}, err
	}
	defer discard(response)
	beginning, _ := body.Peek(64)
	malformed := func(why string) error {
		return call.malformed(response.StatusCode, response.Header, beginning, why)
	}
	read, err := recordOf(body, c.through.limit, withInput)
	_, own := errors.AsType[*formError](err)
	switch {
	case errors.Is(err, errNotJSON), own:
		return record{}, malformed("not a workflow: " + err.Error())
	case err != nil:
		return record{}, call.noAnswer(err)
	case read.id != string(id) || read.status == "":
		return record{}, malformed("not the workflow that was asked for")
	}
	return read, nil
}

// formError is JSON that is no workflow's record.
type formError struct{ error }

func recordOf(from *bufio.Reader, limit int64, withInput bool) (record, error) {
	s := scanner{from}
	var r record
	fields := map[string]any{
		"workflowId": &r.id, "workflowName": &r.name, "status": &r.status, "reasonForIncompletion": &r.reason,
		"endTime": &r.ended, "startTime": &r.started, "parentWorkflowId": &r.parent, "output": &r.output,
	}
	if withInput {
		fields["input"] = &r.input
	}
	if b, err := s.next(); err != nil {
		return r, err
	} else if b != '{' {
		return r, errNotJSON
	}
	for {
		b, err := s.next()
		if err != nil {
			return r, err
		}
		switch b {
		case ',':
			continue
		case '}':
			return r, s.end()
		case '"':
		default:
			return r, errNotJSON
		}
		key, err := s.text()
		if err != nil {
			return r, err
		}
		if b, err = s.next(); err != nil {
			return r, err
		} else if b != ':' {
			return r, errNotJSON
		}
		into, wanted := fields[key]
		switch {
		case key == "tasks":
			err = s.tasks(limit, &r.tasks)
		case wanted:
			var raw json.RawMessage
			if raw, err = s.value("the workflow's "+key, limit); err == nil {
				if wrong := json.Unmarshal(raw, into); wrong != nil {
					err = &formError{wrong}
				}
			}
		default:
			err = s.skip()
		}
		if err != nil {
			return r, err
		}
	}
}

// tasks reads a list of tasks one by one and ends at the first that is none.
func (s scanner) tasks(limit int64, all *[]txn.Task) error {
	b, err := s.next()
	switch {
	case err != nil:
		return err
	case b != '[':
		if err := s.UnreadByte(); err != nil {
			return err
		}
		raw, err := s.value("the list of tasks", limit)
		if err == nil && object(raw) != nil {
			err = &formError{errors.New("not a list of tasks")}
		}
		return err
	}
	kept := int64(0)
	for first := true; ; first = false {
		if b, err = s.next(); err != nil {
			return err
		}
		switch {
		case b == ']':
			return nil
		case b == ',' && !first:
		case first:
			if err := s.UnreadByte(); err != nil {
				return err
			}
		default:
			return errNotJSON
		}
		raw, err := s.value("one task", limit)
		if err != nil {
			return err
		}
		var one wireTask
		if err := json.Unmarshal(raw, &one); err != nil {
			return &formError{fmt.Errorf("not a list of tasks: %w", err)}
		}
		if !one.complete() {
			return &formError{errors.New("a task without an id, a workflow or a status")}
		}
		if len(*all) == mostTasks {
			return &formError{fmt.Errorf("more than %d tasks", mostTasks)}
		}
		task := one.task()
		if !isPeragos(task.Type) {
			task.Input, task.Output = small(task.Input), small(task.Output)
			if task.Definition != nil {
				task.Definition.InputTemplate = small(task.Definition.InputTemplate)
			}
		}
		if kept += int64(len(task.Input) + len(task.Output)); kept > limit {
			return fmt.Errorf("%w: the inputs and outputs of its tasks have more than %d bytes", errTooLarge, limit)
		}
		*all = append(*all, task)
	}
}

func isPeragos(t txn.TaskType) bool {
	return t.IsStage() || t.IsPublish() || t.IsCleanup() || t.IsCheckout()
}

// small is a payload that is not too large to be kept.
func small(raw json.RawMessage) json.RawMessage {
	if len(raw) > keptPayload {
		return nil
	}
	return raw
}

// end wants nothing but white space.
func (s scanner) end() error {
	for {
		switch b, err := s.ReadByte(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case b != ' ' && b != '\t' && b != '\r' && b != '\n':
			return errNotJSON
		}
	}
}
