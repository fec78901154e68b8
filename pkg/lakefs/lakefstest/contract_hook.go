package lakefstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"perago/pkg/txn"
)

// actionFile is an action file with one hook for merges, which runs Lua. branches
// are patterns; none is every branch.
func actionFile(name, script string, branches ...string) string {
	text := "name: " + name + "\non:\n  pre-merge:\n"
	if len(branches) > 0 {
		text += "    branches: [" + strings.Join(branches, ", ") + "]\n"
	}
	return text + "hooks:\n  - id: the_hook\n    type: lua\n    properties:\n      script: |\n        " + strings.ReplaceAll(script, "\n", "\n        ") + "\n"
}

// refusingAction is the action file of a hook that refuses every merge into the
// default branch.
var refusingAction = actionFile("contract", `error("refused by the contract")`, string(DefaultBranch))

func (s *suite) hook() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	// The hook is read from the source commit: it refuses the merge that brings
	// it, and not one whose source lacks it.
	with := s.on(repo, "with", first, map[string]string{"_lakefs_actions/contract.yaml": refusingAction})
	without := s.on(repo, "without", first, map[string]string{"a": "2"})
	_, err := s.client.Merge(s.Context(), txn.Merge{Repository: repo, Source: with.ID, Destination: DefaultBranch, Message: "m"})
	s.refused(err, txn.ErrHookRefused)
	if !strings.Contains(err.Error(), "refused by the contract") {
		s.Fatalf("%v does not hold the hook's message", err)
	}
	s.equal(s.head(repo, DefaultBranch), first)
	s.land(repo, without.ID)
}

// refusedWith merges a commit and expects a hook's refusal, whose text it returns.
func (s *suite) refusedWith(m txn.Merge) string {
	s.Helper()
	_, err := s.client.Merge(s.Context(), m)
	s.refused(err, txn.ErrHookRefused)
	return err.Error()
}

// dangling is the commit id in a text that ends in it.
func (s *suite) dangling(text, before string) txn.CommitID {
	s.Helper()
	_, rest, ok := strings.Cut(text, before)
	if !ok || len(rest) < 64 {
		s.Fatalf("%q is not in %q", before, text)
	}
	id, err := txn.ParseCommitID(rest[:64])
	s.no(err)
	return id
}

func (s *suite) hookSees() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	const script = `local c = action.commit
require("hook").fail(table.concat({"sees", action.event_type, action.branch_id, action.source_ref, #c.parents, c.parents[1],
  tostring(c.parents[2]), tostring(c.metadata["perago.key"]), tostring(c.metadata["none"]), c.message, action.commit_id}, " "))`
	source := s.on(repo, "source", first, map[string]string{"_lakefs_actions/contract.yaml": actionFile("contract", script)})
	head := s.land(repo, s.on(repo, "other", first, map[string]string{"b": "1"}).ID)
	text := s.refusedWith(txn.Merge{Repository: repo, Source: source.ID, Destination: DefaultBranch, Message: "m", Metadata: map[string]string{"perago.key": "v"}})
	if want := fmt.Sprintf("sees pre-merge main %s 1 %s nil v nil m ", source.ID, head); !strings.Contains(text, want) {
		s.Fatalf("%q is not in %q", want, text)
	}
	// What it saw is the commit that would have landed, and it is there.
	commit := s.read(repo, s.dangling(text, "nil v nil m "))
	s.equal(commit.Parents, []txn.CommitID{head})
	s.equal(commit.Metadata["perago.key"], "v")
	s.equal(s.head(repo, DefaultBranch), head)
	// Not squashed it has two.
	s.status(412, fmt.Sprintf(" 2 %s %s ", head, source.ID), "POST", at(repo, "/refs/%s/merge/main", source.ID), nil, object{"message": "m"})
}

func (s *suite) hookWords() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	fails := s.on(repo, "fails", first, map[string]string{"_lakefs_actions/contract.yaml": actionFile("contract", `require("hook").fail("in its own words")`)})
	errs := s.on(repo, "errs", first, map[string]string{"_lakefs_actions/contract.yaml": actionFile("contract", `error("in others")`)})
	text := s.refusedWith(txn.Merge{Repository: repo, Source: fails.ID, Destination: DefaultBranch, Message: "m"})
	if !strings.Contains(text, "hook the_hook of action contract refused: in its own words") || strings.Contains(text, "traceback") {
		s.Fatal(text)
	}
	text = s.refusedWith(txn.Merge{Repository: repo, Source: errs.ID, Destination: DefaultBranch, Message: "m"})
	if !strings.Contains(text, "in others") || !strings.Contains(text, "traceback") {
		s.Fatal(text)
	}
}

func (s *suite) hookBranches() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	always := s.on(repo, "always", first, map[string]string{"_lakefs_actions/contract.yaml": actionFile("contract", `require("hook").fail("always")`)})
	some := s.on(repo, "some", first, map[string]string{"_lakefs_actions/contract.yaml": actionFile("contract", `require("hook").fail("some")`, "ma*")})
	s.branch(repo, "hidden-one", first)
	// Each says where it goes: equal commits of one second are one, with one list
	// of runs.
	into := func(branch txn.Branch, source txn.Commit) txn.Merge {
		return txn.Merge{Repository: repo, Source: source.ID, Destination: branch, Message: "into " + string(branch)}
	}
	s.refusedWith(into("hidden-one", always))
	s.refusedWith(into(DefaultBranch, always))
	s.refusedWith(into(DefaultBranch, some))
	// The source's branch, some, is not asked for; and so it is no match.
	landed, err := s.client.Merge(s.Context(), into("hidden-one", some))
	s.no(err)
	runs, err := s.client.HookRuns(s.Context(), repo, landed)
	s.no(err)
	s.equal(len(runs), 0)
}

func (s *suite) hookOfHead() {
	repo, first := NewRepository(s, s.client, map[string]string{"_lakefs_actions/contract.yaml": actionFile("contract",
		`if action.commit.metadata["pass"] == nil then require("hook").fail("not this one") end`)})
	s.refusedWith(txn.Merge{Repository: repo, Source: first, Destination: DefaultBranch, Message: "m"})
	landed, err := s.client.Merge(s.Context(), txn.Merge{Repository: repo, Source: first, Destination: DefaultBranch, Message: "m", Metadata: map[string]string{"pass": ""}})
	s.no(err)
	s.equal(s.head(repo, DefaultBranch), landed)
	runs, err := s.client.HookRuns(s.Context(), repo, landed)
	s.no(err)
	s.equal(runs, []txn.HookRun{{Event: "pre-merge", Action: "contract", Hook: "the_hook", Status: "completed"}})
}

func (s *suite) hookRuns() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	const script = `if action.commit.metadata["pass"] == nil then require("hook").fail("refused " .. action.commit_id) end`
	source := s.on(repo, "source", first, map[string]string{"_lakefs_actions/contract.yaml": actionFile("contract", script)})
	run := txn.HookRun{Event: "pre-merge", Action: "contract", Hook: "the_hook", Status: "failed"}
	runs := func(commit txn.CommitID) []txn.HookRun {
		s.Helper()
		runs, err := s.client.HookRuns(s.Context(), repo, commit)
		s.no(err)
		return runs
	}
	refused := s.dangling(s.refusedWith(txn.Merge{Repository: repo, Source: source.ID, Destination: DefaultBranch, Message: "m"}), "refused ")
	s.equal(runs(refused), []txn.HookRun{run})
	landed, err := s.client.Merge(s.Context(), txn.Merge{Repository: repo, Source: source.ID, Destination: DefaultBranch, Message: "m", Metadata: map[string]string{"pass": "1"}})
	s.no(err)
	run.Status = "completed"
	s.equal(runs(landed), []txn.HookRun{run})
	// A merge whose source has no action files has no run, nor has a commit, and a
	// commit that is not there is no error.
	without := s.land(repo, s.on(repo, "without", first, map[string]string{"b": "1"}).ID)
	for _, commit := range []txn.CommitID{without, source.ID, first, txn.CommitID(strings.Repeat("0", 64))} {
		s.equal(len(runs(commit)), 0)
	}
	_, err = s.client.HookRuns(s.Context(), NewName(s), first)
	s.refused(err, txn.ErrNotFound)
}

func (s *suite) hookRunPages() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	hook := func(id, script string) string {
		return "  - id: " + id + "\n    type: lua\n    properties:\n      script: " + script + "\n"
	}
	source := s.on(repo, "source", first, map[string]string{
		"_lakefs_actions/a.yaml": "name: one action\non:\n  pre-merge:\nhooks:\n" + hook("h1", "print(1)") + hook("h2", `require("hook").fail("two " .. action.commit_id)`) + hook("h3", "print(3)"),
		"_lakefs_actions/b.yaml": "name: another\non:\n  pre-merge:\nhooks:\n" + hook("h1", "print(4)"),
	})
	refused := s.dangling(s.refusedWith(txn.Merge{Repository: repo, Source: source.ID, Destination: DefaultBranch, Message: "m"}), "two ")
	runs, err := s.client.HookRuns(s.Context(), repo, refused)
	s.no(err)
	s.equal(runs, []txn.HookRun{
		{Event: "pre-merge", Action: "one action", Hook: "h1", Status: "completed"},
		{Event: "pre-merge", Action: "one action", Hook: "h2", Status: "failed"},
		{Event: "pre-merge", Action: "one action", Hook: "h3", Status: "skipped"},
		{Event: "pre-merge", Action: "another", Hook: "h1", Status: "completed"},
	})
	type page struct {
		Pagination struct {
			HasMore    bool   `json:"has_more"`
			NextOffset string `json:"next_offset"`
		} `json:"pagination"`
		Results []struct {
			Run    string `json:"run_id"`
			Status string `json:"status"`
			Hook   string `json:"hook_run_id"`
		} `json:"results"`
	}
	list := func(path string, query url.Values) (p page) {
		s.no(json.Unmarshal([]byte(s.status(200, "", "GET", at(repo, "/actions/runs%s", path), query, nil)), &p))
		return p
	}
	all := list("", url.Values{"commit": {string(refused)}, "amount": {"1"}})
	if len(all.Results) != 1 || all.Results[0].Status != "failed" || all.Pagination.HasMore {
		s.Fatalf("%+v", all)
	}
	if after := list("", url.Values{"commit": {string(refused)}, "after": {all.Results[0].Run}}); len(after.Results) != 0 {
		s.Fatalf("behind the last run: %+v", after)
	}
	one := list("/"+all.Results[0].Run+"/hooks", url.Values{"amount": {"3"}})
	if len(one.Results) != 3 || one.Results[0].Hook != "0000_0000" || !one.Pagination.HasMore || one.Pagination.NextOffset != "0000_0002" {
		s.Fatalf("a page of three: %+v", one)
	}
	two := list("/"+all.Results[0].Run+"/hooks", url.Values{"amount": {"3"}, "after": {"0000_0002"}})
	if len(two.Results) != 1 || two.Results[0].Hook != "0001_0000" || two.Pagination.HasMore {
		s.Fatalf("the page after: %+v", two)
	}
}

func (s *suite) actionMalformed() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	for name, file := range map[string]string{"no-yaml": "name: [\n", "no-event": "name: contract\nhooks: []\n"} {
		branch := s.branch(repo, txn.Branch(name), first)
		Put(s, s.client, repo, branch, map[string]string{"_lakefs_actions/" + name + ".yaml": file})
		_, err := s.client.CreateCommit(s.Context(), repo, branch, "m", nil)
		if !errors.Is(err, txn.ErrUnknownOutcome) || !strings.Contains(err.Error(), "parsing file _lakefs_actions/"+name+".yaml") {
			s.Fatal(err)
		}
		s.equal(s.head(repo, branch), first)
	}
}
