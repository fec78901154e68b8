package telemetry

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"perago/pkg/txn"
)

func TestTraceConfig(t *testing.T) {
	t.Parallel()
	const address = "http://collector.test:4318"
	for name, c := range map[string]struct {
		config TraceConfig
		on     bool
		faults []string
	}{
		"nothing":              {TraceConfig{}, false, nil},
		"a name alone":         {TraceConfig{ServiceName: "x"}, false, nil},
		"an address":           {TraceConfig{Endpoint: address}, true, nil},
		"an address of traces": {TraceConfig{TracesEndpoint: address + "/v1/traces"}, true, nil},
		"the exporter":         {TraceConfig{Exporter: "otlp"}, true, nil},
		"no exporter":          {TraceConfig{Endpoint: address, Exporter: "none"}, false, nil},
		"disabled":             {TraceConfig{Endpoint: address, Disabled: true}, false, nil},
		"disabled and wrong":   {TraceConfig{Exporter: "zipkin", Disabled: true}, false, nil},
		"headers":              {TraceConfig{Endpoint: address, Headers: "a=b, c=d%20e"}, true, nil},
		"another exporter":     {TraceConfig{Exporter: "zipkin"}, false, []string{`OTEL_TRACES_EXPORTER is "zipkin"; it must be otlp or none`}},
		"gRPC":                 {TraceConfig{Endpoint: address, Protocol: "grpc"}, true, []string{`OTEL_EXPORTER_OTLP_PROTOCOL is "grpc"; it must be http/protobuf`}},
		"no scheme":            {TraceConfig{Endpoint: "canary:4318"}, true, []string{"OTEL_EXPORTER_OTLP_ENDPOINT must be an http or https address without user or password"}},
		"a password":           {TraceConfig{TracesEndpoint: "http://u:canary@x"}, true, []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT must be an http or https address without user or password"}},
		"no pairs":             {TraceConfig{Endpoint: address, Headers: "canary"}, true, []string{"OTEL_EXPORTER_OTLP_HEADERS must be name=value pairs separated by commas, percent-encoded"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var faults []string
			for _, fault := range c.config.Validate() {
				if strings.Contains(fault.Error(), "canary") {
					t.Errorf("%q repeats a value", fault)
				}
				faults = append(faults, fault.Error())
			}
			if !slices.Equal(faults, c.faults) {
				t.Errorf("faults %q, want %q", faults, c.faults)
			}
			if len(faults) == 0 && c.config.on() != c.on {
				t.Errorf("on: %v", c.config.on())
			}
		})
	}
}

// TestNoTraces: what is off costs nothing and breaks nothing.
func TestNoTraces(t *testing.T) {
	t.Parallel()
	traces, err := NewTraces(t.Context(), TraceConfig{}, Service{}, nil, nil)
	if traces != nil || err != nil {
		t.Fatalf("%v, %v", traces, err)
	}
	span := traces.Task(txn.Task{})
	span.Phase("scan")()
	span.End("completed", nil)
	if len(span.Attributes()) != 0 {
		t.Errorf("%v", span.Attributes())
	}
	if err := traces.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSpans(t *testing.T) {
	t.Parallel()
	recorded := tracetest.NewSpanRecorder()
	traces := newTraces(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorded)), NewRedactor("canary"))
	task := txn.Task{Workflow: "w", ID: "t", Type: "perago_stage", ReferenceName: "train_stage", RetryCount: 1, PollCount: 2}
	span := traces.Task(task)
	outer := span.Phase("verify")
	span.Phase("upload")()
	outer()
	span.End("failed", errors.New("the server echoed canary"))
	other := traces.Task(task)
	other.End("completed", nil)

	ended := recorded.Ended()
	var names []string
	for _, one := range ended {
		names = append(names, one.Name())
	}
	if !slices.Equal(names, []string{"upload", "verify", "perago_stage", "perago_stage"}) {
		t.Fatalf("spans %q", names)
	}
	root := ended[2]
	every, own := SpanAttributes()
	for i, one := range ended {
		keys := every
		if i >= 2 {
			keys = slices.Concat(every, own)
		}
		if i == 3 {
			keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return key == spanPhase })
		}
		got := map[string]string{}
		for _, attribute := range one.Attributes() {
			got[string(attribute.Key)] = attribute.Value.String()
		}
		if len(got) != len(keys) || slices.ContainsFunc(keys, func(key string) bool { return got[key] == "" }) {
			t.Errorf("%s has %v, want %q", one.Name(), got, keys)
		}
		if got[spanWorkflow] != "w" || got[spanTask] != "t" {
			t.Errorf("%s has %v", one.Name(), got)
		}
		if i < 2 && one.Parent().SpanID() != root.SpanContext().SpanID() {
			t.Errorf("%s is not in the task's span", one.Name())
		}
	}
	if root.Status().Code != codes.Error || root.Status().Description != "the server echoed [redacted]" {
		t.Errorf("status %+v", root.Status())
	}
	if ended[3].Status().Code != codes.Unset || ended[3].SpanContext().TraceID() == root.SpanContext().TraceID() {
		t.Errorf("a task of its own: %+v", ended[3].Status())
	}
	// A line of the log names the task's span.
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).With(span.Attributes()...).Info("x")
	for _, want := range []string{`"trace_id":"` + root.SpanContext().TraceID().String(), `"span_id":"` + root.SpanContext().SpanID().String()} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s does not hold %s", log.String(), want)
		}
	}
}

// TestTrouble: a collector that is down is one line and not one for each batch.
func TestTrouble(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	trouble := newTrouble(slog.New(slog.NewTextHandler(&log, nil)))
	for range 100 {
		trouble(errors.New("connection refused"))
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "connection refused") {
		t.Errorf("%d lines: %s", lines, log.String())
	}
}
