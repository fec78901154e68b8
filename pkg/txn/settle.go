package txn

import "time"

// Pauses returns the pauses between the reads that make up for a lost answer. The
// first read comes at once, so there is one read more than there are pauses.
func Pauses() []time.Duration {
	return []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond}
}

// settleWorkflow stands where a confirm commit has its workflow. No workflow of
// Conductor has this id, so the commit is foreign to every step.
const settleWorkflow = "settle"

// SettleRecord is the metadata of the empty commit that takes the commit slot of
// a branch: a publication of nothing on that head, which the hard fence lets pass
// and after which it refuses every other one that expected the same head. It is
// complete, so that a step which meets it takes it for somebody else's
// publication and not for damage.
func SettleRecord(execution ExecutionID, target Branch, head CommitID) Record {
	return Record{
		Phase:    PhaseConfirm,
		Key:      LogicalTaskKey(settleWorkflow + ":" + string(execution)),
		Workflow: settleWorkflow, Task: TaskID(execution), Execution: execution,
		InputRef: head, TargetBranch: target,
		StagingCommit: head, StagingExecution: execution, SourceCommit: head, ExpectedHead: head,
	}
}
