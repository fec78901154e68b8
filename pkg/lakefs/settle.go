package lakefs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"perago/pkg/txn"
)

// Settling is a Client that reads what became of the creation of a branch or a
// commit when the answer does not say. Reading proves something only where nobody
// else can have done the same: a branch is settled when its name holds an execution
// id (txn.HoldsExecution), a commit by the execution id in its metadata. A merge
// into a target branch is the publisher's to settle.
type Settling struct{ *Client }

// mostCommits is above how often a commit is sent, with txn.Pauses between.
const mostCommits = 8

// CreateBranch is Client.CreateBranch, settled: a branch that is there and stands
// at source was created. After the last read txn.ErrUnknownOutcome says that it
// may still come; the caller then abandons the name, and neither deletes nor
// reuses it, so that what lands late names a whole branch. For a name without an
// execution id txn.ErrUnknownOutcome comes at once: the branch may be another
// person's.
func (s Settling) CreateBranch(ctx context.Context, repo txn.Repository, name txn.Branch, source txn.CommitID) error {
	return s.settleBranch(ctx, repo, name, source, s.Client.CreateBranch(ctx, repo, name, source))
}

// CreateVisibleBranch is Client.CreateVisibleBranch, settled as CreateBranch is.
func (s Settling) CreateVisibleBranch(ctx context.Context, repo txn.Repository, name txn.Branch, source txn.CommitID) error {
	return s.settleBranch(ctx, repo, name, source, s.Client.CreateVisibleBranch(ctx, repo, name, source))
}

func (s Settling) settleBranch(ctx context.Context, repo txn.Repository, name txn.Branch, source txn.CommitID, unknown error) error {
	if !errors.Is(unknown, txn.ErrUnknownOutcome) || !txn.HoldsExecution(name) {
		return unknown
	}
	for pauses := txn.Pauses(); ; pauses = pauses[1:] {
		switch head, err := s.Head(ctx, repo, name); {
		case err == nil && head == source:
			return nil
		case err == nil:
			return fmt.Errorf("branch %s stands at %s and not at %s, so it is not the one that was asked for: %w", name, head, source, txn.ErrExists)
		}
		if len(pauses) == 0 || !wait(ctx, pauses[0]) {
			return unknown
		}
	}
}

// CreateCommit is Client.CreateCommit, settled.
func (s Settling) CreateCommit(ctx context.Context, repo txn.Repository, branch txn.Branch, message string, metadata map[string]string) (txn.Commit, error) {
	return s.settle(ctx, repo, branch, metadata, func() (txn.Commit, error) {
		return s.Client.CreateCommit(ctx, repo, branch, message, metadata)
	})
}

// CommitTree is Client.CommitTree, settled.
func (s Settling) CommitTree(ctx context.Context, repo txn.Repository, branch txn.Branch, tree txn.MetaRangeID, message string, metadata map[string]string) (txn.Commit, error) {
	return s.settle(ctx, repo, branch, metadata, func() (txn.Commit, error) {
		return s.Client.CommitTree(ctx, repo, branch, tree, message, metadata)
	})
}

// CommitUnchanged is Client.CommitUnchanged, settled.
func (s Settling) CommitUnchanged(ctx context.Context, repo txn.Repository, branch txn.Branch, message string, metadata map[string]string) (txn.Commit, error) {
	return s.settle(ctx, repo, branch, metadata, func() (txn.Commit, error) {
		return s.Client.CommitUnchanged(ctx, repo, branch, message, metadata)
	})
}

// settle sends a commit and, while its outcome is unknown, reads the branch's
// head: the commit of this execution and phase is done, anything else is sent
// again. A refusal for want of changes after an unknown outcome is one too: the
// first one may have landed in between. Should two land after all, they are alike,
// and the first is the one.
func (s Settling) settle(ctx context.Context, repo txn.Repository, branch txn.Branch, metadata map[string]string, send func() (txn.Commit, error)) (txn.Commit, error) {
	want, err := txn.ParseRecord(metadata)
	if err != nil {
		return txn.Commit{}, fmt.Errorf("commit %s: the metadata to settle it by: %w", branch, err)
	}
	commit, err := send()
	if !errors.Is(err, txn.ErrUnknownOutcome) {
		return commit, err
	}
	for pauses := txn.Pauses(); ; pauses = pauses[1:] {
		if found, ok := s.landed(ctx, repo, branch, want); ok {
			return found, nil
		}
		if len(pauses) == 0 || !wait(ctx, pauses[0]) {
			return txn.Commit{}, err
		}
		if found, ok := s.landed(ctx, repo, branch, want); ok {
			return found, nil
		}
		commit, err = send()
		switch {
		case err == nil:
			return s.first(ctx, repo, commit, want), nil
		case !errors.Is(err, txn.ErrUnknownOutcome) && !errors.Is(err, txn.ErrNoChanges):
			return txn.Commit{}, err
		}
	}
}

// landed reads the branch's head, if it is the commit of this execution and
// phase.
func (s Settling) landed(ctx context.Context, repo txn.Repository, branch txn.Branch, want txn.Record) (txn.Commit, bool) {
	head, err := s.Head(ctx, repo, branch)
	if err != nil {
		return txn.Commit{}, false
	}
	commit, err := s.Commit(ctx, repo, head)
	if err != nil || !of(commit, want) {
		return txn.Commit{}, false
	}
	return s.first(ctx, repo, commit, want), true
}

// first is the first of several commits of this execution and phase, one on top
// of the other. Where its parents cannot be read, the caller, who looks at them
// too, has the commit itself. It goes no further down than commits were sent: a
// commit that says that it is its own parent has no first one.
func (s Settling) first(ctx context.Context, repo txn.Repository, commit txn.Commit, want txn.Record) txn.Commit {
	for below := 0; below < mostCommits && len(commit.Parents) == 1; below++ {
		parent, err := s.Commit(ctx, repo, commit.Parents[0])
		if err != nil || !of(parent, want) {
			break
		}
		commit = parent
	}
	return commit
}

// of reports whether a commit is of this execution and phase.
func of(commit txn.Commit, want txn.Record) bool {
	record, err := txn.ParseRecord(commit.Metadata)
	return err == nil && record.Execution == want.Execution && record.Phase == want.Phase
}

// wait pauses and reports false when ctx ended first.
func wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
