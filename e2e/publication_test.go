package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/fault"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// lakeBefore has siblings that a raw string prefix of data/ would catch, a dot
// file and files to change, keep and remove.
var lakeBefore = map[string]string{
	"data/a.csv": "old", "data/keep.csv": "kept", "data/gone.csv": "removed", "data/.hidden": "stays", "data/d": "a file",
	"data.json": "sibling", "data2/z.csv": "sibling", "models/m.bin": "old model", "README": "outside",
}

func TestPublishedTreeIsTheProjectionOnTheInputRef(t *testing.T) {
	t.Parallel()
	f := newFleet(t, lakeBefore)
	projection := map[string]string{
		"a.csv": "new", "keep.csv": "kept", ".hidden": "stays", "empty": "", "d/now/a directory": "x",
		"sp ace": "1", "pl+us": "2", "pc%41": "3", "100%.csv": "4", "h#x": "5", "q?x": "6", "a&b": "7", "col=1/x": "8",
		"тест/данные": "9", "emo😀": "10", " lead": "11", "trail ": "12", "it's": "13", "back\\slash": "14", "nothing/": "",
	}
	f.user("prepare", func(txn.Task) map[string]string { return projection })
	f.user("train", func(txn.Task) map[string]string { return map[string]string{"m.bin": "new model"} })

	workflow := f.completed("perago_example_two_steps", map[string]any{"workspace": f.workspace(f.first)})

	want := map[string]string{"models/m.bin": "new model"}
	for path, content := range lakeBefore {
		if !strings.HasPrefix(path, "data/") && !strings.HasPrefix(path, "models/") {
			want[path] = content
		}
	}
	for path, content := range projection {
		if !strings.HasSuffix(path, "/") { // an empty directory has no form in lakeFS
			want["data/"+path] = content
		}
	}
	if diff := cmp.Diff(want, lakefstest.Tree(t, f.lake, f.repo, f.head())); diff != "" {
		t.Errorf("the published tree differs (-want +got):\n%s", diff)
	}

	stage := outputOf(t, last(t, workflow, "prepare_stage"))
	staged := stage.Staged
	if staged.Added != 16 || staged.Changed != 1 || staged.Removed != 2 || staged.Unchanged != 2 || staged.NoOp {
		t.Errorf("counted %+v; want 16 added, 1 changed, 2 removed, 2 unchanged", staged)
	}
	if *stage.Workspace != (txn.Workspace{Repository: f.repo, Branch: "main", RefType: "commit", Ref: f.first}) {
		t.Errorf("stage changed the workspace: %+v", stage.Workspace)
	}
	published := outputOf(t, last(t, workflow, "prepare_publish"))
	if p := published.Publication; p == nil || p.Outcome != txn.OutcomePublished || p.Fence != txn.FenceSoft || p.ExpectedHead != f.first || p.Commit != published.Workspace.Ref || p.Supersedes != "" {
		t.Errorf("publication %+v, workspace %+v", p, published.Workspace)
	}
	second := outputOf(t, last(t, workflow, "train_publish"))
	if second.Publication.ExpectedHead != published.Workspace.Ref || second.Workspace.Ref != f.head() {
		t.Errorf("the second step published %+v on %s", second.Publication, published.Workspace.Ref)
	}
	for _, task := range workflow.Tasks {
		if strings.HasPrefix(string(task.Type), "perago_") && len(outputOf(t, task).Timings) == 0 {
			t.Errorf("%s has no timings in its output: %s", task.ReferenceName, task.Output)
		}
	}

	commit, err := f.lake.Commit(t.Context(), f.repo, published.Workspace.Ref)
	if err != nil {
		t.Fatal(err)
	}
	record, err := txn.ParseRecord(commit.Metadata)
	if err != nil {
		t.Fatalf("the confirm commit: %v", err)
	}
	task := last(t, workflow, "prepare_publish")
	if want := (txn.Record{
		Phase: txn.PhaseConfirm, Key: txn.NewLogicalTaskKey(workflow.ID, "prepare_stage", 0), Workflow: workflow.ID,
		Task: task.ID, RetryCount: 0, Execution: record.Execution, InputRef: f.first, TargetBranch: "main", Prefix: "data/",
		StagingBranch: staged.StagingBranch, StagingCommit: staged.Commit, StagingExecution: staged.Execution,
		SourceCommit: staged.Commit, ExpectedHead: f.first,
	}); record != want {
		t.Errorf("metadata\n%+v, want\n%+v", record, want)
	}
}

// The same files again are no change, whatever their times: no branch, no commit
// and the input ref as the output. Other content of the same size is a change.
func TestOnlyContentIsAChange(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "Stan", "other": "x"})
	content := "Stan"
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": content} })
	name := f.register("content", step("prepare", "data", "${workflow.input.workspace}", nil)...)

	same := f.completed(name, map[string]any{"workspace": f.workspace(f.first)})
	staged := outputOf(t, last(t, same, "prepare_stage")).Staged
	published := outputOf(t, last(t, same, "prepare_publish"))
	if !staged.NoOp || staged.StagingBranch != "" || staged.Commit != f.first || published.Publication.Outcome != txn.OutcomeNoOp || published.Workspace.Ref != f.first {
		t.Errorf("the same content: staged %+v, published %+v, workspace %+v", staged, published.Publication, published.Workspace)
	}
	if f.head() != f.first {
		t.Error("a no-op moved the branch")
	}

	content = "Stun"
	changed := f.completed(name, map[string]any{"workspace": f.workspace(f.first)})
	if staged := outputOf(t, last(t, changed, "prepare_stage")).Staged; staged.NoOp || staged.Changed != 1 {
		t.Errorf("other content of the same size: %+v", staged)
	}
	if diff := cmp.Diff(map[string]string{"data/a": "Stun", "other": "x"}, lakefstest.Tree(t, f.lake, f.repo, f.head())); diff != "" {
		t.Error(diff)
	}
}

func TestReadOnlyStepPublishesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "1"})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "never published"} })
	name := f.register("read_only", step("prepare", "data", "${workflow.input.workspace}", func(stage map[string]any) {
		delete(stage, "source")
		stage["read_only"] = true
	})...)
	head := f.commitForeign(map[string]string{"elsewhere": "2"})
	workflow := f.completed(name, map[string]any{"workspace": f.workspace(f.first)})
	published := outputOf(t, last(t, workflow, "prepare_publish"))
	if published.Publication.Outcome != txn.OutcomeReadOnly || published.Workspace.Ref != f.first || f.head() != head {
		t.Errorf("published %+v, workspace %+v", published.Publication, published.Workspace)
	}
}

// Under a root prefix everything is replaced but the repository's hooks.
func TestRootPrefixLeavesTheHooksAlone(t *testing.T) {
	t.Parallel()
	const action = "name: none\non:\n  pre-merge:\n    branches: [no-such-branch]\nhooks:\n  - id: nothing\n    type: lua\n    properties:\n      script: |\n        print(\"nothing\")\n"
	f := newFleet(t, map[string]string{"_lakefs_actions/none.yaml": action, "old": "1", "data/x": "2"})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"new": "3"} })
	name := f.register("root", step("prepare", "/", "${workflow.input.workspace}", func(s map[string]any) { s["root"] = true })...)
	f.completed(name, map[string]any{"workspace": f.workspace(f.first)})
	if diff := cmp.Diff(map[string]string{"_lakefs_actions/none.yaml": action, "new": "3"}, lakefstest.Tree(t, f.lake, f.repo, f.head())); diff != "" {
		t.Error(diff)
	}
}

func TestForeignCommitIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, lakeBefore)
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a.csv": "new"} })
	name := f.register("foreign", step("prepare", "data/", "${workflow.input.workspace}", nil)...)
	foreign := f.commitForeign(map[string]string{"elsewhere": "1"})

	workflow := f.run(name, map[string]any{"workspace": f.workspace(f.first)})
	publish := last(t, workflow, "prepare_publish")
	want := fmt.Sprintf("main advanced from %s to %s; start a new workflow with ref=%s, or rerun prepare_stage with that workspace.ref, which keeps this step's files", f.first, foreign, foreign)
	if publish.Status != txn.TaskFailed || publish.Reason != want {
		t.Errorf("publish is %s: %q; want FAILED: %q", publish.Status, publish.Reason, want)
	}
	if o := outputOf(t, publish); o.Workspace != nil || o.Publication == nil || o.Publication.Outcome != txn.OutcomeRefused {
		t.Errorf("the refused publish put out %s", publish.Output)
	}
	if workflow.Status != txn.WorkflowFailed || f.head() != foreign {
		t.Errorf("workflow %s, head %s", workflow.Status, f.head())
	}
	// A workflow from the head that the sentence names goes through.
	f.completed(name, map[string]any{"workspace": f.workspace(foreign)})
}

// A staging branch is hidden, goes when its step is published, and a listing of
// ours would see it.
func TestStagingBranchComesAndGoes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "1"})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	all := step("prepare", "data/", "${workflow.input.workspace}", nil)
	hold := simple("e2e_hold", "hold", nil)
	// A user task before the publish, which nobody serves yet, holds the workflow.
	name := f.register("branches", append([]map[string]any{all[0], all[1], hold}, all[2:]...)...)
	id := f.start(name, map[string]any{"workspace": f.workspace(f.first)})
	var branches []txn.BranchHead
	eventually(t, waitTime, "the staging branch is there", func() (bool, string) {
		var err error
		if branches, err = f.lake.Branches(t.Context(), f.repo, "perago-"); err != nil {
			t.Fatal(err)
		}
		workflow, err := f.conductor.Workflow(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return len(branches) == 1 && last(t, workflow, "prepare").Status == txn.TaskCompleted && len(workflow.Tasks) == 3, describe(workflow)
	})
	parsed, err := txn.ParseStagingName(branches[0].Name)
	if err != nil || !parsed.OfStep(txn.ConductorIdentity(f.domain), id, txn.NewLogicalTaskKey(id, "prepare_stage", 0)) {
		t.Errorf("%s: %+v, %v", branches[0].Name, parsed, err)
	}
	f.user("e2e_hold", func(txn.Task) map[string]string { return nil })
	workflow := f.end(id)
	cleanup := outputOf(t, last(t, workflow, "prepare_cleanup"))
	if len(cleanup.Deleted) != 1 || cleanup.Deleted[0] != branches[0].Name || len(cleanup.Errors) != 0 || len(cleanup.Kept) != 0 {
		t.Errorf("cleanup put out %+v", cleanup)
	}
}

// Input that can never succeed ends the workflow at once, names the field, and
// nothing is written: no branch, no commit.
func TestBadInputIsTerminalAndWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "1"})
	f.user("prepare", func(task txn.Task) map[string]string {
		f.unstageable(filepath.Join(f.root, string(task.Workflow)))
		return map[string]string{"a": "2"}
	})
	directory := func(name string) func(map[string]any) {
		return func(s map[string]any) {
			s["source"] = map[string]any{"directory": filepath.Join(f.root, "${workflow.workflowId}", name)}
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		change   func(stage map[string]any)
		status   txn.TaskStatus
		sentence string
	}{
		{"a branch for a ref", func(s map[string]any) {
			s["workspace"] = map[string]any{"repository": f.repo, "branch": "main", "ref_type": "commit", "ref": "main"}
		}, txn.TaskFailedWithTerminalError, "workspace.ref: \"main\" is not a full commit id"},
		{"a short hash for a ref", func(s map[string]any) { s["workspace"] = f.workspace(f.first[:12]) }, txn.TaskFailedWithTerminalError, "is not a full commit id"},
		{"an upper-case ref", func(s map[string]any) {
			s["workspace"] = f.workspace(txn.CommitID(strings.ToUpper(string(f.first))))
		}, txn.TaskFailedWithTerminalError, "is not a full commit id"},
		{"a tag for a ref", func(s map[string]any) { s["workspace"] = f.workspace("v1.0") }, txn.TaskFailedWithTerminalError, "is not a full commit id"},
		{"a ref that is not there", func(s map[string]any) {
			s["workspace"] = f.workspace(txn.CommitID(strings.Repeat("0", 64)))
		}, txn.TaskFailedWithTerminalError, "holds no commit"},
		{"an expression that resolves to nothing", func(s map[string]any) { s["workspace"] = "${prepare.output.workspace}" }, txn.TaskFailedWithTerminalError, "workspace: is missing or null"},
		{"another repository", func(s map[string]any) {
			s["workspace"] = map[string]any{"repository": "other", "branch": "main", "ref_type": "commit", "ref": f.first}
		}, txn.TaskFailedWithTerminalError, "not in PERAGO_ALLOWED_REPOSITORIES"},
		{"a branch that is not there", func(s map[string]any) {
			s["workspace"] = map[string]any{"repository": f.repo, "branch": "mian", "ref_type": "commit", "ref": f.first}
		}, txn.TaskFailedWithTerminalError, "holds no branch mian"},
		{"a prefix that climbs", func(s map[string]any) { s["prefix"] = "data/../.." }, txn.TaskFailedWithTerminalError, "prefix: "},
		{"a root that nobody asked for", func(s map[string]any) { s["prefix"] = "/" }, txn.TaskFailedWithTerminalError, `prefix: "/" is the root`},
		{"a prefix whose expression has no value", func(s map[string]any) { s["prefix"] = "data/${workflow.input.day}" }, txn.TaskFailedWithTerminalError, "prefix: \"data/null\" has the segment null"},
		{"a partition whose expression has no value", func(s map[string]any) { s["prefix"] = "data/day=${workflow.input.day}" }, txn.TaskFailedWithTerminalError, "without a value"},
		{"a directory whose expression has no value", func(s map[string]any) {
			s["source"] = map[string]any{"directory": "${prepare.output.directory}/${workflow.input.day}"}
		}, txn.TaskFailedWithTerminalError, "source.directory: "},
		{"the hooks", func(s map[string]any) { s["prefix"] = "_lakefs_actions/" }, txn.TaskFailedWithTerminalError, "hooks"},
		{"inside the hooks", func(s map[string]any) { s["prefix"] = "_lakefs_actions/own" }, txn.TaskFailedWithTerminalError, "hooks"},
		{"a typing error", func(s map[string]any) { s["sorce"] = "x" }, txn.TaskFailedWithTerminalError, "sorce: is not a field of this task"},
		{"a directory of the host", func(s map[string]any) { s["source"] = map[string]any{"directory": "/etc"} }, txn.TaskFailedWithTerminalError, "source.directory: "},
		{"a directory that climbs", func(s map[string]any) {
			s["source"] = map[string]any{"directory": "${prepare.output.directory}/../../other"}
		}, txn.TaskFailedWithTerminalError, "source.directory: "},
		{"a missing directory", func(s map[string]any) {
			s["source"] = map[string]any{"directory": "${prepare.output.directory}/missing"}
		}, txn.TaskFailed, " on host " + host + ", where this task of domain " + f.domain + " came to"},
		{"an empty directory", directory("empty"), txn.TaskFailed, "allow_empty: true"},
		{"a link among the files", directory("linked"), txn.TaskFailedWithTerminalError, `source.directory: "a/link" is a symbolic link`},
		{"a link to the directory", directory("link"), txn.TaskFailedWithTerminalError, "is a symbolic link"},
		{"a FIFO among the files", directory("fifo"), txn.TaskFailedWithTerminalError, `source.directory: "pipe" is a `},
		{"a socket among the files", directory("socket"), txn.TaskFailedWithTerminalError, `source.directory: "listening" is a socket`},
		{"a name that is not UTF-8", directory("latin"), txn.TaskFailedWithTerminalError, "UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tasks := step("prepare", "data/", "${workflow.input.workspace}", c.change)
			tasks[1]["name"] = "perago_stage_once"
			name := f.register("bad_"+strings.ReplaceAll(c.name, " ", "_"), tasks...)
			workflow := f.run(name, map[string]any{"workspace": f.workspace(f.first)})
			stage := last(t, workflow, "prepare_stage")
			if stage.Status != c.status || !strings.Contains(stage.Reason, c.sentence) || workflow.Status != txn.WorkflowFailed {
				t.Errorf("stage is %s: %q; want %s with %q\n%s", stage.Status, stage.Reason, c.status, c.sentence, describe(workflow))
			}
			if stage.Output != nil && strings.Contains(string(stage.Output), "staged") {
				t.Errorf("a failed stage put out %s", stage.Output)
			}
			branches, err := f.lake.Branches(t.Context(), f.repo, "perago-")
			if err != nil || len(branches) != 0 {
				t.Errorf("branches %v, %v; want none", branches, err)
			}
		})
	}
	if f.head() != f.first {
		t.Error("the branch moved")
	}
}

// unstageable makes directories that lakeFS has no form for, each below the
// workflow's own.
func (f *fleet) unstageable(own string) {
	write(f.t, filepath.Join(own, "empty"), nil)
	for _, name := range []string{"linked/a", "fifo", "socket", "latin"} {
		write(f.t, filepath.Join(own, name), map[string]string{"file": "x"})
	}
	// A socket's path has a limit that the test's folder may be past.
	socket, err := net.Listen("unix", filepath.Join(os.TempDir(), "perago-"+filepath.Base(own)))
	if err != nil {
		f.t.Error(err)
		return
	}
	// Closing would remove it, also under its new name.
	socket.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(
		os.Symlink("/etc/passwd", filepath.Join(own, "linked", "a", "link")),
		os.Symlink(filepath.Join(own, "fifo"), filepath.Join(own, "link")),
		syscall.Mkfifo(filepath.Join(own, "fifo", "pipe"), 0o600),
		os.Rename(socket.Addr().String(), filepath.Join(own, "socket", "listening")),
		socket.Close(),
		os.WriteFile(filepath.Join(own, "latin", "caf\xe9"), []byte("x"), 0o644),
	); err != nil {
		f.t.Error(err)
	}
}

// A server that refuses or fails fails the task, with a sentence to act on, no
// workspace and nothing published.
func TestServerFailuresFailTheTask(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{
		files: map[string]string{"data/a": "1"}, without: "stage-worker",
		// What a failed stage left on its branch stays until the hard fence or the
		// TTL settles it; the TTL is 0s here, but the two race.
		expect: []lakefstest.Expectation{lakefstest.Allow(lakefstest.RuleBranches)},
	})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	stage := f.behind("stage-worker", f.stageEnv()...)
	tasks := step("prepare", "data/", "${workflow.input.workspace}", nil)
	tasks[1]["name"] = "perago_stage_once"
	name := f.register("failures", tasks...)
	branches := fault.Match{Method: http.MethodPost, Path: "/branches"}
	commits := fault.Match{Method: http.MethodPost, Path: "/commits"}
	for _, c := range []struct {
		name      string
		at        fault.Match
		status    int
		body      string
		sentences []string
	}{
		{"credentials refused", branches, 401, `{"message": "error authenticating request"}`, []string{"create branch perago-staging-", "lakeFS answered 401", "LAKECTL_CREDENTIALS_ACCESS_KEY_ID"}},
		{"not permitted", upload, 403, `{"message": "insufficient permissions"}`, []string{"upload data/a", "lakeFS answered 403"}},
		{"a hook refuses the commit", commits, 412, `{"message": "pre-commit hook: no"}`, []string{"commit perago-staging-", "pre-commit hook: no"}},
	} {
		held := stage.lake.Hold(c.at)
		id := f.start(name, map[string]any{"workspace": f.workspace(f.first)})
		held.Wait(t, waitTime)
		held.Answer(c.status, c.body)
		workflow := f.end(id)
		failed := last(t, workflow, "prepare_stage")
		if failed.Status != txn.TaskFailed || workflow.Status != txn.WorkflowFailed || strings.Contains(string(failed.Output), "workspace") {
			t.Errorf("%s: %s, put out %s", c.name, describe(workflow), failed.Output)
		}
		for _, sentence := range c.sentences {
			if !strings.Contains(failed.Reason, sentence) {
				t.Errorf("%s: the reason does not say %q: %s", c.name, sentence, failed.Reason)
			}
		}
		if len([]rune(failed.Reason)) > txn.DefaultReasonLength || strings.Contains(failed.Reason, f.servers.SecretAccessKey) {
			t.Errorf("%s: the reason is %d characters long: %s", c.name, len([]rune(failed.Reason)), failed.Reason)
		}
	}
	if f.head() != f.first {
		t.Error("the branch moved")
	}
	f.stop(stage.process)
}

// An empty directory replaces everything under the prefix when the task says so.
func TestAllowEmpty(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "1", "data/b/c": "2", "other": "3"})
	f.user("prepare", func(txn.Task) map[string]string { return nil })
	name := f.register("allow_empty", step("prepare", "data/", "${workflow.input.workspace}", func(s map[string]any) { s["allow_empty"] = true })...)
	f.completed(name, map[string]any{"workspace": f.workspace(f.first)})
	if diff := cmp.Diff(map[string]string{"other": "3"}, lakefstest.Tree(t, f.lake, f.repo, f.head())); diff != "" {
		t.Error(diff)
	}
}

// More files than a page of a listing and than a batch of removes.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/seed": "1"})
	files := map[string]string{}
	for i := range 2500 {
		files[fmt.Sprintf("part-%04d", i)] = fmt.Sprint(i)
	}
	f.user("prepare", func(txn.Task) map[string]string { return files })
	name := f.register("many", step("prepare", "data/", "${workflow.input.workspace}", nil)...)
	first := f.completed(name, map[string]any{"workspace": f.workspace(f.first)})
	if staged := outputOf(t, last(t, first, "prepare_stage")).Staged; staged.Added != 2500 || staged.Removed != 1 {
		t.Errorf("staged %+v", staged)
	}
	kept := maps.Clone(files)
	maps.DeleteFunc(kept, func(path, _ string) bool { return path != "part-2499" })
	files = kept
	second := f.completed(name, map[string]any{"workspace": f.workspace(f.head())})
	if staged := outputOf(t, last(t, second, "prepare_stage")).Staged; staged.Removed != 2499 || staged.Unchanged != 1 || staged.Added+staged.Changed != 0 {
		t.Errorf("staged %+v", staged)
	}
	if diff := cmp.Diff(map[string]string{"data/part-2499": "2499"}, lakefstest.Tree(t, f.lake, f.repo, f.head())); diff != "" {
		t.Error(diff)
	}
}

// Cleanup once at the end, by workflow id, is as good as after each step.
func TestCleanupByWorkflowID(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "1"})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	f.user("train", func(txn.Task) map[string]string { return map[string]string{"m": "3"} })
	tasks := step("prepare", "data/", "${workflow.input.workspace}", nil)[:3]
	tasks = append(tasks, step("train", "models/", "${prepare_publish.output.workspace}", nil)[:3]...)
	cleanup := simple("perago_cleanup", "cleanup", map[string]any{"workflow_id": "${workflow.workflowId}"})
	cleanup["optional"] = true
	name := f.register("by_workflow", append(tasks, cleanup)...)
	workflow := f.completed(name, map[string]any{"workspace": f.workspace(f.first)})
	if o := outputOf(t, last(t, workflow, "cleanup")); len(o.Deleted) != 2 || len(o.Kept) != 0 || len(o.Errors) != 0 {
		t.Errorf("cleanup put out %+v", o)
	}
}

// A failed step's branch is the evidence of it until the TTL; the failure
// workflow's cleanup keeps it, with the reason, and completes.
func TestCleanupKeepsWhatMayStillBeNeeded(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{
		files: map[string]string{"data/a": "1"}, sweepTTL: "24h",
		expect: []lakefstest.Expectation{lakefstest.Expect(lakefstest.RuleBranches)},
	})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	name := f.register("kept", step("prepare", "data/", "${workflow.input.workspace}", nil)...)
	f.commitForeign(map[string]string{"elsewhere": "1"})
	workflow := f.run(name, map[string]any{"workspace": f.workspace(f.first)})
	staged := outputOf(t, last(t, workflow, "prepare_stage")).Staged

	failure := f.failureWorkflow(workflow.ID)
	var cancelled struct {
		Kept []struct{ Branch, Reason string } `json:"kept"`
	}
	decode(t, failure.Tasks[0].Output, &cancelled)
	if failure.Status != txn.WorkflowCompleted || len(cancelled.Kept) != 1 || cancelled.Kept[0].Branch != string(staged.StagingBranch) || !strings.Contains(cancelled.Kept[0].Reason, "kept until it is 24h0m0s old") {
		t.Errorf("%s\nput out %s", describe(failure), failure.Tasks[0].Output)
	}
}
