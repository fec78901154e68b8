package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"perago/pkg/fault"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// A no-op after an abandoned publication ends with the input ref's tree: it
// supersedes what was abandoned, and a second one supersedes the first, whose tree
// is equal. From a repository's first commit, whose tree has no id, it is refused.
func TestNoOpAfterAnAbandonedPublication(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]map[string]string{"on a tree": {"data/a": "1", "other": "o"}, "on a repository's first commit": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleetOf(t, setup{
				files: before, without: "publish-worker",
				// The abandoned staging is settled by the hard fence only.
				expect: []lakefstest.Expectation{lakefstest.Allow(lakefstest.RuleBranches)},
			})
			content := map[string]string{"a": "2", "only the first": "x"}
			f.user("prepare", func(txn.Task) map[string]string { return content })
			dying := f.behind("publish-worker", publishEnv)
			held := dying.conductor.Hold(completion)
			tasks := publishedBy("perago_publish_brief", step("prepare", "data/", "${workflow.input.workspace}", func(s map[string]any) { s["allow_empty"] = true }))
			id := f.start(f.register("noop", tasks...), map[string]any{"workspace": f.workspace(f.first)})
			held.Wait(t, waitTime)
			abandoned := f.head()
			dying.kill()
			held.Drop()

			content = map[string]string{}
			if before["data/a"] != "" {
				content["a"] = before["data/a"]
			}
			next := start(t, "publish-worker", f.env(publishEnv)...)
			for _, superseded := range []func() txn.CommitID{func() txn.CommitID { return abandoned }, f.head} {
				want := superseded()
				f.rerunFrom(id, "prepare")
				workflow := f.end(id)
				if len(before) == 0 {
					reason := last(t, workflow, "prepare_publish").Reason
					if workflow.Status != txn.WorkflowFailed || !strings.Contains(reason, "the input ref is the repository's first commit") || f.head() != want {
						t.Fatalf("%s\nfailed for %q; the head is %s", describe(workflow), reason, f.head())
					}
					break
				}
				o := outputOf(t, last(t, workflow, "prepare_publish"))
				if workflow.Status != txn.WorkflowCompleted || !outputOf(t, last(t, workflow, "prepare_stage")).Staged.NoOp || o.Publication.Outcome != txn.OutcomePublished || o.Publication.Supersedes != want {
					t.Fatalf("%s\nput out %+v; want it to supersede %s", describe(workflow), o.Publication, want)
				}
				if diff := cmp.Diff(before, lakefstest.Tree(t, f.lake, f.repo, f.head())); diff != "" {
					t.Errorf("the tree (-want +got):\n%s", diff)
				}
			}
			f.stop(next)
		})
	}
}

// A no-op while an older attempt of the step is about moves the head with an
// empty commit, so that what the older attempt decided is out of date; its mark
// goes when it has landed.
func TestNoOpDisarmsAnOlderAttempt(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{
		files: map[string]string{"data/a": "1"}, without: "publish-worker",
		expect: []lakefstest.Expectation{lakefstest.Allow(lakefstest.RuleBranches)},
	})
	content := map[string]string{"a": "2"}
	f.user("prepare", func(txn.Task) map[string]string { return content })
	older := f.behind("publish-worker", publishEnv)
	// The answer that the older attempt decides on, before its merge.
	head := older.lake.HoldAnswer(headOfMain)
	id := f.start(f.register("disarm", step("prepare", "data/", "${workflow.input.workspace}", nil)...), map[string]any{"workspace": f.workspace(f.first)})
	head.Wait(t, waitTime)
	// Should it notice that its task is gone, it must not take the next one.
	polls := older.conductor.Gate(fault.Match{Path: "/tasks/poll"})
	polls.Close()
	content = map[string]string{"a": "1"}
	next := start(t, "publish-worker", f.env(publishEnv)...)
	if err := f.operator.Terminate(t.Context(), id, "an operator stops it"); err != nil {
		t.Fatal(err)
	}
	f.rerunFrom(id, "prepare")
	workflow := f.end(id)
	o := outputOf(t, last(t, workflow, "prepare_publish"))
	if workflow.Status != txn.WorkflowCompleted || o.Publication.Outcome != txn.OutcomePublished || o.Publication.ExpectedHead != f.first || o.Publication.Commit == f.first || f.history() != 1 {
		t.Fatalf("%s\nput out %+v; want an empty commit on %s", describe(workflow), o.Publication, f.first)
	}
	published := f.head()
	head.Pass()
	polls.Open()
	f.stop(older.process)
	if n := len(older.lake.Matching(merge)); n != 0 || f.head() != published {
		t.Errorf("the older attempt sent %d merges, head %s", n, f.head())
	}
	cleanup := outputOf(t, last(t, workflow, "prepare_cleanup"))
	if len(cleanup.Deleted) != 1 || len(cleanup.Errors) != 0 {
		t.Errorf("cleanup deleted %v with errors %v; want the mark alone", cleanup.Deleted, cleanup.Errors)
	}
	f.stop(next)
}

// A commit of a newer major version is foreign, with a sentence of its own.
func TestNewerVersionIsForeign(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "1"})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	lakefstest.Put(t, f.lake, f.repo, lakefstest.DefaultBranch, map[string]string{"elsewhere": "1"})
	commit, err := f.lake.CreateCommit(t.Context(), f.repo, lakefstest.DefaultBranch, "from the future", map[string]string{"perago.version": "2", "perago.phase": "try"})
	if err != nil {
		t.Fatal(err)
	}
	workflow := f.run(f.register("newer", step("prepare", "data/", "${workflow.input.workspace}", nil)...), map[string]any{"workspace": f.workspace(f.first)})
	want := fmt.Sprintf("main advanced from %s to %s; commit %s: written by a newer perago (metadata version \"2\"); upgrade this worker; start a new workflow with ref=%s", f.first, commit.ID, commit.ID.Short(), commit.ID)
	if got := last(t, workflow, "prepare_publish").Reason; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// rerunFrom ends a workflow if it still runs and runs it again from a task.
func (f *fleet) rerunFrom(id txn.WorkflowID, reference txn.ReferenceName) {
	f.t.Helper()
	workflow, err := f.conductor.Workflow(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	if !workflow.Status.Terminal() {
		if err := f.operator.Terminate(f.t.Context(), id, "an operator stops it"); err != nil {
			f.t.Fatal(err)
		}
	}
	if err := f.operator.RerunPolled(f.t.Context(), id, last(f.t, workflow, reference).ID); err != nil {
		f.t.Fatal(err)
	}
}

// As many commits of the step itself as the limit are read and superseded, one
// more is refused.
func TestOwnHistoryUpToTheLimit(t *testing.T) {
	t.Parallel()
	for name, over := range map[string]int{"at the limit": 0, "one over it": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleetOf(t, setup{
				files: map[string]string{"data/a": "1"},
				// Past the limit cleanup cannot read that the staging is published.
				expect: []lakefstest.Expectation{lakefstest.Allow(lakefstest.RuleBranches)},
			})
			f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
			tasks := step("prepare", "data/", "${workflow.input.workspace}", nil)
			hold := simple("e2e_hold", "hold", nil)
			id := f.start(f.register("limit", append([]map[string]any{tasks[0], tasks[1], hold}, tasks[2:]...)...), map[string]any{"workspace": f.workspace(f.first)})
			for range txn.HistoryLimit + over {
				f.confirm(id)
			}
			head := f.head()
			f.user("e2e_hold", func(txn.Task) map[string]string { return nil })
			workflow := f.end(id)
			publish := last(t, workflow, "prepare_publish")
			o := outputOf(t, publish)
			switch {
			case over == 0 && (workflow.Status != txn.WorkflowCompleted || o.Publication.Supersedes != head):
				t.Errorf("%s\nput out %+v; want it to supersede %s", describe(workflow), o.Publication, head)
			case over > 0 && (publish.Status != txn.TaskFailed || !strings.Contains(publish.Reason, "is not among its last 1024 first-parent commits") || f.head() != head):
				t.Errorf("publish is %s: %s", publish.Status, publish.Reason)
			}
		})
	}
}

// confirm lands an empty confirm commit of the step prepare of a workflow, of a
// staging of its own.
func (f *fleet) confirm(id txn.WorkflowID) {
	f.t.Helper()
	execution, err := uuid.NewV7()
	if err != nil {
		f.t.Fatal(err)
	}
	head := f.head()
	staged := txn.Staged{
		Repository: f.repo, Branch: lakefstest.DefaultBranch, Commit: f.first, InputRef: f.first, Prefix: "data/",
		Execution: txn.ExecutionID(execution.String()), NoOp: true,
	}
	decision := txn.PublishDecision{ExpectedHead: head}
	if head != f.first {
		decision.Supersedes = head
	}
	step := txn.StepOf(staged, id, txn.NewLogicalTaskKey(id, "prepare_stage", 0))
	record := txn.ConfirmRecord(step, staged, decision, head, txn.Attempt{Task: "an earlier try"}, staged.Execution)
	if _, err := f.lake.Merge(f.t.Context(), txn.Merge{
		Repository: f.repo, Source: head, Destination: lakefstest.DefaultBranch, Message: "confirm", Metadata: record.Metadata(""),
	}); err != nil {
		f.t.Fatal(err)
	}
}
