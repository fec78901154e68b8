package hostile

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"perago/pkg/checkout"
	"perago/pkg/cleanup"
	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/config"
	"perago/pkg/credential"
	"perago/pkg/fence"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/publish"
	"perago/pkg/stage"
	"perago/pkg/telemetry"
	"perago/pkg/txn"
	"perago/pkg/worker"
	"perago/taskdefs"
)

const (
	conductorHost = "conductor.test"
	elsewhere     = "elsewhere.test"
	target        = lakefstest.DefaultBranch
	prefix        = "data/"
	chain         = "hostile_chain"
	cancelling    = "hostile_cancel"
	// theKey and theSecret are what the workers are let in with.
	theKey, theSecret, theToken = "hostile-key", "hostile-secret-value", "hostile-token-value"
)

// The files of the step: those that the input commit holds, and those that are
// published over them. One stays, one changes, one goes and one comes.
var (
	outside = map[string]string{"README": "not of the step", "data.json": "not of the step either"}
	before  = map[string]string{"same": "always the same", "changing": "0", "only-0": "of the first"}
	passes  = []map[string]string{
		{"same": "always the same", "changing": "1", "only-1": "of the second"},
		{"same": "always the same", "changing": "2", "only-2": "of the third"},
	}
)

// flow is what the chain goes through.
type flow string

const (
	// plain is a step that is published.
	plain flow = "plain"
	// again is a published step that is run once more with other files, which
	// supersede the first ones.
	again flow = "again"
	// nothing is a step that changes nothing.
	nothing flow = "nothing"
)

var flows = []flow{plain, again, nothing}

// files are what the chain publishes at last.
func (f flow) files() map[string]string {
	switch f {
	case again:
		return passes[1]
	case nothing:
		return before
	}
	return passes[0]
}

// world is one chain with its servers.
type world struct {
	t    *testing.T
	liar *liar
	lake *lakefstest.Server
	// Nobody lies to these.
	plainLake      *lakefs.Client
	plainConductor *conductor.Client
	operator       *conductortest.Operator
	repo           txn.Repository
	first          txn.CommitID
	// decoys are branches that are none of the chain's.
	decoys map[txn.Branch]txn.CommitID
	root   string
	id     txn.WorkflowID
	log    *lines
}

type object = map[string]any

// newWorld makes both servers with what a chain needs. root is a directory that
// other worlds may share.
func newWorld(t *testing.T, root string) *world {
	t.Helper()
	lake, server := lakefstest.NewServer(), conductortest.New(nil)
	w := &world{
		t: t, lake: lake, root: root, repo: "hostile-repo", log: &lines{}, decoys: map[txn.Branch]txn.CommitID{},
		plainLake: lake.Client(t), operator: conductortest.NewOperator("http://"+conductorHost, conductortest.Transport(server)),
	}
	w.liar = newLiar(conductortest.Transport(server), lake)
	var err error
	w.plainConductor, err = conductor.New(conductor.Config{ServerURL: "http://" + conductorHost}, conductortest.Transport(server))
	w.must(err)
	w.must(w.plainLake.CreateRepository(t.Context(), w.repo, "local://"+string(w.repo), target))
	lakefstest.Put(t, w.plainLake, w.repo, target, w.tree(before))
	commit, err := w.plainLake.CreateCommit(t.Context(), w.repo, target, "input", nil)
	w.must(err)
	w.first = commit.ID
	w.plant()
	w.register()
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// tree is the whole tree of the target with these files under the prefix.
func (w *world) tree(files map[string]string) map[string]string {
	tree := map[string]string{txn.FenceFile: string(fence.File())}
	maps.Copy(tree, outside)
	for path, content := range files {
		tree[prefix+path] = content
	}
	return tree
}

// plant makes what a lie can point at: a branch of somebody's with a commit of its
// own, and a staging branch of another workflow.
func (w *world) plant() {
	w.t.Helper()
	ctx := w.t.Context()
	other := txn.NewStagingName(w.identity(), "0a0b0c0d-0000-4000-8000-000000000001", "another:step:0", 0, "0197f000-0000-7000-8000-000000000001")
	for _, branch := range []txn.Branch{"somebody", other.Branch()} {
		w.must(w.plainLake.CreateBranch(ctx, w.repo, branch, w.first))
		lakefstest.Put(w.t, w.plainLake, w.repo, branch, map[string]string{"theirs": string(branch)})
		commit, err := w.plainLake.CreateCommit(ctx, w.repo, branch, "theirs", nil)
		w.must(err)
		w.decoys[branch] = commit.ID
	}
	w.liar.foreign = string(w.decoys["somebody"])
}

func (w *world) identity() txn.ConductorIdentity { return "hostile" }

// The shipped TaskDefs with short leases, so that a task that is lost comes back
// soon.
var leases = map[txn.TaskType]object{
	txn.TypeCheckout: {"responseTimeoutSeconds": 8},
	txn.TypeStage:    {"responseTimeoutSeconds": 8},
	txn.TypeCleanup:  {"responseTimeoutSeconds": 8},
	txn.TypePublish: {"responseTimeoutSeconds": 8, "inputTemplate": object{"budget": object{
		"observed_merge_p99_seconds": 2, "safety_margin_seconds": 1, "lakefs_merge_timeout_seconds": 3,
		"conductor_completion_timeout_seconds": 2, "worker_shutdown_grace_seconds": 0.5, "heartbeat_interval_seconds": 2,
	}}},
}

func (w *world) register() {
	w.t.Helper()
	for kind, lease := range leases {
		raw, err := taskdefs.Files.ReadFile(string(kind) + ".json")
		w.must(err)
		var definition object
		w.must(json.Unmarshal(raw, &definition))
		maps.Copy(definition, lease)
		maps.Copy(definition, object{"retryLogic": "FIXED", "retryDelaySeconds": 1})
		w.must(w.plainConductor.PutTaskDefinition(w.t.Context(), asJSON(definition)))
	}
	task := func(kind txn.TaskType, reference string, input object) object {
		return object{
			"name": kind, "taskReferenceName": reference, "type": "SIMPLE", "inputParameters": input,
			"optional": kind == txn.TypeCleanup,
		}
	}
	staged := object{"workspace": "${stage.output.workspace}", "staged": "${stage.output.staged}"}
	for _, definition := range []object{
		{"name": cancelling, "tasks": []object{task(txn.TypeCleanup, "cancel", object{"workflow_id": "${workflow.input.workflowId}"})}},
		{"name": chain, "failureWorkflow": cancelling, "tasks": []object{
			task(txn.TypeCheckout, "checkout", object{"workspace": "${workflow.input.workspace}", "prefix": prefix}),
			task(txn.TypeStage, "stage", object{
				"workspace": "${workflow.input.workspace}", "prefix": prefix,
				"source": object{"directory": w.root + "/${workflow.workflowId}/files"},
			}),
			task(txn.TypePublish, "publish", staged),
			task(txn.TypeCleanup, "cleanup", staged),
		}},
	} {
		maps.Copy(definition, object{
			"version": 1, "schemaVersion": 2, "ownerEmail": "perago@example.com", "timeoutPolicy": "ALERT_ONLY", "timeoutSeconds": 0,
		})
		w.must(w.plainConductor.PutWorkflowDefinition(w.t.Context(), asJSON(definition)))
	}
}

func asJSON(value any) json.RawMessage {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return raw
}

// write makes the directory of the step hold these files and no others.
func (w *world) write(files map[string]string) {
	w.t.Helper()
	directory := filepath.Join(w.root, string(w.id), "files")
	w.must(os.RemoveAll(directory))
	w.must(os.MkdirAll(directory, 0o755))
	for path, content := range files {
		w.must(os.WriteFile(filepath.Join(directory, path), []byte(content), 0o644))
	}
}

// start starts the workflow; no worker is up yet.
func (w *world) start(files map[string]string) {
	w.t.Helper()
	id, err := w.plainConductor.StartWorkflow(w.t.Context(), conductor.StartRequest{Name: chain, Version: 1, Input: asJSON(object{
		"workspace": object{"repository": w.repo, "branch": target, "ref_type": "commit", "ref": w.first},
	})})
	w.must(err)
	w.id = id
	w.write(files)
}

// workers runs all four use cases as the three binaries do, in one runtime that has
// one task at a time: while it has one, it does not poll. All that it sends goes to
// the liar. stop gives the error of its end.
func (w *world) workers(metrics *telemetry.Metrics) (stop func() error) {
	w.t.Helper()
	server, err := conductor.New(conductor.Config{
		ServerURL: "http://" + conductorHost, AuthKey: credential.New(theKey), AuthSecret: credential.New(theSecret),
	}, w.liar)
	w.must(err)
	lake, err := lakefs.New(w.lake.Config(), w.liar)
	w.must(err)
	root, err := os.OpenRoot(w.root)
	w.must(err)
	allowed := txn.AllowList{string(w.repo)}
	stager := &stage.Stager{
		Lake: lakefs.Settling{Client: lake}, Root: root, Identity: w.identity(), Allowed: allowed,
		UploadConcurrency: 2, NewExecutionID: config.NewExecutionID,
	}
	downloader := &checkout.Downloader{Lake: lake, Root: root, Allowed: allowed, Concurrency: 2, NewExecutionID: config.NewExecutionID}
	publisher := &publish.Publisher{
		Lake: lakefs.Settling{Client: lake}, Tasks: conductor.Repeating{Client: server}, Identity: w.identity(), Allowed: allowed,
		NewExecutionID: config.NewExecutionID, Fence: fence.Prover{Lake: lake}, RequireHardFence: true,
	}
	cleaner := &cleanup.Cleaner{
		Lake: lake, Workflows: conductor.Repeating{Client: server}, Fence: fence.Prover{Lake: lake}, Identity: w.identity(),
		Allowed: allowed, TTL: 24 * time.Hour, Now: time.Now,
	}
	tasks := worker.New(worker.Options{
		Conductor: server, ConductorURL: "http://" + conductorHost, Worker: txn.WorkerID("hostile-" + uuid.NewString()),
		Handlers: map[txn.TaskType]worker.Handler{
			txn.TypeStage: func(ctx context.Context, a *worker.Attempt) (map[string]any, error) {
				result, err := stager.Run(ctx, a.Task, a)
				return result.Output(), err
			},
			txn.TypeCheckout: func(ctx context.Context, a *worker.Attempt) (map[string]any, error) {
				result, err := downloader.Run(ctx, a.Task, a)
				return result.Output(), err
			},
			txn.TypePublish: func(ctx context.Context, a *worker.Attempt) (map[string]any, error) {
				result, err := publisher.Run(ctx, a.Task, a)
				return result.Output(), err
			},
			txn.TypeCleanup: func(ctx context.Context, a *worker.Attempt) (map[string]any, error) {
				result, err := cleaner.Run(ctx, a.Task, a)
				return result.Output(), err
			},
		},
		Concurrency: 1, PollInterval: 250 * time.Millisecond, ReasonLength: txn.DefaultReasonLength, ShutdownGrace: 5 * time.Second,
		Checks: []worker.Check{{Name: "lakefs", Run: lake.Ping}},
		Log:    slog.New(slog.NewJSONHandler(w.log, nil)), Metrics: metrics,
		Redactor: telemetry.NewRedactor(theSecret),
	})
	ctx, cancel := context.WithCancelCause(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tasks.Run(ctx) }()
	return func() error {
		cancel(errors.New("the case is over"))
		defer root.Close()
		err := <-ended
		// A call that the worker did not wait for has a deadline of its own.
		time.Sleep(time.Minute)
		return err
	}
}

// limit is how long a case may take, by its own clock. It is far above what all
// attempts of all tasks take when each runs into every timeout there is.
const limit = 24 * time.Hour

// backgroundLimit is enough to see that nothing happens.
const backgroundLimit = 20 * time.Second

// until waits for the workflow's end, and that of its failure workflow. It is false
// where that does not come.
func (w *world) until(over func(txn.Workflow) bool, within time.Duration) (txn.Workflow, bool) {
	w.t.Helper()
	began, pause := time.Now(), 250*time.Millisecond
	for {
		workflow, err := w.plainConductor.Workflow(w.t.Context(), w.id)
		w.must(err)
		if over(workflow) {
			return workflow, true
		}
		if time.Since(began) > within {
			return workflow, false
		}
		time.Sleep(pause)
		pause = min(2*pause, 30*time.Second)
	}
}

// ended reports whether nothing is left to do for a worker.
func (w *world) ended(workflow txn.Workflow) bool {
	if !workflow.Status.Terminal() {
		return false
	}
	failure := w.failureOf(workflow)
	return failure == nil || failure.Status.Terminal()
}

// failureOf is the failure workflow; nil when there is none.
func (w *world) failureOf(workflow txn.Workflow) *txn.Workflow {
	w.t.Helper()
	var named struct {
		Failure txn.WorkflowID `json:"conductor.failure_workflow"`
	}
	if len(workflow.Output) == 0 || json.Unmarshal(workflow.Output, &named) != nil || named.Failure == "" {
		return nil
	}
	failure, err := w.plainConductor.Workflow(w.t.Context(), named.Failure)
	w.must(err)
	return &failure
}

// sums is the tree of a commit by what lakeFS says of the content.
func (w *world) sums(commit txn.CommitID) map[string]string {
	w.t.Helper()
	sums := map[string]string{}
	for object, err := range w.plainLake.Objects(w.t.Context(), w.repo, commit, "") {
		w.must(err)
		sums[object.Path] = object.Checksum
	}
	return sums
}

func sumsOf(tree map[string]string) map[string]string {
	sums := map[string]string{}
	for path, content := range tree {
		digest := md5.Sum([]byte(content))
		sums[path] = hex.EncodeToString(digest[:])
	}
	return sums
}

// lines is the log of the workers.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

var _ io.Writer = (*lines)(nil)

func describe(workflow txn.Workflow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", workflow.Name, workflow.Status, workflow.Reason)
	for _, task := range workflow.Tasks {
		fmt.Fprintf(&b, "\n    %s try %d poll %d %s %s", task.ReferenceName, task.RetryCount, task.PollCount, task.Status, task.Reason)
	}
	return b.String()
}
