package fence

import (
	"bytes"
	"context"
	"io"
	"slices"

	"perago/pkg/txn"
)

// Prover tells whether the hard fence is known to hold for a merge.
type Prover struct {
	Lake ProverLake
}

// ProverLake is what the proof is read from.
type ProverLake interface {
	// ReadObject opens an object of a commit. txn.ErrNotFound.
	ReadObject(ctx context.Context, repo txn.Repository, ref txn.CommitID, path string) (io.ReadCloser, error)
	// HookRuns is every hook run of a commit; none is no error.
	HookRuns(ctx context.Context, repo txn.Repository, commit txn.CommitID) ([]txn.HookRun, error)
}

// Proven reports whether the hard fence is known to hold for a merge of source
// into the target: the source carries the known action file, which is what lakeFS
// would load, and lakeFS has run it before. What cannot be read proves nothing.
func (p Prover) Proven(ctx context.Context, repo txn.Repository, target txn.Branch, source txn.CommitID, onTarget []txn.Commit) bool {
	carries, err := p.Carries(ctx, repo, source)
	return err == nil && carries && p.HasRun(ctx, repo, target, onTarget)
}

// Carries reports whether a commit carries the known action file. The error of a
// commit without any is txn.ErrNotFound.
func (p Prover) Carries(ctx context.Context, repo txn.Repository, commit txn.CommitID) (bool, error) {
	content, err := p.Lake.ReadObject(ctx, repo, commit, txn.FenceFile)
	if err != nil {
		return false, err
	}
	defer content.Close()
	// One byte more than the known file tells a longer one.
	read, err := io.ReadAll(io.LimitReader(content, int64(len(file))+1))
	return err == nil && bytes.Equal(read, file), err
}

// HasRun reports whether lakeFS has run the fence to completion for one of the
// newest confirm commits on the target. What cannot be read proves nothing.
func (p Prover) HasRun(ctx context.Context, repo txn.Repository, target txn.Branch, onTarget []txn.Commit) bool {
	return slices.ContainsFunc(txn.FenceWitnesses(target, onTarget), func(commit txn.CommitID) bool {
		runs, err := p.Lake.HookRuns(ctx, repo, commit)
		return err == nil && txn.FenceOf(runs) == txn.FenceHard
	})
}
