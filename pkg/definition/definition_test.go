package definition

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/txn"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       []Definition
	}{
		{"task definition", ` {"name": "t", "retryCount": 1.0} `, []Definition{{Kind: Task, Name: "t", Raw: []byte(`{"name": "t", "retryCount": 1.0}`)}}},
		{"workflow", `{"tasks": [], "name": "w", "version": 7}`, []Definition{{Kind: Workflow, Name: "w", Version: 7, Raw: []byte(`{"tasks": [], "name": "w", "version": 7}`)}}},
		{"workflow without version", `{"name": "w", "tasks": []}`, []Definition{{Kind: Workflow, Name: "w", Version: 1, Raw: []byte(`{"name": "w", "tasks": []}`)}}},
		{"list", "[\n{\"name\":\"a\",\"ownerEmail\":\"x\"} , {\"name\":\"b\",\"tasks\":[]}]\n", []Definition{
			{Kind: Task, Name: "a", Raw: []byte(`{"name":"a","ownerEmail":"x"}`), at: "[0]"},
			{Kind: Workflow, Name: "b", Version: 1, Raw: []byte(`{"name":"b","tasks":[]}`), at: "[1]"},
		}},
		{"empty list", `[]`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := Parse("f.json", []byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.want {
				c.want[i].Source = "f.json"
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(Definition{}), cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".value" }, cmp.Ignore())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, words string }{
		{"empty file", "", "f.json:1:1: the file is empty; expected"},
		{"syntax", "{\n  \"name\": x\n}", "f.json:2:11: found 'x'; expected a value"},
		{"two values", "{}\n{}", "f.json:2:1: found '{'; expected the end of the file"},
		{"a number", "3", "f.json: a definition is a JSON object"},
		{"no name", `{"tasks": []}`, "f.json: a definition has a name"},
		{"name that is no text", `{"name": 3, "tasks": []}`, "a definition has a name"},
		{"something else", `{"name": "my-package", "version": "1.0.0"}`, `"my-package" is neither a workflow definition`},
		{"version 0", `{"name": "w", "tasks": [], "version": 0}`, "version is 0; it must be a whole number from 1"},
		{"version as text", `{"name": "w", "tasks": [], "version": "1"}`, "version is 1; it must be"},
		{"fraction", `{"name": "w", "tasks": [], "version": 1.5}`, "version is 1.5; it must be"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got, err := Parse("f.json", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.words) {
				t.Errorf("got %v, %v; want an error with %q", got, err, c.words)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const task, workflow = `{"name": "t", "retryCount": 1}`, `{"name": "w", "tasks": []}`
	for name, text := range map[string]string{
		"d/t.json": task, "d/w.json": workflow, "d/README.md": "no JSON", "d/below/x.json": "{",
		"odd-name": `{"name": "u", "retryCount": 1}`, "again.json": task, "empty/README.md": "",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }

	got, err := Load(in("d"), in("odd-name"))
	if err != nil {
		t.Fatal(err)
	}
	var loaded [][2]string
	for _, d := range got {
		loaded = append(loaded, [2]string{d.String(), d.Source})
	}
	want := [][2]string{{"task definition t", in("d/t.json")}, {"workflow w version 1", in("d/w.json")}, {"task definition u", in("odd-name")}}
	if diff := cmp.Diff(want, loaded); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	for _, c := range []struct {
		paths []string
		words string
	}{
		{[]string{in("missing")}, "no such file"},
		{[]string{in("empty")}, "holds no .json file"},
		{[]string{in("d/below")}, "x.json:1:2: the file ends"},
		{[]string{in("d"), in("again.json")}, "task definition t stands in " + in("d/t.json") + " and in " + in("again.json")},
	} {
		if _, err := Load(c.paths...); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%v: got %v, want %q", c.paths, err, c.words)
		}
	}
}

func TestLoadFS(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"a.json": {Data: []byte(`{"name": "t", "retryCount": 1}`)}, "a.go": {Data: []byte("package a")}}
	got, err := LoadFS("taskdefs", files)
	if err != nil || len(got) != 1 || got[0].Source != "taskdefs/a.json" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := LoadFS("taskdefs", fstest.MapFS{}); err == nil {
		t.Error("an empty directory holds nothing to register, and nobody is told")
	}
}

// What a definition leaves out is what Conductor takes in its place.
func TestTaskDefinition(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]txn.TaskDefinition{
		`{"name": "t", "ownerEmail": "x"}`: {Name: "t", RetryCount: 3, RetryDelaySeconds: 60, ResponseTimeoutSeconds: 3600, TimeoutPolicy: "TIME_OUT_WF"},
		`{"name": "t", "retryCount": 0, "retryDelaySeconds": 0, "timeoutSeconds": 9, "responseTimeoutSeconds": 5, "totalTimeoutSeconds": 11, "pollTimeoutSeconds": 7, "timeoutPolicy": "RETRY", "inputTemplate": {"a": 1}}`: {Name: "t", TimeoutSeconds: 9, ResponseTimeoutSeconds: 5, TotalTimeoutSeconds: 11, PollTimeoutSeconds: 7, TimeoutPolicy: "RETRY", InputTemplate: []byte(`{"a": 1}`)},
	} {
		got, err := one(t, text).TaskDefinition()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	if _, err := one(t, `{"name": "w", "tasks": []}`).TaskDefinition(); err == nil {
		t.Error("a workflow has a task definition")
	}
	for text, says := range map[string]string{
		`{"name": "t", "retryCount": "three"}`:  "task definition t: retryCount must be a whole number, not a JSON string",
		`{"name": "t", "timeoutSeconds": 1.5}`:  "task definition t: timeoutSeconds must be a whole number, not a JSON number 1.5",
		`{"name": "t", "timeoutPolicy": ["x"]}`: "task definition t: timeoutPolicy must be a text, not a JSON array",
	} {
		if _, err := one(t, text).TaskDefinition(); err == nil || err.Error() != says {
			t.Errorf("%s: got %v, want %s", text, err, says)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	const budget = `"inputTemplate": {"budget": {"observed_merge_p99_seconds": 1, "safety_margin_seconds": 1, "lakefs_merge_timeout_seconds": 2, "conductor_completion_timeout_seconds": 1, "worker_shutdown_grace_seconds": 1, "heartbeat_interval_seconds": 1}}`
	for _, c := range []struct{ text, words string }{
		{`{"name": "perago_stage", "responseTimeoutSeconds": 60}`, ""},
		{`{"name": "perago_stage", "responseTimeoutSeconds": 0}`, "responseTimeoutSeconds is 0"},
		{`{"name": "perago_cleanup", "responseTimeoutSeconds": 60, "timeoutSeconds": 60}`, "not below timeoutSeconds"},
		{`{"name": "perago_publish", "responseTimeoutSeconds": 5, ` + budget + `}`, ""},
		{`{"name": "perago_publish_large", "responseTimeoutSeconds": 4, ` + budget + `}`, "responseTimeoutSeconds is 4"},
		{`{"name": "perago_publish", "responseTimeoutSeconds": 60}`, "no inputTemplate.budget"},
		{`{"name": "train", "responseTimeoutSeconds": 0}`, ""},
		{`{"name": "perago_cancel", "tasks": []}`, ""},
	} {
		err := one(t, c.text).Check()
		if (err == nil) != (c.words == "") || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: got %v, want %q", c.text, err, c.words)
		}
	}
}

func one(t *testing.T, text string) Definition {
	t.Helper()
	all, err := Parse("f.json", []byte(text))
	if err != nil || len(all) != 1 {
		t.Fatalf("%s: %v, %v", text, all, err)
	}
	return all[0]
}
