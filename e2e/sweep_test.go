package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"perago/pkg/conductor/conductortest"
	"perago/pkg/fault"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// breakable stands before lakeFS for the workers behind proxies, and answers in
// its place while it is told to.
type breakable struct {
	answers atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
}

func (f *fleet) breakable() *breakable {
	f.t.Helper()
	target, err := url.Parse(f.servers.LakeFSURL)
	if err != nil {
		f.t.Fatal(err)
	}
	b := &breakable{}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := b.answers.Load(); answer == nil || !(*answer)(w, r) {
			forward.ServeHTTP(w, r)
		}
	}))
	f.t.Cleanup(server.Close)
	f.front = server.URL
	return b
}

// instead answers what matches; nil ends it.
func (b *breakable) instead(answer func(w http.ResponseWriter, r *http.Request) bool) {
	if answer == nil {
		b.answers.Store(nil)
		return
	}
	b.answers.Store(&answer)
}

// lakeFS goes away in the half minute between two readiness checks, so that the
// tries of a stage run out; when it is back, the operator's retry publishes what
// the user's task had written, without running it again.
func TestRetryAfterAnOutagePublishesTheSameFiles(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{files: map[string]string{"data/a": "0"}, without: "stage-worker", sweepTTL: "24h"})
	lake := f.breakable()
	f.counted("prepare")
	stage := f.behind("stage-worker", append(f.stageEnv(), briefSweep)...)
	// The readiness check passes: it was asked a moment ago.
	lake.instead(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/user") {
			return false
		}
		panic(http.ErrAbortHandler)
	})
	id := f.start(f.register("outage", stagedBy("perago_stage_brief", step("prepare", "data/", "${workflow.input.workspace}", nil))...), map[string]any{"workspace": f.workspace(f.first)})
	workflow := f.end(id)
	failed := last(t, workflow, "prepare_stage")
	if workflow.Status != txn.WorkflowFailed || failed.RetryCount != 2 || !strings.Contains(failed.Reason, "lakeFS gave no answer to GET ") {
		t.Fatalf("the outage: %s", describe(workflow))
	}
	if _, err := os.Stat(filepath.Join(f.root, string(id))); err != nil {
		t.Errorf("the files of a failed workflow are gone before the TTL: %v", err)
	}
	lake.instead(nil)
	if err := f.operator.RetryTaken(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if workflow = f.end(id); workflow.Status != txn.WorkflowCompleted {
		t.Fatalf("after the retry: %s", describe(workflow))
	}
	// The user's task would have written 2 the second time.
	if diff := cmp.Diff(map[string]string{"data/a": "1"}, lakefstest.Tree(t, f.lake, f.repo, f.head())); diff != "" {
		t.Error(diff)
	}
	f.rootIsEmpty()
	f.stop(stage.process)
}

// cancelled runs perago_cancel for a workflow, as an operator does by hand.
func (f *fleet) cancelled(id txn.WorkflowID) cancellation {
	f.t.Helper()
	workflow := f.completed("perago_cancel", map[string]any{"workflowId": id})
	var c cancellation
	decode(f.t, workflow.Tasks[0].Output, &c)
	return c
}

type cancellation struct {
	Deleted []txn.Branch
	Kept    []struct {
		Branch txn.Branch
		Reason string
	}
	Errors []string
}

func (c cancellation) keeps(t testing.TB, reason string) {
	t.Helper()
	if len(c.Deleted)+len(c.Errors) != 0 || len(c.Kept) != 1 || !strings.Contains(c.Kept[0].Reason, reason) {
		t.Errorf("cleanup put out %+v; want one branch kept because %q", c, reason)
	}
}

// A branch whose publication is under way, or in doubt, or not settled, stays
// with the reason; settled, it goes.
func TestBranchesStayUntilTheyAreSettled(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{
		files: map[string]string{"data/a": "0"}, without: "publish-worker", sweepTTL: "24h",
		expect: []lakefstest.Expectation{lakefstest.Expect(lakefstest.RuleBranches)},
	})
	f.counted("prepare")
	publish := f.behind("publish-worker", publishEnv)
	held := publish.lake.Hold(merge)
	tasks := step("prepare", "data/", "${workflow.input.workspace}", nil)[:3]
	id := f.start(f.register("settled", tasks...), map[string]any{"workspace": f.workspace(f.first)})
	held.Wait(t, waitTime)
	f.cancelled(id).keeps(t, "a stage or publish task of its step is not finished")

	held.Drop()
	workflow := f.end(id)
	if o := outputOf(t, last(t, workflow, "prepare_publish")); o.Publication.Outcome != txn.OutcomeInDoubt {
		t.Fatalf("want in doubt: %s", describe(workflow))
	}
	f.cancelled(id).keeps(t, "it is not published, and its publication may still come; kept until it is 24h0m0s old")

	if err := f.operator.RetryTaken(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if workflow = f.end(id); workflow.Status != txn.WorkflowCompleted {
		t.Fatalf("after the retry: %s", describe(workflow))
	}
	if c := f.cancelled(id); len(c.Deleted) != 1 || len(c.Kept)+len(c.Errors) != 0 {
		t.Errorf("settled: cleanup put out %+v", c)
	}

	// A step that is refused because somebody else has committed is not settled by
	// that: without the hard fence lakeFS would still take its merge.
	refused := f.run(f.register("refused", tasks...), map[string]any{"workspace": f.workspace(f.first)})
	if o := outputOf(t, last(t, refused, "prepare_publish")); o.Publication.Outcome != txn.OutcomeRefused {
		t.Fatalf("want refused: %s", describe(refused))
	}
	f.cancelled(refused.ID).keeps(t, "it is not published, and without the hard fence its merge may still land; kept until it is 24h0m0s old")
	f.stop(publish.process)
}

// A merge that lands when the sweep has deleted its branch is whole, and a
// cleanup for its workflow tells of it.
func TestMergeThatLandsAfterItsBranchWasDeleted(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{files: map[string]string{"data/a": "0", "data/b": "0"}, without: "publish-worker cleanup-worker"})
	f.counted("prepare")
	publish := f.behind("publish-worker", publishEnv)
	cleaner := start(t, "cleanup-worker", f.env(briefTTL, briefSweep)...)
	t.Cleanup(func() { f.stop(cleaner) })
	cleaner.ready()
	held := publish.lake.Hold(merge)
	id := f.start(f.register("late", step("prepare", "data/", "${workflow.input.workspace}", nil)[:3]...), map[string]any{"workspace": f.workspace(f.first)})
	held.Wait(t, waitTime)
	deliver := held.Late(t)
	workflow := f.end(id)
	if o := outputOf(t, last(t, workflow, "prepare_publish")); o.Publication.Outcome != txn.OutcomeInDoubt {
		t.Fatalf("want in doubt: %s", describe(workflow))
	}
	(&ending{fleet: f}).nothingIsLeft()
	deliver()
	landed := f.head()
	if landed == f.first {
		t.Fatal("the merge did not land")
	}
	if diff := cmp.Diff(map[string]string{"data/a": "1"}, lakefstest.Tree(t, f.lake, f.repo, landed)); diff != "" {
		t.Error(diff)
	}
	want := "main holds " + string(landed) + " of this step, which no publish task of the ended workflow put out"
	if c := f.cancelled(id); len(c.Errors) != 1 || !strings.Contains(c.Errors[0], want) {
		t.Errorf("cleanup put out %+v", c)
	}
	if events := cleaner.logged("published after end: no publish task of the ended workflow put this publication out"); len(events) != 1 || events[0]["commit"] != string(landed) {
		t.Errorf("events %v", events)
	}
	if _, text := cleaner.get("/metrics"); !strings.Contains(text, "perago_published_after_end_total 1") || !strings.Contains(text, "perago_orphaned_branches 0") {
		t.Error("the metrics do not count it")
	}
	f.stop(publish.process)
}

// A cleanup that a rerun from the stage overtakes deletes nothing of the new
// execution, wherever it stands.
func TestCleanupThatARerunOvertakes(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func(p *fronted) *fault.Hold{
		"with its listing": func(p *fronted) *fault.Hold {
			return p.lake.HoldAnswer(fault.Match{Method: http.MethodGet, Path: "/branches", Query: "prefix=perago-staging-"})
		},
		"before its delete": func(p *fronted) *fault.Hold {
			return p.lake.Hold(fault.Match{Method: http.MethodDelete, Path: "/branches/perago-staging-"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleetOf(t, setup{
				files: map[string]string{"data/a": "0"}, without: "cleanup-worker",
				// What the first run published has been superseded; without the hard fence
				// only age settles that.
				expect: []lakefstest.Expectation{lakefstest.Allow(lakefstest.RuleBranches)},
			})
			f.counted("prepare")
			cleaner := f.behind("cleanup-worker", "PERAGO_SWEEP_TTL=24h")
			held := at(cleaner)
			// The second run waits after its stage, so that its branch is there when the
			// cleanup goes on.
			tasks := step("prepare", "data/", "${workflow.input.workspace}", nil)
			tasks = []map[string]any{tasks[0], tasks[1], simple("e2e_hold", "hold", nil), tasks[2], tasks[3]}
			id := f.start(f.register("overtaken", tasks...), map[string]any{"workspace": f.workspace(f.first)})
			e := &ending{fleet: f}
			e.hold(id, "hold", txn.TaskCompleted)
			held.Wait(t, waitTime)
			first := outputOf(t, last(t, f.workflow(id), "prepare_stage")).Staged
			f.rerunFrom(id, "prepare_stage")
			e.scheduled(id, "hold")
			second := outputOf(t, last(t, f.workflow(id), "prepare_stage")).Staged
			if second.StagingBranch == first.StagingBranch {
				t.Fatal("the rerun staged on the same branch")
			}
			held.Pass()
			// It has noticed, or done what it had decided before: then the workflow goes on.
			eventually(t, waitTime, "the overtaken cleanup is over", func() (bool, string) {
				return len(cleaner.logged("stale attempt: nothing is reported")) > 0 || len(cleaner.logged("branch decided")) > 0, cleaner.stderr()
			})
			branches, err := f.lake.Branches(t.Context(), f.repo, string(second.StagingBranch))
			if err != nil || len(branches) != 1 {
				t.Errorf("the new execution's branch: %v, %v", branches, err)
			}
			for _, request := range cleaner.lake.Matching(fault.Match{Method: http.MethodDelete}) {
				if strings.HasSuffix(request.Path, string(second.StagingBranch)) {
					t.Errorf("the overtaken cleanup sent %s", request)
				}
			}
			e.hold(id, "hold", txn.TaskCompleted)
			e.must(f.end(id), txn.WorkflowCompleted)
			branches, err = f.lake.Branches(t.Context(), f.repo, "perago-")
			if err != nil || len(branches) > 1 || (len(branches) == 1 && branches[0].Name != first.StagingBranch) {
				t.Errorf("left are %v, %v", branches, err)
			}
			f.stop(cleaner.process)
		})
	}
}

// What cleanup is given is checked, and it completes whatever that is.
func TestCleanupIsGivenSomethingElse(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{
		files:  map[string]string{"data/a": "0"},
		expect: []lakefstest.Expectation{lakefstest.Expect(lakefstest.RuleBranches)},
	})
	identity := txn.ConductorIdentity(f.domain)
	elsewhere, _ := lakefstest.NewRepository(t, f.lake, nil)
	other := txn.WorkflowID(uuid.NewString())
	execution := f.execution(0)
	othersKey := txn.NewLogicalTaskKey(other, "prepare_stage", 0)
	others := txn.NewStagingName(identity, other, othersKey, 0, execution).Branch()
	for _, branch := range []txn.Branch{"target", others, "perago-somebody-s"} {
		if err := f.lake.CreateBranch(t.Context(), f.repo, branch, f.first); err != nil {
			t.Fatal(err)
		}
	}
	// The key and the task are the workflow's own; the rest is the case's.
	cleanup := simple("perago_cleanup", "cleanup", map[string]any{
		"workspace": "${workflow.input.workspace}", "staged": "${workflow.input.staged}",
	})
	own := simple("perago_cleanup", "cleanup", map[string]any{
		"workspace": "${workflow.input.workspace}",
		"staged": map[string]any{
			"repository": "${workflow.input.repository}", "branch": "main", "staging_branch": "${workflow.input.staging_branch}",
			"commit": strings.Repeat("a", 64), "logical_task_key": "${workflow.workflowId}:prepare_stage:0", "input_ref": f.first, "prefix": "data/",
			"task_id": "stage", "retry_count": 0, "poll_count": 1, "start_time": 1764443290123, "execution_id": execution,
			"no_op": false, "read_only": false, "added": 0, "changed": 0, "removed": 0, "unchanged": 0, "bytes": 0,
		},
	})
	ownName, anyName := f.register("own", own), f.register("any", cleanup)
	staged := func(change map[string]any) map[string]any {
		input := map[string]any{"workspace": f.workspace(f.first), "repository": f.repo, "staging_branch": others}
		for field, value := range change {
			input[field] = value
		}
		return input
	}
	for _, c := range []struct {
		name, workflow string
		input          map[string]any
		sentence       string
	}{
		{"the target", ownName, staged(map[string]any{"staging_branch": "target"}), "staged.staging_branch"},
		{"the default branch", ownName, staged(map[string]any{"staging_branch": "main"}), "staged.staging_branch"},
		{"another workflow's branch", ownName, staged(nil), "is not a branch of this step under this worker's Conductor identity"},
		{"a name that is not ours", ownName, staged(map[string]any{"staging_branch": "perago-somebody-s"}), "staged.staging_branch"},
		{"another repository", ownName, staged(map[string]any{"repository": elsewhere}), "chain both from the same stage task"},
		{"a repository that is not allowed", ownName, staged(map[string]any{"repository": elsewhere, "workspace": func() map[string]any {
			workspace := f.workspace(f.first)
			workspace["repository"] = elsewhere
			return workspace
		}()}), "PERAGO_ALLOWED_REPOSITORIES"},
		{"null", anyName, map[string]any{"workspace": f.workspace(f.first), "staged": nil}, ""},
		{"nothing", anyName, map[string]any{}, ""},
		{"an unresolved expression", anyName, map[string]any{"workspace": f.workspace(f.first), "staged": "${prepare_stage.output.staged}"}, "staged"},
		{"a list", anyName, map[string]any{"workspace": f.workspace(f.first), "staged": []any{1}}, "staged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := outputOf(t, last(t, f.completed(c.workflow, c.input), "cleanup"))
			if len(o.Deleted)+len(o.Kept) != 0 || (c.sentence == "") != (len(o.Errors) == 0) {
				t.Fatalf("put out %+v", o)
			}
			if c.sentence != "" && !strings.Contains(o.Errors[0], c.sentence) {
				t.Errorf("errors %q, want %q", o.Errors, c.sentence)
			}
		})
	}
	branches, err := f.lake.Branches(t.Context(), f.repo, "")
	if err != nil || len(branches) != 4 {
		t.Errorf("branches %v, %v; want main and three", branches, err)
	}
}

// execution is an execution id of an age.
func (f *fleet) execution(age time.Duration) txn.ExecutionID {
	f.t.Helper()
	id, err := lakefstest.ExecutionAt(age)
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

// A fleet of cleanup workers that is down delays a workflow and does not end it.
func TestWorkflowGoesOnWithoutACleanupWorker(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{
		files: map[string]string{"data/a": "0"}, without: "cleanup-worker",
		expect: []lakefstest.Expectation{lakefstest.Expect(lakefstest.RuleBranches)},
	})
	f.counted("prepare")
	tasks := step("prepare", "data/", "${workflow.input.workspace}", nil)
	tasks[3]["name"] = "perago_cleanup_impatient"
	workflow := f.completed(f.register("alone", tasks...), map[string]any{"workspace": f.workspace(f.first)})
	if cleanup := last(t, workflow, "prepare_cleanup"); cleanup.PollCount != 0 || f.history() != 1 {
		t.Errorf("%s", describe(workflow))
	}
}

// What lakeFS refuses a cleanup, or does not answer, changes nothing for the
// workflow, and is in its output, the log and the metrics.
func TestTroubleInCleanupIsVisibleAndHarmless(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer   func(w http.ResponseWriter, r *http.Request) bool
		sentence string
	}{
		"403": {func(w http.ResponseWriter, r *http.Request) bool {
			return refuse(w, r, http.StatusForbidden)
		}, "answered 403"},
		"500": {func(w http.ResponseWriter, r *http.Request) bool {
			return refuse(w, r, http.StatusInternalServerError)
		}, "answered 500"},
		"unreachable": {func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodDelete {
				panic(http.ErrAbortHandler)
			}
			return false
		}, "gave no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleetOf(t, setup{files: map[string]string{"data/a": "0"}, without: "cleanup-worker"})
			f.counted("prepare")
			lake := f.breakable()
			cleaner := f.behind("cleanup-worker", "PERAGO_SWEEP_INTERVAL=0s")
			lake.instead(c.answer)
			workflow := f.completed(f.register("trouble", step("prepare", "data/", "${workflow.input.workspace}", nil)...), map[string]any{"workspace": f.workspace(f.first)})
			o := outputOf(t, last(t, workflow, "prepare_cleanup"))
			if len(o.Errors) != 1 || !strings.Contains(o.Errors[0], "delete branch perago-staging-") || !strings.Contains(o.Errors[0], c.sentence) {
				t.Errorf("cleanup put out %+v", o)
			}
			events := cleaner.logged("branch decided")
			if len(events) != 1 || events[0]["state"] != "failed" || events[0]["level"] != "WARN" || events[0]["workflow_id"] != string(workflow.ID) {
				t.Errorf("events %v", events)
			}
			if _, text := cleaner.get("/metrics"); !strings.Contains(text, `perago_branch_decisions_total{state="failed"} 1`) {
				t.Error("the metrics do not count it")
			}
			lake.instead(nil)
			if c := f.cancelled(workflow.ID); len(c.Deleted) != 1 {
				t.Errorf("afterwards: %+v", c)
			}
			f.stop(cleaner.process)
		})
	}
}

func refuse(w http.ResponseWriter, r *http.Request, status int) bool {
	if r.Method != http.MethodDelete {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"message": "not now"}`)
	return true
}

// terminated is a workflow that was ended before anything ran.
func (f *fleet) terminated() txn.WorkflowID {
	f.t.Helper()
	id := f.start(f.register("idle", simple("e2e_hold", "hold", nil)), map[string]any{})
	if err := f.operator.Terminate(f.t.Context(), id, "an operator ends it"); err != nil {
		f.t.Fatal(err)
	}
	return id
}

// orphan makes a branch that an execution of an age left, under an identity.
func (f *fleet) orphan(identity txn.ConductorIdentity, id txn.WorkflowID, age time.Duration) txn.Branch {
	f.t.Helper()
	branch := txn.NewStagingName(identity, id, txn.NewLogicalTaskKey(id, "prepare_stage", 0), 0, f.execution(age)).Branch()
	if err := f.lake.CreateBranch(f.t.Context(), f.repo, branch, f.first); err != nil {
		f.t.Fatal(err)
	}
	return branch
}

// Two Conductors share a lake: each sweeps its own branches. What a Conductor
// does not know, and what does not parse, is kept and reported; a wrong address
// makes nobody's branches go.
func TestSweepsOfTwoConductors(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{
		files: map[string]string{"data/a": "0"}, without: "stage-worker publish-worker cleanup-worker",
		expect: []lakefstest.Expectation{lakefstest.Expect(lakefstest.RuleBranches)},
	})
	here, there := txn.ConductorIdentity(f.domain), txn.ConductorIdentity("there-"+f.domain)
	ended, removed := f.terminated(), f.terminated()
	if answer, err := f.operator.Do(t.Context(), http.MethodDelete, "/workflow/"+string(removed)+"/remove", nil); err != nil || answer.Status >= 300 {
		t.Fatalf("remove the workflow: %d %s, %v", answer.Status, answer.Body, err)
	}
	unparsable := txn.Branch(txn.ConductorBranches(here) + "somebody-s")
	if err := f.lake.CreateBranch(t.Context(), f.repo, unparsable, f.first); err != nil {
		t.Fatal(err)
	}
	theirs := f.orphan(there, ended, 48*time.Hour)
	ours, young, forgotten := f.orphan(here, ended, 48*time.Hour), f.orphan(here, removed, 0), f.orphan(here, removed, 48*time.Hour)

	// First the wrong Conductor: it knows none of the workflows.
	wrong := httptest.NewServer(conductortest.New(nil))
	t.Cleanup(wrong.Close)
	worker := func(env ...string) *process {
		p := start(t, "cleanup-worker", f.env(append([]string{briefSweep, "PERAGO_SWEEP_TTL=24h"}, env...)...)...)
		t.Cleanup(func() { f.stop(p) })
		return p
	}
	lost := worker("CONDUCTOR_SERVER_URL=" + wrong.URL)
	eventually(t, waitTime, "two sweeps with the wrong Conductor", func() (bool, string) { return len(lost.logged("swept")) >= 2, lost.stderr() })
	reasons := map[string]string{}
	for _, event := range lost.logged("branch decided") {
		reasons[event["branch"].(string)] = event["reason"].(string)
		if event["state"] != "kept" {
			t.Errorf("with the wrong Conductor: %v", event)
		}
	}
	for _, branch := range []txn.Branch{ours, forgotten} {
		if !strings.Contains(reasons[string(branch)], "check CONDUCTOR_SERVER_URL") {
			t.Errorf("%s: %q", branch, reasons[string(branch)])
		}
	}
	// Then the right one, and the other one beside it.
	right, other := worker(), worker("PERAGO_CONDUCTOR_ID="+string(there))
	left := func(want ...txn.Branch) {
		t.Helper()
		eventually(t, waitTime, "the branches that have to go are gone", func() (bool, string) {
			branches, err := f.lake.Branches(t.Context(), f.repo, "perago-")
			if err != nil {
				t.Fatal(err)
			}
			var names []txn.Branch
			for _, branch := range branches {
				names = append(names, branch.Name)
			}
			return cmp.Equal(names, sorted(want)), fmt.Sprint(names)
		})
	}
	left(young, unparsable)
	for p, branch := range map[*process]txn.Branch{right: ours, other: theirs} {
		deleted := 0
		for _, event := range p.logged("branch decided") {
			if event["state"] == "deleted" && event["branch"] == string(branch) {
				deleted++
			}
		}
		if deleted != 1 {
			t.Errorf("%s was deleted %d times by its own sweep", branch, deleted)
		}
	}
	reasons = map[string]string{}
	for _, event := range right.logged("branch decided") {
		reasons[event["branch"].(string)] = event["reason"].(string)
	}
	for branch, reason := range map[txn.Branch]string{
		young:      "its workflow is unknown to this Conductor; kept until it is 24h0m0s old",
		unparsable: "its name is not one that perago gives",
		forgotten:  "its workflow is unknown and it is older than 24h0m0s",
	} {
		if reasons[string(branch)] != reason {
			t.Errorf("%s: %q, want %q", branch, reasons[string(branch)], reason)
		}
	}
	if _, _, code := f.perago("sweep", "--repository", string(f.repo), "--branch", string(unparsable), "--force"); code != 0 {
		t.Errorf("perago sweep --force ended with %d", code)
	}
	left(young)
}

// Two sweeps and a cleanup have all decided to delete one branch: one deletes it,
// the others find it gone, and nobody has a problem with that.
func TestSweepsAndACleanupAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{files: map[string]string{"data/a": "0"}, without: "stage-worker publish-worker cleanup-worker"})
	id := f.terminatedStage()
	var workers []*fronted
	var held []*fault.Hold
	for _, sweeps := range []string{briefSweep, briefSweep, "PERAGO_SWEEP_INTERVAL=0s"} {
		p := f.behind("cleanup-worker", sweeps)
		held = append(held, p.lake.Hold(fault.Match{Method: http.MethodDelete, Path: "/branches/"}))
		workers = append(workers, p)
	}
	// The workers that only sweep must not take the cleanup.
	var gates []*fault.Gate
	for _, p := range workers[:2] {
		gate := p.conductor.Gate(fault.Match{Path: "/tasks/poll"})
		gate.Close()
		gates = append(gates, gate)
	}
	// The branch comes last: no sweep deletes it before its hold is there.
	branch := f.orphan(txn.ConductorIdentity(f.domain), id, 48*time.Hour)
	cancel := f.start("perago_cancel", map[string]any{"workflowId": id})
	for _, hold := range held {
		hold.Wait(t, waitTime)
	}
	for _, hold := range held {
		hold.Pass()
	}
	var c cancellation
	decode(t, f.end(cancel).Tasks[0].Output, &c)
	if len(c.Errors)+len(c.Kept) != 0 || !cmp.Equal(c.Deleted, []txn.Branch{branch}) {
		t.Errorf("the cleanup put out %+v", c)
	}
	for _, p := range workers {
		eventually(t, waitTime, "the branch is decided", func() (bool, string) { return len(p.logged("branch decided")) > 0, p.stderr() })
		for _, event := range p.logged("branch decided") {
			if event["state"] != "deleted" || event["branch"] != string(branch) {
				t.Errorf("%v", event)
			}
		}
		if failed := p.logged("sweep failed"); len(failed) != 0 {
			t.Errorf("%v", failed)
		}
	}
	(&ending{fleet: f}).nothingIsLeft()
	for _, gate := range gates {
		gate.Open()
	}
	for _, p := range workers {
		f.stop(p.process)
	}
}

// terminatedStage is a workflow that was ended before its stage was polled.
func (f *fleet) terminatedStage() txn.WorkflowID {
	f.t.Helper()
	id := f.start(f.register("unstaged", simple("perago_stage_once", "prepare_stage", map[string]any{"workspace": f.workspace(f.first), "prefix": "data/"})), map[string]any{})
	if err := f.operator.Terminate(f.t.Context(), id, "an operator ends it"); err != nil {
		f.t.Fatal(err)
	}
	return id
}

// Two thousand branches that nobody came for: a dry run leaves them, two sweeps
// at once remove them, with memory that does not grow with them, and say how far
// they are.
func TestTwoThousandOrphans(t *testing.T) {
	t.Parallel()
	const orphans = 2000
	f := newFleetOf(t, setup{files: map[string]string{"data/a": "0"}, without: "stage-worker publish-worker cleanup-worker"})
	here := txn.ConductorIdentity(f.domain)
	var group errgroup.Group
	group.SetLimit(8)
	for range orphans / 50 {
		id := f.terminated()
		for range 50 {
			group.Go(func() error {
				branch := txn.NewStagingName(here, id, txn.NewLogicalTaskKey(id, "prepare_stage", 0), 0, f.execution(48*time.Hour)).Branch()
				return f.lake.CreateBranch(t.Context(), f.repo, branch, f.first)
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := f.perago("sweep", "--dry-run")
	if n := strings.Count(stdout, "\twould delete\t"); code != 0 || n != orphans {
		t.Errorf("the dry run ended with %d and would delete %d, want %d: %s", code, n, orphans, stderr)
	}
	count := func() int {
		branches, err := f.lake.Branches(t.Context(), f.repo, "perago-")
		if err != nil {
			t.Fatal(err)
		}
		return len(branches)
	}
	if n := count(); n != orphans {
		t.Fatalf("%d branches after the dry run", n)
	}
	var sweepers []*process
	for range 2 {
		p := start(t, "cleanup-worker", f.env(briefSweep)...)
		t.Cleanup(func() { f.stop(p) })
		p.ready()
		sweepers = append(sweepers, p)
	}
	eventually(t, 3*waitTime, "all orphans are gone", func() (bool, string) { n := count(); return n == 0, fmt.Sprint(n) })
	for _, p := range sweepers {
		eventually(t, waitTime, "a sweep ends", func() (bool, string) { return len(p.logged("swept")) > 0, "" })
		if n := len(p.logged("sweeping")); n < 2 {
			t.Errorf("%d lines of progress, want one for each page", n)
		}
		for _, event := range p.logged("branch decided") {
			if event["state"] != "deleted" {
				t.Fatalf("%v", event)
			}
		}
		// The binary has the race detector, which takes several times the memory.
		if peak := p.peakMemory(); peak > 200<<20 {
			t.Errorf("a sweep took %d MiB", peak>>20)
		} else {
			t.Logf("peak memory %d MiB, race detector included", peak>>20)
		}
	}
}

// peakMemory is the most memory the process had, in bytes.
func (p *process) peakMemory() int64 {
	p.t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/status")
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return kilobytes << 10
		}
	}
	p.t.Fatal("no VmHWM")
	return 0
}

func sorted(branches []txn.Branch) []txn.Branch { return slices.Sorted(slices.Values(branches)) }

// workflow reads a workflow as it is now.
func (f *fleet) workflow(id txn.WorkflowID) txn.Workflow {
	f.t.Helper()
	workflow, err := f.conductor.Workflow(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return workflow
}
