// Command cleanup-worker serves perago_cleanup: it deletes the staging branches
// that nothing can need any more.
package main

import (
	"context"
	"log/slog"
	"time"

	"perago/pkg/cleanup"
	"perago/pkg/conductor"
	"perago/pkg/lakefs"
	"perago/pkg/telemetry"
	"perago/pkg/txn"
	"perago/pkg/worker"
)

var (
	_ worker.Conductor  = (*conductor.Client)(nil)
	_ cleanup.Workflows = (*conductor.Client)(nil)
	_ cleanup.Lake      = (*lakefs.Client)(nil)
	_ cleanup.Attempt   = (*worker.Attempt)(nil)
)

type config struct {
	Conductor conductor.Config
	LakeFS    lakefs.Config
	Cleanup   cleanup.Config
}

var program = worker.Program[config]{
	Name:      "cleanup-worker",
	Summary:   "deletes the staging branches that nothing can need any more (task type perago_cleanup).",
	TaskTypes: []txn.TaskType{txn.TypeCleanup},
	HTTPAddr:  "127.0.0.1:9463",
	Build:     build,
}

func main() { worker.Main(program) }

func build(_ context.Context, process *worker.Process, config *config) (worker.Parts, error) {
	server, err := conductor.New(config.Conductor, nil)
	if err != nil {
		return worker.Parts{}, err
	}
	lake, err := lakefs.New(config.LakeFS, nil)
	if err != nil {
		return worker.Parts{}, err
	}
	cleaner := &cleanup.Cleaner{
		Lake: lake, Workflows: server,
		Identity: process.Config.Identity(config.Conductor.ServerURL),
		Allowed:  process.Config.Allowed(),
		TTL:      config.Cleanup.TTL,
		Now:      time.Now,
		Decided: func(workflow txn.WorkflowID, repository txn.Repository, branch txn.Branch, state, reason string) {
			process.Log.Info("branch decided",
				slog.String(telemetry.KeyWorkflow, string(workflow)),
				slog.String(telemetry.KeyRepository, string(repository)), slog.String(telemetry.KeyBranch, string(branch)),
				slog.String("state", state), slog.String("reason", reason))
		},
		LateLanding: func(repository txn.Repository, target txn.Branch, published, late txn.CommitID) {
			process.Metrics.LateLanding()
			process.Log.Warn("late landing: a commit of a step above the one it published",
				slog.String(telemetry.KeyRepository, string(repository)), slog.String(telemetry.KeyBranch, string(target)),
				slog.String(telemetry.KeyCommit, string(late)), slog.String("published", string(published)))
		},
	}
	return worker.Parts{
		Conductor: server, ConductorURL: config.Conductor.ServerURL,
		Handler: func(taskType txn.TaskType) worker.Handler {
			if !taskType.IsCleanup() {
				return nil
			}
			return func(ctx context.Context, a *worker.Attempt) (map[string]any, error) {
				result, err := cleaner.Run(ctx, a.Task, a)
				process.Metrics.StagingBranches(cleanup.StateDeleted, len(result.Deleted))
				process.Metrics.StagingBranches(cleanup.StateKept, len(result.Kept))
				return result.Output(), err
			}
		},
		Checks: []worker.Check{{Name: "lakefs", Run: lake.Ping}},
	}, nil
}
