package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/explain"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// A workflow of one's own, with a loop, a switch and a fork in it: the steps are
// put in by perago insert, lint finds nothing, Conductor runs it, each step
// publishes on top of the one before, and log and explain say so.
func TestInsertedStepsPublishOneAfterTheOther(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"keep/me": "0"})
	f.user("prepare", func(task txn.Task) map[string]string { return map[string]string{"a": fmt.Sprint(task.Iteration)} })
	f.user("train", func(txn.Task) map[string]string { return map[string]string{"m": "1"} })
	f.user("e2e_hold", func(txn.Task) map[string]string { return map[string]string{"r": "1"} })
	name := "mine_" + strings.ReplaceAll(f.domain, "-", "_")
	text := `{
  "name": "` + name + `", "version": 1, "schemaVersion": 2, "ownerEmail": "owner@example.com", "timeoutPolicy": "ALERT_ONLY", "timeoutSeconds": 0,
  "tasks": [
    {"name": "loop", "taskReferenceName": "loop", "type": "DO_WHILE", "loopCondition": "if ($.loop['iteration'] < 2) { true; } else { false; }", "loopOver": [
      {"name": "prepare", "taskReferenceName": "prepare", "type": "SIMPLE"}
    ]},
    {"name": "choose", "taskReferenceName": "choose", "type": "SWITCH", "evaluatorType": "value-param", "expression": "which", "inputParameters": {"which": "yes"},
     "decisionCases": {"yes": [
      {"name": "train", "taskReferenceName": "train", "type": "SIMPLE"}
    ]}, "defaultCase": []},
    {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": [
      [{"name": "e2e_hold", "taskReferenceName": "report", "type": "SIMPLE"}],
      [{"name": "look", "taskReferenceName": "look", "type": "SET_VARIABLE", "inputParameters": {"looked": true}}]
    ]},
    {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["report", "look"]}
  ]
}
`
	file := filepath.Join(t.TempDir(), "mine.json")
	for _, step := range [][2]string{{"", ""}, {"prepare", "data/"}, {"train", "models/"}, {"report", "reports/"}} {
		if step[0] != "" {
			out, said, code := f.perago("insert", file, "--after", step[0], "--prefix", step[1])
			if code != 0 {
				t.Fatalf("insert after %s: %s", step[0], said)
			}
			text = out
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, said, code := f.perago("lint", file, "--without", "hard-fence"); code != 0 {
		t.Fatalf("lint: %s%s", out, said)
	}
	if _, said, code := f.perago("register", file); code != 0 {
		t.Fatalf("register: %s", said)
	}
	workflow := f.completed(name, map[string]any{"workspace": f.workspace(f.first)})

	want := map[string]string{"keep/me": "0", "data/a": "2", "models/m": "1", "reports/r": "1"}
	if diff := cmp.Diff(want, lakefstest.Tree(t, f.lake, f.repo, f.head())); diff != "" || f.history() != 4 {
		t.Errorf("%d commits, want 4; tree (-want +got):\n%s", f.history(), diff)
	}
	// The join waited for the branch's step.
	if join, cleanup := last(t, workflow, "join"), last(t, workflow, "report_cleanup"); join.Status != txn.TaskCompleted || cleanup.Status != txn.TaskCompleted {
		t.Errorf("the join is %s, the cleanup before it %s", join.Status, cleanup.Status)
	}

	out, said, code := f.perago("explain", string(workflow.ID), "--output", "json")
	var explanation explain.Explanation
	if err := json.Unmarshal([]byte(out), &explanation); err != nil || code != 0 {
		t.Fatalf("explain: exit %d, %v: %s%s", code, err, out, said)
	}
	var states []string
	for _, step := range explanation.Steps {
		states = append(states, fmt.Sprintf("%s %s", step.Step, step.State))
	}
	if diff := cmp.Diff([]string{"prepare_stage__1 published", "prepare_stage__2 published", "train_stage published", "report_stage published"}, states); diff != "" || len(explanation.Next) > 0 {
		t.Errorf("explain says %q to do; states (-want +got):\n%s", explanation.Next, diff)
	}
	out, said, code = f.perago("log", "lakefs://"+string(f.repo)+"/main", "--amount", "4")
	if code != 0 || strings.Count(out, "\tpublication\t"+string(workflow.ID)+"\t") != 4 {
		t.Errorf("log: exit %d: %s%s", code, out, said)
	}
}

// What explain says a retry would do is what the retry does, and afterwards it
// says that there is nothing to do.
func TestExplainSaysWhatARetryDoes(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{files: map[string]string{"data/a": "1"}, without: "publish-worker"})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	id := f.start(f.register("explained", step("prepare", "data/", "${workflow.input.workspace}", nil)...), map[string]any{"workspace": f.workspace(f.first)})
	explained := func() explain.Explanation {
		out, said, code := f.perago("explain", string(id), "--output", "json")
		var e explain.Explanation
		if err := json.Unmarshal([]byte(out), &e); err != nil || code != 0 || len(e.Steps) != 1 {
			t.Fatalf("explain: exit %d, %v: %s%s", code, err, out, said)
		}
		return e
	}
	// Its publish is taken by a worker that merges, and dies before it says so.
	var publish txn.Task
	eventually(t, waitTime, "the publish is handed out", func() (bool, string) {
		tasks, err := f.conductor.Poll(t.Context(), txn.PollRequest{Type: "perago_publish_once", Domain: f.domain, Worker: "zombie", Count: 1})
		if err != nil {
			t.Fatal(err)
		}
		if len(tasks) == 1 {
			publish = tasks[0]
		}
		return len(tasks) == 1, ""
	})
	if e := explained(); e.Steps[0].State != explain.StateRunning || len(e.Steps[0].Open) != 1 || len(e.Next) > 0 {
		t.Errorf("while it runs: %+v", e)
	}
	staged, err := txn.StagedOf(publish)
	if err != nil {
		t.Fatal(err)
	}
	record := txn.ConfirmRecord(txn.StepOf(staged, id, staged.Key), staged, txn.PublishDecision{ExpectedHead: f.first}, staged.Commit, txn.AttemptOf(publish), staged.Execution)
	landed, err := f.lake.Merge(t.Context(), txn.Merge{Repository: f.repo, Source: staged.Commit, Destination: "main", Message: "publish", Metadata: record.Metadata("")})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.operator.Terminate(t.Context(), id, "by the test"); err != nil {
		t.Fatal(err)
	}
	f.end(id)
	e := explained()
	if want := "retry the workflow in Conductor: its publish adopts " + string(landed); e.Steps[0].State != explain.StateUnreported || len(e.Next) != 1 || !strings.HasPrefix(e.Next[0], want) {
		t.Errorf("got %+v\nwant %s", e, want)
	}
	worker := start(t, "publish-worker", f.env(publishEnv)...)
	t.Cleanup(func() { f.stop(worker) })
	worker.ready()
	if err := f.operator.RetryTaken(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if workflow := f.end(id); outputOf(t, last(t, workflow, "prepare_publish")).Publication.Outcome != txn.OutcomeAlreadyPublished || f.head() != landed {
		t.Errorf("the retry did something else: %s", describe(workflow))
	}
	if e := explained(); e.Steps[0].State != explain.StatePublished || e.Steps[0].Commit != landed || len(e.Next) > 0 {
		t.Errorf("after the retry: %+v", e)
	}
}
