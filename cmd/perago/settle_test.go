package main

import (
	"context"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"perago/pkg/config"
	"perago/pkg/fence"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// stageStep is the scripts' command "stage STEP [COMMIT]": a staging branch for
// lake/main with one file, cut from the commit or the head.
func stageStep(ts *testscript.TestScript, negated bool, arguments []string) {
	if negated || len(arguments) < 1 || len(arguments) > 2 {
		ts.Fatalf("usage: stage STEP [COMMIT]")
	}
	client := lakeOf(ts)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	input, err := client.Head(ctx, "lake", "main")
	ts.Check(err)
	if len(arguments) == 2 {
		input = txn.CommitID(arguments[1])
	}
	execution, err := config.NewExecutionID()
	ts.Check(err)
	key := txn.NewLogicalTaskKey("workflow", txn.ReferenceName(arguments[0]), 0)
	branch := txn.NewStagingName("conductor", "workflow", key, 0, execution).Branch()
	ts.Check(client.CreateBranch(ctx, "lake", branch, input))
	_, err = client.Upload(ctx, "lake", branch, "data/"+arguments[0], lakefstest.Text("staged"))
	ts.Check(err)
	_, err = client.CreateCommit(ctx, "lake", branch, "stage", txn.Record{
		Phase: txn.PhaseTry, Key: key, Workflow: "workflow", Task: "stage", Execution: execution,
		InputRef: input, TargetBranch: "main", Prefix: "data/", StagingBranch: branch,
	}.Metadata(""))
	ts.Check(err)
}

// What a commit says of itself breaks no line and no terminal.
func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"w:stage:0": "w:stage:0", "schön ist es": "schön ist es", "a\tb": `"a\tb"`, "\x1b[2Ja": `"\x1b[2Ja"`, "a\nb": `"a\nb"`,
	} {
		if got := printable(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

// The advice names what is loose only where something is.
func TestSettledAdvice(t *testing.T) {
	t.Parallel()
	const want = "From now on the hard fence refuses every publication that expected aaaaaaaaaaaa. A retry in Conductor adopts what had landed; what had not must be started anew with ref=b."
	if got := settledAdvice(fence.Settlement{Before: "aaaaaaaaaaaab", Head: "b"}); got != want {
		t.Errorf("got %s", got)
	}
}
