package conductor_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"perago/pkg/conductor"
	"perago/pkg/credential"
	"perago/pkg/txn"
)

const token = "token-of-the-test"

// echoed puts what a server was shown into its answer.
var echoed = strings.NewReplacer("TOKEN", token, "SECRET", secret)

// counted is a body that knows how much of it was read.
type counted struct {
	io.Reader
	read int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read += n
	return n, err
}

func (c *counted) Close() error { return nil }

// wantServerError fails unless an error is one of Conductor's, of one class, one
// line of a bounded length, and holds no secret.
func wantServerError(t *testing.T, err error) {
	t.Helper()
	var failed *txn.ServerError
	if !errors.As(err, &failed) {
		t.Fatalf("%T: %v", err, err)
	}
	classes := 0
	for _, class := range []error{txn.ErrRefused, txn.ErrRetryable, txn.ErrUnknownOutcome} {
		if errors.Is(err, class) {
			classes++
		}
	}
	text := err.Error()
	if classes != 1 || failed.Method == "" || failed.Path == "" || len(text) > 2000 || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		t.Fatalf("%d classes, %d bytes: %.1000q", classes, len(text), text)
	}
	if strings.Contains(text, token) || strings.Contains(text, secret) {
		t.Fatalf("a secret is in %q", text)
	}
	if errors.Is(err, txn.ErrNotFound) && failed.Status != http.StatusNotFound && failed.Status != http.StatusNoContent && failed.Message != "no content" {
		t.Fatalf("a status of %d is taken for nothing there: %v", failed.Status, err)
	}
}

// FuzzAnswers: whatever answers a call, or the request for its token, what is read
// is bounded, the call succeeds only on a success, and its error has the one class
// that its effect allows.
func FuzzAnswers(f *testing.F) {
	const task = `{"taskId":"t","workflowInstanceId":"w","status":"IN_PROGRESS","retryCount":1,"inputData":{"n":9007199254740993},"taskDefinition":{"name":"t"}}`
	good := map[string]string{
		"Ping": `{"perago_ping":0}`, "Poll": `[` + task + `]`, "Task": task, "Workflow": `{"workflowId":"w","status":"RUNNING","tasks":[` + task + `]}`,
		"WorkflowStatus": `{"status":"RUNNING"}`, "TaskDefinition": `{"name":"t"}`, "RawTaskDefinition": `{"name":"t"}`, "RawWorkflowDefinition": `{"name":"w"}`,
		"StartWorkflow": "0b4a7d26-7f6e-4a54-9d8d-0e1f2a3b4c5d",
	}
	for i, c := range calls {
		f.Add(byte(i), uint16(100), "application/json", good[c.name], byte(0), `{"token":"TOKEN"}`)
		f.Add(byte(i), uint16(104), "", good[c.name], byte(0), `{"token":"TOKEN"}`)
		f.Add(byte(i), uint16(400), "application/json", `{"message":"SECRET and TOKEN`+"\\u0000"+`","validationErrors":[{"path":"a","message":"b"}]}`, byte(0), `{"token":"TOKEN"}`)
		f.Add(byte(i), uint16(304), "text/html", `<html>`, byte(255), ``)
	}
	f.Add(byte(0), uint16(100), "application/json", strings.Repeat("x", 1000), byte(255), `{"token":"TOKEN"}`)
	f.Add(byte(7), uint16(304), "", `{"status":404,"message":"No such thing","instance":"host"}`, byte(0), `{"token":"TOKEN"}`)
	f.Fuzz(func(t *testing.T, which byte, status uint16, contentType, body string, times byte, tokenBody string) {
		c := calls[int(which)%len(calls)]
		answer, limit, longest := 100+int(status)%500, int64(4<<10), 0
		tokenBody = echoed.Replace(tokenBody)
		var given struct {
			Token string `json:"token"`
		}
		if json.Unmarshal([]byte(tokenBody), &given) != nil || given.Token != token {
			body = strings.ReplaceAll(body, "TOKEN", "") // it is no secret here
			body = strings.ReplaceAll(body, token, "")
		}
		body = strings.Repeat(echoed.Replace(body), 1+int(times)*16)
		client := newClientOn(t, conductor.Config{ServerURL: address, AuthKey: credential.New(key), AuthSecret: credential.New(secret)},
			roundTripper(func(r *http.Request) (*http.Response, error) {
				response := &http.Response{StatusCode: answer, Header: http.Header{"Content-Type": {contentType}, "Location": {body}}, Request: r}
				counted := &counted{Reader: strings.NewReader(body)}
				if strings.HasSuffix(r.URL.Path, "/token") {
					response.StatusCode, counted.Reader = http.StatusOK, strings.NewReader(tokenBody)
				}
				response.Body = closing{counted, func() { longest = max(longest, counted.read) }}
				return response, nil
			}))
		client.SetBodyLimit(limit)
		err := c.call(t.Context(), client)
		// What is left of an answer is read, so far, to use the connection again.
		if longest > 1<<20+int(limit)+64<<10 && c.name != "WorkflowStatus" {
			t.Fatalf("%s read %d bytes of an answer", c.name, longest)
		}
		if err == nil {
			if answer/100 > 2 {
				t.Fatalf("%s succeeded on %d", c.name, answer)
			}
			return
		}
		wantServerError(t, err)
		if unknown := errors.Is(err, txn.ErrUnknownOutcome); unknown && c.effect != "once" {
			t.Fatalf("%s, which is to %s: %v", c.name, c.effect, err)
		}
		// With a token it was sent.
		var failed *txn.ServerError
		if errors.As(err, &failed); c.effect == "once" && failed.Path != "/token" && errors.Is(err, txn.ErrRetryable) {
			t.Fatalf("%s would be sent again: %v", c.name, err)
		}
	})
}

type closing struct {
	*counted
	closed func()
}

func (c closing) Close() error { c.closed(); return nil }

// FuzzTasks: a task that is read is the one that was asked for, is whole, and has its
// open-ended parts byte for byte; so has each that a poll hands out.
func FuzzTasks(f *testing.F) {
	const task = `{"taskId":"t","workflowInstanceId":"w","status":"IN_PROGRESS","retryCount":1,"pollCount":2,"startTime":1764443290123,"inputData":{"n":9007199254740993, "x": [1.50]},"taskDefinition":{"name":"t","inputTemplate":{"budget": {}}}}`
	f.Add([]byte(task))
	f.Add([]byte(`{"taskId":"t","workflowInstanceId":"w","status":"X","retryCount":99999999999}`))
	f.Add([]byte(`{"taskId":"t","workflowInstanceId":"w","status":"X","taskDefinition":null,"inputData":null,"outputData":7}`))
	f.Add([]byte(`{"taskId":"other","workflowInstanceId":"w","status":"X"}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		answer := func(body string) *conductor.Client {
			return newClient(t, respond(http.StatusOK, "application/json", body))
		}
		var sent struct {
			Input  json.RawMessage `json:"inputData"`
			Output json.RawMessage `json:"outputData"`
		}
		same := func(what string, got, want json.RawMessage) {
			if string(want) != "null" && !bytes.Equal(got, want) || string(want) == "null" && got != nil {
				t.Fatalf("the %s %q came as %q", what, want, got)
			}
		}
		read, err := answer(string(raw)).Task(t.Context(), "t")
		if err != nil {
			wantServerError(t, err)
		} else {
			if read.ID != "t" || read.Workflow == "" || read.Status == "" {
				t.Fatalf("accepted %+v", read)
			}
			if err := json.Unmarshal(raw, &sent); err != nil {
				t.Fatal(err)
			}
			same("input", read.Input, sent.Input)
			same("output", read.Output, sent.Output)
			if err := txn.AttemptOf(read).CurrentTask(read); err != nil && read.Status == txn.TaskInProgress {
				t.Fatalf("a task is not the attempt that it gives: %v", err)
			}
		}
		polled, pollErr := answer("["+string(raw)+"]").Poll(t.Context(), txn.PollRequest{Type: "t", Worker: "w", Count: 1})
		if pollErr != nil {
			wantServerError(t, pollErr)
		}
		for _, one := range polled {
			if one.ID == "" || one.Workflow == "" || one.Status == "" {
				t.Fatalf("handed out %+v", one)
			}
		}
		if err == nil && (pollErr != nil || len(polled) != 1 || polled[0].ID != read.ID) {
			t.Fatalf("read as %+v, polled as %+v, %v", read, polled, pollErr)
		}
		workflow, err := answer(`{"workflowId":"w","status":"RUNNING","tasks":[`+string(raw)+`]}`).Workflow(t.Context(), "w")
		if err != nil {
			wantServerError(t, err)
		} else if workflow.ID != "w" || workflow.Status == "" {
			t.Fatalf("accepted %+v", workflow)
		}
	})
}

// FuzzSurvey: what doctor reads of a server is what it asked for, or an error.
func FuzzSurvey(f *testing.F) {
	f.Add(`{"d:perago_stage":1,"x":-1,":":2}`)
	f.Add(`[{"domain":"d","workerId":"w","lastPollTime":9223372036854775807}]`)
	f.Add(`[{"name":"w","version":2,"tasks":[[{"name":"perago_stage","forkTasks":[[{"name":"x"}]]}]]}]`)
	f.Add(`["w"]`)
	f.Add(`{"workflowId":"w","status":"RUNNING","input":{},"startTime":-1}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, body string) {
		client, ctx := newClient(t, respond(http.StatusOK, "application/json", body)), t.Context()
		queues, err := client.Queues(ctx)
		if err != nil {
			wantServerError(t, err)
		}
		for i, queue := range queues {
			if queue.Waiting <= 0 || i > 0 && queue.Type < queues[i-1].Type {
				t.Fatalf("%+v", queues)
			}
		}
		for _, err := range []error{
			errorOf(client.LastPolls(ctx, "t")), errorOf(client.TaskTypes(ctx)), errorOf(client.WorkflowsWith(ctx, txn.TaskType.IsStage)),
			errorOf(client.Running(ctx, txn.WorkflowVersion{Name: "w", Version: 1})), errorOf(client.OpenWorkflow(ctx, "w")),
			errorOf(client.RawWorkflowDefinition(ctx, "w", 1)), errorOf(client.TaskDefinition(ctx, "t")), client.Ping(ctx),
		} {
			if err != nil {
				wantServerError(t, err)
			}
		}
	})
}

func errorOf[T any](_ T, err error) error { return err }

// FuzzStatusStream: of any JSON object that is the workflow asked for the stream finds
// the status that encoding/json finds, and of another none; of anything else it gives
// one that is not empty, or an error.
func FuzzStatusStream(f *testing.F) {
	for _, body := range []string{
		`{"status":"RUNNING"}`, `{"input":{"status":"X"},"status":"RUNNING"}`, `{"a":"}\"status\":\"FAILED\",{","b":"\\","status":"TIMED_OUT"}`, `{"\u0073tatus":"FAILED"}`,
		`{"a":"\"","status":"RUNNING"}`, `{"status":null}`, `{"Status":"X"}`, `{"status":""}`, `[]`, `{"a":1`, `{"status":"RUNNING","and then`, `{"a":1]`, "{\"a\":\"\xff\",\"status\":\"\xff\"}",
	} {
		f.Add([]byte(body))
		f.Add([]byte(withID(body)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := statusOf(t, bytes.NewReader(body))
		if err != nil {
			wantServerError(t, err)
		}
		if (got == "") != (err != nil) {
			t.Fatalf("%q, %v", got, err)
		}
		var fields map[string]json.RawMessage
		if json.Unmarshal(body, &fields) != nil || fields == nil || len(body) > 4000 || twice(body, "status") || twice(body, "workflowId") {
			return
		}
		var id, want string
		if _ = json.Unmarshal(fields["workflowId"], &id); id == "w" {
			_ = json.Unmarshal(fields["status"], &want)
		}
		if string(got) != want {
			t.Fatalf("%q, %v; encoding/json says %q", got, err, want)
		}
	})
}

// twice reports whether a field stands more than once at the top of an object: of
// those the stream takes the first and encoding/json the last.
func twice(object []byte, name string) bool {
	decoder := json.NewDecoder(bytes.NewReader(object))
	_, _ = decoder.Token()
	count := 0
	for decoder.More() {
		key, err := decoder.Token()
		if key == name {
			count++
		}
		if err != nil || decoder.Decode(new(json.RawMessage)) != nil {
			break
		}
	}
	return count > 1
}

// FuzzConfig: an accepted address is one that requests can be built on, and what is
// refused is repeated in no error.
func FuzzConfig(f *testing.F) {
	for _, address := range []string{"http://conductor:8080", "https://c/api/", " http://c", "http://user:password@c", "http://c?x", "http://c#", "http://", "replace-me", "c:8080", "http://c/%zz", "HTTP://C//"} {
		f.Add(address, key, secret)
	}
	f.Add("http://c", "", secret)
	f.Add("http://c", " k", "replace-me")
	f.Fuzz(func(t *testing.T, address, key, secret string) {
		cfg := conductor.Config{ServerURL: address, AuthKey: credential.New(key), AuthSecret: credential.New(secret)}
		faults := cfg.Validate()
		for _, fault := range faults {
			if !strings.HasPrefix(fault.Error(), "CONDUCTOR_") || len(fault.Error()) > 300 || strings.ContainsFunc(fault.Error(), unicode.IsControl) {
				t.Fatalf("%q names no variable", fault)
			}
		}
		client, err := conductor.New(cfg, roundTripper(func(r *http.Request) (*http.Response, error) {
			if parsed, err := url.Parse(r.URL.String()); err != nil || parsed.Host == "" || parsed.User != nil || parsed.Fragment != "" || !strings.HasSuffix(parsed.Path, "/api/token") && !strings.HasSuffix(parsed.Path, "/api/tasks/t") {
				t.Errorf("%q leads to %q", address, r.URL)
			}
			return &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
		}))
		if (err == nil) != (len(faults) == 0) {
			t.Fatalf("%v, %v", err, faults)
		}
		if err != nil {
			return
		}
		if _, err := client.Task(t.Context(), "t"); err != nil {
			wantServerErrorOfAny(t, err)
		}
	})
}

// wantServerErrorOfAny fails unless an error is one of Conductor's.
func wantServerErrorOfAny(t *testing.T, err error) {
	t.Helper()
	var failed *txn.ServerError
	if !errors.As(err, &failed) {
		t.Fatalf("%T: %v", err, err)
	}
}
