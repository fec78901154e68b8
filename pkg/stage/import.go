package stage

import (
	"context"
	"errors"
	"fmt"

	"perago/pkg/projection"
	"perago/pkg/txn"
)

// runImport is Try from a prefix of the object store. lakeFS takes the objects
// over as they are, so what they are is known only once they are staged: the
// guardrails run on the staged listing, and a violation leaves the branch to
// cleanup.
func (e *execution) runImport(ctx context.Context) (Result, error) {
	commit, err := e.importOnto(ctx)
	if err != nil {
		return Result{}, err
	}
	if err := e.commit(commit); err != nil {
		return Result{}, err
	}

	end := e.attempt.Phase("compare")
	violations, err := e.compareImport(ctx)
	end()
	switch held := e.staged.Removed + e.staged.Changed + e.staged.Unchanged; {
	case errors.As(err, new(*txn.TerminalError)):
		return Result{}, err
	case err != nil:
		return Result{}, fmt.Errorf("compare what was imported with %s at %s: %w", e.input.Prefix, e.staged.InputRef.Short(), err)
	case e.staged.Added+e.staged.Changed+e.staged.Unchanged == 0 && !e.input.AllowEmpty:
		return Result{}, fmt.Errorf("%s holds no objects, which would remove everything under %s; if that is meant, set allow_empty: true", e.input.Import, e.input.Prefix)
	default:
		if violations = append(violations, e.guardrails.CheckRemoved(e.staged.Removed, held)...); len(violations) > 0 {
			return refused(violations)
		}
	}
	if commit.MetaRange == e.base.MetaRange {
		// lakeFS commits an import that changes nothing all the same.
		e.staged.NoOp, e.staged.Commit = true, e.staged.InputRef
	}
	return e.finish(ctx)
}

// importOnto makes a staging branch and imports onto it. A branch onto which an
// import may still come is abandoned, and one more is tried under a fresh
// execution id. That took seconds, so the fence is asked again before.
func (e *execution) importOnto(ctx context.Context) (txn.Commit, error) {
	for fresh := true; ; fresh = false {
		if err := e.createBranch(ctx); err != nil {
			return txn.Commit{}, err
		}
		end := e.attempt.Phase("import")
		commit, err := e.Lake.Import(ctx, e.repository(), e.staged.StagingBranch, e.input.Import, e.input.Prefix, e.labels.message(e), e.labels.metadata(e))
		end()
		if err == nil || !fresh || !errors.Is(err, txn.ErrUnknownOutcome) || ctx.Err() != nil {
			return commit, err
		}
		if err := e.attempt.Current(ctx); err != nil {
			return txn.Commit{}, err
		}
		if e.staged.Execution, err = e.NewExecutionID(); err != nil {
			return txn.Commit{}, err
		}
	}
}

// compareImport counts what the import did to the projection and checks the
// guardrails about files, in one pass over both listings.
func (e *execution) compareImport(ctx context.Context) ([]projection.Violation, error) {
	var changes projection.Changes
	var keys projection.Keys
	var err, refused error
	violations, stopped := e.guardrails.Check(ctx, func(yield func(string) bool) {
		changes, err = projection.Compare(e.input.Prefix,
			e.Lake.Objects(ctx, e.repository(), e.staged.InputRef, e.input.Prefix),
			e.Lake.Objects(ctx, e.repository(), e.staged.Commit, e.input.Prefix),
			func(path string) bool {
				if unfit := keys.Check(path); unfit != nil {
					refused = txn.Terminalf("source.import", "%s holds the object %q, which no checkout could download: %v; remove it from the object store, or import another prefix", e.input.Import, path, unfit)
					return false
				}
				return yield(path)
			})
	})
	if refused != nil {
		return nil, refused
	}
	if stopped != nil {
		err = stopped // the comparison was left because of it
	}
	e.staged.Added, e.staged.Changed = changes.Added, changes.Changed
	e.staged.Removed, e.staged.Unchanged = changes.Removed, changes.Unchanged
	return violations, err
}
