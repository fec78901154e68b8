package explain

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/txn"
)

const (
	firstExecution  txn.ExecutionID = "01890a5d-ac96-7cc0-8000-000000000001"
	secondExecution txn.ExecutionID = "01890a5d-ac96-7cc0-8000-000000000002"
)

func id(letter string) txn.CommitID { return txn.CommitID(strings.Repeat(letter, 64)) }

// confirm is a publication of a step of workflow w on main.
func confirm(commit, on, supersedes string, retry int) txn.Commit {
	record := txn.Record{
		Phase: txn.PhaseConfirm, Key: txn.NewLogicalTaskKey("w", "train_stage", 0), Workflow: "w", Task: "p", RetryCount: retry,
		Execution: secondExecution, InputRef: id("a"), TargetBranch: "main", Prefix: "models/", StagingBranch: "b",
		StagingCommit: id("5"), StagingExecution: firstExecution, SourceCommit: id("5"), ExpectedHead: id(on),
	}
	if supersedes != "" {
		record.Supersedes = id(supersedes)
	}
	return txn.Commit{ID: id(commit), Parents: []txn.CommitID{id(on)}, MetaRange: "tree " + txn.MetaRangeID(commit), Metadata: record.Metadata(""), Message: "publish"}
}

func TestLog(t *testing.T) {
	t.Parallel()
	plain := func(commit, on, message string) txn.Commit {
		return txn.Commit{ID: id(commit), Parents: []txn.CommitID{id(on)}, Message: message}
	}
	with := func(commit txn.Commit, key, value string) txn.Commit {
		commit.Metadata[key] = value
		return commit
	}
	raced := confirm("9", "8", "", 0)
	raced.Parents = []txn.CommitID{id("7")}
	settle := txn.Commit{ID: id("6"), Parents: []txn.CommitID{id("5")}, Metadata: txn.SettleRecord(firstExecution, "main", id("5")).Metadata("")}
	entries := Log("main", []txn.Commit{
		raced,
		confirm("c", "b", "b", 1),
		confirm("b", "a", "", 0),
		plain("a", "f", "by hand"),
		settle,
		with(confirm("d", "a", "", 0), "perago.version", "2"),
		with(confirm("d", "a", "", 0), "cherry-pick-origin", string(id("b"))),
		with(confirm("d", "a", "", 0), "perago.target_branch", "other"),
		with(confirm("d", "a", "", 0), "perago.expected_head", ""),
		{ID: id("0"), Message: "Repository created"},
	})
	var got []string
	for _, e := range entries {
		got = append(got, strings.Join([]string{e.Commit.Short()[:1], string(e.Kind), string(e.Workflow), string(e.Step), e.Supersedes.Short(), e.SupersededBy.Short(), e.Why}, "|"))
	}
	if diff := cmp.Diff([]string{
		"9|raced|w|train_stage|||expected on 888888888888, landed on 777777777777",
		"c|publication|w|train_stage|bbbbbbbbbbbb||",
		"b|publication|w|train_stage||cccccccccccc|",
		"a|foreign|||||not written by perago",
		"6|settled|||||",
		`d|foreign|||||written by a newer perago (metadata version "2")`,
		"d|foreign|||||it was cherry-picked",
		"d|foreign|||||it was made for branch other",
		"d|foreign|||||incomplete perago metadata: perago.expected_head is missing",
		"0|foreign|||||the repository's first commit",
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if entries[1].Retry != 1 || entries[1].Prefix != "models/" || entries[1].Execution != secondExecution {
		t.Errorf("got %+v", entries[1])
	}
}
