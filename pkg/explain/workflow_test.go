package explain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/txn"
)

const workflowID txn.WorkflowID = "0c1b3c6e-7f1e-4d0e-9a53-2f5d8f0a8c11"

var key = txn.NewLogicalTaskKey(workflowID, "train_stage", 0)

// scene is one workflow with one step, and the branch it publishes to.
type scene struct {
	tasks []txn.Task
	// above are the commits above the input ref a, newest first; nil is a branch
	// that could not be read.
	above     []txn.Commit
	elsewhere bool
	status    txn.WorkflowStatus
	gone      bool
	branches  []Branch
	// held says what the head holds of b: "held", "restored" or "changed"; empty is
	// not read.
	held string
}

func object(value any) json.RawMessage {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return raw
}

func workspace() txn.Workspace {
	return txn.Workspace{Repository: "lake", Branch: "main"}.At(id("a"))
}

func stagedOf(retry int) txn.Staged {
	branch := txn.NewStagingName("c", workflowID, key, retry, firstExecution).Branch()
	return txn.Staged{
		Repository: "lake", Branch: "main", StagingBranch: branch, Commit: id("5"), Key: key, InputRef: id("a"), Prefix: "models/",
		Task: "s", RetryCount: retry, PollCount: 1, StartTime: 1, Execution: firstExecution, Added: 3, Unchanged: 2,
	}
}

func stage(status txn.TaskStatus) txn.Task {
	task := txn.Task{ID: "s", Workflow: workflowID, Type: txn.TypeStage, ReferenceName: "train_stage", Status: status, StartTime: 1793000000000,
		Input: object(map[string]any{"workspace": workspace(), "prefix": "models/"})}
	switch status {
	case txn.TaskCompleted:
		task.Output = object(map[string]any{"staged": stagedOf(0)})
	case txn.TaskFailed:
		task.Reason = "the disk is gone"
	}
	return task
}

func publish(status txn.TaskStatus, p txn.Publication, reason string) txn.Task {
	task := txn.Task{ID: "p", Workflow: workflowID, Type: txn.TypePublish, ReferenceName: "train_publish", Status: status, Reason: reason,
		Input: object(map[string]any{"workspace": workspace(), "staged": stagedOf(0)})}
	if p.Outcome != "" {
		task.Output = object(map[string]any{"publication": p})
	}
	return task
}

// ours is a publication of the step; byHand somebody's commit.
func ours(commit, on string) txn.Commit {
	c := confirm(commit, on, "", 0)
	c.MetaRange = "tree of 5"
	c.Metadata["perago.workflow_id"], c.Metadata["perago.logical_task_key"] = string(workflowID), string(key)
	return c
}

func byHand(commit, on string) txn.Commit {
	return txn.Commit{ID: id(commit), Parents: []txn.CommitID{id(on)}, MetaRange: "other", Message: "by hand"}
}

func (c scene) facts() Facts {
	f := Facts{
		Workflow: txn.Workflow{ID: workflowID, Name: "mine", Status: c.status, Tasks: c.tasks}, Identity: "c", Branches: c.branches,
		Staged: []txn.Commit{{ID: id("5"), MetaRange: "tree of 5"}},
	}
	if c.status == "" {
		f.Workflow.Status = txn.WorkflowFailed
	}
	if f.Workflow.Status == txn.WorkflowRunning {
		// What Conductor has scheduled next.
		f.Workflow.Tasks = append(slices.Clone(c.tasks), txn.Task{ID: "next", Type: "users", Status: txn.TaskScheduled})
	}
	if c.gone {
		f.Staged, f.Gone = nil, []txn.CommitID{id("5")}
	}
	if c.above != nil {
		target := Target{Repository: "lake", Branch: "main", Head: id("a"), Ranges: map[txn.CommitID]Range{id("a"): {Commits: c.above, Reached: !c.elsewhere}}}
		if len(c.above) > 0 {
			target.Head = c.above[0].ID
		}
		f.Targets = append(f.Targets, target)
	}
	for _, landed := range Publications(f) {
		if commit := landed.Down[len(landed.Down)-1]; c.held != "" {
			f.Adoptions = append(f.Adoptions, txn.AdoptionFacts{
				Step: landed.Step, Published: commit, Head: landed.Down[0].ID, Held: c.held == "held", Restored: c.held == "restored", Changes: landed.Down[:1],
			})
		}
	}
	return f
}

func TestStates(t *testing.T) {
	t.Parallel()
	published := txn.Publication{Commit: id("b"), ExpectedHead: id("a"), Outcome: txn.OutcomePublished, Fence: txn.FenceHard}
	inDoubt := txn.Publication{ExpectedHead: id("a"), Outcome: txn.OutcomeInDoubt, Fence: txn.FenceSoft}
	refused := txn.Publication{Outcome: txn.OutcomeRefused, Fence: txn.FenceSoft}
	takenBack := txn.Publication{Commit: id("b"), Outcome: txn.OutcomeTakenBack, Fence: txn.FenceSoft}
	back := "revert " + id("c").Short() + " and retry to have it back, or start a new workflow with ref=C"
	none := []txn.Commit{}
	seen := map[State]bool{}
	const accept = "; or accept it as it is, and start the next workflow from the head"
	for _, c := range []struct {
		name    string
		scene   scene
		state   State
		summary string
		next    string
	}{
		{"published", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskCompleted, published, "")}, above: []txn.Commit{ours("b", "a")}, status: txn.WorkflowCompleted},
			StatePublished, "it is published: lakefs://lake/main holds it as B, on the hard fence", ""},
		{"published, and others on top", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskCompleted, published, "")}, above: []txn.Commit{byHand("c", "b"), ours("b", "a")}, status: txn.WorkflowCompleted},
			StatePublished, "it is published: lakefs://lake/main holds it as B, on the hard fence; the newest of 1 above it is C", ""},
		{"a late landing", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskCompleted, published, "")}, above: []txn.Commit{ours("c", "b"), ours("b", "a")}, status: txn.WorkflowCompleted},
			StatePublished, "it is published: lakefs://lake/main holds it as B, on the hard fence", "C of an older attempt landed late above it; inspect it, and revert it if it is not wanted"},
		{"reset away", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskCompleted, published, "")}, above: none, status: txn.WorkflowCompleted},
			StateMissing, "it was published as B, which is not in the history of lakefs://lake/main any more: the branch was reset", "find out who reset lakefs://lake/main; start a new workflow from the head"},
		{"published, branch not read", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskCompleted, published, "")}, status: txn.WorkflowCompleted},
			StatePublished, "it was published to lakefs://lake/main as B; the branch could not be read", ""},
		{"published, input ref far down", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskCompleted, published, "")}, above: []txn.Commit{byHand("c", "d")}, elsewhere: true, status: txn.WorkflowCompleted},
			StatePublished, "it was published to lakefs://lake/main as B; the input ref is not in the branch's history, or more than 1024 commits down", ""},
		{"nothing to publish", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskCompleted, txn.Publication{Commit: id("a"), Outcome: txn.OutcomeNoOp}, "")}, above: none, status: txn.WorkflowCompleted},
			StateUnchanged, "there was nothing to publish: its files are those of the input ref", ""},
		{"read-only", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskCompleted, txn.Publication{Commit: id("a"), Outcome: txn.OutcomeReadOnly}, "")}, above: none, status: txn.WorkflowCompleted},
			StateUnchanged, "it is read-only and publishes nothing", ""},
		{"landed, and its answer lost", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskFailed, inDoubt, "in doubt")}, above: []txn.Commit{ours("b", "a")}},
			StateUnreported, "lakefs://lake/main holds B of this step, and no publish task in Conductor's record reports it: the answer or the completion was lost", "retry the workflow in Conductor: its publish adopts B" + accept},
		{"landed, and the workflow runs", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskFailed, inDoubt, "in doubt")}, above: []txn.Commit{ours("b", "a")}, status: txn.WorkflowRunning},
			StateUnreported, "lakefs://lake/main holds B of this step, and no publish task in Conductor's record reports it: the answer or the completion was lost", ""},
		{"another staging landed", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskFailed, refused, "?")}, above: []txn.Commit{func() txn.Commit {
			c := ours("b", "a")
			c.Metadata["perago.staging_execution_id"] = string(secondExecution)
			return c
		}()}},
			StateUnreported, "lakefs://lake/main holds B of this step, and no publish task in Conductor's record reports it: an earlier run of the step published it, and was replaced by a retry, rerun or restart", "retry the workflow in Conductor: its publish supersedes B; or accept that one, and start the next workflow from the head"},
		{"in doubt", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskFailed, inDoubt, "in doubt")}, above: none},
			StateInDoubt, "a merge was sent, and the branch does not hold it: it may still land", "retry the workflow in Conductor: its publish may land; or start a new one from the head; where nobody retries, perago settle lakefs://lake/main rules it out"},
		{"in doubt, retried by Conductor", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskFailed, inDoubt, "in doubt")}, above: none, status: txn.WorkflowRunning},
			StateInDoubt, "a merge was sent, and the branch does not hold it: it may still land", ""},
		{"refused", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskFailed, refused, "main advanced")}, above: []txn.Commit{byHand("c", "a")}},
			StateRefused, "it is not published: main advanced", "start a new workflow with ref=C"},
		{"published, others on top, and still there", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskCompleted, published, "")}, above: []txn.Commit{byHand("c", "b"), ours("b", "a")}, status: txn.WorkflowCompleted, held: "held"},
			StatePublished, "it is published: lakefs://lake/main holds it as B, on the hard fence; the newest of 1 above it is C", ""},
		{"published, and taken back", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskCompleted, published, "")}, above: []txn.Commit{byHand("c", "b"), ours("b", "a")}, status: txn.WorkflowCompleted, held: "restored"},
			StateTakenBack, "models/ of main was published as B and taken back by C", back},
		{"published, and changed since", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskCompleted, published, "")}, above: []txn.Commit{byHand("c", "b"), ours("b", "a")}, status: txn.WorkflowCompleted, held: "changed"},
			StateTakenBack, "models/ of main was published as B, and " + id("c").Short() + " changed it since", back},
		{"landed, its answer lost, and taken back", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskFailed, inDoubt, "in doubt")}, above: []txn.Commit{byHand("c", "b"), ours("b", "a")}, held: "restored"},
			StateTakenBack, "models/ of main was published as B and taken back by C", back},
		{"a retry found it taken back", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskFailedWithTerminalError, takenBack, "it was taken back")}, above: []txn.Commit{byHand("c", "b"), ours("b", "a")}, held: "restored"},
			StateTakenBack, "models/ of main was published as B and taken back by C", back},
		{"a retry found it taken back, and it is there again", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskFailedWithTerminalError, takenBack, "it was taken back")}, above: []txn.Commit{byHand("c", "b"), ours("b", "a")}, held: "held"},
			StateTakenBack, "it was taken back", "the branch holds B again: retry the workflow in Conductor, and its publish adopts it"},
		{"a retry found it taken back, and nothing can be read", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskFailedWithTerminalError, takenBack, "it was taken back")}},
			StateTakenBack, "it was taken back", "start a new workflow from the head"},
		{"raced", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskFailed, txn.Publication{Commit: id("b"), Outcome: txn.OutcomeRaced}, "main was raced")}, above: []txn.Commit{ours("b", "c"), byHand("c", "a")}},
			StateRaced, "its publication landed on lakefs://lake/main where it should not have: main was raced", "look at lakefs://lake/main (perago log lakefs://lake/main), and revert what is not wanted; then start a new workflow from the head"},
		{"raced, and the answer lost", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskTimedOut, txn.Publication{}, "")}, above: []txn.Commit{ours("b", "c"), byHand("c", "a")}},
			StateUnreported, "lakefs://lake/main holds B of this step, and no publish task in Conductor's record reports it: the answer or the completion was lost",
			(&txn.PublishRacedError{Branch: "main", Published: id("b"), Foreign: id("c"), Head: id("b")}).Error()},
		{"failed", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskFailed, txn.Publication{}, "lakeFS is down")}, above: none},
			StateFailed, "it is not published: the publish is FAILED: lakeFS is down", "retry the workflow in Conductor: its publish may land; or start a new one from the head"},
		{"failed, staged commit gone", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskFailed, txn.Publication{}, "lakeFS is down")}, above: none, gone: true},
			StateFailed, "it is not published: the publish is FAILED: lakeFS is down", "the staged commit 5 is gone: rerun from train_stage, or start a new workflow from the head"},
		{"failed, branch not read", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskFailed, txn.Publication{}, "lakeFS is down")}},
			StateFailed, "it is not published: the publish is FAILED: lakeFS is down", "retry the workflow in Conductor, or start a new one from the head"},
		{"publishing", scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskInProgress, txn.Publication{}, "")}, above: none, status: txn.WorkflowRunning},
			StateRunning, "it is under way: nothing of it is published", ""},
		{"staging", scene{tasks: []txn.Task{stage(txn.TaskScheduled)}, above: none, status: txn.WorkflowRunning},
			StateRunning, "it is under way: nothing of it is published", ""},
		{"staged", scene{tasks: []txn.Task{stage(txn.TaskCompleted)}, above: none, status: txn.WorkflowRunning},
			StateStaged, "it is staged and not published yet", ""},
		{"staged, and terminated", scene{tasks: []txn.Task{stage(txn.TaskCompleted)}, above: none, status: txn.WorkflowTerminated},
			StateStaged, "it is staged and was never published", "retry the workflow in Conductor: its publish may land; or start a new one from the head"},
		{"stage failed", scene{tasks: []txn.Task{stage(txn.TaskFailed)}, above: none},
			StateNotStaged, "nothing is staged: the stage is FAILED: the disk is gone", "mend the cause at train_stage and retry the workflow in Conductor, or start a new one from the head"},
		{"stage failed, to be retried", scene{tasks: []txn.Task{stage(txn.TaskFailed)}, above: none, status: txn.WorkflowRunning},
			StateNotStaged, "nothing is staged: the stage is FAILED: the disk is gone", ""},
	} {
		seen[c.state] = true
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := Workflow(c.scene.facts())
			if len(e.Steps) != 1 {
				t.Fatalf("%d steps", len(e.Steps))
			}
			s := e.Steps[0]
			// Ids are one letter, for the eye.
			short := strings.NewReplacer(string(id("a")), "A", string(id("b")), "B", string(id("c")), "C", string(id("5")), "5")
			if s.State != c.state || short.Replace(s.Summary) != c.summary || (short.Replace(s.Next) != c.next && s.Next != c.next) {
				t.Errorf("got  %s: %s\n     %s\nwant %s: %s\n     %s", s.State, short.Replace(s.Summary), short.Replace(s.Next), c.state, c.summary, c.next)
			}
			if (len(e.Next) > 0) != (s.Next != "") {
				t.Errorf("the step says %q, the workflow %q", s.Next, e.Next)
			}
			if s.Step != "train_stage" || s.Repository != "lake" || s.Branch != "main" || s.InputRef != id("a") || s.Prefix != "models/" {
				t.Errorf("got %+v", s)
			}
			var text strings.Builder
			if err := e.Text(&text); err != nil || !strings.Contains(text.String(), s.Summary) || strings.Contains(text.String(), "%!") {
				t.Errorf("%v: %s", err, &text)
			}
		})
	}
	for _, state := range States() {
		if !seen[state] {
			t.Errorf("no case is %s", state)
		}
	}
}

// A retry is two attempts of one step; what is of no step stands by itself.
func TestAttempts(t *testing.T) {
	t.Parallel()
	first := publish(txn.TaskFailed, txn.Publication{ExpectedHead: id("a"), Outcome: txn.OutcomeInDoubt, Fence: txn.FenceSoft}, "its answer was lost")
	again := publish(txn.TaskCompleted, txn.Publication{Commit: id("b"), Outcome: txn.OutcomeAlreadyPublished, Fence: txn.FenceHard}, "")
	again.ID, again.RetryCount = "p2", 1
	lost := publish(txn.TaskTimedOut, txn.Publication{}, "responseTimeout")
	lost.ID = "p0"
	cleanup := txn.Task{ID: "c", Type: txn.TypeCleanup, ReferenceName: "cleanup", Status: txn.TaskCompleted, Input: object(map[string]any{"workflow_id": workflowID}),
		Output: object(map[string]any{"deleted": []string{"x"}, "kept": []any{map[string]any{"branch": "y", "reason": "it may land"}}, "errors": []string{"z could not be read"}})}
	checkout := txn.Task{ID: "o", Type: txn.TypeCheckout, ReferenceName: "get", Status: txn.TaskCompleted, Input: object(map[string]any{"workspace": workspace()}),
		Output: object(map[string]any{"checkout": map[string]any{"directory": "/d", "objects": 7}})}
	user := txn.Task{ID: "u", Type: "train", ReferenceName: "train", Status: txn.TaskCompleted}
	name, err := txn.ParseStagingName(stagedOf(0).StagingBranch)
	if err != nil {
		t.Fatal(err)
	}
	try := txn.Record{Phase: txn.PhaseTry, Key: key, Workflow: workflowID, Task: "s", Execution: firstExecution, InputRef: id("a"), TargetBranch: "main", Prefix: "models/", StagingBranch: name.Branch()}
	source := name
	source.Execution, source.Source = secondExecution, txn.SourceFirst
	stray := txn.NewStagingName("c", workflowID, "another", 0, firstExecution)
	e := Workflow(scene{
		tasks: []txn.Task{checkout, user, stage(txn.TaskCompleted), lost, first, again, cleanup}, above: []txn.Commit{ours("b", "a")}, status: txn.WorkflowCompleted,
		branches: []Branch{
			{"lake", name.Branch(), txn.Commit{ID: id("5"), Metadata: try.Metadata("")}},
			{"lake", source.Branch(), txn.Commit{ID: id("a")}},
			{"lake", stray.Branch(), txn.Commit{ID: id("a")}},
			{"lake", "perago-staging-mine", txn.Commit{ID: id("a")}},
		},
	}.facts())
	var got []string
	for _, a := range append(e.Steps[0].Attempts, e.Others...) {
		got = append(got, fmt.Sprintf("%s %d %s %s: %s", a.Name, a.Retry, a.Status, a.Outcome, a.Result))
	}
	for _, open := range e.Steps[0].Open {
		got = append(got, open.Why)
	}
	if diff := cmp.Diff([]string{
		"train_stage 0 COMPLETED : staged " + string(id("5")) + " on " + string(name.Branch()) + ": 3 added, 0 changed, 0 removed, 2 unchanged",
		"train_publish 0 TIMED_OUT : responseTimeout; what its worker still does is refused by the attempt fence",
		"train_publish 0 FAILED in_doubt: in doubt, expecting the head " + string(id("a")) + "; its answer was lost",
		"train_publish 1 COMPLETED already_published: adopted " + string(id("b")) + ", which an earlier attempt had published, on the hard fence",
		"get 0 COMPLETED : 7 files of " + string(id("a")) + " in /d",
		"cleanup 0 COMPLETED : branches deleted: 1, kept: 1; kept y: it may land; z could not be read",
		"it is published as " + string(id("b")) + "; cleanup or a sweep takes it",
		"nothing was committed on it; cleanup or a sweep takes it",
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Conductor can miss the end of a workflow's last task, and does not notice.
func TestAWorkflowWhoseEndConductorMissed(t *testing.T) {
	t.Parallel()
	done, open := txn.Task{ID: "a", Status: txn.TaskCompleted}, txn.Task{ID: "b", Status: txn.TaskScheduled}
	for name, c := range map[string]struct {
		status txn.WorkflowStatus
		tasks  []txn.Task
		want   bool
	}{
		"all have ended":             {txn.WorkflowRunning, []txn.Task{done, done}, true},
		"one is open":                {txn.WorkflowRunning, []txn.Task{done, open}, false},
		"none was scheduled":         {txn.WorkflowRunning, nil, false},
		"it is paused between tasks": {txn.WorkflowPaused, []txn.Task{done}, false},
		"it has ended":               {txn.WorkflowCompleted, []txn.Task{done}, false},
	} {
		e := Workflow(Facts{Workflow: txn.Workflow{ID: "w", Status: c.status, Tasks: c.tasks}})
		if got := len(e.Next) == 1 && strings.Contains(e.Next[0], "PUT /api/workflow/decide/w"); got != c.want {
			t.Errorf("%s: what to do is %q", name, e.Next)
		}
	}
}

func TestTextOfAWorkflowWithoutSteps(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	e := Workflow(Facts{Workflow: txn.Workflow{ID: "w", Name: "mine", Status: txn.WorkflowRunning, Reason: "a\nb"}, Problems: []string{"lakeFS is down"}})
	if err := e.Text(&text); err != nil {
		t.Fatal(err)
	}
	const want = "workflow w (mine) is RUNNING: \"a\\nb\"\n\nNo step of it has begun: nothing is staged or published.\n\nnot read, so less is known\n  lakeFS is down\n"
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
