package txn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const (
	testWorkflow  = WorkflowID("0b4a7d26-7f6e-4a54-9d8d-0e1f2a3b4c5d")
	otherWorkflow = WorkflowID("11111111-7f6e-4a54-9d8d-0e1f2a3b4c5d")
	execution1    = ExecutionID("01890a5d-ac96-774b-bcce-b302099a8057")
	execution2    = ExecutionID("01890a5d-ac97-774b-bcce-b302099a8057")
)

// id makes a commit id that is easy to tell in a failure.
func id(name string) CommitID {
	return CommitID((fmt.Sprintf("%x", name) + strings.Repeat("0", 64))[:64])
}

var testStep = Step{
	Repository: "lake", Branch: "main", Workflow: testWorkflow,
	Key: NewLogicalTaskKey(testWorkflow, "train_stage", 0), Prefix: "models/", InputRef: id("A"),
}

// confirm makes a confirm commit of testStep; change alters its record.
func confirm(commit, parent string, change ...func(*Record)) Commit {
	record := Record{
		Phase: PhaseConfirm, Key: testStep.Key, Workflow: testWorkflow, Task: "task-1", Execution: execution2,
		InputRef: testStep.InputRef, TargetBranch: testStep.Branch, Prefix: testStep.Prefix,
		StagingBranch: "perago-staging-x", StagingCommit: id("S"), StagingExecution: execution1,
		SourceCommit: id("S"), ExpectedHead: id(parent),
	}
	for _, c := range change {
		c(&record)
	}
	return Commit{ID: id(commit), Parents: []CommitID{id(parent)}, MetaRange: "tree-S", Metadata: record.Metadata("")}
}

func foreign(commit, parent string) Commit {
	return Commit{ID: id(commit), Parents: []CommitID{id(parent)}, MetaRange: "tree-F"}
}

func otherStaging(r *Record) { r.StagingExecution = execution2 }

func TestDecidePublish(t *testing.T) {
	t.Parallel()
	const (
		readOnly  = "the step is read-only"
		quiet     = "H = A, a no-op, and nothing older can still land"
		empty     = "H = A, a no-op, otherwise"
		first     = "H = A"
		adopt     = "the newest commit of ours in the range, P, is of this very staging and has the wanted tree, and the range is clean up to P"
		supersede = "the range is clean up to H, and the wanted tree is not that of a repository's first commit"
		raced     = "the newest commit of ours in the range has a foreign commit below it, whatever its tree"
		fenced    = "anything else: a foreign, incomplete or unreadable commit; A not in the first-parent history; more than 1024 commits; the tree of a repository's first commit, which cannot be committed again"
	)
	noOp := func(f *PublishFacts) {
		f.Staged.NoOp, f.Staged.Commit, f.Staged.StagingBranch = true, id("A"), ""
		f.Wanted = "tree-A"
	}
	history := func(commits ...Commit) func(*PublishFacts) {
		return func(f *PublishFacts) { f.Head, f.Range, f.Reached = commits[0].ID, commits, true }
	}
	without := func(commit Commit, key string) Commit {
		delete(commit.Metadata, key)
		return commit
	}
	with := func(commit Commit, key, value string) Commit {
		commit.Metadata[key] = value
		return commit
	}
	ofKey := func(key LogicalTaskKey) func(*Record) { return func(r *Record) { r.Key = key } }
	long := make([]Commit, HistoryLimit+1)
	for i := range long {
		long[i] = confirm(fmt.Sprintf("c%d", len(long)-i), fmt.Sprintf("c%d", len(long)-i-1))
	}

	cases := []struct {
		row  string
		name string
		set  []func(*PublishFacts)
		want PublishDecision
		// fence and race are parts of the expected error's sentence.
		fence, race string
	}{
		{row: readOnly, set: []func(*PublishFacts){func(f *PublishFacts) { f.Staged.ReadOnly = true; f.Head = "" }}, want: PublishDecision{Action: PublishNothing}},
		{row: quiet, set: []func(*PublishFacts){noOp}, want: PublishDecision{Action: PublishNothing}},
		{row: empty, name: "a later try", set: []func(*PublishFacts){noOp, func(f *PublishFacts) { f.FirstTry = false }}, want: PublishDecision{Action: PublishEmpty, ExpectedHead: id("A")}},
		{row: empty, name: "another execution's branch is there", set: []func(*PublishFacts){noOp, func(f *PublishFacts) { f.OtherBranches = true }}, want: PublishDecision{Action: PublishEmpty, ExpectedHead: id("A")}},
		{row: first, want: PublishDecision{Action: PublishFirst, ExpectedHead: id("A")}},
		{row: first, name: "also on a later try", set: []func(*PublishFacts){func(f *PublishFacts) { f.FirstTry, f.OtherBranches = false, true }}, want: PublishDecision{Action: PublishFirst, ExpectedHead: id("A")}},

		{row: adopt, name: "at the head", set: []func(*PublishFacts){history(confirm("P", "A"))}, want: PublishDecision{Action: PublishAdopt, Adopt: id("P"), ExpectedHead: id("A")}},
		{row: adopt, name: "below others' commits", set: []func(*PublishFacts){history(foreign("F", "P"), confirm("P", "A"))}, want: PublishDecision{Action: PublishAdopt, Adopt: id("P"), ExpectedHead: id("A")}},
		{row: adopt, name: "on an older one of ours", set: []func(*PublishFacts){history(confirm("P2", "P1", func(r *Record) { r.Supersedes = id("P1") }), confirm("P1", "A", otherStaging))}, want: PublishDecision{Action: PublishAdopt, Adopt: id("P2"), ExpectedHead: id("P1"), Supersedes: id("P1")}},

		{row: supersede, name: "another staging", set: []func(*PublishFacts){history(confirm("P", "A", otherStaging))}, want: PublishDecision{Action: PublishSuperseding, ExpectedHead: id("P"), Supersedes: id("P")}},
		{row: supersede, name: "this staging, another tree", set: []func(*PublishFacts){history(confirm("P", "A")), func(f *PublishFacts) { f.Wanted = "tree-other" }}, want: PublishDecision{Action: PublishSuperseding, ExpectedHead: id("P"), Supersedes: id("P")}},
		{row: supersede, name: "another staging, equal tree", set: []func(*PublishFacts){history(confirm("P2", "P1", otherStaging), confirm("P1", "A"))}, want: PublishDecision{Action: PublishSuperseding, ExpectedHead: id("P2"), Supersedes: id("P2")}},
		{row: supersede, name: "a no-op after an abandoned publication", set: []func(*PublishFacts){history(confirm("P", "A", otherStaging)), noOp}, want: PublishDecision{Action: PublishSuperseding, ExpectedHead: id("P"), Supersedes: id("P")}},

		{row: raced, set: []func(*PublishFacts){history(confirm("P", "F"), foreign("F", "A"))}, race: "main holds " + string(id("P")) + ", published by this step on top of foreign " + string(id("F")) + "; inspect it, revert it or accept it, then start a new workflow with ref=" + string(id("P"))},
		{row: raced, name: "another tree", set: []func(*PublishFacts){history(confirm("P", "F"), foreign("F", "A")), func(f *PublishFacts) { f.Wanted = "tree-other" }}, race: "on top of foreign"},
		{row: raced, name: "with others above", set: []func(*PublishFacts){history(foreign("G", "P"), confirm("P", "F"), foreign("F", "A"))}, race: "ref=" + string(id("G"))},
		{row: raced, name: "foreign between two of ours", set: []func(*PublishFacts){history(confirm("P2", "F"), foreign("F", "P1"), confirm("P1", "A"))}, race: "on top of foreign " + string(id("F"))},

		{row: fenced, name: "a foreign head", set: []func(*PublishFacts){history(foreign("F", "A"))}, fence: "main advanced from " + string(id("A")) + " to " + string(id("F")) + "; start a new workflow with ref=" + string(id("F"))},
		{row: fenced, name: "foreign on an abandoned one of ours", set: []func(*PublishFacts){history(foreign("F", "P"), confirm("P", "A", otherStaging))}, fence: "start a new workflow"},
		{row: fenced, name: "a key is missing", set: []func(*PublishFacts){history(without(confirm("P", "A"), keyStagingCommit))}, fence: "incomplete perago metadata: perago.staging_commit is missing"},
		{row: fenced, name: "a key is empty", set: []func(*PublishFacts){history(with(confirm("P", "A"), keyStagingBranch, ""))}, fence: "perago.staging_branch is missing"},
		{row: fenced, name: "two parents", set: []func(*PublishFacts){history(func() Commit { c := confirm("P", "A"); c.Parents = append(c.Parents, id("X")); return c }())}, fence: "start a new workflow"},
		{row: fenced, name: "our try commit is no publication", set: []func(*PublishFacts){history(confirm("P", "A", func(r *Record) { r.Phase = PhaseTry }))}, fence: "start a new workflow"},
		{row: fenced, name: "a cherry-picked copy of ours", set: []func(*PublishFacts){history(with(confirm("P", "A"), keyCherryPick, string(id("X"))))}, fence: "advanced"},
		{row: raced, name: "ours on top of a cherry-picked copy", set: []func(*PublishFacts){history(confirm("P", "C"), with(confirm("C", "A"), keyCherryPick, string(id("X"))))}, race: "on top of foreign " + string(id("C"))},
		{row: fenced, name: "another branch's", set: []func(*PublishFacts){history(confirm("P", "A", func(r *Record) { r.TargetBranch = "dev" }))}, fence: "advanced"},
		{row: fenced, name: "a newer major version", set: []func(*PublishFacts){history(with(confirm("P", "A"), keyVersion, "2"))}, fence: "written by a newer perago (metadata version \"2\"); upgrade this worker"},
		{row: fenced, name: "another workflow's", set: []func(*PublishFacts){history(confirm("P", "A", ofKey("other:train_stage:0"), func(r *Record) { r.Workflow = otherWorkflow }))}, fence: "start a new workflow with ref="},
		{row: fenced, name: "a later step of a restarted workflow", set: []func(*PublishFacts){history(
			confirm("P2", "P1", ofKey("later"), func(r *Record) { r.InputRef = id("P1") }), confirm("P1", "A", otherStaging))}, fence: "; start a new workflow with ref="},
		{row: fenced, name: "a step of this workflow from the same input", set: []func(*PublishFacts){history(confirm("P2", "A", ofKey("sibling")))}, fence: "; two steps of one workflow write main; chain them"},
		{row: fenced, name: "a step of this workflow from elsewhere", set: []func(*PublishFacts){history(confirm("P2", "A", ofKey("sibling"), func(r *Record) { r.InputRef = id("X") }))}, fence: "; start a new workflow with ref="},
		{row: fenced, name: "the input ref is not reached", set: []func(*PublishFacts){history(confirm("P", "A")), func(f *PublishFacts) { f.Reached = false }}, fence: "is not among its last 1024 first-parent commits"},
		{row: fenced, name: "too far ahead", set: []func(*PublishFacts){history(long...)}, fence: "advanced"},
		{row: fenced, name: "the range is of another head", set: []func(*PublishFacts){history(confirm("P", "A")), func(f *PublishFacts) { f.Head = id("H") }}, fence: "advanced"},
		{row: fenced, name: "the first commit's tree over another one", set: []func(*PublishFacts){history(confirm("P", "A", otherStaging)), noOp, func(f *PublishFacts) { f.Wanted = "" }}, fence: "; the input ref is the repository's first commit, whose empty tree cannot be published again; commit a file to main (perago fence install does) and start a new workflow from there"},
		{row: adopt, name: "the first commit's tree", set: []func(*PublishFacts){history(func() Commit { c := confirm("P", "A"); c.MetaRange = ""; return c }()), noOp, func(f *PublishFacts) { f.Wanted = "" }}, want: PublishDecision{Action: PublishAdopt, Adopt: id("P"), ExpectedHead: id("A")}},
		{row: fenced, name: "the range is empty", set: []func(*PublishFacts){func(f *PublishFacts) { f.Head, f.Reached = id("H"), true }}, fence: "advanced"},
	}

	var rows []string
	for _, c := range cases {
		rows = append(rows, c.row)
		t.Run(c.row+"/"+c.name, func(t *testing.T) {
			facts := PublishFacts{
				Step:   testStep,
				Staged: Staged{Commit: id("S"), StagingBranch: "perago-staging-x", Execution: execution1, InputRef: id("A")},
				Wanted: "tree-S", Head: id("A"), FirstTry: true,
			}
			for _, set := range c.set {
				set(&facts)
			}
			got, err := DecidePublish(facts)
			var fence *PublishFenceError
			var race *PublishRacedError
			switch {
			case c.fence != "":
				if !errors.As(err, &fence) || !strings.Contains(err.Error(), c.fence) {
					t.Fatalf("got %+v, %v; want a fence error with %q", got, err, c.fence)
				}
			case c.race != "":
				if !errors.As(err, &race) || !strings.Contains(err.Error(), c.race) {
					t.Fatalf("got %+v, %v; want a raced error with %q", got, err, c.race)
				}
			case err != nil || got != c.want:
				t.Fatalf("got %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
	sameRows(t, "publish decision", rows)
}

// Where a rerun from the head would not help, what the head holds under the prefix
// does not add the advice to rerun.
func TestPublishFenceError_WithKeepsAdviceThatIsWhole(t *testing.T) {
	t.Parallel()
	staged := Staged{Commit: id("S"), StagingBranch: "perago-staging-x", Execution: execution1, InputRef: id("A")}
	sibling := confirm("F", "A", func(r *Record) { r.Key = "sibling" })
	newer := confirm("F", "A")
	newer.Metadata[keyVersion] = "2"
	for name, facts := range map[string]PublishFacts{
		"the input ref is not reached": {Step: testStep, Staged: staged, Head: id("F")},
		"two steps of one workflow":    {Step: testStep, Staged: staged, Head: sibling.ID, Reached: true, Range: []Commit{sibling}},
		"a record of a newer perago":   {Step: testStep, Staged: staged, Head: newer.ID, Reached: true, Range: []Commit{newer}},
	} {
		_, err := DecidePublish(facts)
		var fence *PublishFenceError
		if !errors.As(err, &fence) {
			t.Fatalf("%s: got %v", name, err)
		}
		for _, o := range []Overlap{{Stage: "train_stage", Prefix: "models/", Changed: true}, {Stage: "train_stage", Prefix: "models/"}} {
			if told := fence.With(o); told.Advice != fence.Advice {
				t.Errorf("%s: got %q, want %q", name, told.Advice, fence.Advice)
			}
		}
	}
}

func TestCheckLanded(t *testing.T) {
	t.Parallel()
	sent, err := ParseRecord(confirm("P", "A").Metadata)
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckLanded(confirm("P", "A"), "tree-S", sent); err != nil {
		t.Errorf("a landing as decided: %v", err)
	}
	linked := confirm("P", "A")
	linked.Metadata[".lakefs.merge.strategy"] = "default"
	if err := CheckLanded(linked, "tree-S", sent); err != nil {
		t.Errorf("lakeFS's own key is no difference: %v", err)
	}
	for name, landed := range map[string]Commit{
		"another parent":   func() Commit { c := confirm("P", "A"); c.Parents = []CommitID{id("F")}; return c }(),
		"another decision": confirm("P", "A", func(r *Record) { r.Supersedes = id("P0") }),
		"another tree":     func() Commit { c := confirm("P", "A"); c.MetaRange = "tree-other"; return c }(),
		"another attempt":  confirm("P", "A", func(r *Record) { r.Execution = execution1 }),
		"no metadata":      foreign("P", "A"),
		"a second parent":  func() Commit { c := confirm("P", "A"); c.Parents = append(c.Parents, id("S")); return c }(),
		"no parent at all": func() Commit { c := confirm("P", "A"); c.Parents = nil; return c }(),
	} {
		var unexpected *UnexpectedLandingError
		if err := CheckLanded(landed, "tree-S", sent); !errors.As(err, &unexpected) {
			t.Errorf("%s: got %v, want an unexpected landing", name, err)
		}
	}
}

func TestCheckStagedCommit(t *testing.T) {
	t.Parallel()
	staged := Staged{Commit: id("S"), Execution: execution2}
	try := func(change ...func(*Record)) Commit {
		return confirm("S", "A", append([]func(*Record){func(r *Record) { r.Phase = PhaseTry }}, change...)...)
	}
	if err := CheckStagedCommit(testStep, staged, try()); err != nil {
		t.Errorf("the step's own staged commit: %v", err)
	}
	for name, commit := range map[string]Commit{
		"a confirm commit":  confirm("S", "A"),
		"another key":       try(func(r *Record) { r.Key = "other" }),
		"another branch":    try(func(r *Record) { r.TargetBranch = "dev" }),
		"another prefix":    try(func(r *Record) { r.Prefix = "data/" }),
		"another input ref": try(func(r *Record) { r.InputRef = id("B") }),
		"another execution": try(func(r *Record) { r.Execution = execution1 }),
		"another parent":    func() Commit { c := try(); c.Parents = []CommitID{id("B")}; return c }(),
		"two parents":       func() Commit { c := try(); c.Parents = append(c.Parents, id("B")); return c }(),
		"another commit":    func() Commit { c := try(); c.ID = id("T"); return c }(),
		"no metadata":       {ID: id("S"), Parents: []CommitID{id("A")}},
	} {
		var terminal *TerminalError
		if err := CheckStagedCommit(testStep, staged, commit); !errors.As(err, &terminal) {
			t.Errorf("%s: got %v, want a terminal error", name, err)
		}
	}
}

func TestLateLandings(t *testing.T) {
	t.Parallel()
	other := confirm("O", "L", func(r *Record) { r.Key = "other" })
	copied := confirm("C", "O")
	copied.Metadata[keyCherryPick] = string(id("L"))
	above := []Commit{foreign("F", "C"), copied, other, confirm("L", "P"), confirm("T", "P", func(r *Record) { r.Phase = PhaseTry })}
	if late := LateLandings(testStep.Key, above); len(late) != 1 || late[0] != id("L") {
		t.Errorf("%v, want the one confirm commit of the step", late)
	}
}

func TestLandedLate(t *testing.T) {
	t.Parallel()
	of := func(expected string) func(*Record) { return func(r *Record) { r.ExpectedHead = id(expected) } }
	copied := confirm("C", "P", of("A"))
	copied.Metadata[keyCherryPick] = string(id("P"))
	for name, c := range map[string]struct {
		commits         []Commit // newest first
		published, late string
	}{
		"nothing":                             {},
		"its publication":                     {commits: []Commit{confirm("P", "A")}, published: "P"},
		"a foreign commit above":              {commits: []Commit{foreign("F", "P"), confirm("P", "A")}, published: "P"},
		"another step above":                  {commits: []Commit{confirm("O", "P", func(r *Record) { r.Key = "other" }), confirm("P", "A")}, published: "P"},
		"what it superseded":                  {commits: []Commit{confirm("P", "O"), confirm("O", "A", otherStaging)}, published: "P"},
		"an older staging that landed late":   {commits: []Commit{confirm("L", "P", of("A"), otherStaging), confirm("P", "A")}, published: "P", late: "L"},
		"the same staging that landed late":   {commits: []Commit{confirm("L", "P", of("A")), confirm("P", "A")}, published: "P", late: "L"},
		"on a foreign commit":                 {commits: []Commit{confirm("L", "F", of("A")), foreign("F", "P"), confirm("P", "A")}, published: "P", late: "L"},
		"an older staging on what it expects": {commits: []Commit{confirm("L", "P", otherStaging), confirm("P", "A")}, published: "P", late: "L"},
		"superseded by the same staging":      {commits: []Commit{confirm("Q", "L"), confirm("L", "P", of("A"), otherStaging), confirm("P", "A")}, published: "P", late: "L"},
		"a copy that was picked":              {commits: []Commit{copied, confirm("P", "A")}, published: "P"},
		"another staging alone":               {commits: []Commit{confirm("L", "O", otherStaging), confirm("O", "A", otherStaging)}},
	} {
		published, late := testStep.LandedLate(execution1, c.commits)
		var wantPublished CommitID
		var wantLate []CommitID
		if c.published != "" {
			wantPublished = id(c.published)
		}
		if c.late != "" {
			wantLate = []CommitID{id(c.late)}
		}
		if published != wantPublished || !slices.Equal(late, wantLate) {
			t.Errorf("%s: published %q, late %q", name, published, late)
		}
	}
}
