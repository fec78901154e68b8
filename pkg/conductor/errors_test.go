package conductor_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/txn"
)

const conductorsOwn404 = `{"status":404,"message":"No such thing","instance":"host","retryable":false}`

// own is a refusal in Conductor's own form.
func own(status int, message string) string {
	return fmt.Sprintf(`{"status":%d,"message":%q,"instance":"host","retryable":false}`, status, message)
}

// TestClasses is the table of errors: each answer, for each call, has the class
// that its effect on the server asks for.
func TestClasses(t *testing.T) {
	t.Parallel()
	type row struct {
		name      string
		transport http.RoundTripper
		class     map[string]error
		kind      error
		// text is in the error.
		text string
	}
	all := []error{txn.ErrRefused, txn.ErrRetryable, txn.ErrUnknownOutcome}
	kinds := []error{txn.ErrNotFound, txn.ErrGone, txn.ErrExists, txn.ErrConflict, txn.ErrUnauthorized, txn.ErrForbidden}
	fails := func(err error) http.RoundTripper {
		return roundTripper(func(*http.Request) (*http.Response, error) { return nil, err })
	}
	answers := func(status int, contentType, body string) http.RoundTripper {
		return conductortest.Transport(respond(status, contentType, body))
	}
	refused := map[string]error{"read": txn.ErrRefused, "repeatable": txn.ErrRefused, "once": txn.ErrRefused}
	unclear := map[string]error{"read": txn.ErrRetryable, "repeatable": txn.ErrRetryable, "once": txn.ErrUnknownOutcome}
	unsent := map[string]error{"read": txn.ErrRetryable, "repeatable": txn.ErrRetryable, "once": txn.ErrRetryable}
	const html = "<!DOCTYPE html><html><body>Sign in</body></html>"
	// A gateway's own refusals: a page, no body, JSON of its own, Conductor's status in
	// a body that was not meant for this answer.
	var gateways []row
	for _, status := range []int{400, 401, 403, 404, 405, 409, 410, 413, 414, 431} {
		for name, body := range map[string]string{
			"in HTML": html, "without a body": "", "in a word": "no route", "in JSON": `{"msg":"no Route matched"}`,
			"of another status": own(status+1, "No such thing"), "with a message alone": `{"message":"no Route matched with those values"}`,
		} {
			if status == http.StatusUnauthorized && strings.HasPrefix(body, `{"`) {
				continue // the check of credentials stands before Conductor's own error handler
			}
			gateways = append(gateways, row{fmt.Sprintf("%d of a gateway %s", status, name), answers(status, "", body), unclear, nil, "CONDUCTOR_"})
		}
	}
	for _, row := range append(gateways, []row{
		{"400", answers(400, "application/json", own(400, "bad input")), refused, nil, "bad input"},
		{"400 with validation errors", answers(400, "application/json", `{"status":400,"message":"Validation failed","validationErrors":[{"path":"a.b","message":"must not be empty"}]}`), refused, nil, "a.b: must not be empty"},
		{"401", answers(401, "application/json", own(401, "who are you")), refused, txn.ErrUnauthorized, "CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET"},
		{"401 before Conductor's error handler", answers(401, "application/json", `{"error":"INVALID_TOKEN","message":"who are you"}`), refused, txn.ErrUnauthorized, "CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET"},
		{"403", answers(403, "application/json", own(403, "not you")), refused, txn.ErrForbidden, "may not"},
		{"404", answers(404, "application/json", conductorsOwn404), refused, txn.ErrNotFound, "No such thing"},
		{"404 of the web framework", answers(404, "application/json", `{"timestamp":"x","status":404,"error":"Not Found","path":"/api/x"}`), unclear, nil, "CONDUCTOR_SERVER_URL"},
		{"404 of the web framework with a message", answers(404, "application/json", `{"timestamp":"x","status":404,"error":"Not Found","message":"No static resource","path":"/api/x"}`), unclear, nil, "CONDUCTOR_SERVER_URL"},
		{"404 of the web framework in Conductor's form", answers(404, "application/json", `{"status":404,"message":"No static resource api/x.","instance":"vm","retryable":false}`), unclear, nil, "CONDUCTOR_SERVER_URL"},
		{"405", answers(405, "application/json", own(405, "method")), map[string]error{"read": txn.ErrRefused, "repeatable": txn.ErrRefused, "once": txn.ErrUnknownOutcome}, nil, "405"},
		{"408", answers(408, "", ""), unclear, nil, "408"},
		{"409", answers(409, "application/json", own(409, "already")), refused, txn.ErrConflict, "already"},
		{"410", answers(410, "application/json", own(410, "was here")), refused, txn.ErrGone, "was here"},
		{"423", answers(423, "", ""), unclear, nil, "423"},
		{"429", answers(429, "application/json", `{"message":"slow down"}`), unclear, nil, "slow down"},
		{"500", answers(500, "application/json", `{"message":"broken"}`), unclear, nil, "broken"},
		{"502 in HTML", answers(502, "text/html", html), unclear, nil, "a page of HTML"},
		{"503", answers(503, "", ""), unclear, nil, "503"},
		{"504", answers(504, "", ""), unclear, nil, "504"},
		{"200 in HTML", answers(200, "text/html", html), unclear, nil, "HTML"},
		{"200 in HTML called text", answers(200, "text/plain", html), unclear, nil, "HTML"},
		{"200 in HTML called JSON", answers(200, "application/json", html), unclear, nil, "HTML"},
		{"no answer", fails(errors.New("connection reset by peer")), unclear, nil, "connection reset by peer"},
		{"answer cut short", roundTripper(cutShort), unclear, nil, "unexpected EOF"},
		{"connection refused", fails(&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}), unsent, nil, "is the server at http://conductor.test/api up"},
		{"certificate", fails(&tls.CertificateVerificationError{Err: errors.New("unknown authority")}), unsent, nil, "unknown authority"},
		{"deadline", fails(context.DeadlineExceeded), unclear, context.DeadlineExceeded, "deadline"},
		{"cancelled", fails(context.Canceled), unclear, context.Canceled, "cancel"},
	}...) {
		for _, call := range calls {
			t.Run(strings.ReplaceAll(row.name+"/"+call.name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				err := call.call(t.Context(), newClientOn(t, conductor.Config{ServerURL: address}, row.transport))
				want := row.class[call.effect]
				for _, class := range all {
					if errors.Is(err, class) != (class == want) {
						t.Errorf("class of %v: want %v", err, want)
					}
				}
				for _, kind := range kinds {
					if errors.Is(err, kind) != (kind == row.kind) {
						t.Errorf("kind of %v: want %v", err, row.kind)
					}
				}
				if row.kind != nil && !errors.Is(err, row.kind) {
					t.Errorf("%v is not %v", err, row.kind)
				}
				var fault *txn.ServerError
				if !errors.As(err, &fault) {
					t.Fatalf("%v (%T) is no ServerError", err, err)
				}
				if fault.Server != "Conductor" || fault.Method == "" || !strings.HasPrefix(fault.Path, "/") {
					t.Errorf("got %+v, want the server, the method and the path", fault)
				}
				if !strings.Contains(err.Error(), row.text) {
					t.Errorf("%q does not hold %q", err, row.text)
				}
				if strings.Contains(err.Error(), "<") {
					t.Errorf("%q shows HTML", err)
				}
			})
		}
	}
}

// cutShort is an answer that ends before it is whole.
func cutShort(*http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(io.MultiReader(strings.NewReader(`{"workflowId":"w",`), failing{io.ErrUnexpectedEOF})),
	}, nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestConnectionRefused: the real dialler's error is known for what it is.
func TestConnectionRefused(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := "http://" + listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	client := newClientOn(t, conductor.Config{ServerURL: free}, nil)
	t.Cleanup(client.CloseIdleConnections)
	_, err = client.StartWorkflow(t.Context(), conductor.StartRequest{Name: "w"})
	if !errors.Is(err, txn.ErrRetryable) || errors.Is(err, txn.ErrUnknownOutcome) {
		t.Errorf("got %v, want ErrRetryable: nothing was sent", err)
	}
	if want := "is the server at " + free + "/api up"; !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not hold %q", err, want)
	}
}

// TestLostAnswerOfStart: the server has started the workflow and the connection
// breaks: nobody can tell.
func TestLostAnswerOfStart(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(server.Close)
	client := newClientOn(t, conductor.Config{ServerURL: server.URL}, nil)
	t.Cleanup(client.CloseIdleConnections)
	_, err := client.StartWorkflow(t.Context(), conductor.StartRequest{Name: "w"})
	if !errors.Is(err, txn.ErrUnknownOutcome) {
		t.Errorf("got %v, want ErrUnknownOutcome", err)
	}
}

func TestCancelledContext(t *testing.T) {
	t.Parallel()
	for _, call := range calls {
		t.Run(call.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			client := newClient(t, func(_ http.ResponseWriter, r *http.Request) {
				cancel()
				<-r.Context().Done()
			})
			if err := call.call(ctx, client); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", err)
			}
		})
	}
}

// TestUnsendable: what cannot be put into JSON is refused, not retried for ever.
func TestUnsendable(t *testing.T) {
	t.Parallel()
	client := newClient(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	err := client.Update(t.Context(), txn.TaskResult{Task: "t", Workflow: "w", Status: txn.TaskCompleted, Output: map[string]any{"f": func() {}}})
	if !errors.Is(err, txn.ErrRefused) {
		t.Errorf("update: got %v, want ErrRefused", err)
	}
	for _, raw := range []string{"", "[", `"x"`, `{}`} {
		if err := client.PutTaskDefinition(t.Context(), []byte(raw)); !errors.Is(err, txn.ErrRefused) {
			t.Errorf("task definition %q: got %v, want ErrRefused", raw, err)
		}
	}
	if err := client.PutWorkflowDefinition(t.Context(), []byte("{")); !errors.Is(err, txn.ErrRefused) {
		t.Errorf("workflow definition: got %v, want ErrRefused", err)
	}
}

// TestWrongAnswers: JSON that is not what was asked for is no success.
func TestWrongAnswers(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{}`, `[]`, `[{}]`, `[{"taskId":"t"}]`, `{"taskId":"another","workflowInstanceId":"w","status":"IN_PROGRESS"}`,
		`{"workflowId":"another","status":"RUNNING"}`, `{"name":"another"}`, `7`, `"text"`, `{"status":7}`, `{"status":""}`, `{"status":null}`} {
		client := newClient(t, respond(200, "application/json", body))
		expect := func(name string, good bool, err error) {
			t.Helper()
			switch {
			case good && err != nil:
				t.Errorf("%s of %s: %v", name, body, err)
			case !good && !errors.Is(err, txn.ErrRetryable):
				t.Errorf("%s of %s: got %v, want ErrRetryable", name, body, err)
			}
		}
		_, err := client.Poll(t.Context(), txn.PollRequest{Type: "t", Worker: "w", Count: 1})
		expect("Poll", body == `[]`, err)
		_, err = client.Task(t.Context(), "t")
		expect("Task", false, err)
		_, err = client.Workflow(t.Context(), "w")
		expect("Workflow", false, err)
		_, err = client.WorkflowStatus(t.Context(), "w")
		expect("WorkflowStatus", false, err)
		_, err = client.TaskDefinition(t.Context(), "t")
		expect("TaskDefinition", false, err)
	}
}

// TestPlainText: the SDK's decoder panics on text/plain where a model is
// expected; something in between may answer so.
func TestPlainText(t *testing.T) {
	t.Parallel()
	client := newClient(t, respond(200, "text/plain", "all is well"))
	for _, call := range calls {
		if call.effect != "read" {
			continue
		}
		if err := call.call(t.Context(), client); !errors.Is(err, txn.ErrRetryable) {
			t.Errorf("%s: got %v, want ErrRetryable", call.name, err)
		}
	}
}

// TestLongMessage: an error is one bounded line, cut between runes, however much
// the server says.
func TestLongMessage(t *testing.T) {
	t.Parallel()
	for _, long := range []int{1 << 10, 1 << 20} {
		client := newClient(t, respond(400, "application/json", fmt.Sprintf(`{"status":400,"message":"first\nsecond %s"}`, strings.Repeat("ж", long))))
		err := client.Ping(t.Context())
		if text := err.Error(); len(text) > 1000 || strings.Contains(text, "\n") || !utf8.ValidString(text) || !strings.Contains(text, "second ж") {
			t.Errorf("got %d bytes: %.120q", len(text), text)
		}
	}
}
