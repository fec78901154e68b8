package main

import (
	"context"
	"encoding/json"
	"maps"

	"perago/e2e/fleet"
	"perago/e2e/stack"
	"perago/pkg/conductor"
	"perago/pkg/txn"
)

const (
	prefix   = "data/"
	userTask = "faults_user"
)

// taskType is a worker's own task type: the shipped one with a short lease, and,
// where Conductor is to try it once only, without retries.
func taskType(w worker, once bool) string {
	if once {
		return "perago_" + string(w) + "_faults_once"
	}
	return "perago_" + string(w) + "_faults"
}

// chainOf is the workflow of such task types, failureOf its failure workflow.
func chainOf(once bool) string {
	if once {
		return "faults_chain_once"
	}
	return "faults_chain"
}

func failureOf(once bool) string {
	if once {
		return "faults_cancel_once"
	}
	return "faults_cancel"
}

type object = map[string]any

// register registers the task types and the workflows.
func register(ctx context.Context, servers stack.Servers) error {
	server, err := conductor.New(conductor.Config{ServerURL: servers.ConductorURL}, nil)
	if err != nil {
		return err
	}
	defer server.CloseIdleConnections()
	put := func(definition any) error {
		raw, err := json.Marshal(definition)
		if err != nil {
			return err
		}
		return server.PutTaskDefinition(ctx, raw)
	}
	for _, w := range workers {
		for _, once := range []bool{false, true} {
			definition, err := definitionOf(w, once)
			if err != nil {
				return err
			}
			if err := put(definition); err != nil {
				return err
			}
		}
	}
	if err := put(object{"name": userTask, "ownerEmail": "perago@example.com", "timeoutSeconds": 0, "responseTimeoutSeconds": 60}); err != nil {
		return err
	}
	for _, once := range []bool{false, true} {
		cancel := cleanupTask("cancel", once, object{"workflow_id": "${workflow.input.workflowId}"})
		for _, definition := range []object{
			{"name": failureOf(once), "tasks": []object{cancel}},
			{"name": chainOf(once), "tasks": stepOf(once), "failureWorkflow": failureOf(once)},
		} {
			maps.Copy(definition, object{
				"version": 1, "schemaVersion": 2, "ownerEmail": "perago@example.com", "timeoutPolicy": "ALERT_ONLY", "timeoutSeconds": 0,
			})
			raw, err := json.Marshal(definition)
			if err != nil {
				return err
			}
			if err := server.PutWorkflowDefinition(ctx, raw); err != nil {
				return err
			}
		}
	}
	return nil
}

// definitionOf is the worker's TaskDef for the lanes.
func definitionOf(w worker, once bool) (object, error) {
	definition, err := fleet.TaskDefinition(w, taskType(w, once))
	if err == nil && once {
		definition["retryCount"] = 0
	}
	return definition, err
}

// stepOf is a user task and what publishes its files.
func stepOf(once bool) []object {
	staged := object{"workspace": "${stage.output.workspace}", "staged": "${stage.output.staged}"}
	return []object{
		simple(userTask, "user", object{}),
		simple(taskType(stager, once), string(stager), object{
			"workspace": "${workflow.input.workspace}", "prefix": prefix, "source": object{"directory": "${user.output.directory}"},
		}),
		simple(taskType(publisher, once), string(publisher), staged),
		cleanupTask(string(cleaner), once, staged),
	}
}

func simple(taskType, reference string, input object) object {
	return object{"name": taskType, "taskReferenceName": reference, "type": "SIMPLE", "inputParameters": input}
}

func cleanupTask(reference string, once bool, input object) object {
	task := simple(taskType(cleaner, once), reference, input)
	task["optional"] = true
	return task
}

// referenceOf is the name of a worker's task in the chain.
func referenceOf(w worker) txn.ReferenceName { return txn.ReferenceName(w) }
