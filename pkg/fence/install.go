package fence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"perago/pkg/txn"
)

// Options of an installation.
type Options struct {
	// Protect turns on branch protection for the branch, too.
	Protect bool
}

// Action is what a command did to the action file.
type Action string

// What a command did.
const (
	Installed Action = "installed"
	Replaced  Action = "replaced"
	Removed   Action = "removed"
	// Unchanged: the branch already was as it should be, and its head did not move.
	Unchanged Action = "unchanged"
)

// Change is the result of Install and Remove.
type Change struct {
	Action Action
	// Head is the head that the command left; unless somebody has moved it since,
	// the ref to start a workflow from.
	Head txn.CommitID
	// Before is the commit below it, when the command moved the head.
	Before txn.CommitID
	// Protected says that a branch protection rule was added.
	Protected bool
}

// Install puts the known action file into the branch and keeps every other file
// in _lakefs_actions/. Installing what is installed changes nothing. A file of a
// newer version is left alone: *FaultError.
func (t Target) Install(ctx context.Context, options Options) (Change, error) {
	state, err := t.State(ctx)
	if err != nil {
		return Change{}, err
	}
	change := Change{Action: Unchanged, Head: state.Head}
	if fault := state.Fault; fault != nil {
		if fault.Newer {
			return Change{}, fault
		}
		change.Action = Installed
		if state.Present {
			change.Action = Replaced
		}
		landed, err := t.land(ctx, state.Head, "install", file, func(probe txn.Branch) error {
			_, err := t.Lake.Upload(ctx, t.Repository, probe, txn.FenceFile, txn.Content{
				Size: int64(len(file)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(file)), nil },
			})
			return err
		})
		if err != nil {
			return Change{}, err
		}
		change.Head, change.Before = landed.ID, landed.Parents[0]
	}
	if options.Protect {
		if change.Protected, err = t.Lake.Protect(ctx, t.Repository, t.Branch); err != nil {
			return Change{}, fmt.Errorf("the fence is %s, but %s could not be protected: %w", change.Action, t.Branch, err)
		}
	}
	return change, nil
}

// Remove takes the action file out of the branch, whatever its version, and
// keeps every other file in _lakefs_actions/. Branch protection stays as it is.
// Where there is no file, nothing changes.
func (t Target) Remove(ctx context.Context) (Change, error) {
	state, err := t.State(ctx)
	if err != nil {
		return Change{}, err
	}
	if !state.Present {
		return Change{Action: Unchanged, Head: state.Head}, nil
	}
	landed, err := t.land(ctx, state.Head, "remove", nil, func(probe txn.Branch) error {
		return t.Lake.DeleteObjects(ctx, t.Repository, probe, []string{txn.FenceFile})
	})
	if err != nil {
		return Change{}, err
	}
	return Change{Action: Removed, Head: landed.ID, Before: landed.Parents[0]}, nil
}

// land makes a change on a hidden branch, commits and merges it into the target:
// a protected branch refuses the upload and passes the merge. content is what the
// action file then holds, nil when it is gone. It returns what landed, held to
// what was meant.
func (t Target) land(ctx context.Context, head txn.CommitID, verb string, content []byte, change func(probe txn.Branch) error) (landed txn.Commit, err error) {
	message := fmt.Sprintf("perago fence %s (version %d)", verb, Version)
	metadata := map[string]string{"perago.fence": verb, "perago.fence_version": fmt.Sprint(Version)}
	err = t.onProbe(ctx, head, func(probe txn.Branch) error {
		if err := change(probe); err != nil {
			return err
		}
		commit, err := t.Lake.CreateCommit(ctx, t.Repository, probe, message, metadata)
		if err != nil {
			return fmt.Errorf("commit on the hidden branch %s: %w", probe, err)
		}
		if !slices.Equal(commit.Parents, []txn.CommitID{head}) {
			return fmt.Errorf("somebody else committed on the hidden branch %s; nothing was merged", probe)
		}
		id, err := t.Lake.Merge(ctx, txn.Merge{
			Repository: t.Repository, Source: commit.ID, Destination: t.Branch, Message: message, Metadata: metadata,
		})
		switch {
		case errors.Is(err, txn.ErrUnknownOutcome):
			return fmt.Errorf("merge into %s: whether it landed is not known; run %s to see: %w", t.Branch, t.command("verify"), err)
		case err != nil:
			return fmt.Errorf("merge into %s: %w", t.Branch, err)
		}
		landed, err = t.checkLanded(ctx, id, commit, content)
		return err
	})
	if err != nil {
		return txn.Commit{}, err
	}
	return landed, nil
}

// checkLanded holds the commit that the merge made to what was meant: the action
// file is as it was put or gone, and every other one is as it was just below.
func (t Target) checkLanded(ctx context.Context, id txn.CommitID, meant txn.Commit, content []byte) (txn.Commit, error) {
	wrong := func(format string, arguments ...any) (txn.Commit, error) {
		return txn.Commit{}, fmt.Errorf("the merge landed on %s as %s, but %s; look at the branch before anything else uses it", t.Branch, id, fmt.Sprintf(format, arguments...))
	}
	landed, err := t.Lake.Commit(ctx, t.Repository, id)
	switch {
	case err != nil:
		return wrong("it cannot be read: %v", err)
	case len(landed.Parents) != 1:
		return wrong("it has %d parents", len(landed.Parents))
	case slices.Equal(landed.Parents, meant.Parents) && landed.MetaRange != meant.MetaRange:
		return wrong("its tree is not the one that was merged")
	}
	now, err := t.read(ctx, id)
	switch {
	case content == nil && err == nil:
		return wrong("%s is still there", txn.FenceFile)
	case content == nil && errors.Is(err, txn.ErrNotFound):
	case err != nil:
		return wrong("%s cannot be read: %v", txn.FenceFile, err)
	case !bytes.Equal(now, content):
		return wrong("%s is not what was put there", txn.FenceFile)
	}
	after, err := t.otherActions(ctx, id)
	if err != nil {
		return wrong("its actions cannot be listed: %v", err)
	}
	before, err := t.otherActions(ctx, landed.Parents[0])
	switch {
	case err != nil:
		return wrong("the actions below it cannot be listed: %v", err)
	case !slices.Equal(before, after):
		return wrong("it changed other files in %s: %v before, %v now", txn.ActionsPrefix, before, after)
	}
	return landed, nil
}

// otherActions lists the files in _lakefs_actions/ of a commit, but for the
// fence's own.
func (t Target) otherActions(ctx context.Context, commit txn.CommitID) ([]txn.Object, error) {
	var all []txn.Object
	for object, err := range t.Lake.Objects(ctx, t.Repository, commit, txn.Prefix(txn.ActionsPrefix)) {
		if err != nil {
			return nil, err
		}
		if object.Path != txn.FenceFile {
			all = append(all, object)
		}
	}
	return all, nil
}
