package txn

import "fmt"

// The hard fence: a lakeFS action whose pre-merge hook refuses every confirm
// commit that does not stand on its expected head. Its file is embedded in
// package fence; these names are how a run of it is told from other hooks' runs.
const (
	// FenceFile is the action file's path in a repository.
	FenceFile = ActionsPrefix + "perago-publish-fence.yaml"
	// FenceAction is the action's name in it.
	FenceAction = "perago-publish-fence"
	// FenceHook is the id of its one hook.
	FenceHook = "perago_publish_fence"
	// FenceRefusal begins the message of every refusal by it.
	FenceRefusal = "perago publish fence:"
)

// FenceFileError says that a commit does not carry the known action file although the
// hard fence is required. there says whether it carries another file of that name.
func FenceFileError(repository Repository, target Branch, commit CommitID, there bool) error {
	install := fmt.Sprintf("`perago fence %s lakefs://%s/%s`", "install", repository, target)
	if there {
		return fmt.Errorf("%s of commit %s is not the one that this version knows, and PERAGO_REQUIRE_HARD_FENCE is set; run %s and start a new workflow from the head it prints", FenceFile, commit, install)
	}
	return fmt.Errorf("commit %s holds no %s, and PERAGO_REQUIRE_HARD_FENCE is set; run %s and start a new workflow from the head it prints", commit, FenceFile, install)
}

// HookRun is one run of a hook for one commit.
type HookRun struct {
	// Event is lakeFS's, such as pre-merge.
	Event  string
	Action string
	Hook   string
	// Status is lakeFS's: completed, failed or skipped.
	Status string
}

// FenceOf says which fence held for a landed commit, from the hook runs that
// lakeFS recorded for it: the file says what should hold, the run says what did.
// Anything but a completed pre-merge run of the known action is soft.
func FenceOf(runs []HookRun) Fence {
	for _, run := range runs {
		if run.Event == "pre-merge" && run.Action == FenceAction && run.Hook == FenceHook && run.Status == "completed" {
			return FenceHard
		}
	}
	return FenceSoft
}

// fenceWitnesses is how many confirm commits are asked for a run of the fence.
const fenceWitnesses = 8

// FenceWitnesses are the commits, of those on a target, newest first, whose hook
// runs can show that the hard fence is asked there: its newest confirm commits, a
// few of them.
func FenceWitnesses(target Branch, onTarget []Commit) []CommitID {
	var witnesses []CommitID
	for _, commit := range onTarget {
		record, err := ParseRecord(commit.Metadata)
		if err == nil && record.Phase == PhaseConfirm && record.TargetBranch == target && len(witnesses) < fenceWitnesses {
			witnesses = append(witnesses, commit.ID)
		}
	}
	return witnesses
}
