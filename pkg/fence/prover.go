package fence

import (
	"bytes"
	"context"
	"io"

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
// would load, and lakeFS has run it to completion for one of the newest confirm
// commits on the target. What cannot be read proves nothing.
func (p Prover) Proven(ctx context.Context, repo txn.Repository, target txn.Branch, source txn.CommitID, onTarget []txn.Commit) bool {
	if !p.carries(ctx, repo, source) {
		return false
	}
	for _, commit := range txn.FenceWitnesses(target, onTarget) {
		if runs, err := p.Lake.HookRuns(ctx, repo, commit); err == nil && txn.FenceOf(runs) == txn.FenceHard {
			return true
		}
	}
	return false
}

func (p Prover) carries(ctx context.Context, repo txn.Repository, source txn.CommitID) bool {
	file, err := p.Lake.ReadObject(ctx, repo, source, txn.FenceFile)
	if err != nil {
		return false
	}
	defer file.Close()
	known := File()
	// One byte more than the known file tells a longer one.
	content, err := io.ReadAll(io.LimitReader(file, int64(len(known))+1))
	return err == nil && bytes.Equal(content, known)
}
