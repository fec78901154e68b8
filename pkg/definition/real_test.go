package definition_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/e2e/stack"
	"perago/pkg/conductor"
	"perago/pkg/definition"
	"perago/pkg/txn"
	"perago/taskdefs"
	"perago/workflows"
)

var _ definition.Server = (*conductor.Client)(nil)

// On the real server everything that ships is first created and then unchanged,
// a change is seen and sent, and taking it back is seen as well.
func TestRegisterOnRealServer(t *testing.T) {
	if stack.Short(t) {
		return
	}
	t.Parallel()
	client, err := conductor.New(conductor.Config{ServerURL: stack.Require(t).ConductorURL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	// The server is shared: names of this test's own, everything else as it ships.
	suffix := "_" + strings.ToLower(rand.Text()[:10])
	texts := map[string]string{
		"prepare": `{"name": "prepare", "ownerEmail": "a@b.c"}`,
		"train":   `{"name": "train", "ownerEmail": "a@b.c"}`,
		"fields": `{"name": "fields", "ownerEmail": "a@b.c", "retryCount": 0, "timeoutSeconds": 1e2, "responseTimeoutSeconds": 5, "concurrentExecLimit": 2,
			"inputTemplate": {"n": null, "e": {}, "l": [], "f": 1.0, "g": 0.5, "big": 12345678901234567890, "nested": {"n": null, "l": [null]}}}`,
		"nested": `{"name": "nested", "version": 3, "ownerEmail": "a@b.c", "timeoutSeconds": 0, "tasks": [
			{"name": "sw", "taskReferenceName": "sw", "type": "SWITCH", "evaluatorType": "value-param", "expression": "c", "inputParameters": {"c": "a", "n": null},
				"decisionCases": {"a": [{"name": "prepare", "taskReferenceName": "y", "type": "SIMPLE"}]}, "defaultCase": []},
			{"name": "lp", "taskReferenceName": "lp", "type": "DO_WHILE", "loopCondition": "false", "loopOver": [{"name": "prepare", "taskReferenceName": "z"}]},
			{"name": "f", "taskReferenceName": "f", "type": "FORK_JOIN", "forkTasks": [[{"name": "train", "taskReferenceName": "q"}]]},
			{"name": "j", "taskReferenceName": "j", "type": "JOIN", "joinOn": ["q"]},
			{"name": "sub", "taskReferenceName": "sub", "type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "perago_cancel"}}]}`,
	}
	for name, files := range map[string]interface {
		ReadFile(string) ([]byte, error)
	}{"taskdefs": taskdefs.Files, "workflows": workflows.Files} {
		all := shipped(t, map[string]definition.Kind{"taskdefs": definition.Task, "workflows": definition.Workflow}[name])
		for _, d := range all {
			text, err := files.ReadFile(strings.TrimPrefix(d.Source, name+"/"))
			if err != nil {
				t.Fatal(err)
			}
			texts[d.Name] = string(text)
		}
	}
	renamed := func(alter map[string][2]string) []definition.Definition {
		var all []definition.Definition
		for name, text := range texts {
			if change, ok := alter[name]; ok {
				if !strings.Contains(text, change[0]) {
					t.Fatalf("%s has no %s", name, change[0])
				}
				text = strings.Replace(text, change[0], change[1], 1)
			}
			for other := range texts {
				for _, field := range []string{`"name": "`, `"failureWorkflow": "`} {
					text = strings.ReplaceAll(text, field+other+`"`, field+other+suffix+`"`)
				}
			}
			ds, err := definition.Parse(name+".json", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, ds...)
		}
		return all
	}
	register := func(alter map[string][2]string) map[string]string {
		t.Helper()
		changes, err := definition.Register(t.Context(), client, renamed(alter))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, c := range changes {
			text := string(c.Action)
			for _, d := range c.Differences {
				text += " " + strings.ReplaceAll(d.String(), suffix, "")
			}
			if len(c.Ignored) != 0 {
				text += fmt.Sprintf(" IGNORED %v", c.Ignored)
			}
			got[strings.TrimSuffix(c.Definition.Name, suffix)] = text
		}
		return got
	}
	every := func(action string, but map[string]string) map[string]string {
		want := map[string]string{}
		for name := range texts {
			want[name] = action
		}
		for name, text := range but {
			want[name] = text
		}
		return want
	}
	check := func(step string, got, want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step, diff)
		}
	}

	check("first", register(nil), every("created", nil))
	check("again", register(nil), every("unchanged", nil))
	altered := map[string][2]string{
		"perago_publish":           {`"responseTimeoutSeconds": 90`, `"responseTimeoutSeconds": 120`},
		"perago_cleanup":           {`"pollTimeoutSeconds": 600`, `"pollTimeoutSeconds": 300`},
		"fields":                   {`"retryCount": 0, `, ``},
		"perago_example_one_step":  {`"prefix": "data/"`, `"prefix": "tables/"`},
		"perago_example_two_steps": {`"optional": true`, `"optional": false`},
		"nested":                   {`"joinOn": ["q"]`, `"joinOn": []`},
	}
	check("changed", register(altered), every("unchanged", map[string]string{
		"perago_publish":           "updated responseTimeoutSeconds: 90 -> 120",
		"perago_cleanup":           "updated pollTimeoutSeconds: 600 -> 300",
		"fields":                   "updated retryCount: 0 -> (none)",
		"perago_example_one_step":  `updated tasks[1].inputParameters.prefix: "data/" -> "tables/"`,
		"perago_example_two_steps": "updated tasks[6].optional: true -> false",
		"nested":                   `updated tasks[3].joinOn[0]: "q" -> (none)`,
	}))
	check("changed again", register(altered), every("unchanged", nil))
	definitionNow, err := client.TaskDefinition(t.Context(), txn.TaskType("perago_publish"+suffix))
	if err != nil || definitionNow.ResponseTimeoutSeconds != 120 {
		t.Errorf("the server has %+v, %v", definitionNow, err)
	}
	// 3.15.0 gives an empty list back as none.
	joined := `updated tasks[3].joinOn[0]: (none) -> "q"`
	if stack.Require(t).ConductorVersion == "3.15.0" {
		joined = `updated tasks[3].joinOn: (none) -> ["q"]`
	}
	check("taken back", register(nil), every("unchanged", map[string]string{
		"perago_publish":           "updated responseTimeoutSeconds: 120 -> 90",
		"perago_cleanup":           "updated pollTimeoutSeconds: 300 -> 600",
		"fields":                   "updated retryCount: 3 -> 0",
		"perago_example_one_step":  `updated tasks[1].inputParameters.prefix: "tables/" -> "data/"`,
		"perago_example_two_steps": "updated tasks[6].optional: false -> true",
		"nested":                   joined,
	}))
}

// Why Plan looks for perago's task types itself: the server takes a workflow
// whose types nobody registered, and runs it with defaults of its own.
func TestRealServerRunsTasksNobodyDefined(t *testing.T) {
	if stack.Short(t) {
		return
	}
	t.Parallel()
	server := stack.Require(t).ConductorURL
	client, err := conductor.New(conductor.Config{ServerURL: server}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	suffix := "_" + strings.ToLower(rand.Text()[:10])
	kind := txn.TypePublish + txn.TaskType(suffix)
	text := fmt.Sprintf(`{"name": "w%s", "ownerEmail": "a@b.c", "timeoutSeconds": 0, "tasks": [{"name": %q, "taskReferenceName": "x", "type": "SIMPLE"}]}`, suffix, kind)

	if err := client.PutWorkflowDefinition(t.Context(), json.RawMessage(text)); err != nil {
		t.Fatal(err)
	}
	id, err := client.StartWorkflow(t.Context(), conductor.StartRequest{Name: "w" + suffix, Version: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A workflow left running on a shared server is looked at for ever.
		request, err := http.NewRequest(http.MethodDelete, server+"/api/workflow/"+string(id), nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	})
	workflow, err := client.Workflow(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if len(workflow.Tasks) != 1 || workflow.Tasks[0].Definition == nil || workflow.Tasks[0].Definition.TimeoutPolicy != "TIME_OUT_WF" {
		t.Fatalf("got %+v", workflow.Tasks)
	}
	if budget, err := txn.BudgetOf(*workflow.Tasks[0].Definition); err == nil {
		t.Errorf("it has the budget %+v", budget)
	}
	all, err := definition.Parse("w.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := definition.Plan(t.Context(), client, all); err == nil || !strings.Contains(err.Error(), string(kind)+", which is not registered") {
		t.Errorf("got %v", err)
	}
}
