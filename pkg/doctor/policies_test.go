package doctor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"perago/pkg/checkout"
	"perago/pkg/cleanup"
	"perago/pkg/doctor"
	"perago/pkg/fence"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/publish"
	"perago/pkg/stage"
	"perago/pkg/txn"
)

// attempt is one that may always act.
type attempt struct{}

func (attempt) Current(context.Context) error              { return nil }
func (attempt) Cover(context.Context, time.Duration) error { return nil }
func (attempt) Phase(string) func()                        { return func() {} }
func (attempt) Expect(int, int64) func(int, int64)         { return func(int, int64) {} }

// tasks is Conductor with one workflow that has ended.
type tasks map[txn.TaskID]txn.Task

func (t tasks) Task(_ context.Context, id txn.TaskID) (txn.Task, error) {
	if task, ok := t[id]; ok {
		return task, nil
	}
	return txn.Task{}, txn.ErrNotFound
}

func (t tasks) Workflow(_ context.Context, id txn.WorkflowID) (txn.Workflow, error) {
	workflow := txn.Workflow{ID: id, Status: txn.WorkflowCompleted}
	for _, task := range t {
		workflow.Tasks = append(workflow.Tasks, task)
	}
	return workflow, nil
}

const (
	workflow = txn.WorkflowID("0c1b3c6e-7f1e-4d0e-9a53-2f5d8f0a8c11")
	prefix   = "models/"
)

// story is a step that stages, publishes, stages and publishes again as a retry,
// checks out and cleans up, each worker with a key that may do what its policy says
// and no more.
type story struct {
	*testing.T
	server   *lakefstest.Server
	policies map[doctor.Worker][]lakefstest.Statement
	lake     *lakefs.Client
	repo     txn.Repository
	input    txn.CommitID
	root     *os.Root
	tasks    tasks
	storage  string
	// unfenced is why a publication was not under the hard fence.
	unfenced error
}

func newStory(t *testing.T) *story {
	t.Helper()
	s := &story{T: t, server: lakefstest.NewServer(), policies: map[doctor.Worker][]lakefstest.Statement{}, tasks: tasks{}}
	s.lake = s.server.Client(t)
	s.repo, s.input = lakefstest.NewRepository(t, s.lake, map[string]string{
		txn.FenceFile: string(fence.File()), prefix + "old": "1", prefix + "gone": "1", "beside": "1",
	}, lakefstest.Allow(lakefstest.RuleBranches))
	var err error
	if s.root, err = os.OpenRoot(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.root.Close() })
	store := t.TempDir()
	if err := os.WriteFile(filepath.Join(store, "imported"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.storage = "local://" + store + "/"
	for _, worker := range doctor.Workers() {
		text, err := doctor.Policy(worker, doctor.Scope{Repository: s.repo, Branch: "main", Prefix: prefix, Storage: s.storage})
		if err != nil {
			t.Fatal(err)
		}
		var policy struct{ Statement []lakefstest.Statement }
		if err := json.Unmarshal(text, &policy); err != nil {
			t.Fatal(err)
		}
		s.policies[worker] = policy.Statement
	}
	// The checker of the repository may do everything.
	t.Cleanup(func() { s.server.Restrict(nil) })
	return s
}

func newID() (txn.ExecutionID, error) {
	id, err := uuid.NewV7()
	return txn.ExecutionID(id.String()), err
}

func (s *story) task(kind txn.TaskType, retry int, fields map[string]any) txn.Task {
	s.Helper()
	fields["workspace"] = txn.Workspace{Repository: s.repo, Branch: "main", RefType: txn.RefTypeCommit, Ref: s.input}
	raw, err := json.Marshal(fields)
	if err != nil {
		s.Fatal(err)
	}
	task := txn.Task{
		ID: txn.TaskID(uuid.NewString()), Workflow: workflow, Type: kind, ReferenceName: "step_" + txn.ReferenceName(kind),
		Status: txn.TaskInProgress, RetryCount: retry, PollCount: 1, StartTime: 1764443290123, Worker: "w", Input: raw,
	}
	task.Definition = &txn.TaskDefinition{
		Name: kind, TimeoutPolicy: "RETRY", ResponseTimeoutSeconds: 90,
		InputTemplate: json.RawMessage(`{"budget": {"observed_merge_p99_seconds": 10, "safety_margin_seconds": 20, "lakefs_merge_timeout_seconds": 30,
			"conductor_completion_timeout_seconds": 15, "worker_shutdown_grace_seconds": 30, "heartbeat_interval_seconds": 15}}`),
	}
	return task
}

// stage is one stage task, of a directory or of an import.
func (s *story) stage(retry int, files map[string]string) (staged txn.Staged, err error) {
	s.Helper()
	s.server.Restrict(s.policies[doctor.StageWorker])
	stager := &stage.Stager{
		Lake: lakefs.Settling{Client: s.lake}, Root: s.root, Identity: "here", Allowed: txn.AllowList{"*"}, AllowedImports: txn.ImportList{"*"},
		UploadConcurrency: 2, NewExecutionID: newID, FenceFile: fence.File(), RequireHardFence: true,
	}
	source := map[string]any{"import": s.storage}
	if files != nil {
		directory := filepath.Join(s.root.Name(), string(workflow), uuid.NewString())
		if err := os.MkdirAll(directory, 0o700); err != nil {
			s.Fatal(err)
		}
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600); err != nil {
				s.Fatal(err)
			}
		}
		source = map[string]any{"directory": directory}
	}
	task := s.task(txn.TypeStage, retry, map[string]any{"prefix": prefix, "source": source})
	result, err := stager.Run(s.Context(), task, attempt{})
	if err != nil {
		return txn.Staged{}, err
	}
	if task.Output, err = json.Marshal(result.Output()); err != nil {
		s.Fatal(err)
	}
	task.Status = txn.TaskCompleted
	s.tasks[task.ID] = task
	return result.Staged, nil
}

func (s *story) publish(retry int, staged txn.Staged) (publish.Result, error) {
	s.Helper()
	s.server.Restrict(s.policies[doctor.PublishWorker])
	publisher := &publish.Publisher{
		Lake: lakefs.Settling{Client: s.lake}, Tasks: s.tasks, Identity: "here", Allowed: txn.AllowList{"*"}, NewExecutionID: newID,
		Fence: fence.Prover{Lake: s.lake}, RequireHardFence: true,
		Unfenced: func(_ txn.Task, _ txn.CommitID, why error) { s.unfenced = why },
	}
	result, err := publisher.Run(s.Context(), s.task(txn.TypePublish, retry, map[string]any{"staged": staged}), attempt{})
	return result, errors.Join(err, s.unfenced)
}

// run is the whole of it; the error is the first one.
func (s *story) run() error {
	s.Helper()
	// A step that changes nothing looks whether another execution of it may land.
	unchanged, err := s.stage(0, map[string]string{"old": "1", "gone": "1"})
	if err != nil {
		return err
	}
	if _, err := s.publish(0, unchanged); err != nil {
		return err
	}
	first, err := s.stage(0, map[string]string{"old": "2", "new": "1"})
	if err != nil {
		return err
	}
	published, err := s.publish(0, first)
	if err != nil {
		return err
	}
	if published.Publication.Fence != txn.FenceHard {
		s.Errorf("published under the %s fence", published.Publication.Fence)
	}
	// A retry with other content supersedes what was published.
	second, err := s.stage(1, map[string]string{"old": "3"})
	if err != nil {
		return err
	}
	superseding, err := s.publish(1, second)
	if err != nil {
		return err
	}
	if superseding.Publication.Supersedes != published.Publication.Commit {
		s.Errorf("%+v supersedes nothing", superseding.Publication)
	}
	// A retry below another commit looks whether the branch still holds what it adopts.
	s.server.Restrict(nil)
	lakefstest.Put(s, s.lake, s.repo, "main", map[string]string{"beside": "2"})
	if _, err := s.lake.CreateCommit(s.Context(), s.repo, "main", "by hand", nil); err != nil {
		return err
	}
	if adopted, err := s.publish(2, second); err != nil || adopted.Publication.Outcome != txn.OutcomeAlreadyPublished {
		return fmt.Errorf("%+v: %w", adopted.Publication, err)
	}
	// An import.
	if _, err := s.stage(2, nil); err != nil {
		return err
	}
	s.server.Restrict(s.policies[doctor.StageWorker])
	downloader := &checkout.Downloader{Lake: s.lake, Root: s.root, Allowed: txn.AllowList{"*"}, Concurrency: 2, NewExecutionID: newID}
	if _, err := downloader.Run(s.Context(), s.task(txn.TypeCheckout, 0, map[string]any{"prefix": prefix}), attempt{}); err != nil {
		return err
	}
	s.server.Restrict(s.policies[doctor.CleanupWorker])
	cleaner := &cleanup.Cleaner{
		Lake: s.lake, Workflows: s.tasks, Fence: fence.Prover{Lake: s.lake}, Identity: "here", Allowed: txn.AllowList{"*"},
		TTL: time.Hour, Now: time.Now,
	}
	// What is published goes at once; what it superseded, and the import, with age.
	for _, sweep := range []struct {
		now  func() time.Time
		left int
	}{{time.Now, 2}, {func() time.Time { return time.Now().Add(2 * time.Hour) }, 0}} {
		cleaner.Now = sweep.now
		if _, err := cleaner.Sweep(s.Context(), cleanup.Sweep{}); err != nil {
			return err
		}
		left, err := s.left()
		if err != nil {
			return err
		}
		if len(left) > sweep.left {
			return fmt.Errorf("a sweep left %v", left)
		}
	}
	return nil
}

// left are the hidden branches that are there, seen with a key that sees all.
func (s *story) left() ([]txn.BranchHead, error) {
	s.server.Restrict(nil)
	defer s.server.Restrict(s.policies[doctor.CleanupWorker])
	return s.lake.Branches(s.Context(), s.repo, txn.BranchNamespace)
}

// The policies are enough for all that the workers do.
func TestPoliciesAreEnough(t *testing.T) {
	t.Parallel()
	if err := newStory(t).run(); err != nil {
		t.Error(err)
	}
}

// And each action in them is needed: without it something fails.
func TestPoliciesAreNotMoreThanIsNeeded(t *testing.T) {
	t.Parallel()
	// An answer that was lost needs the first; without the others a sweep is late.
	spare := []string{"stage fs:ReadBranch", "cleanup ci:ReadAction", "cleanup fs:ReadObject"}
	all := newStory(t)
	for _, worker := range doctor.Workers() {
		for at, statement := range all.policies[worker] {
			for _, action := range statement.Action {
				if statement.Effect != "allow" || slices.Contains(spare, string(worker)+" "+action) {
					continue
				}
				resource := statement.Resource[strings.LastIndex(statement.Resource, ":")+1:]
				t.Run(string(worker)+"/"+action+"/"+strings.ReplaceAll(resource, "/", "_"), func(t *testing.T) {
					t.Parallel()
					s := newStory(t)
					s.policies[worker][at].Action = slices.DeleteFunc(slices.Clone(statement.Action), func(one string) bool { return one == action })
					if err := s.run(); err == nil {
						t.Errorf("nothing needs %s on %s", action, resource)
					}
				})
			}
		}
	}
}

// Nothing of what a policy denies or leaves out may be done.
func TestPoliciesKeepTheHooks(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	text, err := doctor.Policy(doctor.StageWorker, doctor.Scope{Repository: s.repo, Branch: "main"})
	if err != nil {
		t.Fatal(err)
	}
	var policy struct{ Statement []lakefstest.Statement }
	if err := json.Unmarshal(text, &policy); err != nil {
		t.Fatal(err)
	}
	s.server.Restrict(policy.Statement)
	if strings.Contains(string(text), "fs:ImportFromStorage") {
		t.Error("a policy without an address to import from lets import from everywhere")
	}
	const branch = "perago-staging-mine"
	if err := s.lake.CreateBranch(t.Context(), s.repo, branch, s.input); err != nil {
		t.Fatal(err)
	}
	if _, err := s.lake.Upload(t.Context(), s.repo, branch, "anything", lakefstest.Text("x")); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"write a hook":  second(s.lake.Upload(t.Context(), s.repo, branch, txn.FenceFile, lakefstest.Text("x"))),
		"delete a hook": s.lake.DeleteObjects(t.Context(), s.repo, branch, []string{txn.FenceFile}),
		"merge":         second(s.lake.Merge(t.Context(), txn.Merge{Repository: s.repo, Source: s.input, Destination: "main", Message: "m"})),
		"commit":        second(s.lake.CreateCommit(t.Context(), s.repo, "main", "m", nil)),
		"delete":        s.lake.DeleteBranch(t.Context(), s.repo, branch),
	} {
		if err == nil || !strings.Contains(err.Error(), "insufficient permissions") {
			t.Errorf("%s with the stage worker's policy: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
