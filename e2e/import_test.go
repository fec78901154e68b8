package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// What is in the object store already is published without a copy: exactly, under
// the fence like everything else, and the same again is a no-op that leaves no branch.
func TestImportIsPublished(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "old", "data/gone": "x", "data.json": "j", "data2/z": "z"})
	directory, err := os.MkdirTemp(f.servers.ImportDir, "e2e")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	write(t, directory, map[string]string{"a": "new", "deep/er/b": "2", "empty": "", "sp ace%41+é": "3"})
	name := f.register("import", step("prepare", "data", "${workflow.input.workspace}", func(stage map[string]any) {
		stage["source"] = map[string]any{"import": "local://" + directory}
		stage["guardrails"] = []any{map[string]any{"require_dir": "deep/er"}}
	})[1:]...)

	workflow := f.completed(name, map[string]any{"workspace": f.workspace(f.first)})
	staged := outputOf(t, last(t, workflow, "prepare_stage")).Staged
	if staged.Added != 3 || staged.Changed != 1 || staged.Removed != 1 || staged.Bytes != 0 || staged.NoOp {
		t.Errorf("staged %+v", staged)
	}
	published := outputOf(t, last(t, workflow, "prepare_publish"))
	if published.Publication.Outcome != txn.OutcomePublished || published.Workspace.Ref != f.head() {
		t.Errorf("published %+v", published.Publication)
	}
	want := map[string]string{"data/a": "new", "data/deep/er/b": "2", "data/empty": "", "data/sp ace%41+é": "3", "data.json": "j", "data2/z": "z"}
	if diff := cmp.Diff(want, lakefstest.Tree(t, f.lake, f.repo, f.head())); diff != "" {
		t.Errorf("the published tree differs (-want +got):\n%s", diff)
	}

	head := f.head()
	again := f.completed(name, map[string]any{"workspace": f.workspace(head)})
	if o := outputOf(t, last(t, again, "prepare_publish")); o.Publication.Outcome != txn.OutcomeNoOp || o.Workspace.Ref != head || f.head() != head {
		t.Errorf("the same again: %+v, main at %s", o.Publication, f.head())
	}
}

// A guardrail of an import is asked about what was staged, and nothing is handed
// on.
func TestGuardrailsOfAnImport(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "old"})
	directory, err := os.MkdirTemp(f.servers.ImportDir, "e2e")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	write(t, directory, map[string]string{"a.tmp": "new"})
	tasks := step("prepare", "data/", "${workflow.input.workspace}", func(stage map[string]any) {
		stage["source"] = map[string]any{"import": "local://" + directory + "/"}
		stage["guardrails"] = []any{map[string]any{"forbid_glob": "**/*.tmp"}}
	})[1:]
	tasks[0]["name"] = "perago_stage_once"
	workflow := f.run(f.register("import_guardrails", tasks...), map[string]any{"workspace": f.workspace(f.first)})
	task := last(t, workflow, "prepare_stage")
	const violation = `forbid_glob "**/*.tmp": matched by "a.tmp"`
	if task.Status != txn.TaskFailed || !strings.Contains(task.Reason, violation) || f.head() != f.first {
		t.Errorf("want %s: %s", violation, describe(workflow))
	}
	if diff := cmp.Diff([]string{violation}, violationsOf(t, task)); diff != "" {
		t.Error(diff)
	}
}
