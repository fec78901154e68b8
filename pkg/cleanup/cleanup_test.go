package cleanup_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"perago/pkg/cleanup"
	"perago/pkg/fence"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

const (
	workflow = txn.WorkflowID("0b4a7d26-7f6e-4a54-9d8d-0e1f2a3b4c5d")
	other    = txn.WorkflowID("11111111-7f6e-4a54-9d8d-0e1f2a3b4c5d")
	identity = txn.ConductorIdentity("test")
	ttl      = time.Hour
)

type attempt struct{ on func() error }

func (a *attempt) Current(context.Context) error {
	if a.on == nil {
		return nil
	}
	return a.on()
}

func (a *attempt) Phase(string) func() { return func() {} }

type workflows map[txn.WorkflowID]txn.Workflow

func (w workflows) Workflow(_ context.Context, id txn.WorkflowID) (txn.Workflow, error) {
	found, ok := w[id]
	if !ok {
		return txn.Workflow{}, txn.ErrNotFound
	}
	return found, nil
}

// deletes fails every delete of a branch as the test says.
type deletes struct {
	next  http.RoundTripper
	fails func() error
	sent  atomic.Int32
}

func (d *deletes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete {
		d.sent.Add(1)
		if d.fails != nil {
			if err := d.fails(); err != nil {
				return nil, err
			}
		}
	}
	return d.next.RoundTrip(r)
}

// bench is a lake in memory and one step of one workflow.
type bench struct {
	t         *testing.T
	lake      *lakefs.Client
	deletes   *deletes
	repo      txn.Repository
	first     txn.CommitID
	workflows workflows
	cleaner   *cleanup.Cleaner
	mu        sync.Mutex
	states    []cleanup.State
}

func newBench(t *testing.T) *bench {
	t.Helper()
	server := lakefstest.NewServer()
	b := &bench{t: t, lake: server.Client(t), deletes: &deletes{next: server.Transport()}, workflows: workflows{}}
	b.repo, b.first = lakefstest.NewRepository(t, b.lake, map[string]string{"data/a": "1"}, lakefstest.Allow(lakefstest.RuleBranches), lakefstest.Allow(lakefstest.RuleTree))
	recorded, err := lakefs.New(server.Config(), b.deletes)
	if err != nil {
		t.Fatal(err)
	}
	b.cleaner = &cleanup.Cleaner{
		Lake: recorded, Workflows: b.workflows, Fence: fence.Prover{Lake: recorded}, Identity: identity, Allowed: txn.AllowList{"*"}, TTL: ttl, Now: time.Now,
		Events: cleanup.Events{Decided: func(decided cleanup.Decided) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.states = append(b.states, decided.State)
		}},
	}
	b.workflow(txn.WorkflowRunning)
	return b
}

func raw(t *testing.T, value any) json.RawMessage {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (b *bench) workspace() txn.Workspace {
	return txn.Workspace{Repository: b.repo, Branch: "main", RefType: "commit", Ref: b.first}
}

// workflow sets what Conductor says of the step's workflow: its stage has
// completed.
func (b *bench) workflow(status txn.WorkflowStatus, more ...txn.Task) {
	b.t.Helper()
	b.workflows[workflow] = txn.Workflow{ID: workflow, Status: status, Tasks: append([]txn.Task{{
		ID: "stage", Workflow: workflow, Type: txn.TypeStage, ReferenceName: "prepare_stage", Status: txn.TaskCompleted,
		Input: raw(b.t, map[string]any{"workspace": b.workspace()}),
	}}, more...)}
}

// executionAt is an execution id of an age.
func (b *bench) executionAt(age time.Duration) txn.ExecutionID {
	b.t.Helper()
	id, err := lakefstest.ExecutionAt(age)
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

func key() txn.LogicalTaskKey { return txn.NewLogicalTaskKey(workflow, "prepare_stage", 0) }

// stage makes a staged branch of the step, of an age.
func (b *bench) stage(age time.Duration, content string) txn.Staged {
	b.t.Helper()
	staged := txn.Staged{
		Repository: b.repo, Branch: "main", InputRef: b.first, Prefix: "data/", Key: key(), Task: "stage",
		PollCount: 1, StartTime: 1764443290123, Execution: b.executionAt(age),
	}
	staged.StagingBranch = b.branch(txn.NewStagingName(identity, workflow, key(), 0, staged.Execution), b.first)
	lakefstest.Put(b.t, b.lake, b.repo, staged.StagingBranch, map[string]string{"data/a": content})
	staged.Commit = b.commit(staged.StagingBranch, txn.Record{
		Phase: txn.PhaseTry, Key: key(), Workflow: workflow, Task: "stage", Execution: staged.Execution,
		InputRef: b.first, TargetBranch: "main", Prefix: "data/", StagingBranch: staged.StagingBranch,
	})
	return staged
}

func (b *bench) branch(name txn.StagingName, at txn.CommitID) txn.Branch {
	b.t.Helper()
	if err := b.lake.CreateBranch(b.t.Context(), b.repo, name.Branch(), at); err != nil {
		b.t.Fatal(err)
	}
	return name.Branch()
}

func (b *bench) commit(branch txn.Branch, record txn.Record) txn.CommitID {
	b.t.Helper()
	commit, err := b.lake.CreateCommit(b.t.Context(), b.repo, branch, string(record.Phase), record.Metadata(""))
	if err != nil {
		b.t.Fatal(err)
	}
	return commit.ID
}

// publish lands a staged commit, or another source, as a publish would.
func (b *bench) publish(staged txn.Staged, source, expectedHead, supersedes txn.CommitID, execution txn.ExecutionID) txn.CommitID {
	b.t.Helper()
	record := txn.ConfirmRecord(
		txn.StepOf(staged, workflow, key()), staged, txn.PublishDecision{ExpectedHead: expectedHead, Supersedes: supersedes},
		source, txn.Attempt{Task: "publish"}, execution)
	landed, err := b.lake.Merge(b.t.Context(), txn.Merge{Repository: b.repo, Source: source, Destination: "main", Message: "confirm", Metadata: record.Metadata("")})
	if err != nil {
		b.t.Fatal(err)
	}
	return landed
}

func (b *bench) afterStep(staged txn.Staged) txn.Task {
	b.t.Helper()
	return txn.Task{ID: "cleanup", Workflow: workflow, Type: txn.TypeCleanup, Input: raw(b.t, map[string]any{"workspace": b.workspace(), "staged": staged})}
}

func (b *bench) ofWorkflow(id txn.WorkflowID) txn.Task {
	b.t.Helper()
	return txn.Task{ID: "cleanup", Workflow: "the failure workflow", Type: txn.TypeCleanup, Input: raw(b.t, map[string]any{"workflow_id": id})}
}

func (b *bench) run(task txn.Task) cleanup.Result {
	b.t.Helper()
	result, err := b.cleaner.Run(b.t.Context(), task, &attempt{})
	if err != nil {
		b.t.Fatalf("cleanup failed its task: %v", err)
	}
	return result
}

func (b *bench) left() []txn.Branch {
	b.t.Helper()
	heads, err := b.lake.Branches(b.t.Context(), b.repo, "perago-")
	if err != nil {
		b.t.Fatal(err)
	}
	names := []txn.Branch{}
	for _, head := range heads {
		names = append(names, head.Name)
	}
	return names
}

func (b *bench) deleted(result cleanup.Result, want ...txn.Branch) {
	b.t.Helper()
	slices.Sort(want)
	if !slices.Equal(result.Deleted, want) || len(result.Errors) != 0 {
		b.t.Errorf("deleted %v with errors %v; want %v", result.Deleted, result.Errors, want)
	}
	for _, branch := range want {
		if slices.Contains(b.left(), branch) {
			b.t.Errorf("%s is still there", branch)
		}
	}
}

func (b *bench) kept(result cleanup.Result, branch txn.Branch, reason string) {
	b.t.Helper()
	i := slices.IndexFunc(result.Kept, func(k cleanup.Kept) bool { return k.Branch == branch })
	if i < 0 || !strings.Contains(result.Kept[i].Reason, reason) {
		b.t.Errorf("kept %+v; want %s because %q", result.Kept, branch, reason)
	}
	if !slices.Contains(b.left(), branch) {
		b.t.Errorf("%s is gone", branch)
	}
}

func TestPublishedBranchGoes(t *testing.T) {
	t.Parallel()
	for name, task := range map[string]func(*bench, txn.Staged) txn.Task{
		"after the step": func(b *bench, s txn.Staged) txn.Task { return b.afterStep(s) },
		"of a workflow":  func(b *bench, _ txn.Staged) txn.Task { return b.ofWorkflow(workflow) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			staged := b.stage(0, "2")
			b.publish(staged, staged.Commit, b.first, "", b.executionAt(0))
			b.deleted(b.run(task(b, staged)), staged.StagingBranch)
			again := b.run(task(b, staged))
			if len(again.Deleted)+len(again.Kept)+len(again.Errors) != 0 {
				t.Errorf("a second cleanup: %+v", again)
			}
			if !slices.Equal(b.states, []cleanup.State{cleanup.StateDeleted}) {
				t.Errorf("told %v", b.states)
			}
		})
	}
}

func TestUnpublishedBranchStays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	staged := b.stage(9*ttl, "2")
	b.kept(b.run(b.afterStep(staged)), staged.StagingBranch, "it is not published")

	lakefstest.Put(t, b.lake, b.repo, "main", map[string]string{"elsewhere": "1"})
	if _, err := b.lake.CreateCommit(t.Context(), b.repo, "main", "somebody else's", nil); err != nil {
		t.Fatal(err)
	}
	b.kept(b.run(b.afterStep(staged)), staged.StagingBranch, "without the hard fence its merge may still land")

	// The workflow ended and the branch is old: now it goes.
	b.workflow(txn.WorkflowFailed)
	b.deleted(b.run(b.ofWorkflow(workflow)), staged.StagingBranch)
}

// An import that changed nothing is known for one only once it is committed; its
// stage put out a no-op, so no publish names its branch.
func TestBranchThatChangesNothingGoes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	same := b.stage(0, "2")
	b.kept(b.run(b.afterStep(same)), same.StagingBranch, "it is not published")
	first, err := b.lake.Commit(t.Context(), b.repo, b.first)
	if err != nil {
		t.Fatal(err)
	}
	record := txn.Record{
		Phase: txn.PhaseTry, Key: key(), Workflow: workflow, Task: "stage", Execution: same.Execution,
		InputRef: b.first, TargetBranch: "main", Prefix: "data/", StagingBranch: same.StagingBranch,
	}
	if _, err := b.lake.CommitTree(t.Context(), b.repo, same.StagingBranch, first.MetaRange, "try", record.Metadata("")); err != nil {
		t.Fatal(err)
	}
	b.deleted(b.run(b.afterStep(same)), same.StagingBranch)
}

func TestYoungBranchOfAnEndedWorkflowStays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	staged := b.stage(ttl/2, "2")
	b.workflow(txn.WorkflowTerminated)
	b.kept(b.run(b.ofWorkflow(workflow)), staged.StagingBranch, "kept until it is 1h0m0s old")
}

func TestOpenStepKeepsEvenAPublishedBranch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	staged := b.stage(0, "2")
	b.publish(staged, staged.Commit, b.first, "", b.executionAt(0))
	b.workflow(txn.WorkflowRunning, txn.Task{
		ID: "publish", Workflow: workflow, Type: txn.TypePublish, Status: txn.TaskInProgress,
		Input: raw(t, map[string]any{"staged": staged}),
	})
	b.kept(b.run(b.afterStep(staged)), staged.StagingBranch, "not finished")
}

// A branch on which nothing was committed may be a stage at work.
func TestBranchWithoutCommitStays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	staged := b.stage(0, "2")
	b.publish(staged, staged.Commit, b.first, "", b.executionAt(0))
	empty := b.branch(txn.NewStagingName(identity, workflow, key(), 1, b.executionAt(0)), b.first)
	result := b.run(b.afterStep(staged))
	b.deleted(result, staged.StagingBranch)
	b.kept(result, empty, "nothing was committed on it")
}

// A source branch goes when its publication has landed, a mark without a commit
// as well; one whose merge may still land stays.
func TestSourceBranches(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first, second := b.stage(0, "2"), b.stage(0, "3")
	p1 := b.publish(first, first.Commit, b.first, "", b.executionAt(0))
	execution := b.executionAt(0)
	name := txn.NewStagingName(identity, workflow, key(), 1, execution)
	name.Source = txn.SourceFirst
	source := b.branch(name, p1)
	tree, err := b.lake.Commit(t.Context(), b.repo, second.Commit)
	if err != nil {
		t.Fatal(err)
	}
	commit, err := b.lake.CommitTree(t.Context(), b.repo, source, tree.MetaRange, "source", txn.Record{
		Phase: txn.PhaseSource, Key: key(), Workflow: workflow, Task: "publish", Execution: execution,
		InputRef: b.first, TargetBranch: "main", Prefix: "data/", StagingBranch: source,
	}.Metadata(""))
	if err != nil {
		t.Fatal(err)
	}
	result := b.run(b.afterStep(second))
	b.deleted(result, first.StagingBranch)
	b.kept(result, source, "its merge may still land")
	b.kept(result, second.StagingBranch, "may still land")

	b.publish(second, commit.ID, p1, p1, execution)
	b.deleted(b.run(b.afterStep(second)), source, second.StagingBranch)
}

// The mark of an empty confirm commit has no commit of its own.
func TestMark(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	noOp := txn.Staged{
		Repository: b.repo, Branch: "main", InputRef: b.first, Commit: b.first, Prefix: "data/", Key: key(), Task: "stage",
		PollCount: 1, StartTime: 1764443290123, Execution: b.executionAt(0), NoOp: true,
	}
	name := txn.NewStagingName(identity, workflow, key(), 1, b.executionAt(0))
	name.Source = txn.SourceFirst
	mark := b.branch(name, b.first)
	b.kept(b.run(b.afterStep(noOp)), mark, "its merge may still land")
	b.publish(noOp, b.first, b.first, "", name.Execution)
	b.deleted(b.run(b.afterStep(noOp)), mark)
}

// An older attempt's merge that lands after the step has published is reported,
// once by each cleanup, and left where it is.
func TestLateLandingIsReported(t *testing.T) {
	t.Parallel()
	for name, task := range map[string]func(*bench, txn.Staged) txn.Task{
		"after the step": func(b *bench, s txn.Staged) txn.Task { return b.afterStep(s) },
		"of a workflow":  func(b *bench, _ txn.Staged) txn.Task { return b.ofWorkflow(workflow) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			var told []txn.CommitID
			b.cleaner.Events.LateLanding = func(_ txn.Repository, _ txn.Branch, published, late txn.CommitID) {
				told = append(told, published, late)
			}
			staged := b.stage(0, "2")
			published := b.publish(staged, staged.Commit, b.first, "", b.executionAt(0))
			b.workflow(txn.WorkflowRunning, txn.Task{
				ID: "publish", Workflow: workflow, Type: txn.TypePublish, ReferenceName: "prepare_publish", Status: txn.TaskCompleted,
				Input:  raw(t, map[string]any{"workspace": b.workspace(), "staged": staged}),
				Output: raw(t, map[string]any{"publication": txn.Publication{Commit: published, Outcome: txn.OutcomePublished}}),
			})
			if result := b.run(task(b, staged)); len(result.Errors) != 0 || len(told) != 0 {
				t.Errorf("nothing landed late: %+v, told %v", result, told)
			}
			older := txn.Staged{
				Repository: b.repo, Branch: "main", InputRef: b.first, Commit: b.first, Prefix: "data/", Key: key(), Task: "stage",
				PollCount: 1, StartTime: 1764443290123, Execution: b.executionAt(0), NoOp: true,
			}
			late := b.publish(older, published, published, published, b.executionAt(0))
			result := b.run(task(b, staged))
			if len(result.Errors) != 1 || !strings.Contains(result.Errors[0], "main holds "+string(late)+" of this step above the "+string(published)) {
				t.Errorf("%+v", result)
			}
			if !slices.Equal(told, []txn.CommitID{published, late}) {
				t.Errorf("told %v", told)
			}
		})
	}
}

// reread is a Conductor whose workflow goes on after it was read.
type reread struct {
	workflows
	then func()
}

func (r *reread) Workflow(ctx context.Context, id txn.WorkflowID) (txn.Workflow, error) {
	workflow, err := r.workflows.Workflow(ctx, id)
	if then := r.then; then != nil {
		r.then = nil
		then()
	}
	return workflow, err
}

// The workflow goes on between cleanup's read of the tasks and its read of the
// target. What its own publish lands there is not a late landing.
func TestCleanup_ReportsNoPublicationThatCompletesMeanwhile(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]bool{"its publish completes": false, "its publish is in progress": true} {
		for ended, status := range map[string]txn.WorkflowStatus{"rerun": txn.WorkflowRunning, "retried": txn.WorkflowFailed} {
			t.Run(ended+", "+name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				b.cleaner.Events.LateLanding = func(_ txn.Repository, _ txn.Branch, published, late txn.CommitID) {
					t.Errorf("told of %s above %s", late, published)
				}
				b.cleaner.Events.PublishedAfterEnd = func(_ txn.WorkflowID, _ txn.Repository, _ txn.Branch, commit txn.CommitID) {
					t.Errorf("told of %s", commit)
				}
				staged := b.stage(0, "2")
				first := b.completedPublish(staged, "")
				if status == txn.WorkflowRunning {
					first = b.completedPublish(staged, b.publish(staged, staged.Commit, b.first, "", b.executionAt(0)))
				} else {
					first.Status, first.Output = txn.TaskFailed, nil
				}
				b.workflow(status, first)
				b.cleaner.Workflows = &reread{b.workflows, func() {
					head, err := b.lake.Head(t.Context(), b.repo, "main")
					if err != nil {
						t.Error(err)
					}
					next, source := staged, staged.Commit
					if status == txn.WorkflowRunning {
						source = head
						next.Execution, next.NoOp, next.Commit, next.StagingBranch = b.executionAt(0), true, b.first, ""
					}
					again := b.completedPublish(staged, b.publish(next, source, head, "", b.executionAt(0)))
					if open {
						again.Status, again.Output = txn.TaskInProgress, nil
					}
					b.workflow(txn.WorkflowRunning, first, again)
				}}
				if result := b.run(b.afterStep(staged)); len(result.Errors) != 0 {
					t.Errorf("%+v", result)
				}
			})
		}
	}
}

// A cleanup after a step looks above that step's publication alone, and one for a
// workflow looks in each repository for what was published there.
func TestOnlyItsOwnPublicationsAreLookedAt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.cleaner.Events.LateLanding = func(_ txn.Repository, _ txn.Branch, _, late txn.CommitID) { t.Errorf("told of %s", late) }
	staged := b.stage(0, "2")
	published := b.publish(staged, staged.Commit, b.first, "", b.executionAt(0))
	elsewhere, first := lakefstest.NewRepository(t, b.lake, map[string]string{"x": "1"})
	there := txn.Workspace{Repository: elsewhere, Branch: "main", RefType: "commit", Ref: first}
	other := txn.Staged{
		Repository: elsewhere, Branch: "main", InputRef: first, Commit: first, Prefix: "data/", Key: txn.NewLogicalTaskKey(workflow, "train_stage", 0),
		Task: "train", PollCount: 1, StartTime: 1764443290123, Execution: b.executionAt(0), NoOp: true,
	}
	b.workflow(txn.WorkflowRunning, b.completedPublish(staged, published), txn.Task{
		ID: "train", Workflow: workflow, Type: txn.TypePublish, ReferenceName: "train_publish", Status: txn.TaskCompleted,
		Input:  raw(t, map[string]any{"workspace": there, "staged": other}),
		Output: raw(t, map[string]any{"publication": txn.Publication{Commit: first, Outcome: txn.OutcomeNoOp}}),
	})
	for _, task := range []txn.Task{b.afterStep(staged), b.ofWorkflow(workflow)} {
		if result := b.run(task); len(result.Errors) != 0 {
			t.Errorf("%+v", result)
		}
	}
	// Another step's late landing is for that step's cleanup.
	again := staged
	again.Key, again.Execution = txn.NewLogicalTaskKey(workflow, "train_stage", 0), b.executionAt(0)
	again.NoOp, again.StagingBranch, again.Commit = true, "", b.first
	one := b.mergeEmpty(again, published)
	b.mergeEmpty(again, one)
	b.workflow(txn.WorkflowRunning, b.completedPublish(staged, published), b.completedPublish(again, one))
	if result := b.run(b.afterStep(staged)); len(result.Errors) != 0 {
		t.Errorf("%+v", result)
	}
}

// mergeEmpty lands an empty publication of a no-op, whatever its step.
func (b *bench) mergeEmpty(staged txn.Staged, head txn.CommitID) txn.CommitID {
	b.t.Helper()
	record := txn.ConfirmRecord(txn.StepOf(staged, workflow, staged.Key), staged, txn.PublishDecision{ExpectedHead: head}, head, txn.Attempt{Task: "publish"}, b.executionAt(0))
	landed, err := b.lake.Merge(b.t.Context(), txn.Merge{Repository: b.repo, Source: head, Destination: "main", Message: "confirm", Metadata: record.Metadata("")})
	if err != nil {
		b.t.Fatal(err)
	}
	return landed
}

// A merge in doubt that lands when its workflow has ended and its branch is gone
// is reported by a cleanup for the workflow; while the workflow runs, its publish
// may still put it out.
func TestLandingAfterTheBranchWasDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	staged := b.stage(9*ttl, "2")
	publish := b.completedPublish(staged, "")
	publish.Status, publish.Output = txn.TaskFailed, nil
	b.workflow(txn.WorkflowFailed, publish)
	b.deleted(b.run(b.ofWorkflow(workflow)), staged.StagingBranch)

	landed := b.publish(staged, staged.Commit, b.first, "", b.executionAt(0))
	var told []txn.CommitID
	b.cleaner.Events.PublishedAfterEnd = func(_ txn.WorkflowID, _ txn.Repository, _ txn.Branch, commit txn.CommitID) {
		told = append(told, commit)
	}
	result := b.run(b.ofWorkflow(workflow))
	if len(result.Errors) != 1 || !strings.Contains(result.Errors[0], "main holds "+string(landed)+" of this step, which no publish task of the ended workflow put out") || !slices.Equal(told, []txn.CommitID{landed}) {
		t.Errorf("%+v, told %v", result, told)
	}
	b.workflow(txn.WorkflowRunning, publish)
	if result := b.run(b.ofWorkflow(workflow)); len(result.Errors) != 0 || len(told) != 1 {
		t.Errorf("a running workflow: %+v, told %v", result, told)
	}
}

// Nothing is deleted but this Conductor's branches of this workflow.
func TestOthersBranchesAreNotTouched(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	staged := b.stage(0, "2")
	b.publish(staged, staged.Commit, b.first, "", b.executionAt(0))
	old := b.executionAt(9 * ttl)
	for _, branch := range []txn.Branch{
		txn.NewStagingName("another Conductor", workflow, key(), 0, old).Branch(),
		txn.NewStagingName(identity, other, key(), 0, old).Branch(),
		txn.NewStagingName(identity, workflow, "another step", 0, old).Branch(),
		txn.Branch(txn.StepBranches(identity, workflow, key()) + "of somebody"),
	} {
		branch = txn.Branch(strings.ReplaceAll(string(branch), " ", "-"))
		if err := b.lake.CreateBranch(t.Context(), b.repo, branch, b.first); err != nil {
			t.Fatal(err)
		}
	}
	before := len(b.left())
	result := b.run(b.afterStep(staged))
	b.deleted(result, staged.StagingBranch)
	if len(b.left()) != before-1 {
		t.Errorf("%d branches of %d are left", len(b.left()), before)
	}
	b.kept(result, txn.Branch(txn.StepBranches(identity, workflow, key())+"of-somebody"), "not one that perago gives")
}

// misleading is a lake whose listing holds a branch that was not asked for.
type misleading struct {
	cleanup.Lake
	branch txn.BranchHead
}

func (m misleading) Branches(context.Context, txn.Repository, string) ([]txn.BranchHead, error) {
	return []txn.BranchHead{m.branch}, nil
}

// A listing is not believed: another workflow's branch in it stays, however old.
func TestListingIsNotBelieved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.workflow(txn.WorkflowFailed)
	name := txn.NewStagingName(identity, other, key(), 0, b.executionAt(9*ttl))
	b.cleaner.Lake = misleading{b.cleaner.Lake, txn.BranchHead{Name: b.branch(name, b.first), Head: b.first}}
	b.kept(b.run(b.ofWorkflow(workflow)), name.Branch(), "another workflow's")
}

// What cleanup cannot do is in its output, and it completes.
func TestProblemsDoNotFailTheTask(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		task     func(b *bench, staged txn.Staged) txn.Task
		sentence string
	}{
		{"no input", func(b *bench, _ txn.Staged) txn.Task { return txn.Task{Workflow: workflow} }, "missing or null"},
		{"input kept outside", func(b *bench, s txn.Staged) txn.Task {
			task := b.afterStep(s)
			task.Input, task.ExternalInput = json.RawMessage(`{}`), true
			return task
		}, "conductor.app.taskInputPayloadSizeThreshold"},
		{"a task whose input is kept outside", func(b *bench, s txn.Staged) txn.Task {
			outside := txn.Task{ID: "large", Workflow: workflow, Type: txn.TypeStage, ReferenceName: "large_stage", Status: txn.TaskFailed, Input: json.RawMessage(`{}`), ExternalInput: true}
			b.workflow(txn.WorkflowFailed, outside)
			return b.ofWorkflow(workflow)
		}, "task large_stage does not say which repository it was given"},
		{"an unknown field", func(b *bench, _ txn.Staged) txn.Task {
			return txn.Task{Workflow: workflow, Input: json.RawMessage(`{"workflow_id": "w", "force": true}`)}
		}, "force: is not a field"},
		{"an unknown workflow", func(b *bench, _ txn.Staged) txn.Task { return b.ofWorkflow(other) }, "unknown to this Conductor"},
		{"another workflow's step", func(b *bench, s txn.Staged) txn.Task {
			task := b.afterStep(s)
			task.Workflow = other
			return task
		}, "not of this workflow"},
		{"a repository that is not allowed", func(b *bench, s txn.Staged) txn.Task {
			b.cleaner.Allowed = txn.AllowList{"elsewhere"}
			return b.ofWorkflow(workflow)
		}, "PERAGO_ALLOWED_REPOSITORIES"},
		{"another Conductor identity", func(b *bench, s txn.Staged) txn.Task {
			b.cleaner.Identity = "another"
			return b.afterStep(s)
		}, "PERAGO_CONDUCTOR_ID"},
		{"a target for a staging branch", func(b *bench, s txn.Staged) txn.Task {
			s.StagingBranch = "main"
			return b.afterStep(s)
		}, "staged.staging_branch"},
		{"a delete that fails", func(b *bench, s txn.Staged) txn.Task {
			b.publish(s, s.Commit, b.first, "", b.executionAt(0))
			b.deletes.next = forbidden(b.deletes.next)
			return b.afterStep(s)
		}, "delete branch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			staged := b.stage(0, "2")
			result := b.run(c.task(b, staged))
			if len(result.Deleted) != 0 || len(result.Errors) != 1 || !strings.Contains(result.Errors[0], c.sentence) {
				t.Errorf("%+v; want one error with %q", result, c.sentence)
			}
			if len(b.left()) != 1 {
				t.Errorf("left are %v", b.left())
			}
		})
	}
	b := newBench(t)
	null := txn.Task{Workflow: workflow, Input: json.RawMessage(`{"workspace": null, "staged": null}`)}
	if result := b.run(null); len(result.Errors)+len(result.Deleted)+len(result.Kept) != 0 {
		t.Errorf("a stage without output: %+v, want nothing to do", result)
	}
}

// The texts for people are redacted, and the names of branches are not: the next
// reader of the output is a program.
func TestOutput_OnlyItsTextsAreRedacted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.cleaner.Redact = func(text string) string { return txn.Redact(text, "perago", "published") }
	staged := b.stage(0, "2")
	b.kept(b.run(b.afterStep(staged)), staged.StagingBranch, "it is not [redacted]")

	b.publish(staged, staged.Commit, b.first, "", b.executionAt(0))
	through := b.deletes.next
	b.deletes.next = forbidden(through)
	result := b.run(b.afterStep(staged))
	if len(result.Errors) != 1 || !strings.Contains(result.Errors[0], "delete branch [redacted]-staging-") {
		t.Errorf("%+v; want one error without the secret", result)
	}
	b.deletes.next = through
	b.deleted(b.run(b.afterStep(staged)), staged.StagingBranch)
}

// forbidden refuses every delete.
func forbidden(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodDelete {
			return next.RoundTrip(r)
		}
		answer := httptest.NewRecorder()
		answer.WriteHeader(http.StatusForbidden)
		return answer.Result(), nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A cleanup that a rerun made stale deletes nothing more and says nothing.
func TestStaleCleanupDeletesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	staged := b.stage(0, "2")
	b.publish(staged, staged.Commit, b.first, "", b.executionAt(0))
	stale := &txn.StaleAttemptError{Reason: txn.StalePollCount}
	_, err := b.cleaner.Run(t.Context(), b.afterStep(staged), &attempt{on: func() error { return stale }})
	if !errors.Is(err, stale) || b.deletes.sent.Load() != 0 || len(b.left()) != 1 {
		t.Errorf("%v, %d deletes sent, left %v", err, b.deletes.sent.Load(), b.left())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	if _, err := b.cleaner.Run(ctx, b.afterStep(staged), &attempt{}); !errors.Is(err, stopped) {
		t.Errorf("an interrupted cleanup: %v, want the cause", err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	if faults := (cleanup.Config{TTL: -time.Second, Interval: -time.Second}).Validate(); len(faults) != 2 {
		t.Errorf("%v", faults)
	}
	if faults := (cleanup.Config{}).Validate(); len(faults) != 0 {
		t.Errorf("a TTL of 0, and no sweep, are sound: %v", faults)
	}
}
