package definition

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The task definition and the workflow that Conductor 3.15.0 gives back for ones
// with nothing but what is required.
const (
	bareTask = `{"createTime":1795980982058,"createdBy":"","accessPolicy":{},"name":"bare","retryCount":3,"timeoutSeconds":0,"inputKeys":[],"outputKeys":[],
		"timeoutPolicy":"TIME_OUT_WF","retryLogic":"FIXED","retryDelaySeconds":60,"responseTimeoutSeconds":3600,"inputTemplate":{},
		"rateLimitPerFrequency":0,"rateLimitFrequencyInSeconds":1,"ownerEmail":"a@b.c","backoffScaleFactor":1}`
	bareWorkflow = `{"updateTime":1795980982185,"accessPolicy":{},"name":"w","version":1,"tasks":[{"name":"bare","taskReferenceName":"x",
		"inputParameters":{"n":null,"x":{"y":null}},"type":"SIMPLE","startDelay":0,"optional":false,"asyncComplete":false}],
		"inputParameters":[],"outputParameters":{},"schemaVersion":2,"restartable":true,"workflowStatusListenerEnabled":false,
		"ownerEmail":"a@b.c","timeoutPolicy":"ALERT_ONLY","timeoutSeconds":0,"variables":{},"inputTemplate":{}}`
)

func TestCompare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want, have string
		paths            []string
	}{
		{name: "the least there can be, task", want: `{"name":"bare","ownerEmail":"a@b.c"}`, have: bareTask},
		{name: "the least there can be, workflow", want: `{"name":"w","ownerEmail":"a@b.c","tasks":[{"name":"bare","taskReferenceName":"x","inputParameters":{"n":null,"x":{"y":null}}}]}`, have: bareWorkflow},
		{name: "what the server gave", want: bareTask, have: bareTask},
		{name: "with stamps of another day", want: `{"name":"bare","ownerEmail":"a@b.c","createTime":1,"updateTime":2,"createdBy":"me","updatedBy":"me"}`, have: bareTask},
		{name: "defaults and nothings written out", want: `{"name":"bare","ownerEmail":"a@b.c","retryCount":3,"retryLogic":"FIXED","timeoutSeconds":0,"description":"","inputKeys":[],"inputTemplate":null,"concurrentExecLimit":0,"pollTimeoutSeconds":0,"newerField":false}`, have: bareTask},
		{name: "fields of a newer server", want: `{"name":"bare"}`, have: `{"name":"bare","totalTimeoutSeconds":17,"enforceSchema":true,"cacheConfig":{"ttl":3}}`},

		{name: "another value", want: `{"name":"t","retryCount":5,"timeoutPolicy":"RETRY"}`, have: `{"name":"t","retryCount":4,"timeoutPolicy":"RETRY"}`, paths: []string{"retryCount: 4 -> 5"}},
		{name: "a zero that is no default", want: `{"name":"t","retryCount":0}`, have: `{"name":"t","retryCount":3}`, paths: []string{"retryCount: 3 -> 0"}},
		{name: "left out: the default comes back", want: `{"name":"t","ownerEmail":"a"}`, have: `{"name":"t","ownerEmail":"a","retryCount":0,"description":"d","pollTimeoutSeconds":9}`,
			paths: []string{`description: "d" -> (none)`, `pollTimeoutSeconds: 9 -> (none)`, `retryCount: 0 -> (none)`}},
		{name: "new field", want: `{"name":"t","ownerEmail":"a","concurrentExecLimit":2,"newerField":{"a":1}}`, have: `{"name":"t","ownerEmail":"a"}`,
			paths: []string{"concurrentExecLimit: (none) -> 2", `newerField: (none) -> {"a":1}`}},
		{name: "another kind of value", want: `{"name":"t","ownerEmail":"a","inputKeys":"x"}`, have: `{"name":"t","ownerEmail":"a","inputKeys":["x"]}`, paths: []string{`inputKeys: ["x"] -> "x"`}},
		{name: "and the other way", want: `{"name":"t","ownerEmail":"a","newer":{"a":1}}`, have: `{"name":"t","ownerEmail":"a","newer":"x"}`, paths: []string{`newer: "x" -> {"a":1}`}},

		{name: "numbers by value", want: `{"name":"t","retryCount":3.0,"timeoutSeconds":1e1}`, have: `{"name":"t","timeoutSeconds":10}`},
		{name: "large numbers in full", want: `{"name":"t","ownerEmail":"a","inputTemplate":{"n":12345678901234567890}}`, have: `{"name":"t","ownerEmail":"a","inputTemplate":{"n":12345678901234567891}}`,
			paths: []string{"inputTemplate.n: 12345678901234567891 -> 12345678901234567890"}},
		{name: "a number is no text", want: `{"name":"t","retryCount":"3"}`, have: `{"name":"t","retryCount":3}`, paths: []string{`retryCount: 3 -> "3"`}},

		{name: "inside the template nothing is a default", want: `{"name":"t","ownerEmail":"a","inputTemplate":{"retryCount":3,"n":null,"same":{"x":[1,{"y":2}]}}}`,
			have:  `{"name":"t","ownerEmail":"a","inputTemplate":{"optional":false,"same":{"x":[1,{"y":3}]}}}`,
			paths: []string{"inputTemplate.n: (none) -> null", "inputTemplate.optional: false -> (none)", "inputTemplate.retryCount: (none) -> 3", "inputTemplate.same.x[1].y: 3 -> 2"}},
		{name: "template emptied", want: `{"name":"t","ownerEmail":"a"}`, have: `{"name":"t","ownerEmail":"a","inputTemplate":{"a":"<&>"}}`, paths: []string{`inputTemplate: {"a":"<&>"} -> (none)`}},

		{name: "workflow fields", want: `{"name":"w","tasks":[],"failureWorkflow":"perago_cancel","restartable":false}`, have: `{"name":"w","timeoutPolicy":"TIME_OUT_WF"}`,
			paths: []string{`failureWorkflow: (none) -> "perago_cancel"`, "restartable: (none) -> false", `timeoutPolicy: "TIME_OUT_WF" -> (none)`}},
		{name: "a task's input and flag", want: `{"name":"w","tasks":[{"name":"a","optional":true},{"name":"b","inputParameters":{"p":"data/"}}]}`,
			have:  `{"name":"w","tasks":[{"name":"a","type":"SIMPLE","startDelay":0},{"name":"b","type":"SIMPLE","optional":true,"inputParameters":{"p":"d/","q":1}}]}`,
			paths: []string{"tasks[0].optional: (none) -> true", `tasks[1].inputParameters.p: "d/" -> "data/"`, "tasks[1].inputParameters.q: 1 -> (none)", "tasks[1].optional: true -> (none)"}},
		{name: "a task more", want: `{"name":"w","tasks":[{"name":"a"},{"name":"b"}]}`, have: `{"name":"w","tasks":[{"name":"a"}]}`, paths: []string{`tasks[1]: (none) -> {"name":"b"}`}},
		{name: "a task less", want: `{"name":"w","tasks":[{"name":"a"}]}`, have: `{"name":"w","tasks":[{"name":"a"},{"name":"b"}]}`, paths: []string{`tasks[1]: {"name":"b"} -> (none)`}},
		{name: "tasks inside tasks, as the server fills them in",
			want: `{"name":"w","tasks":[{"name":"s","type":"SWITCH","decisionCases":{"a":[{"name":"y"}]},"defaultCase":[]},{"name":"l","type":"DO_WHILE","loopOver":[{"name":"z"}]},{"name":"f","type":"FORK_JOIN","forkTasks":[[{"name":"q"}]]},{"name":"u","type":"SUB_WORKFLOW","subWorkflowParam":{"name":"v"}}]}`,
			have: `{"name":"w","tasks":[{"name":"s","type":"SWITCH","decisionCases":{"a":[{"name":"y","type":"SIMPLE","optional":false,"inputParameters":{}}]},"startDelay":0},{"name":"l","type":"DO_WHILE","loopOver":[{"name":"z","type":"SIMPLE","asyncComplete":false}]},{"name":"f","type":"FORK_JOIN","forkTasks":[[{"name":"q","type":"SIMPLE","startDelay":0}]]},{"name":"u","type":"SUB_WORKFLOW","subWorkflowParam":{"name":"v"}}]}`},
		{name: "changes inside tasks",
			want:  `{"name":"w","tasks":[{"name":"s","type":"SWITCH","decisionCases":{"a":[{"name":"y"}],"b":[]}},{"name":"l","type":"DO_WHILE","loopOver":[{"name":"z","retryCount":0}]},{"name":"f","type":"FORK_JOIN","forkTasks":[[{"name":"q"}]]},{"name":"u","type":"SUB_WORKFLOW","subWorkflowParam":{"name":"v"}}]}`,
			have:  `{"name":"w","tasks":[{"name":"s","type":"SWITCH","decisionCases":{"a":[{"name":"x"}],"c":[{"name":"y"}]}},{"name":"l","type":"DO_WHILE","loopOver":[{"name":"z"}]},{"name":"f","type":"FORK_JOIN","forkTasks":[[{"name":"q","optional":true}]]},{"name":"u","type":"SUB_WORKFLOW","subWorkflowParam":{"name":"v","version":2}}]}`,
			paths: []string{`tasks[0].decisionCases.a[0].name: "x" -> "y"`, "tasks[0].decisionCases.b: (none) -> []", `tasks[0].decisionCases.c: [{"name":"y"}] -> (none)`, "tasks[1].loopOver[0].retryCount: (none) -> 0", "tasks[2].forkTasks[0][0].optional: true -> (none)", "tasks[3].subWorkflowParam.version: 2 -> (none)"}},
		{name: "long values are cut", want: `{"name":"t","description":"ééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé"}`, have: `{"name":"t"}`,
			paths: []string{`description: (none) -> "` + "éééééééééééééééééééééééééééééééééééééééééééééééééééééééééé" + `…`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text := c.want
			if text == `{"name":"bare"}` || c.name == "long values are cut" {
				text = text[:len(text)-1] + `,"retryCount":3}` // what makes it a task definition
			}
			got, err := compare(one(t, text), []byte(c.have))
			if err != nil {
				t.Fatal(err)
			}
			var texts []string
			for _, d := range got {
				texts = append(texts, d.String())
			}
			if diff := cmp.Diff(c.paths, texts); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompareRefusesWhatIsNoDefinition(t *testing.T) {
	t.Parallel()
	for _, have := range []string{"", "[]", "{} {}", "null"} {
		if got, err := compare(one(t, `{"name":"t","retryCount":3}`), []byte(have)); err == nil {
			t.Errorf("%q: got %v", have, got)
		}
	}
}
