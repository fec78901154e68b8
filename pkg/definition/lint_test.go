package definition_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"perago/pkg/definition"
	"perago/pkg/txn"
)

var update = flag.Bool("update", false, "write the wanted findings of the samples; read them before you commit them")

// Each rule has bad samples, with the findings that are wanted, and good ones,
// which no rule finds anything in.
func TestLintSamples(t *testing.T) {
	t.Parallel()
	for _, rule := range definition.Rules() {
		if rule.Surroundings {
			continue // TestLintSurroundings
		}
		t.Run(string(rule.Rule), func(t *testing.T) {
			t.Parallel()
			file := filepath.Join("testdata", "lint", string(rule.Rule)+".txtar")
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			var want *txtar.File
			bad, good := 0, 0
			for i, sample := range archive.Files {
				if sample.Name == "want" {
					want = &archive.Files[i]
					continue
				}
				findings := lintText(t, path.Base(sample.Name), string(sample.Data))
				if path.Dir(sample.Name) == "good" {
					good++
					for _, finding := range findings {
						t.Errorf("%s: found %s", sample.Name, finding)
					}
					continue
				}
				bad++
				if !slices.ContainsFunc(findings, func(f definition.Finding) bool { return f.Rule == rule.Rule }) {
					t.Errorf("%s: %s found nothing", sample.Name, rule.Rule)
				}
				for _, finding := range findings {
					got.WriteString(finding.String() + "\n")
				}
			}
			if bad == 0 || good == 0 {
				t.Errorf("%d bad samples and %d good ones", bad, good)
			}
			if *update {
				want.Data = []byte(got.String())
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(want.Data), got.String()); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func lintText(t *testing.T, name, text string) []definition.Finding {
	t.Helper()
	definitions, err := definition.Parse(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return definition.Lint(definitions, nil)
}

// What ships is clean, also beside what is registered.
func TestShippedDefinitionsAreClean(t *testing.T) {
	t.Parallel()
	all := slices.Concat(shipped(t, definition.Task), shipped(t, definition.Workflow))
	example, err := definition.Load(filepath.Join("..", "..", "examples", "user-worker", "taskdefs"))
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, example...)
	for _, around := range []*definition.Surroundings{nil, {RequireHardFence: true}} {
		for _, finding := range definition.Lint(all, around) {
			t.Error(finding)
		}
	}
}

// What a server has registered is asked of everything the files name, and of what
// those name.
func TestLintSurroundings(t *testing.T) {
	t.Parallel()
	const text = `{"name":"w","ownerEmail":"a@b.c","failureWorkflow":"cancel","tasks":[
		{"name":"prepare","taskReferenceName":"prepare"},
		{"name":"perago_stage","taskReferenceName":"s","inputParameters":{"workspace":"${workflow.input.workspace}","prefix":"d/","source":{"directory":"${prepare.output.directory}"}}},
		{"name":"perago_publish","taskReferenceName":"p","inputParameters":{"workspace":"${s.output.workspace}","staged":"${s.output.staged}"}},
		{"name":"perago_cleanup","taskReferenceName":"c","optional":true,"inputParameters":{"workflow_id":"${workflow.workflowId}"}}]}`
	definitions, err := definition.Parse("w.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	lint := func(server fakeServer, hard bool) string {
		registered, err := definition.Survey(t.Context(), server, definitions)
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, finding := range definition.Lint(definitions, &definition.Surroundings{Registered: registered, RequireHardFence: hard}) {
			all.WriteString(finding.String() + "\n")
		}
		return all.String()
	}
	sound := fakeServer{
		"task prepare":    `{"name":"prepare","retryCount":1}`,
		"workflow cancel": `{"name":"cancel","version":3,"tasks":[{"name":"perago_cleanup","taskReferenceName":"c","optional":true,"inputParameters":{"workflow_id":"${workflow.input.workflowId}"}}]}`,
	}
	for _, d := range shipped(t, definition.Task) {
		sound["task "+d.Name] = string(d.Raw)
	}
	if got := lint(sound, true); got != "" {
		t.Errorf("sound surroundings: %s", got)
	}
	const fence = "w.json: tasks[2]: hard-fence: PERAGO_REQUIRE_HARD_FENCE is not true here: where the publish workers do not require the hard fence, publications that race can both land; run perago fence install for the target branch, and set it for the publish workers and here\n"
	for name, c := range map[string]struct {
		change map[string]string
		hard   bool
		want   string
	}{
		"no hard fence": {want: fence},
		"no user task": {hard: true, change: map[string]string{"task prepare": ""},
			want: "w.json: tasks[0].name: registered: the task type prepare is not registered; register a TaskDef for it\n"},
		"no perago task": {hard: true, change: map[string]string{"task perago_stage": ""},
			want: "w.json: tasks[1].name: registered: the task type perago_stage is not registered; register it; perago register brings the shipped ones\n"},
		"no failure workflow": {hard: true, change: map[string]string{"workflow cancel": ""},
			want: "w.json: failureWorkflow: registered: cancel is not registered; Conductor says so only in the failed workflow's output; register it; perago register brings perago_cancel\n"},
		"a failure workflow that cleans nothing": {hard: true, change: map[string]string{"workflow cancel": `{"name":"cancel","tasks":[{"name":"prepare","taskReferenceName":"c"}]}`},
			want: "w.json: failureWorkflow: failure-workflow: cancel has no cleanup task for the workflow that failed; name perago_cancel, or add to it a perago_cleanup task with workflow_id ${workflow.input.workflowId}\n"},
		"a TaskDef that breaks a rule": {hard: true, change: map[string]string{"task perago_stage": `{"name":"perago_stage","responseTimeoutSeconds":0}`},
			want: "Conductor: responseTimeoutSeconds: timeout: TaskDef perago_stage: responseTimeoutSeconds is 0; a dead worker's task would never be given to another, set it to 60\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := maps.Clone(sound)
			for key, text := range c.change {
				server[key] = text
				if text == "" {
					delete(server, key)
				}
			}
			if diff := cmp.Diff(c.want, lint(server, c.hard)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
	// Without surroundings the rules that need them say nothing.
	if got := definition.Lint(definitions, nil); len(got) > 0 {
		t.Errorf("offline: %v", got)
	}
}

// fakeServer has definitions by kind and name.
type fakeServer map[string]string

func (s fakeServer) read(key string) (json.RawMessage, error) {
	if text, ok := s[key]; ok {
		return json.RawMessage(text), nil
	}
	return nil, txn.ErrNotFound
}

func (s fakeServer) RawTaskDefinition(_ context.Context, name txn.TaskType) (json.RawMessage, error) {
	return s.read("task " + string(name))
}

func (s fakeServer) RawWorkflowDefinition(_ context.Context, name string, _ int) (json.RawMessage, error) {
	return s.read("workflow " + name)
}

func (s fakeServer) PutTaskDefinition(context.Context, json.RawMessage) error {
	return errors.New("lint writes nothing")
}

func (s fakeServer) PutWorkflowDefinition(context.Context, json.RawMessage) error {
	return errors.New("lint writes nothing")
}

// However a definition is built, Lint gives an answer: what users write has holes
// in every place.
func TestLintOfOddDefinitions(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"name":"w","tasks":null}`, `{"name":"w","tasks":{}}`, `{"name":"w","tasks":[1,null,"x",[],{}]}`,
		`{"name":"w","tasks":[{"type":"FORK_JOIN"},{"type":"FORK_JOIN","forkTasks":[]},{"type":"FORK_JOIN","forkTasks":[1,[]]},{"type":"DO_WHILE"},{"type":"SWITCH"},{"type":"SWITCH","decisionCases":{"a":1}},{"type":"SUB_WORKFLOW"},{"type":1}]}`,
		`{"name":"w","tasks":[{"name":"perago_stage"},{"name":"perago_publish","inputParameters":[]},{"name":"perago_cleanup","inputParameters":null}]}`,
		`{"name":"w","tasks":[{"name":"perago_publish","taskDefinition":{}},{"name":"s","type":"SUB_WORKFLOW","subWorkflowParam":{"name":"w"}}]}`,
		`{"name":"perago_publish","retryCount":"x"}`, `{"name":"perago_publish","ownerEmail":"x","inputTemplate":3}`,
	} {
		lintText(t, "odd.json", text)
	}
}
