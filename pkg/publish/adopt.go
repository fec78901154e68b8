package publish

import (
	"context"
	"slices"

	"perago/pkg/txn"
)

// Differ is the one call of Lake that ReadAdoption makes.
type Differ interface {
	// Differ is Lake's.
	Differ(ctx context.Context, repository txn.Repository, left, right txn.CommitID, prefix txn.Prefix) (bool, error)
}

// ReadAdoption reads what a target holds of a publication of a step. down is the
// first-parent commits from the target's head down to the publication, which is
// the last. Most of the time the publication is the head, and nothing is read.
func ReadAdoption(ctx context.Context, lake Differ, step txn.Step, down []txn.Commit) (txn.AdoptionFacts, error) {
	head, published := down[0], down[len(down)-1]
	facts := txn.AdoptionFacts{Step: step, Published: published, Head: head.ID}
	differ := func(left, right txn.CommitID) (bool, error) {
		return lake.Differ(ctx, step.Repository, left, right, step.Prefix)
	}
	if head.MetaRange == published.MetaRange {
		facts.Held = true
		return facts, nil
	}
	changed, err := differ(published.ID, head.ID)
	if err != nil || !changed {
		facts.Held = err == nil
		return facts, err
	}
	if len(published.Parents) == 1 {
		different, err := differ(published.Parents[0], head.ID)
		if err != nil {
			return facts, err
		}
		facts.Restored = !different
	}
	for below, commit := range slices.Backward(down[:len(down)-1]) {
		parent := down[below+1]
		if commit.MetaRange == parent.MetaRange {
			continue
		}
		changed, err := differ(parent.ID, commit.ID)
		if err != nil {
			return facts, err
		}
		if changed {
			facts.Changes = slices.Insert(facts.Changes, 0, commit)
		}
	}
	return facts, nil
}
