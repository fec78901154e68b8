package lakefstest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"perago/pkg/txn"
)

const (
	workflow  = "0f8fad5b-d9cb-469f-a165-70867728950e"
	execution = "01890a5d-ac96-774b-bcce-b302099a8057"
	publisher = "01890a5d-ac96-774b-bcce-b302099a8058"
)

// publication is a step's publication on a memory server, made by hand: the
// checker must not lean on the code that it checks.
type publication struct {
	*suite
	repo   txn.Repository
	input  txn.CommitID
	staged txn.Commit
	meta   map[string]string
}

// newPublication stages one change and is ready to publish it.
func newPublication(t *testing.T, changeTry func(map[string]string)) *publication {
	t.Helper()
	server := NewServer()
	p := &publication{suite: &suite{
		T: t, client: server.Client(t), subject: Subject{Config: server.Config(), Transport: server.Transport()},
	}, repo: NewName(t)}
	p.no(p.client.CreateRepository(t.Context(), p.repo, "local://"+string(p.repo), DefaultBranch))
	Put(t, p.client, p.repo, DefaultBranch, map[string]string{"data/a": "1", "other": "o"})
	commit, err := p.client.CreateCommit(t.Context(), p.repo, DefaultBranch, "input", nil)
	p.no(err)
	p.input = commit.ID
	try := map[string]string{
		"perago.version": "1", "perago.phase": "try", "perago.logical_task_key": workflow + ":step:0", "perago.workflow_id": workflow,
		"perago.task_id": "task", "perago.retry_count": "0", "perago.execution_id": execution, "perago.input_ref": string(p.input),
		"perago.target_branch": "main", "perago.prefix": "data/", "perago.staging_branch": "perago-staging-by-hand",
	}
	p.meta = maps.Clone(try)
	if changeTry != nil {
		changeTry(try)
	}
	p.staged = p.stage("perago-staging-by-hand", map[string]string{"data/a": "2"}, try)
	for key, value := range map[string]string{
		"perago.phase": "confirm", "perago.execution_id": publisher, "perago.staging_commit": string(p.staged.ID),
		"perago.staging_execution_id": execution, "perago.source_commit": string(p.staged.ID),
		"perago.expected_head": string(p.input), "perago.supersedes": "",
	} {
		p.meta[key] = value
	}
	return p
}

func (p *publication) stage(branch txn.Branch, files, meta map[string]string) txn.Commit {
	p.Helper()
	p.branch(p.repo, branch, p.input)
	Put(p, p.client, p.repo, branch, files)
	commit, err := p.client.CreateCommit(p.Context(), p.repo, branch, "staged", meta)
	p.no(err)
	p.no(p.client.DeleteBranch(p.Context(), p.repo, branch))
	return commit
}

func (p *publication) publish(source txn.CommitID) txn.CommitID {
	p.Helper()
	merged, err := p.client.Merge(p.Context(), txn.Merge{
		Repository: p.repo, Source: source, Destination: DefaultBranch, Message: "published", Metadata: p.meta,
	})
	p.no(err)
	return merged
}

// publishTree publishes the staged tree whole, whatever stands on the branch by
// now.
func (p *publication) publishTree() {
	p.Helper()
	head := txn.CommitID(p.meta["perago.expected_head"])
	p.branch(p.repo, "whole", head)
	source, err := p.client.CommitTree(p.Context(), p.repo, "whole", p.staged.MetaRange, "source", nil)
	p.no(err)
	p.meta["perago.source_commit"] = string(source.ID)
	p.publish(source.ID)
}

func (p *publication) violations() []Violation {
	p.Helper()
	found, err := Violations(p.Context(), p.client, p.repo, DefaultBranch, p.input)
	p.no(err)
	return found
}

// breaks holds the checker to finding this rule, this text, and nothing else.
func (p *publication) breaks(rule Rule, part string) {
	p.Helper()
	found := p.violations()
	if len(found) == 0 {
		p.Fatalf("%q went unnoticed", rule)
	}
	if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == rule && strings.Contains(v.Text, part) }) {
		p.Errorf("no violation of %q with %q in %v", rule, part, found)
	}
	for _, v := range found {
		if v.Rule != rule {
			p.Errorf("besides %q: %v", rule, v)
		}
	}
}

func TestCheckPassesWhatIsSound(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(*testing.T) *publication{
		"nothing published": func(t *testing.T) *publication { return newPublication(t, nil) },
		"published": func(t *testing.T) *publication {
			p := newPublication(t, nil)
			p.publish(p.staged.ID)
			return p
		},
		"foreign commits below and above": func(t *testing.T) *publication {
			p := newPublication(t, nil)
			published := p.publish(p.staged.ID)
			p.land(p.repo, p.on(p.repo, "foreign", published, map[string]string{"x": "y"}).ID)
			return p
		},
		"a no-op's empty confirm commit": func(t *testing.T) *publication {
			p := newPublication(t, nil)
			p.meta["perago.staging_commit"], p.meta["perago.source_commit"] = string(p.input), string(p.input)
			p.meta["perago.staging_branch"] = ""
			p.publish(p.input)
			return p
		},
		"superseded by another staging of the same tree": func(t *testing.T) *publication {
			p := newPublication(t, nil)
			first := p.publish(p.staged.ID)
			meta := maps.Clone(p.staged.Metadata)
			meta["perago.execution_id"] = publisher
			p.branch(p.repo, "again", p.input)
			Put(t, p.client, p.repo, "again", map[string]string{"data/a": "3"})
			again, err := p.client.CreateCommit(t.Context(), p.repo, "again", "staged again", meta)
			p.no(err)
			p.branch(p.repo, "source", first)
			source, err := p.client.CommitTree(t.Context(), p.repo, "source", again.MetaRange, "source", nil)
			p.no(err)
			p.meta["perago.staging_commit"], p.meta["perago.staging_execution_id"] = string(again.ID), publisher
			p.meta["perago.expected_head"], p.meta["perago.supersedes"] = string(first), string(first)
			p.meta["perago.source_commit"] = string(source.ID)
			p.publish(source.ID)
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := make(t)
			if found := p.violations(); len(found) > 0 {
				t.Errorf("%v", found)
			}
		})
	}
	// On a repository's own first commit, whose tree is "".
	server := NewServer()
	client := server.Client(t)
	repo, first := NewRepository(t, client, nil)
	p := newPublication(t, nil)
	meta := p.meta
	for _, key := range []string{"perago.input_ref", "perago.staging_commit", "perago.source_commit", "perago.expected_head"} {
		meta[key] = string(first)
	}
	s := &suite{T: t, client: client}
	s.branch(repo, "empty", first)
	empty, err := client.CommitUnchanged(t.Context(), repo, "empty", "empty", nil)
	s.no(err)
	_, err = client.Merge(t.Context(), txn.Merge{Repository: repo, Source: empty.ID, Destination: DefaultBranch, Message: "m", Metadata: meta})
	s.no(err)
}

// A tree that is not empty is not the tree "" of a repository's first commit.
func TestCheckFindsATreeThatIsNotEmpty(t *testing.T) {
	t.Parallel()
	client := NewServer().Client(t)
	repo, first := NewRepository(t, client, nil, Expect(RuleTree))
	s := &suite{T: t, client: client}
	foreign := s.land(repo, s.on(repo, "foreign", first, map[string]string{"x": "y"}).ID)
	meta := newPublication(t, nil).meta
	for _, key := range []string{"perago.input_ref", "perago.staging_commit", "perago.source_commit"} {
		meta[key] = string(first)
	}
	meta["perago.expected_head"] = string(foreign)
	_, err := client.Merge(t.Context(), txn.Merge{Repository: repo, Source: first, Destination: DefaultBranch, Message: "m", Metadata: meta})
	s.no(err)
}

func TestCheckFindsMissingMetadata(t *testing.T) {
	t.Parallel()
	for _, key := range append(slices.Clone(commonKeys), confirmKeys...) {
		if key == "perago.phase" {
			// Without it the commit is nobody's.
			continue
		}
		t.Run(key, func(t *testing.T) {
			p := newPublication(t, nil)
			delete(p.meta, key)
			p.publish(p.staged.ID)
			// What is missing is missed by other rules too.
			if !slices.ContainsFunc(p.violations(), func(v Violation) bool {
				return v.Rule == RuleMetadata && strings.Contains(v.Text, "lacks "+key)
			}) {
				t.Errorf("%v", p.violations())
			}
		})
	}
}

func TestCheckFindsEachRule(t *testing.T) {
	t.Parallel()
	set := func(key, value string) func(map[string]string) {
		return func(meta map[string]string) { meta[key] = value }
	}
	for name, c := range map[string]struct {
		rule Rule
		part string
		try  func(map[string]string)
		act  func(*publication)
	}{
		"a merge commit": {rule: RuleLinear, part: "2 parents", act: func(p *publication) {
			side := p.on(p.repo, "side", p.input, map[string]string{"side": "1"})
			p.status(200, "", "POST", at(p.repo, "/refs/%s/merge/main", side.ID), nil, object{})
		}},
		"a confirm commit with two parents": {rule: RuleParent, part: "has parents", act: func(p *publication) {
			p.status(200, "", "POST", at(p.repo, "/refs/%s/merge/main", p.staged.ID), nil, object{"metadata": p.meta})
		}},
		"the input commit is not below": {rule: RuleLinear, part: "do not lead to", act: func(p *publication) {
			p.input = p.staged.ID
		}},
		"another version":                         {rule: RuleMetadata, part: "perago.version", act: edit(set("perago.version", "2"))},
		"another target":                          {rule: RuleMetadata, part: "target_branch", try: set("perago.target_branch", "other"), act: edit(set("perago.target_branch", "other"))},
		"a key of another step":                   {rule: RuleMetadata, part: "is not of workflow", act: edit(set("perago.workflow_id", "another"))},
		"an id that is none":                      {rule: RuleMetadata, part: "perago.source_commit", act: edit(set("perago.source_commit", "main"))},
		"no staging branch without being a no-op": {rule: RuleMetadata, part: "lacks perago.staging_branch", act: edit(set("perago.staging_branch", ""))},
		"supersedes another head":                 {rule: RuleMetadata, part: "supersedes", act: edit(set("perago.supersedes", strings.Repeat("0", 64)))},
		"another head than expected": {rule: RuleParent, part: "expected", act: func(p *publication) {
			p.land(p.repo, p.input)
			p.publish(p.staged.ID)
		}},
		"a race": {rule: RuleTree, part: "has tree", act: func(p *publication) {
			foreign := p.land(p.repo, p.on(p.repo, "foreign", p.input, map[string]string{"other": "changed"}).ID)
			p.meta["perago.expected_head"] = string(foreign)
			p.publish(p.staged.ID)
		}},
		"an execution that is none": {rule: RuleMetadata, part: "perago.execution_id", act: edit(set("perago.execution_id", "0"))},
		"a retry that is none":      {rule: RuleMetadata, part: "perago.retry_count", act: edit(set("perago.retry_count", "-1"))},
		"somebody's file overwritten": {rule: RuleForeign, part: "overwrites data/b of", act: func(p *publication) {
			p.meta["perago.expected_head"] = string(p.land(p.repo, p.on(p.repo, "foreign", p.input, map[string]string{"data/b": "theirs"}).ID))
			p.publishTree()
		}},
		"somebody's removal undone": {rule: RuleForeign, part: "overwrites other of", act: func(p *publication) {
			p.branch(p.repo, "removes", p.input)
			p.no(p.client.DeleteObjects(p.Context(), p.repo, "removes", []string{"other"}))
			removes, err := p.client.CreateCommit(p.Context(), p.repo, "removes", "removes", nil)
			p.no(err)
			p.meta["perago.expected_head"] = string(p.land(p.repo, removes.ID))
			p.publishTree()
		}},
		"no staged commit":            {rule: RuleStaged, part: "is not there", act: edit(set("perago.staging_commit", strings.Repeat("0", 64)))},
		"staged by nobody":            {rule: RuleStaged, part: "phase", try: set("perago.phase", ""), act: edit(nil)},
		"staged by another step":      {rule: RuleStaged, part: "perago.logical_task_key", try: set("perago.logical_task_key", workflow+":other:0"), act: edit(nil)},
		"staged for another branch":   {rule: RuleStaged, part: "perago.target_branch", try: set("perago.target_branch", "other"), act: edit(nil)},
		"staged of another prefix":    {rule: RuleStaged, part: "perago.prefix", try: set("perago.prefix", "other/"), act: edit(nil)},
		"staged by another execution": {rule: RuleStaged, part: "names staging", try: set("perago.execution_id", publisher), act: edit(nil)},
		"staged from another input": {rule: RuleStaged, part: "not the input ref", act: func(p *publication) {
			// The head moved before the stage, and the record says it had not.
			p.input = p.land(p.repo, p.input)
			meta := maps.Clone(p.staged.Metadata)
			p.staged = p.stage("late", map[string]string{"data/a": "3"}, meta)
			p.meta["perago.staging_commit"], p.meta["perago.expected_head"] = string(p.staged.ID), string(p.input)
			p.publish(p.staged.ID)
		}},
		"published twice": {rule: RuleOnce, part: "had published", act: func(p *publication) {
			first := p.publish(p.staged.ID)
			p.meta["perago.expected_head"] = string(first)
			p.publish(p.staged.ID)
		}},
		"a staging branch left": {rule: RuleBranches, part: "perago-staging-left", act: func(p *publication) {
			p.branch(p.repo, "perago-staging-left", p.input)
		}},
		"a probe branch left, not hidden": {rule: RuleBranches, part: "perago-probe-left", act: func(p *publication) {
			p.status(201, "", "POST", at(p.repo, "/branches"), nil, object{"name": "perago-probe-left", "source": p.input})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublication(t, c.try)
			c.act(p)
			if name == "a confirm commit with two parents" {
				found := p.violations()
				if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == RuleParent }) || !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == RuleLinear }) {
					t.Errorf("%v", found)
				}
				return
			}
			p.breaks(c.rule, c.part)
		})
	}
}

// edit publishes with changed metadata.
func edit(change func(map[string]string)) func(*publication) {
	return func(p *publication) {
		if change != nil {
			change(p.meta)
		}
		p.publish(p.staged.ID)
	}
}

// recorder is a test that keeps what it is told.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, arguments ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, arguments...))
}

func TestCheckReportsAllAtOnce(t *testing.T) {
	t.Parallel()
	p := newPublication(t, nil)
	p.branch(p.repo, "perago-staging-left", p.input)
	p.branch(p.repo, "perago-staging-left-too", p.input)
	p.meta["perago.version"] = "2"
	p.publish(p.staged.ID)
	run := func(expect ...Expectation) string {
		r := &recorder{}
		Check(t.Context(), r, p.client, p.repo, p.input, expect...)
		if len(r.errors) > 1 {
			t.Errorf("%d reports", len(r.errors))
		}
		return strings.Join(r.errors, "")
	}
	for _, part := range []string{"perago-staging-left ", "perago-staging-left-too", "perago.version", string(p.repo)} {
		if report := run(); !strings.Contains(report, part) {
			t.Errorf("%q is not in %q", part, report)
		}
	}
	if report := run(Expect(RuleBranches)); strings.Contains(report, "left") || !strings.Contains(report, "perago.version") {
		t.Errorf("%q", report)
	}
	if report := run(Allow(RuleBranches), Expect(RuleMetadata)); report != "" {
		t.Errorf("%q", report)
	}
	if report := run(Allow(RuleOnce), Allow(RuleBranches), Allow(RuleMetadata)); report != "" {
		t.Errorf("%q", report)
	}
	if report := run(Allow(RuleBranches), Allow(RuleMetadata), Expect(RuleOnce)); !strings.Contains(report, "expected not to hold") || !strings.Contains(report, string(RuleOnce)) {
		t.Errorf("%q", report)
	}
	// A race names its commits, and no other report is excused by it.
	late := p.publish(p.staged.ID)
	raced := func(commits ...txn.CommitID) Expectation {
		return Raced(func() []txn.CommitID { return commits })
	}
	others := []Expectation{Allow(RuleBranches), Allow(RuleMetadata)}
	for part, expect := range map[string][]Expectation{
		"":                            append(others, raced(late)),
		late.Short() + " has parents": append(others, raced(p.input)),
		"expected a race, and no commit is named": append(others, raced()),
		"not: " + p.input.Short():                 append(others, raced(late, p.input)),
		"perago.version":                          {Allow(RuleBranches), raced(late)},
	} {
		if report := run(expect...); (report == "") != (part == "") || !strings.Contains(report, part) {
			t.Errorf("%q is not in %q", part, report)
		}
	}
	// A repository that cannot be read is no clean repository.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r := &recorder{}
	Check(ended, r, p.client, p.repo, p.input)
	if len(r.errors) != 1 {
		t.Errorf("%q", r.errors)
	}
}

// A hook that cannot run fails the commit of it, instead of being left out.
func TestServerRunsNoHookSilently(t *testing.T) {
	t.Parallel()
	server := NewServer()
	client := server.Client(t)
	repo, first := NewRepository(t, client, nil)
	s := &suite{T: t, client: client}
	for name, file := range map[string]string{
		"webhook": "name: contract\non:\n  pre-merge:\nhooks:\n  - id: the_hook\n    type: webhook\n    properties:\n      url: http://127.0.0.1/\n",
		"event":   "name: contract\non:\n  pre-commit:\nhooks:\n  - id: the_hook\n    type: lua\n    properties:\n      script: print(1)\n",
		"if":      "name: contract\non:\n  pre-merge:\nhooks:\n  - id: the_hook\n    type: lua\n    if: failure()\n    properties:\n      script: print(1)\n",
	} {
		s.branch(repo, txn.Branch(name), first)
		Put(t, client, repo, txn.Branch(name), map[string]string{"_lakefs_actions/contract.yaml": file})
		_, err := client.CreateCommit(t.Context(), repo, txn.Branch(name), "m", nil)
		if !errors.Is(err, txn.ErrUnknownOutcome) || !strings.Contains(err.Error(), "501") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A test's own hook, and a server that runs none.
func TestServerHooks(t *testing.T) {
	t.Parallel()
	server := NewServer()
	client := server.Client(t)
	repo, first := NewRepository(t, client, nil)
	s := &suite{T: t, client: client}
	with := s.on(repo, "with", first, map[string]string{"_lakefs_actions/contract.yaml": refusingAction})
	merge := txn.Merge{Repository: repo, Source: with.ID, Destination: DefaultBranch, Message: "m", Metadata: map[string]string{"k": "v"}}
	if _, err := client.Merge(t.Context(), merge); !errors.Is(err, txn.ErrHookRefused) || s.head(repo, DefaultBranch) != first {
		t.Errorf("%v", err)
	}
	server.Hook = func(file []byte, merge PreMerge) error {
		if string(file) != refusingAction || merge.Repository != string(repo) || merge.Branch != "main" || merge.Source != string(with.ID) ||
			!slices.Equal(merge.Parents, []string{string(first)}) || merge.Metadata["k"] != "v" {
			t.Errorf("%+v", merge)
		}
		return nil
	}
	merged, err := client.Merge(t.Context(), merge)
	if err != nil || s.head(repo, DefaultBranch) != merged {
		t.Errorf("%v", err)
	}
	server.Hook, server.ActionsOff = nil, true
	merge.Message = "with the actions off"
	merged, err = client.Merge(t.Context(), merge)
	if err != nil || s.head(repo, DefaultBranch) != merged {
		t.Errorf("%v", err)
	}
	if runs, err := client.HookRuns(t.Context(), repo, merged); err != nil || len(runs) != 0 {
		t.Errorf("%v, %v", runs, err)
	}
}
