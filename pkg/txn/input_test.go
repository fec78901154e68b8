package txn

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// edit applies dotted-path changes to a JSON document; nil deletes.
func edit(t *testing.T, document string, changes map[string]any) json.RawMessage {
	t.Helper()
	var root map[string]any
	if err := json.Unmarshal([]byte(document), &root); err != nil {
		t.Fatal(err)
	}
	for path, value := range changes {
		at, names := root, strings.Split(path, ".")
		for _, name := range names[:len(names)-1] {
			at = at[name].(map[string]any)
		}
		last := names[len(names)-1]
		if value == deleted {
			delete(at, last)
		} else {
			at[last] = value
		}
	}
	raw, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

const deleted = "\x00deleted"

func wantTerminal(t *testing.T, name string, err error, field, sentence string) {
	t.Helper()
	var terminal *TerminalError
	if !errors.As(err, &terminal) || terminal.Field != field || !strings.Contains(terminal.Sentence, sentence) {
		t.Errorf("%s: got %v; want a terminal error at %s with %q", name, err, field, sentence)
	}
}

var (
	everything = AllowList{"*"}
	someCommit = strings.Repeat("ab", 32)
)

func TestParseStageInput(t *testing.T) {
	t.Parallel()
	document := `{"workspace": {"repository": "lake", "branch": "main", "ref_type": "commit", "ref": "` + someCommit + `"},
		"prefix": "models", "source": {"directory": "/data/w/t"}}`
	input, err := ParseStageInput(json.RawMessage(document), everything)
	if err != nil {
		t.Fatal(err)
	}
	want := StageInput{
		Workspace: Workspace{Repository: "lake", Branch: "main", RefType: "commit", Ref: CommitID(someCommit)},
		Prefix:    "models/", Directory: "/data/w/t",
	}
	if diff := cmp.Diff(want, input); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		name            string
		changes         map[string]any
		field, sentence string
	}{
		{"no workspace", map[string]any{"workspace": deleted}, "workspace", "missing or null"},
		{"null workspace", map[string]any{"workspace": nil}, "workspace", "missing or null; the workflow was started without it, or its expression names a task or an output that is not there"},
		{"unresolved workspace", map[string]any{"workspace": "${train_publish.output.workspace}"}, "workspace", "unresolved expression"},
		{"workspace is a list", map[string]any{"workspace": []int{1}}, "workspace", "must be a JSON object"},
		{"no repository", map[string]any{"workspace.repository": deleted}, "workspace.repository", "missing or null"},
		{"empty branch", map[string]any{"workspace.branch": ""}, "workspace.branch", "is empty"},
		{"number for a branch", map[string]any{"workspace.branch": 7}, "workspace.branch", "must be a string"},
		{"branch with a slash", map[string]any{"workspace.branch": "a/b"}, "workspace.branch", "not the name of a lakeFS branch"},
		{"one of our own branches", map[string]any{"workspace.branch": "perago-staging-x"}, "workspace.branch", "choose another target"},
		{"repository with a slash", map[string]any{"workspace.repository": "../x"}, "workspace.repository", "not the name of a lakeFS repository"},
		{"branch for a ref", map[string]any{"workspace.ref": "main"}, "workspace.ref", "not a full commit id"},
		{"short ref", map[string]any{"workspace.ref": someCommit[:12]}, "workspace.ref", "perago ref lakefs://lake/main"},
		{"another ref type", map[string]any{"workspace.ref_type": "branch"}, "workspace.ref_type", "only \"commit\""},
		{"unresolved ref", map[string]any{"workspace.ref": "${workflow.input.ref}"}, "workspace.ref", "unresolved expression"},
		{"unknown field", map[string]any{"prefx": "x"}, "prefx", "is not a field of this task"},
		{"unknown field inside", map[string]any{"workspace.reff": "x"}, "workspace.reff", "is not a field of this task"},
		{"budget", map[string]any{"budget": map[string]any{}}, "budget", "is not a field of this task"},
		{"no prefix", map[string]any{"prefix": deleted}, "prefix", "missing or null"},
		{"absolute prefix", map[string]any{"prefix": "/models"}, "prefix", "begins with a slash"},
		{"prefix that climbs", map[string]any{"prefix": "a/../b"}, "prefix", "has a segment .."},
		{"doubled slash", map[string]any{"prefix": "a//b"}, "prefix", "empty segment"},
		{"the hooks", map[string]any{"prefix": "_lakefs_actions"}, "prefix", "hooks"},
		{"inside the hooks", map[string]any{"prefix": "_lakefs_actions/x"}, "prefix", "hooks"},
		{"no source", map[string]any{"source": deleted}, "source", "missing or null"},
		{"null directory", map[string]any{"source.directory": nil}, "source.directory", "missing or null"},
		{"unresolved directory", map[string]any{"source.directory": "${train.output.directory}"}, "source.directory", "unresolved expression"},
		{"both sources", map[string]any{"source.import": "s3://b/p/"}, "source.import", "goes not with source.directory"},
		{"neither source", map[string]any{"source": map[string]any{}}, "source.directory", "missing or null"},
		{"null import", map[string]any{"source": map[string]any{"import": nil}}, "source.import", "missing or null"},
		{"unresolved import", map[string]any{"source": map[string]any{"import": "${x.output.uri}"}}, "source.import", "unresolved expression"},
		{"a path for an import", map[string]any{"source": map[string]any{"import": "/srv/x/"}}, "source.import", "not the URI"},
		{"an import into the root", map[string]any{"prefix": "/", "root": true, "source": map[string]any{"import": "s3://b/p/"}}, "prefix", "hooks"},
		{"a malformed guardrail", map[string]any{"guardrails": []any{map[string]any{"require": "x"}}}, "guardrails[0].require", "is not a field"},
		{"guardrails of a read-only step", map[string]any{"read_only": true, "source": deleted, "guardrails": []any{map[string]any{"require_file": "x"}}}, "guardrails", "go not with read_only"},
		{"text for a flag", map[string]any{"allow_empty": "yes"}, "allow_empty", "must be true or false"},
		{"null for a flag", map[string]any{"read_only": nil}, "read_only", "must be true or false"},
		{"read-only with a source", map[string]any{"read_only": true}, "source", "goes not with read_only"},
	} {
		_, err := ParseStageInput(edit(t, document, c.changes), everything)
		wantTerminal(t, c.name, err, c.field, c.sentence)
	}
	_, err = ParseStageInput(json.RawMessage(document), AllowList{"lake/dev-*", "other"})
	wantTerminal(t, "not allowed", err, "workspace", "PERAGO_ALLOWED_REPOSITORIES")
	for name, raw := range map[string]string{"null": "null", "nothing": "", "a list": "[]"} {
		if _, err := ParseStageInput(json.RawMessage(raw), everything); !errors.As(err, new(*TerminalError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	readOnly, err := ParseStageInput(edit(t, document, map[string]any{"source": deleted, "read_only": true, "prefix": "/", "root": true, "guardrails": []any{}}), everything)
	if err != nil || !readOnly.ReadOnly || readOnly.Prefix != "" {
		t.Errorf("read-only: %+v, %v", readOnly, err)
	}
}

func TestParseCheckoutInput(t *testing.T) {
	t.Parallel()
	document := `{"workspace": {"repository": "lake", "branch": "main", "ref_type": "commit", "ref": "` + someCommit + `"},
		"prefix": "models", "guardrails": [{"require_file": "a"}]}`
	input, err := ParseCheckoutInput(json.RawMessage(document), everything)
	if err != nil {
		t.Fatal(err)
	}
	want := CheckoutInput{
		Workspace: Workspace{Repository: "lake", Branch: "main", RefType: "commit", Ref: CommitID(someCommit)},
		Prefix:    "models/", Guardrails: []Guardrail{{RequireFile: "a"}},
	}
	if diff := cmp.Diff(want, input); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// as_of is for lint.
	for _, asOf := range []bool{true, false} {
		if got, err := ParseCheckoutInput(edit(t, document, map[string]any{"as_of": asOf}), everything); err != nil || !cmp.Equal(want, got) {
			t.Errorf("as_of %v: %+v, %v", asOf, got, err)
		}
	}
	for _, c := range []struct {
		name            string
		changes         map[string]any
		field, sentence string
	}{
		{"no workspace", map[string]any{"workspace": deleted}, "workspace", "missing or null"},
		{"unresolved workspace", map[string]any{"workspace": "${train_publish.output.workspace}"}, "workspace", "unresolved expression"},
		{"branch for a ref", map[string]any{"workspace.ref": "main"}, "workspace.ref", "not a full commit id"},
		{"no prefix", map[string]any{"prefix": deleted}, "prefix", "missing or null"},
		{"prefix that climbs", map[string]any{"prefix": "a/../b"}, "prefix", "has a segment .."},
		{"the hooks", map[string]any{"prefix": "_lakefs_actions"}, "prefix", "hooks"},
		{"unknown field", map[string]any{"source": "x"}, "source", "is not a field of this task"},
		{"text for as_of", map[string]any{"as_of": "yes"}, "as_of", "must be true or false"},
		{"null guardrails", map[string]any{"guardrails": nil}, "guardrails", "missing or null"},
		{"a bound on removals", map[string]any{"guardrails": []any{map[string]any{"max_removed": map[string]any{"count": 1}}}}, "guardrails[0].max_removed", "removes nothing"},
	} {
		_, err := ParseCheckoutInput(edit(t, document, c.changes), everything)
		wantTerminal(t, c.name, err, c.field, c.sentence)
	}
	_, err = ParseCheckoutInput(json.RawMessage(document), AllowList{"other"})
	wantTerminal(t, "not allowed", err, "workspace", "PERAGO_ALLOWED_REPOSITORIES")
}

func TestSourceDirectory(t *testing.T) {
	t.Parallel()
	for directory, want := range map[string]string{
		"/root/wf/task": "wf/task", "/root/wf/task/": "wf/task", "/root/wf/a/b": "wf/a/b", "/root/wf/..a": "wf/..a",
	} {
		if got, err := SourceDirectory("/root", "wf", directory); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", directory, got, err, want)
		}
	}
	for _, directory := range []string{
		"", "wf/task", "/root/wf", "/root/wf/", "/root", "/root/other/task", "/root/wf2/task", "/root/wf/../other/x",
		"/root/wf/./task", "/root/wf//task", "/root/wf/task//", "/root/wf/null", "/root/wf/day=/task", "/root/wf/task/day=", "/etc/passwd", "/root/wf/a\x00b", "/root/wf/..", "/root/wf/task/..",
	} {
		got, err := SourceDirectory("/root", "wf", directory)
		var terminal *TerminalError
		if !errors.As(err, &terminal) || terminal.Field != "source.directory" {
			t.Errorf("%q gives %q, %v; want a terminal error at source.directory", directory, got, err)
		}
	}
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	data, err := ParsePrefix("data")
	if err != nil || data != "data/" {
		t.Fatalf("%q, %v", data, err)
	}
	for key, want := range map[string]bool{
		"data/a": true, "data/a/b": true, "data/": true, "data.json": false, "data2/z": false, "data": false, "x/data/a": false,
	} {
		if got := data.Contains(key); got != want {
			t.Errorf("data/ contains %s: %v", key, got)
		}
	}
	root, err := ParsePrefix("/")
	if err != nil || root != "" || root.String() != "/" {
		t.Fatalf("%q, %v", root, err)
	}
	for key, want := range map[string]bool{"a": true, "_lakefs_actions/x.yaml": false, "_lakefs_actions2/x": true} {
		if got := root.Contains(key); got != want {
			t.Errorf("the root contains %s: %v", key, got)
		}
	}
}

func TestKeyLimitIsInBytes(t *testing.T) {
	t.Parallel()
	if err := CheckKey(strings.Repeat("é", 512)); err != nil {
		t.Errorf("1024 bytes: %v", err)
	}
	if err := CheckKey(strings.Repeat("é", 513)); err == nil || !strings.Contains(err.Error(), "1026 bytes") {
		t.Errorf("1026 bytes: %v", err)
	}
}

func TestParsePublishInput(t *testing.T) {
	t.Parallel()
	definition := publishDefinition(45, 0, nil)
	staged := testStaged(t, NewLogicalTaskKey(testWorkflow, "train_stage", 0))
	raw, err := json.Marshal(map[string]any{
		"workspace": Workspace{Repository: "lake", Branch: "main", RefType: "commit", Ref: id("A")}, "staged": staged,
	})
	if err != nil {
		t.Fatal(err)
	}
	document := string(raw)
	var template map[string]any
	if err := json.Unmarshal(definition.InputTemplate, &template); err != nil {
		t.Fatal(err)
	}
	input, err := ParsePublishInput(edit(t, document, map[string]any{"budget": template["budget"], "staged.a_newer_field": 1}), definition, everything)
	if err != nil || input.Staged != staged || input.Workspace.Ref != id("A") {
		t.Fatalf("%+v, %v", input, err)
	}
	other := publishDefinition(45, 0, func(b map[string]any) { b["lakefs_merge_timeout_seconds"] = 31 })
	var otherTemplate map[string]any
	if err := json.Unmarshal(other.InputTemplate, &otherTemplate); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name            string
		changes         map[string]any
		field, sentence string
	}{
		{"another budget", map[string]any{"budget": otherTemplate["budget"]}, "budget", "belongs in the TaskDef"},
		{"a null budget", map[string]any{"budget": nil}, "budget", "belongs in the TaskDef"},
		{"unknown field", map[string]any{"prefix": "x"}, "prefix", "is not a field"},
		{"stage was optional and failed", map[string]any{"staged": nil}, "staged", "missing or null"},
		{"unresolved staged", map[string]any{"staged": "${train_stage.output.staged}"}, "staged", "unresolved"},
		{"null inside staged", map[string]any{"staged.commit": nil}, "staged.commit", "missing or null"},
		{"a count is missing", map[string]any{"staged.poll_count": deleted}, "staged.poll_count", "missing or null"},
		{"wrong type inside", map[string]any{"staged.added": "many"}, "staged", "not what perago_stage writes"},
		{"a branch name for the commit", map[string]any{"staged.commit": "main"}, "staged.commit", "not a full commit id"},
		{"another step's workspace", map[string]any{"workspace.ref": someCommit}, "workspace.ref", "chain both from the same stage task"},
		{"another repository", map[string]any{"workspace.repository": "other"}, "workspace.repository", "chain both"},
		{"another branch", map[string]any{"workspace.branch": "dev"}, "workspace.branch", "chain both"},
		{"a target for a staging branch", map[string]any{"staged.staging_branch": "main"}, "staged.staging_branch", "not the name of a staging branch"},
		{"another execution's branch", map[string]any{"staged.execution_id": execution2}, "staged.staging_branch", "not a branch of the execution"},
		{"no-op with a staged commit", map[string]any{"staged.no_op": true}, "staged.commit", "nothing was staged"},
		{"staged without a branch", map[string]any{"staged.staging_branch": ""}, "staged.staging_branch", "empty although something was staged"},
		{"staged the input ref", map[string]any{"staged.commit": id("A")}, "staged.commit", "is the input ref"},
		{"both kinds of nothing", map[string]any{"staged.no_op": true, "staged.read_only": true}, "staged.no_op", "goes not with"},
	} {
		_, err := ParsePublishInput(edit(t, document, c.changes), definition, everything)
		wantTerminal(t, c.name, err, c.field, c.sentence)
	}
	_, err = ParsePublishInput(json.RawMessage(document), definition, AllowList{"other"})
	wantTerminal(t, "not allowed", err, "workspace", "PERAGO_ALLOWED_REPOSITORIES")
}

func TestParseCleanupInput(t *testing.T) {
	t.Parallel()
	staged := testStaged(t, NewLogicalTaskKey(testWorkflow, "train_stage", 0))
	raw, err := json.Marshal(map[string]any{
		"workspace": Workspace{Repository: "lake", Branch: "main", RefType: "commit", Ref: id("A")}, "staged": staged,
	})
	if err != nil {
		t.Fatal(err)
	}
	if input, err := ParseCleanupInput(raw, everything); err != nil || input.Staged == nil || *input.Staged != staged {
		t.Errorf("after a step: %+v, %v", input, err)
	}
	if input, err := ParseCleanupInput(json.RawMessage(`{"workflow_id": "w"}`), everything); err != nil || input.Workflow != "w" || input.Staged != nil {
		t.Errorf("of a workflow: %+v, %v", input, err)
	}
	if input, err := ParseCleanupInput(json.RawMessage(`{"workspace": null, "staged": null}`), everything); err != nil || input != (CleanupInput{}) {
		t.Errorf("a stage without output: %+v, %v", input, err)
	}
	for name, c := range map[string]struct{ raw, field string }{
		"neither":       {`{}`, "staged"},
		"null workflow": {`{"workflow_id": null}`, "workflow_id"},
		"both":          {string(edit(t, string(raw), map[string]any{"workflow_id": "w"})), "workflow_id"},
		"no workspace":  {string(edit(t, string(raw), map[string]any{"workspace": nil})), "workspace"},
		"unknown field": {`{"workflow_id": "w", "force": true}`, "force"},
		"unresolved":    {`{"workflow_id": "${workflow.input.workflowId}"}`, "workflow_id"},
		"another's":     {string(edit(t, string(raw), map[string]any{"workspace.branch": "dev"})), "workspace.branch"},
	} {
		_, err := ParseCleanupInput(json.RawMessage(c.raw), everything)
		wantTerminal(t, name, err, c.field, "")
	}
}

// An input that Conductor keeps outside is named for what it is: the task holds an
// empty object, of which every field would be missing.
func TestInputOf_NamesExternalPayloadStorage(t *testing.T) {
	t.Parallel()
	outside := Task{Type: TypeStage, Input: json.RawMessage(`{}`), ExternalInput: true}
	_, err := InputOf(outside)
	_, stagedErr := StagedOf(outside)
	for _, err := range []error{err, stagedErr} {
		var terminal *TerminalError
		if !errors.As(err, &terminal) || !strings.Contains(err.Error(), "conductor.app.taskInputPayloadSizeThreshold") || strings.Contains(err.Error(), "missing") {
			t.Errorf("got %v", err)
		}
	}
	if raw, err := InputOf(Task{Input: json.RawMessage(`{"a":1}`)}); err != nil || string(raw) != `{"a":1}` {
		t.Errorf("got %s, %v", raw, err)
	}
}

func TestCheckUpstream(t *testing.T) {
	t.Parallel()
	key := NewLogicalTaskKey(testWorkflow, "train_stage", 0)
	staged := testStaged(t, key)
	record := func(output Staged, change func(*Task)) Task {
		raw, err := json.Marshal(map[string]any{"staged": output})
		if err != nil {
			t.Fatal(err)
		}
		task := Task{
			ID: staged.Task, Workflow: testWorkflow, Type: TypeStage, ReferenceName: "train_stage", Status: TaskCompleted,
			RetryCount: staged.RetryCount, PollCount: staged.PollCount, StartTime: staged.StartTime, Output: raw,
		}
		if change != nil {
			change(&task)
		}
		return task
	}
	if got, err := CheckUpstream(staged, record(staged, nil), testWorkflow); err != nil || got != key {
		t.Fatalf("%q, %v", got, err)
	}
	changed := func(change func(*Staged)) Staged { s := staged; change(&s); return s }
	for _, c := range []struct {
		name            string
		staged          Staged
		record          Task
		field, sentence string
	}{
		{"the task was handed out again", staged, record(staged, func(k *Task) { k.PollCount++ }), "staged", "had been replaced (its task was handed out again); rerun from train_stage"},
		{"it started later", staged, record(staged, func(k *Task) { k.StartTime++ }), "staged", "had been replaced"},
		{"it is in progress", staged, record(staged, func(k *Task) { k.Status = TaskInProgress }), "staged", "had been replaced (its task is IN_PROGRESS)"},
		{"it failed", staged, record(staged, func(k *Task) { k.Status = TaskFailed }), "staged", "had been replaced"},
		{"another commit is recorded", staged, record(changed(func(s *Staged) { s.Commit = id("T") }), nil), "staged", "another execution's output"},
		{"the input was edited", changed(func(s *Staged) { s.Prefix = "data/" }), record(staged, nil), "staged", "differs from the output of train_stage"},
		{"another workflow's task", staged, record(staged, func(k *Task) { k.Workflow = otherWorkflow }), "staged.task_id", "not of this one"},
		{"no task", staged, Task{}, "staged.task_id", "cannot be read"},
		{"not a stage", staged, record(staged, func(k *Task) { k.Output = json.RawMessage(`{"x": 1}`) }), "staged.task_id", "not a stage's"},
		{"no output", staged, record(staged, func(k *Task) { k.Output = nil }), "staged.task_id", "not a stage's"},
		{"its output is kept outside", staged, record(staged, func(k *Task) { k.Output, k.ExternalOutput = json.RawMessage(`{}`), true }), "staged.task_id", "conductor.app.taskOutputPayloadSizeThreshold"},
		{"another reference name", staged, record(staged, func(k *Task) { k.ReferenceName = "other" }), "staged.logical_task_key", "the stage task's is"},
		{"another iteration", staged, record(staged, func(k *Task) { k.Iteration = 2 }), "staged.logical_task_key", "the stage task's is"},
	} {
		_, err := CheckUpstream(c.staged, c.record, testWorkflow)
		wantTerminal(t, c.name, err, c.field, c.sentence)
	}
}

func TestAllowList(t *testing.T) {
	t.Parallel()
	list, err := ParseAllowList([]string{"lake", " other/dev-* ", ""})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		repository Repository
		branch     Branch
		want       bool
	}{
		{"lake", "main", true}, {"other", "dev-1", true}, {"other", "main", false}, {"third", "main", false}, {"lake2", "main", false},
	} {
		if got := list.Allows(c.repository, c.branch); got != c.want {
			t.Errorf("%s/%s: %v", c.repository, c.branch, got)
		}
	}
	if !list.AllowsRepository("other") || list.AllowsRepository("third") {
		t.Error("AllowsRepository goes by the repository")
	}
	if AllowList(nil).Allows("lake", "main") {
		t.Error("an empty list allows something")
	}
	for _, entries := range [][]string{nil, {""}, {"lake/"}, {"/main"}, {"lake/["}, {"la*"}, {"*/main"}} {
		if list, err := ParseAllowList(entries); err == nil {
			t.Errorf("%q is accepted as %q", entries, list)
		}
	}
}

func TestInputError(t *testing.T) {
	t.Parallel()
	w := Workspace{Repository: "lake", Branch: "main"}.At(id("A"))
	for _, c := range []struct {
		err      error
		terminal bool
		text     string
	}{
		{fmt.Errorf("read: %w", ErrNotFound), true, "lake holds no commit " + string(id("A"))},
		{ErrGone, true, "lake holds no commit " + string(id("A"))},
		{ErrRetryable, false, "read the input ref: retryable"},
	} {
		err := w.InputError(c.err)
		var terminal *TerminalError
		if errors.As(err, &terminal) != c.terminal || !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: %v; want terminal %v and %q", c.err, err, c.terminal, c.text)
		}
	}
	if err := w.InputError(nil); err != nil {
		t.Errorf("%v", err)
	}
}
