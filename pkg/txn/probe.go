package txn

// ProbeBranches is how the names of all probe branches begin.
const ProbeBranches = BranchNamespace + "probe-"

// ProbeBranch names the hidden branch that one execution of an operator's command
// works on and deletes again.
func ProbeBranch(execution ExecutionID) Branch {
	return Branch(ProbeBranches + execution.hex())
}

// ProbeRecord is the metadata of a merge that probes the hard fence on a probe
// branch: all that the fence looks at, and a confirm commit of no step.
func ProbeRecord(execution ExecutionID, target Branch, expectedHead CommitID) map[string]string {
	return map[string]string{
		keyVersion:        MetadataVersion,
		keyPhase:          string(PhaseConfirm),
		keyLogicalTaskKey: "probe:" + string(execution),
		keyExecutionID:    string(execution),
		keyTargetBranch:   string(target),
		keyExpectedHead:   string(expectedHead),
	}
}
