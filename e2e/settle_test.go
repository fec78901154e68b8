package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"perago/pkg/fault"
	"perago/pkg/fence"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// What may become of the answer to a merge, and how the attempt that sent it
// ends: by reading the branch, never by sending the merge again. Under the hard
// fence there is exactly one confirm commit in the end, whatever is delivered
// late.
func TestLostAnswersToAMerge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		// answered holds the answer instead of the request.
		answered bool
		// fate decides about the held merge.
		fate func(t *testing.T, f *fleet, p *fronted, held *fault.Hold) (afterwards func())
		// outcome and status are of the attempt that sent the merge.
		outcome txn.Outcome
		status  txn.TaskStatus
		reason  string
	}{
		{
			name: "applied, and the answer is lost", answered: true,
			fate:    func(_ *testing.T, _ *fleet, _ *fronted, held *fault.Hold) func() { held.Drop(); return nil },
			outcome: txn.OutcomePublished, status: txn.TaskCompleted,
		},
		{
			name: "lands while the branch is read again",
			fate: func(t *testing.T, f *fleet, p *fronted, held *fault.Hold) func() {
				// The second read after the 504 waits until the merge has landed.
				reading := p.lake.Hold(fault.Match{Method: http.MethodGet, Path: "/branches/main", Nth: 2})
				deliver := held.Late(t)
				reading.Wait(t, waitTime)
				deliver()
				reading.Pass()
				return nil
			},
			outcome: txn.OutcomePublished, status: txn.TaskCompleted,
		},
		{
			name:    "lands long after the attempt has ended",
			fate:    func(t *testing.T, _ *fleet, _ *fronted, held *fault.Hold) func() { return held.Late(t) },
			outcome: txn.OutcomeInDoubt, status: txn.TaskFailed, reason: "its outcome is not known",
		},
		{
			name:    "lost, and never applied",
			fate:    func(_ *testing.T, _ *fleet, _ *fronted, held *fault.Hold) func() { held.Drop(); return nil },
			outcome: txn.OutcomeInDoubt, status: txn.TaskFailed, reason: "the branch has not moved",
		},
		{
			name: "refused",
			fate: func(_ *testing.T, _ *fleet, _ *fronted, held *fault.Hold) func() {
				held.Answer(http.StatusForbidden, `{"message": "insufficient permissions"}`)
				return nil
			},
			outcome: txn.OutcomeRefused, status: txn.TaskFailed, reason: "lakeFS answered 403",
		},
		{
			name: "the source commit is unknown",
			fate: func(_ *testing.T, _ *fleet, _ *fronted, held *fault.Hold) func() {
				held.Answer(http.StatusNotFound, `{"message": "commit not found"}`)
				return nil
			},
			outcome: txn.OutcomeRefused, status: txn.TaskFailed, reason: "lakeFS answered 404",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFleetOf(t, setup{
				files: map[string]string{"data/a": "1", txn.FenceFile: string(fence.File())}, sweepTTL: "24h", without: "publish-worker",
			})
			f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
			publish := f.behind("publish-worker", publishEnv)
			hold := publish.lake.Hold
			if c.answered {
				hold = publish.lake.HoldAnswer
			}
			held := hold(merge)
			id := f.start(f.register("lost", step("prepare", "data/", "${workflow.input.workspace}", nil)...), map[string]any{"workspace": f.workspace(f.first)})
			held.Wait(t, waitTime)
			afterwards := c.fate(t, f, publish, held)
			workflow := f.end(id)
			task := last(t, workflow, "prepare_publish")
			if o := outputOf(t, task); task.Status != c.status || o.Publication.Outcome != c.outcome || !strings.Contains(task.Reason, c.reason) || (o.Workspace != nil) != (c.status == txn.TaskCompleted) {
				t.Errorf("%s: %s, put out %s", task.Status, task.Reason, task.Output)
			}
			if n := len(publish.lake.Matching(merge)); n != 1 {
				t.Errorf("%d merges were sent under one decision, want 1", n)
			}
			if c.status == txn.TaskFailed {
				f.branchesLeft(id, 1)
				if afterwards != nil {
					afterwards()
					f.branchesLeft(id, 1)
				}
				// The operator's retry decides from what the branch holds now.
				if err := f.operator.RetryTaken(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				workflow = f.end(id)
				want := txn.OutcomePublished
				if afterwards != nil {
					want = txn.OutcomeAlreadyPublished
				}
				if o := outputOf(t, last(t, workflow, "prepare_publish")); workflow.Status != txn.WorkflowCompleted || o.Publication.Outcome != want {
					t.Errorf("after the retry: %s\nput out %+v, want %s", describe(workflow), o.Publication, want)
				}
			}
			if f.history() != 1 {
				t.Errorf("%d confirm commits, want 1", f.history())
			}
			if record := f.record(f.head()); record.ExpectedHead != f.first {
				t.Errorf("the confirm commit expected %s", record.ExpectedHead)
			}
			f.stop(publish.process)
		})
	}
}

// branchesLeft requires so many branches of a workflow, hidden ones included: a
// late landing must name a branch that is whole.
func (f *fleet) branchesLeft(id txn.WorkflowID, want int) {
	f.t.Helper()
	branches, err := f.lake.Branches(f.t.Context(), f.repo, txn.WorkflowBranches(txn.ConductorIdentity(f.domain), id))
	if err != nil || len(branches) != want {
		f.t.Errorf("branches %v, %v; want %d", branches, err, want)
	}
}

// A late merge under the hard fence: an attempt that came after it has published,
// and lakeFS refuses the late one.
func TestLateMergeIsRefusedByTheHardFence(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{files: map[string]string{"data/a": "1", txn.FenceFile: string(fence.File())}, without: "publish-worker"})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	publish := f.behind("publish-worker", publishEnv)
	held := publish.lake.Hold(merge)
	id := f.start(brief(f), map[string]any{"workspace": f.workspace(f.first)})
	held.Wait(t, waitTime)
	deliver := held.Late(t)
	workflow := f.end(id)
	o := outputOf(t, last(t, workflow, "prepare_publish"))
	if workflow.Status != txn.WorkflowCompleted || o.Publication.Outcome != txn.OutcomePublished || o.Publication.Fence != txn.FenceHard {
		t.Errorf("%s\nput out %+v", describe(workflow), o.Publication)
	}
	head := f.head()
	deliver()
	if f.head() != head || f.history() != 1 {
		t.Errorf("the late merge landed: head %s, was %s", f.head(), head)
	}
	f.stop(publish.process)
}

// What may become of the answer to the creation of a staging branch.
func TestLostAnswersToABranch(t *testing.T) {
	t.Parallel()
	create := fault.Match{Method: http.MethodPost, Path: "/branches", Body: `"name":"perago-staging-`}
	for _, c := range []struct {
		name     string
		answered bool
		fate     func(t *testing.T, p *fronted, held *fault.Hold) (afterwards func())
		status   txn.TaskStatus
		sent     int
		reason   string
	}{
		{
			name: "applied, and the answer is lost", answered: true, status: txn.TaskCompleted, sent: 1,
			fate: func(_ *testing.T, _ *fronted, held *fault.Hold) func() { held.Drop(); return nil },
		},
		{
			name: "comes while it is read", status: txn.TaskCompleted, sent: 1,
			fate: func(t *testing.T, p *fronted, held *fault.Hold) func() {
				reading := p.lake.Hold(fault.Match{Method: http.MethodGet, Path: "/branches/perago-staging-", Nth: 2})
				deliver := held.Late(t)
				reading.Wait(t, waitTime)
				deliver()
				reading.Pass()
				return nil
			},
		},
		{
			name: "comes long after", status: txn.TaskCompleted, sent: 2,
			fate: func(t *testing.T, _ *fronted, held *fault.Hold) func() { return held.Late(t) },
		},
		{
			name: "lost, and never applied", status: txn.TaskCompleted, sent: 2,
			fate: func(_ *testing.T, _ *fronted, held *fault.Hold) func() { held.Drop(); return nil },
		},
		{
			name: "refused", status: txn.TaskFailed, sent: 1, reason: "lakeFS answered 403",
			fate: func(_ *testing.T, _ *fronted, held *fault.Hold) func() {
				held.Answer(http.StatusForbidden, `{"message": "insufficient permissions"}`)
				return nil
			},
		},
		{
			name: "the source commit is unknown", status: txn.TaskFailed, sent: 1, reason: "lakeFS answered 404",
			fate: func(_ *testing.T, _ *fronted, held *fault.Hold) func() {
				held.Answer(http.StatusNotFound, `{"message": "commit not found"}`)
				return nil
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFleetOf(t, setup{
				files: map[string]string{"data/a": "1"}, without: "stage-worker",
				// A branch that comes long after has nothing on it, and goes by its age.
				expect: []lakefstest.Expectation{lakefstest.Allow(lakefstest.RuleBranches)},
			})
			f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
			stage := f.behind("stage-worker", f.stageEnv()...)
			hold := stage.lake.Hold
			if c.answered {
				hold = stage.lake.HoldAnswer
			}
			held := hold(create)
			tasks := step("prepare", "data/", "${workflow.input.workspace}", nil)
			tasks[1]["name"] = "perago_stage_once"
			id := f.start(f.register("lost_branch", tasks...), map[string]any{"workspace": f.workspace(f.first)})
			held.Wait(t, waitTime)
			afterwards := c.fate(t, stage, held)
			workflow := f.end(id)
			task := last(t, workflow, "prepare_stage")
			if task.Status != c.status || !strings.Contains(task.Reason, c.reason) {
				t.Errorf("%s: %s", task.Status, task.Reason)
			}
			sent := stage.lake.Matching(create)
			if len(sent) != c.sent || (c.sent == 2 && sent[0].Body == sent[1].Body) {
				t.Errorf("%d branches were asked for, want %d, each under a name of its own: %v", len(sent), c.sent, sent)
			}
			commits := 0
			if c.status == txn.TaskCompleted {
				commits = 1
			}
			if f.history() != commits {
				t.Errorf("%d confirm commits, want %d", f.history(), commits)
			}
			if afterwards != nil {
				afterwards()
				f.branchesLeft(id, 1) // whole, and nothing on it
			}
			f.stop(stage.process)
		})
	}
}

// perago settle while a merge is under way: lakeFS refuses the merge whenever it
// arrives, and the branch holds the commit that settled it and nothing else. What
// had not landed is refused on every retry and starts anew from there.
func TestSettleWhileAMergeIsUnderWay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// before and after say what becomes of the held merge before and after the
		// branch is settled; ended waits for the attempt's end.
		before, after func(t *testing.T, held *fault.Hold, ended func()) (deliver func())
		outcome       txn.Outcome
	}{
		"the worker waits for the answer": {
			after:   func(_ *testing.T, held *fault.Hold, ended func()) func() { held.Pass(); ended(); return nil },
			outcome: txn.OutcomeRefused,
		},
		"a gateway gives up, and the worker reads": {
			after: func(t *testing.T, held *fault.Hold, ended func()) func() {
				deliver := held.Late(t)
				ended()
				return deliver
			},
			outcome: txn.OutcomeRefused,
		},
		"the attempt has ended in doubt": {
			before: func(t *testing.T, held *fault.Hold, ended func()) func() {
				deliver := held.Late(t)
				ended()
				return deliver
			},
			outcome: txn.OutcomeInDoubt,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleetOf(t, setup{
				files: map[string]string{"data/a": "1", txn.FenceFile: string(fence.File())}, sweepTTL: "24h", without: "publish-worker",
				// What can no longer land may stay until its time is over.
				expect: []lakefstest.Expectation{lakefstest.Allow(lakefstest.RuleBranches)},
			})
			f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
			answers := f.answers()
			publish := f.behind("publish-worker", publishEnv)
			held := publish.lake.Hold(merge)
			definition := f.register("settled", step("prepare", "data/", "${workflow.input.workspace}", nil)...)
			id := f.start(definition, map[string]any{"workspace": f.workspace(f.first)})
			held.Wait(t, waitTime)
			var workflow txn.Workflow
			ended := func() { workflow = f.end(id) }
			var deliver func()
			if c.before != nil {
				deliver = c.before(t, held, ended)
			}

			stdout, stderr, code := f.perago("settle", "lakefs://"+string(f.repo)+"/main", "--yes", "--output", "json")
			settled := f.head()
			var report struct {
				Head    txn.CommitID `json:"head"`
				Before  txn.CommitID `json:"before"`
				Stopped []struct {
					Key      txn.LogicalTaskKey `json:"logical_task_key"`
					Workflow txn.WorkflowID     `json:"workflow_id"`
					Branch   txn.Branch         `json:"branch"`
				} `json:"stopped"`
				Loose []any `json:"loose"`
			}
			if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != 0 || report.Head != settled || report.Before != f.first || len(report.Loose) != 0 {
				t.Fatalf("settle: exit %d, %v, %s%s; the head is %s", code, err, stdout, stderr, settled)
			}
			if len(report.Stopped) != 1 || report.Stopped[0].Workflow != id || report.Stopped[0].Key != txn.NewLogicalTaskKey(id, "prepare_stage", 0) || !strings.HasPrefix(string(report.Stopped[0].Branch), "perago-staging-") {
				t.Errorf("stopped %+v", report.Stopped)
			}
			if !strings.Contains(stderr, "From now on the hard fence refuses every publication that expected "+f.first.Short()) || !strings.Contains(stderr, "must be started anew with ref="+string(settled)) {
				t.Errorf("settle advised %s", stderr)
			}

			if c.after != nil {
				deliver = c.after(t, held, ended)
			}
			if deliver != nil {
				deliver()
			}
			refusedByTheFence(t, answers(), f.first, settled, http.StatusPreconditionFailed)
			reasons := map[txn.Outcome]string{
				txn.OutcomeRefused: fmt.Sprintf("main advanced from %s to %s; start a new workflow with ref=%s", f.first, settled, settled),
				txn.OutcomeInDoubt: fmt.Sprintf("the merge into main was sent and its outcome is not known: the branch has not moved (expected head %s): ", f.first),
			}
			attempt := func(workflow txn.Workflow, want txn.Outcome) {
				t.Helper()
				task := last(t, workflow, "prepare_publish")
				o := outputOf(t, task)
				if task.Status != txn.TaskFailed || !strings.HasPrefix(task.Reason, reasons[want]) || o.Workspace != nil || o.Publication.Outcome != want {
					t.Errorf("%s\nput out %s\nwant %s", describe(workflow), task.Output, reasons[want])
				}
			}
			attempt(workflow, c.outcome)

			if err := f.operator.RetryTaken(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			attempt(f.end(id), txn.OutcomeRefused)
			if n := len(publish.lake.Matching(merge)); n != 1 {
				t.Errorf("%d merges were sent for what was settled, want the one", n)
			}
			if record := f.record(f.head()); f.head() != settled || f.history() != 1 || !strings.HasPrefix(string(record.Key), "settle:") {
				t.Errorf("the head is %s of %s, %d commits; want the one that settled, %s", f.head(), record.Key, f.history(), settled)
			}

			anew := f.completed(definition, map[string]any{"workspace": f.workspace(settled)})
			if o := outputOf(t, last(t, anew, "prepare_publish")); o.Publication.Outcome != txn.OutcomePublished || o.Publication.Fence != txn.FenceHard || o.Publication.ExpectedHead != settled {
				t.Errorf("anew: %+v", o.Publication)
			}
			f.stop(publish.process)
		})
	}
}

// A late merge on the soft fence lands above what a later attempt has published.
// The publish that finds it there says so in its output, its log and its metrics,
// and leaves it there.
func TestLateMergeIsReportedOnTheSoftFence(t *testing.T) {
	t.Parallel()
	var late txn.CommitID
	f := newFleetOf(t, setup{
		files: map[string]string{"data/a": "1"}, without: "publish-worker",
		expect: []lakefstest.Expectation{lakefstest.Raced(func() []txn.CommitID { return []txn.CommitID{late} })},
	})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	dying := f.behind("publish-worker", publishEnv)
	held, completing := dying.lake.Hold(merge), dying.conductor.Hold(completion)
	id := f.start(brief(f), map[string]any{"workspace": f.workspace(f.first)})
	held.Wait(t, waitTime)
	deliver := held.Late(t) // the first attempt ends in doubt, the second one publishes
	completing.Wait(t, waitTime)
	published := f.head()
	deliver()
	late = f.head()
	if published == f.first || late == published {
		t.Fatalf("published %s, landed late %s", published, late)
	}
	dying.kill()
	completing.Drop()

	next := start(t, "publish-worker", f.env(publishEnv)...)
	f.rerunFrom(id, "prepare_publish")
	workflow := f.end(id)
	task := last(t, workflow, "prepare_publish")
	var told struct {
		Late []txn.CommitID `json:"late_landings"`
	}
	decode(t, task.Output, &told)
	o := outputOf(t, task)
	if workflow.Status != txn.WorkflowCompleted || o.Publication.Outcome != txn.OutcomeAlreadyPublished || o.Publication.Fence != txn.FenceSoft || len(told.Late) != 1 || told.Late[0] != late {
		t.Errorf("%s\nput out %s; want %s to be late", describe(workflow), task.Output, late)
	}
	if lines := next.logged("late landing: a commit of a step above the one it published"); len(lines) != 1 || lines[0]["commit"] != string(late) || lines[0]["published"] != string(published) || lines[0]["repository"] != string(f.repo) {
		t.Errorf("logged %v; want %s above %s", lines, late, published)
	}
	if _, metrics := next.get("/metrics"); !strings.Contains(metrics, "perago_late_landing_total 1") {
		t.Error("it is not counted")
	}
	if f.head() != late {
		t.Errorf("the head is %s, want %s", f.head(), late)
	}
	f.stop(next)
}
