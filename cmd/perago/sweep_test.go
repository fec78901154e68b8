package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/rogpeppe/go-internal/testscript"

	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// orphan is the scripts' command "orphan VARIABLE WORKFLOW AGE": a branch of the
// Conductor that is called scripts, of an age, whose workflow is running, ended or
// unknown. The variable gets its name.
func orphan(ts *testscript.TestScript, negated bool, arguments []string) {
	if negated || len(arguments) != 3 {
		ts.Fatalf("usage: orphan VARIABLE running|ended|unknown AGE")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	age, err := time.ParseDuration(arguments[2])
	ts.Check(err)
	id := txn.WorkflowID(uuid.NewString())
	if arguments[1] != "unknown" {
		id = startOrphan(ctx, ts, arguments[1] == "ended")
	}
	client := lakeOf(ts)
	head, err := client.Head(ctx, "lake", "main")
	ts.Check(err)
	key := txn.NewLogicalTaskKey(id, "orphan_stage", 0)
	execution, err := lakefstest.ExecutionAt(age)
	ts.Check(err)
	branch := txn.NewStagingName("scripts", id, key, 0, execution).Branch()
	ts.Check(client.CreateBranch(ctx, "lake", branch, head))
	ts.Setenv(arguments[0], string(branch))
}

func startOrphan(ctx context.Context, ts *testscript.TestScript, end bool) txn.WorkflowID {
	operator := conductortest.NewOperator(ts.Getenv("CONDUCTOR"), nil)
	answer, err := operator.Do(ctx, http.MethodPut, "/metadata/workflow", []any{map[string]any{
		"name": "orphan", "version": 1, "schemaVersion": 2, "ownerEmail": "scripts@example.com",
		"tasks": []any{map[string]any{"name": "work", "taskReferenceName": "work", "type": "SIMPLE"}},
	}})
	ts.Check(err)
	if answer.Status != http.StatusOK {
		ts.Fatalf("register the workflow: %d %s", answer.Status, answer.Body)
	}
	client, err := conductor.New(conductor.Config{ServerURL: ts.Getenv("CONDUCTOR")}, nil)
	ts.Check(err)
	id, err := client.StartWorkflow(ctx, conductor.StartRequest{Name: "orphan", Version: 1, Input: json.RawMessage(`{}`)})
	ts.Check(err)
	if end {
		ts.Check(operator.Terminate(ctx, id, "by a script"))
	}
	return id
}
