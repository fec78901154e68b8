package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"perago/pkg/fence"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// foreignLandings are what others land on a target whose head is at hand. below
// is a commit in its history that changed nothing of a step's.
var foreignLandings = []struct {
	name string
	land func(f *fleet, below txn.CommitID) txn.CommitID
	// parents is how many parents the commit has that lands.
	parents int
}{
	{"a foreign commit", func(f *fleet, _ txn.CommitID) txn.CommitID {
		return f.commitForeign(map[string]string{"elsewhere": "theirs"})
	}, 1},
	{"an ordinary merge", func(f *fleet, below txn.CommitID) txn.CommitID {
		return f.landed(fmt.Sprintf("/refs/%s/merge/main", f.aside(below)), map[string]any{})
	}, 2},
	{"a revert", func(f *fleet, below txn.CommitID) txn.CommitID {
		return f.landed("/branches/main/revert", map[string]any{"ref": below, "parent_number": 0})
	}, 1},
	{"a cherry-pick", func(f *fleet, below txn.CommitID) txn.CommitID {
		return f.landed("/branches/main/cherry-pick", map[string]any{"ref": f.aside(below)})
	}, 1},
}

// What others land on the target under the hard fence, on either side of a
// publication. Between the reading of the head and the merge: lakeFS refuses ours.
// Just after ours: it is accepted, ours stays what it is, and the next step's
// fence names it.
func TestForeignLandings(t *testing.T) {
	t.Parallel()
	for order, run := range map[string]func(t *testing.T, f *fleet, base txn.CommitID, land func(on txn.CommitID) txn.CommitID){
		"between the head and the merge": foreignBeforeOurs, "just after ours": foreignAfterOurs,
	} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			f := newFleetOf(t, setup{
				files: map[string]string{"data/a": "1", "models/m": "1", txn.FenceFile: string(fence.File())}, without: "publish-worker",
				expect: []lakefstest.Expectation{lakefstest.Expect(lakefstest.RuleLinear)}, // the ordinary merge
			})
			for _, user := range []txn.TaskType{"prepare", "train"} {
				f.user(user, func(task txn.Task) map[string]string { return map[string]string{"of": string(task.Workflow)} })
			}
			for _, foreign := range foreignLandings {
				t.Run(foreign.name, func(t *testing.T) {
					base := f.commitForeign(map[string]string{"elsewhere": foreign.name})
					run(t, f, base, func(on txn.CommitID) txn.CommitID {
						landed := foreign.land(f, base)
						commit, err := f.lake.Commit(t.Context(), f.repo, landed)
						if err != nil || len(commit.Parents) != foreign.parents || commit.Parents[0] != on || f.head() != landed {
							t.Fatalf("%s has parents %v, %v; want %d, the first %s", landed, commit.Parents, err, foreign.parents, on)
						}
						return landed
					})
				})
			}
		})
	}
}

func foreignBeforeOurs(t *testing.T, f *fleet, base txn.CommitID, land func(on txn.CommitID) txn.CommitID) {
	answers := f.answers()
	publish := f.behind("publish-worker", publishEnv)
	held := publish.lake.Hold(merge)
	id := f.start(f.register("before", step("prepare", "data/", "${workflow.input.workspace}", nil)...), map[string]any{"workspace": f.workspace(base)})
	held.Wait(t, waitTime)
	foreign := land(base)
	held.Pass()

	workflow := f.end(id)
	task := last(t, workflow, "prepare_publish")
	o := outputOf(t, task)
	want := fmt.Sprintf("main advanced from %s to %s; start a new workflow with ref=%s, or rerun prepare_stage with that workspace.ref, which keeps this step's files", base, foreign, foreign)
	if task.Status != txn.TaskFailed || task.Reason != want || o.Workspace != nil || o.Publication.Outcome != txn.OutcomeRefused {
		t.Errorf("%s\nput out %s\nwant %s", describe(workflow), task.Output, want)
	}
	refusedByTheFence(t, answers(), base, foreign, http.StatusPreconditionFailed)
	if f.head() != foreign {
		t.Errorf("the head is %s, want %s", f.head(), foreign)
	}
	f.stop(publish.process)
}

func foreignAfterOurs(t *testing.T, f *fleet, base txn.CommitID, land func(on txn.CommitID) txn.CommitID) {
	dying := f.behind("publish-worker", publishEnv)
	held := dying.conductor.Hold(completion)
	tasks := append(step("prepare", "data/", "${workflow.input.workspace}", nil), step("train", "models/", "${prepare_publish.output.workspace}", nil)...)
	id := f.start(f.register("after", tasks...), map[string]any{"workspace": f.workspace(base)})
	held.Wait(t, waitTime)
	published := f.head()
	foreign := land(published)
	dying.kill()
	held.Drop()

	next := start(t, "publish-worker", f.env(publishEnv)...)
	f.rerunFrom(id, "prepare_publish")
	workflow := f.end(id)
	again := last(t, workflow, "prepare_publish")
	o := outputOf(t, again)
	if o.Publication == nil || o.Publication.Outcome != txn.OutcomeAlreadyPublished || o.Workspace.Ref != published || o.Publication.Fence != txn.FenceHard || o.Publication.ExpectedHead != base {
		t.Fatalf("published was %s; the rerun put out %s\n%s", published, again.Output, describe(workflow))
	}
	refused := last(t, workflow, "train_publish")
	want := fmt.Sprintf("main advanced from %s to %s; start a new workflow with ref=%s, or rerun train_stage with that workspace.ref, which keeps this step's files", published, foreign, foreign)
	if refused.Status != txn.TaskFailed || refused.Reason != want || f.head() != foreign {
		t.Errorf("%s\nwant %s", describe(workflow), want)
	}
	f.stop(next)
}

// aside commits beside main, on a branch of its own from this commit.
func (f *fleet) aside(from txn.CommitID) txn.CommitID {
	f.t.Helper()
	branch := txn.Branch("aside-" + from.Short())
	if err := f.lake.CreateBranch(f.t.Context(), f.repo, branch, from); err != nil {
		f.t.Fatal(err)
	}
	lakefstest.Put(f.t, f.lake, f.repo, branch, map[string]string{"beside": string(from)})
	commit, err := f.lake.CreateCommit(f.t.Context(), f.repo, branch, "beside", nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return commit.ID
}

// landed asks lakeFS for what no worker does, and gives the head that it made.
func (f *fleet) landed(path string, body any) txn.CommitID {
	f.t.Helper()
	f.lakeRequest(http.MethodPost, path, body)
	return f.head()
}
