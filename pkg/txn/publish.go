package txn

import (
	"fmt"
	"slices"
)

// HistoryLimit is how many first-parent commits between the input ref and the
// head are looked at. A target further ahead is refused.
const HistoryLimit = 1024

// Step is what a publication is of, from the stage task's record.
type Step struct {
	Repository Repository
	// Branch is the target.
	Branch   Branch
	Workflow WorkflowID
	Key      LogicalTaskKey
	Prefix   Prefix
	InputRef CommitID
}

// StepOf is the step of a staged reference whose key came from the stage task's
// record.
func StepOf(staged Staged, workflow WorkflowID, key LogicalTaskKey) Step {
	return Step{
		Repository: staged.Repository, Branch: staged.Branch, Workflow: workflow,
		Key: key, Prefix: staged.Prefix, InputRef: staged.InputRef,
	}
}

// CheckStagedCommit holds the staged commit S to what its step says: a try
// commit of that key, branch, prefix and input ref whose only parent is the
// input ref.
func CheckStagedCommit(step Step, staged Staged, commit Commit) error {
	record, err := ParseRecord(commit.Metadata)
	fault := func(what string) error {
		return Terminalf("staged.commit", "%s is not this step's staged commit: %s", commit.ID, what)
	}
	switch {
	case err != nil:
		return fault(err.Error())
	case commit.ID != staged.Commit:
		return fault("another commit was read")
	case record.Phase != PhaseTry:
		return fault("its phase is " + quote(string(record.Phase)))
	case record.Key != step.Key:
		return fault("its key is " + quote(string(record.Key)))
	case record.TargetBranch != step.Branch:
		return fault("its target branch is " + quote(string(record.TargetBranch)))
	case record.Prefix != step.Prefix:
		return fault("its prefix is " + quote(record.Prefix.String()))
	case record.InputRef != step.InputRef:
		return fault("its input ref is " + record.InputRef.Short())
	case record.Execution != staged.Execution:
		return fault("another execution wrote it")
	case len(commit.Parents) != 1 || commit.Parents[0] != step.InputRef:
		return fault("its only parent is not the input ref")
	}
	return nil
}

// PublishFacts is everything a publish decision is made of. All of it was read
// for this decision.
type PublishFacts struct {
	Step   Step
	Staged Staged
	// Wanted is the tree of S; for a no-op, of the input ref.
	Wanted MetaRangeID
	// Head is the target's commit now.
	Head CommitID
	// Range is the first-parent commits after the input ref up to Head, newest
	// first; at most HistoryLimit.
	Range []Commit
	// Reached says that Range ends at the input ref.
	Reached bool
	// FirstTry says that this is the attempt's first decision, and that stage and
	// publish are at retry count 0 and poll count 1.
	FirstTry bool
	// OtherBranches says that a branch of the key by another execution existed,
	// staging or source, when the branches were listed. They are listed before Head
	// is read. It is asked only for the first try of a no-op.
	OtherBranches bool
}

// PublishAction is what a publish does.
type PublishAction string

// The actions of a publish.
const (
	// PublishNothing outputs the input ref: nothing is published.
	PublishNothing PublishAction = "nothing"
	// PublishFirst merges S.
	PublishFirst PublishAction = "publish"
	// PublishEmpty makes an empty confirm commit: only moving the head disarms an
	// older attempt's merge.
	PublishEmpty PublishAction = "publish_empty"
	// PublishSuperseding merges a source commit that carries the wanted tree.
	PublishSuperseding PublishAction = "supersede"
	// PublishAdopt outputs a commit that this very staging published before.
	PublishAdopt PublishAction = "adopt"
)

// PublishDecision is one row of the decision table.
type PublishDecision struct {
	Action       PublishAction
	ExpectedHead CommitID
	Supersedes   CommitID
	// Adopt is the commit to output; only with PublishAdopt.
	Adopt CommitID
}

// DecidePublish is the decision table of Confirm ("Decide" in docs/protocol.md,
// same rows). It fails with *PublishRacedError or *PublishFenceError.
//
// A race is decided by position in the range, adoption by staging and tree over
// a clean range: the staging alone would turn a raced publication into a silent
// success, the tree alone would adopt a commit on which an older attempt may
// still be armed. There is no second rule for "was it ours".
func DecidePublish(f PublishFacts) (PublishDecision, error) {
	if f.Staged.ReadOnly {
		return PublishDecision{Action: PublishNothing}, nil
	}
	if f.Head == f.Step.InputRef {
		switch {
		case f.Staged.NoOp && f.FirstTry && !f.OtherBranches:
			return PublishDecision{Action: PublishNothing}, nil
		case f.Staged.NoOp:
			return PublishDecision{Action: PublishEmpty, ExpectedHead: f.Head}, nil
		}
		return PublishDecision{Action: PublishFirst, ExpectedHead: f.Head}, nil
	}
	if !f.Reached || len(f.Range) == 0 || len(f.Range) > HistoryLimit || f.Range[0].ID != f.Head {
		return PublishDecision{}, f.fenceError()
	}

	// ours is the index of the newest commit of ours, foreign that of the newest
	// foreign commit below it.
	ours, foreign := -1, -1
	for i, commit := range f.Range {
		switch _, err := f.Step.own(commit); {
		case err == nil && ours < 0:
			ours = i
		case err != nil && ours >= 0 && foreign < 0:
			foreign = i
		}
	}
	switch {
	case ours >= 0 && foreign >= 0:
		return PublishDecision{}, &PublishRacedError{
			Branch: f.Step.Branch, Published: f.Range[ours].ID, Foreign: f.Range[foreign].ID, Head: f.Head,
		}
	case ours < 0:
		return PublishDecision{}, f.fenceError()
	}
	newest := f.Range[ours]
	if record, _ := f.Step.own(newest); record.StagingExecution == f.Staged.Execution && newest.MetaRange == f.Wanted {
		return PublishDecision{Action: PublishAdopt, Adopt: newest.ID, ExpectedHead: record.ExpectedHead, Supersedes: record.Supersedes}, nil
	}
	switch {
	case ours > 0:
		return PublishDecision{}, f.fenceError()
	case f.Wanted == "":
		return PublishDecision{}, f.firstCommitError()
	}
	return PublishDecision{Action: PublishSuperseding, ExpectedHead: f.Head, Supersedes: f.Head}, nil
}

// keyCherryPick is what lakeFS adds to a cherry-picked commit, beside all of the
// original's metadata.
const keyCherryPick = "cherry-pick-origin"

// own reads a commit as ours: a single-parent confirm commit of the step's key
// on its branch with complete metadata. A copy of one that somebody picked is
// theirs. The error says what makes it foreign.
func (s Step) own(commit Commit) (Record, error) {
	record, err := ParseRecord(commit.Metadata)
	switch {
	case !IsRecord(commit.Metadata):
		return Record{}, fmt.Errorf("not written by perago")
	case err != nil:
		return Record{}, err
	case commit.Metadata[keyCherryPick] != "":
		return Record{}, fmt.Errorf("it was cherry-picked")
	case record.Phase != PhaseConfirm:
		return Record{}, fmt.Errorf("its phase is %s", record.Phase)
	case record.Key != s.Key:
		return Record{}, fmt.Errorf("it is of step %s", record.Key)
	case record.TargetBranch != s.Branch:
		return Record{}, fmt.Errorf("it was made for branch %s", record.TargetBranch)
	case len(commit.Parents) != 1:
		return Record{}, fmt.Errorf("it has %d parents", len(commit.Parents))
	}
	return record, nil
}

// Owns reports whether a commit is a publication of this step: a single-parent
// confirm commit of its key on its branch, with complete metadata.
func (s Step) Owns(commit Commit) bool {
	_, err := s.own(commit)
	return err == nil
}

// fenceError says where the target is and what to do about it, from the first
// foreign commit after the input ref.
func (f PublishFacts) fenceError() error {
	e := &PublishFenceError{
		Branch: f.Step.Branch, InputRef: f.Step.InputRef, Head: f.Head,
		Advice: fmt.Sprintf("start a new workflow with ref=%s", f.Head),
	}
	if !f.Reached {
		e.Advice, e.final = fmt.Sprintf("the input ref is not among its last %d first-parent commits; %s", HistoryLimit, e.Advice), true
		return e
	}
	for i := len(f.Range) - 1; i >= 0; i-- {
		if _, err := f.Step.own(f.Range[i]); err == nil {
			continue
		}
		record, err := ParseRecord(f.Range[i].Metadata)
		switch {
		case IsRecord(f.Range[i].Metadata) && err != nil:
			e.Advice, e.final = fmt.Sprintf("commit %s: %v; %s", f.Range[i].ID.Short(), err, e.Advice), true
		case err != nil || record.Workflow != f.Step.Workflow || record.Key == f.Step.Key:
		case record.InputRef == f.Step.InputRef:
			e.Advice, e.final = fmt.Sprintf("two steps of one workflow write %s; chain them", f.Step.Branch), true
		}
		break
	}
	return e
}

// firstCommitError refuses to supersede with the tree of a repository's first
// commit: lakeFS has no id for it, by which it could be committed again.
func (f PublishFacts) firstCommitError() error {
	return &PublishFenceError{
		Branch: f.Step.Branch, InputRef: f.Step.InputRef, Head: f.Head, final: true,
		Advice: fmt.Sprintf("the input ref is the repository's first commit, whose empty tree cannot be published again; commit a file to %s (perago fence install does) and start a new workflow from there", f.Step.Branch),
	}
}

// ConfirmRecord is the metadata of the confirm commit that an attempt makes for
// a decision.
func ConfirmRecord(step Step, staged Staged, decision PublishDecision, source CommitID, attempt Attempt, execution ExecutionID) Record {
	return Record{
		Phase: PhaseConfirm, Key: step.Key, Workflow: step.Workflow,
		Task: attempt.Task, RetryCount: attempt.RetryCount, Execution: execution,
		InputRef: step.InputRef, TargetBranch: step.Branch, Prefix: step.Prefix, StagingBranch: staged.StagingBranch,
		StagingCommit: staged.Commit, StagingExecution: staged.Execution,
		SourceCommit: source, ExpectedHead: decision.ExpectedHead, Supersedes: decision.Supersedes,
	}
}

// CheckLanded holds the commit that a merge answered with to what was decided:
// its only parent is the expected head, its tree the wanted one and its metadata
// what was sent. Anything else is a race, and is never rolled back.
func CheckLanded(landed Commit, wanted MetaRangeID, sent Record) error {
	record, err := ParseRecord(landed.Metadata)
	unexpected := func(what string) error {
		return &UnexpectedLandingError{Branch: sent.TargetBranch, Landed: landed.ID, ExpectedHead: sent.ExpectedHead, What: what}
	}
	switch {
	case len(landed.Parents) != 1 || landed.Parents[0] != sent.ExpectedHead:
		return unexpected(fmt.Sprintf("its parent is %v", landed.Parents))
	case landed.MetaRange != wanted:
		return unexpected("its tree is not the staged one")
	case err != nil:
		return unexpected(err.Error())
	case record != sent:
		return unexpected("its metadata is not what was sent")
	}
	return nil
}

// UnexpectedLandingError says that a merge was applied where it should not have
// been. It is loud and never rolled back; a retry decides from the history.
type UnexpectedLandingError struct {
	Branch       Branch
	Landed       CommitID
	ExpectedHead CommitID
	What         string
}

func (e *UnexpectedLandingError) Error() string {
	return fmt.Sprintf("%s was raced: the merge landed as %s, expected on %s, but %s; inspect the branch", e.Branch, e.Landed, e.ExpectedHead, e.What)
}

// LateLandings is the commits of a step above the one that its completed publish
// put out: an older attempt's merge that landed after it. The commits are those
// above the published one, newest first. A copy that somebody picked is theirs.
func LateLandings(key LogicalTaskKey, above []Commit) []CommitID {
	var late []CommitID
	for _, commit := range above {
		if record, err := ParseRecord(commit.Metadata); err == nil && record.Phase == PhaseConfirm && record.Key == key && commit.Metadata[keyCherryPick] == "" {
			late = append(late, commit.ID)
		}
	}
	return late
}

// LandedLate is what landed late above the publication of a staging, in the range
// that its publish reads: commits of the step that are another staging's, or that
// did not land on the head they were decided for. Those by which this staging
// superseded them are none. Both lists are newest first; published is the first
// publication of the staging, empty when there is none.
func (s Step) LandedLate(staging ExecutionID, commits []Commit) (published CommitID, late []CommitID) {
	for _, commit := range slices.Backward(commits) {
		record, err := s.own(commit)
		own := err == nil && record.StagingExecution == staging
		switch {
		case err != nil:
		case published == "" && own:
			published = commit.ID
		case published != "" && (!own || commit.Parents[0] != record.ExpectedHead):
			late = append(late, commit.ID)
		}
	}
	slices.Reverse(late)
	return published, late
}

// Outcome is how a publication ended; also a metric label.
type Outcome string

// The outcomes of a publication.
const (
	OutcomePublished        Outcome = "published"
	OutcomeAlreadyPublished Outcome = "already_published"
	OutcomeNoOp             Outcome = "no_op"
	OutcomeReadOnly         Outcome = "read_only"
	OutcomeRaced            Outcome = "raced"
	OutcomeTakenBack        Outcome = "taken_back"
	OutcomeInDoubt          Outcome = "in_doubt"
	OutcomeRefused          Outcome = "refused"
)

// Fence says which publish fence held for a publication.
type Fence string

// The two fences.
const (
	// FenceSoft is the reading of the target before the merge and of what landed
	// after it.
	FenceSoft Fence = "soft"
	// FenceHard is lakeFS refusing any merge whose parent is not the expected
	// head.
	FenceHard Fence = "hard"
)

// Publication is the result of a publish.
type Publication struct {
	Commit       CommitID `json:"commit"`
	ExpectedHead CommitID `json:"expected_head"`
	Supersedes   CommitID `json:"supersedes"`
	Outcome      Outcome  `json:"outcome"`
	Fence        Fence    `json:"fence"`
}
