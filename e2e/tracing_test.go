package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"perago/pkg/telemetry"
	"perago/pkg/txn"
)

// receiver is an OpenTelemetry collector that keeps what it is sent.
type receiver struct {
	address string

	mu      sync.Mutex
	headers []http.Header
	spans   []received
	// raw is all that was sent.
	raw strings.Builder
}

// received is a span and the name of the service that made it.
type received struct {
	*trace.Span
	service    string
	attributes map[string]string
}

func newReceiver(t testing.TB) *receiver {
	t.Helper()
	r := &receiver{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		var message collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &message)
		}
		if err != nil {
			t.Errorf("what a worker sent as traces: %v", err)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.headers = append(r.headers, request.Header)
		r.raw.Write(body)
		for _, resource := range message.ResourceSpans {
			service := texts(resource.Resource.Attributes)["service.name"]
			for _, scope := range resource.ScopeSpans {
				for _, span := range scope.Spans {
					r.spans = append(r.spans, received{span, service, texts(span.Attributes)})
				}
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	r.address = server.URL
	return r
}

func texts(attributes []*common.KeyValue) map[string]string {
	all := map[string]string{}
	for _, attribute := range attributes {
		switch value := attribute.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			all[attribute.Key] = value.StringValue
		case *common.AnyValue_IntValue:
			all[attribute.Key] = fmt.Sprint(value.IntValue)
		}
	}
	return all
}

// of are the spans of a workflow that a service made.
func (r *receiver) of(workflow txn.WorkflowID, service string) (spans []received) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, span := range r.spans {
		if span.service == service && span.attributes["perago.workflow_id"] == string(workflow) {
			spans = append(spans, span)
		}
	}
	return spans
}

// TestTraces: a workflow that completes and one that fails, as a collector sees
// them after the workers have stopped: what the batches hold goes out at the stop.
func TestTraces(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{files: lakeBefore, without: strings.Join(workers, " ")})
	collected := newReceiver(t)
	const secret = "c0llector-s3cret"
	env := f.env(
		"OTEL_EXPORTER_OTLP_ENDPOINT="+collected.address, "OTEL_EXPORTER_OTLP_HEADERS=api-key="+secret,
		"OTEL_BSP_SCHEDULE_DELAY=3600000", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test", "PERAGO_PPROF_ADDR=127.0.0.1:0")
	running := map[string]*process{}
	for name, own := range map[string][]string{"stage-worker": f.stageEnv(), "publish-worker": {publishEnv}, "cleanup-worker": {"PERAGO_SWEEP_TTL=0s"}} {
		running[name] = start(t, name, slices.Concat(env, own)...)
		running[name].ready()
	}
	f.user("prepare", func(task txn.Task) map[string]string { return map[string]string{"a.csv": "new"} })
	good := f.run("perago_example_one_step", map[string]any{"workspace": f.workspace(f.first)})
	// The second one starts from the first commit as well, so the branch has advanced.
	bad := f.run("perago_example_one_step", map[string]any{"workspace": f.workspace(f.first)})
	if good.Status != txn.WorkflowCompleted || bad.Status == txn.WorkflowCompleted {
		t.Fatalf("%s\n%s", describe(good), describe(bad))
	}
	for _, p := range running {
		f.stop(p)
		if strings.Contains(p.stderr(), secret) {
			t.Errorf("the log of %s holds a secret", p.name)
		}
	}

	every, own := telemetry.SpanAttributes()
	for _, task := range []struct {
		workflow  txn.Workflow
		reference txn.ReferenceName
		service   string
		failed    bool
	}{
		{good, "prepare_stage", "stage-worker", false}, {good, "prepare_publish", "publish-worker", false},
		{good, "prepare_cleanup", "cleanup-worker", false}, {bad, "prepare_publish", "publish-worker", true},
	} {
		t.Run(task.service+"/"+string(task.workflow.Status), func(t *testing.T) {
			ended := last(t, task.workflow, task.reference)
			var root *received
			phases := map[string]bool{}
			for _, span := range collected.of(task.workflow.ID, task.service) {
				if span.attributes["perago.task_id"] != string(ended.ID) {
					continue
				}
				for _, key := range every {
					if span.attributes[key] == "" {
						t.Errorf("%s has no %s", span.Name, key)
					}
				}
				if len(span.ParentSpanId) == 0 {
					if root != nil {
						t.Errorf("two spans of the task: %s and %s", root.Name, span.Name)
					}
					root = &span
					continue
				}
				phases[span.Name] = true
			}
			if root == nil {
				t.Fatalf("no span of %s", task.reference)
			}
			if root.Name != string(ended.Type) {
				t.Errorf("the span of %s is called %s", ended.Type, root.Name)
			}
			for _, key := range own {
				if root.attributes[key] == "" {
					t.Errorf("the span of the task has no %s", key)
				}
			}
			// A span for each phase that the task's own output shows.
			want := outputOf(t, ended).Timings
			delete(want, "total")
			for phase := range want {
				if !phases[phase] {
					t.Errorf("no span of the phase %s among %v", phase, phases)
				}
			}
			if len(want) == 0 || len(phases) != len(want) {
				t.Errorf("spans of the phases %v, timings %v", phases, want)
			}
			failed := root.Status.GetCode() == trace.Status_STATUS_CODE_ERROR
			if failed != task.failed || (failed && !strings.Contains(root.Status.Message, "advanced from")) {
				t.Errorf("status %v", root.Status)
			}
			// The log's line about the task names the span.
			named := false
			for line := range strings.Lines(running[task.service].stderr()) {
				var event struct {
					Task  string `json:"task_id"`
					Trace string `json:"trace_id"`
					Span  string `json:"span_id"`
				}
				if json.Unmarshal([]byte(line), &event) == nil && event.Task == string(ended.ID) {
					named = named || event.Trace == fmt.Sprintf("%x", root.TraceId) && event.Span == fmt.Sprintf("%x", root.SpanId)
				}
			}
			if !named {
				t.Errorf("no line of the log names span %x of trace %x", root.SpanId, root.TraceId)
			}
		})
	}

	collected.mu.Lock()
	defer collected.mu.Unlock()
	for _, header := range collected.headers {
		if header.Get("api-key") != secret || header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("sent with %v", header)
		}
	}
	for _, hidden := range []string{secret, f.servers.SecretAccessKey, f.root} {
		if strings.Contains(collected.raw.String(), hidden) {
			t.Errorf("a span holds %q", hidden)
		}
	}
}
