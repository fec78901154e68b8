package txn

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// A type per identifier, so that two strings never sit side by side in a
// signature and a task id cannot be passed where a workflow id belongs.
type (
	// Repository is the name of a lakeFS repository.
	Repository string
	// Branch is the name of a lakeFS branch, never another kind of reference.
	Branch string
	// CommitID is a full lakeFS commit id: 64 lower-case hex digits.
	CommitID string
	// MetaRangeID names a tree in lakeFS. Equal ids mean equal trees; "" is the
	// empty tree of a repository's first commit and of a merge of that commit into
	// its own branch. Every other commit has another id for it.
	MetaRangeID string

	// WorkflowID is a Conductor workflow instance id.
	WorkflowID string
	// TaskID is a Conductor task id: one per try of a task, except that `rerun`
	// uses it again.
	TaskID string
	// TaskType is the name of a Conductor TaskDef and of the queue polled for it.
	TaskType string
	// ReferenceName is a task's reference name as polled: unique in its workflow,
	// with the suffix __1, __2 inside a loop.
	ReferenceName string
	// WorkerID names one process start of a worker.
	WorkerID string

	// LogicalTaskKey is shared by every retry, rerun and restart of one step.
	LogicalTaskKey string
	// ExecutionID is a UUIDv7 in its canonical text form: one execution of an
	// attempt by one process.
	ExecutionID string
)

// ParseCommitID accepts a full commit id only: lakeFS takes branch names, tags,
// short ids and expressions such as main~1 in the same place, and each of those
// can name another commit tomorrow.
func ParseCommitID(s string) (CommitID, error) {
	if len(s) != 64 || !isLowerHex(s) {
		return "", fmt.Errorf("%s is not a full commit id (64 lower-case hex digits)", quote(s))
	}
	return CommitID(s), nil
}

// Short is the id as people write it: its first 12 digits.
func (c CommitID) Short() string {
	if len(c) > 12 {
		return string(c[:12])
	}
	return string(c)
}

// NewLogicalTaskKey is the identity of a step, built from what Conductor says
// about the stage task and never from text a user typed: two steps with a copied
// label would overwrite each other. It holds no task id, retry count or seq,
// because all three change on a retry.
func NewLogicalTaskKey(workflow WorkflowID, stage ReferenceName, iteration int) LogicalTaskKey {
	return LogicalTaskKey(fmt.Sprintf("%s:%s:%d", workflow, stage, iteration))
}

// ParseExecutionID accepts the canonical text form of a UUIDv7.
func ParseExecutionID(s string) (ExecutionID, error) {
	if !isUUID(s) || s[14] != '7' {
		return "", fmt.Errorf("%s is not an execution id (a UUIDv7)", quote(s))
	}
	return ExecutionID(s), nil
}

// Time is when the execution began, to the millisecond: the first 48 bits of a
// UUIDv7 are Unix milliseconds (RFC 9562, section 5.7).
func (e ExecutionID) Time() time.Time {
	raw, err := hex.DecodeString(e.hex())
	if err != nil || len(raw) != 16 {
		return time.Time{}
	}
	var milliseconds int64
	for _, b := range raw[:6] {
		milliseconds = milliseconds<<8 | int64(b)
	}
	return time.UnixMilli(milliseconds)
}

func (e ExecutionID) hex() string { return strings.ReplaceAll(string(e), "-", "") }

func executionIDFromHex(s string) (ExecutionID, error) {
	if len(s) != 32 || !isLowerHex(s) {
		return "", fmt.Errorf("%q is not 32 hex digits", s)
	}
	return ParseExecutionID(s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:])
}

func isUUID(s string) bool {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return false
	}
	digits := strings.ReplaceAll(s, "-", "")
	return len(digits) == 32 && isLowerHex(digits)
}

func isLowerHex(s string) bool {
	for _, r := range s {
		if (r < '0' || r > '9') && (r < 'a' || r > 'f') {
			return false
		}
	}
	return true
}

// quote shows text that came from outside so that it cannot break a line or a
// terminal.
func quote(s string) string {
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return fmt.Sprintf("%q", s)
}
