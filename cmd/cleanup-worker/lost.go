package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"perago/pkg/survey"
	"perago/pkg/telemetry"
	"perago/pkg/txn"
	"perago/pkg/worker"
)

const (
	// searchPause is the least time between two searches: each reads every open
	// workflow, and sweeps may come once a second.
	searchPause = time.Minute
	// searchTime is how long one search may take before the sweep goes on without it.
	searchTime = 5 * time.Minute
)

// search looks for the tasks that Conductor has lost from their queues.
type search struct {
	server  survey.Conductor
	process *worker.Process
	now     func() time.Time
	// last is the time of the last search, or of the worker's start.
	last time.Time
}

// run searches, unless it did so a moment ago. After an error the metrics are those of
// the last whole search. It is called by one goroutine.
func (s *search) run(ctx context.Context) error {
	if s.now().Sub(s.last) < searchPause {
		return nil
	}
	s.last = s.now()
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	found, err := survey.Search(ctx, s.server, s.now)
	if err != nil {
		return fmt.Errorf("look for lost tasks: %w", err)
	}
	lost := map[txn.TaskType]int{}
	for _, task := range found.Lost {
		lost[task.Type]++
		s.process.Log.Warn("task lost: Conductor has it scheduled, and its queue is empty", keys(task)...)
	}
	// These count too: a 0 would say that all is well. Polls also look old from a worker
	// whose clock is ahead of Conductor's.
	for _, task := range found.Unpolled {
		lost[task.Type]++
		s.process.Log.Warn("task waits: its queue is empty, and no worker polls it", keys(task)...)
	}
	s.process.Metrics.LostTasks(lost)
	s.process.Metrics.UnreadWorkflows(found.Unread)
	return nil
}

func keys(task txn.Task) []any {
	return []any{
		slog.String(telemetry.KeyWorkflow, string(task.Workflow)), slog.String(telemetry.KeyTask, string(task.ID)),
		slog.String(telemetry.KeyTaskType, string(task.Type)), slog.String(telemetry.KeyDomain, task.Domain),
	}
}
