package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/explain"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// Each iteration of a loop is a step of its own: the second one publishes on top
// of the first. The workspace goes from one iteration to the next through a
// workflow variable.
func TestLoopIterationsAreStepsOfTheirOwn(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "0"})
	f.user("prepare", func(task txn.Task) map[string]string { return map[string]string{"a": fmt.Sprint(task.Iteration)} })
	tasks := step("prepare", "data/", "${workflow.variables.workspace}", nil)
	remember := map[string]any{
		"name": "remember", "taskReferenceName": "remember", "type": "SET_VARIABLE",
		"inputParameters": map[string]any{"workspace": "${prepare_publish.output.workspace}"},
	}
	begin := map[string]any{
		"name": "begin", "taskReferenceName": "begin", "type": "SET_VARIABLE",
		"inputParameters": map[string]any{"workspace": "${workflow.input.workspace}"},
	}
	loop := map[string]any{
		"name": "loop", "taskReferenceName": "loop", "type": "DO_WHILE",
		"loopCondition": "if ($.loop['iteration'] < 3) { true; } else { false; }",
		"loopOver":      append(tasks, remember),
	}
	workflow := f.completed(f.register("loop", begin, loop), map[string]any{"workspace": f.workspace(f.first)})

	keys := map[txn.LogicalTaskKey]bool{}
	for i := range 3 {
		stage := last(t, workflow, txn.ReferenceName(fmt.Sprintf("prepare_stage__%d", i+1)))
		staged := outputOf(t, stage).Staged
		if want := txn.NewLogicalTaskKey(workflow.ID, stage.ReferenceName, i+1); staged.Key != want {
			t.Errorf("iteration %d has key %s, want %s", i+1, staged.Key, want)
		}
		keys[staged.Key] = true
		publish := outputOf(t, last(t, workflow, txn.ReferenceName(fmt.Sprintf("prepare_publish__%d", i+1))))
		if publish.Publication.Outcome != txn.OutcomePublished || publish.Publication.Supersedes != "" {
			t.Errorf("iteration %d published %+v", i+1, publish.Publication)
		}
	}
	if len(keys) != 3 || f.history() != 3 {
		t.Errorf("%d keys and %d commits, want 3 and 3", len(keys), f.history())
	}
	if diff := cmp.Diff(map[string]string{"data/a": "3"}, lakefstest.Tree(t, f.lake, f.repo, f.head())); diff != "" {
		t.Error(diff)
	}
}

// fork runs branches side by side and joins them.
func fork(branches ...[]map[string]any) []map[string]any {
	var joinOn []string
	for _, branch := range branches {
		joinOn = append(joinOn, branch[len(branch)-1]["taskReferenceName"].(string))
	}
	return []map[string]any{
		{"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": branches},
		{"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": joinOn},
	}
}

// A fork may have one writer of a branch; the other branches read.
func TestForkWithOneWriter(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "1"})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	f.user("train", func(txn.Task) map[string]string { return nil })
	reader := step("train", "data/", "${workflow.input.workspace}", func(stage map[string]any) {
		delete(stage, "source")
		stage["read_only"] = true
	})
	name := f.register("fork", fork(step("prepare", "data/", "${workflow.input.workspace}", nil), reader)...)
	workflow := f.completed(name, map[string]any{"workspace": f.workspace(f.first)})
	if o := outputOf(t, last(t, workflow, "prepare_publish")); o.Publication.Outcome != txn.OutcomePublished {
		t.Errorf("the writer published %+v", o.Publication)
	}
	if o := outputOf(t, last(t, workflow, "train_publish")); o.Publication.Outcome != txn.OutcomeReadOnly || o.Workspace.Ref != f.first {
		t.Errorf("the reader published %+v, workspace %+v", o.Publication, o.Workspace)
	}
}

// Two writers of one branch in one fork: one publishes, the other is refused
// with the sentence that says to chain them.
func TestForkWithTwoWritersIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "1", "models/m": "1"})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	f.user("train", func(txn.Task) map[string]string { return map[string]string{"m": "2"} })
	// The second writer waits until the first has published: which of them is
	// refused is then no matter of speed.
	second := step("train", "models/", "${workflow.input.workspace}", nil)
	second = append([]map[string]any{simple("e2e_hold", "hold", nil)}, second...)
	name := f.register("two_writers", fork(step("prepare", "data/", "${workflow.input.workspace}", nil), second)...)
	id := f.start(name, map[string]any{"workspace": f.workspace(f.first)})
	eventually(t, waitTime, "the first writer has published", func() (bool, string) { return f.head() != f.first, "" })
	f.user("e2e_hold", func(txn.Task) map[string]string { return nil })
	workflow := f.end(id)
	refused := last(t, workflow, "train_publish")
	want := fmt.Sprintf("main advanced from %s to %s; two steps of one workflow write main; chain them", f.first, f.head())
	if workflow.Status != txn.WorkflowFailed || refused.Status != txn.TaskFailed || refused.Reason != want {
		t.Errorf("%s\nwant %s", describe(workflow), want)
	}
	if f.history() != 1 {
		t.Errorf("%d commits, want 1", f.history())
	}
}

func TestSwitch(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "1"})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	choose := map[string]any{
		"name": "choose", "taskReferenceName": "choose", "type": "SWITCH", "evaluatorType": "value-param", "expression": "publish",
		"inputParameters": map[string]any{"publish": "${workflow.input.publish}"},
		"decisionCases":   map[string]any{"yes": step("prepare", "data/", "${workflow.input.workspace}", nil)},
		"defaultCase":     []any{},
	}
	name := f.register("switch", choose)
	f.completed(name, map[string]any{"workspace": f.workspace(f.first), "publish": "no"})
	if f.head() != f.first {
		t.Error("the case that was not chosen published")
	}
	f.completed(name, map[string]any{"workspace": f.workspace(f.first), "publish": "yes"})
	if f.history() != 1 {
		t.Errorf("%d commits, want 1", f.history())
	}
}

// A step in a sub-workflow is a step of the sub-workflow, whose id names it.
func TestSubWorkflow(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "1"})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	inner := f.register("inner", step("prepare", "data/", "${workflow.input.workspace}", nil)...)
	outer := f.register("outer", map[string]any{
		"name": "inner", "taskReferenceName": "inner", "type": "SUB_WORKFLOW",
		"subWorkflowParam": map[string]any{"name": inner, "version": 1},
		"inputParameters":  map[string]any{"workspace": "${workflow.input.workspace}"},
	})
	workflow := f.completed(outer, map[string]any{"workspace": f.workspace(f.first)})
	record := f.record(f.head())
	if record.Workflow == workflow.ID || !strings.HasPrefix(string(record.Key), string(record.Workflow)+":prepare_stage:") {
		t.Errorf("the publication is of %s, key %s; the outer workflow is %s", record.Workflow, record.Key, workflow.ID)
	}
	// Explain follows the parent down to it.
	e := f.explained(workflow.ID)
	if len(e.Steps) != 0 || len(e.Subs) != 1 || e.Subs[0].Workflow != record.Workflow || len(e.Subs[0].Steps) != 1 ||
		e.Subs[0].Steps[0].State != explain.StatePublished || e.Subs[0].Steps[0].Commit != f.head() || len(e.Next) > 0 {
		t.Errorf("explain says %+v", e)
	}
}

// A later step's publication makes a rerun of the earlier one fail, with the
// sentence that says where to rerun from.
func TestRerunBelowALaterStepIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{
		files: map[string]string{"data/a": "1", "models/m": "1"},
		// The first run's staging of the rerun step is replaced, which only the
		// hard fence would settle.
		expect: []lakefstest.Expectation{lakefstest.Allow(lakefstest.RuleBranches)},
	})
	content := map[string]string{"a": "2"}
	var made atomic.Int32
	f.user("prepare", func(txn.Task) map[string]string { made.Add(1); return content })
	f.user("train", func(txn.Task) map[string]string { return map[string]string{"m": "2"} })
	tasks := append(step("prepare", "data/", "${workflow.input.workspace}", nil), step("train", "models/", "${prepare_publish.output.workspace}", nil)...)
	id := f.completed(f.register("later", tasks...), map[string]any{"workspace": f.workspace(f.first)}).ID
	head := f.head()
	content = maps.Clone(content)
	content["a"] = "3"
	if err := f.operator.Restart(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	eventually(t, waitTime, "the restarted workflow runs", func() (bool, string) {
		status, err := f.conductor.WorkflowStatus(t.Context(), id)
		return err == nil && status != txn.WorkflowCompleted, string(status)
	})
	workflow := f.end(id)
	publish := last(t, workflow, "prepare_publish")
	want := fmt.Sprintf("main advanced from %s to %s; start a new workflow with ref=%s, or rerun prepare_stage with that workspace.ref; data/ itself changed since, and a rerun replaces that change", f.first, head, head)
	if publish.Status != txn.TaskFailed || publish.Reason != want || f.head() != head {
		t.Errorf("%s\nwant %s", describe(workflow), want)
	}
	// What the reason says can be done: the files of this run are published, on top
	// of what is there, and the task that made them does not run again.
	f.rerunFromHead(workflow, "prepare_stage")
	workflow = f.end(id)
	if diff := cmp.Diff(map[string]string{"data/a": "3", "models/m": "2"}, lakefstest.Tree(t, f.lake, f.repo, f.head())); workflow.Status != txn.WorkflowCompleted || made.Load() != 2 || diff != "" {
		t.Errorf("prepare ran %d times; %s\n(-want +got):\n%s", made.Load(), describe(workflow), diff)
	}
}

// rerunFromHead reruns a stage with the head of the branch as its workspace.ref.
func (f *fleet) rerunFromHead(workflow txn.Workflow, stage txn.ReferenceName) {
	f.t.Helper()
	task := last(f.t, workflow, stage)
	var input map[string]any
	if err := json.Unmarshal(task.Input, &input); err != nil {
		f.t.Fatal(err)
	}
	input["workspace"] = f.workspace(f.head())
	if err := f.operator.RerunWith(f.t.Context(), workflow.ID, task.ID, input); err != nil {
		f.t.Fatal(err)
	}
}

// A step that the fence refused is rerun from its stage with the head as its
// workspace.ref: its files are published, the other's change stays, and the user's
// task does not run again. The same trigger twice is told that there is nothing to
// publish.
func TestFence_SaysWhatTheBranchHolds(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{files: map[string]string{"data/a": "1"}, expect: []lakefstest.Expectation{
		lakefstest.Allow(lakefstest.RuleBranches), lakefstest.Allow(lakefstest.RuleMetadata),
	}})
	var made atomic.Int32
	f.user("prepare", func(txn.Task) map[string]string { made.Add(1); return map[string]string{"a": "2"} })
	name := f.register("fenced", step("prepare", "data/", "${workflow.input.workspace}", nil)...)
	foreign := f.commitForeign(map[string]string{"other/x": "by hand"})
	id := f.start(name, map[string]any{"workspace": f.workspace(f.first)})
	workflow := f.end(id)
	want := fmt.Sprintf("main advanced from %s to %s; start a new workflow with ref=%s, or rerun prepare_stage with that workspace.ref, which keeps this step's files", f.first, foreign, foreign)
	if publish := last(t, workflow, "prepare_publish"); publish.Status != txn.TaskFailed || publish.Reason != want {
		t.Fatalf("%s\nwant %s", describe(workflow), want)
	}
	f.rerunFromHead(workflow, "prepare_stage")
	workflow = f.end(id)
	if diff := cmp.Diff(map[string]string{"data/a": "2", "other/x": "by hand"}, lakefstest.Tree(t, f.lake, f.repo, f.head())); workflow.Status != txn.WorkflowCompleted || made.Load() != 1 || diff != "" {
		t.Errorf("prepare ran %d times; %s\n(-want +got):\n%s", made.Load(), describe(workflow), diff)
	}
	again := f.end(f.start(name, map[string]any{"workspace": f.workspace(foreign)}))
	want = fmt.Sprintf("main advanced from %s to %s; it already holds exactly these files under data/, published as %s by workflow %s: there is nothing to publish", foreign, f.head(), f.head().Short(), id)
	if publish := last(t, again, "prepare_publish"); publish.Reason != want {
		t.Errorf("%s\nwant %s", describe(again), want)
	}
}

// Two steps whose users typed the same text are different steps: only Conductor's
// reference names make the key, and those are unique.
func TestStepsShareNoKey(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "1"})
	content := map[string]map[string]string{"prepare": {"a": "2"}, "train": {"a": "3"}}
	for name, files := range content {
		f.user(txn.TaskType(name), func(txn.Task) map[string]string { return files })
	}
	tasks := append(step("prepare", "data/", "${workflow.input.workspace}", nil), step("train", "data/", "${prepare_publish.output.workspace}", nil)...)
	workflow := f.completed(f.register("same_prefix", tasks...), map[string]any{"workspace": f.workspace(f.first)})
	first, second := outputOf(t, last(t, workflow, "prepare_stage")).Staged, outputOf(t, last(t, workflow, "train_stage")).Staged
	if first.Key == second.Key || f.history() != 2 {
		t.Errorf("keys %s and %s, %d commits", first.Key, second.Key, f.history())
	}
	if o := outputOf(t, last(t, workflow, "train_publish")); o.Publication.Supersedes != "" {
		t.Errorf("the second step superseded the first: %+v", o.Publication)
	}
}
