package definition_test

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/definition"
	"perago/pkg/txn"
	"perago/taskdefs"
	"perago/workflows"
)

// The files a user sees are the ones in the binary, and all of them load.
func TestShippedFilesAreEmbedded(t *testing.T) {
	t.Parallel()
	for directory, count := range map[string]int{"taskdefs": 4, "workflows": 4} {
		onDisk, err := definition.Load(filepath.Join("..", "..", directory))
		if err != nil {
			t.Fatal(err)
		}
		files := taskdefs.Files
		if directory == "workflows" {
			files = workflows.Files
		}
		embedded, err := definition.LoadFS(directory, files)
		if err != nil {
			t.Fatal(err)
		}
		if len(onDisk) != count || len(embedded) != count {
			t.Errorf("%s: %d on disk, %d embedded, want %d", directory, len(onDisk), len(embedded), count)
		}
		for i := range onDisk {
			if string(onDisk[i].Raw) != string(embedded[i].Raw) {
				t.Errorf("%s is not what is embedded", onDisk[i].Source)
			}
		}
	}
}

func TestShippedTaskDefinitions(t *testing.T) {
	t.Parallel()
	want := map[string]txn.TaskDefinition{
		"perago_checkout": {RetryCount: 3, RetryDelaySeconds: 2, ResponseTimeoutSeconds: 60},
		"perago_stage":    {RetryCount: 3, RetryDelaySeconds: 2, ResponseTimeoutSeconds: 60},
		"perago_publish":  {RetryCount: 3, RetryDelaySeconds: 2},
		"perago_cleanup":  {RetryCount: 2, RetryDelaySeconds: 2, ResponseTimeoutSeconds: 60, TimeoutSeconds: 3600, PollTimeoutSeconds: 600},
	}
	for _, d := range shipped(t, definition.Task) {
		got, err := d.TaskDefinition()
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Check(); err != nil {
			t.Error(err)
		}
		w, ok := want[d.Name]
		delete(want, d.Name)
		if !ok {
			t.Errorf("%s ships and nobody knows it", d.Name)
		}
		// Everything but RETRY ends or hangs the workflow when a fleet is down.
		w.Name, w.TimeoutPolicy = txn.TaskType(d.Name), "RETRY"
		if w.Name.IsPublish() {
			w.InputTemplate, w.ResponseTimeoutSeconds = got.InputTemplate, got.ResponseTimeoutSeconds
			publishBudget(t, got)
		}
		if diff := cmp.Diff(w, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", d.Name, diff)
		}
		var rest struct {
			Logic string `json:"retryLogic"`
			Delay int    `json:"retryDelaySeconds"`
			Owner string `json:"ownerEmail"`
		}
		decode(t, d.Raw, &rest)
		if rest.Logic != "EXPONENTIAL_BACKOFF" || rest.Delay != 2 || rest.Owner == "" {
			t.Errorf("%s: %+v", d.Name, rest)
		}
	}
	if len(want) != 0 {
		t.Errorf("not shipped: %v", slices.Sorted(maps.Keys(want)))
	}
}

// The lease is exactly what the rule asks for: a longer one would leave a dead
// worker's task waiting for nothing.
func publishBudget(t *testing.T, d txn.TaskDefinition) {
	t.Helper()
	budget, err := txn.CheckPublishDefinition(d)
	if err != nil {
		t.Fatal(err)
	}
	need := budget.MergeTimeout + budget.CompletionTimeout + budget.ShutdownGrace + budget.HeartbeatInterval
	if response := time.Duration(d.ResponseTimeoutSeconds) * time.Second; response != need {
		t.Errorf("responseTimeoutSeconds is %v, the budget asks for %v", response, need)
	}
	if budget.MergeTimeout != budget.ObservedMergeP99+budget.SafetyMargin {
		t.Errorf("the merge timeout is %v, p99 and margin are %v", budget.MergeTimeout, budget.ObservedMergeP99+budget.SafetyMargin)
	}
}

type workflow struct {
	Name            string  `json:"name"`
	FailureWorkflow string  `json:"failureWorkflow"`
	TimeoutPolicy   string  `json:"timeoutPolicy"`
	TimeoutSeconds  float64 `json:"timeoutSeconds"`
	SchemaVersion   int     `json:"schemaVersion"`
	OwnerEmail      string  `json:"ownerEmail"`
	Tasks           []task  `json:"tasks"`
}

type task struct {
	Name      string         `json:"name"`
	Reference string         `json:"taskReferenceName"`
	Type      string         `json:"type"`
	Optional  bool           `json:"optional"`
	Input     map[string]any `json:"inputParameters"`
}

func (w workflow) chain() []string {
	var all []string
	for _, t := range w.Tasks {
		all = append(all, t.Name+" "+t.Reference)
	}
	return all
}

func TestShippedWorkflows(t *testing.T) {
	t.Parallel()
	all := map[string]workflow{}
	for _, d := range shipped(t, definition.Workflow) {
		var w workflow
		decode(t, d.Raw, &w)
		all[d.Name] = w
		if w.TimeoutSeconds != 0 || w.TimeoutPolicy != "ALERT_ONLY" || w.SchemaVersion != 2 || w.OwnerEmail == "" {
			t.Errorf("%s: timeout %v %s, schema %d, owner %q", d.Name, w.TimeoutSeconds, w.TimeoutPolicy, w.SchemaVersion, w.OwnerEmail)
		}
		for _, task := range w.Tasks {
			if task.Type != "SIMPLE" {
				t.Errorf("%s: %s is %q", d.Name, task.Reference, task.Type)
			}
			// An optional stage or publish that fails is followed by one that gets
			// nulls; a cleanup that is not optional can fail a workflow.
			if task.Optional != (task.Name == "perago_cleanup") {
				t.Errorf("%s: %s has optional %v", d.Name, task.Reference, task.Optional)
			}
		}
	}

	cancel := all["perago_cancel"]
	if diff := cmp.Diff([]string{"perago_cleanup cancel_cleanup"}, cancel.chain()); diff != "" || cancel.FailureWorkflow != "" {
		t.Errorf("perago_cancel names %q as its failure workflow; tasks (-want +got):\n%s", cancel.FailureWorkflow, diff)
	}
	// What Conductor passes to a failure workflow.
	wired(t, cancel, "cancel_cleanup", map[string]any{"workflow_id": "${workflow.input.workflowId}"})

	checkout := all["perago_example_checkout"]
	if diff := cmp.Diff([]string{
		"perago_checkout train_checkout", "train train", "perago_stage train_stage", "perago_publish train_publish", "perago_cleanup train_cleanup",
	}, checkout.chain()); diff != "" || checkout.FailureWorkflow != "perago_cancel" {
		t.Errorf("checkout: failure workflow %q, tasks (-want +got):\n%s", checkout.FailureWorkflow, diff)
	}
	for _, task := range checkout.Tasks {
		switch task.Reference {
		case "train_checkout":
			if _, err := txn.ParseCheckoutInput(withWorkspace(t, task.Input), txn.AllowList{"*"}); err != nil {
				t.Error(err)
			}
		case "train_stage":
			task.Input["source"] = map[string]any{"directory": "/workspace/w/t"}
			if _, err := txn.ParseStageInput(withWorkspace(t, task.Input), txn.AllowList{"*"}); err != nil {
				t.Error(err)
			}
		case "train":
			if data := task.Input["data"]; data != "${train_checkout.output.checkout.directory}" {
				t.Errorf("the user task reads %v", data)
			}
		}
	}
	wired(t, checkout, "train_publish", map[string]any{"workspace": "${train_stage.output.workspace}", "staged": "${train_stage.output.staged}"})

	oneStep, twoSteps := all["perago_example_one_step"], all["perago_example_two_steps"]
	for _, w := range []workflow{oneStep, twoSteps} {
		if w.FailureWorkflow != "perago_cancel" {
			t.Errorf("%s: failure workflow %q", w.Name, w.FailureWorkflow)
		}
	}
	if diff := cmp.Diff([]string{"prepare prepare", "perago_stage prepare_stage", "perago_publish prepare_publish", "perago_cleanup prepare_cleanup"}, oneStep.chain()); diff != "" {
		t.Errorf("one step (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"prepare prepare", "perago_stage prepare_stage", "perago_publish prepare_publish",
		"train train", "perago_stage train_stage", "perago_publish train_publish", "perago_cleanup cleanup",
	}, twoSteps.chain()); diff != "" {
		t.Errorf("two steps (-want +got):\n%s", diff)
	}
	for _, w := range []workflow{oneStep, twoSteps} {
		step(t, w, "prepare", "data/", "${workflow.input.workspace}")
	}
	step(t, twoSteps, "train", "models/", "${prepare_publish.output.workspace}")
	wired(t, oneStep, "prepare_cleanup", map[string]any{"workspace": "${prepare_stage.output.workspace}", "staged": "${prepare_stage.output.staged}"})
	wired(t, twoSteps, "cleanup", map[string]any{"workflow_id": "${workflow.workflowId}"})
}

// withWorkspace is a task's input with a workspace in the place of the expression
// that gives it one.
func withWorkspace(t *testing.T, input map[string]any) json.RawMessage {
	t.Helper()
	if input["workspace"] != "${workflow.input.workspace}" {
		t.Errorf("the workspace is %v", input["workspace"])
	}
	input["workspace"] = map[string]any{"repository": "lake", "branch": "main", "ref_type": "commit", "ref": strings.Repeat("ab", 32)}
	raw, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// step holds the tasks of a step to the wiring that users are shown.
func step(t *testing.T, w workflow, name, prefix, workspace string) {
	t.Helper()
	wired(t, w, name+"_stage", map[string]any{
		"workspace": workspace, "prefix": prefix, "source": map[string]any{"directory": "${" + name + ".output.directory}"},
	})
	wired(t, w, name+"_publish", map[string]any{
		"workspace": "${" + name + "_stage.output.workspace}", "staged": "${" + name + "_stage.output.staged}",
	})
	for _, task := range w.Tasks {
		if task.Reference == name && task.Input["workspace"] != workspace {
			t.Errorf("%s: the user task %s works on %v, its step on %s", w.Name, name, task.Input["workspace"], workspace)
		}
	}
}

func wired(t *testing.T, w workflow, reference string, want map[string]any) {
	t.Helper()
	for _, task := range w.Tasks {
		if task.Reference == reference {
			if diff := cmp.Diff(want, task.Input); diff != "" {
				t.Errorf("%s: input of %s (-want +got):\n%s", w.Name, reference, diff)
			}
			return
		}
	}
	t.Errorf("%s has no task %s", w.Name, reference)
}

func shipped(t *testing.T, kind definition.Kind) []definition.Definition {
	t.Helper()
	files, name := taskdefs.Files, "taskdefs"
	if kind == definition.Workflow {
		files, name = workflows.Files, "workflows"
	}
	all, err := definition.LoadFS(name, files)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if d.Kind != kind {
			t.Errorf("%s is a %s", d.Source, d.Kind)
		}
	}
	return all
}

func decode(t *testing.T, raw json.RawMessage, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}
