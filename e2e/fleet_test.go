package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"perago/e2e/stack"
	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/credential"
	"perago/pkg/fault"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// fleet is one of each worker with everything of its own: domain, repository,
// identity and workspace root.
type fleet struct {
	t         testing.TB
	servers   stack.Servers
	domain    string
	root      string
	conductor *conductor.Client
	operator  *conductortest.Operator
	lake      *lakefs.Client
	repo      txn.Repository
	// first is the commit that the workflows of a test start from.
	first txn.CommitID
	// allowed is the workers' allow-list.
	allowed string
	// front is what stands before lakeFS for the workers behind proxies; nothing
	// when it is empty.
	front string

	stage, publish, cleanup *process

	started *started
}

// started are the workflows that a test has started.
type started struct {
	mu  sync.Mutex
	ids []txn.WorkflowID
}

// setup is what differs from one test's fleet to the next.
type setup struct {
	// files are the repository's at the input ref.
	files map[string]string
	// sweepTTL is the cleanup worker's; 0s when empty, so that a failed workflow
	// leaves no branch.
	sweepTTL string
	// expect is what the repository's check may find.
	expect []lakefstest.Expectation
	// without names the workers to leave out, for a test that starts its own.
	without string
	// repositories is the workers' allow-list; the fleet's own one when empty.
	repositories string
	// lakeFS are the settings of a lakeFS of the test's own; the shared one when
	// there are none.
	lakeFS []string
	// s3 is a lakeFS on an S3 server that the test has started instead.
	s3 *stack.OnS3
}

// newFleet is newFleetOf a repository with these files.
func newFleet(t testing.TB, files map[string]string) *fleet {
	t.Helper()
	return newFleetOf(t, setup{files: files})
}

// newFleetOf starts the three workers. At the end of the test they drain, and
// the repository's invariants are checked.
func newFleetOf(t testing.TB, s setup) *fleet {
	t.Helper()
	f := &fleet{t: t, servers: stack.Require(t), domain: "e2e-" + uuid.NewString(), root: t.TempDir(), started: &started{}}
	if len(s.lakeFS) > 0 {
		own := stack.StartLakeFS(t, s.lakeFS...)
		own.ConductorURL = f.servers.ConductorURL
		f.servers = own
	}
	store := "local://"
	if s.s3 != nil {
		own := s.s3.Servers
		own.ConductorURL = f.servers.ConductorURL
		f.servers, store = own, "s3://"+s.s3.Bucket+"/"
	}
	f.conductor, f.lake = clients(t, f.servers)
	f.operator = conductortest.NewOperator(f.servers.ConductorURL, nil)
	f.repo, f.first = lakefstest.NewRepositoryIn(t, f.lake, store, s.files, s.expect...)
	f.allowed = cmp.Or(s.repositories, string(f.repo))
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		f.look(t.Context())
	}()
	t.Cleanup(func() { <-looked })

	begin := func(name string, env ...string) *process {
		if strings.Contains(s.without, name) {
			return nil
		}
		p := start(t, name, f.env(env...)...)
		t.Cleanup(func() { f.stop(p) })
		return p
	}
	f.stage = begin("stage-worker", f.stageEnv()...)
	f.publish = begin("publish-worker", publishEnv)
	f.cleanup = begin("cleanup-worker", "PERAGO_SWEEP_TTL="+cmp.Or(s.sweepTTL, "0s"))
	for _, p := range []*process{f.stage, f.publish, f.cleanup} {
		if p != nil {
			p.ready()
		}
	}
	return f
}

// publishEnv and stageEnv are what each of these workers needs beside the rest.
const publishEnv = "PERAGO_TASK_TYPES=perago_publish,perago_publish_once,perago_publish_brief"

func (f *fleet) stageEnv() []string {
	return []string{"PERAGO_WORKSPACE_ROOT=" + f.root, "PERAGO_TASK_TYPES=perago_checkout,perago_stage,perago_stage_once,perago_stage_brief"}
}

// behind starts a worker that takes one task at a time and whose every request
// goes through a proxy of its own: one in front of each server.
func (f *fleet) behind(name string, env ...string) *fronted {
	f.t.Helper()
	p := f.behindHeld(name, func(*fronted) {}, env...)
	p.ready()
	return p
}

// behindHeld is behind, for a worker that finds a task waiting: hold is called before
// the worker starts. The task may take its only slot before it is ready.
func (f *fleet) behindHeld(name string, hold func(*fronted), env ...string) *fronted {
	f.t.Helper()
	p := &fronted{}
	address := func(proxy **fault.Proxy, target string) string {
		made, err := fault.NewProxy(target)
		if err != nil {
			f.t.Fatal(err)
		}
		server := httptest.NewServer(made)
		f.t.Cleanup(server.Close)
		f.t.Cleanup(made.Release)
		*proxy = made
		return server.URL
	}
	env = append(append([]string{"PERAGO_CONCURRENCY=1"}, env...),
		"CONDUCTOR_SERVER_URL="+address(&p.conductor, f.servers.ConductorURL),
		"LAKECTL_SERVER_ENDPOINT_URL="+address(&p.lake, cmp.Or(f.front, f.servers.LakeFSURL)))
	hold(p)
	p.process = start(f.t, name, f.env(env...)...)
	return p
}

// fronted is a worker behind proxies.
type fronted struct {
	*process
	conductor, lake *fault.Proxy
}

// kill ends the worker at once, as a crash would.
func (p *fronted) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatalf("kill %s: %v", p.name, err)
	}
	<-p.done
}

// What a test stops a worker at.
var (
	completion = fault.Match{Method: http.MethodPost, Path: "/api/tasks", Body: `"COMPLETED"`}
	merge      = fault.Match{Method: http.MethodPost, Path: "/merge/main"}
	headOfMain = fault.Match{Method: http.MethodGet, Path: "/branches/main"}
)

// stop drains a worker and looks at what it wrote.
func (f *fleet) stop(p *process) {
	f.t.Helper()
	p.drain()
	if strings.Contains(p.stderr(), f.servers.SecretAccessKey) {
		f.t.Errorf("the log of %s holds the lakeFS secret", p.name)
	}
	if strings.Contains(p.stderr(), "DATA RACE") {
		f.t.Errorf("%s has a data race", p.name)
	}
}

func clients(t testing.TB, servers stack.Servers) (*conductor.Client, *lakefs.Client) {
	t.Helper()
	server, err := conductor.New(conductor.Config{ServerURL: servers.ConductorURL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	lake, err := lakefs.New(lakefs.Config{
		Endpoint: servers.LakeFSURL, AccessKeyID: credential.New(servers.AccessKeyID), SecretAccessKey: credential.New(servers.SecretAccessKey),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return server, lake
}

// env is a worker's environment; later entries win.
func (f *fleet) env(more ...string) []string {
	return append(workerEnv(f.servers, "PERAGO_DOMAINS="+f.domain, "PERAGO_CONDUCTOR_ID="+f.domain, "PERAGO_ALLOWED_REPOSITORIES="+f.allowed), more...)
}

func workerEnv(servers stack.Servers, more ...string) []string {
	return append([]string{
		"HOME=" + os.Getenv("HOME"),
		"CONDUCTOR_SERVER_URL=" + servers.ConductorURL,
		"LAKECTL_SERVER_ENDPOINT_URL=" + servers.LakeFSURL,
		"LAKECTL_CREDENTIALS_ACCESS_KEY_ID=" + servers.AccessKeyID,
		"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY=" + servers.SecretAccessKey,
		"PERAGO_ALLOWED_REPOSITORIES=*",
		"PERAGO_HTTP_ADDR=127.0.0.1:0",
	}, more...)
}

// user serves a user's task type for the rest of the test: it writes what files
// gives below <root>/<workflow id>/<task id>/ and completes with that directory.
func (f *fleet) user(taskType txn.TaskType, files func(txn.Task) map[string]string) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() {
		for ctx.Err() == nil {
			tasks, err := f.conductor.Poll(ctx, txn.PollRequest{Type: taskType, Domain: f.domain, Worker: "user", Count: 1, Wait: 100 * time.Millisecond})
			if err != nil && ctx.Err() == nil {
				f.t.Errorf("poll %s: %v", taskType, err)
				return
			}
			for _, task := range tasks {
				directory := filepath.Join(f.root, string(task.Workflow), string(task.ID))
				// A rerun hands out the same task id: what the run before wrote must go.
				if err := os.RemoveAll(directory); err != nil {
					f.t.Error(err)
				}
				write(f.t, directory, files(task))
				if err := f.conductor.Update(ctx, txn.TaskResult{
					Task: task.ID, Workflow: task.Workflow, Worker: "user", Status: txn.TaskCompleted,
					Output: map[string]any{"directory": directory},
				}); err != nil && ctx.Err() == nil {
					f.t.Errorf("complete %s: %v", taskType, err)
				}
			}
		}
	})
	f.t.Cleanup(func() { cancel(); wait.Wait() })
}

// write makes a directory with these files, path to content. A path that ends in
// a slash is an empty directory.
func write(t testing.TB, directory string, files map[string]string) {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		t.Error(err)
		return
	}
	for path, content := range files {
		full := filepath.Join(directory, path)
		if strings.HasSuffix(path, "/") {
			if err := os.MkdirAll(full, 0o755); err != nil {
				t.Error(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Error(err)
			continue
		}
		if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// workspace is the target main at a commit, as a workflow's input.
func (f *fleet) workspace(ref txn.CommitID) map[string]any {
	return map[string]any{"repository": f.repo, "branch": lakefstest.DefaultBranch, "ref_type": "commit", "ref": ref}
}

// start starts a workflow with every task of it in the fleet's domain.
func (f *fleet) start(name string, input map[string]any) txn.WorkflowID {
	f.t.Helper()
	raw, err := json.Marshal(input)
	if err != nil {
		f.t.Fatal(err)
	}
	id, err := f.conductor.StartWorkflow(f.t.Context(), conductor.StartRequest{
		Name: name, Version: 1, Input: raw, TaskToDomain: map[string]string{"*": f.domain},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.watch(id)
	return id
}

// watch has Conductor look at a workflow for the rest of the test.
func (f *fleet) watch(id txn.WorkflowID) {
	f.started.mu.Lock()
	defer f.started.mu.Unlock()
	if !slices.Contains(f.started.ids, id) {
		f.started.ids = append(f.started.ids, id)
	}
}

// look asks Conductor to look at each workflow of the test in which nothing has
// happened since the last time. On its embedded queue Conductor's own sweeper
// may leave a workflow alone for minutes, and whatever a test waits for, a task,
// a request that is held or an end, waits for that.
func (f *fleet) look(ctx context.Context) {
	seen := map[txn.WorkflowID]string{}
	for tick := time.NewTicker(4 * time.Second); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		f.started.mu.Lock()
		ids := slices.Clone(f.started.ids)
		f.started.mu.Unlock()
		for _, id := range ids {
			// What goes wrong here goes wrong again where the test itself asks.
			workflow, err := f.conductor.Workflow(ctx, id)
			if err != nil || workflow.Status.Terminal() {
				continue
			}
			if now := describe(workflow); now != seen[id] {
				seen[id] = now
				continue
			}
			_ = f.operator.Decide(ctx, id)
		}
	}
}

// end waits for a workflow, and for the failure workflow it started, if any.
func (f *fleet) end(id txn.WorkflowID) txn.Workflow {
	f.t.Helper()
	var workflow txn.Workflow
	eventually(f.t, 2*waitTime, "workflow "+string(id)+" ends", func() (bool, string) {
		var err error
		if workflow, err = f.conductor.Workflow(f.t.Context(), id); err != nil {
			f.t.Fatal(err)
		}
		return workflow.Status.Terminal(), describe(workflow)
	})
	if workflow.Status == txn.WorkflowFailed {
		if cancelled := f.failureWorkflow(id); cancelled.Status != txn.WorkflowCompleted {
			f.t.Errorf("the failure workflow is %s", describe(cancelled))
		}
	}
	return workflow
}

// failureWorkflow waits for the workflow that a failed one started, and for its
// end. Conductor says FAILED a moment before it names the failure workflow.
func (f *fleet) failureWorkflow(failed txn.WorkflowID) txn.Workflow {
	f.t.Helper()
	var output struct {
		Failure txn.WorkflowID `json:"conductor.failure_workflow"`
	}
	eventually(f.t, waitTime, "a failure workflow is started for "+string(failed), func() (bool, string) {
		workflow, err := f.conductor.Workflow(f.t.Context(), failed)
		if err != nil {
			f.t.Fatal(err)
		}
		if len(workflow.Output) > 0 {
			decode(f.t, workflow.Output, &output)
		}
		return output.Failure != "", string(workflow.Output)
	})
	// Conductor started it, and may miss its end like any other's.
	f.watch(output.Failure)
	return f.end(output.Failure)
}

// run starts a workflow and waits for its end.
func (f *fleet) run(name string, input map[string]any) txn.Workflow {
	f.t.Helper()
	return f.end(f.start(name, input))
}

// completed runs a workflow that must complete.
func (f *fleet) completed(name string, input map[string]any) txn.Workflow {
	f.t.Helper()
	workflow := f.run(name, input)
	if workflow.Status != txn.WorkflowCompleted {
		f.t.Fatalf("not completed: %s", describe(workflow))
	}
	return workflow
}

func describe(workflow txn.Workflow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s %s", workflow.Name, workflow.ID, workflow.Status, workflow.Reason)
	for _, task := range workflow.Tasks {
		fmt.Fprintf(&b, "\n  %s try %d poll %d %s %s", task.ReferenceName, task.RetryCount, task.PollCount, task.Status, task.Reason)
	}
	return b.String()
}

// last is the newest try of a task.
func last(t testing.TB, workflow txn.Workflow, reference txn.ReferenceName) txn.Task {
	t.Helper()
	for i := len(workflow.Tasks) - 1; i >= 0; i-- {
		if workflow.Tasks[i].ReferenceName == reference {
			return workflow.Tasks[i]
		}
	}
	t.Fatalf("no task %s in %s", reference, describe(workflow))
	return txn.Task{}
}

// output is a task's output, as our workers write it.
type output struct {
	Workspace   *txn.Workspace   `json:"workspace"`
	Staged      txn.Staged       `json:"staged"`
	Publication *txn.Publication `json:"publication"`
	Deleted     []txn.Branch     `json:"deleted"`
	Kept        []any            `json:"kept"`
	Errors      []string         `json:"errors"`
	Timings     map[string]any   `json:"timings"`
}

func outputOf(t testing.TB, task txn.Task) output {
	t.Helper()
	var o output
	if len(task.Output) > 0 {
		if err := json.Unmarshal(task.Output, &o); err != nil {
			t.Fatalf("the output of %s: %v", task.ReferenceName, err)
		}
	}
	return o
}

func (f *fleet) head() txn.CommitID {
	f.t.Helper()
	head, err := f.lake.Head(f.t.Context(), f.repo, lakefstest.DefaultBranch)
	if err != nil {
		f.t.Fatal(err)
	}
	return head
}

// commitForeign commits files to main as somebody else would.
func (f *fleet) commitForeign(files map[string]string) txn.CommitID {
	f.t.Helper()
	lakefstest.Put(f.t, f.lake, f.repo, lakefstest.DefaultBranch, files)
	commit, err := f.lake.CreateCommit(f.t.Context(), f.repo, lakefstest.DefaultBranch, "somebody else's", nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return commit.ID
}

// history is how many commits main holds above the first.
func (f *fleet) history() int {
	f.t.Helper()
	commits, reached, err := f.lake.History(f.t.Context(), f.repo, f.head(), f.first, txn.HistoryLimit)
	if err != nil || !reached {
		f.t.Fatalf("history: reached %v, %v", reached, err)
	}
	return len(commits)
}

// record is the metadata of a commit of ours.
func (f *fleet) record(id txn.CommitID) txn.Record {
	f.t.Helper()
	commit, err := f.lake.Commit(f.t.Context(), f.repo, id)
	if err != nil {
		f.t.Fatal(err)
	}
	record, err := txn.ParseRecord(commit.Metadata)
	if err != nil {
		f.t.Fatalf("commit %s: %v", id, err)
	}
	return record
}

// timeOut waits until a task is no longer in progress, asking Conductor to look:
// its own sweeper may take a minute.
func (f *fleet) timeOut(workflow txn.WorkflowID, task txn.TaskID) {
	f.t.Helper()
	eventually(f.t, waitTime, "task "+string(task)+" times out", func() (bool, string) {
		if err := f.operator.Decide(f.t.Context(), workflow); err != nil {
			f.t.Fatal(err)
		}
		now, err := f.conductor.Task(f.t.Context(), task)
		if err != nil {
			f.t.Fatal(err)
		}
		return now.Status != txn.TaskInProgress, string(now.Status)
	})
}

// inProgress waits for a task of this reference name to be in progress.
func (f *fleet) inProgress(id txn.WorkflowID, reference txn.ReferenceName) txn.Task {
	f.t.Helper()
	return f.taskIs(id, reference, txn.TaskInProgress)
}

// taskIs waits for a task of this reference name to have a status.
func (f *fleet) taskIs(id txn.WorkflowID, reference txn.ReferenceName, status txn.TaskStatus) txn.Task {
	f.t.Helper()
	var found txn.Task
	eventually(f.t, waitTime, string(reference)+" is "+string(status), func() (bool, string) {
		workflow := f.workflow(id)
		for _, task := range workflow.Tasks {
			if task.ReferenceName == reference && task.Status == status {
				found = task
				return true, ""
			}
		}
		return false, describe(workflow)
	})
	return found
}

// register registers a workflow definition of the test's own and gives its name.
func (f *fleet) register(name string, tasks ...map[string]any) string {
	f.t.Helper()
	return f.registerWith(name, nil, tasks...)
}

// registerWith is register with fields of the definition's that differ.
func (f *fleet) registerWith(name string, fields map[string]any, tasks ...map[string]any) string {
	f.t.Helper()
	name += "_" + strings.ReplaceAll(f.domain, "-", "_")
	definition := map[string]any{
		"name": name, "version": 1, "schemaVersion": 2, "ownerEmail": "perago@example.com",
		"timeoutPolicy": "ALERT_ONLY", "timeoutSeconds": 0, "failureWorkflow": "perago_cancel", "tasks": tasks,
	}
	maps.Copy(definition, fields)
	raw, err := json.Marshal(definition)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.conductor.PutWorkflowDefinition(f.t.Context(), raw); err != nil {
		f.t.Fatal(err)
	}
	return name
}

// simple is one task of a workflow definition.
func simple(taskType, reference string, input map[string]any) map[string]any {
	return map[string]any{"name": taskType, "taskReferenceName": reference, "type": "SIMPLE", "inputParameters": input}
}

// step is a user task and the perago tasks after it, for the domain's own
// publish TaskDef without retries. change alters the stage's input.
func step(user, prefix, workspace string, change func(map[string]any)) []map[string]any {
	stage := map[string]any{"workspace": workspace, "prefix": prefix, "source": map[string]any{"directory": "${" + user + ".output.directory}"}}
	if change != nil {
		change(stage)
	}
	staged := map[string]any{"workspace": "${" + user + "_stage.output.workspace}", "staged": "${" + user + "_stage.output.staged}"}
	cleanup := simple("perago_cleanup", user+"_cleanup", staged)
	cleanup["optional"] = true
	return []map[string]any{
		simple(user, user, nil),
		simple("perago_stage", user+"_stage", stage),
		simple("perago_publish_once", user+"_publish", staged),
		cleanup,
	}
}

// publishedBy is step's tasks with another publish TaskDef.
func publishedBy(taskType string, tasks []map[string]any) []map[string]any {
	for _, task := range tasks {
		if task["name"] == "perago_publish_once" {
			task["name"] = taskType
		}
	}
	return tasks
}

// waitTime is how long a test waits for something that takes a second when the
// machine is idle. A machine that does much else takes a hundred times as long.
const waitTime = 2 * time.Minute

func decode(t testing.TB, raw json.RawMessage, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
}
