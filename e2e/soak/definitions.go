package main

import (
	"context"
	"encoding/json"
	"maps"

	"perago/e2e/fleet"
)

const userTask = "soak_user"

func taskType(w fleet.Worker) string { return "perago_" + string(w) + "_soak" }

// The workflows: one step, two of them on each other, and the failure workflow.
const (
	oneStep  = "soak_one_step"
	twoSteps = "soak_two_steps"
	cancel   = "soak_cancel"
)

type object = map[string]any

func (s *soak) register(ctx context.Context) error {
	definitions := []object{{
		"name": userTask, "ownerEmail": "perago@example.com", "timeoutSeconds": 0, "responseTimeoutSeconds": 20,
		"retryCount": 2, "retryLogic": "FIXED", "retryDelaySeconds": 1, "timeoutPolicy": "RETRY",
	}}
	for _, w := range fleet.Workers() {
		definition, err := fleet.TaskDefinition(w, taskType(w))
		if err != nil {
			return err
		}
		definitions = append(definitions, definition)
	}
	for _, definition := range definitions {
		raw, err := json.Marshal(definition)
		if err != nil {
			return err
		}
		if err := s.conductor.PutTaskDefinition(ctx, raw); err != nil {
			return err
		}
	}
	first := step("a", "${workflow.input.workspace}")
	for _, definition := range []object{
		{"name": cancel, "tasks": []object{cleanup("cancel", object{"workflow_id": "${workflow.input.workflowId}"})}},
		{"name": oneStep, "tasks": first, "failureWorkflow": cancel},
		{"name": twoSteps, "tasks": append(first, step("b", "${a_publish.output.workspace}")...), "failureWorkflow": cancel},
	} {
		maps.Copy(definition, object{
			"version": 1, "schemaVersion": 2, "ownerEmail": "perago@example.com", "timeoutPolicy": "ALERT_ONLY", "timeoutSeconds": 0,
		})
		raw, err := json.Marshal(definition)
		if err != nil {
			return err
		}
		if err := s.conductor.PutWorkflowDefinition(ctx, raw); err != nil {
			return err
		}
	}
	return nil
}

// step is a user task and what publishes its files into a prefix of its name.
func step(name, workspace string) []object {
	staged := object{"workspace": "${" + name + "_stage.output.workspace}", "staged": "${" + name + "_stage.output.staged}"}
	return []object{
		simple(userTask, name+"_user", object{}),
		simple(taskType(fleet.Stage), name+"_stage", object{
			"workspace": workspace, "prefix": name + "/", "source": object{"directory": "${" + name + "_user.output.directory}"},
		}),
		simple(taskType(fleet.Publish), name+"_publish", staged),
		cleanup(name+"_cleanup", staged),
	}
}

func simple(taskType, reference string, input object) object {
	return object{"name": taskType, "taskReferenceName": reference, "type": "SIMPLE", "inputParameters": input}
}

func cleanup(reference string, input object) object {
	task := simple(taskType(fleet.Cleanup), reference, input)
	task["optional"] = true
	return task
}
