package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/checkout"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// read is what lies below a directory: path to content.
func read(t testing.TB, directory string) map[string]string {
	all := map[string]string{}
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(directory, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		all[name] = string(content)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return all
}

func checkoutOf(t testing.TB, task txn.Task) checkout.Checkout {
	t.Helper()
	var output struct {
		Checkout checkout.Checkout `json:"checkout"`
	}
	decode(t, task.Output, &output)
	return output.Checkout
}

// violationsOf is the list in the output of a task that failed at its
// guardrails.
func violationsOf(t testing.TB, task txn.Task) []string {
	t.Helper()
	var output struct {
		Violations []string `json:"violations"`
	}
	decode(t, task.Output, &output)
	return output.Violations
}

// What was published, checked out, is what the user task reads; what it makes of
// that is published in turn.
func TestCheckoutIsWhatWasPublished(t *testing.T) {
	t.Parallel()
	held := map[string]string{
		"days.json": "[]", "day=1/visits.csv": "1", ".hidden": "h", ".git/config": "", "empty": "", "deep/er/x": "d", "deep.er": "e",
		"sp ace": "1", "pl+us": "2", "pc%41": "3", "h#x": "4", "q?x": "5", "a&b": "6", "тест/данные": "7", "emo😀": "8",
		" lead": "9", "trail ": "10", "it's": "11", "back\\slash": "12", "new\nline": "13", "..double": "14",
		strings.Repeat("n", 255): "long", "big": strings.Repeat("big ", 1<<19),
	}
	repository := map[string]string{"data.json": "sibling", "data2/z": "sibling", "models/m": "old"}
	bytes := 0
	for path, content := range held {
		repository["data/"+path] = content
		bytes += len(content)
	}
	f := newFleet(t, repository)
	f.user("train", func(task txn.Task) map[string]string {
		var input struct {
			Data string `json:"data"`
		}
		decode(t, task.Input, &input)
		files := map[string]string{"metrics.json": "{}"}
		for path, content := range read(t, input.Data) {
			files["from/"+path] = content
		}
		return files
	})
	workflow := f.completed("perago_example_checkout", map[string]any{"workspace": f.workspace(f.first)})

	task := last(t, workflow, "train_checkout")
	c := checkoutOf(t, task)
	if c.Objects != len(held) || c.Bytes != int64(bytes) || filepath.Dir(c.Directory) != filepath.Join(f.root, string(workflow.ID)) ||
		!strings.HasPrefix(filepath.Base(c.Directory), "checkout-"+string(task.ID)+"-") {
		t.Errorf("%+v, want %d objects of %d bytes below %s", c, len(held), bytes, workflow.ID)
	}
	if o := outputOf(t, task); o.Workspace == nil || o.Workspace.Ref != f.first || len(o.Timings) == 0 {
		t.Errorf("checkout put out %s", task.Output)
	}
	want := map[string]string{"data.json": "sibling", "data2/z": "sibling", "models/metrics.json": "{}"}
	for path, content := range held {
		want["data/"+path], want["models/from/"+path] = content, content
	}
	if diff := cmp.Diff(want, lakefstest.Tree(t, f.lake, f.repo, f.head())); diff != "" {
		t.Errorf("the published tree differs (-want +got):\n%s", diff)
	}
}

// A guardrail of the input ends the workflow before the user task has begun.
func TestGuardrailsOfTheInputComeFirst(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/day=1/visits.csv": "1"})
	workflow := f.run("perago_example_checkout", map[string]any{"workspace": f.workspace(f.first)})
	task := last(t, workflow, "train_checkout")
	const violation = `require_file "days.json": there is no such file`
	if workflow.Status != txn.WorkflowFailed || len(workflow.Tasks) != 1 || task.Status != txn.TaskFailedWithTerminalError || !strings.Contains(task.Reason, violation) {
		t.Errorf("want the checkout to fail terminally with %q and nothing after it: %s", violation, describe(workflow))
	}
	if diff := cmp.Diff([]string{violation}, violationsOf(t, task)); diff != "" {
		t.Error(diff)
	}
	if left, err := filepath.Glob(filepath.Join(f.root, "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("left on disk: %q, %v", left, err)
	}
}

// A key that has no file of its own is somebody's attempt to write elsewhere.
func TestHostileKeyIsNotDownloaded(t *testing.T) {
	t.Parallel()
	key := "data/../../../../escaped"
	f := newFleet(t, map[string]string{"data/days.json": "1", "data/day=1/visits.csv": "1", key: "x"})
	workflow := f.run("perago_example_checkout", map[string]any{"workspace": f.workspace(f.first)})
	task := last(t, workflow, "train_checkout")
	if task.Status != txn.TaskFailedWithTerminalError || !strings.Contains(task.Reason, fmt.Sprintf("%q", key)) || !strings.Contains(task.Reason, "segment ..") {
		t.Errorf("want %q refused: %s", key, describe(workflow))
	}
	if left, err := filepath.Glob(filepath.Join(f.root, "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("left on disk: %q, %v", left, err)
	}
}

// Every guardrail that a step's files violate is in the task's output, and
// nothing of the step in the lake; the reason is cut where it must be.
func TestGuardrailsOfTheFiles(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "1", "data/b": "1", "data/c": "1"})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2", "x/y.tmp": "1"} })
	guardrails := []any{
		map[string]any{"require_file": "metrics.json"}, map[string]any{"forbid_glob": "**/*.tmp"},
		map[string]any{"require_glob": map[string]any{"pattern": "**/*.parquet", "min": 3}},
		map[string]any{"max_removed": map[string]any{"count": 1}},
	}
	want := []string{
		`require_file "metrics.json": there is no such file`, `forbid_glob "**/*.tmp": matched by "x/y.tmp"`,
		`require_glob "**/*.parquet": 0 files match, at least 3 must`,
	}
	for i := range 12 {
		name := fmt.Sprintf("%02d-%s", i, strings.Repeat("n", 40))
		guardrails = append(guardrails, map[string]any{"require_dir": name})
		want = append(want, fmt.Sprintf("require_dir %q: there is no file in such a directory", name))
	}
	want = append(want, "max_removed.count: 2 of 3 objects would be removed, at most 1 may")
	tasks := step("prepare", "data/", "${workflow.input.workspace}", func(stage map[string]any) { stage["guardrails"] = guardrails })
	tasks[1]["name"] = "perago_stage_once"
	workflow := f.run(f.register("guardrails", tasks...), map[string]any{"workspace": f.workspace(f.first)})
	task := last(t, workflow, "prepare_stage")
	if task.Status != txn.TaskFailed || !strings.HasPrefix(task.Reason, "guardrails: "+want[0]+"; "+want[1]) || len([]rune(task.Reason)) != txn.DefaultReasonLength {
		t.Errorf("%s: %s", task.Status, task.Reason)
	}
	if diff := cmp.Diff(want, violationsOf(t, task)); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
	var whole struct {
		Error string `json:"error"`
	}
	for line := range strings.Lines(f.stage.stderr()) {
		if strings.Contains(line, `"task failed"`) {
			if err := json.Unmarshal([]byte(line), &whole); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !strings.HasSuffix(whole.Error, want[len(want)-1]) {
		t.Errorf("the log has %q; want every violation", whole.Error)
	}
	branches, err := f.lake.Branches(t.Context(), f.repo, "perago-")
	if err != nil || len(branches) > 0 || f.head() != f.first {
		t.Errorf("branches %v, %v; main at %s", branches, err, f.head())
	}
}

// A checkout behind a step reads what that step has published, as perago insert wires
// it. A checkout that is wired to where the workflow began completes with the files of
// the run before: lint finds it, unless as_of says that they are meant.
func TestCheckout_BehindAStepReadsWhatWasPublished(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "run 0"})
	runs := 0
	f.user("prepare", func(txn.Task) map[string]string { runs++; return map[string]string{"a": fmt.Sprintf("run %d", runs)} })
	f.user("train", func(task txn.Task) map[string]string {
		var input struct {
			Data string `json:"data"`
		}
		decode(t, task.Input, &input)
		return map[string]string{"from": read(t, input.Data)["a"]}
	})
	name := "behind_" + strings.ReplaceAll(f.domain, "-", "_")
	text := `{
  "name": "` + name + `", "version": 1, "schemaVersion": 2, "ownerEmail": "owner@example.com", "timeoutPolicy": "ALERT_ONLY", "timeoutSeconds": 0,
  "inputParameters": ["workspace"],
  "tasks": [
    {"name": "prepare", "taskReferenceName": "prepare", "type": "SIMPLE"},
    {"name": "perago_checkout", "taskReferenceName": "get", "type": "SIMPLE", "inputParameters": {"workspace": "${workflow.input.workspace}", "prefix": "data/"}},
    {"name": "train", "taskReferenceName": "train", "type": "SIMPLE", "inputParameters": {"data": "${get.output.checkout.directory}"}}
  ]
}
`
	file := filepath.Join(t.TempDir(), "mine.json")
	save := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	save(text)
	for _, step := range [][2]string{{"prepare", "data/"}, {"train", "models/"}} {
		out, said, code := f.perago("insert", file, "--after", step[0], "--prefix", step[1])
		if code != 0 {
			t.Fatalf("insert after %s: %s", step[0], said)
		}
		text = out
		save(text)
	}
	// from is what train read, in a run of the workflow from the head.
	from := func(run string) (string, txn.Workflow) {
		if out, said, code := f.perago("lint", file, "--without", "hard-fence"); code != 0 {
			t.Fatalf("lint: %s%s", out, said)
		}
		if _, said, code := f.perago("register", file); code != 0 {
			t.Fatalf("register: %s", said)
		}
		workflow := f.completed(name, map[string]any{"workspace": f.workspace(f.head())})
		tree := lakefstest.Tree(t, f.lake, f.repo, f.head())
		if tree["data/a"] != run {
			t.Errorf("data/a is %q, want %q", tree["data/a"], run)
		}
		return tree["models/from"], workflow
	}
	got, workflow := from("run 1")
	checkout, published := outputOf(t, last(t, workflow, "get")), outputOf(t, last(t, workflow, "prepare_publish"))
	if got != "run 1" || checkout.Workspace == nil || published.Workspace == nil || checkout.Workspace.Ref != published.Workspace.Ref {
		t.Errorf("train read the files of %s, checked out from %+v, and prepare published %+v", got, checkout.Workspace, published.Workspace)
	}

	rewired := func(input string) string {
		const wired = `"${prepare_publish.output.workspace}", "prefix": "data/"`
		if !strings.Contains(text, wired) {
			t.Fatalf("insert has not wired the checkout: %s", text)
		}
		return strings.Replace(text, wired, `"${workflow.input.workspace}", "prefix": "data/"`+input, 1)
	}
	save(rewired(""))
	if out, said, code := f.perago("lint", file, "--without", "hard-fence"); code != 1 || !strings.Contains(out, "workspace-chain\tget downloads files from where the workflow began") {
		t.Errorf("lint of a stale checkout: exit %d: %s%s", code, out, said)
	}
	save(rewired(`, "as_of": true`))
	if got, _ := from("run 2"); got != "run 1" {
		t.Errorf("with as_of train read the files of %s, want those of run 1", got)
	}
}
