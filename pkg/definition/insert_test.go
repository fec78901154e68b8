package definition_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"perago/pkg/definition"
)

// Each sample is a workflow, what is put into it, and the whole text that comes
// out.
func TestInsertSamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "insert", "*.txtar"))
	if err != nil || len(files) < 15 {
		t.Fatalf("%d samples, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			part := map[string]*txtar.File{}
			for i := range archive.Files {
				part[archive.Files[i].Name] = &archive.Files[i]
			}
			arguments := strings.Fields(string(part["args"].Data))
			what := definition.Insertion{After: arguments[0], Prefix: arguments[1]}
			for _, argument := range arguments[2:] {
				switch name, value, named := strings.Cut(argument, "="); {
				case !named:
					what.Workspace = argument
				case name == "name":
					what.Name = value
				case name == "source":
					what.Source = value
				case name == "checkout":
					what.Checkout = value
				case name == "guardrails":
					what.Guardrails = json.RawMessage(value)
				default:
					t.Fatalf("the argument %s", argument)
				}
			}
			in := part["in.json"].Data
			got, notes, err := definition.Insert("in.json", in, what)
			if err != nil {
				t.Fatal(err)
			}
			said := ""
			for _, note := range notes {
				said += note + "\n"
			}
			if *update {
				part["out.json"].Data, part["notes"].Data = got, []byte(said)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(part["out.json"].Data), string(got)); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(string(part["notes"].Data), said); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
			for _, finding := range lintText(t, "out.json", string(got)) {
				t.Error(finding)
			}
			kept(t, string(in), string(got), len(notes))
		})
	}
}

// kept holds that nothing was changed but what the notes say: taking the new
// lines out of the text gives the old one.
func kept(t *testing.T, before, after string, notes int) {
	t.Helper()
	if before = strings.TrimSpace(before); !strings.Contains(before, "\n") {
		return
	}
	lines, missing := strings.Split(strings.TrimSpace(after), "\n"), 0
	for _, line := range strings.Split(before, "\n") {
		i := slices.IndexFunc(lines, func(l string) bool { return strings.TrimSuffix(l, ",") == strings.TrimSuffix(line, ",") })
		if i < 0 {
			missing++
			continue
		}
		lines = lines[i+1:]
	}
	if missing > notes {
		t.Errorf("%d lines are not as they were, and there are %d notes", missing, notes)
	}
}

// With other line ends and indentation the text comes out alike.
func TestInsertKeepsLineEnds(t *testing.T) {
	t.Parallel()
	const text = "{\n  \"name\": \"w\",\n  \"failureWorkflow\": \"f\",\n  \"tasks\": [\n    {\n      \"name\": \"a\",\n      \"taskReferenceName\": \"a\"\n    }\n  ]\n}\n"
	plain, _, err := definition.Insert("w.json", []byte(text), definition.Insertion{After: "a", Prefix: "p/"})
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]*strings.Replacer{"CRLF": strings.NewReplacer("\n", "\r\n"), "tabs": strings.NewReplacer("  ", "\t")} {
		got, _, err := definition.Insert("w.json", []byte(change.Replace(text)), definition.Insertion{After: "a", Prefix: "p/"})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(change.Replace(string(plain)), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestInsertRefuses(t *testing.T) {
	t.Parallel()
	workflow := func(tasks string) string { return `{"name":"w","tasks":[` + tasks + `]}` }
	const a = `{"name":"a","taskReferenceName":"a"}`
	for name, c := range map[string]struct{ text, after, prefix, want string }{
		"no such task":       {workflow(a), "b", "p/", "w.json has no task with the reference name b"},
		"no workflow":        {`{"name":"t","retryCount":1}`, "t", "p/", "w.json has no task with the reference name t"},
		"twice":              {`[` + workflow(a) + `,` + workflow(a) + `]`, "a", "p/", "w.json has more than one task with the reference name a"},
		"broken":             {`{"name":`, "a", "p/", "w.json:1:9: the file ends in the middle of a value; expected a closing quote, bracket or brace"},
		"prefix":             {workflow(a), "a", "/p", `prefix: "/p" begins with a slash; write it as "p"`},
		"hooks":              {workflow(a), "a", "_lakefs_actions/", "prefix: _lakefs_actions/ holds the repository's hooks and belongs to no step; choose another prefix"},
		"already there":      {workflow(a + `,{"name":"perago_stage","taskReferenceName":"a_stage"}`), "a", "p/", "w.json has a task a_stage already; is the step in it? If it is another step, give --name"},
		"a task of perago's": {workflow(`{"name":"perago_publish","taskReferenceName":"p"}`), "p", "p/", "p is a task of perago's; name the task of yours that writes the files, or give --source and --name to put the step in here"},
		"a join":             {workflow(`{"name":"j","taskReferenceName":"j","type":"JOIN"}`), "j", "p/", "j is a JOIN, which writes no files; give --source with what the step publishes, such as ${TASK.output.directory}"},
		"not UTF-8":          {workflow(a), "\xc8", "p/", `the name of the task "\xc8" is not UTF-8; write it in UTF-8`},
		"a second writer": {workflow(`{"name":"f","taskReferenceName":"f","type":"FORK_JOIN","forkTasks":[[` + a + `],[
			{"name":"perago_stage","taskReferenceName":"s","inputParameters":{"workspace":"${workflow.input.workspace}","prefix":"q/","source":{"import":"s3://b/q/"}}},
			{"name":"perago_publish","taskReferenceName":"p","inputParameters":{"workspace":"${s.output.workspace}","staged":"${s.output.staged}"}}]]}`), "a", "p/",
			"the step cannot be put in behind a like that: tasks[0]: a_publish and p publish to one branch side by side, and the second is refused; publish in one branch of the fork alone, or after the join, one step after the other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := definition.Insert("w.json", []byte(c.text), definition.Insertion{After: c.after, Prefix: c.prefix})
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}
