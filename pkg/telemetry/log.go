package telemetry

import (
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

// NewLogger writes records of the level and above to w, one line each. Every
// value the redactor knows is replaced in the finished line, because a secret
// can be inside any attribute: an error, an address, a header.
func NewLogger(w io.Writer, format LogFormat, level slog.Leveler, redactor *Redactor) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	w = redactingWriter{to: w, redactor: redactor}
	if format == FormatText {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// redactingWriter relies on slog's handlers making one Write for each record.
type redactingWriter struct {
	to       io.Writer
	redactor *Redactor
}

func (w redactingWriter) Write(line []byte) (int, error) {
	if _, err := io.WriteString(w.to, w.redactor.Text(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}
