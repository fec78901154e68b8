package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"perago/pkg/fault"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

var (
	upload    = fault.Match{Method: http.MethodPost, Path: "/objects", Query: "path="}
	anyUpdate = fault.Match{Method: http.MethodPost, Path: "/api/tasks"}
)

// briefStage is one step whose stage has a short lease and quick retries.
func briefStage(f *fleet) string {
	tasks := step("prepare", "data/", "${workflow.input.workspace}", nil)
	tasks[1]["name"] = "perago_stage_brief"
	return f.register("brief_stage", tasks...)
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %s: %v", p.name, err)
	}
}

// A stage that does not finish within the grace is handed back at once. That spends no
// retry, however often it happens, and the next execution need not wait for the lease
// to run out.
func TestStop_HandsAnInterruptedStageBack(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{
		files: map[string]string{"data/a": "1"}, without: "stage-worker",
		expect: []lakefstest.Expectation{lakefstest.Allow(lakefstest.RuleBranches)},
	})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	id := f.start(briefStage(f), map[string]any{"workspace": f.workspace(f.first)})
	// More often than the stage has retries.
	const stops = 5
	var first txn.Task
	for n := range stops {
		var held *fault.Hold
		stopping := f.behindHeld("stage-worker", func(p *fronted) { held = p.lake.Hold(upload) }, append(f.stageEnv(), "PERAGO_SHUTDOWN_GRACE=1s")...)
		held.Wait(t, waitTime)
		task := f.inProgress(id, "prepare_stage")
		if n == 0 {
			first = task
		}
		stopping.signal(syscall.SIGTERM)
		if code := stopping.exit(waitTime); code != 0 {
			t.Errorf("the interrupted worker ended with %d, want 0", code)
		}
		now, err := f.conductor.Task(t.Context(), first.ID)
		if err != nil {
			t.Fatal(err)
		}
		if now.Status != txn.TaskScheduled || now.RetryCount != 0 || now.Reason != "" {
			t.Fatalf("stop %d: the interrupted stage is %s at retry %d: %s", n+1, now.Status, now.RetryCount, now.Reason)
		}
		held.Drop()
	}
	next := f.behind("stage-worker", f.stageEnv()...)
	workflow := f.end(id)
	if stage := last(t, workflow, "prepare_stage"); workflow.Status != txn.WorkflowCompleted || stage.ID != first.ID || stage.RetryCount != 0 || stage.PollCount != stops+1 {
		t.Errorf("%s\nthe stage was polled %d times", describe(workflow), stage.PollCount)
	}
	f.stop(next.process)
}

// A merge that was sent and its completion finish within the grace, whichever of
// the two the stop comes in.
func TestMergeAndCompletionOutliveAStop(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(*fronted) *fault.Hold{
		"in the merge":                     func(p *fronted) *fault.Hold { return p.lake.Hold(merge) },
		"between merge and its completion": func(p *fronted) *fault.Hold { return p.conductor.Hold(completion) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleetOf(t, setup{files: map[string]string{"data/a": "1"}, without: "publish-worker"})
			f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
			stopping := f.behind("publish-worker", publishEnv)
			held := hold(stopping)
			id := f.start(f.register("stop", step("prepare", "data/", "${workflow.input.workspace}", nil)...), map[string]any{"workspace": f.workspace(f.first)})
			held.Wait(t, waitTime)
			stopping.signal(syscall.SIGTERM)
			eventually(t, waitTime, "the worker says that it stops", func() (bool, string) {
				_, body := stopping.get("/readyz")
				return strings.Contains(body, "the worker is stopping"), body
			})
			held.Pass()
			if code := stopping.exit(waitTime); code != 0 {
				t.Errorf("the worker ended with %d, want 0", code)
			}
			workflow := f.end(id)
			publish := last(t, workflow, "prepare_publish")
			if workflow.Status != txn.WorkflowCompleted || publish.RetryCount != 0 || outputOf(t, publish).Publication.Outcome != txn.OutcomePublished {
				t.Errorf("%s\nput out %s", describe(workflow), publish.Output)
			}
		})
	}
}

// The second signal ends the process at once, grace or not.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{
		files: map[string]string{"data/a": "1"}, without: "stage-worker",
		expect: []lakefstest.Expectation{lakefstest.Allow(lakefstest.RuleBranches)},
	})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	stopping := f.behind("stage-worker", append(f.stageEnv(), "PERAGO_SHUTDOWN_GRACE=10m")...)
	held := stopping.lake.Hold(upload)
	id := f.start(briefStage(f), map[string]any{"workspace": f.workspace(f.first)})
	held.Wait(t, waitTime)
	stopping.signal(syscall.SIGTERM)
	eventually(t, waitTime, "the worker says that it stops", func() (bool, string) {
		_, body := stopping.get("/readyz")
		return strings.Contains(body, "the worker is stopping"), body
	})
	stopping.signal(syscall.SIGTERM)
	if code := stopping.exit(waitTime); code != 1 {
		t.Errorf("the worker ended with %d after the second signal, want 1", code)
	}
	held.Drop()
	if err := f.operator.Terminate(t.Context(), id, "the test is over"); err != nil {
		t.Fatal(err)
	}
}

// A worker whose task was taken away stops its uploads at the next heartbeat and
// reports nothing.
func TestLostLeaseStopsUploads(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{
		files: map[string]string{"data/a": "1"}, without: "stage-worker",
		expect: []lakefstest.Expectation{lakefstest.Allow(lakefstest.RuleBranches)},
	})
	files := map[string]string{}
	for i := range 50 {
		files[fmt.Sprint("f", i)] = "x"
	}
	f.user("prepare", func(txn.Task) map[string]string { return files })
	stage := f.behind("stage-worker", append(f.stageEnv(), "PERAGO_UPLOAD_CONCURRENCY=1")...)
	held := stage.lake.Hold(fault.Match{Method: upload.Method, Path: upload.Path, Query: upload.Query, Nth: 3})
	id := f.start(briefStage(f), map[string]any{"workspace": f.workspace(f.first)})
	held.Wait(t, waitTime)
	before := len(stage.lake.Matching(upload))
	if err := f.operator.Terminate(t.Context(), id, "an operator stops it"); err != nil {
		t.Fatal(err)
	}
	// Six seconds of response timeout are a heartbeat every two.
	eventually(t, 10*time.Second, "the worker drops the task", func() (bool, string) {
		return strings.Contains(stage.stderr(), "lease lost"), stage.stderr()
	})
	held.Pass()
	_, metrics := stage.get("/metrics")
	if !strings.Contains(metrics, "perago_lease_lost_total 1") {
		t.Error("the lost lease was not counted")
	}
	f.stop(stage.process)
	if after := len(stage.lake.Matching(upload)); before != 3 || after != before {
		t.Errorf("%d uploads before the lease was lost, %d after; want 3 and 3", before, after)
	}
	for _, request := range stage.conductor.Matching(anyUpdate) {
		if !strings.Contains(request.Body, "extendLease") {
			t.Errorf("the worker reported a task that is not its own any more: %s", request.Body)
		}
	}
}

// The merge timeout is the polled TaskDef's: one worker serves several budgets.
// A merge without an answer in that time is in doubt, and the next attempt
// decides from the branch.
func TestMergeTimeoutIsTheTaskDefinitions(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{files: map[string]string{"data/a": "1"}, without: "publish-worker"})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	publish := f.behind("publish-worker", publishEnv)
	held := publish.lake.Hold(merge)
	id := f.start(brief(f), map[string]any{"workspace": f.workspace(f.first)})
	arrived := held.Wait(t, waitTime)
	task := f.inProgress(id, "prepare_publish")
	var failed txn.Task
	eventually(t, waitTime, "the first attempt fails", func() (bool, string) {
		var err error
		if failed, err = f.conductor.Task(t.Context(), task.ID); err != nil {
			t.Fatal(err)
		}
		return failed.Status == txn.TaskFailed, string(failed.Status)
	})
	if took := time.Since(arrived.At); took < 3*time.Second {
		t.Errorf("the merge was given up after %s; its TaskDef says 3 s", took)
	}
	if o := outputOf(t, failed); o.Publication.Outcome != txn.OutcomeInDoubt || o.Workspace != nil || !strings.Contains(failed.Reason, "its outcome is not known") {
		t.Errorf("the first attempt: %s, put out %s", failed.Reason, failed.Output)
	}
	held.Drop()
	workflow := f.end(id)
	if o := outputOf(t, last(t, workflow, "prepare_publish")); workflow.Status != txn.WorkflowCompleted || o.Publication.Outcome != txn.OutcomePublished {
		t.Error(describe(workflow))
	}
	f.stop(publish.process)
}

// A budget in a task's input would replace the TaskDef's whole: it is refused.
func TestBudgetInTheInputIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "1"})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	tasks := step("prepare", "data/", "${workflow.input.workspace}", nil)
	tasks[2]["inputParameters"].(map[string]any)["budget"] = map[string]any{"lakefs_merge_timeout_seconds": 600}
	workflow := f.run(f.register("budget", tasks...), map[string]any{"workspace": f.workspace(f.first)})
	publish := last(t, workflow, "prepare_publish")
	if publish.Status != txn.TaskFailedWithTerminalError || !strings.Contains(publish.Reason, "budget: differs from the TaskDef's; the budget belongs in the TaskDef") || f.head() != f.first {
		t.Errorf("publish is %s: %s", publish.Status, publish.Reason)
	}
}

// A changed TaskDef holds for the workflows started after it; a running one
// keeps its own.
func TestChangedTaskDefinitionHoldsForLaterWorkflows(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{
		files: map[string]string{"data/a": "1"}, without: "publish-worker",
		expect: []lakefstest.Expectation{lakefstest.Allow(lakefstest.RuleBranches)},
	})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	tuned := "perago_publish_" + strings.ReplaceAll(f.domain, "-", "_")
	define := func(response int) {
		t.Helper()
		raw := fmt.Sprintf(`{"name": %q, "ownerEmail": "perago@example.com", "retryCount": 0, "timeoutSeconds": 0, "responseTimeoutSeconds": %d, "timeoutPolicy": "RETRY",
			"inputTemplate": {"budget": {"observed_merge_p99_seconds": 5, "safety_margin_seconds": 5, "lakefs_merge_timeout_seconds": 10,
			"conductor_completion_timeout_seconds": 5, "worker_shutdown_grace_seconds": 5, "heartbeat_interval_seconds": 5}}}`, tuned, response)
		if err := f.conductor.PutTaskDefinition(t.Context(), []byte(raw)); err != nil {
			t.Fatal(err)
		}
	}
	define(25)
	tasks := publishedBy(tuned, step("prepare", "data/", "${workflow.input.workspace}", nil))
	name := f.register("tuned", append([]map[string]any{simple("e2e_hold", "hold", nil)}, tasks...)...)
	before := f.start(name, map[string]any{"workspace": f.workspace(f.first)})
	define(24) // broken: one second less than the budget needs
	after := f.start(name, map[string]any{"workspace": f.workspace(f.first)})
	define(25) // sound again, so that a worker polls the type at all
	publish := start(t, "publish-worker", f.env("PERAGO_TASK_TYPES="+tuned)...)
	publish.ready()
	f.user("e2e_hold", func(txn.Task) map[string]string { return nil })
	if workflow := f.end(before); workflow.Status != txn.WorkflowCompleted {
		t.Error(describe(workflow))
	}
	workflow := f.end(after)
	refused := last(t, workflow, "prepare_publish")
	if refused.Status != txn.TaskFailedWithTerminalError || !strings.Contains(refused.Reason, "responseTimeoutSeconds is 24, less than merge timeout + completion + shutdown grace + heartbeat = 25s") {
		t.Errorf("publish is %s: %s", refused.Status, refused.Reason)
	}
	f.stop(publish)
}
