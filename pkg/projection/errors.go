package projection

import (
	"errors"
	"fmt"

	"perago/pkg/txn"
)

var (
	// ErrMissing is a source directory that is not there. It is not an empty
	// one, which Scan returns as no entries: an unmounted volume must not look
	// like a step that produced nothing.
	ErrMissing = errors.New("the source directory does not exist")
	// ErrNotDirectory is a source directory that is a file.
	ErrNotDirectory = errors.New("the source directory is not a directory")
)

// UnrepresentableError is something in a directory that has no form in lakeFS.
// A retry would find the same, so errors.As finds a *txn.TerminalError in it.
type UnrepresentableError struct {
	// Path is relative to the scanned directory, or, when a component of that
	// directory itself is at fault, relative to the root.
	Path string
	// Reason says what the path is, as the rest of a sentence.
	Reason string
}

func (e *UnrepresentableError) Error() string { return e.terminal().Error() }

// Unwrap makes the error terminal.
func (e *UnrepresentableError) Unwrap() error { return e.terminal() }

func (e *UnrepresentableError) terminal() *txn.TerminalError {
	return txn.Terminalf("source.directory", "%q %s", e.Path, e.Reason)
}

// ChangedError is a file or directory that is no longer what the scan saw. It is
// not terminal: whoever wrote it may have finished by the next attempt.
type ChangedError struct {
	// Path is relative to the scanned directory.
	Path string
	// Detail says what differs, as the rest of a sentence.
	Detail string
	// Cause is the system's error, or nil.
	Cause error
}

func (e *ChangedError) Error() string {
	text := fmt.Sprintf("%q changed while it was read: it %s", e.Path, e.Detail)
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap is the system's error, if any.
func (e *ChangedError) Unwrap() error { return e.Cause }
