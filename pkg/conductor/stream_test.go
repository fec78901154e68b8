package conductor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/txn"
)

// statusOf reads a workflow's status out of this body.
func statusOf(t testing.TB, body io.Reader) (txn.WorkflowStatus, error) {
	client := newClientOn(t, conductor.Config{ServerURL: address}, roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(body)}, nil
	}))
	return client.WorkflowStatus(t.Context(), "w")
}

// withID says whose status it is.
func withID(body string) string { return strings.Replace(body, "{", `{"workflowId":"w",`, 1) }

func TestWorkflowStatusStream(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]txn.WorkflowStatus{
		`{"status":"RUNNING"}`:                                                                             "RUNNING",
		" {\n\t\"a\" : 1 , \"status\" :\r\n \"PAUSED\" } ":                                                 "PAUSED",
		`{"input":{"status":"COMPLETED"},"status":"RUNNING"}`:                                              "RUNNING",
		`{"input":[{"status":"COMPLETED"}],"status":"RUNNING","output":{"status":"FAILED"}}`:               "RUNNING",
		`{"a":"}\"status\":\"FAILED\",{","b":"\\","status":"TIMED_OUT"}`:                                   "TIMED_OUT",
		`{"a":-1.5e+3,"b":true,"c":null,"d":[],"e":{},"f":"","status":"TERMINATED"}`:                       "TERMINATED",
		`{"` + "\\u0073tatus" + `":"FAILED"}`:                                                              "FAILED",
		`{"a":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + `,"status":"RUNNING"}`:         "RUNNING",
		`{"workflowId":"w","status":"RUNNING","and then`:                                                   "RUNNING",
		`{"a":` + strings.Repeat(" ", 100000) + `7` + strings.Repeat(" ", 100000) + `,"status":"RUNNING"}`: "RUNNING",
		`{"a":"` + strings.Repeat(`\"`, 100000) + `","status":"RUNNING"}`:                                  "RUNNING",
	} {
		if got, err := statusOf(t, strings.NewReader(withID(body))); err != nil || got != want {
			t.Errorf("%.80s: got %q, %v, want %q", body, got, err, want)
		}
	}
	for body, want := range map[string]txn.WorkflowStatus{
		`{"status":"RUNNING","input":{"workflowId":"other"},"workflowId":"w"}`: "RUNNING",
		`{"workflowId":"w","workflowId":"other","status":"RUNNING"}`:           "RUNNING",
		`{"status":"RUNNING","status":"FAILED","workflowId":"w","and then`:     "RUNNING",
	} {
		if got, err := statusOf(t, strings.NewReader(body)); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", body, got, err, want)
		}
	}
	for _, body := range []string{`{"status":"RUNNING"}`, `{"status":"RUNNING","workflowId":"other"}`, `{"status":"RUNNING","workflowId":"W"}`, `{"status":"RUNNING","workflowId":""}`,
		`{"status":"RUNNING","workflowId":null}`, `{"status":"RUNNING","workflowid":"w"}`, `{"status":"RUNNING","input":{"workflowId":"w"}}`} {
		if got, err := statusOf(t, strings.NewReader(body)); !errors.Is(err, txn.ErrRetryable) || got != "" {
			t.Errorf("%s: got %q, %v, want ErrRetryable", body, got, err)
		}
	}
	for _, body := range []string{``, ` `, `[]`, `"RUNNING"`, `null`, `{}`, `{"status":null}`, `{"status":7}`, `{"status":{"status":"RUNNING"}}`, `{"status":""}`,
		`{"stat`, `{"status"`, `{"status":`, `{"status":"RUNN`, `{"a":"status":"RUNNING"}`, `{"a":1`, `{"a":[1,{"status":"RUNNING"}`, `{status:"RUNNING"}`, `<html>`,
		`{"` + strings.Repeat("k", 10000) + `":1,"status":"RUNNING"}`} {
		got, err := statusOf(t, strings.NewReader(withID(body)))
		if !errors.Is(err, txn.ErrRetryable) || got != "" {
			t.Errorf("%.80s: got %q, %v, want ErrRetryable", body, got, err)
		}
	}
}

// TestWorkflowStatusAsJSON compares the stream with encoding/json on objects of
// any shape.
func TestWorkflowStatusAsJSON(t *testing.T) {
	t.Parallel()
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		leaves := []*rapid.Generator[any]{
			rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int64().AsAny(), rapid.Float64Range(-1e9, 1e9).AsAny(), rapid.String().AsAny(),
			rapid.SampledFrom([]string{"status", `"`, `\`, `\"`, "{", "}", "[", ",", `","status":"FAKE`}).AsAny(),
		}
		if depth > 0 {
			leaves = append(leaves,
				rapid.SliceOfN(rapid.Deferred(func() *rapid.Generator[any] { return value(depth - 1) }), 0, 4).AsAny(),
				rapid.MapOfN(fieldName(), rapid.Deferred(func() *rapid.Generator[any] { return value(depth - 1) }), 0, 4).AsAny())
		}
		return rapid.OneOf(leaves...)
	}
	rapid.Check(t, func(r *rapid.T) {
		fields := rapid.MapOfN(fieldName(), value(3), 0, 6).Draw(r, "fields")
		if status := rapid.SampledFrom([]string{"", "RUNNING", "FAILED"}).Draw(r, "status"); status != "" {
			fields["status"] = status
		} else {
			delete(fields, "status")
		}
		id := rapid.SampledFrom([]string{"", "w", "w", "w", "other"}).Draw(r, "workflowId")
		if fields["workflowId"] = id; id == "" {
			delete(fields, "workflowId")
		}
		indent := rapid.SampledFrom([]string{"", " ", "\t"}).Draw(r, "indent")
		raw, err := json.MarshalIndent(fields, "", indent)
		if err != nil {
			r.Fatal(err)
		}
		got, err := statusOf(t, strings.NewReader(string(raw)))
		want, _ := fields["status"].(string)
		if id != "w" {
			want = ""
		}
		if string(got) != want || (err == nil) != (want != "") {
			r.Fatalf("%s: got %q, %v, want %q", raw, got, err, want)
		}
	})
}

func fieldName() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringMatching(`[a-z]{0,8}`), rapid.SampledFrom([]string{"status", "a\"b", `\`, "é", "input"}))
}

// TestWorkflowStatusOfALargeWorkflow: 50 MB before the status are passed by
// without being held.
func TestWorkflowStatusOfALargeWorkflow(t *testing.T) {
	const size = 50 << 20
	filler := strings.Repeat("x", 1<<16)
	for name, parts := range map[string][3]string{
		"one string":   {`{"input":{"a":"`, filler, `"},"status":"PAUSED","workflowId":"w"}`},
		"many members": {`{"input":{`, strings.Repeat(`"k":[1,2,{"status":"FAKE"}],`, 1<<11), `"z":1},"status":"PAUSED","workflowId":"w"}`},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			readers := []io.Reader{strings.NewReader(parts[0])}
			for range size / len(parts[1]) {
				readers = append(readers, strings.NewReader(parts[1]))
			}
			readers = append(readers, strings.NewReader(parts[2]))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := statusOf(t, io.MultiReader(readers...))
			runtime.ReadMemStats(&after)
			if err != nil || got != txn.WorkflowPaused {
				t.Errorf("got %q, %v", got, err)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 4<<20 {
				t.Errorf("%d bytes were allocated for %d", allocated, size)
			}
		})
	}
}

// TestWorkflowStatusLargerThanTheBound: the bound on other answers is not this
// one's.
func TestWorkflowStatusLargerThanTheBound(t *testing.T) {
	t.Parallel()
	fake := conductortest.New(nil)
	client := newClientOn(t, conductor.Config{ServerURL: address}, conductortest.Transport(fake))
	register(t, client, "t", "w")
	id, err := client.StartWorkflow(t.Context(), conductor.StartRequest{Name: "w", Input: []byte(fmt.Sprintf(`{"large":%q}`, strings.Repeat("x", 1<<19)))})
	if err != nil {
		t.Fatal(err)
	}
	client.SetBodyLimit(1 << 16)
	if status, err := client.WorkflowStatus(t.Context(), id); err != nil || status != txn.WorkflowRunning {
		t.Errorf("got %q, %v", status, err)
	}
	if workflow, err := client.Workflow(t.Context(), id); err != nil || workflow.Status != txn.WorkflowRunning || len(workflow.Tasks) != 1 {
		t.Errorf("the whole workflow: got %+v, %v", workflow, err)
	}
}
