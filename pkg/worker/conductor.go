package worker

import (
	"context"

	"perago/pkg/txn"
)

// Conductor is what the runtime needs of the server. Errors carry the classes of
// package txn. A cancelled context ends a call; for Poll and Update that leaves
// the outcome unknown.
type Conductor interface {
	// Poll takes at most Count tasks; none is no error. Each carries its TaskDef.
	// It is not idempotent: tasks of an answer that got lost come back after their
	// response timeout.
	Poll(ctx context.Context, request txn.PollRequest) ([]txn.Task, error)
	// Task reads a task; one that is not there is txn.ErrNotFound.
	Task(ctx context.Context, id txn.TaskID) (txn.Task, error)
	// WorkflowStatus reads a workflow's status; one that is not there is
	// txn.ErrNotFound.
	WorkflowStatus(ctx context.Context, id txn.WorkflowID) (txn.WorkflowStatus, error)
	// Update reports a task. No error does not mean that it was accepted:
	// Conductor answers 200 to updates it ignores. Sending the same end twice is
	// harmless while the attempt is current.
	Update(ctx context.Context, result txn.TaskResult) error
	// ExtendLease renews the response timeout; on a task that is over it does
	// nothing and reports no error. It is idempotent.
	ExtendLease(ctx context.Context, workflow txn.WorkflowID, task txn.TaskID, worker txn.WorkerID) error
	// TaskDefinition reads a TaskDef; one that is not registered is
	// txn.ErrNotFound.
	TaskDefinition(ctx context.Context, name txn.TaskType) (txn.TaskDefinition, error)
	// Ping asks whether the server answers.
	Ping(ctx context.Context) error
}
