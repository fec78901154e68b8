package conductor_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/txn"
)

// TestEveryCallGoesThroughTheTransport holds the one way in: the SDK builds its
// own http.Client, and this package puts its transport there.
func TestEveryCallGoesThroughTheTransport(t *testing.T) {
	t.Parallel()
	for _, call := range calls {
		t.Run(call.name, func(t *testing.T) {
			t.Parallel()
			seen := errors.New("seen by the transport")
			client := newClientOn(t, conductor.Config{ServerURL: address}, roundTripper(func(*http.Request) (*http.Response, error) { return nil, seen }))
			// Twice: the SDK's client is changed before its first request.
			for range 2 {
				if err := call.call(t.Context(), client); !errors.Is(err, seen) {
					t.Errorf("got %v, want the transport's error", err)
				}
			}
		})
	}
}

// TestDeadlinesComeFromTheContext: the SDK reads a timeout of its own from the
// environment, which has no say here.
func TestDeadlinesComeFromTheContext(t *testing.T) {
	t.Setenv("CONDUCTOR_CLIENT_HTTP_TIMEOUT", "1")
	for _, call := range calls {
		t.Run(call.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := func(w http.ResponseWriter, r *http.Request) {
					select {
					case <-time.After(90 * time.Second):
						respond(404, "application/json", conductorsOwn404)(w, r)
					case <-r.Context().Done():
					}
				}
				client := newClient(t, slow)
				if err := call.call(t.Context(), client); !errors.Is(err, txn.ErrNotFound) {
					t.Errorf("without a deadline: got %v, want the answer after 90 s", err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				begun := time.Now()
				if err := call.call(ctx, client); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 5*time.Second {
					t.Errorf("with a deadline of 5 s: got %v after %v", err, time.Since(begun))
				}
			})
		})
	}
}

// TestRedirects: none is followed. A POST would come out as a GET, and a page
// asking to sign in as a success.
func TestRedirects(t *testing.T) {
	t.Parallel()
	for _, call := range calls {
		t.Run(call.name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			client := newClient(t, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				http.Redirect(w, r, "http://login.test/", http.StatusFound)
			})
			err := call.call(t.Context(), client)
			want := map[string]error{"read": txn.ErrRetryable, "repeatable": txn.ErrRetryable, "once": txn.ErrUnknownOutcome}[call.effect]
			if !errors.Is(err, want) || errors.Is(err, txn.ErrRefused) || !strings.Contains(err.Error(), "http://login.test/") {
				t.Errorf("got %v, want %v naming the place", err, want)
			}
			if requests.Load() != 1 {
				t.Errorf("%d requests, want 1", requests.Load())
			}
		})
	}
}

// TestBoundedBody: an answer that is far too large is not read to its end.
func TestBoundedBody(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	if got := newClient(t, nil).BodyLimit(); got != 64<<20 {
		t.Errorf("the bound is %d bytes, want 64 MiB", got)
	}
	for _, call := range calls {
		if call.name == "WorkflowStatus" || call.name == "Workflow" {
			continue // read as a stream; see TestWorkflowStatusOfALargeWorkflow and TestWorkflow_LimitsAreNamed
		}
		t.Run(call.name, func(t *testing.T) {
			body := &oversized{}
			client := newClientOn(t, conductor.Config{ServerURL: address}, roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}, nil
			}))
			client.SetBodyLimit(limit)
			want := map[string]error{"read": txn.ErrRefused, "repeatable": txn.ErrRetryable, "once": txn.ErrUnknownOutcome}[call.effect]
			if call.name == "PutTaskDefinition" {
				want = txn.ErrRefused // it reads first
			}
			if err := call.call(t.Context(), client); !errors.Is(err, want) || !strings.Contains(err.Error(), "more than 1048576 bytes") {
				t.Errorf("got %v, want %v and the limit", err, want)
			}
			if body.read > 3*limit {
				t.Errorf("read %d bytes", body.read)
			}
			if !body.closed {
				t.Error("the body was left open")
			}
		})
	}
}

// blanks are copied, because a loop over each byte takes minutes under -race.
var blanks = bytes.Repeat([]byte(" "), 1<<20)

type oversized struct {
	read   int64
	closed bool
}

func (e *oversized) Read(p []byte) (int, error) {
	if e.read >= 32<<20 {
		return 0, io.EOF
	}
	n := copy(p, blanks)
	e.read += int64(n)
	return n, nil
}

func (e *oversized) Close() error {
	e.closed = true
	return nil
}

// TestDecompressedSizeIsBounded: a small answer that unpacks to a large one. The
// SDK asks for gzip by itself and would unpack without a bound.
func TestDecompressedSizeIsBounded(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Header["Accept-Encoding"])
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		packed := gzip.NewWriter(w)
		_, _ = io.CopyN(packed, &oversized{}, 4<<20)
		_ = packed.Close()
	}))
	t.Cleanup(server.Close)
	client := newClientOn(t, conductor.Config{ServerURL: server.URL}, nil)
	t.Cleanup(client.CloseIdleConnections)
	client.SetBodyLimit(1 << 20)
	if _, err := client.Task(t.Context(), "t"); !errors.Is(err, txn.ErrRefused) || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{"gzip"}, asked.Load()); diff != "" {
		t.Errorf("Accept-Encoding (-want +got):\n%s", diff)
	}
}

// countingServer counts the connections that are made to it.
func countingServer(t *testing.T, handler http.Handler) (url string, connections *atomic.Int32) {
	connections = new(atomic.Int32)
	server := httptest.NewUnstartedServer(handler)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL, connections
}

// TestConnectionsAreReused: every answer is read to its end, refusals and streams
// too, so that the next request need not connect.
func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	url, connections := countingServer(t, conductortest.New(nil))
	client := newClientOn(t, conductor.Config{ServerURL: url}, nil)
	t.Cleanup(client.CloseIdleConnections)
	register(t, client, "t", "w")
	id, err := client.StartWorkflow(t.Context(), conductor.StartRequest{Name: "w"})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := client.WorkflowStatus(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Workflow(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Task(t.Context(), "absent"); !errors.Is(err, txn.ErrNotFound) {
			t.Fatal(err)
		}
	}
	if connections.Load() != 1 {
		t.Errorf("%d connections, want 1", connections.Load())
	}
}

// TestConnectionsOfManyCallsAreKept: a worker's polls, fences and heartbeats are
// many calls at once, and the next many find their connections again.
func TestConnectionsOfManyCallsAreKept(t *testing.T) {
	t.Parallel()
	const atOnce, rounds = 16, 5
	var all sync.WaitGroup
	url, connections := countingServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		// Nobody is answered before all are there, so each has a connection.
		all.Done()
		all.Wait()
		w.WriteHeader(http.StatusNoContent)
	}))
	client := newClientOn(t, conductor.Config{ServerURL: url}, nil)
	t.Cleanup(client.CloseIdleConnections)
	for range rounds {
		all.Add(atOnce)
		var calls sync.WaitGroup
		for range atOnce {
			calls.Go(func() {
				if _, err := client.Task(t.Context(), "absent"); !errors.Is(err, txn.ErrNotFound) {
					t.Error(err)
				}
			})
		}
		calls.Wait()
	}
	// A connection may become free a moment after its answer.
	if n := connections.Load(); n > 2*atOnce {
		t.Errorf("%d rounds of %d calls at once took %d connections", rounds, atOnce, n)
	}
}

// register puts a task type and a workflow of one such task.
func register(t *testing.T, client *conductor.Client, kind, workflow string) {
	t.Helper()
	if err := client.PutTaskDefinition(t.Context(), []byte(`{"name":"`+kind+`","ownerEmail":"a@example.com"}`)); err != nil {
		t.Fatal(err)
	}
	if err := client.PutWorkflowDefinition(t.Context(), []byte(`{"name":"`+workflow+`","ownerEmail":"a@example.com","tasks":[{"name":"`+kind+`","taskReferenceName":"only","type":"SIMPLE"}]}`)); err != nil {
		t.Fatal(err)
	}
}

// TestRequests is what goes over the wire.
func TestRequests(t *testing.T) {
	t.Parallel()
	type request struct{ Method, URI, Body string }
	for _, row := range []struct {
		name string
		call func(context.Context, *conductor.Client) error
		want request
	}{
		{"poll without a domain", func(ctx context.Context, c *conductor.Client) error {
			_, err := c.Poll(ctx, txn.PollRequest{Type: "t", Worker: "host-1/x", Count: 3, Wait: 100 * time.Millisecond})
			return err
		}, request{"GET", "/api/tasks/poll/batch/t?count=3&timeout=100&workerid=host-1%2Fx", ""}},
		{"poll with a domain", func(ctx context.Context, c *conductor.Client) error {
			_, err := c.Poll(ctx, txn.PollRequest{Type: "t", Domain: "d", Worker: "w", Count: 1})
			return err
		}, request{"GET", "/api/tasks/poll/batch/t?count=1&domain=d&timeout=0&workerid=w", ""}},
		{"name that needs escaping", func(ctx context.Context, c *conductor.Client) error {
			_, err := c.Poll(ctx, txn.PollRequest{Type: "a b/c?d%e", Worker: "w", Count: 1})
			return err
		}, request{"GET", "/api/tasks/poll/batch/a%20b%2Fc%3Fd%25e?count=1&timeout=0&workerid=w", ""}},
		{"task", func(ctx context.Context, c *conductor.Client) error { _, err := c.Task(ctx, "a/b"); return err },
			request{"GET", "/api/tasks/a%2Fb", ""}},
		{"status", func(ctx context.Context, c *conductor.Client) error { _, err := c.WorkflowStatus(ctx, "w"); return err },
			request{"GET", "/api/workflow/w?includeTasks=false", ""}},
		{"workflow", func(ctx context.Context, c *conductor.Client) error { _, err := c.Workflow(ctx, "w"); return err },
			request{"GET", "/api/workflow/w?includeTasks=true", ""}},
		{"update", func(ctx context.Context, c *conductor.Client) error {
			return c.Update(ctx, txn.TaskResult{Task: "t", Workflow: "w", Worker: "x", Status: txn.TaskFailed, Reason: "why", Output: map[string]any{"n": 9007199254740993}})
		}, request{"POST", "/api/tasks", `{"workflowInstanceId":"w","taskId":"t","reasonForIncompletion":"why","workerId":"x","status":"FAILED","outputData":{"n":9007199254740993}}`}},
		{"return to the queue", func(ctx context.Context, c *conductor.Client) error {
			return c.Update(ctx, txn.TaskResult{Task: "t", Workflow: "w", Worker: "x", Status: txn.TaskInProgress, CallbackAfterSeconds: 5})
		}, request{"POST", "/api/tasks", `{"workflowInstanceId":"w","taskId":"t","callbackAfterSeconds":5,"workerId":"x","status":"IN_PROGRESS"}`}},
		{"extend lease", func(ctx context.Context, c *conductor.Client) error { return c.ExtendLease(ctx, "w", "t", "x") },
			request{"POST", "/api/tasks", `{"extendLease":true,"status":"IN_PROGRESS","taskId":"t","workerId":"x","workflowInstanceId":"w"}`}},
		{"start", func(ctx context.Context, c *conductor.Client) error {
			_, err := c.StartWorkflow(ctx, conductor.StartRequest{Name: "w", Version: 2, Input: []byte(`{"n":9007199254740993}`), TaskToDomain: map[string]string{"*": "d"}, CorrelationID: "c"})
			return err
		}, request{"POST", "/api/workflow", `{"name":"w","version":2,"correlationId":"c","input":{"n":9007199254740993},"taskToDomain":{"*":"d"}}`}},
		{"start without input", func(ctx context.Context, c *conductor.Client) error {
			_, err := c.StartWorkflow(ctx, conductor.StartRequest{Name: "w"})
			return err
		}, request{"POST", "/api/workflow", `{"name":"w"}`}},
		{"workflow definition", func(ctx context.Context, c *conductor.Client) error {
			return c.PutWorkflowDefinition(ctx, []byte(`{"name": "w",  "unknown":1.50}`))
		}, request{"PUT", "/api/metadata/workflow", `[{"name": "w",  "unknown":1.50}]`}},
		{"workflow definition of a version", func(ctx context.Context, c *conductor.Client) error {
			_, err := c.RawWorkflowDefinition(ctx, "w", 3)
			return err
		}, request{"GET", "/api/metadata/workflow/w?version=3", ""}},
	} {
		t.Run(strings.ReplaceAll(row.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			var got []request
			client := newClient(t, func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				got = append(got, request{r.Method, r.RequestURI, strings.TrimSpace(string(body))})
				if types := r.Header["Content-Type"]; len(types) > 1 || (len(body) > 0 && types[0] != "application/json") {
					t.Errorf("Content-Type %q", types)
				}
				if token, ok := r.Header["X-Authorization"]; ok {
					t.Errorf("X-Authorization %q without credentials", token)
				}
				respond(404, "application/json", conductorsOwn404)(w, r)
			})
			if err := row.call(t.Context(), client); !errors.Is(err, txn.ErrNotFound) {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff([]request{row.want}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestQuotedWorkflowID: Conductor 3.15.0 answers with the bare id; a gateway may
// make a JSON string of it.
func TestQuotedWorkflowID(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"the-id", `"the-id"`} {
		id, err := newClient(t, respond(200, "text/plain", body)).StartWorkflow(t.Context(), conductor.StartRequest{Name: "w"})
		if err != nil || id != "the-id" {
			t.Errorf("%s: got %q, %v", body, id, err)
		}
	}
	for _, body := range []string{"", `""`, strings.Repeat("x", 1000)} {
		id, err := newClient(t, respond(200, "text/plain", body)).StartWorkflow(t.Context(), conductor.StartRequest{Name: "w"})
		if !errors.Is(err, txn.ErrUnknownOutcome) {
			t.Errorf("%.20s: got %q, %v, want ErrUnknownOutcome", body, id, err)
		}
	}
}

// TestPutTaskDefinition creates what is not there and replaces what is, the JSON
// unchanged.
func TestPutTaskDefinition(t *testing.T) {
	t.Parallel()
	const raw = `{"name": "t",  "unknown":1.50}`
	for exists, want := range map[bool]string{false: "POST [" + raw + "]", true: "PUT " + raw} {
		var got []string
		client := newClient(t, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			switch {
			case r.Method == http.MethodGet && exists:
				respond(200, "application/json", `{"name":"t"}`)(w, r)
			case r.Method == http.MethodGet:
				respond(404, "application/json", conductorsOwn404)(w, r)
			default:
				got = append(got, r.Method+" "+string(body))
			}
		})
		if err := client.PutTaskDefinition(t.Context(), []byte(raw)); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{want}, got); diff != "" {
			t.Errorf("exists=%v (-want +got):\n%s", exists, diff)
		}
	}
}

// TestRefusalInsideASuccess: a workflow definition can be refused in a 200.
func TestRefusalInsideASuccess(t *testing.T) {
	t.Parallel()
	client := newClient(t, respond(200, "application/json", `{"bulkErrorResults":{"w":"no such owner"},"bulkSuccessfulResults":[]}`))
	if err := client.PutWorkflowDefinition(t.Context(), []byte(`{"name":"w"}`)); !errors.Is(err, txn.ErrRefused) || !strings.Contains(err.Error(), "no such owner") {
		t.Errorf("got %v", err)
	}
}
