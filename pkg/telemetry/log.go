package telemetry

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
)

// The keys of log attributes, fixed once so that a search finds every event of a
// workflow whichever package wrote it.
const (
	KeyWorkflow   = "workflow_id"
	KeyTask       = "task_id"
	KeyTaskType   = "task_type"
	KeyStep       = "step"
	KeyRepository = "repository"
	KeyBranch     = "branch"
	KeyCommit     = "commit"
	KeyError      = "error"
	KeyServer     = "server"
	// How tasks, publications and branches ended, and why.
	KeyTook      = "took"
	KeyStatus    = "status"
	KeyDelivery  = "delivery"
	KeyPublished = "published"
	KeyState     = "state"
	KeyReason    = "reason"
	KeyPanic     = "panic"
	KeyStack     = "stack"

	// How the process is set up, and how it stops.
	KeyProgram     = "program"
	KeyVersion     = "version"
	KeyWorker      = "worker_id"
	KeyConductor   = "conductor"
	KeyTaskTypes   = "task_types"
	KeyDomains     = "domains"
	KeyConcurrency = "concurrency"
	KeyHTTPAddr    = "http_addr"
	KeyProfileAddr = "pprof_addr"
	KeyCause       = "cause"
	KeyRunning     = "running"
	KeyGrace       = "grace"

	// Polls, readiness and sweeps.
	KeyDomain    = "domain"
	KeyPause     = "pause"
	KeyCondition = "condition"
	KeySentence  = "sentence"
	KeyDeleted   = "deleted"
	KeyKept      = "kept"
	KeyFailed    = "failed"

	// The span of the task, when traces are on.
	KeyTrace = "trace_id"
	KeySpan  = "span_id"

	// How far a task is, in the event "progress".
	KeyPhase         = "phase"
	KeyObjects       = "objects"
	KeyObjectsTotal  = "objects_total"
	KeyObjectsPerSec = "objects_per_second"
	KeyBytes         = "bytes"
	KeyBytesTotal    = "bytes_total"
	KeyBytesPerSec   = "bytes_per_second"
)

// LogFormat is how log records are written.
type LogFormat string

// The log formats.
const (
	FormatJSON LogFormat = "json"
	FormatText LogFormat = "text"
)

// ParseLogFormat accepts json and text.
func ParseLogFormat(s string) (LogFormat, error) {
	switch format := LogFormat(s); format {
	case FormatJSON, FormatText:
		return format, nil
	}
	return "", fmt.Errorf("%q is neither json nor text", s)
}

// NewLogger writes records of the level and above to w, one line each. Every secret
// that the redactor knows is replaced in the message and in the values of attributes,
// because a secret can be inside any of them: an error, an address, a header. Keys,
// numbers, times and the level stay as they are: machines read those, and a secret
// that looks like one of them must not break the line.
func NewLogger(w io.Writer, format LogFormat, level slog.Leveler, redactor *Redactor) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, attribute slog.Attr) slog.Attr {
		if len(groups) == 0 && (attribute.Key == slog.LevelKey || attribute.Key == slog.TimeKey) {
			return attribute
		}
		attribute.Value = redactor.value(attribute.Value)
		return attribute
	}}
	if format == FormatText {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// value is a value without secrets. A value that holds one becomes a text.
func (r *Redactor) value(value slog.Value) slog.Value {
	switch value.Kind() {
	case slog.KindString:
		return slog.StringValue(r.Text(value.String()))
	case slog.KindAny:
	default:
		return value // numbers, times, truths; a group's members come one by one
	}
	if err, ok := value.Any().(error); ok && err != nil {
		return slog.StringValue(r.Text(err.Error()))
	}
	// Both ways in which the handlers write it.
	asJSON, err := json.Marshal(value.Any())
	if text := r.Text(string(asJSON)); err == nil && text != string(asJSON) {
		return slog.StringValue(text)
	}
	plain := fmt.Sprintf("%+v", value.Any())
	if text := r.Text(plain); text != plain {
		return slog.StringValue(text)
	}
	return value
}
