package txn

import (
	"errors"
	"fmt"
	"strconv"
)

// The three classes of error, decided in the adapter that saw the answer.
// Callers ask errors.Is and never look at a status code.
var (
	// ErrRefused is a definite refusal: the server answered and did nothing.
	ErrRefused = errors.New("refused")
	// ErrRetryable is a failure after which the same call may be sent again: it
	// did nothing, or doing it twice is harmless.
	ErrRetryable = errors.New("retryable")
	// ErrUnknownOutcome is a call that may or may not have taken effect: no
	// answer, or one that does not say. It is settled by reading, never by
	// repeating.
	ErrUnknownOutcome = errors.New("outcome unknown")
)

// What a refusal was about. Each of these also is ErrRefused.
var (
	ErrNotFound     = errors.New("not found")
	ErrGone         = errors.New("gone")
	ErrExists       = errors.New("already exists")
	ErrConflict     = errors.New("conflict")
	ErrUnauthorized = errors.New("credentials refused")
	ErrForbidden    = errors.New("not permitted")
	ErrHookRefused  = errors.New("refused by a hook")
	// ErrFenceRefused is ErrHookRefused by the hard fence (FenceRefusal). The
	// adapter decides it from the server's own words, before they are redacted or
	// cut.
	ErrFenceRefused = fmt.Errorf("%w (publish fence)", ErrHookRefused)
	ErrDirtyBranch  = errors.New("the branch has uncommitted changes")
	ErrNoChanges    = errors.New("no changes")
)

// ServerError is one answer of a server, or its absence, turned into an error in
// one place for each adapter. Its text holds no secret and a bounded piece of
// the body.
type ServerError struct {
	// Server is what people call it: "lakeFS" or "Conductor".
	Server string
	Method string
	Path   string
	// Status is the HTTP status, 0 when there was no answer.
	Status int
	// Class is ErrRefused, ErrRetryable or ErrUnknownOutcome.
	Class error
	// Kind is what a refusal was about, or nil.
	Kind error
	// Message is the server's own word, or the transport's, on one line.
	Message string
	// Said is the whole message of the hooks that refused, with its lines; empty
	// when no hook refused. It holds no secret of the adapter's.
	Said string
	// Hint says what to do, when the adapter knows.
	Hint string
	// Cause is the transport's error, or nil.
	Cause error
}

// Error is the answer and what to do. What a hook said comes before the answer,
// because a task's reason is cut at its end.
func (e *ServerError) Error() string {
	text := e.Server + " "
	switch {
	case e.Status != 0:
		text += "answered " + strconv.Itoa(e.Status)
	default:
		text += "gave no answer"
	}
	text += fmt.Sprintf(" to %s %s", e.Method, e.Path)
	switch {
	case e.Message == "":
	case errors.Is(e.Kind, ErrHookRefused):
		text = e.Message + " (" + text + ")"
	default:
		text += ": " + e.Message
	}
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

// Unwrap gives errors.Is the class, the kind and the cause.
func (e *ServerError) Unwrap() []error {
	var all []error
	for _, err := range []error{e.Class, e.Kind, e.Cause} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// HookMessage is the whole message of the hooks that refused; empty when the error
// is no refusal by a hook.
func HookMessage(err error) string {
	var server *ServerError
	if !errors.As(err, &server) {
		return ""
	}
	return server.Said
}

// TerminalError is input that can never succeed: a retry would say the same.
type TerminalError struct {
	// Field is the path of the field at fault, such as workspace.ref; empty when
	// the fault is not one field's.
	Field string
	// Sentence says what is wrong and what to do.
	Sentence string
}

func (e *TerminalError) Error() string {
	if e.Field == "" {
		return e.Sentence
	}
	return e.Field + ": " + e.Sentence
}

// Terminalf makes a TerminalError for a field.
func Terminalf(field, format string, arguments ...any) *TerminalError {
	return &TerminalError{Field: field, Sentence: fmt.Sprintf(format, arguments...)}
}

// StaleReason says which part of the attempt fence did not hold. It is a metric
// label, so the values are few and fixed.
type StaleReason string

// The reasons of a stale attempt.
const (
	StaleTaskGone       StaleReason = "task_gone"
	StaleTaskStatus     StaleReason = "task_status"
	StaleWorkflowID     StaleReason = "workflow_id"
	StaleRetryCount     StaleReason = "retry_count"
	StaleWorker         StaleReason = "worker"
	StalePollCount      StaleReason = "poll_count"
	StaleStartTime      StaleReason = "start_time"
	StaleWorkflowStatus StaleReason = "workflow_status"
	// StaleUnreadable is a fence that could not be read within the lease: fail
	// closed.
	StaleUnreadable StaleReason = "unreadable"
	// StaleLeaseLost is a lease that ended or could not be extended.
	StaleLeaseLost StaleReason = "lease_lost"
)

// StaleAttemptError says that this attempt may no longer act. It is never
// reported to Conductor: after a rerun the update would carry the live task's id
// and end it.
type StaleAttemptError struct {
	Attempt Attempt
	Reason  StaleReason
	Detail  string
	Cause   error
}

func (e *StaleAttemptError) Error() string {
	text := fmt.Sprintf("stale attempt of task %s (%s)", e.Attempt.Task, e.Reason)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap is the reason's cause, if any.
func (e *StaleAttemptError) Unwrap() error { return e.Cause }

// PublishFenceError says that the target branch is not where this step may
// publish.
type PublishFenceError struct {
	Branch   Branch
	InputRef CommitID
	Head     CommitID
	// Advice says what to do, after a semicolon.
	Advice string
	// final says that the advice is whole: a rerun with a new ref would not help.
	final bool
}

func (e *PublishFenceError) Error() string {
	return fmt.Sprintf("%s advanced from %s to %s; %s", e.Branch, e.InputRef, e.Head, e.Advice)
}

// PublishRacedError says that a publication of this step landed on top of a
// foreign commit. It is never adopted and never rolled back.
type PublishRacedError struct {
	Branch Branch
	// Published is the step's commit, Foreign the commit below it.
	Published CommitID
	Foreign   CommitID
	Head      CommitID
}

func (e *PublishRacedError) Error() string {
	return fmt.Sprintf("%s holds %s, published by this step on top of foreign %s; inspect it, revert it or accept it, then start a new workflow with ref=%s",
		e.Branch, e.Published, e.Foreign, e.Head)
}

// InDoubtError says that a merge was sent and nothing yet tells whether it
// landed.
type InDoubtError struct {
	Branch       Branch
	ExpectedHead CommitID
	// Why says what reading the branch showed.
	Why string
	// Cause is what the merge answered.
	Cause error
}

func (e *InDoubtError) Error() string {
	return fmt.Sprintf("the merge into %s was sent and its outcome is not known: %s (expected head %s): %v", e.Branch, e.Why, e.ExpectedHead, e.Cause)
}

// Unwrap is what the merge answered.
func (e *InDoubtError) Unwrap() error { return e.Cause }
