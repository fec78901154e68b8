package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"perago/pkg/txn"
)

// TraceConfig is the part of OpenTelemetry's standard variables that this package
// looks at. The SDK reads the others by itself: OTEL_RESOURCE_ATTRIBUTES, the
// OTEL_TRACES_SAMPLER and OTEL_BSP families, and the rest of OTEL_EXPORTER_OTLP.
type TraceConfig struct {
	Endpoint       string `env:"OTEL_EXPORTER_OTLP_ENDPOINT" desc:"Address of an OpenTelemetry collector (OTLP over HTTP, such as http://localhost:4318); traces are off unless it, the next one or OTEL_TRACES_EXPORTER is set"`
	TracesEndpoint string `env:"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" desc:"The same for traces alone, with the whole path"`
	Exporter       string `env:"OTEL_TRACES_EXPORTER" desc:"otlp or none"`
	Protocol       string `env:"OTEL_EXPORTER_OTLP_PROTOCOL" desc:"Only http/protobuf, which is the default"`
	TracesProtocol string `env:"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL" desc:"Only http/protobuf, which is the default"`
	Headers        string `env:"OTEL_EXPORTER_OTLP_HEADERS" desc:"Headers of each request to the collector, as name=value pairs separated by commas, percent-encoded" secret:"true"`
	TracesHeaders  string `env:"OTEL_EXPORTER_OTLP_TRACES_HEADERS" desc:"The same for traces alone" secret:"true"`
	ServiceName    string `env:"OTEL_SERVICE_NAME" desc:"Name of the service in traces; the binary's own when it is not set"`
	Disabled       bool   `env:"OTEL_SDK_DISABLED" desc:"true turns traces off whatever else is set"`
}

// Validate reports every fault at once; each begins with its variable.
func (c TraceConfig) Validate() []error {
	var faults []error
	if c.Disabled {
		return nil
	}
	if c.Exporter != "" && c.Exporter != "otlp" && c.Exporter != "none" {
		faults = append(faults, fmt.Errorf("OTEL_TRACES_EXPORTER is %q; it must be otlp or none", c.Exporter))
	}
	for _, one := range []struct{ variable, value string }{
		{"OTEL_EXPORTER_OTLP_PROTOCOL", c.Protocol}, {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", c.TracesProtocol},
	} {
		if one.value != "" && one.value != "http/protobuf" {
			faults = append(faults, fmt.Errorf("%s is %q; it must be http/protobuf", one.variable, one.value))
		}
	}
	for _, one := range []struct{ variable, value string }{
		{"OTEL_EXPORTER_OTLP_ENDPOINT", c.Endpoint}, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", c.TracesEndpoint},
	} {
		// The exporter would go on with its own default instead.
		address, err := url.Parse(one.value)
		if one.value != "" && (err != nil || (address.Scheme != "http" && address.Scheme != "https") || address.Host == "" || address.User != nil) {
			faults = append(faults, fmt.Errorf("%s must be an http or https address without user or password", one.variable))
		}
	}
	for _, one := range []struct{ variable, value string }{
		{"OTEL_EXPORTER_OTLP_HEADERS", c.Headers}, {"OTEL_EXPORTER_OTLP_TRACES_HEADERS", c.TracesHeaders},
	} {
		if _, err := headersOf(one.value); err != nil {
			faults = append(faults, fmt.Errorf("%s %w", one.variable, err))
		}
	}
	return faults
}

// on reports whether traces are wanted at all.
func (c TraceConfig) on() bool {
	return !c.Disabled && c.Exporter != "none" && (c.Exporter == "otlp" || c.Endpoint != "" || c.TracesEndpoint != "")
}

// headersOf reads headers as OpenTelemetry writes them. Its error repeats nothing.
func headersOf(text string) (map[string]string, error) {
	headers := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || name == "" || err != nil {
			return nil, errors.New("must be name=value pairs separated by commas, percent-encoded")
		}
		headers[name] = value
	}
	return headers, nil
}

// Traces makes the spans of a process. Nil makes none, at no cost.
type Traces struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	redactor *Redactor
}

// Service is who makes the spans.
type Service struct{ Name, Version, Instance string }

// NewTraces is nil when the configuration does not ask for traces. It connects to
// nothing: a collector that is down costs spans and a line of the log, never a
// task. The SDK reports its own trouble to one handler of the whole process, which
// is set here.
func NewTraces(ctx context.Context, config TraceConfig, service Service, redactor *Redactor, log *slog.Logger) (*Traces, error) {
	if !config.on() {
		return nil, nil
	}
	// Given, and not left to the SDK, because they may have been read from a file.
	headers, err := headersOf(config.Headers)
	if config.TracesHeaders != "" {
		headers, err = headersOf(config.TracesHeaders)
	}
	if err != nil {
		return nil, err
	}
	for _, value := range headers {
		redactor.Add(value)
	}
	var options []otlptracehttp.Option
	if len(headers) > 0 {
		options = append(options, otlptracehttp.WithHeaders(headers))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("make the exporter of traces: %w", err)
	}
	// What the environment says comes last and wins.
	described, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			attribute.String("service.name", service.Name),
			attribute.String("service.version", service.Version),
			attribute.String("service.instance.id", service.Instance)),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe the process for traces: %w", err)
	}
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	otel.SetErrorHandler(newTrouble(log))
	return newTraces(sdk.NewTracerProvider(sdk.WithResource(described), sdk.WithBatcher(exporter)), redactor), nil
}

func newTraces(provider *sdk.TracerProvider, redactor *Redactor) *Traces {
	return &Traces{provider: provider, tracer: provider.Tracer("perago"), redactor: redactor}
}

// newTrouble logs what the SDK reports, and the same again only after a while: a
// collector that is down is reported with every batch.
func newTrouble(log *slog.Logger) otel.ErrorHandlerFunc {
	const silence = 5 * time.Minute
	var mu sync.Mutex
	var last time.Time
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.Sub(last) >= silence {
			last = now
			log.Warn("traces are lost: the collector does not take them", slog.Any(KeyError, err))
		}
	}
}

// Shutdown sends what has ended, as long as ctx lasts.
func (t *Traces) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// SpanAttributes are the attributes of every span, which say what attempt at what
// task it belongs to, and those that only the span of a task has, in the order of
// the documents.
func SpanAttributes() (every, task []string) {
	return []string{spanWorkflow, spanTask, spanTaskType, spanStep, spanRetry, spanPoll}, []string{spanOutcome, spanPhase}
}

// The attributes. The last two are the task's own.
const (
	spanWorkflow = "perago.workflow_id"
	spanTask     = "perago.task_id"
	spanTaskType = "perago.task_type"
	spanStep     = "perago.step"
	spanRetry    = "perago.retry_count"
	spanPoll     = "perago.poll_count"
	spanOutcome  = "perago.outcome"
	spanPhase    = "perago.last_phase"
)

// TaskSpan is the span of one attempt at a task, from the poll's answer to its
// report. A nil one records nothing.
type TaskSpan struct {
	traces *Traces
	ctx    context.Context
	span   trace.Span
	// common are the attributes of the phases too.
	common []attribute.KeyValue
}

// Task begins the span of a task. It is the root of a trace of its own: Conductor
// carries no trace context to a worker.
func (t *Traces) Task(task txn.Task) *TaskSpan {
	if t == nil {
		return nil
	}
	common := []attribute.KeyValue{
		attribute.String(spanWorkflow, string(task.Workflow)), attribute.String(spanTask, string(task.ID)),
		attribute.String(spanTaskType, string(task.Type)), attribute.String(spanStep, string(task.ReferenceName)),
		attribute.Int(spanRetry, task.RetryCount), attribute.Int(spanPoll, task.PollCount),
	}
	ctx, span := t.tracer.Start(context.Background(), string(task.Type),
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(common...))
	return &TaskSpan{traces: t, ctx: ctx, span: span, common: common}
}

// Attributes name the span for log lines; none when nothing is recorded.
func (s *TaskSpan) Attributes() []any {
	if s == nil {
		return nil
	}
	of := s.span.SpanContext()
	return []any{slog.String(KeyTrace, of.TraceID().String()), slog.String(KeySpan, of.SpanID().String())}
}

// Phase begins the span of a phase and returns what ends it.
func (s *TaskSpan) Phase(name string) (end func()) {
	if s == nil {
		return func() {}
	}
	s.span.SetAttributes(attribute.String(spanPhase, name))
	_, span := s.traces.tracer.Start(s.ctx, name, trace.WithAttributes(s.common...))
	return func() { span.End() }
}

// End ends the task's span with an outcome, as perago_task_outcomes_total counts
// it, and the error it ended with, if any.
func (s *TaskSpan) End(outcome string, err error) {
	if s == nil {
		return
	}
	s.span.SetAttributes(attribute.String(spanOutcome, outcome))
	if err != nil {
		s.span.SetStatus(codes.Error, txn.Reason(err, txn.DefaultReasonLength, s.traces.redactor.Values()...))
	}
	s.span.End()
}
