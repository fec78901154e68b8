package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// user does users' tasks, as users do: they fail, they are slow, and what they make
// is never the same twice, unless it is what it always is.
func (s *soak) user(ctx context.Context, random *rand.Rand) {
	worker := txn.WorkerID("user-" + token(random))
	for ctx.Err() == nil {
		tasks, err := s.conductor.Poll(ctx, txn.PollRequest{Type: userTask, Domain: s.name, Worker: worker, Count: 1})
		if err != nil || len(tasks) == 0 {
			pause(ctx, 100*time.Millisecond)
			continue
		}
		task := tasks[0]
		result := txn.TaskResult{Task: task.ID, Workflow: task.Workflow, Worker: worker, Status: txn.TaskCompleted}
		switch fate := random.IntN(100); {
		case fate < 8:
			s.counts.add("user task failed")
			result.Status, result.Reason = txn.TaskFailed, "the user's task fails at times"
		case fate < 16:
			s.counts.add("user task slow")
			pause(ctx, time.Duration(1+random.IntN(5))*time.Second)
		}
		if result.Status == txn.TaskCompleted {
			// A rerun hands out the same task again: what an older execution of it
			// made stays where it is.
			directory := filepath.Join(s.root, string(task.Workflow), string(task.ID)+"-"+token(random))
			files := made(random)
			if err := write(directory, files); err != nil {
				result.Status, result.Reason = txn.TaskFailed, err.Error()
			} else {
				s.record.wrote(directory, files)
				result.Output = map[string]any{"directory": directory}
			}
		}
		// Nobody knows whether it arrived: if not, the task comes back.
		_ = s.conductor.Update(context.WithoutCancel(ctx), result)
	}
}

// made is what an attempt of a user's task makes: some files that are always there,
// some that only it has, in directories of which a name is a file's elsewhere.
func made(random *rand.Rand) map[string]string {
	files := map[string]string{"same": "always the same", "changing": token(random)}
	if random.IntN(6) == 0 {
		files["changing"] = "what it always is"
		return files
	}
	for range random.IntN(10) {
		files[fmt.Sprintf("d%d/%s", random.IntN(3), token(random))] = token(random)
	}
	if random.IntN(2) == 0 {
		files["file-or-directory"] = token(random)
	} else {
		files["file-or-directory/inside"] = token(random)
	}
	for range random.IntN(3) {
		files[fmt.Sprint("kept-", random.IntN(6))] = fmt.Sprint(random.IntN(2))
	}
	return files
}

func write(directory string, files map[string]string) error {
	for path, content := range files {
		path = filepath.Join(directory, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// somebodyElse commits to the branches as people do who have never heard of all
// this: they merge a branch of their own.
func (s *soak) somebodyElse(ctx context.Context, random *rand.Rand) {
	for pause(ctx, time.Duration(4+random.IntN(8))*time.Second) {
		target := s.targets[random.IntN(len(s.targets))]
		if err := s.foreign(ctx, target, random); err == nil {
			s.counts.add("foreign commit")
		}
	}
}

// foreign may fail at any point: a server restarts, or the branch has moved.
func (s *soak) foreign(ctx context.Context, target target, random *rand.Rand) error {
	head, err := s.lake.Head(ctx, target.repository, target.branch)
	if err != nil {
		return err
	}
	branch := txn.Branch("somebody-" + token(random))
	if err := s.lake.CreateBranch(ctx, target.repository, branch, head); err != nil {
		return err
	}
	// Both inside and outside of what the steps own.
	path := [...]string{"foreign/0", "foreign/1", "a/same", "b/theirs"}[random.IntN(4)]
	if _, err := s.lake.Upload(ctx, target.repository, branch, path, lakefstest.Text(token(random))); err != nil {
		return err
	}
	commit, err := s.lake.CreateCommit(ctx, target.repository, branch, "by somebody else", nil)
	if err != nil {
		return err
	}
	if _, err := s.lake.Merge(ctx, txn.Merge{Repository: target.repository, Source: commit.ID, Destination: target.branch, Message: "by somebody else"}); err != nil {
		return err
	}
	return s.lake.DeleteBranch(ctx, target.repository, branch)
}
