package txn

import "fmt"

// AdoptionFacts is what was read of a target about P, a publication that
// DecidePublish would adopt.
type AdoptionFacts struct {
	Step Step
	// Published is P, Head the target's commit now.
	Published Commit
	Head      CommitID
	// Held says that the head holds under the step's prefix what P put there. The
	// other facts are read only where it is false.
	Held bool
	// Restored says that the head holds under the prefix what P's parent held.
	Restored bool
	// Changes is the first-parent commits above P that changed the prefix, newest
	// first.
	Changes []Commit
}

// CheckAdoption is the adoption table of Confirm ("Decide" in docs/protocol.md,
// same rows). P happened, but a person may have taken it back since. It fails with
// *TakenBackError.
//
// A later publication may replace what P put there: the fence let it pass, so its
// step started from a commit that holds P. Any other commit may not, and neither
// may a publication that raced. The first one to change the whole prefix decides.
func CheckAdoption(f AdoptionFacts) error {
	if f.Held {
		return nil
	}
	var by CommitID
	for i := len(f.Changes) - 1; i >= 0; i-- {
		record, err := PublicationOn(f.Step.Branch, f.Changes[i])
		if err != nil || f.Changes[i].Parents[0] != record.ExpectedHead {
			by = f.Changes[i].ID
		} else if record.Prefix.Covers(f.Step.Prefix) {
			break
		}
	}
	if by == "" {
		return nil
	}
	return &TakenBackError{
		Branch: f.Step.Branch, Prefix: f.Step.Prefix, Published: f.Published.ID, By: by, Head: f.Head, Restored: f.Restored,
	}
}

// TakenBackError says that a publication of this step landed, and that the branch
// does not hold it any more. A retry says the same, so it is terminal.
type TakenBackError struct {
	Branch Branch
	Prefix Prefix
	// Published is the step's commit. By is the commit above it that changed the
	// prefix and had no right to; the newest of several.
	Published CommitID
	By        CommitID
	Head      CommitID
	// Restored says that the prefix holds what it held before Published.
	Restored bool
}

func (e *TakenBackError) Error() string { return e.Sentence() + "; " + e.Advice() }

// Sentence says what happened.
func (e *TakenBackError) Sentence() string {
	if e.Restored {
		return fmt.Sprintf("%s of %s was published as %s and taken back by %s", e.Prefix, e.Branch, e.Published, e.By)
	}
	return fmt.Sprintf("%s of %s was published as %s, and %s changed it since", e.Prefix, e.Branch, e.Published, e.By.Short())
}

// Advice says what to do.
func (e *TakenBackError) Advice() string {
	return fmt.Sprintf("revert %s and retry to have it back, or start a new workflow with ref=%s", e.By.Short(), e.Head)
}
