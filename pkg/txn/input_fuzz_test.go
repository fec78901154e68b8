package txn

import (
	"bytes"
	"encoding/json"
	"errors"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// longestSentence bounds what is said about an input, in bytes: a part of it is
// repeated, and never the whole of it.
const longestSentence = 4 << 10

// wantSentence fails unless an error is one line for people, which no text from
// outside can break or blow up.
func wantSentence(t *testing.T, err error) {
	t.Helper()
	text := err.Error()
	if text == "" || len(text) > longestSentence || !utf8.ValidString(text) {
		t.Fatalf("%d bytes, no sentence: %.500q", len(text), text)
	}
	for _, r := range text {
		if !strconv.IsPrint(r) {
			t.Fatalf("%q in %q", r, text)
		}
	}
}

// wantFieldNamed fails unless an error is a terminal one that names a field of
// the task, or one that the task does not have.
func wantFieldNamed(t *testing.T, raw []byte, err error, fields ...string) {
	t.Helper()
	wantSentence(t, err)
	var terminal *TerminalError
	if !errors.As(err, &terminal) {
		t.Fatalf("%v is not terminal", err)
	}
	var object map[string]json.RawMessage
	isObject := json.Unmarshal(raw, &object) == nil && object != nil
	top, _, _ := strings.Cut(terminal.Field, ".")
	top, _, _ = strings.Cut(top, "[")
	switch {
	case !isObject && terminal.Field == "":
	case slices.Contains(fields, top):
	case strings.Contains(terminal.Sentence, "is not a field of this task"):
	default:
		t.Fatalf("%q names no field of the task", err)
	}
}

// again gives a checked input back as the document it could have come from.
func again(t *testing.T, fields any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func guardrailsAgain(list []Guardrail) []map[string]any {
	all := []map[string]any{}
	for _, g := range list {
		switch {
		case g.RequireFile != "":
			all = append(all, map[string]any{"require_file": g.RequireFile})
		case g.RequireDir != "":
			all = append(all, map[string]any{"require_dir": g.RequireDir})
		case g.ForbidGlob != "":
			all = append(all, map[string]any{"forbid_glob": g.ForbidGlob})
		case g.RequireGlob != nil:
			one := map[string]any{"pattern": g.RequireGlob.Pattern, "min": g.RequireGlob.Min}
			if g.RequireGlob.Max != nil {
				one["max"] = *g.RequireGlob.Max
			}
			all = append(all, map[string]any{"require_glob": one})
		case g.MaxRemoved != nil:
			one := map[string]any{}
			if g.MaxRemoved.Count != nil {
				one["count"] = *g.MaxRemoved.Count
			}
			if g.MaxRemoved.Fraction != nil {
				one["fraction"] = *g.MaxRemoved.Fraction
			}
			all = append(all, map[string]any{"max_removed": one})
		}
	}
	return all
}

// wantGuardrails fails unless the guardrails are those of the text.
func wantGuardrails(t *testing.T, raw []byte, got []Guardrail) {
	t.Helper()
	var text struct {
		Guardrails []struct {
			RequireGlob *struct {
				Pattern  string
				Min, Max *int
			} `json:"require_glob"`
			MaxRemoved *MaxRemoved `json:"max_removed"`
			RequireDir string      `json:"require_dir"`
		} `json:"guardrails"`
	}
	// Of a field that stands there twice the last one counts, whole.
	var lastOfEach any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&lastOfEach); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(again(t, lastOfEach), &text); err != nil || len(text.Guardrails) != len(got) {
		t.Fatalf("%d guardrails of %d, %v", len(got), len(text.Guardrails), err)
	}
	for i, want := range text.Guardrails {
		glob := want.RequireGlob
		if glob != nil && glob.Min == nil {
			glob.Min = new(int)
			*glob.Min = 1
		}
		if diff := cmp.Diff(want.MaxRemoved, got[i].MaxRemoved); diff != "" || want.RequireDir != got[i].RequireDir || (glob == nil) != (got[i].RequireGlob == nil) ||
			glob != nil && (glob.Pattern != got[i].RequireGlob.Pattern || *glob.Min != got[i].RequireGlob.Min || !cmp.Equal(glob.Max, got[i].RequireGlob.Max)) {
			t.Fatalf("guardrail %d is %+v", i, got[i])
		}
	}
}

// wantFilled fails unless each path is one that no expression without a value has
// widened: the root was asked for, and no segment is one that is left behind.
func wantFilled(t *testing.T, raw []byte, prefix string, more ...string) {
	t.Helper()
	if prefix == "" && !bytes.Contains(raw, []byte("true")) {
		t.Fatalf("the root, and nobody asked for it: %s", raw)
	}
	for _, path := range append(more, prefix) {
		_, rest, ok := strings.Cut(path, "://")
		if !ok {
			rest = path
		}
		for segment := range strings.SplitSeq(strings.Trim(rest, "/"), "/") {
			if rest != "" && segment == "" || segment == "null" || strings.HasSuffix(segment, "=") {
				t.Fatalf("accepted the segment %q of %q", segment, path)
			}
		}
	}
}

// wantWorkspace fails unless a checked workspace is what the client may be asked
// for, and the list allows it.
func wantWorkspace(t *testing.T, w Workspace, allowed AllowList) {
	t.Helper()
	_, err := ParseCommitID(string(w.Ref))
	if err != nil || w.RefType != "commit" || !repositoryName.MatchString(string(w.Repository)) || !branchName.MatchString(string(w.Branch)) ||
		strings.HasPrefix(string(w.Branch), "perago-") || !allowed.Allows(w.Repository, w.Branch) {
		t.Fatalf("accepted the workspace %+v", w)
	}
}

const workspaceText = `{"repository": "lake", "branch": "main", "ref_type": "commit", "ref": "abababababababababababababababababababababababababababababababab"}`

var stageSeeds = []string{
	`{"workspace": ` + workspaceText + `, "prefix": "models", "source": {"directory": "/data/w/t"}, "guardrails": [{"require_file": "metrics.json"},
		{"require_dir": "d"}, {"require_glob": {"pattern": "**/*.parquet", "min": 1, "max": 7}}, {"forbid_glob": "**/*.tmp"}, {"max_removed": {"count": 1, "fraction": 0.5}}]}`,
	`{"workspace": ` + workspaceText + `, "prefix": "w/", "source": {"import": "s3://bucket/path/"}, "allow_empty": true}`,
	`{"workspace": ` + workspaceText + `, "prefix": "/", "root": true, "read_only": true}`,
	`{"workspace": ` + workspaceText + `, "prefix": "", "read_only": true}`,
	`{"workspace": ` + workspaceText + `, "prefix": "data", "root": true, "read_only": true}`,
	`{"workspace": ` + workspaceText + `, "prefix": "data/null/day=", "source": {"import": "s3://bucket/day=null/"}}`,
	`{"workspace": ` + workspaceText + `, "prefix": "day=1=", "source": {"directory": "/data/w/null"}}`,
	`{"workspace": "${x.output.workspace}", "prefix": "a/../b", "source": null}`,
	`{"workspace": null, "pre` + "\\n" + `fix": "x"}`, `null`, `[]`, `7`, ``,
	`{"workspace": {"repository": "la` + "\\u001b" + `ke", "branch": "ma` + "\\n" + `in", "ref_type": "commit", "ref": "main"}}`,
}

func FuzzStageInput(f *testing.F) {
	for _, seed := range stageSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		input, err := ParseStageInput(raw, everything)
		if err != nil {
			wantFieldNamed(t, raw, err, "workspace", "prefix", "root", "source", "guardrails", "read_only", "allow_empty")
			return
		}
		wantWorkspace(t, input.Workspace, everything)
		wantPrefix(t, input.Prefix)
		wantFilled(t, raw, string(input.Prefix), string(input.Import))
		fields := map[string]any{
			"workspace": input.Workspace, "prefix": input.Prefix, "root": input.Prefix == "", "read_only": input.ReadOnly, "allow_empty": input.AllowEmpty,
			"guardrails": guardrailsAgain(input.Guardrails),
		}
		switch sources := []bool{input.ReadOnly, input.Directory != "", input.Import != ""}; {
		case !slices.Equal(sources, []bool{true, false, false}) && !slices.Equal(sources, []bool{false, true, false}) && !slices.Equal(sources, []bool{false, false, true}):
			t.Fatalf("not one source in %+v", input)
		case input.Directory != "":
			fields["source"] = map[string]any{"directory": input.Directory}
		case input.Import != "":
			fields["source"] = map[string]any{"import": input.Import}
		}
		back, err := ParseStageInput(again(t, fields), everything)
		if diff := cmp.Diff(input, back); err != nil || diff != "" {
			t.Fatalf("%v (-first +again):\n%s", err, diff)
		}
		for _, allowed := range []AllowList{{"lake"}, {"lake/dev-*"}, nil} {
			if input, err := ParseStageInput(raw, allowed); err == nil {
				wantWorkspace(t, input.Workspace, allowed)
			}
		}
	})
}

func FuzzCheckoutInput(f *testing.F) {
	f.Add([]byte(`{"workspace": ` + workspaceText + `, "prefix": "models", "as_of": true, "guardrails": [{"require_file": "x"}]}`))
	f.Add([]byte(`{"workspace": ` + workspaceText + `, "prefix": "/", "root": true, "guardrails": [{"max_removed": {"count": 0}}]}`))
	f.Add([]byte(`{"workspace": ` + workspaceText + `, "prefix": "/", "root": true, "guardrails": [{"require_glob": {"pattern": "*"}}, {"require_dir": "d"}, {"require_glob": {"pattern": "x", "min": 0, "max": 3}}]}`))
	for _, seed := range stageSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		input, err := ParseCheckoutInput(raw, everything)
		if err != nil {
			wantFieldNamed(t, raw, err, "workspace", "prefix", "root", "as_of", "guardrails")
			return
		}
		wantWorkspace(t, input.Workspace, everything)
		wantPrefix(t, input.Prefix)
		wantFilled(t, raw, string(input.Prefix))
		wantGuardrails(t, raw, input.Guardrails)
		back, err := ParseCheckoutInput(again(t, map[string]any{
			"workspace": input.Workspace, "prefix": input.Prefix, "root": input.Prefix == "", "guardrails": guardrailsAgain(input.Guardrails),
		}), everything)
		if diff := cmp.Diff(input, back); err != nil || diff != "" {
			t.Fatalf("%v (-first +again):\n%s", err, diff)
		}
	})
}

var fuzzDefinition = TaskDefinition{Name: TypePublish, InputTemplate: json.RawMessage(`{"budget": ` + budgetText + `}`)}

const budgetText = `{"observed_merge_p99_seconds": 5, "safety_margin_seconds": 5, "lakefs_merge_timeout_seconds": 30,
	"conductor_completion_timeout_seconds": 10, "worker_shutdown_grace_seconds": 20.5, "heartbeat_interval_seconds": 20}`

func stagedText(f *testing.F, change func(*Staged)) string {
	staged := Staged{
		Repository: "lake", Branch: "main", Commit: id("S"), Key: NewLogicalTaskKey(testWorkflow, "train_stage", 0),
		InputRef: CommitID(someCommit), Prefix: "models/", Task: "stage-task", RetryCount: 1, PollCount: 2, StartTime: 1764443290123, Execution: execution1,
		StagingBranch: NewStagingName("here", testWorkflow, "k", 1, execution1).Branch(), Added: 3, Bytes: 42,
	}
	change(&staged)
	raw, err := json.Marshal(staged)
	if err != nil {
		f.Fatal(err)
	}
	return string(raw)
}

func addStaged(f *testing.F, more string) {
	f.Add([]byte(`{"workspace": ` + workspaceText + `, "staged": ` + stagedText(f, func(*Staged) {}) + more + `}`))
	f.Add([]byte(`{"workspace": ` + workspaceText + `, "staged": ` + stagedText(f, func(s *Staged) {
		s.NoOp, s.Commit, s.StagingBranch, s.Prefix = true, s.InputRef, "", ""
	}) + `}`))
	f.Add([]byte(`{"workspace": ` + workspaceText + `, "staged": ` + stagedText(f, func(s *Staged) {
		s.ReadOnly, s.Commit, s.StagingBranch = true, s.InputRef, ""
	}) + `}`))
	for _, change := range []func(*Staged){
		func(s *Staged) { s.Commit = s.InputRef }, func(s *Staged) { s.Execution = execution2 }, func(s *Staged) { s.RetryCount++ },
		func(s *Staged) { s.Branch = "dev" }, func(s *Staged) { s.StagingBranch = "" }, func(s *Staged) { s.ReadOnly = true },
	} {
		f.Add([]byte(`{"workspace": ` + workspaceText + `, "staged": ` + stagedText(f, change) + `}`))
	}
	f.Add([]byte(`{"workspace": ` + workspaceText + `, "staged": ` + stagedText(f, func(*Staged) {}) + `, "workflow_id": "w"}`))
	for _, seed := range []string{`{}`, `{"staged": null, "workspace": null}`, `{"staged": "${s.output.staged}"}`, `{"workflow_id": "w"}`, `{"workflow_id": null}`, `null`} {
		f.Add([]byte(seed))
	}
}

// wantStaged fails unless a checked staged reference agrees with itself.
func wantStaged(t *testing.T, staged Staged) {
	t.Helper()
	nothing := staged.NoOp || staged.ReadOnly
	if nothing != (staged.Commit == staged.InputRef) || !nothing && staged.StagingBranch == "" {
		t.Fatalf("accepted %+v", staged)
	}
	if staged.StagingBranch != "" {
		name, err := ParseStagingName(staged.StagingBranch)
		if err != nil || name.Execution != staged.Execution || name.Source != 0 {
			t.Fatalf("accepted the staging branch %q, %v", staged.StagingBranch, err)
		}
	}
	wantPrefix(t, staged.Prefix)
}

func FuzzPublishInput(f *testing.F) {
	addStaged(f, `, "budget": `+budgetText)
	f.Fuzz(func(t *testing.T, raw []byte) {
		input, err := ParsePublishInput(raw, fuzzDefinition, everything)
		if err != nil {
			wantFieldNamed(t, raw, err, "workspace", "staged", "budget")
			return
		}
		wantWorkspace(t, input.Workspace, everything)
		wantStaged(t, input.Staged)
		if input.Staged.InputRef != input.Workspace.Ref || input.Staged.Repository != input.Workspace.Repository || input.Staged.Branch != input.Workspace.Branch {
			t.Fatalf("accepted a staged reference of another workspace: %+v", input)
		}
		back, err := ParsePublishInput(again(t, map[string]any{"workspace": input.Workspace, "staged": input.Staged}), fuzzDefinition, everything)
		if err != nil || back != input {
			t.Fatalf("%+v comes back as %+v, %v", input, back, err)
		}
		// The record of a stage task that put out just this: only the key can be wrong,
		// for it is made of what Conductor says.
		staged := input.Staged
		record := Task{
			ID: staged.Task, Workflow: testWorkflow, ReferenceName: "train_stage", Status: TaskCompleted, RetryCount: staged.RetryCount,
			PollCount: staged.PollCount, StartTime: staged.StartTime, Output: again(t, map[string]any{"staged": staged}),
		}
		key, err := CheckUpstream(staged, record, testWorkflow)
		if want := NewLogicalTaskKey(testWorkflow, "train_stage", 0); (err == nil) != (staged.Key == want) || err == nil && key != want {
			t.Fatalf("the key %q of %q, %v", key, staged.Key, err)
		}
		record.PollCount++
		if _, err := CheckUpstream(staged, record, testWorkflow); err == nil {
			t.Fatal("a task that was handed out again is accepted")
		}
	})
}

func FuzzCleanupInput(f *testing.F) {
	addStaged(f, "")
	f.Fuzz(func(t *testing.T, raw []byte) {
		input, err := ParseCleanupInput(raw, everything)
		if err != nil {
			wantFieldNamed(t, raw, err, "workspace", "staged", "workflow_id")
			return
		}
		var given struct {
			Staged   *json.RawMessage `json:"staged"`
			Workflow *string          `json:"workflow_id"`
		}
		if json.Unmarshal(raw, &given) == nil && given.Staged != nil && given.Workflow != nil && utf8.Valid(raw) {
			t.Fatal("a step and a workflow are both given")
		}
		if input.Staged == nil {
			if input.Workflow == "" && !strings.Contains(string(raw), "null") {
				t.Fatal("nothing to clean, and nothing was null")
			}
			return
		}
		if input.Workflow != "" {
			t.Fatal("a step and a workflow")
		}
		wantStaged(t, *input.Staged)
		back, err := ParseCleanupInput(again(t, map[string]any{
			"staged": input.Staged, "workspace": Workspace{Repository: input.Staged.Repository, Branch: input.Staged.Branch}.At(input.Staged.InputRef),
		}), everything)
		if diff := cmp.Diff(input, back); err != nil || diff != "" {
			t.Fatalf("%v (-first +again):\n%s", err, diff)
		}
	})
}

// FuzzSourceDirectory: an accepted directory is below the workflow's own, and
// what is opened below the root is that directory.
func FuzzSourceDirectory(f *testing.F) {
	f.Add("/data", "w", "/data/w/t")
	f.Add("/", "w", "/w/t/")
	f.Add("/data/", "..", "/data/../x")
	f.Add("/data", "", "/data/x")
	f.Add("/data", "a/b", "/data/a/b/c")
	f.Add("data", "w", "data/w/t")
	f.Fuzz(func(t *testing.T, root, workflow, directory string) {
		if CheckKey(workflow) != nil && workflow != "" || CheckKey(strings.Trim(root, "/")) != nil && root != "/" {
			return // both are ours and Conductor's, not a user's
		}
		relative, err := SourceDirectory(root, WorkflowID(workflow), directory)
		if err != nil {
			if text := err.Error(); !strings.HasPrefix(text, "source.directory: ") && !strings.HasPrefix(text, "the workflow's id ") {
				t.Fatalf("%q names no field", text)
			}
			return
		}
		if !filepath.IsLocal(relative) || path.Join(root, relative) != path.Clean(directory) || path.Clean(relative) != relative ||
			!strings.HasPrefix(relative, workflow+"/") || strings.ContainsRune(relative, 0) {
			t.Fatalf("%q below %q of workflow %q is opened as %q", directory, root, workflow, relative)
		}
	})
}
