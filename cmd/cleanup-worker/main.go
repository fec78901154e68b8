// Command cleanup-worker serves perago_cleanup: it deletes the staging branches
// that nothing can need any more, and sweeps those that no cleanup came for.
package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"perago/pkg/cleanup"
	"perago/pkg/conductor"
	"perago/pkg/fence"
	"perago/pkg/lakefs"
	"perago/pkg/survey"
	"perago/pkg/telemetry"
	"perago/pkg/txn"
	"perago/pkg/worker"
)

var (
	_ worker.Conductor  = (*conductor.Client)(nil)
	_ cleanup.Workflows = conductor.Repeating{}
	_ cleanup.Lake      = (*lakefs.Client)(nil)
	_ cleanup.Fence     = fence.Prover{}
	_ cleanup.Attempt   = (*worker.Attempt)(nil)
	_ survey.Conductor  = (*conductor.Client)(nil)
)

type settings struct {
	Conductor conductor.Config
	LakeFS    lakefs.Config
	Cleanup   cleanup.Config
}

var program = worker.Program[settings]{
	Name:      "cleanup-worker",
	Summary:   "deletes the staging branches that nothing can need any more (task type perago_cleanup).",
	TaskTypes: []txn.TaskType{txn.TypeCleanup},
	HTTPAddr:  "127.0.0.1:9463",
	Build:     build,
}

func main() { worker.Main(program) }

func build(_ context.Context, process *worker.Process, settings *settings) (worker.Parts, error) {
	settings.Conductor.Renewed, settings.LakeFS.Renewed = process.Renewed("Conductor"), process.Renewed("lakeFS")
	server, err := conductor.New(settings.Conductor, nil)
	if err != nil {
		return worker.Parts{}, err
	}
	lake, err := lakefs.New(settings.LakeFS, nil)
	if err != nil {
		return worker.Parts{}, err
	}
	cleaner := &cleanup.Cleaner{
		Lake: lake, Workflows: conductor.Repeating{Client: server}, Fence: fence.Prover{Lake: lake},
		Identity:   process.Config.Identity(settings.Conductor.ServerURL),
		Allowed:    process.Config.Allowed(),
		TTL:        settings.Cleanup.TTL,
		UnknownTTL: settings.Cleanup.UnknownTTL,
		Now:        time.Now,
		Redact:     process.Redactor.Text,
		Events:     events(process),
	}
	lost := &search{server: server, process: process, now: time.Now, last: time.Now()}
	return worker.Parts{
		Conductor: server, ConductorURL: settings.Conductor.ServerURL,
		Handler: func(taskType txn.TaskType) worker.Handler {
			if !taskType.IsCleanup() {
				return nil
			}
			return func(ctx context.Context, a *worker.Attempt) (map[string]any, error) {
				result, err := cleaner.Run(ctx, a.Task, a)
				return result.Output(), err
			}
		},
		Checks: []worker.Check{{Name: "lakefs", Run: lake.Ping}},
		Background: []func(context.Context){func(ctx context.Context) {
			cleanup.Every(ctx, settings.Cleanup.Interval, func(ctx context.Context) { sweep(ctx, process, cleaner, lost) })
		}},
	}, nil
}

// sweep looks for lost tasks, and then goes over all branches once. How many there are
// is known only of a whole sweep.
func sweep(ctx context.Context, process *worker.Process, cleaner *cleanup.Cleaner, lost *search) {
	unsearched := lost.run(ctx)
	swept, err := cleaner.Sweep(ctx, cleanup.Sweep{})
	process.Swept(ctx, swept.Deleted, swept.Kept, swept.Failed, errors.Join(unsearched, err))
	if err != nil {
		return
	}
	process.Metrics.StagingBranches(string(cleanup.StateDeleted), swept.Deleted)
	process.Metrics.StagingBranches(string(cleanup.StateKept), swept.Kept)
	process.Metrics.StagingBranches(string(cleanup.StateFailed), swept.Failed)
	process.Metrics.OrphanedBranches(swept.Orphaned)
	process.Metrics.UnknownWorkflows(swept.Unknown)
}

// events logs and counts what cleanups and sweeps do.
func events(process *worker.Process) cleanup.Events {
	return cleanup.Events{
		Decided: func(d cleanup.Decided) {
			process.Metrics.BranchDecided(string(d.State))
			level := slog.LevelInfo
			switch {
			case d.State == cleanup.StateFailed:
				level = slog.LevelWarn
			case d.Running:
				level = slog.LevelDebug
			}
			process.Log.Log(context.Background(), level, "branch decided",
				slog.String(telemetry.KeyWorkflow, string(d.Workflow)),
				slog.String(telemetry.KeyRepository, string(d.Repository)), slog.String(telemetry.KeyBranch, string(d.Branch)),
				slog.String(telemetry.KeyState, string(d.State)), slog.String(telemetry.KeyReason, d.Reason))
		},
		LateLanding: func(repository txn.Repository, target txn.Branch, published, late txn.CommitID) {
			process.Metrics.LateLanding()
			process.Log.Warn("late landing: a commit of a step above the one it published",
				slog.String(telemetry.KeyRepository, string(repository)), slog.String(telemetry.KeyBranch, string(target)),
				slog.String(telemetry.KeyCommit, string(late)), slog.String(telemetry.KeyPublished, string(published)))
		},
		PublishedAfterEnd: func(workflow txn.WorkflowID, repository txn.Repository, target txn.Branch, commit txn.CommitID) {
			process.Metrics.PublishedAfterEnd()
			process.Log.Warn("published after end: no publish task of the ended workflow put this publication out",
				slog.String(telemetry.KeyWorkflow, string(workflow)),
				slog.String(telemetry.KeyRepository, string(repository)), slog.String(telemetry.KeyBranch, string(target)),
				slog.String(telemetry.KeyCommit, string(commit)))
		},
		Progress: func(swept cleanup.Swept) {
			process.Log.Info("sweeping", slog.Int(telemetry.KeyDeleted, swept.Deleted), slog.Int(telemetry.KeyKept, swept.Kept), slog.Int(telemetry.KeyFailed, swept.Failed))
		},
	}
}
