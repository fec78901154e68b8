package publish_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"perago/e2e/stack"
	"perago/pkg/credential"
	"perago/pkg/fence"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/publish"
	"perago/pkg/txn"
)

const (
	workflow = txn.WorkflowID("0b4a7d26-7f6e-4a54-9d8d-0e1f2a3b4c5d")
	identity = txn.ConductorIdentity("test")
)

// subject is a lakeFS to publish into.
type subject func(t *testing.T) (lakefs.Config, http.RoundTripper)

// TestPublish runs every test on a lakeFS in memory and on the real one.
func TestPublish(t *testing.T) {
	tests := map[string]func(*testing.T, subject){
		"ExternalPayloadStorage":         testExternalPayloadStorage,
		"HardFence":                      testHardFence,
		"HardFenceWithACommonWordAsKey":  testHardFenceWithACommonWordAsKey,
		"HardFenceIsRequired":            testHardFenceIsRequired,
		"OvertakenUnderTheHardFence":     testOvertakenUnderTheHardFence,
		"UnknownMergeIsSettledByReading": testUnknownMergeIsSettledByReading,
		"UnknownMergeIsOvertaken":        testUnknownMergeIsOvertaken,
		"ConflictIsDecidedOnceMore":      testConflictIsDecidedOnceMore,
		"FirstPublicationAndItsRetry":    testFirstPublicationAndItsRetry,
		"Superseding":                    testSuperseding,
		"NoOp":                           testNoOp,
		"NoOpOfAnImport":                 testNoOpOfAnImport,
		"NoOpDisarmsAnOlderAttempt":      testNoOpDisarmsAnOlderAttempt,
		"NoOpSeesAnOlderLanding":         testNoOpSeesAnOlderLanding,
		"ReadOnly":                       testReadOnly,
		"StaleAttemptWritesNothing":      testStaleAttemptWritesNothing,
		"RacedMergeIsLoud":               testRacedMergeIsLoud,
		"Refusals":                       testRefusals,
		"Foreign":                        testForeign,
		"LateLandings":                   testLateLandings,
		"TakenBack":                      testTakenBack,
		"FenceSaysWhatIsThere":           testFenceSaysWhatIsThere,
		"FenceThatDidNotHold":            testFenceThatDidNotHold,
	}
	subjects := map[string]subject{"memory": func(*testing.T) (lakefs.Config, http.RoundTripper) {
		server := lakefstest.NewServer()
		return server.Config(), server.Transport()
	}}
	if !stack.Short(t) {
		servers := stack.Require(t)
		transport := &http.Transport{MaxIdleConnsPerHost: 16}
		t.Cleanup(transport.CloseIdleConnections)
		subjects["real"] = func(*testing.T) (lakefs.Config, http.RoundTripper) {
			return lakefs.Config{
				Endpoint: servers.LakeFSURL, AccessKeyID: credential.New(servers.AccessKeyID), SecretAccessKey: credential.New(servers.SecretAccessKey),
			}, transport
		}
	}
	for name, on := range subjects {
		t.Run(name, func(t *testing.T) {
			if name == "real" {
				// A thousand commits; in memory they take longer and say nothing more.
				t.Run("History", func(t *testing.T) {
					t.Parallel()
					testHistory(t, on)
				})
			}
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, on)
				})
			}
		})
	}
}

// wire records what the publisher sends to lakeFS and may do something to it.
type wire struct {
	next http.RoundTripper
	mu   sync.Mutex
	sent []string
	// fault, when set, may answer in the server's place or fail: before the server
	// acts, or after, by calling next itself.
	fault func(r *http.Request, next http.RoundTripper) (*http.Response, error)
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.sent = append(w.sent, r.Method+" "+r.URL.Path)
	fault := w.fault
	w.mu.Unlock()
	if fault != nil {
		return fault(r, w.next)
	}
	return w.next.RoundTrip(r)
}

// writes is every request that could change something.
func (w *wire) writes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, request := range w.sent {
		if !strings.HasPrefix(request, http.MethodGet) {
			all = append(all, request)
		}
	}
	return all
}

// attempt is an attempt fence whose checks the test counts and answers.
type attempt struct {
	checks int
	// on is called with the number of the check, from 1.
	on    func(check int) error
	cover func(need time.Duration) error
}

func (a *attempt) Current(context.Context) error {
	a.checks++
	if a.on == nil {
		return nil
	}
	return a.on(a.checks)
}

func (a *attempt) Cover(ctx context.Context, need time.Duration) error {
	if a.cover != nil {
		return a.cover(need)
	}
	return a.Current(ctx)
}

func (a *attempt) Phase(string) func() { return func() {} }

// tasks is Conductor's record of the stage tasks.
type tasks map[txn.TaskID]txn.Task

func (t tasks) Task(_ context.Context, id txn.TaskID) (txn.Task, error) {
	task, ok := t[id]
	if !ok {
		return txn.Task{}, txn.ErrNotFound
	}
	return task, nil
}

// bench is a lake in memory with one step to publish into it.
type bench struct {
	t         *testing.T
	lake      *lakefs.Client
	wire      *wire
	config    lakefs.Config
	repo      txn.Repository
	first     txn.CommitID
	tasks     tasks
	publisher *publish.Publisher
	tries     int
}

func newBench(t *testing.T, on subject, files map[string]string, expect ...lakefstest.Expectation) *bench {
	t.Helper()
	config, transport := on(t)
	b := &bench{t: t, tasks: tasks{}, wire: &wire{next: transport}, config: config}
	var err error
	if b.lake, err = lakefs.New(config, transport); err != nil {
		t.Fatal(err)
	}
	// Publish leaves its branches to cleanup.
	expect = append(expect, lakefstest.Allow(lakefstest.RuleBranches))
	b.repo, b.first = lakefstest.NewRepository(t, b.lake, files, expect...)
	recorded, err := lakefs.New(config, b.wire)
	if err != nil {
		t.Fatal(err)
	}
	b.publisher = &publish.Publisher{
		Lake: recorded, Tasks: b.tasks, Identity: identity, Allowed: txn.AllowList{"*"},
		NewExecutionID: newExecutionID,
		Fence:          fence.Prover{Lake: recorded},
		WorkflowURL:    func(id txn.WorkflowID) string { return "http://ui/" + string(id) },
	}
	return b
}

func newExecutionID() (txn.ExecutionID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	return txn.ParseExecutionID(id.String())
}

// stage makes what perago_stage would have made of these files under data/: the
// staged reference, its branch and commit, and the record of its task. No files
// at all is a no-op.
func (b *bench) stage(files map[string]string) txn.Staged {
	b.t.Helper()
	ctx := b.t.Context()
	execution, err := newExecutionID()
	if err != nil {
		b.t.Fatal(err)
	}
	b.tries++
	staged := txn.Staged{
		Repository: b.repo, Branch: lakefstest.DefaultBranch, Commit: b.first, InputRef: b.first, Prefix: "data/",
		Key: txn.NewLogicalTaskKey(workflow, "prepare_stage", 0), Task: txn.TaskID(fmt.Sprintf("stage-%d", b.tries)),
		PollCount: 1, StartTime: 1764443290123, Execution: execution, NoOp: len(files) == 0,
	}
	if !staged.NoOp {
		name := txn.NewStagingName(identity, workflow, staged.Key, 0, execution)
		staged.StagingBranch = name.Branch()
		if err := b.lake.CreateBranch(ctx, b.repo, staged.StagingBranch, b.first); err != nil {
			b.t.Fatal(err)
		}
		lakefstest.Put(b.t, b.lake, b.repo, staged.StagingBranch, files)
		commit, err := b.lake.CreateCommit(ctx, b.repo, staged.StagingBranch, "try", txn.Record{
			Phase: txn.PhaseTry, Key: staged.Key, Workflow: workflow, Task: staged.Task, Execution: execution,
			InputRef: b.first, TargetBranch: staged.Branch, Prefix: staged.Prefix, StagingBranch: staged.StagingBranch,
		}.Metadata(""))
		if err != nil {
			b.t.Fatal(err)
		}
		staged.Commit = commit.ID
	}
	b.tasks[staged.Task] = txn.Task{
		ID: staged.Task, Workflow: workflow, Type: txn.TypeStage, ReferenceName: "prepare_stage", Status: txn.TaskCompleted,
		PollCount: 1, StartTime: staged.StartTime, Output: raw(b.t, map[string]any{"staged": staged}),
	}
	return staged
}

func raw(t *testing.T, value any) json.RawMessage {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// task is a publish task for a staged reference; try is its retry count.
func (b *bench) task(staged txn.Staged, try int) txn.Task {
	b.t.Helper()
	return txn.Task{
		ID: txn.TaskID(fmt.Sprintf("publish-%s-%d", staged.Task, try)), Workflow: workflow, Type: txn.TypePublish,
		ReferenceName: "prepare_publish", Status: txn.TaskInProgress, RetryCount: try, PollCount: 1, StartTime: 1764443291000, Worker: "w",
		Definition: &txn.TaskDefinition{
			Name: txn.TypePublish, ResponseTimeoutSeconds: 60,
			InputTemplate: json.RawMessage(`{"budget": {"observed_merge_p99_seconds": 10, "safety_margin_seconds": 5, "lakefs_merge_timeout_seconds": 15,
				"conductor_completion_timeout_seconds": 5, "worker_shutdown_grace_seconds": 5, "heartbeat_interval_seconds": 5}}`),
		},
		Input: raw(b.t, map[string]any{
			"workspace": txn.Workspace{Repository: b.repo, Branch: staged.Branch, RefType: "commit", Ref: staged.InputRef},
			"staged":    staged,
		}),
	}
}

func (b *bench) run(staged txn.Staged, try int, a *attempt) (publish.Result, error) {
	b.t.Helper()
	return b.publisher.Run(b.t.Context(), b.task(staged, try), a)
}

// published runs a publish that must succeed with this outcome.
func (b *bench) published(staged txn.Staged, try int, want txn.Outcome) txn.Publication {
	b.t.Helper()
	result, err := b.run(staged, try, &attempt{})
	if err != nil {
		b.t.Fatalf("publish: %v", err)
	}
	if result.Publication.Outcome != want || result.Workspace == nil || result.Workspace.Ref != result.Publication.Commit {
		b.t.Fatalf("published %+v, workspace %+v; want %s", result.Publication, result.Workspace, want)
	}
	return *result.Publication
}

func (b *bench) head() txn.CommitID {
	b.t.Helper()
	head, err := b.lake.Head(b.t.Context(), b.repo, lakefstest.DefaultBranch)
	if err != nil {
		b.t.Fatal(err)
	}
	return head
}

func (b *bench) foreign() txn.CommitID {
	b.t.Helper()
	lakefstest.Put(b.t, b.lake, b.repo, lakefstest.DefaultBranch, map[string]string{"elsewhere": fmt.Sprint(time.Now().UnixNano())})
	commit, err := b.lake.CreateCommit(b.t.Context(), b.repo, lakefstest.DefaultBranch, "somebody else's", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return commit.ID
}

func (b *bench) tree(want map[string]string) {
	b.t.Helper()
	if diff := cmp.Diff(want, lakefstest.Tree(b.t, b.lake, b.repo, b.head())); diff != "" {
		b.t.Errorf("the tree of main (-want +got):\n%s", diff)
	}
}

func testFirstPublicationAndItsRetry(t *testing.T, on subject) {
	b := newBench(t, on, map[string]string{"data/a": "1", "other": "o"})
	var timeouts []time.Duration
	b.publisher.Merged = func(took, timeout time.Duration) {
		if took <= 0 {
			t.Errorf("a merge took %s", took)
		}
		timeouts = append(timeouts, timeout)
	}
	staged := b.stage(map[string]string{"data/a": "2"})
	p := b.published(staged, 0, txn.OutcomePublished)
	if p.ExpectedHead != b.first || p.Commit != b.head() || p.Fence != txn.FenceSoft {
		t.Errorf("%+v", p)
	}
	b.tree(map[string]string{"data/a": "2", "other": "o"})
	if writes := b.wire.writes(); len(writes) != 1 || !strings.HasSuffix(writes[0], "/refs/"+string(staged.Commit)+"/merge/main") {
		t.Errorf("it wrote %q; want one merge of the staged commit by its id", writes)
	}
	commit, err := b.lake.Commit(t.Context(), b.repo, p.Commit)
	if err != nil || commit.Metadata["::lakefs::Conductor::url[url:ui]"] != "http://ui/"+string(workflow) {
		t.Errorf("%v, %v: no link for people", commit.Metadata, err)
	}

	again := b.published(staged, 1, txn.OutcomeAlreadyPublished)
	b.foreign()
	under := b.published(staged, 2, txn.OutcomeAlreadyPublished)
	if again.Commit != p.Commit || under.Commit != p.Commit || under.ExpectedHead != b.first {
		t.Errorf("adopted %s and %s, want %s", again.Commit, under.Commit, p.Commit)
	}
	if n := len(b.wire.writes()); n != 1 {
		t.Errorf("adopting wrote %q", b.wire.writes()[1:])
	}
	// One merge was sent, under the merge timeout of the task's budget.
	if !slices.Equal(timeouts, []time.Duration{15 * time.Second}) {
		t.Errorf("merges were timed against %v", timeouts)
	}
}

func testSuperseding(t *testing.T, on subject) {
	b := newBench(t, on, map[string]string{"data/a": "1", "data/keep": "k", "other": "o"})
	abandoned := b.published(b.stage(map[string]string{"data/a": "2", "data/only the first": "x"}), 0, txn.OutcomePublished)
	second := b.published(b.stage(map[string]string{"data/a": "3"}), 0, txn.OutcomePublished)
	if second.Supersedes != abandoned.Commit || second.ExpectedHead != abandoned.Commit {
		t.Errorf("%+v; want it to supersede %s", second, abandoned.Commit)
	}
	b.tree(map[string]string{"data/a": "3", "data/keep": "k", "other": "o"})

	// A no-op is the input ref's tree again; a second no-op adds an empty commit.
	third := b.published(b.stage(nil), 0, txn.OutcomePublished)
	b.tree(map[string]string{"data/a": "1", "data/keep": "k", "other": "o"})
	fourth := b.published(b.stage(nil), 0, txn.OutcomePublished)
	if third.Supersedes != second.Commit || fourth.Supersedes != third.Commit {
		t.Errorf("superseded %s and %s", third.Supersedes, fourth.Supersedes)
	}
	b.tree(map[string]string{"data/a": "1", "data/keep": "k", "other": "o"})
}

func testNoOp(t *testing.T, on subject) {
	for name, files := range map[string]map[string]string{"on a tree": {"data/a": "1"}, "on a repository's first commit": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, on, files)
			staged := b.stage(nil)
			if p := b.published(staged, 0, txn.OutcomeNoOp); p.Commit != b.first || b.head() != b.first || len(b.wire.writes()) != 0 {
				t.Errorf("%+v, head %s, wrote %q", p, b.head(), b.wire.writes())
			}
			// A later try cannot know that nothing older still lands: it moves the head.
			p := b.published(staged, 1, txn.OutcomePublished)
			if p.ExpectedHead != b.first || p.Commit != b.head() || p.Commit == b.first || p.Supersedes != "" {
				t.Errorf("the empty confirm commit: %+v, head %s", p, b.head())
			}
			want := files
			if want == nil {
				want = map[string]string{}
			}
			b.tree(want)
			if again := b.published(staged, 2, txn.OutcomeAlreadyPublished); again.Commit != p.Commit {
				t.Errorf("adopted %s, want %s", again.Commit, p.Commit)
			}
			if files == nil {
				_, err := b.run(b.stage(nil), 0, &attempt{})
				if err == nil || !strings.Contains(err.Error(), "; it already holds exactly these files under data/, published as ") || b.head() != p.Commit {
					t.Errorf("superseding with the first commit's tree: %v, head %s", err, b.head())
				}
				return
			}
			// Another staging with the same tree supersedes it.
			if next := b.published(b.stage(nil), 0, txn.OutcomePublished); next.Supersedes != p.Commit {
				t.Errorf("%+v; want it to supersede %s", next, p.Commit)
			}
			b.tree(want)
		})
	}
}

// An import that changed nothing has left the branch onto which it imported. That
// is no sign of another execution; one more branch is.
func testNoOpOfAnImport(t *testing.T, on subject) {
	for name, others := range map[string]bool{"alone": false, "beside another execution": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, on, map[string]string{"data/a": "1"})
			staged := b.stage(map[string]string{"data/a": "2"})
			staged.NoOp, staged.Commit = true, b.first
			stage := b.tasks[staged.Task]
			stage.Output = raw(t, map[string]any{"staged": staged})
			b.tasks[staged.Task] = stage
			if !others {
				if p := b.published(staged, 0, txn.OutcomeNoOp); p.Commit != b.first || b.head() != b.first {
					t.Errorf("%+v, head %s", p, b.head())
				}
				return
			}
			b.stage(map[string]string{"data/a": "3"})
			if p := b.published(staged, 0, txn.OutcomePublished); p.Commit == b.first || p.Commit != b.head() {
				t.Errorf("%+v, head %s", p, b.head())
			}
			b.tree(map[string]string{"data/a": "1"})
		})
	}
}

// An older attempt that is still about when a no-op publishes cannot land any
// more unseen: the head it expects is gone.
func testNoOpDisarmsAnOlderAttempt(t *testing.T, on subject) {
	b := newBench(t, on, map[string]string{"data/a": "1"})
	older := b.stage(map[string]string{"data/a": "2"})
	p := b.published(b.stage(nil), 0, txn.OutcomePublished)
	if p.Commit == b.first {
		t.Fatal("another execution's branch is there, and the head did not move")
	}
	// The older attempt decides on what is there now; its merge is not its first.
	next := b.published(older, 1, txn.OutcomePublished)
	if next.Supersedes != p.Commit {
		t.Errorf("%+v", next)
	}
}

// Between the two reads of a no-op's first decision, an older attempt's merge
// lands and cleanup deletes its branch. The no-op must not output the input ref.
func testNoOpSeesAnOlderLanding(t *testing.T, on subject) {
	b := newBench(t, on, map[string]string{"data/a": "1"})
	older := b.stage(map[string]string{"data/a": "2"})
	var landed txn.CommitID
	b.wire.fault = func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		branches := "/repositories/" + string(b.repo) + "/branches"
		list, head := strings.HasSuffix(r.URL.Path, branches), strings.HasSuffix(r.URL.Path, branches+"/"+string(lakefstest.DefaultBranch))
		if r.Method != http.MethodGet || !list && !head || landed != "" {
			return response, err
		}
		zombie := *b.publisher
		zombie.Lake = b.lake
		result, failed := zombie.Run(b.t.Context(), b.task(older, 0), &attempt{})
		if failed != nil {
			t.Errorf("the older attempt: %v", failed)
			return response, err
		}
		landed = result.Publication.Commit
		if failed := b.lake.DeleteBranch(b.t.Context(), b.repo, older.StagingBranch); failed != nil {
			t.Error(failed)
		}
		return response, err
	}
	p := b.published(b.stage(nil), 0, txn.OutcomePublished)
	if landed == "" || p.Supersedes != landed || p.Commit != b.head() {
		t.Errorf("%+v; the older attempt landed as %q, and the head is %s", p, landed, b.head())
	}
	b.tree(map[string]string{"data/a": "1"})
}

func testReadOnly(t *testing.T, on subject) {
	b := newBench(t, on, map[string]string{"data/a": "1"})
	staged := b.stage(nil)
	staged.NoOp, staged.ReadOnly = false, true
	task := b.tasks[staged.Task]
	task.Output = raw(t, map[string]any{"staged": staged})
	b.tasks[staged.Task] = task
	b.foreign()
	for try := range 2 {
		if p := b.published(staged, try, txn.OutcomeReadOnly); p.Commit != b.first {
			t.Errorf("%+v", p)
		}
	}
	if len(b.wire.writes()) != 0 {
		t.Errorf("it wrote %q", b.wire.writes())
	}
}

// A stale attempt writes nothing, whichever check of the fence it fails at.
func testStaleAttemptWritesNothing(t *testing.T, on subject) {
	stale := &txn.StaleAttemptError{Reason: txn.StalePollCount}
	for check, what := range map[int]string{1: "before the head is read", 2: "before the merge"} {
		b := newBench(t, on, map[string]string{"data/a": "1"})
		a := &attempt{on: func(n int) error {
			if n == check {
				return stale
			}
			return nil
		}}
		_, err := b.run(b.stage(map[string]string{"data/a": "2"}), 0, a)
		if !errors.Is(err, stale) || len(b.wire.writes()) != 0 || a.checks != check {
			t.Errorf("%s: %v after %d checks, wrote %q", what, err, a.checks, b.wire.writes())
		}
	}
	b := newBench(t, on, map[string]string{"data/a": "1"})
	var asked time.Duration
	_, err := b.run(b.stage(map[string]string{"data/a": "2"}), 0, &attempt{cover: func(need time.Duration) error {
		asked = need
		return stale
	}})
	if !errors.Is(err, stale) || len(b.wire.writes()) != 0 || asked != 20*time.Second {
		t.Errorf("a lease that does not cover the merge: %v, wrote %q, asked for %s; want merge timeout + completion = 20s", err, b.wire.writes(), asked)
	}
}

// The foreign commit comes between the decision and the merge.
func testRacedMergeIsLoud(t *testing.T, on subject) {
	var landed txn.CommitID
	b := newBench(t, on, map[string]string{"data/a": "1"}, lakefstest.Raced(func() []txn.CommitID { return []txn.CommitID{landed} }))
	staged := b.stage(map[string]string{"data/a": "2"})
	var foreign txn.CommitID
	var outcomes []txn.Outcome
	b.publisher.Published = func(o txn.Outcome, _ txn.Fence) { outcomes = append(outcomes, o) }
	rejected := 0
	b.publisher.Rejected = func(reason string) {
		if reason == "raced" {
			rejected++
		}
	}
	result, err := b.run(staged, 0, &attempt{on: func(n int) error {
		if n == 2 {
			foreign = b.foreign()
		}
		return nil
	}})
	landed = b.head()
	var unexpected *txn.UnexpectedLandingError
	if !errors.As(err, &unexpected) || !strings.Contains(err.Error(), string(foreign)) {
		t.Errorf("got %v; want an unexpected landing that names %s", err, foreign)
	}
	if result.Workspace != nil || result.Publication.Outcome != txn.OutcomeRaced || result.Publication.Commit != b.head() {
		t.Errorf("put out %+v, workspace %+v", result.Publication, result.Workspace)
	}
	for try := 1; try < 3; try++ {
		result, err := b.run(staged, try, &attempt{})
		var raced *txn.PublishRacedError
		if !errors.As(err, &raced) || raced.Foreign != foreign || result.Workspace != nil || result.Publication.Outcome != txn.OutcomeRaced {
			t.Errorf("try %d: %v, put out %+v", try, err, result.Publication)
		}
	}
	if diff := cmp.Diff([]txn.Outcome{txn.OutcomeRaced, txn.OutcomeRaced, txn.OutcomeRaced}, outcomes); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	if rejected != 3 {
		t.Errorf("%d rejections counted, want 3", rejected)
	}
}

// A merge whose answer is lost is settled by reading and never sent again. If it
// landed it is published, if the branch shows nothing it is in doubt, and the
// next attempt decides from the branch.
func testUnknownMergeIsSettledByReading(t *testing.T, on subject) {
	for name, lands := range map[string]bool{"it landed": true, "it did not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, on, map[string]string{"data/a": "1"})
			staged := b.stage(map[string]string{"data/a": "2"})
			b.wire.fault = loseMerge(lands)
			result, err := b.run(staged, 0, &attempt{})
			if writes := b.wire.writes(); len(writes) != 1 {
				t.Errorf("it wrote %q; want one merge", writes)
			}
			b.wire.fault = nil
			want := txn.OutcomeAlreadyPublished
			if lands {
				if err != nil || result.Publication.Outcome != txn.OutcomePublished || result.Workspace == nil || result.Workspace.Ref != b.head() {
					t.Errorf("%v, put out %+v, workspace %+v", err, result.Publication, result.Workspace)
				}
			} else {
				var doubt *txn.InDoubtError
				if !errors.As(err, &doubt) || result.Publication.Outcome != txn.OutcomeInDoubt || result.Publication.ExpectedHead != b.first || result.Workspace != nil || !strings.Contains(err.Error(), "the branch has not moved") {
					t.Errorf("%v, put out %+v", err, result.Publication)
				}
				want = txn.OutcomePublished
			}
			if p := b.published(staged, 1, want); p.Commit != b.head() {
				t.Errorf("%+v, head %s", p, b.head())
			}
			b.tree(map[string]string{"data/a": "2"})
		})
	}
}

// loseMerge cuts the connection of every merge, before or after the server acts.
func loseMerge(after bool) func(*http.Request, http.RoundTripper) (*http.Response, error) {
	return func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !strings.Contains(r.URL.Path, "/merge/") {
			return next.RoundTrip(r)
		}
		if after {
			response, err := next.RoundTrip(r)
			if err != nil {
				return nil, err
			}
			_ = response.Body.Close()
		}
		return nil, errors.New("connection reset by peer")
	}
}

// A merge without an answer whose branch then moves: on the soft fence it stays
// in doubt, for it may still land, and when it lands on a foreign commit while it
// is read, it is a race.
func testUnknownMergeIsOvertaken(t *testing.T, on subject) {
	for name, c := range map[string]struct {
		move func(b *bench, older txn.Staged)
		// late says that the merge is delivered while the branch is read.
		late   bool
		fenced bool
		want   func(error) bool
		text   string
	}{
		"by a foreign commit": {
			move: func(b *bench, _ txn.Staged) { b.foreign() },
			want: func(err error) bool { return errors.As(err, new(*txn.InDoubtError)) }, text: "main advanced from",
		},
		"by a foreign commit that it lands on": {
			move: func(b *bench, _ txn.Staged) { b.foreign() }, late: true,
			want: func(err error) bool { return errors.As(err, new(*txn.PublishRacedError)) }, text: "on top of foreign",
		},
		"by a foreign commit under the hard fence": {
			move: func(b *bench, _ txn.Staged) { b.otherStep(); b.foreign() }, fenced: true,
			want: func(err error) bool { return errors.As(err, new(*txn.PublishFenceError)) }, text: "main advanced from",
		},
		"by an older attempt": {
			move: func(b *bench, older txn.Staged) { b.land(older) },
			want: func(err error) bool { return errors.As(err, new(*txn.InDoubtError)) }, text: "without the hard fence it may still land",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"data/a": "1"}
			var expect []lakefstest.Expectation
			if c.fenced {
				files = fenced(files)
			}
			var landed txn.CommitID
			if c.late {
				expect = append(expect, lakefstest.Raced(func() []txn.CommitID { return []txn.CommitID{landed} }))
			}
			b := newBench(t, on, files, expect...)
			older, staged := b.stage(map[string]string{"data/a": "0"}), b.stage(map[string]string{"data/a": "2"})
			var under *http.Request
			reads := 0
			b.wire.fault = func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				switch {
				case strings.Contains(r.URL.Path, "/merge/"):
					body, err := io.ReadAll(r.Body)
					if err != nil {
						return nil, err
					}
					under = r.Clone(context.WithoutCancel(r.Context()))
					under.Body = io.NopCloser(bytes.NewReader(body))
					c.move(b, older)
					return nil, errors.New("connection reset by peer")
				case under != nil && c.late && strings.HasSuffix(r.URL.Path, "/branches/main"):
					if reads++; reads == 2 {
						response, err := next.RoundTrip(under)
						if err != nil {
							return nil, err
						}
						_ = response.Body.Close()
						landed = b.head()
					}
				}
				return next.RoundTrip(r)
			}
			result, err := b.run(staged, 0, &attempt{})
			if err == nil || !c.want(err) || !strings.Contains(err.Error(), c.text) || result.Workspace != nil {
				t.Errorf("%v, put out %+v", err, result.Publication)
			}
			if n := b.merges(); n != 1 {
				t.Errorf("%d merges were sent; want one", n)
			}
		})
	}
}

// otherStep lands a publication of another step, which proves the fence.
func (b *bench) otherStep() {
	b.t.Helper()
	b.confirm(func(m map[string]string) { m["perago.logical_task_key"] = string(workflow) + ":other_stage:0" })
}

// land merges a staged commit as its own publish would have, on the head.
func (b *bench) land(staged txn.Staged) txn.CommitID {
	b.t.Helper()
	execution, err := newExecutionID()
	if err != nil {
		b.t.Fatal(err)
	}
	record := txn.ConfirmRecord(txn.StepOf(staged, workflow, staged.Key), staged, txn.PublishDecision{ExpectedHead: b.head()}, staged.Commit, txn.Attempt{Task: "older"}, execution)
	landed, err := b.lake.Merge(b.t.Context(), txn.Merge{Repository: b.repo, Source: staged.Commit, Destination: lakefstest.DefaultBranch, Message: "older", Metadata: record.Metadata("")})
	if err != nil {
		b.t.Fatal(err)
	}
	return landed
}

// A conflict is a definite refusal, often because an earlier attempt of the step
// landed between the reading of the head and the merge. One more decision heals
// it, on a branch of its own.
func testConflictIsDecidedOnceMore(t *testing.T, on subject) {
	b := newBench(t, on, map[string]string{"data/a": "1"})
	older, staged := b.stage(map[string]string{"data/a": "0", "data/only older": "x"}), b.stage(map[string]string{"data/a": "2"})
	var landed txn.CommitID
	result, err := b.run(staged, 0, &attempt{on: func(n int) error {
		if n == 2 {
			landed = b.land(older)
		}
		return nil
	}})
	if err != nil || result.Publication.Outcome != txn.OutcomePublished || result.Publication.Supersedes != landed {
		t.Fatalf("%v, put out %+v; want it to supersede %s", err, result.Publication, landed)
	}
	b.tree(map[string]string{"data/a": "2"})
	merges := 0
	for _, request := range b.wire.writes() {
		if strings.Contains(request, "/merge/") {
			merges++
		}
	}
	branches, err := b.lake.Branches(t.Context(), b.repo, "perago-")
	if err != nil || merges != 2 || !slices.ContainsFunc(branches, func(h txn.BranchHead) bool { return strings.HasSuffix(string(h.Name), "-s2") }) {
		t.Errorf("%d merges, branches %v, %v; want 2 and one ending in -s2", merges, branches, err)
	}

	// A foreign commit that conflicts ends in the fence's sentence, which names
	// both heads.
	b = newBench(t, on, map[string]string{"data/a": "1"})
	staged = b.stage(map[string]string{"data/a": "2"})
	_, err = b.run(staged, 0, &attempt{on: func(n int) error {
		if n == 2 {
			lakefstest.Put(t, b.lake, b.repo, lakefstest.DefaultBranch, map[string]string{"data/a": "theirs"})
			if _, err := b.lake.CreateCommit(t.Context(), b.repo, lakefstest.DefaultBranch, "theirs", nil); err != nil {
				t.Fatal(err)
			}
		}
		return nil
	}})
	if want := fmt.Sprintf("main advanced from %s to %s", b.first, b.head()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v; want %q", err, want)
	}
}

func testRefusals(t *testing.T, on subject) {
	for _, c := range []struct {
		name     string
		change   func(b *bench, staged *txn.Staged, task *txn.Task)
		terminal bool
		sentence string
	}{
		{"a foreign commit", func(b *bench, _ *txn.Staged, _ *txn.Task) { b.foreign() }, false, "main advanced from"},
		{"a dirty branch", func(b *bench, _ *txn.Staged, _ *txn.Task) {
			lakefstest.Put(b.t, b.lake, b.repo, lakefstest.DefaultBranch, map[string]string{"x": "y"})
		}, false, "uncommitted changes"},
		{"the stage task is unknown", func(b *bench, s *txn.Staged, _ *txn.Task) { delete(b.tasks, s.Task) }, true, "is unknown to Conductor"},
		{"the stage task was handed out again", func(b *bench, s *txn.Staged, _ *txn.Task) {
			record := b.tasks[s.Task]
			record.PollCount++
			b.tasks[s.Task] = record
		}, true, "had been replaced"},
		{"no definition", func(_ *bench, _ *txn.Staged, task *txn.Task) { task.Definition = nil }, true, "without its definition"},
		{"an unsound definition", func(_ *bench, _ *txn.Staged, task *txn.Task) { task.Definition.ResponseTimeoutSeconds = 29 }, true, "responseTimeoutSeconds is 29"},
		{"another Conductor identity", func(b *bench, _ *txn.Staged, _ *txn.Task) { b.publisher.Identity = "another" }, true, "PERAGO_CONDUCTOR_ID"},
		{"a repository that is not allowed", func(b *bench, _ *txn.Staged, _ *txn.Task) { b.publisher.Allowed = txn.AllowList{"other"} }, true, "PERAGO_ALLOWED_REPOSITORIES"},
		{"the staged commit is gone", func(b *bench, s *txn.Staged, task *txn.Task) {
			gone := *s
			gone.Commit = txn.CommitID(strings.Repeat("0", 64))
			record := b.tasks[s.Task]
			record.Output = raw(b.t, map[string]any{"staged": gone})
			b.tasks[s.Task] = record
			*task = b.task(gone, 0)
		}, true, "the staged commit " + strings.Repeat("0", 64) + " is gone; rerun from prepare_stage"},
		{"another step's staged commit", func(b *bench, s *txn.Staged, task *txn.Task) {
			other := *s
			other.Commit = b.foreign()
			record := b.tasks[s.Task]
			record.Output = raw(b.t, map[string]any{"staged": other})
			b.tasks[s.Task] = record
			*task = b.task(other, 0)
		}, true, "is not this step's staged commit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, on, map[string]string{"data/a": "1"})
			staged := b.stage(map[string]string{"data/a": "2"})
			task := b.task(staged, 0)
			c.change(b, &staged, &task)
			head := b.head()
			result, err := b.publisher.Run(t.Context(), task, &attempt{})
			var terminal *txn.TerminalError
			if err == nil || errors.As(err, &terminal) != c.terminal || !strings.Contains(err.Error(), c.sentence) {
				t.Errorf("got %v; want terminal %v with %q", err, c.terminal, c.sentence)
			}
			if result.Workspace != nil || b.head() != head {
				t.Errorf("workspace %+v, head %s", result.Workspace, b.head())
			}
		})
	}
}

// confirm lands an empty confirm commit of the step on the head, of a staging of
// its own; change alters its metadata.
func (b *bench) confirm(change func(map[string]string)) txn.CommitID {
	b.t.Helper()
	execution, err := newExecutionID()
	if err != nil {
		b.t.Fatal(err)
	}
	head := b.head()
	staged := txn.Staged{
		Repository: b.repo, Branch: lakefstest.DefaultBranch, Commit: b.first, InputRef: b.first, Prefix: "data/", Execution: execution, NoOp: true,
	}
	step := txn.StepOf(staged, workflow, txn.NewLogicalTaskKey(workflow, "prepare_stage", 0))
	decision := txn.PublishDecision{ExpectedHead: head}
	if head != b.first {
		decision.Supersedes = head
	}
	metadata := txn.ConfirmRecord(step, staged, decision, head, txn.Attempt{Task: "publish"}, execution).Metadata("")
	if change != nil {
		change(metadata)
	}
	landed, err := b.lake.Merge(b.t.Context(), txn.Merge{Repository: b.repo, Source: head, Destination: lakefstest.DefaultBranch, Message: "confirm", Metadata: metadata})
	if err != nil {
		b.t.Fatal(err)
	}
	return landed
}

// As many commits of the step itself as the limit are read and superseded, one
// more is refused.
func testHistory(t *testing.T, on subject) {
	b := newBench(t, on, map[string]string{"data/a": "1"})
	staged := b.stage(map[string]string{"data/a": "2"})
	for range txn.HistoryLimit - 1 {
		b.confirm(nil)
	}
	head := b.confirm(nil)
	if p := b.published(staged, 0, txn.OutcomePublished); p.Supersedes != head {
		t.Errorf("%+v; want it to supersede %s, the %dth commit", p, head, txn.HistoryLimit)
	}
	b.tree(map[string]string{"data/a": "2"})
	_, err := b.run(b.stage(map[string]string{"data/a": "3"}), 0, &attempt{})
	var fence *txn.PublishFenceError
	if !errors.As(err, &fence) || !strings.Contains(err.Error(), "is not among its last 1024 first-parent commits") {
		t.Errorf("with %d commits: %v", txn.HistoryLimit+1, err)
	}
}

// What makes a commit foreign, and a target on which the input ref is not.
func testForeign(t *testing.T, on subject) {
	for _, c := range []struct {
		name     string
		before   func(b *bench)
		breaks   lakefstest.Expectation
		sentence string
	}{
		{"a newer major version", func(b *bench) { b.confirm(func(m map[string]string) { m["perago.version"] = "2" }) },
			lakefstest.Allow(lakefstest.RuleMetadata), `written by a newer perago (metadata version "2"); upgrade this worker`},
		{"a key is missing", func(b *bench) { b.confirm(func(m map[string]string) { delete(m, "perago.task_id") }) },
			lakefstest.Expect(lakefstest.RuleMetadata), "incomplete perago metadata: perago.task_id is missing"},
		{"no metadata", func(b *bench) { b.foreign() }, lakefstest.Allow(lakefstest.RuleMetadata), "start a new workflow with ref="},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, on, map[string]string{"data/a": "1"}, c.breaks)
			staged := b.stage(map[string]string{"data/a": "2"})
			c.before(b)
			head := b.head()
			_, err := b.run(staged, 0, &attempt{})
			var fence *txn.PublishFenceError
			if !errors.As(err, &fence) || !strings.Contains(err.Error(), c.sentence) || b.head() != head {
				t.Errorf("got %v; want a fence error with %q", err, c.sentence)
			}
		})
	}
	t.Run("an input ref of another branch", func(t *testing.T) {
		b := newBench(t, on, map[string]string{"data/a": "1"})
		first := b.first
		if err := b.lake.CreateBranch(t.Context(), b.repo, "dev", b.first); err != nil {
			t.Fatal(err)
		}
		lakefstest.Put(t, b.lake, b.repo, "dev", map[string]string{"data/a": "dev"})
		commit, err := b.lake.CreateCommit(t.Context(), b.repo, "dev", "dev", nil)
		if err != nil {
			t.Fatal(err)
		}
		b.first = commit.ID
		_, err = b.run(b.stage(map[string]string{"data/a": "2"}), 0, &attempt{})
		if err == nil || !strings.Contains(err.Error(), "the input ref is not among") || b.head() != first {
			t.Errorf("got %v, head %s", err, b.head())
		}
	})
}

// fenced is a repository that carries the hard fence.
func fenced(files map[string]string) map[string]string {
	with := maps.Clone(files)
	with[txn.FenceFile] = string(fence.File())
	return with
}

func (b *bench) merges() int {
	n := 0
	for _, request := range b.wire.writes() {
		if strings.Contains(request, "/merge/") {
			n++
		}
	}
	return n
}

// Under the hard fence lakeFS refuses what comes between the decision and the
// merge; one more decision follows.
func testHardFence(t *testing.T, on subject) {
	before := map[string]string{"data/a": "1", "other": "o"}
	t.Run("nothing comes between", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, on, fenced(before))
		staged := b.stage(map[string]string{"data/a": "2"})
		p := b.published(staged, 0, txn.OutcomePublished)
		again := b.published(staged, 1, txn.OutcomeAlreadyPublished)
		if p.Fence != txn.FenceHard || again.Fence != txn.FenceHard {
			t.Errorf("published under the fence %s, adopted under %s; want hard", p.Fence, again.Fence)
		}
	})
	t.Run("a foreign commit", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, on, fenced(before))
		var foreign txn.CommitID
		result, err := b.run(b.stage(map[string]string{"data/a": "2"}), 0, &attempt{on: func(n int) error {
			if n == 2 {
				foreign = b.foreign()
			}
			return nil
		}})
		if !errors.As(err, new(*txn.PublishFenceError)) || !strings.Contains(err.Error(), string(foreign)) || b.head() != foreign || b.merges() != 1 || result.Publication.Outcome != txn.OutcomeRefused {
			t.Errorf("%v after %d merges, put out %+v", err, b.merges(), result.Publication)
		}
	})
	t.Run("an older attempt", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, on, fenced(before))
		// Other paths, so that lakeFS finds no conflict and asks the hook.
		older, staged := b.stage(map[string]string{"data/older": "x"}), b.stage(map[string]string{"data/a": "2"})
		var landed txn.CommitID
		result, err := b.run(staged, 0, &attempt{on: func(n int) error {
			if n == 2 {
				landed = b.land(older)
			}
			return nil
		}})
		if err != nil || result.Publication.Supersedes != landed || result.Publication.Fence != txn.FenceHard || b.merges() != 2 {
			t.Errorf("%v after %d merges, put out %+v; want it to supersede %s", err, b.merges(), result.Publication, landed)
		}
		b.tree(fenced(map[string]string{"data/a": "2", "other": "o"}))
	})
}

// keyed is a lakeFS whose access key id is this one.
func keyed(on subject, key string) subject {
	return func(t *testing.T) (lakefs.Config, http.RoundTripper) {
		config, transport := on(t)
		id, secret := config.AccessKeyID.Reveal(), config.SecretAccessKey.Reveal()
		config.AccessKeyID = credential.New(key)
		return config, roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.SetBasicAuth(id, secret)
			return transport.RoundTrip(r)
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A key id that is a word of the fence's refusal is redacted in what people read,
// and changes nothing else.
func testHardFenceWithACommonWordAsKey(t *testing.T, on subject) {
	for _, key := range []string{"perago", "publish", "fence", txn.FenceRefusal} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, keyed(on, key), fenced(map[string]string{"data/a": "1"}))
			older, staged := b.stage(map[string]string{"data/older": "x"}), b.stage(map[string]string{"data/a": "2"})
			var landed txn.CommitID
			result, err := b.run(staged, 0, &attempt{on: func(n int) error {
				if n == 2 {
					landed = b.land(older)
				}
				return nil
			}})
			if err != nil || result.Publication.Supersedes != landed || b.merges() != 2 {
				t.Errorf("%v after %d merges, put out %+v; want it to supersede %s", err, b.merges(), result.Publication, landed)
			}
		})
	}
}

// A source without the known file is not merged where the hard fence is required,
// and the sentence says what to run.
func testHardFenceIsRequired(t *testing.T, on subject) {
	edited := map[string]string{"data/a": "1", txn.FenceFile: strings.Replace(string(fence.File()), "description: The only", "description: Only the", 1)}
	for _, c := range []struct {
		name     string
		files    map[string]string
		sentence string
	}{
		{"no file", map[string]string{"data/a": "1"}, "holds no _lakefs_actions/perago-publish-fence.yaml, and PERAGO_REQUIRE_HARD_FENCE is set; run `perago fence install lakefs://"},
		{"an edited file", edited, "is not the one that this version knows, and PERAGO_REQUIRE_HARD_FENCE is set"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, on, c.files)
			b.publisher.RequireHardFence = true
			result, err := b.run(b.stage(map[string]string{"data/a": "2"}), 0, &attempt{})
			if err == nil || !strings.Contains(err.Error(), c.sentence) || len(b.wire.writes()) != 0 || result.Workspace != nil {
				t.Errorf("%v, wrote %q", err, b.wire.writes())
			}
		})
	}
	t.Run("the known file", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, on, fenced(map[string]string{"data/a": "1"}))
		b.publisher.RequireHardFence = true
		b.publisher.Unfenced = func(_ txn.Task, _ txn.CommitID, why error) { t.Errorf("said not to have held: %v", why) }
		if p := b.published(b.stage(map[string]string{"data/a": "2"}), 0, txn.OutcomePublished); p.Fence != txn.FenceHard {
			t.Errorf("%+v", p)
		}
	})
}

// A merge in doubt that an older attempt overtakes: with the hard fence proven
// it can no longer land, so one more decision is safe.
func testOvertakenUnderTheHardFence(t *testing.T, on subject) {
	b := newBench(t, on, fenced(map[string]string{"data/a": "1"}))
	older, staged := b.stage(map[string]string{"data/older": "x"}), b.stage(map[string]string{"data/a": "2"})
	lose := loseMerge(false)
	var landed txn.CommitID
	b.wire.fault = func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		response, err := lose(r, next)
		if err != nil {
			b.wire.fault = nil
			landed = b.land(older)
		}
		return response, err
	}
	result, err := b.run(staged, 0, &attempt{})
	if err != nil || result.Publication.Supersedes != landed || b.merges() != 2 {
		t.Errorf("%v after %d merges, put out %+v; want it to supersede %s", err, b.merges(), result.Publication, landed)
	}
	b.tree(fenced(map[string]string{"data/a": "2"}))
}

// Merges of older attempts that land above the publication, on the soft fence: a
// later attempt reports them from what it reads anyway, a publication that has
// just landed looks once.
func testLateLandings(t *testing.T, on subject) {
	newLate := func(t *testing.T) (b *bench, told *[]txn.CommitID) {
		told = &[]txn.CommitID{}
		// The late one is the last that it was told of.
		b = newBench(t, on, map[string]string{"data/a": "1"}, lakefstest.Raced(func() []txn.CommitID { return (*told)[max(0, len(*told)-1):] }))
		b.publisher.LateLanding = func(_ txn.Repository, _ txn.Branch, published, late txn.CommitID) {
			*told = append(*told, published, late)
		}
		return b, told
	}
	// run runs a try that must end so, and hears of one late landing.
	run := func(b *bench, told *[]txn.CommitID, staged txn.Staged, try int, want txn.Outcome, published, late txn.CommitID) {
		b.t.Helper()
		*told = nil
		result, err := b.run(staged, try, &attempt{})
		if err != nil || result.Publication.Outcome != want || !slices.Equal(*told, []txn.CommitID{published, late}) || !slices.Equal(result.LateLandings, []txn.CommitID{late}) {
			b.t.Errorf("try %d: %v, put out %+v, told of %v; want %s above %s", try, err, result, *told, late, published)
		}
		if !slices.Equal(result.Output()["late_landings"].([]txn.CommitID), []txn.CommitID{late}) {
			b.t.Errorf("the output is %v", result.Output())
		}
	}
	t.Run("of the same staging", func(t *testing.T) {
		t.Parallel()
		b, told := newLate(t)
		staged := b.stage(map[string]string{"data/a": "2"})
		p := b.published(staged, 0, txn.OutcomePublished)
		late := b.landOn(staged, b.first)
		run(b, told, staged, 1, txn.OutcomeAlreadyPublished, p.Commit, late)
		b.tree(map[string]string{"data/a": "2"})
	})
	t.Run("of another staging", func(t *testing.T) {
		t.Parallel()
		b, told := newLate(t)
		older, staged := b.stage(map[string]string{"data/older": "x"}), b.stage(map[string]string{"data/a": "2"})
		p := b.published(staged, 0, txn.OutcomePublished)
		late := b.landOn(older, b.first)
		run(b, told, staged, 1, txn.OutcomePublished, p.Commit, late)
		b.tree(map[string]string{"data/a": "2"})
		run(b, told, staged, 2, txn.OutcomeAlreadyPublished, p.Commit, late)
	})
	t.Run("told once, however often it is read", func(t *testing.T) {
		t.Parallel()
		b, told := newLate(t)
		older, staged := b.stage(map[string]string{"data/older": "x"}), b.stage(map[string]string{"data/a": "2"})
		p := b.published(staged, 0, txn.OutcomePublished)
		late := b.landOn(older, b.first)
		b.wire.fault = loseMerge(false)
		result, err := b.run(staged, 1, &attempt{})
		if !errors.As(err, new(*txn.InDoubtError)) || !slices.Equal(*told, []txn.CommitID{p.Commit, late}) || !slices.Equal(result.LateLandings, []txn.CommitID{late}) {
			t.Errorf("%v, put out %+v, told of %v", err, result, *told)
		}
	})
	t.Run("while the publication ends", func(t *testing.T) {
		t.Parallel()
		b, told := newLate(t)
		older, staged := b.stage(map[string]string{"data/older": "x"}), b.stage(map[string]string{"data/a": "2"})
		var published, late txn.CommitID
		heads := 0
		b.wire.fault = func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/branches/main") {
				if heads++; heads == 2 {
					published, late = b.head(), b.landOn(older, b.first)
				}
			}
			return next.RoundTrip(r)
		}
		result, err := b.run(staged, 0, &attempt{})
		if err != nil || result.Publication.Commit != published || result.Publication.Outcome != txn.OutcomePublished || !slices.Equal(*told, []txn.CommitID{published, late}) || !slices.Equal(result.LateLandings, []txn.CommitID{late}) {
			t.Errorf("%v, put out %+v, told of %v; want %s above %s", err, result, *told, late, published)
		}
	})
	for name, files := range map[string]map[string]string{"on the soft fence": {"data/a": "1"}, "on the hard fence": fenced(map[string]string{"data/a": "1"})} {
		t.Run("none "+name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, on, files)
			b.publisher.LateLanding = func(txn.Repository, txn.Branch, txn.CommitID, txn.CommitID) { t.Error("a late landing") }
			p := b.published(b.stage(map[string]string{"data/a": "2"}), 0, txn.OutcomePublished)
			heads := 0
			for _, request := range b.wire.sent {
				if strings.HasSuffix(request, "/branches/main") {
					heads++
				}
			}
			// To decide, and to see that the branch holds what landed.
			if heads != 2 {
				t.Errorf("the head was read %d times on the %s fence, want 2", heads, p.Fence)
			}
		})
	}
}

// landOn merges a staged commit as an older publish would have that decided on
// another head than the one it lands on.
func (b *bench) landOn(staged txn.Staged, expected txn.CommitID) txn.CommitID {
	b.t.Helper()
	execution, err := newExecutionID()
	if err != nil {
		b.t.Fatal(err)
	}
	record := txn.ConfirmRecord(txn.StepOf(staged, workflow, staged.Key), staged, txn.PublishDecision{ExpectedHead: expected}, staged.Commit, txn.Attempt{Task: "older"}, execution)
	landed, err := b.lake.Merge(b.t.Context(), txn.Merge{Repository: b.repo, Source: staged.Commit, Destination: lakefstest.DefaultBranch, Message: "older", Metadata: record.Metadata("")})
	if err != nil {
		b.t.Fatal(err)
	}
	return landed
}

// Where the hard fence is required and did not hold for what landed, the reason
// names what was found and the command that mends it. An edited file has runs of
// the same names, and is soft.
func testFenceThatDidNotHold(t *testing.T, on subject) {
	edited := strings.Replace(string(fence.File()), "description: The only", "description: Only the", 1)
	for _, c := range []struct {
		name string
		file string
		// runs is what reading the hook runs answers, in lakeFS's place.
		runs     string
		required bool
		want     txn.Fence
		why      []string
	}{
		{name: "the known file", file: string(fence.File()), want: txn.FenceHard},
		{name: "the known file, and it is required", file: string(fence.File()), required: true, want: txn.FenceHard},
		{name: "an edited file", file: edited, want: txn.FenceSoft},
		{name: "no run", file: string(fence.File()), runs: `{"results": [], "pagination": {"has_more": false, "max_per_page": 1000, "results": 0, "next_offset": ""}}`, required: true, want: txn.FenceSoft,
			why: []string{"lakeFS ran no hook for commit ", "LAKEFS_ACTIONS_ENABLED", "switch them on, restart lakeFS and run `perago fence verify lakefs://"}},
		{name: "runs that cannot be read", file: string(fence.File()), runs: `{"message": "no"}`, required: true, want: txn.FenceSoft,
			why: []string{"cannot be read; give the key ci:ReadAction and run `perago fence verify lakefs://"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, on, map[string]string{"data/a": "1", txn.FenceFile: c.file})
			b.publisher.RequireHardFence = c.required
			var said []string
			b.publisher.Unfenced = func(_ txn.Task, landed txn.CommitID, why error) {
				if landed != b.head() {
					t.Errorf("said of %s", landed)
				}
				said = append(said, why.Error())
			}
			b.wire.fault = func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				if c.runs == "" || !strings.HasSuffix(r.URL.Path, "/actions/runs") {
					return next.RoundTrip(r)
				}
				status := http.StatusOK
				if strings.Contains(c.runs, "message") {
					status = http.StatusForbidden
				}
				return &http.Response{
					StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
					Body: io.NopCloser(strings.NewReader(c.runs)), Request: r,
				}, nil
			}
			staged := b.stage(map[string]string{"data/a": "2"})
			published, adopted := b.published(staged, 0, txn.OutcomePublished), b.published(staged, 1, txn.OutcomeAlreadyPublished)
			if published.Fence != c.want || adopted.Fence != c.want {
				t.Errorf("published under the fence %s, adopted under %s, want %s", published.Fence, adopted.Fence, c.want)
			}
			if (len(c.why) > 0) != (len(said) == 2) || (len(c.why) == 0 && len(said) > 0) {
				t.Fatalf("said %q", said)
			}
			for _, part := range c.why {
				for _, why := range said {
					if !strings.Contains(why, part) || (strings.Contains(part, "verify") && !strings.Contains(why, "lakefs://"+string(b.repo)+"/main`")) {
						t.Errorf("said %q, want %q", why, part)
					}
				}
			}
		})
	}
	t.Run("a publication from before the fence", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, on, map[string]string{"data/a": "1"})
		staged := b.stage(map[string]string{"data/a": "2"})
		b.published(staged, 0, txn.OutcomePublished)
		b.publisher.RequireHardFence = true
		var said string
		b.publisher.Unfenced = func(_ txn.Task, _ txn.CommitID, why error) { said = why.Error() }
		if p := b.published(staged, 1, txn.OutcomeAlreadyPublished); p.Fence != txn.FenceSoft {
			t.Errorf("adopted under the fence %s", p.Fence)
		}
		if want := "holds no _lakefs_actions/perago-publish-fence.yaml, and PERAGO_REQUIRE_HARD_FENCE is set; run `perago fence install lakefs://" + string(b.repo) + "/main`"; !strings.Contains(said, want) {
			t.Errorf("said %q, want %q", said, want)
		}
	})
}

// An input that Conductor keeps outside ends the task, and says so: the polled task
// holds none of its fields.
func testExternalPayloadStorage(t *testing.T, on subject) {
	b := newBench(t, on, map[string]string{"data/a": "1"})
	task := b.task(b.stage(map[string]string{"data/a": "2"}), 0)
	task.Input, task.ExternalInput = json.RawMessage(`{}`), true
	_, err := b.publisher.Run(t.Context(), task, &attempt{})
	var terminal *txn.TerminalError
	if !errors.As(err, &terminal) || !strings.Contains(err.Error(), "conductor.app.taskInputPayloadSizeThreshold") {
		t.Errorf("got %v", err)
	}
	if wrote := b.wire.writes(); len(wrote) != 0 {
		t.Errorf("wrote %q", wrote)
	}
}
