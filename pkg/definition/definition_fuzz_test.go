package definition

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"perago/pkg/txn"
)

// texts are the definitions that ship and those of the samples.
func texts(f *testing.F) []string {
	f.Helper()
	var all []string
	for _, pattern := range []string{"../../taskdefs/*.json", "../../workflows/*.json", "testdata/*/*.txtar"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			if filepath.Ext(file) == ".json" {
				all = append(all, string(text))
				continue
			}
			for _, sample := range txtar.Parse(text).Files {
				if strings.HasSuffix(sample.Name, ".json") {
					all = append(all, string(sample.Data))
				}
			}
		}
	}
	return all
}

// FuzzParse: what is accepted can be held to every rule, is the same as itself,
// and keeps its bytes; what is refused is named with its file.
func FuzzParse(f *testing.F) {
	for _, text := range texts(f) {
		f.Add([]byte(text))
	}
	for _, text := range []string{``, `{`, "{\n\"name\": }", `[]`, `[1]`, `{"name":"w","tasks":null}`, `{"name":"perago_publish","retryCount":1e99}`,
		`{"name":"w","tasks":[{"type":"DO_WHILE"},{"type":"FORK_JOIN","forkTasks":[[],1]},{"type":"SWITCH","decisionCases":[]}]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		definitions, err := Parse("file.json", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "file.json:") {
				t.Fatalf("%q does not name the file", err)
			}
			return
		}
		for _, d := range definitions {
			if d.Name == "" || !strings.Contains(string(text), string(d.Raw)) || (d.Kind == Workflow) != (d.Version > 0) {
				t.Fatalf("accepted %+v", d)
			}
			if differences, err := compare(d, d.Raw); err != nil || len(differences) > 0 {
				t.Fatalf("%s differs from itself: %v, %v", d, differences, err)
			}
			if d.Kind == Task && d.Check() == nil && ours(txn.TaskType(d.Name)) {
				if read, err := d.TaskDefinition(); err != nil || txn.Heartbeat(read) <= 0 {
					t.Fatalf("%s passes with a heartbeat every %s, %v", d, txn.Heartbeat(read), err)
				}
			}
		}
		order := func(a, b Definition) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version), cmp.Compare(a.at, b.at))
		}
		ordered := Order(definitions)
		if !slices.EqualFunc(slices.SortedFunc(slices.Values(definitions), order), slices.SortedFunc(slices.Values(ordered), order), func(a, b Definition) bool { return order(a, b) == 0 }) {
			t.Fatal("some are lost in the order of registering")
		}
		for _, around := range []*Surroundings{nil, {Registered: definitions}, {RequireHardFence: true}} {
			began := time.Now()
			findings := Lint(definitions, around)
			if took := time.Since(began); took > 20*time.Second {
				t.Fatalf("%d bytes took %s", len(text), took)
			}
			if diff := gocmp.Diff(findings, Lint(definitions, around)); diff != "" {
				t.Fatalf("found another time (-first +again):\n%s", diff)
			}
			for _, finding := range findings {
				if finding.File != "file.json" || finding.Path == "" || finding.What == "" || finding.Do == "" {
					t.Fatalf("found %+v", finding)
				}
			}
		}
	})
}

// manyWays are small workflows with more ways through them than can be gone.
func manyWays() []string {
	loops, forks := `{"taskReferenceName":"x"}`, `{"taskReferenceName":"x"}`
	for range 40 {
		loops = `{"taskReferenceName":"l","type":"DO_WHILE","loopOver":[` + loops + `]}`
	}
	for i := range 4 {
		var cases []string
		for j := range 10 {
			cases = append(cases, fmt.Sprintf(`"%d":[{"type":"SET_VARIABLE","inputParameters":{"v%d":"${workflow.input.x%d}"}}]`, j, i, j))
		}
		branch := `[{"type":"SWITCH","decisionCases":{` + strings.Join(cases, ",") + `}},` + forks + `]`
		forks = `{"type":"FORK_JOIN","forkTasks":[` + branch + `,` + branch + `]}`
	}
	again := `{"type":"SUB_WORKFLOW","subWorkflowParam":{"name":"w"}}`
	var all []string
	for _, tasks := range []string{loops, forks, strings.Repeat(again+",", 9) + again} {
		all = append(all, `{"name":"w","tasks":[`+tasks+`]}`)
	}
	return all
}

// A few lines can have more ways through them than can be gone: they are looked at
// in part, and at once, and lint says so.
func TestLintComesToAnEnd(t *testing.T) {
	t.Parallel()
	for _, text := range manyWays() {
		definitions, err := Parse("file.json", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if !slices.ContainsFunc(Lint(definitions, nil), func(f Finding) bool { return f.Rule == RuleEveryWay }) {
			t.Errorf("%d bytes: lint does not say that it looked at a part", len(text))
		}
		t.Logf("%d bytes took %s", len(text), time.Since(began))
	}
}

// FuzzTree: a node is where its value stands in the text.
func FuzzTree(f *testing.F) {
	for _, text := range texts(f) {
		f.Add([]byte(text))
	}
	f.Add([]byte("\n{\"a\" :\t[1 ,2.50,-3e+7, {\"b\": null}, [[]], \"x,:]}\\\"\"],\"a\": true, \"\\u0061\": \"\\u00e9é\" }\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if CheckJSON("f.json", text) != nil {
			return
		}
		root, err := parseTree(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		whole, err := decode(text)
		if err != nil {
			t.Fatal(err)
		}
		var walk func(n *node, want any)
		walk = func(n *node, want any) {
			got, err := decode(text[n.start:n.end])
			if err != nil {
				t.Fatalf("%q: %v", text[n.start:n.end], err)
			}
			switch want := want.(type) {
			case map[string]any:
				for name := range want {
					if n.member(name) == nil {
						t.Fatalf("no %q in %q", name, text[n.start:n.end])
					}
					walk(n.member(name), want[name])
				}
			case []any:
				if len(n.elements) != len(want) {
					t.Fatalf("%d elements in %q", len(n.elements), text[n.start:n.end])
				}
				for i := range want {
					walk(n.elements[i], want[i])
				}
			default:
				if got != want {
					t.Fatalf("%q is %v, want %v", text[n.start:n.end], got, want)
				}
			}
		}
		walk(root, whole)
	})
}

// FuzzInsert: a step that was put in is there once, in a text that is the old one
// beside it, and no rule finds more than before.
func FuzzInsert(f *testing.F) {
	files, err := filepath.Glob("testdata/insert/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		part := map[string]string{}
		for _, one := range archive.Files {
			part[one.Name] = string(one.Data)
		}
		arguments := strings.Fields(part["args"])
		given := map[string]string{}
		for _, argument := range arguments[2:] {
			name, value, named := strings.Cut(argument, "=")
			if !named {
				name, value = "workspace", argument
			}
			given[name] = value
		}
		f.Add([]byte(part["in.json"]), arguments[0], arguments[1], given["workspace"], given["name"], given["source"], given["checkout"], false)
	}
	f.Add([]byte(`{"name":"w","tasks":[{"taskReferenceName":""}]}`), "", "", "", "", "", "", true)
	f.Add([]byte(`{"tasks":[{}],"name":"w","tasks":[{"taskReferenceName":"a"}]}`), "a", "/", "", "", "", "", true)
	f.Add([]byte(`{"name":"w","inputParameters":["a",{"b":1}],"inputParameters":["c"],"tasks":[{"taskReferenceName":"a"}]}`), "a", "p", "${workflow.input.x[0].y}", "b", "", "q", false)
	f.Add([]byte(`{"name":"w","tasks":[{"taskReferenceName":"a","type":"JOIN"}]}`), "a", "data/null", "", "", "${workflow.input.d}", "", false)
	f.Fuzz(func(t *testing.T, text []byte, after, prefix, workspace, name, source, checkout string, root bool) {
		what := Insertion{After: after, Prefix: prefix, Workspace: workspace, Name: name, Source: source, Checkout: checkout, Root: root}
		edited, notes, err := Insert("w.json", text, what)
		if err != nil {
			if strings.Contains(err.Error(), "the edited workflow is broken") {
				t.Fatal(err)
			}
			return
		}
		again, _, err := Insert("w.json", text, what)
		if err != nil || string(again) != string(edited) {
			t.Fatalf("another time: %v\n%s", err, again)
		}
		if _, _, err := Insert("w.json", edited, what); err == nil || !strings.Contains(err.Error(), "already") {
			t.Fatalf("put in twice: %v\n%s", err, edited)
		}
		if len(notes) == 0 && !isSubsequence(text, edited) {
			t.Fatalf("the rest is not as it was:\n%s", edited)
		}
		references := func(text []byte) (all []string) {
			definitions, err := Parse("w.json", text)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range definitions {
				for _, task := range everyTask(d.taskList()) {
					all = append(all, task.reference())
				}
			}
			return all
		}
		if name == "" {
			name = after
		}
		before, now := references(text), references(edited)
		added := slices.DeleteFunc(slices.Clone(now), func(reference string) bool { return slices.Contains(before, reference) })
		rest := slices.DeleteFunc(slices.Clone(now), func(reference string) bool { return slices.Contains(added, reference) })
		if !slices.Equal(rest, before) || len(added) < 2 || !slices.Contains(added, name+"_stage") || !slices.Contains(added, name+"_publish") {
			t.Fatalf("the tasks were %q and are %q", before, now)
		}
		for _, reference := range added {
			suffix, ok := strings.CutPrefix(reference, name)
			if !ok || !slices.Contains([]string{"_checkout", "_stage", "_publish", "_cleanup", "_remember", "_begin"}, suffix) {
				t.Fatalf("added %q", reference)
			}
		}
	})
}

// isSubsequence reports whether the text is what is left of the longer one when
// something is taken out of it.
func isSubsequence(text, longer []byte) bool {
	for _, b := range longer {
		if len(text) > 0 && text[0] == b {
			text = text[1:]
		}
	}
	return len(text) == 0
}

// FuzzMergeTimes: what is proposed from any metrics is a budget that holds its
// rules, or it is said why there is none.
func FuzzMergeTimes(f *testing.F) {
	shipped, err := os.ReadFile("../../taskdefs/perago_publish.json")
	if err != nil {
		f.Fatal(err)
	}
	const bucket = `perago_merge_duration_seconds_bucket{repository="lake",le="`
	f.Add([]byte(bucket + "0.5\"} 99\n" + bucket + "+Inf\"} 100\n"))
	f.Add([]byte(bucket + "0.5\"} 9 1700000000\n" + bucket + "2.5\"} 100\n" + bucket + "+Inf\"} 1e2\n"))
	f.Add([]byte(bucket + "NaN\"} NaN\n" + bucket + "-1\"} 100\n" + bucket + "+Inf\"} 1e99\n"))
	f.Add([]byte(bucket + "-1\"} 100\n" + bucket + "+Inf\"} 100\n"))
	f.Add([]byte(bucket + "1e9\"} 100\n" + bucket + "+Inf\"} 100\n"))
	f.Add([]byte(bucket + "\n# HELP\n"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, metrics []byte) {
		times := MergeTimes{}
		if times.Add(strings.NewReader(string(metrics))) != nil {
			return
		}
		p99, err := times.P99()
		if err != nil {
			return
		}
		if math.IsNaN(p99) || math.IsInf(p99, 0) || p99 < 0 || times.Count() == 0 {
			t.Fatalf("a p99 of %v over %d merges", p99, times.Count())
		}
		proposed, err := ProposeBudget("perago_publish.json", shipped, p99)
		if err != nil {
			return
		}
		definitions, err := Parse("perago_publish.json", proposed)
		if err != nil || len(definitions) != 1 {
			t.Fatalf("%v:\n%s", err, proposed)
		}
		if err := definitions[0].Check(); err != nil {
			t.Fatalf("from a p99 of %v: %v", p99, err)
		}
	})
}
