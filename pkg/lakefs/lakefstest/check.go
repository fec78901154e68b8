package lakefstest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"perago/pkg/txn"
)

// Rule is one invariant of a repository that perago publishes into.
type Rule string

// The rules that Check holds a repository to.
const (
	// RuleLinear: from the first commit to the head of the target, every commit
	// has exactly one parent, the one below it.
	RuleLinear Rule = "history is linear"
	// RuleMetadata: a confirm commit carries every key of the protocol, well
	// formed, and the values that must be equal are.
	RuleMetadata Rule = "metadata is complete"
	// RuleParent: a confirm commit's only parent is its perago.expected_head.
	RuleParent Rule = "parent is the expected head"
	// RuleTree: a confirm commit's tree is the tree of its perago.staging_commit.
	RuleTree Rule = "tree is the staged tree"
	// RuleStaged: what was staged is a try commit of the same step, whose only
	// parent is the input ref; or, for a no-op, the input ref itself.
	RuleStaged Rule = "the staged commit is the step's"
	// RuleOnce: one staging is published at most once.
	RuleOnce Rule = "a staging is published once"
	// RuleBranches: no branch of ours is left, hidden ones included.
	RuleBranches Rule = "no branch is left"
)

// Violation is one place where a rule does not hold.
type Violation struct {
	Rule Rule
	Text string
}

func (v Violation) String() string { return string(v.Rule) + ": " + v.Text }

// Expectation says in what way a test leaves its repository other than clean.
type Expectation struct {
	rule Rule
	must bool
}

// Expect is a rule that the test breaks on purpose; the check fails if it holds.
func Expect(rule Rule) Expectation { return Expectation{rule: rule, must: true} }

// Allow is a rule that may or may not hold when the test ends.
func Allow(rule Rule) Expectation { return Expectation{rule: rule} }

// Reader is what the checker reads a repository through.
type Reader interface {
	Commit(ctx context.Context, repo txn.Repository, id txn.CommitID) (txn.Commit, error)
	Head(ctx context.Context, repo txn.Repository, branch txn.Branch) (txn.CommitID, error)
	History(ctx context.Context, repo txn.Repository, from, stopAt txn.CommitID, limit int) ([]txn.Commit, bool, error)
	Objects(ctx context.Context, repo txn.Repository, ref txn.CommitID, prefix txn.Prefix) iter.Seq2[txn.Object, error]
	Branches(ctx context.Context, repo txn.Repository, prefix string) ([]txn.BranchHead, error)
}

// Check reads a repository and reports everything on its default branch, above
// the commit from, that the protocol forbids, all of it in one failure. It knows
// nothing of how the repository came to be: what it reads is all it goes by.
func Check(ctx context.Context, t testing.TB, reader Reader, repo txn.Repository, from txn.CommitID, expect ...Expectation) {
	t.Helper()
	found, err := Violations(ctx, reader, repo, DefaultBranch, from)
	if err != nil {
		t.Errorf("the invariants of %s could not be checked: %v", repo, err)
		return
	}
	allowed, broken := map[Rule]bool{}, map[Rule]bool{}
	for _, e := range expect {
		allowed[e.rule] = true
	}
	var report []string
	for _, v := range found {
		broken[v.Rule] = true
		if !allowed[v.Rule] {
			report = append(report, v.String())
		}
	}
	for _, e := range expect {
		if e.must && !broken[e.rule] {
			report = append(report, "expected not to hold, and holds: "+string(e.rule))
		}
	}
	if len(report) > 0 {
		t.Errorf("repository %s:\n\t%s", repo, strings.Join(report, "\n\t"))
	}
}

// deepest bounds the history that is looked at.
const deepest = 20_000

// The keys of the protocol, written out here a second time on purpose: a wrong
// key in package txn must not be able to agree with itself.
var (
	commonKeys = []string{
		"perago.version", "perago.phase", "perago.logical_task_key", "perago.workflow_id", "perago.task_id",
		"perago.retry_count", "perago.execution_id", "perago.input_ref", "perago.target_branch", "perago.prefix",
		"perago.staging_branch",
	}
	confirmKeys = []string{
		"perago.staging_commit", "perago.staging_execution_id", "perago.source_commit", "perago.expected_head",
		"perago.supersedes",
	}
)

// Violations reads a repository and returns every violation on the target branch
// above the commit from, or an error if it cannot read.
func Violations(ctx context.Context, reader Reader, repo txn.Repository, target txn.Branch, from txn.CommitID) ([]Violation, error) {
	var found []Violation
	report := func(rule Rule, format string, arguments ...any) {
		found = append(found, Violation{Rule: rule, Text: fmt.Sprintf(format, arguments...)})
	}

	head, err := reader.Head(ctx, repo, target)
	if err != nil {
		return nil, err
	}
	history, reached, err := reader.History(ctx, repo, head, from, deepest)
	if err != nil {
		return nil, err
	}
	if !reached {
		report(RuleLinear, "the first parents of %s, the head of %s, do not lead to %s", head.Short(), target, from.Short())
	}
	published := map[string]txn.CommitID{}
	for _, commit := range slices.Backward(history) {
		if len(commit.Parents) != 1 {
			report(RuleLinear, "%s has %d parents", commit.ID.Short(), len(commit.Parents))
		}
		if commit.Metadata["perago.phase"] != "confirm" {
			continue
		}
		if err := checkConfirm(ctx, reader, repo, target, commit, report); err != nil {
			return nil, err
		}
		if staging := commit.Metadata["perago.staging_execution_id"]; staging != "" {
			if before, again := published[staging]; again {
				report(RuleOnce, "%s publishes staging %s, which %s had published", commit.ID.Short(), staging, before.Short())
			}
			published[staging] = commit.ID
		}
	}

	for _, prefix := range []string{"perago-staging-", "perago-probe-"} {
		branches, err := reader.Branches(ctx, repo, prefix)
		if err != nil {
			return nil, err
		}
		for _, branch := range branches {
			report(RuleBranches, "%s at %s", branch.Name, branch.Head.Short())
		}
	}
	return found, nil
}

func checkConfirm(ctx context.Context, reader Reader, repo txn.Repository, target txn.Branch, commit txn.Commit, report func(Rule, string, ...any)) error {
	id, meta := commit.ID.Short(), commit.Metadata
	noOp := meta["perago.staging_commit"] == meta["perago.input_ref"]
	for _, key := range append(slices.Clone(commonKeys), confirmKeys...) {
		value, present := meta[key]
		mayBeEmpty := key == "perago.supersedes" || key == "perago.staging_branch" && noOp
		if !present || value == "" && !mayBeEmpty {
			report(RuleMetadata, "%s lacks %s", id, key)
		}
	}
	for _, key := range []string{"perago.input_ref", "perago.staging_commit", "perago.source_commit", "perago.expected_head", "perago.supersedes"} {
		if value := meta[key]; value != "" {
			if _, err := txn.ParseCommitID(value); err != nil {
				report(RuleMetadata, "%s: %s: %v", id, key, err)
			}
		}
	}
	if version := meta["perago.version"]; version != "" && version != "1" {
		report(RuleMetadata, "%s: perago.version is %q", id, version)
	}
	if branch := meta["perago.target_branch"]; branch != "" && branch != string(target) {
		report(RuleMetadata, "%s stands on %s and says perago.target_branch %s", id, target, branch)
	}
	if key, workflow := meta["perago.logical_task_key"], meta["perago.workflow_id"]; key != "" && !strings.HasPrefix(key, workflow+":") {
		report(RuleMetadata, "%s: the key %s is not of workflow %s", id, key, workflow)
	}
	if supersedes := meta["perago.supersedes"]; supersedes != "" && supersedes != meta["perago.expected_head"] {
		report(RuleMetadata, "%s supersedes %s and expected the head %s", id, supersedes, meta["perago.expected_head"])
	}

	if expected := meta["perago.expected_head"]; len(commit.Parents) != 1 || string(commit.Parents[0]) != expected {
		report(RuleParent, "%s has parents %v and expected %s", id, commit.Parents, expected)
	}

	staged, err := txn.ParseCommitID(meta["perago.staging_commit"])
	if err != nil {
		// Reported above.
		return nil
	}
	source, err := reader.Commit(ctx, repo, staged)
	switch {
	case errors.Is(err, txn.ErrNotFound):
		report(RuleStaged, "%s publishes %s, which is not there", id, staged.Short())
		return nil
	case err != nil:
		return err
	}
	if same, err := sameTree(ctx, reader, repo, commit, source); err != nil {
		return err
	} else if !same {
		report(RuleTree, "%s has tree %s, its staged commit %s has %s", id, commit.MetaRange, staged.Short(), source.MetaRange)
	}
	if noOp {
		return nil
	}
	if phase := source.Metadata["perago.phase"]; phase != "try" {
		report(RuleStaged, "%s publishes %s, whose phase is %q", id, staged.Short(), phase)
	}
	for _, key := range []string{"perago.logical_task_key", "perago.input_ref", "perago.target_branch", "perago.prefix"} {
		if source.Metadata[key] != meta[key] {
			report(RuleStaged, "%s and its staged commit %s differ in %s: %q and %q", id, staged.Short(), key, meta[key], source.Metadata[key])
		}
	}
	if source.Metadata["perago.execution_id"] != meta["perago.staging_execution_id"] {
		report(RuleStaged, "%s names staging %s, its staged commit is of %s", id, meta["perago.staging_execution_id"], source.Metadata["perago.execution_id"])
	}
	if len(source.Parents) != 1 || string(source.Parents[0]) != meta["perago.input_ref"] {
		report(RuleStaged, "the staged commit %s has parents %v, not the input ref %s alone", staged.Short(), source.Parents, meta["perago.input_ref"])
	}
	return nil
}

// sameTree compares by tree id. The id "" of a repository's first commit is the
// empty tree, which has another id everywhere else.
func sameTree(ctx context.Context, reader Reader, repo txn.Repository, a, b txn.Commit) (bool, error) {
	if a.MetaRange == b.MetaRange {
		return true, nil
	}
	if a.MetaRange != "" && b.MetaRange != "" {
		return false, nil
	}
	for _, commit := range []txn.Commit{a, b} {
		for _, err := range reader.Objects(ctx, repo, commit.ID, "") {
			// One object is enough to say no.
			return false, err
		}
	}
	return true, nil
}
