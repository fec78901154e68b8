package cleanup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"perago/pkg/txn"
)

// Directories removes what workflows that have ended left below the workspace
// root of one host: <root>/<workflow id>/, where user workers write and stage
// reads. It keeps no state; several on one shared volume are harmless.
//
// A directory goes at once when its workflow is COMPLETED, and TTL after its end
// when it ended otherwise, because until then a retry of the stage needs the
// files. What Conductor does not know is kept: it may be another Conductor's, or
// nobody's.
type Directories struct {
	// Root is the workspace root: nothing outside it is touched, and no link is
	// followed.
	Root      *os.Root
	Workflows WorkflowEnds
	TTL       time.Duration
	Now       func() time.Time
	// Decided hears what became of each directory; nil when nobody listens.
	Decided func(name string, state State, reason string)
}

// WorkflowEnds is what the sweep of directories asks of Conductor.
type WorkflowEnds interface {
	// WorkflowStatus reads a workflow's status; txn.ErrNotFound when there is none.
	WorkflowStatus(ctx context.Context, id txn.WorkflowID) (txn.WorkflowStatus, error)
	// Workflow reads a workflow; txn.ErrNotFound when there is none.
	Workflow(ctx context.Context, id txn.WorkflowID) (txn.Workflow, error)
}

// directoryBatch is how many names are read at a time: a root may hold very many.
const directoryBatch = 256

// Sweep goes over the root once. The error is of the root itself; what failed
// for one directory is counted and told.
func (d *Directories) Sweep(ctx context.Context) (Swept, error) {
	var swept Swept
	root, err := d.Root.Open(".")
	if err != nil {
		return swept, fmt.Errorf("open the workspace root: %w", err)
	}
	defer root.Close()
	for {
		entries, err := root.ReadDir(directoryBatch)
		for _, entry := range entries {
			// A link is removed as one; a file is nobody's workflow.
			if !entry.IsDir() && entry.Type()&fs.ModeSymlink == 0 {
				continue
			}
			state, reason := d.sweep(ctx, entry.Name())
			if ctx.Err() != nil {
				return swept, context.Cause(ctx)
			}
			switch state {
			case StateDeleted:
				swept.Deleted++
			case StateKept:
				swept.Kept++
			case StateFailed:
				swept.Failed++
			}
			if d.Decided != nil {
				d.Decided(entry.Name(), state, reason)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return swept, nil
		case err != nil:
			return swept, fmt.Errorf("read the workspace root: %w", err)
		}
	}
}

func (d *Directories) sweep(ctx context.Context, name string) (State, string) {
	reason, goes, err := d.decide(ctx, txn.WorkflowID(name))
	switch {
	case err != nil:
		return StateFailed, err.Error()
	case !goes:
		return StateKept, reason
	}
	// RemoveAll removes links themselves and stays below the root.
	if err := d.Root.RemoveAll(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return StateFailed, err.Error()
	}
	return StateDeleted, reason
}

// askingTime is how long Conductor may take to say what became of a workflow.
const askingTime = time.Minute

func (d *Directories) decide(ctx context.Context, id txn.WorkflowID) (reason string, goes bool, err error) {
	// One that takes the question and never answers would end all sweeps.
	ctx, cancel := context.WithTimeout(ctx, askingTime)
	defer cancel()
	status, err := d.Workflows.WorkflowStatus(ctx, id)
	if err == nil && status.Terminal() && status != txn.WorkflowCompleted {
		var workflow txn.Workflow
		switch workflow, err = d.Workflows.Workflow(ctx, id); {
		case err == nil && workflow.Status.Terminal() && workflow.Ended.IsZero():
			return fmt.Sprintf("its workflow is %s, and Conductor does not say since when", workflow.Status), false, nil
		case err == nil:
			reason, goes = txn.DecideDirectory(workflow.Status, d.Now().Sub(workflow.Ended), d.TTL)
			return reason, goes, nil
		}
	}
	switch {
	case errors.Is(err, txn.ErrNotFound):
		return "this Conductor knows no workflow of this name", false, nil
	case err != nil:
		return "", false, fmt.Errorf("read workflow %s: %w", id, err)
	}
	reason, goes = txn.DecideDirectory(status, 0, d.TTL)
	return reason, goes, nil
}
