package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/txn"
	"perago/pkg/worker"
)

// emptyTypes are three task types that a worker completes without doing anything.
var emptyTypes = []txn.TaskType{"perago_cleanup_empty_1", "perago_cleanup_empty_2", "perago_cleanup_empty_3"}

// empty is a worker of those types, made of the same parts as the real ones.
func empty() int {
	type config struct{ Conductor conductor.Config }
	return worker.Run(context.Background(), worker.Program[config]{
		Name: "empty-worker", Summary: "completes tasks without doing anything.", TaskTypes: emptyTypes, HTTPAddr: "127.0.0.1:0",
		Build: func(_ context.Context, _ *worker.Process, c *config) (worker.Parts, error) {
			server, err := conductor.New(c.Conductor, nil)
			if err != nil {
				return worker.Parts{}, err
			}
			return worker.Parts{
				Conductor: server, ConductorURL: c.Conductor.ServerURL,
				Handler: func(txn.TaskType) worker.Handler {
					return func(context.Context, *worker.Attempt) (map[string]any, error) { return map[string]any{}, nil }
				},
			}, nil
		},
	}, os.LookupEnv, nil, os.Stdout, os.Stderr)
}

// wholeStep is stage, publish and cleanup of one object through Conductor, by the
// built workers, against three tasks that do nothing, by a worker of the same
// parts and settings. Both begin with the same user's task, and the time is
// Conductor's, from that task's end to the workflow's.
func wholeStep(ctx context.Context, b *bench, name string) error {
	s, stop, err := b.steps(ctx, name, 1)
	defer stop()
	if err != nil {
		return err
	}
	run := func(definition string) func(context.Context) (time.Duration, error) {
		return func(ctx context.Context) (time.Duration, error) {
			// One workflow is short: the median of several is one figure.
			var all []time.Duration
			for range 9 {
				id, err := s.begin(ctx, definition, "main")
				if err == nil {
					err = s.wait(ctx, id)
				}
				if err != nil {
					return 0, err
				}
				took, err := s.took(ctx, id)
				if err != nil {
					return 0, err
				}
				all = append(all, took)
			}
			return median(all), nil
		}
	}
	// A Conductor that has just started compiles what it runs.
	for range 3 {
		for _, definition := range []string{"step", "empty"} {
			if _, err := run(s.name(definition))(ctx); err != nil {
				return err
			}
		}
	}
	// The ratio is what a step costs over the empty tasks, turned round: at least
	// 1/1.5.
	return b.compare(ctx, name, 1, "/s", contender{name: "perago", run: run(s.name("step"))}, contender{name: "three empty tasks", goal: 1 / 1.5, run: run(s.name("empty"))})
}

// scaled is the publications per second of many workflows at once, each on a
// branch of its own, by 1, 2 and 4 processes of each worker, against as many
// workflows of three empty tasks by as many processes of the worker that does
// nothing: the most that Conductor gives here.
func scaled(ctx context.Context, b *bench, name string) error {
	for _, replicas := range []int{1, 2, 4} {
		if err := b.scaledTo(ctx, name, replicas); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) scaledTo(ctx context.Context, name string, replicas int) error {
	s, stop, err := b.steps(ctx, name, replicas)
	defer stop()
	if err != nil {
		return err
	}
	count := 160 / b.scale
	run := func(definition string) func(context.Context) (time.Duration, error) {
		return func(ctx context.Context) (time.Duration, error) {
			head, err := s.lake.Head(ctx, s.repository, "main")
			if err != nil {
				return 0, err
			}
			branches := make([]txn.Branch, count)
			for i := range branches {
				branches[i] = txn.Branch(unique("scale"))
				if err := s.lake.CreateBranch(ctx, s.repository, branches[i], head); err != nil {
					return 0, err
				}
			}
			began := time.Now()
			workflows := make([]txn.WorkflowID, count)
			var starts errgroup.Group
			starts.SetLimit(8)
			for i, branch := range branches {
				starts.Go(func() (err error) {
					workflows[i], err = s.begin(ctx, definition, branch)
					return err
				})
			}
			if err := starts.Wait(); err != nil {
				return 0, err
			}
			for _, id := range workflows {
				if err := s.wait(ctx, id); err != nil {
					return 0, err
				}
			}
			return time.Since(began), nil
		}
	}
	return b.compare(ctx, fmt.Sprintf("%s replicas=%d", name, replicas), float64(count), "/s",
		contender{name: "perago", run: run(s.name("step"))}, contender{name: "three empty tasks", run: run(s.name("empty"))})
}

type steps struct {
	*bench
	domain     string
	repository txn.Repository
	conductor  *conductor.Client
	operator   *conductortest.Operator
}

// steps starts so many processes of each worker, and what they need. stop is never
// nil.
func (b *bench) steps(ctx context.Context, name string, replicas int) (s *steps, stop func(), err error) {
	s = &steps{bench: b, domain: unique("bench"), operator: conductortest.NewOperator(b.servers.ConductorURL, nil)}
	if s.conductor, err = conductor.New(conductor.Config{ServerURL: b.servers.ConductorURL}, nil); err != nil {
		return nil, func() {}, err
	}
	if s.repository, _, err = b.repository(ctx, name); err != nil {
		return nil, func() {}, err
	}
	stop, err = s.start(ctx, replicas)
	return s, stop, err
}

func (s *steps) name(kind string) string { return "bench_" + kind + "_" + s.domain }

// start registers the definitions, and starts the workers and the user's task.
func (s *steps) start(ctx context.Context, replicas int) (stop func(), err error) {
	var running []*exec.Cmd
	ctx, cancel := context.WithCancel(ctx)
	var served sync.WaitGroup
	stop = func() {
		cancel()
		s.running.workers = nil
		for _, command := range running {
			_ = command.Process.Signal(os.Interrupt) // it may have ended
			_ = command.Wait()                       // its end is not what is measured
		}
		served.Wait()
	}
	binaries := filepath.Join(s.dir, "bin") + string(filepath.Separator)
	if _, _, _, err := process(ctx, nil, "go", "build", "-o", binaries, "perago/cmd/..."); err != nil {
		return stop, err
	}
	if err := s.register(ctx); err != nil {
		return stop, err
	}
	root := filepath.Join(s.dir, "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return stop, err
	}
	self, err := os.Executable()
	if err != nil {
		return stop, err
	}
	worker := [][]string{{binaries + "stage-worker"}, {binaries + "publish-worker"}, {binaries + "cleanup-worker"}, {self, childFlag, "empty"}}
	for _, arguments := range slices.Repeat(worker, replicas) {
		command := exec.Command(arguments[0], arguments[1:]...)
		command.Env = append(os.Environ(),
			"CONDUCTOR_SERVER_URL="+s.servers.ConductorURL, "LAKECTL_SERVER_ENDPOINT_URL="+s.servers.LakeFSURL,
			"LAKECTL_CREDENTIALS_ACCESS_KEY_ID="+s.servers.AccessKeyID, "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY="+s.servers.SecretAccessKey,
			"PERAGO_ALLOWED_REPOSITORIES="+string(s.repository), "PERAGO_WORKSPACE_ROOT="+root, "PERAGO_HTTP_ADDR=127.0.0.1:0",
			"PERAGO_DOMAINS="+s.domain, "PERAGO_CONDUCTOR_ID="+s.domain, "PERAGO_LOG_LEVEL=error")
		if err := command.Start(); err != nil {
			return stop, err
		}
		running = append(running, command)
		s.running.workers = append(s.running.workers, command.Process.Pid)
	}
	for range 4 {
		served.Go(func() { s.serve(ctx, root) })
	}
	return stop, nil
}

// serve is the user's task: a file of its own each time.
func (s *steps) serve(ctx context.Context, root string) {
	for ctx.Err() == nil {
		tasks, err := s.conductor.Poll(ctx, txn.PollRequest{Type: "bench_user", Domain: s.domain, Worker: "bench", Count: 1})
		if err != nil || len(tasks) == 0 {
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
			continue
		}
		task := tasks[0]
		directory := filepath.Join(root, string(task.Workflow), string(task.ID))
		result := txn.TaskResult{Task: task.ID, Workflow: task.Workflow, Worker: "bench", Status: txn.TaskCompleted, Output: map[string]any{"directory": directory}}
		err = os.MkdirAll(directory, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(directory, "a"), []byte(task.ID), 0o644)
		}
		if err != nil {
			result.Status, result.Reason = txn.TaskFailedWithTerminalError, err.Error()
		}
		if err := s.conductor.Update(ctx, result); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}
}

func (s *steps) register(ctx context.Context) error {
	env := []string{"CONDUCTOR_SERVER_URL=" + s.servers.ConductorURL}
	if _, _, _, err := process(ctx, env, filepath.Join(s.dir, "bin", "perago"), "register"); err != nil {
		return err
	}
	var definitions []map[string]any
	for _, taskType := range append([]txn.TaskType{"bench_user"}, emptyTypes...) {
		definitions = append(definitions, map[string]any{
			"name": taskType, "ownerEmail": "perago@example.com", "retryCount": 0, "timeoutSeconds": 0, "responseTimeoutSeconds": 60, "timeoutPolicy": "RETRY",
		})
	}
	if err := s.accept(s.operator.Do(ctx, http.MethodPost, "/metadata/taskdefs", definitions)); err != nil {
		return err
	}
	simple := func(taskType txn.TaskType, reference string, input map[string]any) map[string]any {
		return map[string]any{"name": taskType, "taskReferenceName": reference, "type": "SIMPLE", "inputParameters": input}
	}
	staged := map[string]any{"workspace": "${stage.output.workspace}", "staged": "${stage.output.staged}"}
	user := simple("bench_user", "user", nil)
	workflows := []map[string]any{
		{"name": s.name("step"), "tasks": []any{user,
			simple(txn.TypeStage, "stage", map[string]any{"workspace": "${workflow.input.workspace}", "prefix": "data/", "source": map[string]any{"directory": "${user.output.directory}"}}),
			simple(txn.TypePublish, "publish", staged), simple(txn.TypeCleanup, "cleanup", staged)}},
		{"name": s.name("empty"), "tasks": []any{user, simple(emptyTypes[0], "one", nil), simple(emptyTypes[1], "two", nil), simple(emptyTypes[2], "three", nil)}},
	}
	for _, workflow := range workflows {
		workflow["version"], workflow["schemaVersion"], workflow["ownerEmail"] = 1, 2, "perago@example.com"
		workflow["timeoutPolicy"], workflow["timeoutSeconds"] = "ALERT_ONLY", 0
		raw, err := json.Marshal(workflow)
		if err != nil {
			return err
		}
		if err := s.conductor.PutWorkflowDefinition(ctx, raw); err != nil {
			return err
		}
	}
	return nil
}

func (s *steps) accept(answer conductortest.Answer, err error) error {
	if err == nil && answer.Status >= 300 {
		err = fmt.Errorf("conductor answered %d: %s", answer.Status, answer.Body)
	}
	return err
}

// begin starts a workflow whose target is the branch.
func (s *steps) begin(ctx context.Context, name string, branch txn.Branch) (txn.WorkflowID, error) {
	head, err := s.lake.Head(ctx, s.repository, branch)
	if err != nil {
		return "", err
	}
	input, err := json.Marshal(map[string]any{"workspace": txn.Workspace{Repository: s.repository, Branch: branch}.At(head)})
	if err != nil {
		return "", err
	}
	return s.conductor.StartWorkflow(ctx, conductor.StartRequest{Name: name, Version: 1, Input: input, TaskToDomain: map[string]string{"*": s.domain}})
}

// forgotten is how long a workflow may take before Conductor is asked to look at it.
// Under load it misses the end of a workflow's last task now and then, and one such
// workflow of some thousands must not cost the whole run its figures.
const forgotten = 20 * time.Second

// wait returns when the workflow has completed.
func (s *steps) wait(ctx context.Context, id txn.WorkflowID) error {
	asked := time.Now()
	deadline := asked.Add(4 * time.Minute)
	for {
		if time.Since(asked) > forgotten {
			asked = time.Now()
			fmt.Fprintf(os.Stderr, "bench: workflow %s does not end; Conductor is asked to look at it\n", id)
			_ = s.operator.Decide(ctx, id) // it refuses where the workflow has just ended
		}
		status, err := s.conductor.WorkflowStatus(ctx, id)
		switch {
		case err != nil:
			return err
		case status == txn.WorkflowCompleted:
			return nil
		case status.Terminal() || time.Now().After(deadline):
			answer, err := s.operator.Do(ctx, http.MethodGet, "/workflow/"+string(id)+"?includeTasks=true", nil)
			return errors.Join(fmt.Errorf("workflow %s is %s: %s", id, status, answer.Body), err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// took is from the end of the user's task to the end of the last one, by
// Conductor's clock.
func (s *steps) took(ctx context.Context, id txn.WorkflowID) (time.Duration, error) {
	answer, err := s.operator.Do(ctx, http.MethodGet, "/workflow/"+string(id)+"?includeTasks=true", nil)
	if err := s.accept(answer, err); err != nil {
		return 0, err
	}
	var workflow struct {
		Tasks []struct {
			EndTime int64 `json:"endTime"`
		} `json:"tasks"`
	}
	if err := json.Unmarshal(answer.Body, &workflow); err != nil {
		return 0, err
	}
	if n := len(workflow.Tasks); n != 4 {
		return 0, fmt.Errorf("workflow %s has %d tasks: %s", id, n, strings.TrimSpace(string(answer.Body)))
	}
	return time.Duration(workflow.Tasks[3].EndTime-workflow.Tasks[0].EndTime) * time.Millisecond, nil
}
