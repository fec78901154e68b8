package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"perago/pkg/config"
	"perago/pkg/fence"
	"perago/pkg/lakefs"
	"perago/pkg/publish"
	"perago/pkg/txn"
	"perago/taskdefs"
)

// definition is the shipped publish TaskDef.
func definition() (*txn.TaskDefinition, error) {
	raw, err := taskdefs.Files.ReadFile("perago_publish.json")
	if err != nil {
		return nil, err
	}
	var shipped struct {
		ResponseTimeoutSeconds int64           `json:"responseTimeoutSeconds"`
		InputTemplate          json.RawMessage `json:"inputTemplate"`
	}
	if err := json.Unmarshal(raw, &shipped); err != nil {
		return nil, err
	}
	return &txn.TaskDefinition{Name: txn.TypePublish, ResponseTimeoutSeconds: shipped.ResponseTimeoutSeconds, InputTemplate: shipped.InputTemplate}, nil
}

// records is Conductor's record of one stage task.
type records map[txn.TaskID]txn.Task

func (r records) Task(_ context.Context, id txn.TaskID) (txn.Task, error) {
	task, ok := r[id]
	if !ok {
		return txn.Task{}, txn.ErrNotFound
	}
	return task, nil
}

type covered struct{ always }

func (covered) Cover(context.Context, time.Duration) error { return nil }

// publication stages a tree on a target, which costs one call, and times its
// publication: everything that publish does, and nothing of the upload.
func (b *bench) publication(ctx context.Context, repository txn.Repository, target txn.Branch, tree txn.MetaRangeID) (time.Duration, error) {
	input, err := b.lake.Head(ctx, repository, target)
	if err != nil {
		return 0, err
	}
	execution, err := config.NewExecutionID()
	if err != nil {
		return 0, err
	}
	key := txn.NewLogicalTaskKey(workflow, "bench_stage", 0)
	branch := txn.NewStagingName("bench", workflow, key, 0, execution).Branch()
	if err := b.lake.CreateBranch(ctx, repository, branch, input); err != nil {
		return 0, err
	}
	commit, err := b.lake.CommitTree(ctx, repository, branch, tree, "staged", txn.Record{
		Phase: txn.PhaseTry, Key: key, Workflow: workflow, Task: "stage", Execution: execution,
		InputRef: input, TargetBranch: target, Prefix: "data/", StagingBranch: branch,
	}.Metadata(""))
	if err != nil {
		return 0, err
	}
	staged := txn.Staged{
		Repository: repository, Branch: target, StagingBranch: branch, Commit: commit.ID, Key: key, InputRef: input, Prefix: "data/",
		Task: "stage", PollCount: 1, StartTime: 1, Execution: execution, Changed: 1,
	}
	workspace := txn.Workspace{Repository: repository, Branch: target}.At(input)
	stageOutput, err := json.Marshal(map[string]any{"workspace": workspace, "staged": staged})
	if err != nil {
		return 0, err
	}
	settings, err := definition()
	if err != nil {
		return 0, err
	}
	publisher := &publish.Publisher{
		Lake: lakefs.Settling{Client: b.lake.Client}, Identity: "bench", Allowed: txn.AllowList{"*"}, NewExecutionID: config.NewExecutionID,
		Fence: fence.Prover{Lake: b.lake.Client},
		Tasks: records{"stage": {
			ID: "stage", Workflow: workflow, Type: txn.TypeStage, ReferenceName: "bench_stage", Status: txn.TaskCompleted,
			PollCount: 1, StartTime: 1, Output: stageOutput,
		}},
	}
	began := time.Now()
	result, err := publisher.Run(ctx, txn.Task{
		ID: "publish", Workflow: workflow, Type: txn.TypePublish, ReferenceName: "bench_publish", Status: txn.TaskInProgress,
		PollCount: 1, StartTime: 1, Worker: "bench", Input: stageOutput, Definition: settings,
	}, covered{})
	took := time.Since(began)
	if err == nil && result.Publication.Outcome != txn.OutcomePublished {
		err = fmt.Errorf("the publication ended as %s", result.Publication.Outcome)
	}
	return took, err
}

// flat compares publications onto two targets; the ratio says how much longer the
// harder one takes, and its goal is not to be reached.
func (b *bench) flat(ctx context.Context, name string, easy, hard contender) error {
	// The harder one is ours here, so that a ratio below 1 is what it costs more.
	hard.goal = 0
	easy.goal = 1 / 1.5
	return b.compare(ctx, name, 1, "/s", hard, easy)
}

// commits lands so many commits on the target, the cheapest there are.
func (b *bench) commits(ctx context.Context, repository txn.Repository, count int) error {
	for range count {
		if _, err := b.lake.CommitUnchanged(ctx, repository, "main", "one of many", nil); err != nil {
			return err
		}
	}
	return nil
}

// trees are two trees of a repository that differ in so many objects.
func (b *bench) trees(ctx context.Context, repository txn.Repository, first txn.CommitID, name string, count int) ([2]txn.MetaRangeID, error) {
	var trees [2]txn.MetaRangeID
	for i := range trees {
		directory := fmt.Sprintf("%s-%d", name, i)
		if err := os.MkdirAll(filepath.Join(b.dir, string(workflow), directory), 0o755); err != nil {
			return trees, err
		}
		for n := range count {
			path := filepath.Join(b.dir, string(workflow), directory, fmt.Sprintf("f%06d", n))
			if err := os.WriteFile(path, fmt.Appendf(nil, "%d of %d", n, i), 0o644); err != nil {
				return trees, err
			}
		}
		_, staged, _, err := b.self(ctx, job{
			Kind: "ours", Repository: string(repository), Ref: string(first), Prefix: "data/",
			Root: b.dir, Directory: directory, Concurrency: ourConcurrency,
		})
		if err != nil {
			return trees, err
		}
		commit, err := b.lake.Commit(ctx, repository, txn.CommitID(staged.Commit))
		if err != nil {
			return trees, err
		}
		trees[i] = commit.MetaRange
	}
	return trees, nil
}

// target is a repository whose main is published to by turns with two trees.
func (b *bench) target(ctx context.Context, name string, objects, commits int) (contender, error) {
	repository, first, err := b.repository(ctx, name)
	if err != nil {
		return contender{}, err
	}
	trees, err := b.trees(ctx, repository, first, name, objects)
	if err != nil {
		return contender{}, err
	}
	if err := b.commits(ctx, repository, commits); err != nil {
		return contender{}, err
	}
	turn := 0
	return contender{name: name, run: func(ctx context.Context) (time.Duration, error) {
		// One publication is short: the median of several is one figure.
		var all []time.Duration
		for range 5 {
			turn++
			took, err := b.publication(ctx, repository, "main", trees[turn%2])
			if err != nil {
				return 0, err
			}
			all = append(all, took)
		}
		return median(all), nil
	}}, nil
}

func (b *bench) pair(ctx context.Context, name string, easyName string, easyObjects, easyCommits int, hardName string, hardObjects, hardCommits int) error {
	var easy, hard contender
	var group errgroup.Group
	group.Go(func() (err error) {
		easy, err = b.target(ctx, easyName, easyObjects, easyCommits)
		return err
	})
	group.Go(func() (err error) {
		hard, err = b.target(ctx, hardName, hardObjects, hardCommits)
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	return b.flat(ctx, name, easy, hard)
}

// longHistory publishes onto a target with a short history and a long one.
func longHistory(ctx context.Context, b *bench, name string) error {
	return b.pair(ctx, name, "history-10", 1, 10, "history-10000", 1, 10_000/b.scale)
}

// manyChanges publishes one changed object and many.
func manyChanges(ctx context.Context, b *bench, name string) error {
	return b.pair(ctx, name, "changes-1", 1, 0, "changes-10000", 10_000/b.scale, 0)
}
