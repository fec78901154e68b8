package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/fault"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// brief is one step whose publish has a short lease and quick retries.
func brief(f *fleet) string {
	return f.register("brief", publishedBy("perago_publish_brief", step("prepare", "data/", "${workflow.input.workspace}", nil))...)
}

// A publication that was merged and never completed is the next attempt's: it
// outputs the same commit and merges nothing, also under later commits of others.
func TestMergedButNeverCompletedIsAdopted(t *testing.T) {
	t.Parallel()
	for name, foreign := range map[string]bool{"at the head": false, "under a foreign commit": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleetOf(t, setup{files: map[string]string{"data/a": "1"}, without: "publish-worker"})
			f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
			dying := f.behind("publish-worker", publishEnv)
			held := dying.conductor.Hold(completion)
			id := f.start(brief(f), map[string]any{"workspace": f.workspace(f.first)})
			held.Wait(t, waitTime)
			published := f.head()
			if published == f.first {
				t.Fatal("the completion is on its way and nothing was merged")
			}
			task := f.inProgress(id, "prepare_publish")
			dying.kill()
			held.Drop()
			if foreign {
				f.commitForeign(map[string]string{"elsewhere": "1"})
			}
			head := f.head()

			next := start(t, "publish-worker", f.env(publishEnv)...)
			f.timeOut(id, task.ID)
			workflow := f.end(id)
			second := last(t, workflow, "prepare_publish")
			o := outputOf(t, second)
			if workflow.Status != txn.WorkflowCompleted || second.RetryCount != 1 || o.Publication.Outcome != txn.OutcomeAlreadyPublished || o.Workspace.Ref != published {
				t.Errorf("published was %s; the retry put out %s\n%s", published, second.Output, describe(workflow))
			}
			if f.head() != head {
				t.Errorf("the retry moved the head from %s to %s", head, f.head())
			}
			f.stop(next)
		})
	}
}

// A retry that brings other content supersedes the abandoned publication: the
// tree is its own projection on the input ref, without what only the abandoned
// attempt wrote. A protected branch stays protected.
func TestOtherContentSupersedes(t *testing.T) {
	t.Parallel()
	for name, protect := range map[string]bool{"open": false, "protected": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// What the killed attempt staged is settled only by the hard fence, so the
			// failure workflow's cleanup (TTL 0s) leaves it to the last cleanup.
			f := newFleetOf(t, setup{
				files: map[string]string{"data/a": "1", "data/keep": "k", "other": "o"}, without: "publish-worker",
				expect: []lakefstest.Expectation{lakefstest.Allow(lakefstest.RuleBranches)},
			})
			content := map[string]string{"a": "2", "keep": "k", "only the first": "x"}
			f.user("prepare", func(txn.Task) map[string]string { return content })
			if protect {
				f.protect("main")
			}
			dying := f.behind("publish-worker", publishEnv)
			held := dying.conductor.Hold(completion)
			name := brief(f)
			id := f.start(name, map[string]any{"workspace": f.workspace(f.first)})
			held.Wait(t, waitTime)
			abandoned := f.head()
			dying.kill()
			held.Drop()

			workflow, err := f.conductor.Workflow(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.operator.Terminate(t.Context(), id, "an operator stops it"); err != nil {
				t.Fatal(err)
			}
			content = map[string]string{"a": "3", "keep": "k", "only the second": "y"}
			next := start(t, "publish-worker", f.env(publishEnv)...)
			if err := f.operator.RerunPolled(t.Context(), id, last(t, workflow, "prepare").ID); err != nil {
				t.Fatal(err)
			}
			workflow = f.end(id)
			o := outputOf(t, last(t, workflow, "prepare_publish"))
			if workflow.Status != txn.WorkflowCompleted || o.Publication.Outcome != txn.OutcomePublished || o.Publication.Supersedes != abandoned || o.Publication.ExpectedHead != abandoned {
				t.Fatalf("abandoned was %s; the rerun put out %+v\n%s", abandoned, o.Publication, describe(workflow))
			}
			want := map[string]string{"data/a": "3", "data/keep": "k", "data/only the second": "y", "other": "o"}
			if diff := cmp.Diff(want, lakefstest.Tree(t, f.lake, f.repo, f.head())); diff != "" {
				t.Errorf("the tree (-want +got):\n%s", diff)
			}
			if record := f.record(f.head()); record.Supersedes != abandoned || o.Workspace.Ref != f.head() || f.history() != 2 {
				t.Errorf("head %s, supersedes %s, %d commits", f.head(), record.Supersedes, f.history())
			}
			f.stop(next)
		})
	}
}

// A foreign commit between the reading of the head and the merge: without the
// hard fence the merge lands on top of it. It is FAILED with the evidence, on
// every retry too, and never adopted.
func TestRacedMergeIsNeverCompleted(t *testing.T) {
	t.Parallel()
	var raced txn.CommitID
	f := newFleetOf(t, setup{
		files: map[string]string{"data/a": "1"}, without: "publish-worker",
		expect: []lakefstest.Expectation{lakefstest.Raced(func() []txn.CommitID { return []txn.CommitID{raced} })},
	})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	racing := f.behind("publish-worker", publishEnv)
	held := racing.lake.Hold(merge)
	id := f.start(brief(f), map[string]any{"workspace": f.workspace(f.first)})
	held.Wait(t, waitTime)
	foreign := f.commitForeign(map[string]string{"elsewhere": "1"})
	held.Pass()

	workflow := f.end(id)
	raced = f.head()
	if workflow.Status != txn.WorkflowFailed {
		t.Errorf("the workflow is %s", describe(workflow))
	}
	tries := 0
	for _, task := range workflow.Tasks {
		if task.ReferenceName != "prepare_publish" {
			continue
		}
		tries++
		o := outputOf(t, task)
		if task.Status != txn.TaskFailed || o.Workspace != nil || o.Publication == nil || o.Publication.Outcome != txn.OutcomeRaced || o.Publication.Commit != f.head() {
			t.Errorf("try %d is %s and put out %s", task.RetryCount, task.Status, task.Output)
		}
		want := []string{string(foreign), string(f.head())}
		for _, part := range want {
			if !strings.Contains(task.Reason, part) {
				t.Errorf("try %d: the reason does not name %s: %s", task.RetryCount, part, task.Reason)
			}
		}
	}
	if tries != 3 || f.history() != 2 {
		t.Errorf("%d tries and %d commits, want 3 and 2", tries, f.history())
	}
	if n := len(racing.lake.Matching(merge)); n != 1 {
		t.Errorf("%d merges were sent, want 1", n)
	}
	f.stop(racing.process)
}

// The late COMPLETED of a stage that a rerun had replaced is accepted by
// Conductor. Its content is not published.
func TestLateCompletionOfAReplacedStageIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{files: map[string]string{"data/a": "1"}, without: "stage-worker"})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	zombie := f.behind("stage-worker", f.stageEnv()...)
	late := zombie.conductor.Hold(completion)
	id := f.start(f.register("late", step("prepare", "data/", "${workflow.input.workspace}", nil)...), map[string]any{"workspace": f.workspace(f.first)})
	late.Wait(t, waitTime)
	task := f.inProgress(id, "prepare_stage")
	if err := f.operator.Terminate(t.Context(), id, "an operator stops it"); err != nil {
		t.Fatal(err)
	}
	live := f.behind("stage-worker", f.stageEnv()...)
	writing := live.lake.Hold(fault.Match{Method: http.MethodPost, Path: "/branches"})
	if err := f.operator.RerunPolled(t.Context(), id, task.ID); err != nil {
		t.Fatal(err)
	}
	writing.Wait(t, waitTime)
	late.Pass() // while the task is in progress for the other worker

	workflow := f.end(id)
	publish := last(t, workflow, "prepare_publish")
	if publish.Status != txn.TaskFailedWithTerminalError || !strings.Contains(publish.Reason, "the staged result comes from an execution that had been replaced") || !strings.Contains(publish.Reason, "rerun from prepare_stage") {
		t.Errorf("publish is %s: %s\n%s", publish.Status, publish.Reason, describe(workflow))
	}
	if f.head() != f.first {
		t.Error("the zombie's content was published")
	}
	writing.Drop()
	f.stop(live.process)
	f.stop(zombie.process)
}

// protect protects a branch and waits until lakeFS, which caches its rules,
// refuses a direct commit.
func (f *fleet) protect(branch string) {
	f.t.Helper()
	f.lakeRequest(http.MethodPut, "/settings/branch_protection", []map[string]string{{"pattern": branch}})
	// An upload would ask the same, and leave the branch dirty while it passes.
	eventually(f.t, waitTime, branch+" is protected", func() (bool, string) {
		_, err := f.lake.CreateCommit(f.t.Context(), f.repo, txn.Branch(branch), "probe", nil)
		if err == nil {
			f.t.Fatal("a commit of nothing was accepted")
		}
		return errors.Is(err, txn.ErrForbidden), err.Error()
	})
}

// lakeRequest sends what the client has no word for, because no worker does it.
func (f *fleet) lakeRequest(method, path string, body any) {
	f.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		f.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(f.t.Context(), method, f.servers.LakeFSURL+"/api/v1/repositories/"+string(f.repo)+path, bytes.NewReader(raw))
	if err != nil {
		f.t.Fatal(err)
	}
	request.SetBasicAuth(f.servers.AccessKeyID, f.servers.SecretAccessKey)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		f.t.Fatal(err)
	}
	defer response.Body.Close()
	if !slices.Contains([]int{http.StatusOK, http.StatusCreated, http.StatusNoContent}, response.StatusCode) {
		f.t.Fatalf("%s %s: %s", method, path, response.Status)
	}
}
