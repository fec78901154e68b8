package txn

import (
	"encoding/json"
	"fmt"
	"time"
)

// SettledFacts is what tells whether a branch can still be needed: read from the
// target, never from task records, which `rerun` overwrites and `restart`
// removes.
type SettledFacts struct {
	// Source says that it is a source branch, not a staging branch.
	Source bool
	// HardFenceProven says that the hard fence is known to hold on the target.
	HardFenceProven bool

	// WouldAdopt, of a staging branch: the publish decision for its staging would
	// be to adopt a commit.
	WouldAdopt bool
	// HeadIsInput, of a staging branch: the target's head is the input ref.
	HeadIsInput bool
	// HeadIsOurs, of a staging branch: the target's head is a confirm commit of
	// the step.
	HeadIsOurs bool
	// OtherPublished, of a staging branch: the step's publish is COMPLETED with
	// another staging, whose confirm commit is in the target's history.
	OtherPublished bool
	// ChangesNothing, of a staging branch: its commit has the tree of the input ref.
	// Only an import makes such a commit, and its stage puts out a no-op.
	ChangesNothing bool

	// Landed, of a source branch: a confirm commit with its execution is in the
	// target's history.
	Landed bool
	// HeadIsBase, of a source branch: the target's head is the commit it was cut
	// from.
	HeadIsBase bool
}

// Settled reports whether nothing can still need the branch, and why, or why
// not.
func Settled(f SettledFacts) (bool, string) {
	if f.Source {
		switch {
		case f.Landed:
			return true, "its publication is in the target's history"
		case f.HardFenceProven && !f.HeadIsBase:
			return true, "the target moved on, and the hard fence refuses its merge"
		case f.HeadIsBase:
			return false, "its merge may still land"
		}
		return false, "without the hard fence its merge may still land"
	}
	switch {
	case f.WouldAdopt:
		return true, "it is published"
	case f.ChangesNothing:
		return true, "it changes nothing, so no publish merges it"
	case f.HardFenceProven && !f.HeadIsInput && !f.HeadIsOurs:
		return true, "the target moved on, and the hard fence refuses its merge"
	case f.HardFenceProven && f.OtherPublished:
		return true, "the step published another staging"
	case f.HeadIsInput:
		return false, "it is not published, and its publication may still come"
	case f.HardFenceProven:
		return false, "the step's newest publication is not of this staging"
	}
	return false, "it is not published, and without the hard fence its merge may still land"
}

// CleanupFacts is what the decision about one branch is made of.
type CleanupFacts struct {
	// WorkflowKnown says that this Conductor knows the workflow that the branch
	// names; WorkflowStatus is then its status.
	WorkflowKnown  bool
	WorkflowStatus WorkflowStatus
	// StepOpen says that a stage or publish task of the step is scheduled or in
	// progress.
	StepOpen bool
	Settled  bool
	// SettledWhy is the sentence of Settled.
	SettledWhy string
	// Age is since the execution named by the branch began.
	Age time.Duration
	// TTL is PERAGO_SWEEP_TTL.
	TTL time.Duration
}

// CleanupDecision says whether a branch goes, and why.
type CleanupDecision struct {
	Delete bool
	Reason string
}

// DecideCleanup is the decision table of Cancel ("Decide" in docs/protocol.md,
// same rows).
func DecideCleanup(f CleanupFacts) CleanupDecision {
	ended := !f.WorkflowKnown || f.WorkflowStatus.Terminal()
	old := f.Age >= f.TTL
	switch {
	case !f.StepOpen && f.Settled:
		return CleanupDecision{Delete: true, Reason: f.SettledWhy}
	case ended && old && f.WorkflowKnown:
		return CleanupDecision{Delete: true, Reason: fmt.Sprintf("its workflow is %s and it is older than %s", f.WorkflowStatus, f.TTL)}
	case ended && old:
		return CleanupDecision{Delete: true, Reason: fmt.Sprintf("its workflow is unknown and it is older than %s", f.TTL)}
	case f.StepOpen && !ended:
		return CleanupDecision{Reason: "a stage or publish task of its step is not finished"}
	case ended:
		return CleanupDecision{Reason: fmt.Sprintf("%s; kept until it is %s old", f.SettledWhy, f.TTL)}
	}
	return CleanupDecision{Reason: f.SettledWhy}
}

// StepOpen reports whether a stage or publish task of the branch's step is
// scheduled or in progress. Conductor's tasks are found by what their type's
// name begins with, so that a TaskDef with another budget counts too.
func StepOpen(workflow Workflow, name StagingName) bool {
	for _, task := range workflow.Tasks {
		if !task.Status.Open() {
			continue
		}
		switch {
		case task.Type.IsStage():
			if hashPart(string(NewLogicalTaskKey(workflow.ID, task.ReferenceName, task.Iteration)), 8) == name.Key {
				return true
			}
		case task.Type.IsPublish():
			// A publish whose input cannot be read could be any step's: fail closed.
			staged, err := StagedOf(task)
			if err != nil || hashPart(string(staged.Key), 8) == name.Key {
				return true
			}
		}
	}
	return false
}

// StagedOf is the staged reference that a publish or cleanup task was given.
func StagedOf(task Task) (Staged, error) {
	input, err := InputOf(task)
	if err != nil {
		return Staged{}, err
	}
	d, err := parseDocument("", input, nil)
	if err != nil {
		return Staged{}, err
	}
	return parseStaged("staged", d.fields["staged"])
}

// WorkspaceOf is the workspace that a task was given, unchecked: it tells where to
// look. It is false where it could not be read whole; what could be read is there.
func WorkspaceOf(task Task) (Workspace, bool) {
	var input struct {
		Workspace Workspace `json:"workspace"`
	}
	err := json.Unmarshal(task.Input, &input)
	return input.Workspace, err == nil
}

// PublicationOf is the publication in a task's output, unchecked. It is false where
// it could not be read whole; what could be read is there.
func PublicationOf(task Task) (Publication, bool) {
	var output struct {
		Publication Publication `json:"publication"`
	}
	err := json.Unmarshal(task.Output, &output)
	return output.Publication, err == nil
}

// DecideUnknownDirectory says whether the directory of a workflow that Conductor does
// not know goes, and why. idle is since its last change; named says that its name is a
// workflow id of Conductor's form. A ttl of 0 is never.
func DecideUnknownDirectory(named bool, idle, ttl time.Duration) (reason string, goes bool) {
	if !named || ttl <= 0 || idle < ttl {
		return "this Conductor knows no workflow of this name", false
	}
	return fmt.Sprintf("this Conductor knows no workflow of this name, and it was not changed for %s", ttl), true
}

// DecideDirectory says whether the directory of a workflow on a stage worker's
// host goes, and why: at once when the workflow is COMPLETED; when it ended
// otherwise, ttl after its end, because until then a retry of a stage needs the
// user's files ("Directories" in docs/protocol.md, same rows).
func DecideDirectory(status WorkflowStatus, sinceEnd, ttl time.Duration) (reason string, goes bool) {
	switch {
	case status == WorkflowCompleted:
		return "its workflow is COMPLETED", true
	case !status.Terminal():
		return fmt.Sprintf("its workflow is %s", status), false
	case sinceEnd < ttl:
		return fmt.Sprintf("its workflow is %s; kept until %s after its end, for a retry", status, ttl), false
	}
	return fmt.Sprintf("its workflow is %s, and its end was %s ago or longer", status, ttl), true
}
