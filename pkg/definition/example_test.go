package definition_test

import (
	"encoding/json"
	"fmt"

	"perago/pkg/definition"
)

const training = `{"name": "train", "version": 1, "failureWorkflow": "perago_cancel", "tasks": [
  {"name": "train_model", "taskReferenceName": "train", "type": "SIMPLE", "inputParameters": {"ref": "${workflow.input.workspace.ref}"}}
]}`

// A step is put in behind the task whose files it publishes.
func ExampleInsert() {
	edited, _, err := definition.Insert("train.json", []byte(training), definition.Insertion{After: "train", Prefix: "models/churn/"})
	if err != nil {
		fmt.Println(err)
		return
	}
	var workflow struct {
		Tasks []struct {
			Name              string `json:"name"`
			TaskReferenceName string `json:"taskReferenceName"`
		} `json:"tasks"`
	}
	if err := json.Unmarshal(edited, &workflow); err != nil {
		fmt.Println(err)
		return
	}
	for _, task := range workflow.Tasks {
		fmt.Println(task.TaskReferenceName, "is a", task.Name)
	}
	// Output:
	// train is a train_model
	// train_stage is a perago_stage
	// train_publish is a perago_publish
	// train_cleanup is a perago_cleanup
}

// A step by hand: one directory for every run, a prefix that widens where nobody
// gives a day, and no cleanup.
func ExampleLint() {
	definitions, err := definition.Parse("train.json", []byte(`{"name": "train", "version": 1, "failureWorkflow": "perago_cancel", "tasks": [
	  {"name": "perago_stage", "taskReferenceName": "s", "type": "SIMPLE", "inputParameters": {
	    "workspace": "${workflow.input.workspace}", "prefix": "models/${workflow.input.day}", "source": {"directory": "/work"}}},
	  {"name": "perago_publish", "taskReferenceName": "p", "type": "SIMPLE", "inputParameters": {
	    "workspace": "${s.output.workspace}", "staged": "${s.output.staged}"}}
	]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, finding := range definition.Lint(definitions, nil) {
		fmt.Println(finding.Path, finding.Rule)
	}
	// Output:
	// tasks[0] step-cleanup
	// tasks[0].inputParameters.prefix widening-prefix
	// tasks[0].inputParameters.source.directory shared-directory
}
