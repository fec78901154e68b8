package conductortest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"perago/pkg/txn"
)

// object is any JSON object, numbers as json.Number.
type object = map[string]any

// taskDefinition is a TaskDef with the server's defaults filled in. Fields it
// does not know are dropped, as the server does.
type taskDefinition struct {
	CreateTime                  int64             `json:"createTime,omitempty"`
	UpdateTime                  int64             `json:"updateTime,omitempty"`
	Name                        string            `json:"name"`
	Description                 *string           `json:"description,omitempty"`
	RetryCount                  int               `json:"retryCount"`
	TimeoutSeconds              int64             `json:"timeoutSeconds"`
	InputKeys                   []string          `json:"inputKeys"`
	OutputKeys                  []string          `json:"outputKeys"`
	TimeoutPolicy               string            `json:"timeoutPolicy"`
	RetryLogic                  string            `json:"retryLogic"`
	RetryDelaySeconds           int64             `json:"retryDelaySeconds"`
	ResponseTimeoutSeconds      int64             `json:"responseTimeoutSeconds"`
	ConcurrentExecLimit         *int              `json:"concurrentExecLimit,omitempty"`
	InputTemplate               object            `json:"inputTemplate"`
	RateLimitPerFrequency       int               `json:"rateLimitPerFrequency"`
	RateLimitFrequencyInSeconds int               `json:"rateLimitFrequencyInSeconds"`
	OwnerEmail                  *string           `json:"ownerEmail,omitempty"`
	PollTimeoutSeconds          *int64            `json:"pollTimeoutSeconds,omitempty"`
	BackoffScaleFactor          int64             `json:"backoffScaleFactor"`
	AccessPolicy                map[string]string `json:"accessPolicy"`
}

// newTaskDefinition holds the defaults.
func newTaskDefinition(name string) *taskDefinition {
	return &taskDefinition{
		Name: name, RetryCount: 3, TimeoutPolicy: "TIME_OUT_WF", RetryLogic: "FIXED", RetryDelaySeconds: 60,
		ResponseTimeoutSeconds: 3600, RateLimitFrequencyInSeconds: 1, BackoffScaleFactor: 1,
		InputKeys: []string{}, OutputKeys: []string{}, InputTemplate: object{}, AccessPolicy: map[string]string{},
	}
}

// faults are the rules of the server's validation, path and message.
func (d *taskDefinition) faults(ownerRequired bool) []validationError {
	var faults []validationError
	add := func(path, format string, arguments ...any) {
		faults = append(faults, validationError{path, fmt.Sprintf(format, arguments...)})
	}
	if d.Name == "" {
		add("name", "TaskDef name cannot be null or empty")
	}
	if ownerRequired && (d.OwnerEmail == nil || *d.OwnerEmail == "") {
		add("ownerEmail", "ownerEmail cannot be empty")
	}
	if d.RetryCount < 0 {
		add("retryCount", "TaskDef retryCount: 0 must be >= 0")
	}
	if d.ResponseTimeoutSeconds < 1 {
		add("responseTimeoutSeconds", "TaskDef responseTimeoutSeconds: %d should be minimum 1 second", d.ResponseTimeoutSeconds)
	}
	if d.TimeoutSeconds > 0 && d.ResponseTimeoutSeconds > d.TimeoutSeconds {
		add("", "TaskDef: %s responseTimeoutSeconds: %d must be less than timeoutSeconds: %d", d.Name, d.ResponseTimeoutSeconds, d.TimeoutSeconds)
	}
	return faults
}

// delay is how long the retry of a task with this retry count waits.
func (d *taskDefinition) delay(retryCount int) time.Duration {
	seconds := d.RetryDelaySeconds
	switch d.RetryLogic {
	case "EXPONENTIAL_BACKOFF":
		seconds *= int64(math.Pow(2, float64(retryCount)))
	case "LINEAR_BACKOFF":
		seconds *= d.BackoffScaleFactor * int64(retryCount+1)
	}
	return time.Duration(seconds) * time.Second
}

type validationError struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

// workflowTask is one task of a workflow definition.
type workflowTask struct {
	Name              string          `json:"name"`
	TaskReferenceName string          `json:"taskReferenceName"`
	Description       *string         `json:"description,omitempty"`
	InputParameters   object          `json:"inputParameters"`
	Type              string          `json:"type"`
	StartDelay        int             `json:"startDelay"`
	Optional          bool            `json:"optional"`
	TaskDefinition    *taskDefinition `json:"taskDefinition,omitempty"`
	AsyncComplete     bool            `json:"asyncComplete"`
}

// workflowDefinition is a workflow definition with the server's defaults.
type workflowDefinition struct {
	CreateTime       int64             `json:"createTime,omitempty"`
	UpdateTime       int64             `json:"updateTime,omitempty"`
	Name             string            `json:"name"`
	Description      *string           `json:"description,omitempty"`
	Version          int               `json:"version"`
	Tasks            []workflowTask    `json:"tasks"`
	InputParameters  []string          `json:"inputParameters"`
	OutputParameters object            `json:"outputParameters"`
	FailureWorkflow  *string           `json:"failureWorkflow,omitempty"`
	SchemaVersion    int               `json:"schemaVersion"`
	Restartable      bool              `json:"restartable"`
	StatusListener   bool              `json:"workflowStatusListenerEnabled"`
	OwnerEmail       *string           `json:"ownerEmail,omitempty"`
	TimeoutPolicy    string            `json:"timeoutPolicy"`
	TimeoutSeconds   int64             `json:"timeoutSeconds"`
	Variables        object            `json:"variables"`
	InputTemplate    object            `json:"inputTemplate"`
	AccessPolicy     map[string]string `json:"accessPolicy"`
}

func newWorkflowDefinition() *workflowDefinition {
	return &workflowDefinition{
		Version: 1, SchemaVersion: 2, Restartable: true, TimeoutPolicy: "ALERT_ONLY", InputParameters: []string{},
		OutputParameters: object{}, Variables: object{}, InputTemplate: object{}, AccessPolicy: map[string]string{},
	}
}

// task is one try of a task.
type task struct {
	TaskType             string          `json:"taskType"`
	Status               txn.TaskStatus  `json:"status"`
	InputData            object          `json:"inputData"`
	ExternalInput        string          `json:"externalInputPayloadStoragePath,omitempty"`
	ReferenceTaskName    string          `json:"referenceTaskName"`
	RetryCount           int             `json:"retryCount"`
	Seq                  int             `json:"seq"`
	CorrelationID        *string         `json:"correlationId,omitempty"`
	PollCount            int             `json:"pollCount"`
	TaskDefName          string          `json:"taskDefName"`
	ScheduledTime        int64           `json:"scheduledTime"`
	StartTime            int64           `json:"startTime"`
	EndTime              int64           `json:"endTime"`
	UpdateTime           int64           `json:"updateTime"`
	StartDelayInSeconds  int64           `json:"startDelayInSeconds"`
	RetriedTaskID        *txn.TaskID     `json:"retriedTaskId,omitempty"`
	Retried              bool            `json:"retried"`
	Executed             bool            `json:"executed"`
	CallbackFromWorker   bool            `json:"callbackFromWorker"`
	ResponseTimeout      int64           `json:"responseTimeoutSeconds"`
	WorkflowInstanceID   txn.WorkflowID  `json:"workflowInstanceId"`
	WorkflowType         string          `json:"workflowType"`
	TaskID               txn.TaskID      `json:"taskId"`
	Reason               *string         `json:"reasonForIncompletion,omitempty"`
	CallbackAfterSeconds int64           `json:"callbackAfterSeconds"`
	WorkerID             *string         `json:"workerId,omitempty"`
	OutputData           object          `json:"outputData"`
	WorkflowTask         workflowTask    `json:"workflowTask"`
	Domain               *string         `json:"domain,omitempty"`
	Iteration            int             `json:"iteration"`
	TaskDefinition       *taskDefinition `json:"taskDefinition"`
	LoopOverTask         bool            `json:"loopOverTask"`
}

func (t *task) over() bool { return !t.Status.Open() }

// queue is the name of the queue the task waits in.
func (t *task) queue() string {
	if t.Domain != nil {
		return queueName(t.TaskDefName, *t.Domain)
	}
	return queueName(t.TaskDefName, "")
}

func queueName(kind, domain string) string {
	if domain == "" {
		return kind
	}
	return domain + ":" + kind
}

// workflow is one workflow instance.
type workflow struct {
	CreateTime         int64               `json:"createTime"`
	UpdateTime         int64               `json:"updateTime"`
	Status             txn.WorkflowStatus  `json:"status"`
	EndTime            int64               `json:"endTime"`
	WorkflowID         txn.WorkflowID      `json:"workflowId"`
	Tasks              []*task             `json:"tasks"`
	Input              object              `json:"input"`
	Output             object              `json:"output"`
	CorrelationID      *string             `json:"correlationId,omitempty"`
	Reason             *string             `json:"reasonForIncompletion,omitempty"`
	TaskToDomain       map[string]string   `json:"taskToDomain"`
	WorkflowDefinition *workflowDefinition `json:"workflowDefinition"`
	StartTime          int64               `json:"startTime"`
	WorkflowName       string              `json:"workflowName"`
	WorkflowVersion    int                 `json:"workflowVersion"`
}

// last is the newest try of a reference name, nil when there is none.
func (w *workflow) last(reference string) *task {
	for _, t := range slices.Backward(w.Tasks) {
		if t.ReferenceTaskName == reference {
			return t
		}
	}
	return nil
}

// domain is where tasks of a type go.
func (w *workflow) domain(kind string) *string {
	for _, key := range []string{kind, "*"} {
		if domain, ok := w.TaskToDomain[key]; ok {
			return &domain
		}
	}
	return nil
}

// decode reads JSON keeping numbers as they are written.
func decode(raw []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// clone is a deep copy by way of JSON: what a caller gets must not change under
// its eyes, and definitions must not change in workflows that already run.
func clone[T any](value T) T {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("a value that came from JSON does not go back: %v", err))
	}
	var copied T
	if err := decode(raw, &copied); err != nil {
		panic(fmt.Sprintf("a value that went to JSON does not come back: %v", err))
	}
	return copied
}

func merged(under, over object) object {
	all := maps.Clone(under)
	if all == nil {
		all = object{}
	}
	maps.Copy(all, over)
	return all
}

func pointer[T any](value T) *T { return &value }
