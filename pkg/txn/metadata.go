package txn

import (
	"fmt"
	"strconv"
	"strings"
)

// MetadataVersion is what perago.version says. Another major version is a
// foreign commit.
const MetadataVersion = "1"

// Phase is what a commit of ours is.
type Phase string

// The phases of a commit of ours.
const (
	// PhaseTry is the commit of a stage on its staging branch.
	PhaseTry Phase = "try"
	// PhaseSource is the commit on a source branch that carries a superseding
	// tree.
	PhaseSource Phase = "source"
	// PhaseConfirm is the commit on the target branch.
	PhaseConfirm Phase = "confirm"
)

// The metadata keys of a commit of ours.
const (
	keyVersion          = "perago.version"
	keyPhase            = "perago.phase"
	keyLogicalTaskKey   = "perago.logical_task_key"
	keyWorkflowID       = "perago.workflow_id"
	keyTaskID           = "perago.task_id"
	keyRetryCount       = "perago.retry_count"
	keyExecutionID      = "perago.execution_id"
	keyInputRef         = "perago.input_ref"
	keyTargetBranch     = "perago.target_branch"
	keyPrefix           = "perago.prefix"
	keyStagingBranch    = "perago.staging_branch"
	keyStagingCommit    = "perago.staging_commit"
	keyStagingExecution = "perago.staging_execution_id"
	keySourceCommit     = "perago.source_commit"
	keyExpectedHead     = "perago.expected_head"
	keySupersedes       = "perago.supersedes"

	// keyWorkflowLink is shown by lakeFS as a link of that title.
	keyWorkflowLink = "::lakefs::Conductor::url[url:ui]"
)

// Record is the metadata of a commit of ours. It moves atomically with the
// branch, which makes the head commit the durable row of what is current.
//
// On a try commit, and on the commit of a source branch, the attempt is the
// stage's or the publish's that wrote it; the last five fields are a confirm
// commit's only.
type Record struct {
	Phase         Phase
	Key           LogicalTaskKey
	Workflow      WorkflowID
	Task          TaskID
	RetryCount    int
	Execution     ExecutionID
	InputRef      CommitID
	TargetBranch  Branch
	Prefix        Prefix
	StagingBranch Branch

	// StagingCommit is S; for a no-op the input ref.
	StagingCommit CommitID
	// StagingExecution is the execution that staged; a no-op has one too.
	StagingExecution ExecutionID
	// SourceCommit is the commit that was merged.
	SourceCommit CommitID
	ExpectedHead CommitID
	// Supersedes is empty when nothing is superseded.
	Supersedes CommitID
}

// Metadata is the record as commit metadata. workflowURL, when not empty, is the
// workflow's page in Conductor's UI, for people.
func (r Record) Metadata(workflowURL string) map[string]string {
	metadata := map[string]string{
		keyVersion:        MetadataVersion,
		keyPhase:          string(r.Phase),
		keyLogicalTaskKey: string(r.Key),
		keyWorkflowID:     string(r.Workflow),
		keyTaskID:         string(r.Task),
		keyRetryCount:     strconv.Itoa(r.RetryCount),
		keyExecutionID:    string(r.Execution),
		keyInputRef:       string(r.InputRef),
		keyTargetBranch:   string(r.TargetBranch),
		keyPrefix:         r.Prefix.String(),
		keyStagingBranch:  string(r.StagingBranch),
	}
	if r.Phase == PhaseConfirm {
		metadata[keyStagingCommit] = string(r.StagingCommit)
		metadata[keyStagingExecution] = string(r.StagingExecution)
		metadata[keySourceCommit] = string(r.SourceCommit)
		metadata[keyExpectedHead] = string(r.ExpectedHead)
		metadata[keySupersedes] = string(r.Supersedes)
	}
	if workflowURL != "" {
		metadata[keyWorkflowLink] = workflowURL
	}
	return metadata
}

// IsRecord reports whether metadata claims to be ours, complete or not.
func IsRecord(metadata map[string]string) bool {
	_, ok := metadata[keyPhase]
	return ok
}

// ParseRecord reads a commit's metadata. Everything a commit of its phase must
// have is present and well formed, or it is an error: an incomplete record is a
// foreign commit. Keys it does not know are left alone, so that a newer minor
// version may add some.
func ParseRecord(metadata map[string]string) (Record, error) {
	version, ok := metadata[keyVersion]
	if !ok {
		return Record{}, fmt.Errorf("no %s", keyVersion)
	}
	if major, _, _ := strings.Cut(version, "."); major != MetadataVersion {
		return Record{}, &NewerVersionError{Version: version}
	}
	var faults []string
	get := func(key string, mayBeEmpty bool) string {
		value, ok := metadata[key]
		if !ok || (value == "" && !mayBeEmpty) {
			faults = append(faults, key+" is missing")
		}
		return value
	}
	commit := func(key string, mayBeEmpty bool) CommitID {
		value := get(key, mayBeEmpty)
		if value == "" {
			return ""
		}
		id, err := ParseCommitID(value)
		if err != nil {
			faults = append(faults, key+" "+err.Error())
		}
		return id
	}
	execution := func(key string) ExecutionID {
		value := get(key, false)
		if value == "" {
			return ""
		}
		id, err := ParseExecutionID(value)
		if err != nil {
			faults = append(faults, key+" "+err.Error())
		}
		return id
	}

	record := Record{
		Phase:        Phase(get(keyPhase, false)),
		Key:          LogicalTaskKey(get(keyLogicalTaskKey, false)),
		Workflow:     WorkflowID(get(keyWorkflowID, false)),
		Task:         TaskID(get(keyTaskID, false)),
		Execution:    execution(keyExecutionID),
		InputRef:     commit(keyInputRef, false),
		TargetBranch: Branch(get(keyTargetBranch, false)),
	}
	switch record.Phase {
	case PhaseTry, PhaseSource, PhaseConfirm, "":
	default:
		faults = append(faults, keyPhase+" is "+quote(string(record.Phase)))
	}
	if value := get(keyRetryCount, false); value != "" {
		count, err := strconv.Atoi(value)
		if err != nil || count < 0 {
			faults = append(faults, keyRetryCount+" is "+quote(value))
		}
		record.RetryCount = count
	}
	if value := get(keyPrefix, false); value != "" {
		prefix, err := ParsePrefix(value)
		if err != nil {
			faults = append(faults, keyPrefix+": "+err.Error())
		}
		record.Prefix = prefix
	}
	if record.Phase == PhaseConfirm {
		record.StagingCommit = commit(keyStagingCommit, false)
		record.StagingExecution = execution(keyStagingExecution)
		record.SourceCommit = commit(keySourceCommit, false)
		record.ExpectedHead = commit(keyExpectedHead, false)
		record.Supersedes = commit(keySupersedes, true)
	}
	// A no-op has no staging branch; it is one whose staged commit is its input.
	noOp := record.Phase == PhaseConfirm && record.StagingCommit == record.InputRef
	record.StagingBranch = Branch(get(keyStagingBranch, noOp))

	if len(faults) > 0 {
		return Record{}, fmt.Errorf("incomplete perago metadata: %s", strings.Join(faults, ", "))
	}
	return record, nil
}

// NewerVersionError is a commit that another major version of perago wrote.
type NewerVersionError struct{ Version string }

func (e *NewerVersionError) Error() string {
	return fmt.Sprintf("written by a newer perago (metadata version %s); upgrade this worker", quote(e.Version))
}
