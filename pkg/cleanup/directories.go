package cleanup

import (
	"context"
	"crypto/rand"
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
// reads. It keeps no state beside the names of what it has renamed (txn.Removal);
// several on one shared volume are harmless.
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
	// UnknownTTL is how long the directory of an unknown workflow stays after its last
	// change; 0 is for ever.
	UnknownTTL time.Duration
	Now        func() time.Time
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
	run := &directorySweep{Directories: d}
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
			state, reason := run.sweep(ctx, entry.Name())
			if ctx.Err() != nil {
				return swept, context.Cause(ctx) // what was set aside is put back
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
			if d.UnknownTTL == 0 || !run.believed {
				swept.Unknown = run.unknown
			}
			return swept, nil
		case err != nil:
			return swept, fmt.Errorf("read the workspace root: %w", err)
		}
	}
}

// directorySweep is one sweep.
type directorySweep struct {
	*Directories
	// believed says that Conductor knew one of the workflows.
	believed bool
	// unknown counts what stays because Conductor does not know its workflow.
	unknown int
}

func (d *directorySweep) sweep(ctx context.Context, name string) (State, string) {
	if txn.ReservedDirectory(name) {
		return d.resume(ctx, name)
	}
	reason, goes, err := d.decide(ctx, txn.WorkflowID(name), name)
	switch {
	case err != nil:
		return StateFailed, err.Error()
	case !goes:
		return StateKept, reason
	}
	// The workflow may be rerun from here on, and its user task writes in the same
	// directory. So the directory is set aside at once, and only then is the workflow
	// read for the decision that counts. A stage never meets a directory of which a
	// part is removed.
	aside := txn.Removal{Token: rand.Text(), Workflow: txn.WorkflowID(name)}
	switch err := d.Root.Rename(name, aside.Name()); {
	case errors.Is(err, fs.ErrNotExist):
		return StateKept, "another sweep has taken it"
	case err != nil:
		return StateFailed, fmt.Sprintf("set the directory aside: %v", err)
	}
	return d.finish(ctx, aside)
}

// resume goes on with a directory that a sweep has renamed: one that ended before
// it was done, or one on another host that is still at it.
func (d *directorySweep) resume(ctx context.Context, name string) (State, string) {
	removal, ok := txn.ParseRemoval(name)
	switch {
	case !ok:
		return StateKept, "its name is not one that perago gives"
	case removal.Decided:
		return d.remove(removal, "a sweep had decided that it goes")
	}
	return d.finish(ctx, removal)
}

// finish decides on a directory that is set aside: it goes, or it is put back.
func (d *directorySweep) finish(ctx context.Context, aside txn.Removal) (State, string) {
	reason, goes, err := d.decide(ctx, aside.Workflow, aside.Name())
	if err == nil && goes {
		gone := aside
		gone.Decided = true
		switch err := d.Root.Rename(aside.Name(), gone.Name()); {
		case errors.Is(err, fs.ErrNotExist):
			return StateKept, "another sweep has taken it"
		case err != nil:
			return StateFailed, fmt.Sprintf("set the directory aside: %v", err)
		}
		return d.remove(gone, reason)
	}
	if failed := d.putBack(aside); failed != nil {
		return StateFailed, failed.Error()
	}
	if err != nil {
		return StateFailed, err.Error()
	}
	return StateKept, reason + "; it had been set aside and was put back"
}

// remove removes a directory whose removal is decided. RemoveAll removes links
// themselves and stays below the root.
func (d *directorySweep) remove(gone txn.Removal, reason string) (State, string) {
	if err := d.Root.RemoveAll(gone.Name()); err != nil {
		return StateFailed, err.Error()
	}
	return StateDeleted, reason
}

// putBack gives a directory its name back. It replaces nothing: a directory that
// was made under the name meanwhile stays, and so does the one set aside. Then the
// workflow's files are in two places, and no stage of it takes any until a person
// has put them together or the workflow has ended.
func (d *directorySweep) putBack(aside txn.Removal) error {
	name := string(aside.Workflow)
	_, err := d.Root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		// Rename replaces no directory, also not one that is made right now.
		err = d.Root.Rename(aside.Name(), name)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil // put back, by this sweep or by another
		}
	}
	if err == nil || errors.Is(err, fs.ErrExist) {
		if _, err := d.Root.Lstat(aside.Name()); errors.Is(err, fs.ErrNotExist) {
			return nil // the name is there because another sweep has put it back
		}
		return fmt.Errorf("the directory was set aside as %s and cannot be put back, because %s was made meanwhile; move the files that are needed there, and remove the one set aside", aside.Name(), name)
	}
	return fmt.Errorf("put the directory back from %s: %w", aside.Name(), err)
}

// askingTime is how long Conductor may take to say what became of a workflow.
const askingTime = time.Minute

func (d *directorySweep) decide(ctx context.Context, id txn.WorkflowID, name string) (reason string, goes bool, err error) {
	// One that takes the question and never answers would end all sweeps.
	ctx, cancel := context.WithTimeout(ctx, askingTime)
	defer cancel()
	status, err := d.Workflows.WorkflowStatus(ctx, id)
	d.believed = d.believed || err == nil
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
		named := txn.NamesWorkflow(string(id))
		var idle time.Duration
		if named && d.UnknownTTL > 0 { // else nothing that is not its own is looked into
			if idle, err = d.idle(name); err != nil {
				return "", false, err
			}
		}
		if reason, goes = txn.DecideUnknownDirectory(named, idle, d.UnknownTTL); !goes && named {
			d.unknown++
		}
		return reason, goes, nil
	case err != nil:
		return "", false, fmt.Errorf("read workflow %s: %w", id, err)
	}
	reason, goes = txn.DecideDirectory(status, 0, d.TTL)
	return reason, goes, nil
}

// idle is since the newest change of a directory or of what lies directly in it; 0
// for a link.
func (d *directorySweep) idle(name string) (time.Duration, error) {
	info, err := d.Root.Lstat(name)
	if err != nil || !info.IsDir() {
		return 0, err
	}
	directory, err := d.Root.Open(name)
	if err != nil {
		return 0, err
	}
	defer directory.Close()
	newest := info.ModTime()
	for {
		entries, err := directory.ReadDir(directoryBatch)
		for _, entry := range entries {
			if info, err := entry.Info(); err == nil && info.ModTime().After(newest) {
				newest = info.ModTime()
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return d.Now().Sub(newest), nil
		case err != nil:
			return 0, err
		}
	}
}
