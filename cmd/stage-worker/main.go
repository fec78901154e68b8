// Command stage-worker serves perago_stage: it stages a step's files on a branch
// of their own.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"perago/pkg/conductor"
	"perago/pkg/lakefs"
	"perago/pkg/projection"
	"perago/pkg/stage"
	"perago/pkg/txn"
	"perago/pkg/worker"
)

var (
	_ worker.Conductor = (*conductor.Client)(nil)
	_ stage.Lake       = lakefs.Settling{}
	_ stage.Attempt    = (*worker.Attempt)(nil)
)

type config struct {
	Conductor conductor.Config
	LakeFS    lakefs.Config
	Stage     stage.Config
}

var program = worker.Program[config]{
	Name:      "stage-worker",
	Summary:   "stages a step's files on a lakeFS branch of their own (task type perago_stage).",
	TaskTypes: []txn.TaskType{txn.TypeStage},
	HTTPAddr:  "127.0.0.1:9461",
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
	path, err := filepath.Abs(config.Stage.WorkspaceRoot)
	if err != nil {
		return worker.Parts{}, fmt.Errorf("PERAGO_WORKSPACE_ROOT: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return worker.Parts{}, fmt.Errorf("PERAGO_WORKSPACE_ROOT: %w", err)
	}
	stager := &stage.Stager{
		Lake: lakefs.Settling{Client: lake}, Root: root,
		Identity:          process.Config.Identity(config.Conductor.ServerURL),
		Allowed:           process.Config.Allowed(),
		UploadConcurrency: config.Stage.UploadConcurrency,
		NewExecutionID:    worker.NewExecutionID,
		WorkflowURL:       process.Config.WorkflowURL(),
		Staged: func(plan projection.Plan) {
			process.Metrics.Staged("added", len(plan.Added))
			process.Metrics.Staged("changed", len(plan.Changed))
			process.Metrics.Staged("removed", len(plan.Removed))
			process.Metrics.Staged("unchanged", plan.Unchanged)
			process.Metrics.StagedBytes(plan.Bytes)
		},
	}
	return worker.Parts{
		Conductor: server, ConductorURL: config.Conductor.ServerURL,
		Handler: func(taskType txn.TaskType) worker.Handler {
			if !taskType.IsStage() {
				return nil
			}
			return func(ctx context.Context, a *worker.Attempt) (map[string]any, error) {
				result, err := stager.Run(ctx, a.Task, a)
				return result.Output(), err
			}
		},
		Checks: []worker.Check{{Name: "lakefs", Run: lake.Ping}},
		Close:  func() { _ = root.Close() },
	}, nil
}
