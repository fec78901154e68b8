package conductor_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"perago/pkg/conductor"
	"perago/pkg/txn"
)

// workflowOf reads the workflow w out of this body, with a limit on what is kept.
func workflowOf(t *testing.T, limit int64, body io.Reader) (txn.Workflow, error) {
	client := newClientOn(t, conductor.Config{ServerURL: address}, roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(body)}, nil
	}))
	client.SetBodyLimit(limit)
	return client.Workflow(t.Context(), "w")
}

func taskOf(kind string, n int, input, output string) string {
	return fmt.Sprintf(`{"taskType":"SIMPLE","taskDefName":%q,"taskId":"t%d","workflowInstanceId":"w","status":"COMPLETED","referenceTaskName":"r%d","inputData":{"x":%q},"outputData":{"y":%q}}`, kind, n, n, input, output)
}

// A workflow of many tasks with large inputs and outputs of users' is read whole. What
// is kept is what Perago's own tasks hold.
func TestWorkflow_LargerThanTheLimit(t *testing.T) {
	const tasks, payload, limit = 3500, 20 << 10, 2 << 20
	large := strings.Repeat("x", payload/2)
	readers := []io.Reader{strings.NewReader(`{"workflowId":"w","input":{"workflowId":"other","tasks":[7]},"status":"FAILED","workflowName":"n","endTime":1764443290123,"tasks":[`)}
	for n := range tasks {
		if n > 0 {
			readers = append(readers, strings.NewReader(", "))
		}
		readers = append(readers, strings.NewReader(taskOf("prepare", n, large, large)))
	}
	readers = append(readers, strings.NewReader(","+taskOf("perago_stage", tasks, "in", "out")+" ,"+taskOf("prepare", tasks+1, "in", "out")+
		`],"reasonForIncompletion":"broken","output":{"a":1},"workflowDefinition":{"tasks":"`+strings.Repeat("d", 4<<20)+`"}}`+"\n"))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	workflow, err := workflowOf(t, limit, io.MultiReader(readers...))
	runtime.GC()
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if workflow.Status != txn.WorkflowFailed || workflow.Name != "n" || workflow.Reason != "broken" || workflow.Ended.UnixMilli() != 1764443290123 || string(workflow.Output) != `{"a":1}` || len(workflow.Tasks) != tasks+2 {
		t.Fatalf("got %s %q %q, %s, output %s, %d tasks", workflow.Status, workflow.Name, workflow.Reason, workflow.Ended, workflow.Output, len(workflow.Tasks))
	}
	for n, task := range workflow.Tasks {
		input, output := `{"x":"in"}`, `{"y":"out"}`
		if n < tasks {
			input, output = "", ""
		}
		if task.ID != txn.TaskID(fmt.Sprintf("t%d", n)) || task.Status != txn.TaskCompleted || string(task.Input) != input || string(task.Output) != output {
			t.Fatalf("task %d is %+v", n, task)
		}
	}
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > 16<<20 {
		t.Errorf("%d bytes are kept of a record of %d", kept, tasks*payload)
	}
}

// A limit that is met is named, and nobody says that Conductor gave no answer.
func TestWorkflow_LimitsAreNamed(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	large := strings.Repeat("x", limit)
	third := strings.Repeat("x", limit/3)
	begin := `{"workflowId":"w","status":"RUNNING",`
	for what, body := range map[string]string{
		"one task":                             begin + `"tasks":[` + taskOf("prepare", 1, large, "") + `]}`,
		"the inputs and outputs of its tasks":  begin + `"tasks":[` + taskOf("perago_stage", 1, third, third) + `,` + taskOf("perago_publish", 2, third, third) + `]}`,
		"the workflow's output":                begin + `"output":{"a":"` + large + `"}}`,
		"the workflow's reasonForIncompletion": begin + `"reasonForIncompletion":"` + large + `"}`,
	} {
		_, err := workflowOf(t, limit, strings.NewReader(body))
		want := fmt.Sprintf("answered 200 to GET /workflow/w: the answer is larger than Perago reads: %s has more than %d bytes", what, limit)
		if what == "the inputs and outputs of its tasks" {
			want = strings.Replace(want, " has ", " have ", 1)
		}
		if !errors.Is(err, txn.ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// What is no workflow's record is never half of one.
func TestWorkflow_WrongRecords(t *testing.T) {
	t.Parallel()
	good := `{"workflowId":"w","status":"RUNNING","tasks":[` + taskOf("perago_stage", 1, "a", "b") + `,` + taskOf("prepare", 2, "a", "b") + `],"output":{"c":1}}`
	if _, err := workflowOf(t, 1<<20, strings.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	for n := range len(good) {
		if workflow, err := workflowOf(t, 1<<20, strings.NewReader(good[:n])); !errors.Is(err, txn.ErrRetryable) || workflow.ID != "" {
			t.Fatalf("%s: got %+v, %v", good[:n], workflow, err)
		}
	}
	for _, body := range []string{
		good + "x", good + good, `[` + good + `]`, `{"workflowId":"w","status":7}`, `{"workflowId":"w","status":"RUNNING","endTime":"now"}`,
		`{"workflowId":"w","status":"RUNNING","tasks":7}`, `{"workflowId":"w","status":"RUNNING","tasks":{}}`, `{"workflowId":"w","status":"RUNNING","tasks":[7]}`,
		`{"workflowId":"w","status":"RUNNING","tasks":[{}]}`, `{"workflowId":"w","status":"RUNNING","tasks":[,]}`, `{"workflowId":"w","status":"RUNNING","tasks":[,` + taskOf("a", 1, "", "") + `]}`, `{"workflowId":"w","status":"RUNNING","tasks":[` + taskOf("a", 1, "", "") + taskOf("a", 2, "", "") + `]}`,
	} {
		workflow, err := workflowOf(t, 1<<20, strings.NewReader(body))
		if !errors.Is(err, txn.ErrRetryable) || workflow.ID != "" {
			t.Errorf("%.100s: got %+v, %v", body, workflow, err)
		}
		if err == nil || !strings.Contains(err.Error(), "answered 200 to GET /workflow/w") || strings.Contains(err.Error(), "no answer") {
			t.Errorf("%.100s: that Conductor answered is not said: %v", body, err)
		}
	}
	for _, body := range []string{`{"workflowId":"w","status":"RUNNING"}`, `{"workflowId":"w","status":"RUNNING","tasks":null}`, ` { "tasks" : [ ] , "workflowId" : "w" , "status" : "RUNNING" } `} {
		if workflow, err := workflowOf(t, 1<<20, strings.NewReader(body)); err != nil || len(workflow.Tasks) != 0 {
			t.Errorf("%s: got %+v, %v", body, workflow, err)
		}
	}
}

// A list of millions of empty objects is an answer of a few megabytes, and takes no
// gigabytes to be refused.
func TestListsOfNothingTakeNoMemory(t *testing.T) {
	list := "[{}" + strings.Repeat(",{}", 2<<20) + "]"
	for name, body := range map[string]string{
		"poll":     list,
		"workflow": `{"workflowId":"w","status":"RUNNING","tasks":` + list + `}`,
	} {
		client := newClient(t, respond(200, "application/json", body))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var err error
		if name == "poll" {
			_, err = client.Poll(t.Context(), txn.PollRequest{Type: "t", Worker: "w", Count: 1})
		} else {
			_, err = client.Workflow(t.Context(), "w")
		}
		runtime.ReadMemStats(&after)
		if !errors.Is(err, txn.ErrRetryable) {
			t.Errorf("%s: %v", name, err)
		}
		if made := after.TotalAlloc - before.TotalAlloc; made > 20*uint64(len(body)) {
			t.Errorf("%s: %d bytes were made of %d", name, made, len(body))
		}
	}
}
