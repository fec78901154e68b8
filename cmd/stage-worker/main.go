// Command stage-worker serves perago_stage and perago_checkout: it stages a step's
// files on a branch of their own, and downloads the files that a step starts from.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"perago/pkg/checkout"
	"perago/pkg/cleanup"
	"perago/pkg/conductor"
	"perago/pkg/config"
	"perago/pkg/fence"
	"perago/pkg/lakefs"
	"perago/pkg/spool"
	"perago/pkg/stage"
	"perago/pkg/telemetry"
	"perago/pkg/txn"
	"perago/pkg/worker"
)

var (
	_ worker.Conductor = (*conductor.Client)(nil)
	_ stage.Lake       = lakefs.Settling{}
	_ stage.Lake       = (*lakefs.Presigned)(nil)
	_ checkout.Lake    = (*lakefs.Client)(nil)
	_ worker.TaskLog   = (*conductor.Client)(nil)
	_ checkout.Attempt = (*worker.Attempt)(nil)
	_ stage.Attempt    = (*worker.Attempt)(nil)

	_ cleanup.WorkflowEnds = (*conductor.Client)(nil)
)

type settings struct {
	Conductor conductor.Config
	LakeFS    lakefs.Config
	Stage     stage.Config
	Sweep     cleanup.Config
}

var program = worker.Program[settings]{
	Name:      "stage-worker",
	Summary:   "stages a step's files on a lakeFS branch of their own (task type perago_stage), and downloads those it starts from (perago_checkout).",
	TaskTypes: []txn.TaskType{txn.TypeStage, txn.TypeCheckout},
	HTTPAddr:  "127.0.0.1:9461",
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
	path, err := filepath.Abs(settings.Stage.WorkspaceRoot)
	if err != nil {
		return worker.Parts{}, fmt.Errorf("PERAGO_WORKSPACE_ROOT: %w", err)
	}
	root, err := openWorkspaceRoot(path)
	if err != nil {
		return worker.Parts{}, err
	}
	host, err := os.Hostname()
	if err != nil {
		return worker.Parts{}, fmt.Errorf("the name of this host: %w", err)
	}
	var uploading stage.Lake = lakefs.Settling{Client: lake}
	if settings.Stage.UploadPresigned == stage.PresignedAuto {
		uploading = lakefs.NewPresigned(lakefs.Settling{Client: lake}, nil, func(direct bool, why string) {
			switch {
			case direct:
				process.Log.Info("uploads go to the object store")
			case why != "":
				process.Log.Warn("uploads go through lakeFS: the object store cannot be used", slog.String(telemetry.KeyReason, why))
			default:
				process.Log.Info("uploads go through lakeFS, which signs no URLs")
			}
		})
	}
	stager := &stage.Stager{
		Lake: uploading, Host: host,
		Identity:          process.Config.Identity(settings.Conductor.ServerURL),
		Allowed:           process.Config.Allowed(),
		AllowedImports:    settings.Stage.Imports(),
		UploadConcurrency: settings.Stage.UploadConcurrency,
		UploadRate:        stage.NewUploadRate(settings.Stage.UploadRateLimit),
		FenceFile:         fence.File(),
		RequireHardFence:  settings.Stage.RequireHardFence,
		NewExecutionID:    config.NewExecutionID,
		WorkflowURL:       process.Config.WorkflowURL(),
		Staged: func(staged txn.Staged) {
			process.Metrics.Staged("added", staged.Added)
			process.Metrics.Staged("changed", staged.Changed)
			process.Metrics.Staged("removed", staged.Removed)
			process.Metrics.Staged("unchanged", staged.Unchanged)
			process.Metrics.StagedBytes(staged.Bytes)
		},
	}
	directories := &cleanup.Directories{
		Workflows: server, TTL: settings.Sweep.TTL, UnknownTTL: settings.Sweep.UnknownTTL, Now: time.Now,
		Decided: func(name string, state cleanup.State, reason string) {
			process.Metrics.DirectoryDecided(string(state))
			level := slog.LevelInfo
			switch state {
			case cleanup.StateFailed:
				level = slog.LevelWarn
			case cleanup.StateKept:
				level = slog.LevelDebug
			}
			process.Log.Log(context.Background(), level, "directory decided",
				slog.String(telemetry.KeyWorkflow, name), slog.String(telemetry.KeyState, string(state)), slog.String(telemetry.KeyReason, reason))
		},
	}
	downloader := &checkout.Downloader{
		Lake:           lake,
		Allowed:        process.Config.Allowed(),
		Concurrency:    settings.Stage.UploadConcurrency,
		NewExecutionID: config.NewExecutionID,
	}
	return worker.Parts{
		Conductor: server, ConductorURL: settings.Conductor.ServerURL,
		ProgressInterval: settings.Stage.ProgressInterval, TaskLog: server,
		Handler: func(taskType txn.TaskType) worker.Handler {
			switch {
			case taskType.IsStage():
				return func(ctx context.Context, a *worker.Attempt) (map[string]any, error) {
					now, err := root.now()
					if err != nil {
						return nil, err
					}
					own := *stager
					own.Root = now
					result, err := own.Run(ctx, a.Task, a)
					return result.Output(), err
				}
			case taskType.IsCheckout():
				return func(ctx context.Context, a *worker.Attempt) (map[string]any, error) {
					now, err := root.now()
					if err != nil {
						return nil, err
					}
					own := *downloader
					own.Root = now
					result, err := own.Run(ctx, a.Task, a)
					return result.Output(), err
				}
			}
			return nil
		},
		Checks: []worker.Check{{Name: "lakefs", Run: lake.Ping}, {Name: "temporary directory", Run: temporary}, {Name: "workspace root", Run: root.check}},
		Background: []func(context.Context){func(ctx context.Context) {
			cleanup.Every(ctx, settings.Sweep.Interval, func(ctx context.Context) {
				now, err := root.now()
				if err != nil {
					process.Swept(ctx, 0, 0, 0, err)
					return
				}
				own := *directories
				own.Root = now
				swept, err := own.Sweep(ctx)
				process.Swept(ctx, swept.Deleted, swept.Kept, swept.Failed, err)
				if err == nil {
					process.Metrics.UnknownWorkflows(swept.Unknown)
				}
			})
		}},
		Close: root.close,
	}, nil
}

// temporary tries what a task with many files needs, so that a worker without a
// temporary directory takes no tasks instead of failing the large ones.
func temporary(context.Context) error {
	file, err := spool.Temporary()
	if err != nil {
		return err
	}
	return file.Close()
}
