package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/rogpeppe/go-internal/testscript"

	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/lakefs"
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
	client, err := lakefs.New(lakefs.Config{
		Endpoint: ts.Getenv("LAKEFS"), AccessKeyID: ts.Getenv("KEY"), SecretAccessKey: lakefs.NewSecret(ts.Getenv("SECRET")),
	}, nil)
	ts.Check(err)
	head, err := client.Head(ctx, "lake", "main")
	ts.Check(err)
	key := txn.NewLogicalTaskKey(id, "orphan_stage", 0)
	branch := txn.NewStagingName("scripts", id, key, 0, executionAt(ts, age)).Branch()
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

// executionAt is an execution id of an age.
func executionAt(ts *testscript.TestScript, age time.Duration) txn.ExecutionID {
	id, err := uuid.NewV7()
	ts.Check(err)
	milliseconds := uint64(time.Now().Add(-age).UnixMilli())
	for i := range 6 {
		id[i] = byte(milliseconds >> (8 * (5 - i)))
	}
	execution, err := txn.ParseExecutionID(id.String())
	if err != nil {
		ts.Fatalf("%s: %v", hex.EncodeToString(id[:]), err)
	}
	return execution
}
