package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/config"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// workflowThat is the scripts' command "workflow VARIABLE ENDING": a workflow of the
// Conductor called scripts that staged data/ for lake/main, and whose publish then
//
//	published  published it
//	lost       published it, and the answer was lost
//	doubt      sent a merge that did not land
//	refused    met a commit of somebody else's
//	waits      has not been polled
//
// The variable gets its id.
func workflowThat(ts *testscript.TestScript, negated bool, arguments []string) {
	if negated || len(arguments) != 2 {
		ts.Fatalf("usage: workflow VARIABLE published|lost|doubt|refused|waits")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	lake := lakeOf(ts)
	server, err := conductor.New(conductor.Config{ServerURL: ts.Getenv("CONDUCTOR")}, nil)
	ts.Check(err)
	head, err := lake.Head(ctx, "lake", "main")
	ts.Check(err)
	workspace := txn.Workspace{Repository: "lake", Branch: "main"}.At(head)
	input, err := json.Marshal(map[string]any{"workspace": workspace})
	ts.Check(err)
	registerExplained(ctx, ts)
	id, err := server.StartWorkflow(ctx, conductor.StartRequest{Name: "explained", Version: 1, Input: input})
	ts.Check(err)
	ts.Setenv(arguments[0], string(id))

	stage := pollOne(ctx, ts, server, txn.TypeStage)
	execution, err := config.NewExecutionID()
	ts.Check(err)
	key := txn.NewLogicalTaskKey(id, stage.ReferenceName, stage.Iteration)
	branch := txn.NewStagingName("scripts", id, key, 0, execution).Branch()
	ts.Check(lake.CreateBranch(ctx, "lake", branch, head))
	_, err = lake.Upload(ctx, "lake", branch, "data/file", lakefstest.Text(string(id)))
	ts.Check(err)
	record := txn.Record{
		Phase: txn.PhaseTry, Key: key, Workflow: id, Task: stage.ID, Execution: execution,
		InputRef: head, TargetBranch: "main", Prefix: "data/", StagingBranch: branch,
	}
	commit, err := lake.CreateCommit(ctx, "lake", branch, "stage", record.Metadata(""))
	ts.Check(err)
	ts.Check(server.Update(ctx, txn.TaskResult{Task: stage.ID, Workflow: id, Worker: stage.Worker, Status: txn.TaskCompleted, Output: map[string]any{
		"workspace": workspace,
		"staged": txn.Staged{
			Repository: "lake", Branch: "main", StagingBranch: branch, Commit: commit.ID, Key: key, InputRef: head, Prefix: "data/",
			Task: stage.ID, PollCount: stage.PollCount, StartTime: stage.StartTime, Execution: execution, Added: 1,
		},
	}}))
	if arguments[1] == "waits" {
		return
	}
	publish := pollOne(ctx, ts, server, txn.TypePublish)
	publication := txn.Publication{ExpectedHead: head, Outcome: txn.OutcomeInDoubt, Fence: txn.FenceSoft}
	result := txn.TaskResult{Task: publish.ID, Workflow: id, Worker: publish.Worker, Status: txn.TaskFailedWithTerminalError, Reason: "the merge was sent and its outcome is not known"}
	switch arguments[1] {
	case "published", "lost":
		record.Phase, record.Task, record.StagingCommit, record.StagingExecution = txn.PhaseConfirm, publish.ID, commit.ID, execution
		record.SourceCommit, record.ExpectedHead = commit.ID, head
		landed, err := lake.Merge(ctx, txn.Merge{Repository: "lake", Source: commit.ID, Destination: "main", Message: "publish", Metadata: record.Metadata("")})
		ts.Check(err)
		if arguments[1] == "published" {
			publication.Commit, publication.Outcome = landed, txn.OutcomePublished
			result.Status, result.Reason = txn.TaskCompleted, ""
		}
	case "refused":
		_, err := lake.Upload(ctx, "lake", "main", "by-hand", lakefstest.Text(string(id)))
		ts.Check(err)
		foreign, err := lake.CreateCommit(ctx, "lake", "main", "by a script", nil)
		ts.Check(err)
		publication.Outcome = txn.OutcomeRefused
		result.Reason = "main advanced from " + string(head) + " to " + string(foreign.ID)
	}
	result.Output = map[string]any{"publication": publication}
	ts.Check(server.Update(ctx, result))
}

func registerExplained(ctx context.Context, ts *testscript.TestScript) {
	operator := conductortest.NewOperator(ts.Getenv("CONDUCTOR"), nil)
	task := func(name, reference string, input map[string]any) map[string]any {
		return map[string]any{"name": name, "taskReferenceName": reference, "type": "SIMPLE", "inputParameters": input}
	}
	for path, body := range map[string][]any{
		"/metadata/taskdefs": {
			map[string]any{"name": "perago_stage", "ownerEmail": "scripts@example.com"}, map[string]any{"name": "perago_publish", "ownerEmail": "scripts@example.com"},
		},
		"/metadata/workflow": {map[string]any{
			"name": "explained", "version": 1, "schemaVersion": 2, "ownerEmail": "scripts@example.com", "tasks": []any{
				task("perago_stage", "prepare_stage", map[string]any{"workspace": "${workflow.input.workspace}", "prefix": "data/"}),
				task("perago_publish", "prepare_publish", map[string]any{"workspace": "${prepare_stage.output.workspace}", "staged": "${prepare_stage.output.staged}"}),
			},
		}},
	} {
		method := http.MethodPost
		if path == "/metadata/workflow" {
			method = http.MethodPut
		}
		answer, err := operator.Do(ctx, method, path, body)
		ts.Check(err)
		if answer.Status != http.StatusOK && answer.Status != http.StatusNoContent {
			ts.Fatalf("register %s: %d %s", path, answer.Status, answer.Body)
		}
	}
}

func pollOne(ctx context.Context, ts *testscript.TestScript, server *conductor.Client, name txn.TaskType) txn.Task {
	tasks, err := server.Poll(ctx, txn.PollRequest{Type: name, Worker: "script", Count: 1})
	ts.Check(err)
	if len(tasks) != 1 {
		ts.Fatalf("polled %d tasks of type %s, want 1", len(tasks), name)
	}
	return tasks[0]
}
