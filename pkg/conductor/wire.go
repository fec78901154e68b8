package conductor

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/conductor-sdk/conductor-go/sdk/model"

	"perago/pkg/txn"
)

// wireTask is the SDK's task with its open-ended parts left as they came: the
// SDK decodes them into map[string]any, where an integer above 2^53 is rounded.
// A field here takes the place of the SDK's field of the same name.
type wireTask struct {
	model.Task
	InputData      json.RawMessage     `json:"inputData"`
	OutputData     json.RawMessage     `json:"outputData"`
	TaskDefinition *wireTaskDefinition `json:"taskDefinition"`
	// Not needed, and different between server versions.
	WorkflowTask json.RawMessage `json:"workflowTask"`
}

// wireTaskDefinition is the SDK's task definition with its template as it came.
type wireTaskDefinition struct {
	model.TaskDef
	InputTemplate json.RawMessage `json:"inputTemplate"`
	// Not needed, and different between server versions.
	Tags json.RawMessage `json:"tags"`
}

func (w wireTask) task() txn.Task {
	task := txn.Task{
		ID:            txn.TaskID(w.TaskId),
		Workflow:      txn.WorkflowID(w.WorkflowInstanceId),
		Type:          txn.TaskType(w.TaskDefName),
		ReferenceName: txn.ReferenceName(w.ReferenceTaskName),
		Iteration:     int(w.Iteration),
		Status:        txn.TaskStatus(w.Status),
		RetryCount:    int(w.RetryCount),
		PollCount:     int(w.PollCount),
		StartTime:     w.StartTime,
		Worker:        txn.WorkerID(w.WorkerId),
		Domain:        w.Domain,
		Reason:        w.ReasonForIncompletion,
		Input:         object(w.InputData),
		Output:        object(w.OutputData),

		ExternalInput: w.ExternalInputPayloadStoragePath != "", ExternalOutput: w.ExternalOutputPayloadStoragePath != "",
	}
	for at, millis := range map[*time.Time]int64{&task.Times.Scheduled: w.ScheduledTime, &task.Times.Updated: w.UpdateTime, &task.Times.Ended: w.EndTime} {
		if millis > 0 {
			*at = time.UnixMilli(millis).UTC()
		}
	}
	task.Times.ResponseTimeout, task.Times.Callback = txn.Timeout(max(0, w.ResponseTimeoutSeconds)), txn.Timeout(max(0, w.CallbackAfterSeconds))
	if task.SubWorkflow = txn.WorkflowID(w.SubWorkflowId); task.SubWorkflow == "" && w.TaskType == "SUB_WORKFLOW" {
		// Older servers put it out only.
		var output struct {
			SubWorkflow txn.WorkflowID `json:"subWorkflowId"`
		}
		_ = json.Unmarshal(w.OutputData, &output) // what cannot be read is none
		task.SubWorkflow = output.SubWorkflow
	}
	if task.Type == "" {
		task.Type = txn.TaskType(w.TaskType)
	}
	if w.TaskDefinition != nil {
		definition := w.TaskDefinition.definition()
		task.Definition = &definition
	}
	return task
}

// complete reports whether the task can be told from another one.
func (w wireTask) complete() bool {
	return w.TaskId != "" && w.WorkflowInstanceId != "" && w.Status != ""
}

func (w wireTaskDefinition) definition() txn.TaskDefinition {
	return txn.TaskDefinition{
		Name:                   txn.TaskType(w.Name),
		RetryCount:             int(w.RetryCount),
		TimeoutSeconds:         w.TimeoutSeconds,
		ResponseTimeoutSeconds: w.ResponseTimeoutSeconds,
		PollTimeoutSeconds:     int64(w.PollTimeoutSeconds),
		TimeoutPolicy:          w.TimeoutPolicy,
		InputTemplate:          object(w.InputTemplate),
	}
}

// object is the raw JSON, nil when there is none.
func object(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil
	}
	return raw
}
