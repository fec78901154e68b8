package conductor_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/txn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const address = "http://conductor.test/api"

const (
	key    = "key-of-the-test"
	secret = "secret-of-the-test"
)

// newClient is a client whose requests a handler answers in process.
func newClient(t testing.TB, handler http.HandlerFunc) *conductor.Client {
	t.Helper()
	return newClientOn(t, conductor.Config{ServerURL: address}, conductortest.Transport(handler))
}

func newClientOn(t testing.TB, cfg conductor.Config, transport http.RoundTripper) *conductor.Client {
	t.Helper()
	client, err := conductor.New(cfg, transport)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// roundTripper is a transport that is a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// respond answers with a status, a content type and a body.
func respond(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// calls are the client's methods by what they do to the server.
var calls = []struct {
	name   string
	effect string
	call   func(context.Context, *conductor.Client) error
}{
	{"Ping", "read", func(ctx context.Context, c *conductor.Client) error { return c.Ping(ctx) }},
	{"Poll", "read", func(ctx context.Context, c *conductor.Client) error {
		_, err := c.Poll(ctx, txn.PollRequest{Type: "t", Worker: "w", Count: 1})
		return err
	}},
	{"Task", "read", func(ctx context.Context, c *conductor.Client) error { _, err := c.Task(ctx, "t"); return err }},
	{"Workflow", "read", func(ctx context.Context, c *conductor.Client) error { _, err := c.Workflow(ctx, "w"); return err }},
	{"WorkflowStatus", "read", func(ctx context.Context, c *conductor.Client) error { _, err := c.WorkflowStatus(ctx, "w"); return err }},
	{"TaskDefinition", "read", func(ctx context.Context, c *conductor.Client) error { _, err := c.TaskDefinition(ctx, "t"); return err }},
	{"RawTaskDefinition", "read", func(ctx context.Context, c *conductor.Client) error {
		_, err := c.RawTaskDefinition(ctx, "t")
		return err
	}},
	{"RawWorkflowDefinition", "read", func(ctx context.Context, c *conductor.Client) error {
		_, err := c.RawWorkflowDefinition(ctx, "w", 0)
		return err
	}},
	{"Update", "repeatable", func(ctx context.Context, c *conductor.Client) error {
		return c.Update(ctx, txn.TaskResult{Task: "t", Workflow: "w", Worker: "x", Status: txn.TaskCompleted})
	}},
	{"ExtendLease", "repeatable", func(ctx context.Context, c *conductor.Client) error { return c.ExtendLease(ctx, "w", "t", "x") }},
	{"PutTaskDefinition", "repeatable", func(ctx context.Context, c *conductor.Client) error {
		return c.PutTaskDefinition(ctx, []byte(`{"name":"t"}`))
	}},
	{"PutWorkflowDefinition", "repeatable", func(ctx context.Context, c *conductor.Client) error {
		return c.PutWorkflowDefinition(ctx, []byte(`{"name":"w"}`))
	}},
	{"StartWorkflow", "once", func(ctx context.Context, c *conductor.Client) error {
		_, err := c.StartWorkflow(ctx, conductor.StartRequest{Name: "w"})
		return err
	}},
}
