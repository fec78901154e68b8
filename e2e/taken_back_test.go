package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"perago/pkg/credential"
	"perago/pkg/explain"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// polled is a task that the test takes in a worker's place.
func (f *fleet) polled(taskType txn.TaskType) txn.Task {
	f.t.Helper()
	var task txn.Task
	eventually(f.t, waitTime, "a task is handed out", func() (bool, string) {
		tasks, err := f.conductor.Poll(f.t.Context(), txn.PollRequest{Type: taskType, Domain: f.domain, Worker: "zombie", Count: 1})
		if err != nil {
			f.t.Fatal(err)
		}
		if len(tasks) == 1 {
			task = tasks[0]
		}
		return len(tasks) == 1, ""
	})
	return task
}

// landedBy is the merge of a publish task's worker that dies before it says so.
func (f *fleet) landedBy(publish txn.Task) txn.CommitID {
	f.t.Helper()
	staged, err := txn.StagedOf(publish)
	if err != nil {
		f.t.Fatal(err)
	}
	record := txn.ConfirmRecord(txn.StepOf(staged, publish.Workflow, staged.Key), staged, txn.PublishDecision{ExpectedHead: f.head()}, staged.Commit, txn.AttemptOf(publish), staged.Execution)
	landed, err := f.lake.Merge(f.t.Context(), txn.Merge{Repository: f.repo, Source: staged.Commit, Destination: "main", Message: "publish", Metadata: record.Metadata("")})
	if err != nil {
		f.t.Fatal(err)
	}
	return landed
}

// explained is what `perago explain` says of a workflow.
func (f *fleet) explained(id txn.WorkflowID) explain.Explanation {
	f.t.Helper()
	out, said, code := f.perago("explain", string(id), "--output", "json")
	var e explain.Explanation
	if err := json.Unmarshal([]byte(out), &e); err != nil || code != 0 {
		f.t.Fatalf("explain: exit %d, %v: %s%s", code, err, out, said)
	}
	return e
}

// A publication that landed and was reverted is not adopted. The message says how
// to have it back, and doing so works.
func TestRetry_DoesNotAdoptWhatWasTakenBack(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{files: map[string]string{"data/a": "1"}, without: "publish-worker", expect: []lakefstest.Expectation{
		// The reverts are commits without metadata.
		lakefstest.Allow(lakefstest.RuleMetadata), lakefstest.Allow(lakefstest.RuleBranches),
	}})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	id := f.start(f.register("reverted", step("prepare", "data/", "${workflow.input.workspace}", nil)...), map[string]any{"workspace": f.workspace(f.first)})
	landed := f.landedBy(f.polled("perago_publish_once"))
	if err := f.operator.Terminate(t.Context(), id, "by the test"); err != nil {
		t.Fatal(err)
	}
	f.end(id)
	config := lakefs.Config{Endpoint: f.servers.LakeFSURL, AccessKeyID: credential.New(f.servers.AccessKeyID), SecretAccessKey: credential.New(f.servers.SecretAccessKey)}
	revert := func(commit txn.CommitID) txn.CommitID {
		lakefstest.Revert(t, config, nil, f.repo, "main", commit)
		return f.head()
	}
	reverted := revert(landed)
	says := func(text string) bool {
		return strings.HasPrefix(text, "data/ of main was published as "+string(landed)+" and taken back by "+string(reverted))
	}
	if e := f.explained(id); e.Steps[0].State != explain.StateTakenBack || !says(e.Steps[0].Summary) {
		t.Errorf("before the retry: %+v", e)
	}

	worker := start(t, "publish-worker", f.env(publishEnv)...)
	t.Cleanup(func() { f.stop(worker) })
	worker.ready()
	if err := f.operator.RetryTaken(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	workflow := f.end(id)
	publish := last(t, workflow, "prepare_publish")
	if o := outputOf(t, publish); publish.Status != txn.TaskFailedWithTerminalError || !says(publish.Reason) || o.Publication.Outcome != txn.OutcomeTakenBack || f.head() != reverted {
		t.Fatalf("the retry: %s", describe(workflow))
	}
	if e := f.explained(id); e.Steps[0].State != explain.StateTakenBack || len(e.Next) != 1 || !strings.Contains(e.Next[0], "revert "+reverted.Short()+" and retry") {
		t.Errorf("after the retry: %+v", e)
	}

	restored := revert(reverted)
	if err := f.operator.RetryTaken(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	workflow = f.end(id)
	if o := outputOf(t, last(t, workflow, "prepare_publish")); workflow.Status != txn.WorkflowCompleted || o.Publication.Outcome != txn.OutcomeAlreadyPublished || o.Publication.Commit != landed || f.head() != restored {
		t.Errorf("after the revert was reverted: %s", describe(workflow))
	}
}
