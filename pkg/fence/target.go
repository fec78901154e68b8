package fence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"perago/pkg/txn"
)

// Lake is what the fence needs of lakeFS. Errors carry the classes of package
// txn; a method that is not idempotent is sent once.
type Lake interface {
	// Head is the commit a branch points at now. txn.ErrNotFound.
	Head(ctx context.Context, repo txn.Repository, branch txn.Branch) (txn.CommitID, error)
	// Commit reads a commit. txn.ErrNotFound.
	Commit(ctx context.Context, repo txn.Repository, id txn.CommitID) (txn.Commit, error)
	// History reads the first-parent commits from a commit down to, not including,
	// stopAt, newest first, at most limit of them; reached says that stopAt was met.
	History(ctx context.Context, repo txn.Repository, from, stopAt txn.CommitID, limit int) (commits []txn.Commit, reached bool, err error)
	// Branches lists every branch, hidden ones too, whose name begins so.
	Branches(ctx context.Context, repo txn.Repository, prefix string) ([]txn.BranchHead, error)
	// Objects lists a commit's objects below a prefix, in order; an error is the
	// last pair.
	Objects(ctx context.Context, repo txn.Repository, ref txn.CommitID, prefix txn.Prefix) iter.Seq2[txn.Object, error]
	// ReadObject opens an object of a commit. txn.ErrNotFound.
	ReadObject(ctx context.Context, repo txn.Repository, ref txn.CommitID, path string) (io.ReadCloser, error)
	// CreateBranch makes a hidden branch. Not idempotent: txn.ErrExists,
	// txn.ErrUnknownOutcome.
	CreateBranch(ctx context.Context, repo txn.Repository, name txn.Branch, source txn.CommitID) error
	// DeleteBranch removes a branch. txn.ErrNotFound.
	DeleteBranch(ctx context.Context, repo txn.Repository, branch txn.Branch) error
	// Upload writes an object to a branch's staging area.
	Upload(ctx context.Context, repo txn.Repository, branch txn.Branch, path string, from txn.Content) (txn.Object, error)
	// DeleteObjects removes objects from a branch's staging area. A path that is
	// not there is no error.
	DeleteObjects(ctx context.Context, repo txn.Repository, branch txn.Branch, paths []string) error
	// CreateCommit commits what is staged. Not idempotent: txn.ErrNoChanges,
	// txn.ErrHookRefused, txn.ErrUnknownOutcome.
	CreateCommit(ctx context.Context, repo txn.Repository, branch txn.Branch, message string, metadata map[string]string) (txn.Commit, error)
	// Merge sends one squash merge; a source that changes nothing makes an empty
	// commit. Not idempotent: txn.ErrHookRefused with the hook's message,
	// txn.ErrDirtyBranch, txn.ErrConflict, txn.ErrUnknownOutcome.
	Merge(ctx context.Context, m txn.Merge) (txn.CommitID, error)
	// HookRuns is every hook run of a commit; none is no error.
	HookRuns(ctx context.Context, repo txn.Repository, commit txn.CommitID) ([]txn.HookRun, error)
	// Protect adds a branch protection rule, unless one covers the branch, and
	// leaves the others as they are.
	Protect(ctx context.Context, repo txn.Repository, branch txn.Branch) (added bool, err error)
}

// Target is a branch and one execution of a command on its fence.
type Target struct {
	Lake       Lake
	Repository txn.Repository
	Branch     txn.Branch
	// Execution names the probe branch, so it is used once.
	Execution txn.ExecutionID
}

// cleanupTime bounds the deletion of the probe branch, which goes on when the
// command was interrupted or its time is over.
const cleanupTime = 15 * time.Second

// State is what stands in a branch's head.
type State struct {
	Head txn.CommitID
	// Present says that there is an action file of the fence's name.
	Present bool
	// Fault says what is wrong with it, or that there is none; nil when it is the
	// known one.
	Fault *FaultError
}

// State reads the action file in the head of the branch. It changes nothing and
// proves nothing.
func (t Target) State(ctx context.Context) (State, error) {
	head, err := t.Lake.Head(ctx, t.Repository, t.Branch)
	if err != nil {
		return State{}, err
	}
	content, err := t.read(ctx, head)
	switch {
	case errors.Is(err, txn.ErrNotFound):
		return State{Head: head, Fault: &FaultError{
			Found: fmt.Sprintf("%s (commit %s) holds no %s", t.Branch, head.Short(), txn.FenceFile),
			Mend:  "run " + t.command("install"),
		}}, nil
	case err != nil:
		return State{}, err
	}
	return State{Head: head, Present: true, Fault: t.fault(head, content)}, nil
}

// read is the action file of a commit. A file that is much larger than ours is
// not read to its end.
func (t Target) read(ctx context.Context, commit txn.CommitID) ([]byte, error) {
	object, err := t.Lake.ReadObject(ctx, t.Repository, commit, txn.FenceFile)
	if err != nil {
		return nil, err
	}
	defer object.Close()
	content, err := io.ReadAll(io.LimitReader(object, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", txn.FenceFile, err)
	}
	return content, nil
}

// Address is the branch as people write it.
func (t Target) Address() string { return fmt.Sprintf("lakefs://%s/%s", t.Repository, t.Branch) }

// command is the command line that does something about the fence of the branch.
func (t Target) command(verb string) string {
	return fmt.Sprintf("`perago fence %s %s`", verb, t.Address())
}

// onProbe cuts the probe branch from a commit, does something on it and deletes
// it, whatever happened.
func (t Target) onProbe(ctx context.Context, head txn.CommitID, do func(probe txn.Branch) error) (err error) {
	probe := txn.ProbeBranch(t.Execution)
	created := t.Lake.CreateBranch(ctx, t.Repository, probe, head)
	if created != nil {
		created = fmt.Errorf("create the hidden branch %s: %w", probe, created)
	}
	if errors.Is(created, txn.ErrRefused) {
		// A branch of this name would be somebody else's.
		return created
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		// One whose creation got no answer may not be there.
		if left := t.Lake.DeleteBranch(ctx, t.Repository, probe); left != nil && !errors.Is(left, txn.ErrNotFound) {
			err = errors.Join(err, fmt.Errorf("the hidden branch %s is left behind; delete it by hand: %w", probe, left))
		}
	}()
	if created != nil {
		return created
	}
	return do(probe)
}
