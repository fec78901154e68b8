package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/fault"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// The sweeps of these tests: an age that is over soon, and rounds that come soon.
const (
	briefTTL   = "PERAGO_SWEEP_TTL=3s"
	briefSweep = "PERAGO_SWEEP_INTERVAL=500ms"
)

// ending is one workflow that ends in its own way, in a repository of its own.
type ending struct {
	*fleet
	stage, publish, cleanup *fronted
}

// For each way in which a workflow can end after a stage or a publish has begun,
// cleanup and at most one sweep after the TTL leave no staging branch and no
// directory, and the target is as the protocol says.
func TestNothingIsLeftHoweverAWorkflowEnds(t *testing.T) {
	t.Parallel()
	before := map[string]string{"data/a": "0", "other": "0"}
	published := func(content string) map[string]string {
		return map[string]string{"data/a": content, "other": "0"}
	}
	all := []struct {
		name string
		// run runs the workflow to its end.
		run func(e *ending)
		// want is the target's tree in the end, commits how many the target got.
		want    map[string]string
		commits int
	}{
		{"completed", func(e *ending) {
			e.completed(e.chain("completed"), e.input())
		}, published("1"), 1},
		{"step failed and retried", func(e *ending) {
			upload := e.stage.lake.Hold(e.upload())
			id := e.start(e.chain("retried"), e.input())
			upload.Wait(e.t, waitTime)
			upload.Answer(http.StatusForbidden, `{"message": "not now"}`)
			e.must(e.end(id), txn.WorkflowCompleted)
		}, published("1"), 1},
		{"retries exhausted", func(e *ending) {
			upload := e.stage.lake.Hold(e.upload())
			id := e.start(e.register("exhausted", stagedBy("perago_stage_once", e.step())...), e.input())
			upload.Wait(e.t, waitTime)
			upload.Answer(http.StatusForbidden, `{"message": "not now"}`)
			e.must(e.end(id), txn.WorkflowFailed)
		}, before, 0},
		{"terminal failure", func(e *ending) {
			id := e.start(e.held("terminal"), e.input())
			e.hold(id, "hold", txn.TaskFailedWithTerminalError)
			e.must(e.end(id), txn.WorkflowFailed)
		}, before, 0},
		{"timed out", func(e *ending) {
			// Long enough for a busy machine to come to the hold before.
			name := e.registerWith("timed_out", map[string]any{"timeoutSeconds": 20, "timeoutPolicy": "TIME_OUT_WF"}, e.holding()...)
			id := e.start(name, e.input())
			e.scheduled(id, "hold")
			e.must(e.end(id), txn.WorkflowTimedOut)
		}, before, 0},
		{"terminated", func(e *ending) {
			id := e.start(e.held("terminated"), e.input())
			e.scheduled(id, "hold")
			e.do(e.operator.Terminate(e.t.Context(), id, "an operator ends it"))
			e.must(e.end(id), txn.WorkflowTerminated)
		}, before, 0},
		{"terminated during the merge", func(e *ending) {
			merge := e.publish.lake.HoldAnswer(e.merge())
			id := e.start(e.chain("terminated_late"), e.input())
			merge.Wait(e.t, waitTime)
			e.do(e.operator.Terminate(e.t.Context(), id, "an operator ends it"))
			merge.Pass()
			e.must(e.end(id), txn.WorkflowTerminated)
		}, published("1"), 1},
		{"paused and resumed", func(e *ending) {
			id := e.start(e.held("paused"), e.input())
			e.scheduled(id, "hold")
			e.do(e.operator.Pause(e.t.Context(), id))
			e.do(e.operator.Resume(e.t.Context(), id))
			e.hold(id, "hold", txn.TaskCompleted)
			e.must(e.end(id), txn.WorkflowCompleted)
		}, published("1"), 1},
		{"retry", func(e *ending) {
			merge := e.publish.lake.Hold(e.merge())
			id := e.start(e.chain("retry"), e.input())
			merge.Wait(e.t, waitTime)
			merge.Answer(http.StatusForbidden, `{"message": "not now"}`)
			e.must(e.end(id), txn.WorkflowFailed)
			e.do(e.operator.RetryTaken(e.t.Context(), id))
			e.must(e.end(id), txn.WorkflowCompleted)
		}, published("1"), 1},
		{"rerun", func(e *ending) {
			id := e.start(e.held("rerun"), e.input())
			e.scheduled(id, "hold")
			e.rerunFrom(id, "prepare")
			e.hold(id, "hold", txn.TaskCompleted)
			e.must(e.end(id), txn.WorkflowCompleted)
		}, published("2"), 1},
		{"restart", func(e *ending) {
			id := e.completed(e.chain("restart"), e.input()).ID
			first := e.head()
			e.do(e.operator.Restart(e.t.Context(), id))
			eventually(e.t, waitTime, "the restarted workflow has published", func() (bool, string) { return e.head() != first, "" })
			e.must(e.end(id), txn.WorkflowCompleted)
		}, published("2"), 2},
		{"sub-workflow failed", func(e *ending) {
			inner := e.held("inner")
			outer := e.register("outer", map[string]any{
				"name": "inner", "taskReferenceName": "inner", "type": "SUB_WORKFLOW",
				"subWorkflowParam": map[string]any{"name": inner, "version": 1},
				"inputParameters":  map[string]any{"workspace": "${workflow.input.workspace}"},
			})
			id := e.start(outer, e.input())
			var sub txn.WorkflowID
			eventually(e.t, waitTime, "the sub-workflow runs", func() (bool, string) {
				workflow, err := e.conductor.Workflow(e.t.Context(), id)
				if err != nil {
					e.t.Fatal(err)
				}
				var output struct {
					Sub txn.WorkflowID `json:"subWorkflowId"`
				}
				if len(workflow.Tasks) == 1 && len(workflow.Tasks[0].Output) > 0 {
					decode(e.t, workflow.Tasks[0].Output, &output)
				}
				sub = output.Sub
				return sub != "", describe(workflow)
			})
			e.hold(sub, "hold", txn.TaskFailedWithTerminalError)
			e.must(e.end(sub), txn.WorkflowFailed)
			e.must(e.end(id), txn.WorkflowFailed)
		}, before, 0},
		{"failing iteration of a loop", func(e *ending) {
			begin := map[string]any{
				"name": "begin", "taskReferenceName": "begin", "type": "SET_VARIABLE",
				"inputParameters": map[string]any{"workspace": "${workflow.input.workspace}"},
			}
			remember := map[string]any{
				"name": "remember", "taskReferenceName": "remember", "type": "SET_VARIABLE",
				"inputParameters": map[string]any{"workspace": "${prepare_publish.output.workspace}"},
			}
			tasks := step("prepare", "data/", "${workflow.variables.workspace}", nil)
			body := append([]map[string]any{}, tasks[:2]...)
			body = append(body, simple("e2e_hold", "hold", nil), tasks[2], remember)
			loop := map[string]any{
				"name": "loop", "taskReferenceName": "loop", "type": "DO_WHILE",
				"loopCondition": "if ($.loop['iteration'] < 2) { true; } else { false; }", "loopOver": body,
			}
			id := e.start(e.register("loop", begin, loop), e.input())
			e.hold(id, "hold__1", txn.TaskCompleted)
			e.hold(id, "hold__2", txn.TaskFailedWithTerminalError)
			e.must(e.end(id), txn.WorkflowFailed)
		}, published("1"), 1},
		{"failing branch of a fork", func(e *ending) {
			tasks := fork(e.holding(), []map[string]any{simple("e2e_hold", "beside", nil)})
			id := e.start(e.register("fork", tasks...), e.input())
			e.scheduled(id, "hold")
			e.hold(id, "beside", txn.TaskFailedWithTerminalError)
			e.must(e.end(id), txn.WorkflowFailed)
		}, before, 0},
	}

	f := newFleetOf(t, setup{files: before, without: "stage-worker publish-worker cleanup-worker"})
	repositories := map[string]txn.Repository{}
	firsts := map[string]txn.CommitID{}
	allowed := []string{string(f.repo)}
	for _, c := range all {
		repositories[c.name], firsts[c.name] = lakefstest.NewRepository(t, f.lake, before)
		allowed = append(allowed, string(repositories[c.name]))
	}
	f.allowed = strings.Join(allowed, ",")
	f.counted("prepare")
	workers := ending{
		stage:   f.behind("stage-worker", append(f.stageEnv(), briefTTL, briefSweep, "PERAGO_CONCURRENCY=16")...),
		publish: f.behind("publish-worker", publishEnv, "PERAGO_CONCURRENCY=16"),
		cleanup: f.behind("cleanup-worker", briefTTL, briefSweep, "PERAGO_CONCURRENCY=16"),
	}
	t.Run("endings", func(t *testing.T) {
		for _, c := range all {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				own := *f
				own.t, own.repo, own.first = t, repositories[c.name], firsts[c.name]
				e := workers
				e.fleet = &own
				c.run(&e)
				e.nothingIsLeft()
				if diff := cmp.Diff(c.want, lakefstest.Tree(t, e.lake, e.repo, e.head())); diff != "" {
					t.Errorf("the target (-want +got):\n%s", diff)
				}
				if n := e.history(); n != c.commits {
					t.Errorf("%d commits on the target, want %d", n, c.commits)
				}
			})
		}
	})
	f.rootIsEmpty()
	for _, p := range []*fronted{workers.stage, workers.publish, workers.cleanup} {
		f.stop(p.process)
	}
}

// A worker that is killed at its step leaves nothing either, once the next
// attempt and the sweep have been.
func TestNothingIsLeftOfAKilledWorker(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		worker string
		// at is where it is killed, and what task is at work then.
		at        func(p *fronted) *fault.Hold
		reference txn.ReferenceName
	}{
		{"stage-worker", func(p *fronted) *fault.Hold {
			return p.lake.Hold(fault.Match{Method: http.MethodPost, Path: "/objects"})
		}, "prepare_stage"},
		{"publish-worker", func(p *fronted) *fault.Hold { return p.lake.HoldAnswer(merge) }, "prepare_publish"},
		{"cleanup-worker", func(p *fronted) *fault.Hold {
			return p.lake.Hold(fault.Match{Method: http.MethodDelete, Path: "/branches/perago-staging-"})
		}, "prepare_cleanup"},
	} {
		t.Run(c.worker, func(t *testing.T) {
			t.Parallel()
			f := newFleetOf(t, setup{files: map[string]string{"data/a": "0"}, without: "stage-worker publish-worker cleanup-worker"})
			f.counted("prepare")
			env := map[string][]string{
				"stage-worker":   append(f.stageEnv(), briefTTL, briefSweep),
				"publish-worker": {publishEnv},
				"cleanup-worker": {"PERAGO_TASK_TYPES=perago_cleanup,perago_cleanup_brief", briefTTL, briefSweep},
			}
			var victim *fronted
			for name, variables := range env {
				if name == c.worker {
					// It must not be the sweep that is stopped.
					victim = f.behind(name, append(variables, "PERAGO_SWEEP_INTERVAL=0s")...)
					continue
				}
				p := start(t, name, f.env(variables...)...)
				t.Cleanup(func() { f.stop(p) })
				p.ready()
			}
			tasks := step("prepare", "data/", "${workflow.input.workspace}", nil)
			for task, brief := range map[int]string{1: "perago_stage_brief", 2: "perago_publish_brief", 3: "perago_cleanup_brief"} {
				tasks[task]["name"] = brief
			}
			held := c.at(victim)
			id := f.start(f.register("killed", tasks...), map[string]any{"workspace": f.workspace(f.first)})
			held.Wait(t, waitTime)
			task := f.inProgress(id, c.reference)
			victim.kill()
			held.Drop()
			successor := start(t, c.worker, f.env(env[c.worker]...)...)
			t.Cleanup(func() { f.stop(successor) })
			successor.ready()
			f.timeOut(id, task.ID)
			e := &ending{fleet: f}
			e.must(f.end(id), txn.WorkflowCompleted)
			e.nothingIsLeft()
			f.rootIsEmpty()
			if n := f.history(); n != 1 {
				t.Errorf("%d commits on the target, want 1", n)
			}
		})
	}
}

// A stage that is marked optional and fails lets the workflow go on with nulls.
// The publish refuses them with the field named and asks lakeFS for nothing; the
// cleanup has nothing to do.
func TestOptionalStageThatFails(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{files: map[string]string{"data/a": "0"}, without: "publish-worker"})
	f.counted("prepare")
	publish := f.behind("publish-worker", publishEnv)
	before := len(publish.lake.Log())
	tasks := step("prepare", "data/", "${workflow.input.workspace}", func(stage map[string]any) { stage["no_such"] = true })
	tasks[1]["optional"] = true
	tasks[2]["optional"] = true
	workflow := f.completed(f.register("optional", tasks...), map[string]any{"workspace": f.workspace(f.first)})
	failed := last(t, workflow, "prepare_publish")
	if !strings.Contains(failed.Reason, "is missing or null; the workflow was started without it, or its expression names a task or an output that is not there") {
		t.Errorf("%s", describe(workflow))
	}
	if o := outputOf(t, last(t, workflow, "prepare_cleanup")); len(o.Deleted)+len(o.Kept)+len(o.Errors) != 0 {
		t.Errorf("cleanup put out %+v", o)
	}
	for _, request := range publish.lake.Log()[before:] {
		if !strings.HasSuffix(request.Path, "/user") { // the readiness check
			t.Errorf("the publish worker sent %s", request)
		}
	}
	f.stop(publish.process)
}

func (e *ending) input() map[string]any { return map[string]any{"workspace": e.workspace(e.first)} }

func (e *ending) step() []map[string]any {
	return step("prepare", "data/", "${workflow.input.workspace}", nil)
}

// chain is a workflow of one step.
func (e *ending) chain(name string) string { return e.register(name, e.step()...) }

// holding is a step that waits between its stage and its publish.
func (e *ending) holding() []map[string]any {
	tasks := e.step()
	return append(append([]map[string]any{}, tasks[:2]...), simple("e2e_hold", "hold", nil), tasks[2], tasks[3])
}

// held is a workflow of one such step.
func (e *ending) held(name string) string { return e.register(name, e.holding()...) }

func (e *ending) do(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *ending) must(workflow txn.Workflow, status txn.WorkflowStatus) {
	e.t.Helper()
	if workflow.Status != status {
		e.t.Fatalf("want %s: %s", status, describe(workflow))
	}
}

// upload and merge are this repository's alone: the workers serve others, too.
func (e *ending) upload() fault.Match {
	return fault.Match{Method: http.MethodPost, Path: "/repositories/" + string(e.repo) + "/branches/perago-staging-", Query: "path="}
}

func (e *ending) merge() fault.Match {
	return fault.Match{Method: http.MethodPost, Path: "/repositories/" + string(e.repo) + "/refs/"}
}

// scheduled waits for a task that nobody polls.
func (e *ending) scheduled(id txn.WorkflowID, reference txn.ReferenceName) txn.Task {
	e.t.Helper()
	return e.taskIs(id, reference, txn.TaskScheduled)
}

// hold ends a task that nobody polls, as its worker would.
func (e *ending) hold(id txn.WorkflowID, reference txn.ReferenceName, status txn.TaskStatus) {
	e.t.Helper()
	task := e.scheduled(id, reference)
	e.do(e.conductor.Update(e.t.Context(), txn.TaskResult{Task: task.ID, Workflow: id, Worker: "hold", Status: status, Reason: "by the test"}))
}

// nothingIsLeft waits until the repository holds no branch of ours.
func (e *ending) nothingIsLeft() {
	e.t.Helper()
	eventually(e.t, waitTime, "no staging branch is left", func() (bool, string) {
		branches, err := e.lake.Branches(e.t.Context(), e.repo, txn.BranchNamespace)
		if err != nil {
			e.t.Fatal(err)
		}
		return len(branches) == 0, fmt.Sprint(branches)
	})
}

// rootIsEmpty waits until no workflow's directory is left on the host.
func (f *fleet) rootIsEmpty() {
	f.t.Helper()
	eventually(f.t, waitTime, "no directory is left", func() (bool, string) {
		entries, err := os.ReadDir(f.root)
		if err != nil {
			f.t.Fatal(err)
		}
		return len(entries) == 0, fmt.Sprint(entries)
	})
}

// counted serves a user's task type whose content is how often the workflow has
// run it: 1, then 2.
func (f *fleet) counted(taskType txn.TaskType) {
	f.t.Helper()
	var mu sync.Mutex
	runs := map[txn.WorkflowID]int{}
	f.user(taskType, func(task txn.Task) map[string]string {
		mu.Lock()
		defer mu.Unlock()
		runs[task.Workflow]++
		return map[string]string{"a": fmt.Sprint(runs[task.Workflow])}
	})
}

// stagedBy is step's tasks with another stage TaskDef.
func stagedBy(taskType string, tasks []map[string]any) []map[string]any {
	for _, task := range tasks {
		if task["name"] == "perago_stage" {
			task["name"] = taskType
		}
	}
	return tasks
}
