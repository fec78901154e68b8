package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/telemetry"
	"perago/pkg/txn"
	"perago/pkg/worker"
)

// A task that Conductor has lost is counted and logged until it is put back. A search
// that fails is an error of the sweep, and leaves the count alone.
func TestSearch_CountsLostTasks(t *testing.T) {
	t.Parallel()
	const kind, domain = txn.TaskType("perago_publish_large"), "gpu"
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	server := conductortest.New(func() time.Time { return now })
	down := false
	address := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down && strings.HasSuffix(r.URL.Path, "/queue/all") {
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(address.Close)
	client, err := conductor.New(conductor.Config{ServerURL: address.URL}, nil)
	no := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	no(err)
	t.Cleanup(client.CloseIdleConnections)
	definition, err := json.Marshal(map[string]any{
		"name": "w", "version": 1, "schemaVersion": 2, "ownerEmail": "perago@example.com",
		"tasks": []any{map[string]any{"name": kind, "taskReferenceName": "publish", "type": "SIMPLE"}},
	})
	no(err)
	no(client.PutWorkflowDefinition(t.Context(), definition))
	id, err := client.StartWorkflow(t.Context(), conductor.StartRequest{
		Name: "w", Version: 1, Input: json.RawMessage("{}"), TaskToDomain: map[string]string{string(kind): domain},
	})
	no(err)
	workflow, err := client.Workflow(t.Context(), id)
	no(err)

	var log bytes.Buffer
	metrics := telemetry.NewMetrics()
	s := &search{
		server: client, now: func() time.Time { return now }, last: now,
		process: &worker.Process{Metrics: metrics, Log: slog.New(slog.NewTextHandler(&log, nil))},
	}
	poll := func() int {
		t.Helper()
		tasks, err := client.Poll(t.Context(), txn.PollRequest{Type: kind, Domain: domain, Worker: "w", Count: 1})
		no(err)
		return len(tasks)
	}
	counts := func(want int) {
		t.Helper()
		recorder := httptest.NewRecorder()
		telemetry.NewHealthHandler(metrics.Registry(), nil).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		shown := strings.Contains(recorder.Body.String(), fmt.Sprintf("\nperago_lost_tasks{task=%q} %d\n", kind, want))
		if none := want == 0 && !strings.Contains(recorder.Body.String(), string(kind)); !shown && !none {
			t.Errorf("the metrics do not count %d lost tasks", want)
		}
	}

	says := func(message string) {
		t.Helper()
		for _, want := range []string{message, string(id), string(workflow.Tasks[0].ID), domain} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %q: %s", want, &log)
			}
		}
		log.Reset()
	}

	now = now.Add(10 * time.Minute)
	no(s.run(t.Context()))
	counts(0) // it is in its queue

	server.Lose(workflow.Tasks[0].ID)
	now = now.Add(searchPause - 1)
	no(s.run(t.Context()))
	counts(0) // the last search was a moment ago
	now = now.Add(1)
	no(s.run(t.Context()))
	counts(1) // no worker polls, so it is not known to be lost; 0 would be an all-clear
	says("task waits: its queue is empty, and no worker polls it")

	now = now.Add(searchPause)
	if n := poll(); n != 0 {
		t.Fatalf("polled %d tasks, want none", n)
	}
	no(s.run(t.Context()))
	counts(1)
	says("task lost: Conductor has it scheduled, and its queue is empty")

	now, down = now.Add(searchPause), true
	if err := s.run(t.Context()); err == nil || !strings.Contains(err.Error(), "look for lost tasks: read the queues") {
		t.Errorf("a search without the queues: %v", err)
	}
	counts(1)

	now, down = now.Add(searchPause), false
	_, err = conductortest.NewOperator(address.URL, nil).Do(t.Context(), http.MethodPost, "/tasks/queue/requeue/"+string(kind), nil)
	no(err)
	no(s.run(t.Context()))
	counts(0)
	if n := poll(); n != 1 {
		t.Errorf("polled %d tasks, want the one that was put back", n)
	}
}
