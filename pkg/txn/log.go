package txn

import "strings"

// PublicationOn reads a commit of a branch as a publication of whichever step it
// is of. The error says what makes it somebody else's.
func PublicationOn(branch Branch, commit Commit) (Record, error) {
	// What is no record has no key, and own says why.
	key, _ := ParseRecord(commit.Metadata)
	return Step{Branch: branch, Key: key.Key}.own(commit)
}

// Settles reports whether the commit took the slot of a branch (SettleRecord).
func (r Record) Settles() bool { return r.Workflow == settleWorkflow }

// StepName is the reference name of a step's stage task, from its key.
func StepName(key LogicalTaskKey, workflow WorkflowID) ReferenceName {
	rest, ok := strings.CutPrefix(string(key), string(workflow)+":")
	if i := strings.LastIndexByte(rest, ':'); ok && i > 0 {
		return ReferenceName(rest[:i])
	}
	return ReferenceName(key)
}
