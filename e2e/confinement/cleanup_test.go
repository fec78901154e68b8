//go:build unix

package confinement

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// A sweep takes the directory of a workflow that has ended with every link in it,
// and nothing that a link leads to.
func TestSweepStaysInItsDirectory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		// plant acts before, asked when the sweep asks about the ended workflow for the
		// first time, again when it has set the directory aside and asks once more.
		plant, asked func(w *world)
		again        func(w *world, aside string)
	}{
		{name: "links of every kind", plant: func(w *world) {
			for name, target := range map[string]string{
				"out": w.beside("outside"), "file": w.beside("outside", "task", "a"), "near": "../../" + string(neighbor), "up": "../..", "self": "self",
				"dangling": "nowhere", "new": w.beside("outside", "new"), "top": "/", "proc": "/proc/self/cwd",
			} {
				w.link(target, string(ended), "task", name)
				w.link(target, string(ended), "task", "deep", "er", name)
			}
		}},
		{name: "a hard link to a file outside", plant: func(w *world) {
			if err := errors.Join(os.MkdirAll(w.in(string(ended)), 0o755), os.Link(w.beside("outside", "task", "a"), w.in(string(ended), "a"))); err != nil {
				w.t.Fatal(err)
			}
		}},
		{name: "itself a link to outside", plant: func(w *world) { w.link(w.beside("outside"), string(ended)) }},
		{name: "itself a link to another workflow's", plant: func(w *world) { w.link(string(neighbor), string(ended)) }},
		{name: "itself a link to the root", plant: func(w *world) { w.link(".", string(ended)) }},
		{name: "itself a loop", plant: func(w *world) { w.link(string(ended), string(ended)) }},
		{name: "becomes a link to outside", asked: func(w *world) { w.swap(w.in(string(ended)), w.beside("outside")) }},
		{name: "becomes a link to another workflow's", asked: func(w *world) { w.swap(w.in(string(ended)), string(neighbor)) }},
		{name: "a directory in it becomes a link to outside", asked: func(w *world) { w.swap(w.in(string(ended), "task"), w.beside("outside", "task")) }},
		{name: "set aside, it becomes a link to outside", again: func(w *world, aside string) { w.swap(aside, w.beside("outside")) }},
		{name: "set aside, it becomes a link to another workflow's", again: func(w *world, aside string) { w.swap(aside, string(neighbor)) }},
		{name: "set aside, a directory in it becomes a link to outside", again: func(w *world, aside string) { w.swap(filepath.Join(aside, "task"), w.beside("outside", "task")) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			for _, name := range files {
				w.write(w.in(string(ended), "task", name), w.inside)
			}
			if c.plant != nil {
				c.plant(w)
			}
			w.guard()
			times := 0
			w.directories.Workflows = asked{&w.ends, func() {
				switch times++; {
				case times == 1 && c.asked != nil:
					c.asked(w)
				case times == 2 && c.again != nil:
					aside, err := filepath.Glob(w.in(".perago-aside-*-" + string(ended)))
					if err != nil || len(aside) != 1 {
						t.Fatalf("%q, %v", aside, err)
					}
					c.again(w, aside[0])
				}
			}}
			swept := w.sweep()
			w.intact(c.name)
			if swept.Deleted != 1 || swept.Failed != 0 {
				t.Errorf("%+v", swept)
			}
			if _, err := os.Lstat(w.in(string(ended))); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it is still there: %v", err)
			}
			if _, err := os.Lstat(w.own("task", "a")); err != nil {
				t.Error(err)
			}
		})
	}
}

// asked calls back when it is asked about the ended workflow.
type asked struct {
	*ends
	call func()
}

func (a asked) WorkflowStatus(ctx context.Context, id txn.WorkflowID) (txn.WorkflowStatus, error) {
	if id == ended {
		a.call()
	}
	return a.ends.WorkflowStatus(ctx, id)
}

// Names in the root that are no workflow's, or another's, stay, whatever they look
// like.
func TestSweepTakesNoOthersDirectory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	names := []string{string(ended) + "2", strings.ToUpper(string(ended)), string(ended) + ";x", string(ended) + "%2e", " " + string(ended), string(ended) + " ", string(ended) + "\\..", "...", "..x", string(ended)[:8], "\xff", string(ended) + "\n"}
	for _, name := range names {
		w.write(w.in(name, "a"), w.others)
	}
	w.write(w.in(string(ended), "a"), w.inside)
	w.guard()
	swept := w.sweep()
	w.intact("names like a workflow's")
	if swept.Deleted != 1 || swept.Kept != len(names)+3 {
		t.Errorf("%+v, want the ended workflow's deleted and %d kept", swept, len(names)+3)
	}
	for _, name := range names {
		if _, err := os.Lstat(w.in(name, "a")); err != nil {
			t.Error(err)
		}
	}
}

// A cleanup is given what is somebody else's: nothing is deleted, and of what is no
// part of the allow-list nothing is even asked.
func TestCleanupTakesNothingOfOthers(t *testing.T) {
	t.Parallel()
	const execution = txn.ExecutionID("01890a5d-ac96-774b-bcce-b302099a8057")
	key := txn.NewLogicalTaskKey(workflow, "step", 0)
	name := func(conductor txn.ConductorIdentity, id txn.WorkflowID, key txn.LogicalTaskKey) string {
		return string(txn.NewStagingName(conductor, id, key, 0, execution).Branch())
	}
	own := name(identity, workflow, key)
	for _, c := range []struct {
		name string
		// change is of the input's fields, those of staged behind "staged.".
		change map[string]string
	}{
		{"the target", map[string]string{"staged.staging_branch": "main"}},
		{"another workflow's branch", map[string]string{"staged.staging_branch": name(identity, neighbor, txn.NewLogicalTaskKey(neighbor, "step", 0))}},
		{"another workflow's branch under this step's key", map[string]string{"staged.staging_branch": name(identity, neighbor, key)}},
		{"another step's branch", map[string]string{"staged.staging_branch": name(identity, workflow, txn.NewLogicalTaskKey(workflow, "other", 0))}},
		{"another Conductor's branch", map[string]string{"staged.staging_branch": name("another", workflow, key)}},
		{"another workflow's key", map[string]string{"staged.logical_task_key": string(txn.NewLogicalTaskKey(neighbor, "step", 0))}},
		{"another workflow's key, and a branch of it", map[string]string{
			"staged.logical_task_key": string(txn.NewLogicalTaskKey(neighbor, "step", 0)), "staged.staging_branch": name(identity, workflow, txn.NewLogicalTaskKey(neighbor, "step", 0)),
		}},
		{"a workflow's key whose name begins alike", map[string]string{"staged.logical_task_key": string(txn.NewLogicalTaskKey(workflow+"2", "step", 0))}},
		{"a name that goes on", map[string]string{"staged.staging_branch": own + "-x"}},
		{"a name that leads up", map[string]string{"staged.staging_branch": "../main"}},
		{"a name with a slash", map[string]string{"staged.staging_branch": own + "/objects"}},
		{"a name in capitals", map[string]string{"staged.staging_branch": strings.ToUpper(own)}},
		{"another target in staged", map[string]string{"staged.branch": "release"}},
		{"another repository in staged", map[string]string{"staged.repository": "another"}},
		{"another repository in both", map[string]string{"staged.repository": "another", "repository": "another"}},
		{"another target in both", map[string]string{"staged.branch": "release", "branch": "release"}},
		{"a staging branch for the target", map[string]string{"staged.branch": own, "branch": own}},
		{"a workflow that leads up", map[string]string{"workflow_id": "../" + string(neighbor)}},
		{"no workflow", map[string]string{"workflow_id": ""}},
		{"a workflow that Conductor does not know", map[string]string{"workflow_id": "unknown"}},
		{"another workflow, which runs on a repository that is not allowed", map[string]string{"workflow_id": string(neighbor)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{"data/a": "1"})
			// Were the wrong name believed, there would be something to delete.
			for _, branch := range []string{own, name(identity, neighbor, key), name("another", workflow, key), own + "-x"} {
				if err := w.lake.CreateBranch(t.Context(), w.repo, txn.Branch(branch), w.first); err != nil {
					t.Fatal(err)
				}
			}
			w.ends[neighbor] = txn.Workflow{ID: neighbor, Status: txn.WorkflowCompleted, Tasks: []txn.Task{{
				ID: "t", Workflow: neighbor, Type: txn.TypeStage, ReferenceName: "step", Status: txn.TaskCompleted,
				Input: json.RawMessage(`{"workspace": {"repository": "another", "branch": "main", "ref_type": "commit", "ref": "` + string(w.first) + `"}}`),
			}}}
			w.guard()
			workspace := w.workspace()
			staged := map[string]any{
				"repository": w.repo, "branch": lakefstest.DefaultBranch, "staging_branch": own, "commit": strings.Repeat("0", 64), "logical_task_key": key, "input_ref": w.first,
				"prefix": "data/", "task_id": "t", "retry_count": 0, "poll_count": 1, "start_time": 1, "execution_id": execution, "no_op": false, "read_only": false,
				"added": 0, "changed": 0, "removed": 0, "unchanged": 0, "bytes": 0,
			}
			input := map[string]any{"workspace": workspace, "staged": staged}
			for field, value := range c.change {
				switch of, inside := strings.CutPrefix(field, "staged."); {
				case inside:
					staged[of] = value
				case field == "repository":
					workspace.Repository = txn.Repository(value)
				case field == "branch":
					workspace.Branch = txn.Branch(value)
				default:
					delete(input, "staged")
					delete(input, "workspace")
					input[field] = value
				}
			}
			if _, ok := input["workspace"]; ok {
				input["workspace"] = workspace
			}
			task := w.task(workflow, txn.TypeCleanup, nil)
			raw, err := json.Marshal(input)
			if err != nil {
				t.Fatal(err)
			}
			task.Input = raw
			result, err := w.cleaner.Run(t.Context(), task, attempt{})
			w.tell(result.Output(), err)
			w.intact(c.name)
			if err != nil || len(result.Deleted) > 0 || len(result.Errors) == 0 {
				t.Errorf("%v, %+v; want a problem and nothing deleted", err, result)
			}
			if sent := w.wire.count(""); sent != 0 {
				t.Errorf("%d requests, want none: %q", sent, w.wire.sent)
			}
		})
	}
	// The same input without a change does ask, and deletes what is the step's own once
	// nothing needs it: the refusals above are not of something else in it.
	w := newWorld(t, map[string]string{"data/a": "1"})
	if err := w.lake.CreateBranch(t.Context(), w.repo, txn.Branch(own), w.first); err != nil {
		t.Fatal(err)
	}
	w.guard()
	step := txn.Workflow{ID: workflow, Status: txn.WorkflowCompleted, Tasks: []txn.Task{{
		ID: "t", Workflow: workflow, Type: txn.TypeStage, ReferenceName: "step", Status: txn.TaskFailed, Input: w.task(workflow, txn.TypeStage, nil).Input,
	}}}
	w.ends[workflow] = step
	task := w.task(neighbor, txn.TypeCleanup, nil)
	task.Input = json.RawMessage(`{"workflow_id": "` + string(workflow) + `"}`)
	result, err := w.cleaner.Run(t.Context(), task, attempt{})
	w.tell(result.Output(), err)
	w.intact("the step's own")
	if err != nil || len(result.Deleted) != 1 || w.wire.count(http.MethodDelete) != 1 {
		t.Errorf("%v, %+v", err, result)
	}
}
