package projection

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

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
	return txn.Terminalf("source.directory", "%s %s", brief(e.Path), e.Reason)
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
	text := fmt.Sprintf("%s changed while it was staged: it %s", brief(e.Path), e.Detail)
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap is the system's error, if any.
func (e *ChangedError) Unwrap() error { return e.Cause }

// AccessError is files or directories that the worker may not read. It is terminal:
// somebody has to change their rights.
type AccessError struct {
	// Path is relative to the scanned directory, or, when a component of that
	// directory itself is at fault, relative to the root.
	Path string
	// Mode, Owner and Group are those of the path.
	Mode         fs.FileMode
	Owner, Group uint32
	// Others counts the other files and directories of the scan that the worker may
	// not read.
	Others int
	// Worker is the user that the worker runs as.
	Worker int
}

func newAccessError(path string, mode fs.FileMode, owner, group uint32) *AccessError {
	return &AccessError{Path: path, Mode: mode, Owner: owner, Group: group, Worker: os.Geteuid()}
}

func accessError(path string, info fs.FileInfo) *AccessError {
	stat := info.Sys().(*syscall.Stat_t) // on every Unix it is one
	return newAccessError(path, info.Mode(), stat.Uid, stat.Gid)
}

func (e *AccessError) Error() string { return e.terminal().Error() }

// Unwrap makes the error terminal.
func (e *AccessError) Unwrap() error { return e.terminal() }

func (e *AccessError) terminal() *txn.TerminalError {
	others := ""
	if e.Others > 0 {
		others = fmt.Sprintf(" and %d more", e.Others)
	}
	return txn.Terminalf("source.directory", "the worker runs as uid %d and may not read %s (mode %s, owner %d, group %d)%s; make what the task writes readable for the worker",
		e.Worker, brief(e.Path), e.Mode, e.Owner, e.Group, others)
}

// UnsteadyError is a file system that gives a file another inode number at each look.
// Then nobody can tell whether a file is still the one that was listed. It is
// terminal: the next attempt meets the same file system.
type UnsteadyError struct {
	// Path is the file or directory that was looked at.
	Path string
	// FileSystem names the file system as far as it is known.
	FileSystem string
}

func (e *UnsteadyError) Error() string { return e.terminal().Error() }

// Unwrap makes the error terminal.
func (e *UnsteadyError) Unwrap() error { return e.terminal() }

func (e *UnsteadyError) terminal() *txn.TerminalError {
	return txn.Terminalf("source.directory", "%s gives %s another inode number at each look, so perago cannot tell whether a file was replaced; put the workspace on a file system that perago supports (docs/files.md)", e.FileSystem, brief(e.Path))
}

// brief is a path as a message shows it. A long one keeps its beginning and its end,
// so that what is said about it is not cut off.
func brief(path string) string {
	const beginning, end = 120, 60
	if len(path) <= beginning+end {
		return fmt.Sprintf("%q", path)
	}
	return fmt.Sprintf("%q…%q", path[:beginning], path[len(path)-end:])
}
