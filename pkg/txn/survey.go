package txn

import (
	"encoding/json"
	"time"
)

// Queue is the tasks of one type that wait in one domain.
type Queue struct {
	Type TaskType
	// Domain is empty for the queue without one.
	Domain  string
	Waiting int
}

// LastPoll is when the tasks of a type were last asked for in a domain, whatever
// came of it, as Conductor's clock has it.
type LastPoll struct {
	Domain string
	Worker WorkerID
	At     time.Time
}

// WorkflowVersion names one workflow definition.
type WorkflowVersion struct {
	Name    string
	Version int
}

// OpenWorkflow is a workflow that has not ended, with what it was started with.
type OpenWorkflow struct {
	Workflow
	// Input is a JSON object; nil when there is none.
	Input json.RawMessage
	// Parent is the workflow whose sub-workflow it is; empty when it is none.
	Parent  WorkflowID
	Started time.Time
}
