package txn

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestSettled(t *testing.T) {
	t.Parallel()
	cases := []struct {
		row   string
		facts SettledFacts
		want  bool
	}{
		{"staging branch: publish would adopt a commit of this staging", SettledFacts{WouldAdopt: true}, true},
		{"staging branch: its commit has the tree of its input ref", SettledFacts{ChangesNothing: true, HeadIsInput: true}, true},
		{"staging branch, hard fence proven: H is neither A nor ours", SettledFacts{HardFenceProven: true}, true},
		{"staging branch, hard fence proven: the step's publish completed with another staging, which is in H's history", SettledFacts{HardFenceProven: true, HeadIsOurs: true, OtherPublished: true}, true},
		{"staging branch, otherwise", SettledFacts{HeadIsInput: true}, false},
		{"staging branch, otherwise", SettledFacts{HardFenceProven: true, HeadIsInput: true}, false},
		{"staging branch, otherwise", SettledFacts{HardFenceProven: true, HeadIsOurs: true}, false},
		{"staging branch, otherwise", SettledFacts{}, false},
		{"staging branch, otherwise", SettledFacts{OtherPublished: true, HeadIsOurs: true}, false},
		{"source branch: a confirm commit with its execution is in H's history", SettledFacts{Source: true, Landed: true, HeadIsBase: true}, true},
		{"source branch, hard fence proven: H is not the commit it was cut from", SettledFacts{Source: true, HardFenceProven: true}, true},
		{"source branch, otherwise", SettledFacts{Source: true, HardFenceProven: true, HeadIsBase: true}, false},
		{"source branch, otherwise", SettledFacts{Source: true}, false},
		{"source branch, otherwise", SettledFacts{Source: true, WouldAdopt: true}, false},
	}
	var rows []string
	for _, c := range cases {
		rows = append(rows, c.row)
		if got, why := Settled(c.facts); got != c.want || why == "" {
			t.Errorf("%s: Settled(%+v) = %v, %q; want %v and a reason", c.row, c.facts, got, why, c.want)
		}
	}
	sameRows(t, "settled", rows)
}

func TestDecideCleanup(t *testing.T) {
	t.Parallel()
	const (
		settled = "no stage or publish task of the step is open, and the branch is settled"
		ended   = "the workflow is terminal, and the branch is older than PERAGO_SWEEP_TTL"
		unknown = "the workflow is unknown, and the branch is older than PERAGO_SWEEP_TTL"
		keep    = "otherwise"
	)
	const ttl = time.Hour
	cases := []struct {
		row   string
		facts CleanupFacts
		want  bool
	}{
		{settled, CleanupFacts{WorkflowKnown: true, WorkflowStatus: WorkflowRunning, Settled: true}, true},
		{settled, CleanupFacts{WorkflowKnown: true, WorkflowStatus: WorkflowFailed, Settled: true}, true},
		{settled, CleanupFacts{Settled: true}, true},
		{ended, CleanupFacts{WorkflowKnown: true, WorkflowStatus: WorkflowFailed, Age: ttl}, true},
		{ended, CleanupFacts{WorkflowKnown: true, WorkflowStatus: WorkflowTerminated, StepOpen: true, Age: 2 * ttl}, true},
		{unknown, CleanupFacts{Age: ttl}, true},
		{keep, CleanupFacts{WorkflowKnown: true, WorkflowStatus: WorkflowRunning, Age: 9 * ttl}, false},
		{keep, CleanupFacts{WorkflowKnown: true, WorkflowStatus: WorkflowPaused, Age: 9 * ttl}, false},
		{keep, CleanupFacts{WorkflowKnown: true, WorkflowStatus: WorkflowRunning, StepOpen: true, Settled: true}, false},
		{keep, CleanupFacts{WorkflowKnown: true, WorkflowStatus: WorkflowFailed, Age: ttl - 1}, false},
		{keep, CleanupFacts{WorkflowKnown: true, WorkflowStatus: WorkflowFailed, StepOpen: true, Settled: true, Age: ttl - 1}, false},
		{keep, CleanupFacts{Age: ttl - 1}, false},
		{keep, CleanupFacts{WorkflowKnown: true, WorkflowStatus: "SOMETHING_NEW", Age: 9 * ttl}, false},
	}
	var rows []string
	for _, c := range cases {
		rows = append(rows, c.row)
		c.facts.TTL, c.facts.SettledWhy = ttl, "because"
		if got := DecideCleanup(c.facts); got.Delete != c.want || got.Reason == "" {
			t.Errorf("%s: DecideCleanup(%+v) = %+v; want delete %v and a reason", c.row, c.facts, got, c.want)
		}
	}
	sameRows(t, "cleanup decision", rows)
}

func TestDecideDirectory(t *testing.T) {
	t.Parallel()
	const (
		completed = "`COMPLETED`"
		old       = "ended otherwise, `PERAGO_SWEEP_TTL` ago or longer"
		young     = "ended otherwise, later"
		open      = "not ended, or of an unknown status"
	)
	const ttl = time.Hour
	var rows []string
	for _, c := range []struct {
		row    string
		status WorkflowStatus
		since  time.Duration
		want   bool
	}{
		{completed, WorkflowCompleted, 0, true},
		{old, WorkflowFailed, ttl, true},
		{old, WorkflowTerminated, 9 * ttl, true},
		{old, WorkflowTimedOut, ttl, true},
		{young, WorkflowFailed, ttl - 1, false},
		{young, WorkflowTerminated, 0, false},
		// The server's clock is ahead.
		{young, WorkflowTimedOut, -ttl, false},
		{open, WorkflowRunning, 9 * ttl, false},
		{open, WorkflowPaused, 9 * ttl, false},
		{open, "SOMETHING_NEW", 9 * ttl, false},
		{open, "", 9 * ttl, false},
	} {
		rows = append(rows, c.row)
		if reason, goes := DecideDirectory(c.status, c.since, ttl); goes != c.want || reason == "" {
			t.Errorf("%s: %s, %s after its end: %v, %q; want %v and a reason", c.row, c.status, c.since, goes, reason, c.want)
		}
	}
	sameRows(t, "directory decision", rows)
}

func TestAllowedRepositories(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		entries []string
		want    []Repository
		all     bool
	}{
		{[]string{"*"}, nil, true},
		{[]string{"lake", "*"}, nil, true},
		{[]string{"lake/main", "other", "lake/dev-*"}, []Repository{"lake", "other"}, false},
	} {
		list, err := ParseAllowList(c.entries)
		if err != nil {
			t.Fatal(err)
		}
		if named, all := list.Repositories(); !slices.Equal(named, c.want) || all != c.all {
			t.Errorf("%v: %v, all %v", c.entries, named, all)
		}
	}
}

func TestStepOpen(t *testing.T) {
	t.Parallel()
	key := NewLogicalTaskKey(testWorkflow, "train_stage", 0)
	name := NewStagingName("here", testWorkflow, key, 0, execution1)
	publishOf := func(staged Staged) json.RawMessage {
		raw, err := json.Marshal(map[string]any{"staged": staged})
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	mine := publishOf(testStaged(t, key))
	other := publishOf(testStaged(t, NewLogicalTaskKey(testWorkflow, "prepare_stage", 0)))
	cases := []struct {
		name string
		task Task
		want bool
	}{
		{"stage scheduled", Task{Type: TypeStage, ReferenceName: "train_stage", Status: TaskScheduled}, true},
		{"stage in progress", Task{Type: "perago_stage_large", ReferenceName: "train_stage", Status: TaskInProgress}, true},
		{"stage completed", Task{Type: TypeStage, ReferenceName: "train_stage", Status: TaskCompleted}, false},
		{"another step's stage", Task{Type: TypeStage, ReferenceName: "prepare_stage", Status: TaskInProgress}, false},
		{"another iteration's stage", Task{Type: TypeStage, ReferenceName: "train_stage", Iteration: 1, Status: TaskInProgress}, false},
		{"publish in progress", Task{Type: "perago_publish_large", Status: TaskInProgress, Input: mine}, true},
		{"publish failed", Task{Type: TypePublish, Status: TaskFailed, Input: mine}, false},
		{"another step's publish", Task{Type: TypePublish, Status: TaskInProgress, Input: other}, false},
		{"a publish that cannot be read", Task{Type: TypePublish, Status: TaskInProgress, Input: json.RawMessage(`{"staged":null}`)}, true},
		{"cleanup in progress", Task{Type: TypeCleanup, Status: TaskInProgress, Input: mine}, false},
		{"a user's task", Task{Type: "train", Status: TaskInProgress}, false},
	}
	for _, c := range cases {
		if got := StepOpen(Workflow{ID: testWorkflow, Tasks: []Task{c.task}}, name); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// testStaged is a staged reference that agrees with itself.
func testStaged(t *testing.T, key LogicalTaskKey) Staged {
	t.Helper()
	staged := Staged{
		Repository: "lake", Branch: "main", Commit: id("S"), Key: key, InputRef: id("A"), Prefix: "models/",
		Task: "stage-task", RetryCount: 1, PollCount: 2, StartTime: 1764443290123, Execution: execution1,
		StagingBranch: NewStagingName("here", testWorkflow, key, 1, execution1).Branch(),
		Added:         3, Bytes: 42,
	}
	raw, err := json.Marshal(staged)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := parseStaged("staged", raw); err != nil || back != staged {
		t.Fatal(fmt.Errorf("%+v does not come back from %s: %+v, %w", staged, raw, back, err))
	}
	return staged
}
