// Command publish-worker serves perago_publish: it makes what a step staged
// appear in the target branch, all at once.
package main

import (
	"context"
	"log/slog"

	"perago/pkg/conductor"
	"perago/pkg/config"
	"perago/pkg/fence"
	"perago/pkg/lakefs"
	"perago/pkg/publish"
	"perago/pkg/telemetry"
	"perago/pkg/txn"
	"perago/pkg/worker"
)

var (
	_ worker.Conductor = (*conductor.Client)(nil)
	_ publish.Tasks    = conductor.Repeating{}
	_ publish.Lake     = lakefs.Settling{}
	_ publish.Attempt  = (*worker.Attempt)(nil)
)

type settings struct {
	Conductor conductor.Config
	LakeFS    lakefs.Config
	Publish   publish.Config
}

var program = worker.Program[settings]{
	Name:      "publish-worker",
	Summary:   "publishes what a step staged into its target branch, all at once or not at all (task type perago_publish).",
	TaskTypes: []txn.TaskType{txn.TypePublish},
	HTTPAddr:  "127.0.0.1:9462",
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
	publisher := &publish.Publisher{
		Lake: lakefs.Settling{Client: lake}, Tasks: conductor.Repeating{Client: server},
		Identity:       process.Config.Identity(settings.Conductor.ServerURL),
		Allowed:        process.Config.Allowed(),
		NewExecutionID: config.NewExecutionID,
		WorkflowURL:    process.Config.WorkflowURL(),

		Fence:            fence.Prover{Lake: lake},
		RequireHardFence: settings.Publish.RequireHardFence,
		Unfenced: func(task txn.Task, commit txn.CommitID, why error) {
			process.Metrics.FenceRejection("publish", "no_run")
			process.Log.Error("the hard fence is required, and lakeFS recorded no run of it for a publication that landed",
				slog.String(telemetry.KeyWorkflow, string(task.Workflow)), slog.String(telemetry.KeyTask, string(task.ID)),
				slog.String(telemetry.KeyCommit, string(commit)), slog.String(telemetry.KeyError, why.Error()))
		},
		LateLanding: func(repository txn.Repository, target txn.Branch, published, late txn.CommitID) {
			process.Metrics.LateLanding()
			process.Log.Warn("late landing: a commit of a step above the one it published",
				slog.String(telemetry.KeyRepository, string(repository)), slog.String(telemetry.KeyBranch, string(target)),
				slog.String(telemetry.KeyCommit, string(late)), slog.String(telemetry.KeyPublished, string(published)))
		},
		Published: func(outcome txn.Outcome, fence txn.Fence) {
			process.Metrics.PublishOutcome(string(outcome), string(fence))
			if outcome == txn.OutcomeInDoubt {
				process.Metrics.InDoubt()
			}
		},
		Rejected: func(reason string) { process.Metrics.FenceRejection("publish", reason) },
		Merged:   process.Metrics.Merged,
	}
	return worker.Parts{
		Conductor: server, ConductorURL: settings.Conductor.ServerURL,
		Handler: func(taskType txn.TaskType) worker.Handler {
			if !taskType.IsPublish() {
				return nil
			}
			return func(ctx context.Context, a *worker.Attempt) (map[string]any, error) {
				result, err := publisher.Run(ctx, a.Task, a)
				return result.Output(), err
			}
		},
		Checks: []worker.Check{{Name: "lakefs", Run: lake.Ping}},
	}, nil
}
