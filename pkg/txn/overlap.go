package txn

import "fmt"

// Overlap is what the head holds under the prefix of a step that the publish fence
// refused.
type Overlap struct {
	// Stage is the reference name of the step's stage task.
	Stage  ReferenceName
	Prefix Prefix
	// Same says that the head holds exactly the staged files. By is the newest
	// publication above the input ref that covers the prefix; zero when there is none.
	Same bool
	By   Commit
	// Changed says that the head holds other files than the input ref does.
	Changed bool
}

// Covering is the newest publication that covers a step's prefix, of commits that
// are newest first; zero when there is none.
func (s Step) Covering(commits []Commit) Commit {
	for _, commit := range commits {
		if record, err := PublicationOn(s.Branch, commit); err == nil && !record.Settles() && record.Prefix.Covers(s.Prefix) {
			return commit
		}
	}
	return Commit{}
}

// With adds to a fence error what the head holds under the step's prefix, and the
// way out that keeps the step's files.
func (e *PublishFenceError) With(o Overlap) *PublishFenceError {
	told := *e
	switch {
	case o.Same && o.By.ID != "":
		record, _ := ParseRecord(o.By.Metadata)
		told.Advice = fmt.Sprintf("it already holds exactly these files under %s, published as %s by workflow %s: there is nothing to publish", o.Prefix, o.By.ID.Short(), record.Workflow)
	case o.Same:
		told.Advice = fmt.Sprintf("it already holds exactly these files under %s: there is nothing to publish", o.Prefix)
	case e.final:
	case o.Changed:
		told.Advice += fmt.Sprintf(", or rerun %s with that workspace.ref; %s itself changed since, and a rerun replaces that change", o.Stage, o.Prefix)
	default:
		told.Advice += fmt.Sprintf(", or rerun %s with that workspace.ref, which keeps this step's files", o.Stage)
	}
	return &told
}
