package explain

import (
	"errors"
	"fmt"
	"time"

	"perago/pkg/txn"
)

// Kind is what a commit on a target branch is.
type Kind string

// The kinds of commit.
const (
	// Publication is a publication of a step, on the head it was decided for.
	Publication Kind = "publication"
	// Raced is one that landed on another head.
	Raced Kind = "raced"
	// Settled took the slot of the branch: perago settle.
	Settled Kind = "settled"
	// Foreign is everybody else's, and what no step recognises.
	Foreign Kind = "foreign"
)

// Entry is one commit of a branch's history.
type Entry struct {
	Commit  txn.CommitID `json:"commit"`
	Created time.Time    `json:"created"`
	Kind    Kind         `json:"kind"`
	// Workflow, Step and the attempt are a publication's; Retry is the retry count
	// of the publish.
	Workflow  txn.WorkflowID    `json:"workflow_id,omitempty"`
	Step      txn.ReferenceName `json:"step,omitempty"`
	Retry     int               `json:"retry_count"`
	Execution txn.ExecutionID   `json:"execution_id,omitempty"`
	Prefix    string            `json:"prefix,omitempty"`
	// Supersedes is the publication that this one replaced, SupersededBy the one
	// that replaced this.
	Supersedes   txn.CommitID `json:"supersedes,omitempty"`
	SupersededBy txn.CommitID `json:"superseded_by,omitempty"`
	// Why says what makes it foreign or raced.
	Why     string `json:"why,omitempty"`
	Message string `json:"message"`
}

// Log is the history of a target branch, newest first, for people: which step's
// publication each commit is, and which are somebody else's.
func Log(branch txn.Branch, commits []txn.Commit) []Entry {
	superseded := map[txn.CommitID]txn.CommitID{}
	all := make([]Entry, 0, len(commits))
	for _, commit := range commits {
		entry := Entry{Commit: commit.ID, Created: commit.Created.UTC(), Kind: Foreign, Message: commit.Message, SupersededBy: superseded[commit.ID]}
		record, err := txn.PublicationOn(branch, commit)
		switch {
		case err != nil:
			entry.Why = err.Error()
			var newer *txn.NewerVersionError
			if errors.As(err, &newer) {
				entry.Why = fmt.Sprintf("written by a newer perago (metadata version %q)", newer.Version)
			}
			if len(commit.Parents) == 0 && !txn.IsRecord(commit.Metadata) {
				entry.Why = "the repository's first commit"
			}
		case record.Settles():
			entry.Kind = Settled
		default:
			entry.Kind = Publication
			entry.Workflow, entry.Retry, entry.Execution = record.Workflow, record.RetryCount, record.Execution
			entry.Step, entry.Prefix = txn.StepName(record.Key, record.Workflow), record.Prefix.String()
			entry.Supersedes = record.Supersedes
			if record.Supersedes != "" {
				superseded[record.Supersedes] = commit.ID
			}
			if commit.Parents[0] != record.ExpectedHead {
				entry.Kind = Raced
				entry.Why = fmt.Sprintf("expected on %s, landed on %s", record.ExpectedHead.Short(), commit.Parents[0].Short())
			}
		}
		all = append(all, entry)
	}
	return all
}
