package lakefstest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
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
	// RuleOnce: no two confirm commits merged the same source commit. An empty one
	// merges the head itself, and is none.
	RuleOnce Rule = "a source is published once"
	// RuleForeign: a confirm commit leaves what somebody else has committed since
	// its input ref.
	RuleForeign Rule = "nobody else's commit is overwritten"
	// RuleBranches: no branch of ours is left, hidden ones included.
	RuleBranches Rule = "no branch is left"
)

// Violation is one place where a rule does not hold.
type Violation struct {
	Rule Rule
	Text string
	// Commit is the one at fault; empty when it is none.
	Commit txn.CommitID
}

func (v Violation) String() string { return string(v.Rule) + ": " + v.Text }

// Expectation says in what way a test leaves its repository other than clean.
type Expectation struct {
	rule Rule
	must bool
	// raced names the only commits that may be at fault; nil for any.
	raced func() []txn.CommitID
}

// Expect is a rule that the test breaks on purpose; the check fails if it holds.
func Expect(rule Rule) Expectation { return Expectation{rule: rule, must: true} }

// Allow is a rule that may or may not hold when the test ends.
func Allow(rule Rule) Expectation { return Expectation{rule: rule} }

// Raced names the commits of a race that the test makes on purpose. Each of them
// has to be reported for where it stands, and may be for what that did to its
// tree; a report about any other commit fails the test. It is asked when the test
// ends.
func Raced(commits func() []txn.CommitID) Expectation {
	return Expectation{rule: RuleParent, raced: commits}
}

// byRace are the rules that a merge may break by landing on another head than it
// expects.
var byRace = []Rule{RuleParent, RuleTree, RuleOnce, RuleForeign}

// excuses reports whether a violation is as expected.
func (e Expectation) excuses(v Violation) bool {
	if e.raced == nil {
		return e.rule == v.Rule
	}
	return slices.Contains(byRace, v.Rule) && slices.Contains(e.raced(), v.Commit)
}

// missing is what had to be reported and was not.
func (e Expectation) missing(found []Violation) []string {
	if e.raced == nil {
		if e.must && !slices.ContainsFunc(found, e.excuses) {
			return []string{"expected not to hold, and holds: " + string(e.rule)}
		}
		return nil
	}
	var missing []string
	raced := e.raced()
	if len(raced) == 0 {
		missing = append(missing, "expected a race, and no commit is named")
	}
	for _, commit := range raced {
		if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == e.rule && v.Commit == commit }) {
			missing = append(missing, "expected to be raced, and is not: "+commit.Short())
		}
	}
	return missing
}

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
	var report []string
	for _, v := range found {
		if !slices.ContainsFunc(expect, func(e Expectation) bool { return e.excuses(v) }) {
			report = append(report, v.String())
		}
	}
	for _, e := range expect {
		report = append(report, e.missing(found)...)
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
	c := &checker{reader: reader, repo: repo, target: target, trees: map[txn.MetaRangeID]map[string]txn.Object{}}
	head, err := reader.Head(ctx, repo, target)
	if err != nil {
		return nil, err
	}
	history, reached, err := reader.History(ctx, repo, head, from, deepest)
	if err != nil {
		return nil, err
	}
	slices.Reverse(history)
	if !reached {
		c.report(head, RuleLinear, "the first parents of %s, the head of %s, do not lead to %s", head.Short(), target, from.Short())
	}
	published := map[string]txn.CommitID{}
	for i, commit := range history {
		if len(commit.Parents) != 1 {
			c.report(commit.ID, RuleLinear, "%s has %d parents", commit.ID.Short(), len(commit.Parents))
		}
		if commit.Metadata["perago.phase"] != "confirm" {
			continue
		}
		if err := c.confirm(ctx, commit); err != nil {
			return nil, err
		}
		if err := c.overwrites(ctx, history[:i], commit); err != nil {
			return nil, err
		}
		if source := commit.Metadata["perago.source_commit"]; source != "" && source != commit.Metadata["perago.expected_head"] {
			if before, again := published[source]; again {
				c.report(commit.ID, RuleOnce, "%s publishes source %s, which %s had published", commit.ID.Short(), txn.CommitID(source).Short(), before.Short())
			}
			published[source] = commit.ID
		}
	}

	branches, err := reader.Branches(ctx, repo, txn.BranchNamespace)
	if err != nil {
		return nil, err
	}
	for _, branch := range branches {
		c.report("", RuleBranches, "%s at %s", branch.Name, branch.Head.Short())
	}
	return c.found, nil
}

// checker is one check of one repository.
type checker struct {
	reader Reader
	repo   txn.Repository
	target txn.Branch
	found  []Violation
	// trees are those that were listed.
	trees map[txn.MetaRangeID]map[string]txn.Object
}

func (c *checker) report(commit txn.CommitID, rule Rule, format string, arguments ...any) {
	c.found = append(c.found, Violation{Rule: rule, Text: fmt.Sprintf(format, arguments...), Commit: commit})
}

// overwrites compares a confirm commit with what stands between its input ref and
// it, of which below is the history: what somebody else changed there is still as
// they left it.
func (c *checker) overwrites(ctx context.Context, below []txn.Commit, commit txn.Commit) error {
	since := slices.IndexFunc(below, func(b txn.Commit) bool { return string(b.ID) == commit.Metadata["perago.input_ref"] })
	for _, foreign := range below[since+1:] {
		if len(commit.Parents) == 0 || len(foreign.Parents) == 0 ||
			foreign.Metadata["perago.phase"] == "confirm" && foreign.Metadata["perago.logical_task_key"] == commit.Metadata["perago.logical_task_key"] {
			continue
		}
		var trees [4]map[string]txn.Object
		for i, id := range []txn.CommitID{foreign.Parents[0], foreign.ID, commit.Parents[0], commit.ID} {
			var err error
			if trees[i], err = c.tree(ctx, id); err != nil {
				return err
			}
		}
		before, theirs, under, now := trees[0], trees[1], trees[2], trees[3]
		for _, path := range changedPaths(before, theirs) {
			if under[path] == theirs[path] && now[path] != theirs[path] {
				c.report(commit.ID, RuleForeign, "%s overwrites %s of %s", commit.ID.Short(), path, foreign.ID.Short())
			}
		}
	}
	return nil
}

// tree lists a commit's tree, without what tells two uploads of one content apart.
func (c *checker) tree(ctx context.Context, id txn.CommitID) (map[string]txn.Object, error) {
	commit, err := c.reader.Commit(ctx, c.repo, id)
	if err != nil {
		return nil, err
	}
	if known, ok := c.trees[commit.MetaRange]; ok {
		return known, nil
	}
	objects := map[string]txn.Object{}
	for object, err := range c.reader.Objects(ctx, c.repo, id, "") {
		if err != nil {
			return nil, err
		}
		objects[object.Path] = object
	}
	c.trees[commit.MetaRange] = objects
	return objects, nil
}

// changedPaths is every path that two trees differ in, in order.
func changedPaths(a, b map[string]txn.Object) []string {
	var changed []string
	for path, object := range a {
		if b[path] != object {
			changed = append(changed, path)
		}
	}
	for path := range b {
		if _, there := a[path]; !there {
			changed = append(changed, path)
		}
	}
	slices.Sort(changed)
	return changed
}

// confirm holds a confirm commit to what it says of itself.
func (c *checker) confirm(ctx context.Context, commit txn.Commit) error {
	report := func(rule Rule, format string, arguments ...any) { c.report(commit.ID, rule, format, arguments...) }
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
	for _, key := range []string{"perago.execution_id", "perago.staging_execution_id"} {
		if value := meta[key]; value != "" {
			if _, err := txn.ParseExecutionID(value); err != nil {
				report(RuleMetadata, "%s: %s: %v", id, key, err)
			}
		}
	}
	if value := meta["perago.retry_count"]; value != "" {
		if count, err := strconv.Atoi(value); err != nil || count < 0 {
			report(RuleMetadata, "%s: perago.retry_count is %q", id, value)
		}
	}
	if version := meta["perago.version"]; version != "" && version != "1" {
		report(RuleMetadata, "%s: perago.version is %q", id, version)
	}
	if branch := meta["perago.target_branch"]; branch != "" && branch != string(c.target) {
		report(RuleMetadata, "%s stands on %s and says perago.target_branch %s", id, c.target, branch)
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
	source, err := c.reader.Commit(ctx, c.repo, staged)
	switch {
	case errors.Is(err, txn.ErrNotFound):
		report(RuleStaged, "%s publishes %s, which is not there", id, staged.Short())
		return nil
	case err != nil:
		return err
	}
	if same, err := sameTree(ctx, c.reader, c.repo, commit, source); err != nil {
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
