package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"perago/pkg/telemetry"
	"perago/pkg/txn"
)

func TestMain(m *testing.M) {
	if program := childProgram(); program != nil {
		program()
		return
	}
	goleak.VerifyTestMain(m)
}

const (
	stageType   txn.TaskType = "perago_stage"
	publishType txn.TaskType = "perago_publish"
	theWorker   txn.WorkerID = "host-1234"
	secret                   = "s3cr3t-value"
	conductorAt              = "http://conductor.example:8080"
)

// errTestOver is the cause of a stop that a test did not make itself.
var errTestOver = errors.New("the test is over")

func stageDefinition() txn.TaskDefinition {
	return txn.TaskDefinition{Name: stageType, ResponseTimeoutSeconds: 60, RetryCount: 3}
}

func publishDefinition(heartbeat float64, response int64) txn.TaskDefinition {
	budget, err := json.Marshal(map[string]any{"budget": map[string]any{
		"observed_merge_p99_seconds": 1, "safety_margin_seconds": 1, "lakefs_merge_timeout_seconds": 2,
		"conductor_completion_timeout_seconds": 5, "worker_shutdown_grace_seconds": 1, "heartbeat_interval_seconds": heartbeat,
	}})
	if err != nil {
		panic(err)
	}
	return txn.TaskDefinition{Name: publishType, ResponseTimeoutSeconds: response, RetryCount: 3, InputTemplate: budget}
}

// harness is one runtime over a memory server, in a synctest bubble.
type harness struct {
	*Runtime
	t         *testing.T
	conductor *memoryConductor
	metrics   *telemetry.Metrics
	logs      *lockedBuffer
	stopWith  context.CancelCauseFunc
	ended     chan error
}

// bubble runs a test of a runtime in a synctest bubble. The stage TaskDef is
// registered, unless the options bring handlers of their own. The runtime starts
// with h.start and is stopped at the end, if the test has not done it.
func bubble(t *testing.T, test func(t *testing.T, h *harness)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conductor := newMemoryConductor()
		conductor.register(stageDefinition())
		h := &harness{t: t, conductor: conductor, metrics: telemetry.NewMetrics(), logs: &lockedBuffer{}, ended: make(chan error, 1)}
		test(t, h)
		if h.stopWith != nil {
			h.conductor.fail(nil, nil)
			h.stopWith(errTestOver)
			<-h.ended
		}
	})
}

// start runs the runtime and waits until everything in it waits.
func (h *harness) start(handlers map[txn.TaskType]Handler, change ...func(*Options)) {
	h.t.Helper()
	redactor := telemetry.NewRedactor(secret)
	options := Options{
		Conductor: h.conductor, ConductorURL: conductorAt, Worker: theWorker, Handlers: handlers,
		Concurrency: 4, PollInterval: 100 * time.Millisecond, ReasonLength: txn.DefaultReasonLength, ShutdownGrace: 20 * time.Second,
		Log:     telemetry.NewLogger(h.logs, telemetry.FormatJSON, slog.LevelDebug, redactor),
		Metrics: h.metrics, Redactor: redactor,
	}
	for _, apply := range change {
		apply(&options)
	}
	h.Runtime = New(options)
	ctx, stop := context.WithCancelCause(h.t.Context())
	h.stopWith = stop
	go func() {
		h.ended <- h.Run(ctx)
		close(h.ended)
	}()
	synctest.Wait()
}

// stage starts with one handler for stage tasks.
func (h *harness) stage(handler Handler, change ...func(*Options)) {
	h.t.Helper()
	h.start(map[txn.TaskType]Handler{stageType: handler}, change...)
}

// stop is the first signal.
func (h *harness) stop() { h.stopWith(errors.New("received terminated")) }

// result waits up to d for the runtime's end.
func (h *harness) result(d time.Duration) error {
	h.t.Helper()
	select {
	case err := <-h.ended:
		return err
	case <-time.After(d):
		h.t.Fatalf("the runtime has not ended after %s", d)
		return nil
	}
}

// only is the one update sent for a task.
func (h *harness) only(id txn.TaskID) txn.TaskResult {
	h.t.Helper()
	updates := h.conductor.updates(id)
	if len(updates) != 1 {
		h.t.Fatalf("%d updates of task %s, want 1: %+v\n%s", len(updates), id, updates, h.logs)
	}
	return updates[0]
}

// counter reads a counter's value; 0 when it was never counted.
func (h *harness) counter(name string, labels ...string) float64 {
	h.t.Helper()
	return gathered(h.t, h.metrics, name, labels...)
}

func gathered(t *testing.T, metrics *telemetry.Metrics, name string, labels ...string) float64 {
	t.Helper()
	families, err := metrics.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			var values []string
			for _, label := range metric.GetLabel() {
				values = append(values, label.GetName()+"="+label.GetValue())
			}
			if strings.Join(values, ",") == strings.Join(labels, ",") {
				if histogram := metric.GetHistogram(); histogram != nil {
					return float64(histogram.GetSampleCount())
				}
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// logged lists the log records with a message.
func (h *harness) logged(message string) []map[string]any {
	h.t.Helper()
	var records []map[string]any
	for line := range strings.Lines(h.logs.String()) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			h.t.Fatalf("a log line is not JSON: %v: %s", err, line)
		}
		if record["msg"] == message {
			records = append(records, record)
		}
	}
	return records
}

// condition is one of the runtime's conditions.
func (h *harness) condition(name string) telemetry.Condition {
	h.t.Helper()
	for _, condition := range h.Conditions() {
		if condition.Name == name {
			return condition
		}
	}
	h.t.Fatalf("no condition %q in %+v", name, h.Conditions())
	return telemetry.Condition{}
}

func (h *harness) ready() bool {
	for _, condition := range h.Conditions() {
		if !condition.OK {
			return false
		}
	}
	return true
}

// done completes at once.
func done(context.Context, *Attempt) (map[string]any, error) { return nil, nil }

// untilCancelled works until its context ends and returns its plain error.
func untilCancelled(ctx context.Context, _ *Attempt) (map[string]any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
