package documents

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	environ "perago/pkg/config"
	"perago/pkg/definition"
	"perago/pkg/projection"
	"perago/pkg/txn"
	"perago/taskdefs"
	"perago/workflows"
)

// Every JSON of a document is one, and what it shows is what the code takes.
func TestJSON(t *testing.T) {
	t.Parallel()
	checks := 0
	for _, name := range documents(t) {
		for _, b := range blocks(read(t, name)) {
			if b.language != "json" {
				continue
			}
			raw := json.RawMessage(b.text)
			if !json.Valid(raw) {
				t.Errorf("%s has a block that is no JSON:\n%s", name, b.text)
				continue
			}
			if len(b.marks) == 0 {
				t.Errorf("%s has a block without a mark that says how it is checked:\n%s", name, b.text)
			}
			if file, ok := b.marked("tasks of: "); ok {
				checks++
				checkTasks(t, name, raw, file)
			}
			if file, ok := b.marked("file: "); ok {
				checks++
				checkDefinition(t, name, file, raw)
			}
			if what, ok := b.marked("check: "); ok {
				checks++
				checkInput(t, name, what, raw)
			}
		}
	}
	if checks < 6 {
		t.Errorf("checked %d blocks; the marks are gone", checks)
	}
}

// checkTasks holds the tasks of a definition, or one task, to those of the same
// reference name in a shipped definition.
func checkTasks(t *testing.T, document string, raw json.RawMessage, file string) {
	t.Helper()
	shipped := tasksOf(t, json.RawMessage(read(t, file)))
	shown := tasksOf(t, raw)
	if len(shown) == 0 {
		t.Errorf("%s: no task in\n%s", document, raw)
	}
	for reference, task := range shown {
		if diff := cmp.Diff(shipped[reference], task); diff != "" {
			t.Errorf("%s: task %s (-%s +document):\n%s", document, reference, file, diff)
		}
	}
}

func tasksOf(t *testing.T, raw json.RawMessage) map[string]any {
	t.Helper()
	var value map[string]any
	if err := json.Unmarshal(raw, &value); err != nil {
		t.Fatal(err)
	}
	list, ok := value["tasks"].([]any)
	if !ok {
		list = []any{value}
	}
	tasks := map[string]any{}
	for _, task := range list {
		reference, _ := task.(map[string]any)["taskReferenceName"].(string)
		tasks[reference] = task
	}
	return tasks
}

// checkDefinition registers a definition on a server that has what `perago
// register` and the example bring.
func checkDefinition(t *testing.T, document, file string, raw json.RawMessage) {
	t.Helper()
	shown, err := definition.Parse(file, raw)
	if err != nil {
		t.Errorf("%s: %v", document, err)
		return
	}
	server := registered{}
	for name, files := range map[string]fs.FS{"taskdefs": taskdefs.Files, "workflows": workflows.Files} {
		loaded, err := definition.LoadFS(name, files)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range loaded {
			server[d.Name] = d.Raw
		}
	}
	plan, err := definition.Plan(t.Context(), server, shown)
	if err != nil || len(plan) != 1 || plan[0].Action != definition.Created || plan[0].Warning != "" {
		t.Errorf("%s: registering %s: %+v, %v", document, file, plan, err)
	}
	want := strings.TrimSuffix(file, ".json")
	if shown[0].Kind != definition.Workflow || shown[0].Name != want {
		t.Errorf("%s: %s holds %s, want the workflow %s", document, file, shown[0], want)
	}
}

// registered is a server that has these definitions and takes no others.
type registered map[string]json.RawMessage

func (r registered) get(name string) (json.RawMessage, error) {
	if raw, ok := r[name]; ok {
		return raw, nil
	}
	return nil, txn.ErrNotFound
}

func (r registered) RawTaskDefinition(_ context.Context, name txn.TaskType) (json.RawMessage, error) {
	return r.get(string(name))
}

func (r registered) RawWorkflowDefinition(_ context.Context, name string, _ int) (json.RawMessage, error) {
	return r.get(name)
}

func (r registered) PutTaskDefinition(context.Context, json.RawMessage) error {
	return txn.ErrForbidden
}

func (r registered) PutWorkflowDefinition(context.Context, json.RawMessage) error {
	return txn.ErrForbidden
}

// checkInput gives an example to the parser that reads such input.
func checkInput(t *testing.T, document, what string, raw json.RawMessage) {
	t.Helper()
	all := txn.AllowList{"*"}
	var err error
	switch what {
	case "workspace":
		whole := `{"prefix": "p/", "read_only": true, "workspace": ` + string(raw) + `}`
		_, err = txn.ParseStageInput(json.RawMessage(whole), all)
	case "workflow":
		err = lint(t, document, raw)
	case "checkout input":
		_, err = txn.ParseCheckoutInput(raw, all)
	case "guardrails":
		whole := `{"prefix": "p/", "source": {"directory": "/w/i/t"}, "workspace": {"repository": "lake", "branch": "main", "ref_type": "commit", "ref": "` + strings.Repeat("ab", 32) + `"}, "guardrails": ` + string(raw) + `}`
		var input txn.StageInput
		if input, err = txn.ParseStageInput(json.RawMessage(whole), all); err == nil {
			_, err = projection.NewGuardrails(input.Guardrails)
		}
	case "stage input":
		var input txn.StageInput
		if input, err = txn.ParseStageInput(raw, all); err == nil {
			if input.Directory == "" {
				break
			}
			// <root>/<workflow id>/<task id>
			own := filepath.Dir(input.Directory)
			if _, e := uuid.Parse(filepath.Base(own)); e != nil {
				t.Errorf("%s: the directory of the %s has no workflow id: %v", document, what, e)
			}
			_, err = txn.SourceDirectory(filepath.Dir(own), txn.WorkflowID(filepath.Base(own)), input.Directory)
		}
	default:
		t.Errorf("%s: no check is called %q", document, what)
	}
	if err != nil {
		t.Errorf("%s: the %s is refused: %v", document, what, err)
	}
}

// lint is what perago lint says of a workflow beside the shipped definitions,
// without a server.
func lint(t *testing.T, name string, raw json.RawMessage) error {
	t.Helper()
	shown, err := definition.Parse(name, raw)
	if err != nil {
		return err
	}
	for folder, files := range map[string]fs.FS{"taskdefs": taskdefs.Files, "workflows": workflows.Files} {
		shipped, err := definition.LoadFS(folder, files)
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, shipped...)
	}
	var faults []error
	for _, finding := range definition.Lint(shown, nil) {
		faults = append(faults, errors.New(finding.String()))
	}
	return errors.Join(faults...)
}

// The environment of docs/operations.md configures all three workers, once its
// placeholders are replaced.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	var environment []block
	for _, b := range blocks(read(t, "docs/operations.md")) {
		if _, ok := b.marked("environment"); ok {
			environment = append(environment, b)
		}
	}
	if len(environment) != 1 {
		t.Fatalf("docs/operations.md has %d environments, want 1", len(environment))
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("a secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for line := range strings.Lines(environment[0].text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			t.Errorf("%q is not NAME=value", line)
		}
		switch {
		case value == "replace-me":
			value = "replaced"
		case strings.HasSuffix(name, "_FILE"):
			value = secret
		case name == "PERAGO_WORKSPACE_ROOT":
			value = t.TempDir()
		}
		values[name] = value
	}
	for _, p := range programs(t) {
		values["PERAGO_HTTP_ADDR"] = p.httpAddr // a default of the program's
		lookup := func(name string) (string, bool) { value, ok := values[name]; return value, ok }
		for _, config := range p.configs {
			if _, err := environ.Read(lookup, configs[config].pointer()); err != nil {
				t.Errorf("%s with the environment of docs/operations.md: %v", p.name, err)
			}
		}
	}
}

// The table of the binaries says where they listen and what they serve.
func TestBinaries(t *testing.T) {
	t.Parallel()
	operations := read(t, "docs/operations.md")
	for _, p := range programs(t) {
		row := regexp.MustCompile("(?m)^\\| `" + p.name + "` \\|.*$").FindString(operations)
		if !strings.Contains(row, "| `"+strings.Join(p.types, "`, `")+"` |") || !strings.HasSuffix(row, "| `"+p.httpAddr+"` |") {
			t.Errorf("docs/operations.md says of %s: %q; it serves %v on %s", p.name, row, p.types, p.httpAddr)
		}
	}
}
