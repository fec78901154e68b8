package hostile

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/telemetry"
	"perago/pkg/txn"
)

// result is what became of one case.
type result struct {
	flow     flow
	lie      *lie
	workflow txn.Workflow
	// met is how many requests the lie met.
	met int
	// waited: the workflow did not end until an operator ended it.
	waited bool
	// published: the branch holds what the step was to publish.
	published bool
	// believed is why what the tasks say need not be what was asked for.
	believed string
	problems []string
	seen     map[call]int
	honest   map[call]reply
	mostRead int64
	took     time.Duration
	log      string
}

func (r *result) problem(format string, arguments ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, arguments...))
}

// run runs a chain once, with a lie in it unless that is nil, and judges it.
func run(t *testing.T, root string, metrics *telemetry.Metrics, of flow, one *lie) *result {
	t.Helper()
	got := &result{flow: of, lie: one}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, root)
		w.start(passes[0])
		if of == nothing {
			w.write(before)
		}
		began := time.Now()
		if of != again {
			w.liar.arm(one)
		}
		stop := w.workers(metrics)
		if of == again {
			first, ok := w.until(w.ended, limit)
			if !ok || first.Status != txn.WorkflowCompleted {
				t.Fatalf("the first pass, which nobody lies in: %s\n%s", describe(first), w.log)
			}
			w.write(passes[1])
			began = time.Now()
			w.liar.arm(one)
			w.must(w.operator.Rerun(t.Context(), w.id, first.Tasks[1].ID))
		}
		var ended bool
		within := limit
		if one != nil && (one.call.background() || one.answer.unending) {
			within = backgroundLimit
		}
		got.workflow, ended = w.until(w.ended, within)
		got.took = time.Since(began)
		if !ended {
			got.waited = true
			w.must(w.operator.Terminate(t.Context(), w.id, "it does not end"))
			// Whoever works for a task that is over finds it at the next heartbeat.
			time.Sleep(time.Minute)
			got.workflow, _ = w.until(func(txn.Workflow) bool { return true }, 0)
		}
		w.liar.mu.Lock()
		if w.liar.floods() {
			got.problem("%d requests in %s", w.liar.requests, time.Since(w.liar.start))
		}
		w.liar.mu.Unlock()
		// The last report is tried for as long as its lease lasts.
		time.Sleep(30 * time.Second)
		if err := stop(); err != nil {
			got.problem("the worker does not stop: %v", err)
		}
		w.liar.mu.Lock()
		got.met, got.seen, got.honest, got.mostRead = w.liar.met, w.liar.seen, w.liar.honest, w.liar.mostRead
		for _, stray := range w.liar.strays {
			got.problem("a request to another host: %s", stray)
		}
		w.liar.mu.Unlock()
		w.judge(got)
		got.log = w.log.String()
		_ = os.RemoveAll(filepath.Join(root, string(w.id)))
	})
	return got
}

// believed is why a case may end with something else than the step's files: there are
// lies that nobody can see through. Each is named here, and the branch is whole
// all the same.
func believed(one *lie) string {
	switch {
	case one == nil:
	case one.call.polls() && strings.Contains(one.answer.name, ".inputData"):
		return "what a task is to do is what Conductor says with it"
	case one.call.kind == "GET lakefs /refs/*/objects/ls" && one.answer.change != "":
		return "what a commit holds is what lakeFS lists of it"
	case one.call.kind == "POST lakefs /branches/*/objects" && !one.acts:
		return "what lakeFS says that it holds of an upload, it holds"
	case strings.HasPrefix(one.call.kind, "DELETE ") && !one.acts && (strings.Contains(one.answer.name, "404") || one.answer.name == idle.name):
		return "a branch that lakeFS says is gone is gone; if it is not, the sweep finds it"
	}
	return ""
}

// mostOfABody is what a worker may read of one answer, in bytes: Conductor's client
// takes at most 64 MiB, and drains a little of what it does not want.
const mostOfABody = 66 << 20

// judge compares what the workers told with what the servers hold.
func (w *world) judge(got *result) {
	w.t.Helper()
	ctx := w.t.Context()
	if strings.Contains(w.log.String(), "handler panicked") {
		got.problem("a handler panicked")
	}
	if got.mostRead > mostOfABody {
		got.problem("%d bytes of one answer were read", got.mostRead)
	}
	found, err := lakefstest.Violations(ctx, w.plainLake, w.repo, target, w.first)
	w.must(err)
	for _, v := range found {
		if v.Rule != lakefstest.RuleBranches {
			got.problem("%s", v)
		}
	}
	head, err := w.plainLake.Head(ctx, w.repo, target)
	w.must(err)
	commits, reached, err := w.plainLake.History(ctx, w.repo, head, w.first, txn.HistoryLimit)
	w.must(err)
	if !reached {
		got.problem("the input commit is not in the branch's history any more")
	}
	wanted, tree := sumsOf(w.tree(got.flow.files())), w.sums(head)
	got.published, got.believed = maps.Equal(tree, wanted), believed(got.lie)
	earlier := sumsOf(w.tree(before))
	least, most := 0, 1
	switch got.flow {
	case again:
		earlier, least, most = sumsOf(w.tree(passes[0])), 1, 2
	case nothing:
		// A repeated decision about a no-op is an empty commit.
		most = 4
	}
	if len(commits) < least || len(commits) > most {
		got.problem("%d commits on the branch", len(commits))
	}
	for branch, at := range w.decoys {
		if now, err := w.plainLake.Head(ctx, w.repo, branch); err != nil || now != at {
			got.problem("branch %s, which is not the step's, is at %s, %v", branch, now, err)
		}
	}
	if got.believed != "" {
		return
	}
	if !got.published && !maps.Equal(tree, earlier) {
		got.problem("the branch holds neither what was there nor what was staged: %v", slices.Sorted(maps.Keys(tree)))
	}
	all := got.workflow.Tasks
	if failure := w.failureOf(got.workflow); failure != nil {
		all = append(slices.Clone(all), failure.Tasks...)
	}
	newest := map[txn.ReferenceName]txn.Task{}
	for _, task := range all {
		newest[task.ReferenceName] = task
		if task.Status == txn.TaskCompleted {
			w.judgeTask(got, task, head, commits)
		}
	}
	if got.workflow.Status == txn.WorkflowCompleted {
		if !got.published {
			got.problem("COMPLETED, and the branch holds something else than the step's files")
		}
		for _, name := range []txn.ReferenceName{"checkout", "stage", "publish"} {
			if newest[name].Status != txn.TaskCompleted {
				got.problem("COMPLETED, and %s is %s", name, newest[name].Status)
			}
		}
	}
}

// judgeTask holds what a completed task put out to what is there.
func (w *world) judgeTask(got *result, task txn.Task, head txn.CommitID, commits []txn.Commit) {
	w.t.Helper()
	var output struct {
		Workspace *txn.Workspace `json:"workspace"`
		Staged    *txn.Staged    `json:"staged"`
		Checkout  *struct {
			Directory string `json:"directory"`
			Objects   int    `json:"objects"`
		} `json:"checkout"`
		Publication *txn.Publication `json:"publication"`
		Deleted     []txn.Branch     `json:"deleted"`
	}
	if err := json.Unmarshal(task.Output, &output); err != nil {
		got.problem("%s put out no JSON: %v", task.ReferenceName, err)
		return
	}
	switch task.Type {
	case txn.TypeCheckout:
		if output.Checkout == nil {
			got.problem("checkout is COMPLETED and put out %s", task.Output)
		} else if held := read(output.Checkout.Directory); !maps.Equal(held, before) {
			got.problem("checkout is COMPLETED and holds %v", held)
		}
	case txn.TypeStage:
		if output.Staged == nil {
			got.problem("stage is COMPLETED and put out %s", task.Output)
			return
		}
		if _, err := w.plainLake.Commit(w.t.Context(), w.repo, output.Staged.Commit); err != nil {
			got.problem("stage is COMPLETED and its commit is not there: %v", err)
		} else if tree := w.sums(output.Staged.Commit); !maps.Equal(tree, sumsOf(w.tree(got.flow.files()))) && !maps.Equal(tree, sumsOf(w.tree(passes[0]))) {
			got.problem("stage is COMPLETED and staged %v", slices.Sorted(maps.Keys(tree)))
		}
	case txn.TypePublish:
		if output.Publication == nil || output.Workspace == nil {
			got.problem("publish is COMPLETED and put out %s", task.Output)
			return
		}
		at := slices.IndexFunc(commits, func(c txn.Commit) bool { return c.ID == output.Workspace.Ref })
		if at < 0 && output.Workspace.Ref != w.first {
			got.problem("publish is COMPLETED with %s, which is not on the branch", output.Workspace.Ref.Short())
		}
		if got.flow != again && output.Workspace.Ref != head {
			got.problem("publish is COMPLETED with %s, and the branch is at %s", output.Workspace.Ref.Short(), head.Short())
		}
	case txn.TypeCleanup:
		for _, branch := range output.Deleted {
			if _, err := w.plainLake.Head(w.t.Context(), w.repo, branch); err == nil {
				got.problem("cleanup says that it deleted %s, which is there", branch)
			}
		}
	}
}

// read gives the files of a directory; nil when it cannot be read.
func read(directory string) map[string]string {
	entries, err := os.ReadDir(directory + "/")
	if err != nil {
		return nil
	}
	files := map[string]string{}
	for _, entry := range entries {
		raw, err := os.ReadFile(filepath.Join(directory, entry.Name()))
		if err != nil {
			return nil
		}
		files[entry.Name()] = string(raw)
	}
	return files
}
