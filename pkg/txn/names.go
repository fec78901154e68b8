package txn

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// BranchNamespace is how every branch of ours begins.
const BranchNamespace = "perago-"

// ConductorIdentity tells one Conductor's branches from another's where several
// share a lake. Processes that share a lake set the same one.
type ConductorIdentity string

// DefaultConductorIdentity is the server URL without its scheme, /api and final
// slash, so that the ways of writing one address are one identity.
func DefaultConductorIdentity(serverURL string) ConductorIdentity {
	s := strings.TrimSuffix(serverURL, "/")
	s = strings.TrimSuffix(s, "/api")
	s = strings.TrimSuffix(s, "/")
	if _, rest, ok := strings.Cut(s, "://"); ok {
		s = rest
	}
	return ConductorIdentity(s)
}

// StagingName is the parsed name of a staging or source branch. Every part but
// the retry count has a fixed width, so that a name parses one way only:
//
//	perago-staging-<c>-<w>-<k>-r<retry>-<execution id>[-s<ordinal>]
type StagingName struct {
	// Conductor is 8 hex digits of the Conductor identity's SHA-256.
	Conductor string
	// Workflow is the workflow id when it is a UUID, else x and 35 hex digits of
	// its SHA-256.
	Workflow string
	// Key is 8 hex digits of the logical task key's SHA-256.
	Key string
	// Retry is the retry count of the attempt that made the branch.
	Retry     int
	Execution ExecutionID
	// Source is 0 for a staging branch, else what a source branch is for.
	Source int
}

// What a source branch of a publish is for.
const (
	// SourceFirst and SourceSecond carry the source commit of the publish's first
	// and second decision, or are its mark when it merges nothing new.
	SourceFirst  = 1
	SourceSecond = 2
)

// NewStagingName names a branch of one execution of an attempt.
func NewStagingName(identity ConductorIdentity, workflow WorkflowID, key LogicalTaskKey, retry int, execution ExecutionID) StagingName {
	return StagingName{
		Conductor: hashPart(string(identity), 8),
		Workflow:  workflowPart(workflow),
		Key:       hashPart(string(key), 8),
		Retry:     retry,
		Execution: execution,
	}
}

// WorkflowBranches is what the names of all branches of one workflow begin with.
func WorkflowBranches(identity ConductorIdentity, workflow WorkflowID) string {
	return ConductorBranches(identity) + workflowPart(workflow) + "-"
}

// StepBranches is what the names of all branches of one step begin with.
func StepBranches(identity ConductorIdentity, workflow WorkflowID, key LogicalTaskKey) string {
	return WorkflowBranches(identity, workflow) + hashPart(string(key), 8) + "-"
}

// Branch is the name in its text form.
func (n StagingName) Branch() Branch {
	s := fmt.Sprintf("perago-staging-%s-%s-%s-r%d-%s", n.Conductor, n.Workflow, n.Key, n.Retry, n.Execution.hex())
	if n.Source > 0 {
		s += "-s" + strconv.Itoa(n.Source)
	}
	return Branch(s)
}

// OfStep reports whether the branch is one of this Conductor, workflow and step.
func (n StagingName) OfStep(identity ConductorIdentity, workflow WorkflowID, key LogicalTaskKey) bool {
	return n.OfWorkflow(identity, workflow) && n.Key == hashPart(string(key), 8)
}

// OfWorkflow reports whether the branch is one of this Conductor and workflow.
func (n StagingName) OfWorkflow(identity ConductorIdentity, workflow WorkflowID) bool {
	return n.Conductor == hashPart(string(identity), 8) && n.NamesWorkflow(workflow)
}

// ConductorBranches is what the names of all branches of one Conductor begin with.
func ConductorBranches(identity ConductorIdentity) string {
	return fmt.Sprintf("perago-staging-%s-", hashPart(string(identity), 8))
}

// WorkflowID is the workflow's id, where the name holds it and not its hash.
func (n StagingName) WorkflowID() (WorkflowID, bool) {
	return WorkflowID(n.Workflow), isUUID(n.Workflow)
}

// NamesWorkflow reports whether the branch is one of this workflow, whichever
// Conductor it runs on.
func (n StagingName) NamesWorkflow(workflow WorkflowID) bool {
	return n.Workflow == workflowPart(workflow)
}

var stagingNamePattern = regexp.MustCompile(
	`^perago-staging-([0-9a-f]{8})-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|x[0-9a-f]{35})-([0-9a-f]{8})-r(0|[1-9][0-9]{0,8})-([0-9a-f]{32})(?:-s([123]))?$`)

// ParseStagingName reads a name completely or refuses it: what does not parse is
// somebody else's and is kept.
func ParseStagingName(branch Branch) (StagingName, error) {
	m := stagingNamePattern.FindStringSubmatch(string(branch))
	if m == nil {
		return StagingName{}, fmt.Errorf("%s is not the name of a staging branch", quote(string(branch)))
	}
	execution, err := executionIDFromHex(m[5])
	if err != nil {
		return StagingName{}, fmt.Errorf("%s is not the name of a staging branch: %w", quote(string(branch)), err)
	}
	retry, err := strconv.Atoi(m[4])
	if err != nil {
		return StagingName{}, fmt.Errorf("%s is not the name of a staging branch: %w", quote(string(branch)), err)
	}
	name := StagingName{Conductor: m[1], Workflow: m[2], Key: m[3], Retry: retry, Execution: execution}
	if m[6] != "" {
		name.Source = int(m[6][0] - '0')
	}
	return name, nil
}

// HandBranches is how the names of branches begin that were staged by hand and
// given no name. They are outside of perago's namespace: no workflow has made them,
// no sweep takes them, and their owner decides what to do with them.
const HandBranches = "staged-by-hand-"

// HandBranch names the branch of one execution of a stage by hand.
func HandBranch(execution ExecutionID) Branch { return Branch(HandBranches + execution.hex()) }

// HoldsExecution reports whether perago made up a branch's name from an execution
// id. Then the branch is that execution's, whoever reads it and whenever. A name
// that a person chose says nothing about who made the branch.
func HoldsExecution(branch Branch) bool {
	for _, begin := range []string{ProbeBranches, HandBranches} {
		if hex, ok := strings.CutPrefix(string(branch), begin); ok {
			_, err := executionIDFromHex(hex)
			return err == nil
		}
	}
	_, err := ParseStagingName(branch)
	return err == nil
}

func workflowPart(workflow WorkflowID) string {
	if isUUID(string(workflow)) {
		return string(workflow)
	}
	return "x" + hashPart(string(workflow), 35)
}

func hashPart(s string, digits int) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:digits]
}
