package txn

import (
	"errors"
	"strings"
	"testing"
)

const settleExecution = ExecutionID("01890a5d-ac96-774b-bcce-b302099a8057")

func TestSettleRecordIsComplete(t *testing.T) {
	t.Parallel()
	head := CommitID(strings.Repeat("a", 64))
	sent := SettleRecord(settleExecution, "main", head)
	got, err := ParseRecord(sent.Metadata(""))
	if err != nil || got != sent {
		t.Errorf("got %+v, %v", got, err)
	}
	if sent.Key != "settle:01890a5d-ac96-774b-bcce-b302099a8057" {
		t.Errorf("the key is %s", sent.Key)
	}
}

// A step whose input is the head below it finds somebody else's commit there and
// says from where to start; one that had published below it stays published.
func TestSettleRecordIsForeign(t *testing.T) {
	t.Parallel()
	head, published, settled := CommitID(strings.Repeat("a", 64)), CommitID(strings.Repeat("b", 64)), CommitID(strings.Repeat("c", 64))
	step := Step{Repository: "lake", Branch: "main", Workflow: "w", Key: "w:stage:0", InputRef: head}
	staged := Staged{Repository: "lake", Branch: "main", Execution: "01890a5d-ac96-774b-bcce-b302099a8058", InputRef: head, Commit: CommitID(strings.Repeat("d", 64))}
	above := func(parent CommitID) Commit {
		return Commit{ID: settled, Parents: []CommitID{parent}, MetaRange: "t", Metadata: SettleRecord(settleExecution, "main", parent).Metadata("")}
	}

	_, err := DecidePublish(PublishFacts{Step: step, Staged: staged, Wanted: "t", Head: settled, Range: []Commit{above(head)}, Reached: true})
	var fence *PublishFenceError
	if !errors.As(err, &fence) || !strings.Contains(err.Error(), "start a new workflow with ref="+string(settled)) {
		t.Errorf("not published: %v", err)
	}

	confirm := ConfirmRecord(step, staged, PublishDecision{ExpectedHead: head}, staged.Commit, Attempt{Task: "task"}, settleExecution)
	confirm.StagingBranch = "perago-staging-x"
	decision, err := DecidePublish(PublishFacts{Step: step, Staged: staged, Wanted: "t", Head: settled, Reached: true, Range: []Commit{
		above(published), {ID: published, Parents: []CommitID{head}, MetaRange: "t", Metadata: confirm.Metadata("")},
	}})
	if err != nil || decision.Action != PublishAdopt || decision.Adopt != published {
		t.Errorf("published: %+v, %v", decision, err)
	}
}
