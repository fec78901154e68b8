package main

import (
	"context"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"perago/pkg/config"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// publishStep is the scripts' command "publish VARIABLE STEP RETRY [SUPERSEDES]": a
// publication of the step of workflow onto lake/main, whose commit the variable
// gets.
func publishStep(ts *testscript.TestScript, negated bool, arguments []string) {
	if negated || len(arguments) < 3 {
		ts.Fatalf("usage: publish VARIABLE STEP RETRY [SUPERSEDES]")
	}
	client := lakeOf(ts)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	head, err := client.Head(ctx, "lake", "main")
	ts.Check(err)
	execution, err := config.NewExecutionID()
	ts.Check(err)
	key := txn.NewLogicalTaskKey("workflow", txn.ReferenceName(arguments[1]), 0)
	branch := txn.NewStagingName("conductor", "workflow", key, 0, execution).Branch()
	ts.Check(client.CreateBranch(ctx, "lake", branch, head))
	_, err = client.Upload(ctx, "lake", branch, "data/"+arguments[1], lakefstest.Text(arguments[0]))
	ts.Check(err)
	record := txn.Record{
		Phase: txn.PhaseTry, Key: key, Workflow: "workflow", Task: "stage", Execution: execution,
		InputRef: head, TargetBranch: "main", Prefix: "data/", StagingBranch: branch,
	}
	staged, err := client.CreateCommit(ctx, "lake", branch, "stage", record.Metadata(""))
	ts.Check(err)
	record.Phase, record.StagingCommit, record.StagingExecution, record.SourceCommit, record.ExpectedHead = txn.PhaseConfirm, staged.ID, execution, staged.ID, head
	if arguments[2] == "1" {
		record.RetryCount = 1
	}
	if len(arguments) == 4 {
		record.Supersedes = txn.CommitID(arguments[3])
	}
	commit, err := client.Merge(ctx, txn.Merge{Repository: "lake", Source: staged.ID, Destination: "main", Message: "publish", Metadata: record.Metadata("")})
	ts.Check(err)
	ts.Check(client.DeleteBranch(ctx, "lake", branch))
	ts.Setenv(arguments[0], string(commit))
}
