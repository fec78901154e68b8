package cleanup_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"perago/pkg/cleanup"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// ended is a second workflow, which this Conductor knows to have ended.
const ended = txn.WorkflowID("22222222-7f6e-4a54-9d8d-0e1f2a3b4c5d")

func (b *bench) sweep(what cleanup.Sweep) (cleanup.Swept, map[txn.Branch]cleanup.Decided) {
	b.t.Helper()
	decided := map[txn.Branch]cleanup.Decided{}
	var mu sync.Mutex
	b.cleaner.Events.Decided = func(d cleanup.Decided) {
		mu.Lock()
		defer mu.Unlock()
		if before, again := decided[d.Branch]; again {
			b.t.Errorf("%s was decided twice: %+v, %+v", d.Branch, before, d)
		}
		decided[d.Branch] = d
	}
	swept, err := b.cleaner.Sweep(b.t.Context(), what)
	if err != nil {
		b.t.Fatal(err)
	}
	return swept, decided
}

// of makes a branch of a workflow, of an age, on which nothing was committed.
func (b *bench) of(id txn.WorkflowID, age time.Duration) txn.Branch {
	b.t.Helper()
	return b.branch(txn.NewStagingName(identity, id, txn.NewLogicalTaskKey(id, "prepare_stage", 0), 0, b.executionAt(age)), b.first)
}

// A sweep goes by the workflow that each branch names.
func TestSweep(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.workflows[ended] = txn.Workflow{ID: ended, Status: txn.WorkflowTerminated}
	b.workflows["not a UUID"] = txn.Workflow{ID: "not a UUID", Status: txn.WorkflowFailed}
	b.workflows["33333333-7f6e-4a54-9d8d-0e1f2a3b4c5d"] = txn.Workflow{ID: "33333333-7f6e-4a54-9d8d-0e1f2a3b4c5d", Status: txn.WorkflowPaused}

	unparsable := txn.Branch(txn.ConductorBranches(identity) + "somebody-s")
	theirs := txn.NewStagingName("another Conductor", ended, key(), 0, b.executionAt(9*ttl)).Branch()
	for _, branch := range []txn.Branch{unparsable, theirs} {
		if err := b.lake.CreateBranch(t.Context(), b.repo, branch, b.first); err != nil {
			t.Fatal(err)
		}
	}
	hashed := txn.NewStagingName(identity, "not a UUID", key(), 0, b.executionAt(9*ttl))
	hashedBranch := b.branch(hashed, b.first)
	lakefstest.Put(t, b.lake, b.repo, hashedBranch, map[string]string{"data/a": "9"})
	b.commit(hashedBranch, txn.Record{
		Phase: txn.PhaseTry, Key: key(), Workflow: "not a UUID", Task: "stage", Execution: hashed.Execution,
		InputRef: b.first, TargetBranch: "main", Prefix: "data/", StagingBranch: hashedBranch,
	})
	want := map[txn.Branch]struct {
		state  cleanup.State
		reason string
	}{
		b.stage(9*ttl, "2").StagingBranch:                   {cleanup.StateKept, "its workflow is RUNNING"},
		b.of("33333333-7f6e-4a54-9d8d-0e1f2a3b4c5d", 9*ttl): {cleanup.StateKept, "its workflow is PAUSED"},
		b.of(ended, 9*ttl):                                  {cleanup.StateDeleted, "its workflow is TERMINATED and it is older than 1h0m0s"},
		b.of(ended, ttl/2):                                  {cleanup.StateKept, "kept until it is 1h0m0s old"},
		b.of(other, 9*ttl):                                  {cleanup.StateDeleted, "its workflow is unknown and it is older than 1h0m0s"},
		b.of(other, ttl/2):                                  {cleanup.StateKept, "its workflow is unknown to this Conductor; kept until it is 1h0m0s old"},
		b.of("nor this", 9*ttl):                             {cleanup.StateKept, "its workflow's id is not in its name"},
		hashedBranch:                                        {cleanup.StateDeleted, "its workflow is FAILED"},
		unparsable:                                          {cleanup.StateKept, "not one that perago gives"},
	}
	// Orphaned: the branch without a workflow's id, and the one whose name tells
	// nothing. A running workflow's is none, however old.
	before := b.left()
	dry, decided := b.sweep(cleanup.Sweep{DryRun: true})
	if dry != (cleanup.Swept{Kept: 6, WouldDelete: 3, Orphaned: 2}) || b.deletes.sent.Load() != 0 || !slices.Equal(b.left(), before) {
		t.Errorf("a dry run: %+v, %d deletes sent", dry, b.deletes.sent.Load())
	}
	for branch, w := range want {
		if w.state == cleanup.StateDeleted {
			w.state = cleanup.StateWouldDelete
		}
		if got := decided[branch]; got.State != w.state || !strings.Contains(got.Reason, w.reason) || got.Repository != b.repo {
			t.Errorf("dry run, %s: %+v; want %+v", branch, got, w)
		}
	}
	swept, decided := b.sweep(cleanup.Sweep{})
	if swept != (cleanup.Swept{Kept: 6, Deleted: 3, Orphaned: 2}) {
		t.Errorf("%+v", swept)
	}
	if len(decided) != len(want) {
		t.Errorf("%d branches were decided, want %d: %v", len(decided), len(want), decided)
	}
	left := b.left()
	for branch, w := range want {
		if got := decided[branch]; got.State != w.state || !strings.Contains(got.Reason, w.reason) {
			t.Errorf("%s: %+v; want %+v", branch, got, w)
		}
		if slices.Contains(left, branch) != (w.state == cleanup.StateKept) {
			t.Errorf("%s: left are %v", branch, left)
		}
	}
	if !slices.Contains(left, theirs) {
		t.Error("another Conductor's branch is gone")
	}
}

// The wrong Conductor knows none of the workflows: nothing is unknown to it that
// counts.
func TestConductorThatKnowsNothingIsNotBelieved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	delete(b.workflows, workflow)
	branch := b.of(other, 9*ttl)
	swept, decided := b.sweep(cleanup.Sweep{})
	if swept != (cleanup.Swept{Kept: 1, Orphaned: 1, Unknown: 1}) || !strings.Contains(decided[branch].Reason, "check CONDUCTOR_SERVER_URL") || len(b.left()) != 1 {
		t.Errorf("%+v, %+v", swept, decided)
	}
}

// A Conductor or a lakeFS that fails keeps everything, and says so.
func TestSweepThatFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	branch := b.of(workflow, 9*ttl)
	b.workflow(txn.WorkflowFailed)
	down := errors.New("connection refused")
	whole := b.cleaner.Workflows
	b.cleaner.Workflows = failing{down}
	swept, decided := b.sweep(cleanup.Sweep{})
	if swept != (cleanup.Swept{Failed: 1, Orphaned: 1}) || !strings.Contains(decided[branch].Reason, "connection refused") || len(b.left()) != 1 {
		t.Errorf("Conductor is down: %+v, %+v", swept, decided)
	}
	b.cleaner.Workflows = whole
	next := b.deletes.next
	b.deletes.next = forbidden(next)
	if swept, decided = b.sweep(cleanup.Sweep{}); swept != (cleanup.Swept{Failed: 1, Orphaned: 1}) || !strings.Contains(decided[branch].Reason, "delete branch") {
		t.Errorf("a delete fails: %+v, %+v", swept, decided)
	}
	b.cleaner.Allowed = txn.AllowList{"no-such-repository", string(b.repo)}
	b.deletes.next = next
	b.cleaner.Events.Decided = nil
	swept, err := b.cleaner.Sweep(t.Context(), cleanup.Sweep{})
	if err == nil || !strings.Contains(err.Error(), "sweep no-such-repository") || swept != (cleanup.Swept{Deleted: 1}) {
		t.Errorf("one repository is gone: %+v, %v; want the other one swept", swept, err)
	}
}

type failing struct{ err error }

func (f failing) Workflow(context.Context, txn.WorkflowID) (txn.Workflow, error) {
	return txn.Workflow{}, f.err
}

// Only allowed repositories are looked at, also when every one is listed.
func TestSweepStaysInItsRepositories(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.workflow(txn.WorkflowFailed)
	elsewhere, first := lakefstest.NewRepository(t, b.lake, nil, lakefstest.Allow(lakefstest.RuleBranches))
	old := txn.NewStagingName(identity, workflow, key(), 0, b.executionAt(9*ttl)).Branch()
	if err := b.lake.CreateBranch(t.Context(), elsewhere, old, first); err != nil {
		t.Fatal(err)
	}
	b.cleaner.Allowed = txn.AllowList{string(b.repo) + "/main"}
	if swept, _ := b.sweep(cleanup.Sweep{}); swept != (cleanup.Swept{}) {
		t.Errorf("%+v", swept)
	}
	if _, err := b.cleaner.Sweep(t.Context(), cleanup.Sweep{Repository: elsewhere}); err == nil || !strings.Contains(err.Error(), "PERAGO_ALLOWED_REPOSITORIES") {
		t.Errorf("%v", err)
	}
	b.cleaner.Allowed = txn.AllowList{"*"}
	if swept, _ := b.sweep(cleanup.Sweep{Repository: b.repo}); swept != (cleanup.Swept{}) {
		t.Errorf("%+v", swept)
	}
	if swept, _ := b.sweep(cleanup.Sweep{}); swept != (cleanup.Swept{Deleted: 1}) {
		t.Errorf("%+v", swept)
	}
}

func TestSweepOfOneBranch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.workflow(txn.WorkflowFailed)
	one, two := b.of(workflow, 9*ttl), b.of(workflow, 9*ttl)
	if swept, decided := b.sweep(cleanup.Sweep{Repository: b.repo, Branch: one}); swept != (cleanup.Swept{Deleted: 1}) || decided[one].State != cleanup.StateDeleted {
		t.Errorf("%+v", swept)
	}
	if !slices.Equal(b.left(), []txn.Branch{two}) {
		t.Errorf("left %v", b.left())
	}
	if _, err := b.cleaner.Sweep(t.Context(), cleanup.Sweep{Repository: b.repo, Branch: "main"}); err == nil || !strings.Contains(err.Error(), "main is not a staging branch of this Conductor") {
		t.Errorf("%v", err)
	}
	for _, branch := range []txn.Branch{"main", "", "theirs"} {
		if err := b.cleaner.Force(t.Context(), b.repo, branch); err == nil || !strings.Contains(err.Error(), "not a branch of perago's") {
			t.Errorf("force %q: %v", branch, err)
		}
	}
	b.workflow(txn.WorkflowRunning)
	if err := b.cleaner.Force(t.Context(), b.repo, two); err != nil || len(b.left()) != 0 {
		t.Errorf("%v, left %v", err, b.left())
	}
	if err := b.cleaner.Force(t.Context(), b.repo, two); !errors.Is(err, txn.ErrNotFound) {
		t.Errorf("a branch that is not there: %v", err)
	}
	b.cleaner.Allowed = txn.AllowList{"elsewhere"}
	if err := b.cleaner.Force(t.Context(), b.repo, two); err == nil || !strings.Contains(err.Error(), "PERAGO_ALLOWED_REPOSITORIES") {
		t.Errorf("%v", err)
	}
}

// A name is asked for whole: one that goes on where it ends is another branch's.
func TestSweepOfOneBranchIsNotOfAPrefix(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.workflow(txn.WorkflowFailed)
	name := txn.NewStagingName(identity, workflow, key(), 0, b.executionAt(9*ttl))
	one := b.branch(name, b.first)
	name.Source = txn.SourceFirst
	longer := b.branch(name, b.first)
	if swept, _ := b.sweep(cleanup.Sweep{Repository: b.repo, Branch: one}); swept != (cleanup.Swept{Deleted: 1}) || !slices.Equal(b.left(), []txn.Branch{longer}) {
		t.Errorf("%+v, left %v", swept, b.left())
	}
}

// forgetful is a Conductor that does not know a workflow the first time it is
// asked for it.
type forgetful struct {
	workflows
	mu    sync.Mutex
	asked map[txn.WorkflowID]int
}

func (f *forgetful) Workflow(ctx context.Context, id txn.WorkflowID) (txn.Workflow, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked[id]++; f.asked[id] == 1 && id == other {
		return txn.Workflow{}, txn.ErrNotFound
	}
	return f.workflows.Workflow(ctx, id)
}

// What was unknown is asked for again before it goes.
func TestUnknownWorkflowIsAskedForAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.workflows[other] = txn.Workflow{ID: other, Status: txn.WorkflowRunning}
	b.cleaner.Workflows = &forgetful{workflows: b.workflows, asked: map[txn.WorkflowID]int{}}
	branch := b.of(other, 9*ttl)
	b.of(workflow, 9*ttl) // is known
	if swept, decided := b.sweep(cleanup.Sweep{}); swept != (cleanup.Swept{Kept: 2, Orphaned: 1}) || decided[branch].State != cleanup.StateKept {
		t.Errorf("%+v, %+v", swept, decided[branch])
	}
}

// A commit that names another workflow than the name's hash is no word for it.
func TestHashedWorkflowIsHeldToItsName(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.workflow(txn.WorkflowFailed)
	name := txn.NewStagingName(identity, "not a UUID", key(), 0, b.executionAt(9*ttl))
	branch := b.branch(name, b.first)
	lakefstest.Put(t, b.lake, b.repo, branch, map[string]string{"data/a": "9"})
	b.commit(branch, txn.Record{
		Phase: txn.PhaseTry, Key: key(), Workflow: workflow, Task: "stage", Execution: name.Execution,
		InputRef: b.first, TargetBranch: "main", Prefix: "data/", StagingBranch: branch,
	})
	if _, decided := b.sweep(cleanup.Sweep{}); !strings.Contains(decided[branch].Reason, "no commit on it says it") {
		t.Errorf("%+v", decided[branch])
	}
}

// A publication that landed although no publish task of the ended workflow says
// so is an event; one that a task put out is none.
func TestPublishedAfterEnd(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{
		"no task put it out": false, "a task put it out": true,
		// Nobody can tell what the task of a run that was replaced had reported.
		"a rerun took its task away": true, "it landed after the rerun": false,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			staged := b.stage(0, "2")
			commit := b.publish(staged, staged.Commit, b.first, "", b.executionAt(0))
			publish := b.completedPublish(staged, commit)
			switch name {
			case "no task put it out":
				publish.Status, publish.Output = txn.TaskFailed, nil
			case "a rerun took its task away":
				publish.ID, publish.Status, publish.Output = "of the rerun", txn.TaskFailed, nil
				publish.Times.Scheduled = time.Now().Add(time.Hour)
			case "it landed after the rerun":
				publish.ID, publish.Status, publish.Output = "of the rerun", txn.TaskFailed, nil
				publish.Times.Scheduled = time.Now().Add(-time.Hour)
			}
			b.workflow(txn.WorkflowFailed, publish)
			var told []txn.CommitID
			b.cleaner.Events.PublishedAfterEnd = func(id txn.WorkflowID, repository txn.Repository, target txn.Branch, commit txn.CommitID) {
				if id != workflow || repository != b.repo || target != "main" {
					t.Errorf("told of %s %s %s", id, repository, target)
				}
				told = append(told, commit)
			}
			if swept, _ := b.sweep(cleanup.Sweep{}); swept != (cleanup.Swept{Deleted: 1}) {
				t.Errorf("%+v", swept)
			}
			if b.sweep(cleanup.Sweep{}); known != (len(told) == 0) || len(told) > 1 || (!known && told[0] != commit) {
				t.Errorf("told %v", told)
			}
		})
	}
}

// Two sweeps and a cleanup of one branch at once: it goes, and nobody has a
// problem with that.
func TestSweepsAndACleanupAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	staged := b.stage(9*ttl, "2")
	b.publish(staged, staged.Commit, b.first, "", b.executionAt(0))
	b.workflow(txn.WorkflowFailed)
	// Each has decided before the first one deletes.
	var waiting atomic.Int32
	together := make(chan struct{})
	next := b.deletes.next
	b.deletes.next = roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodDelete {
			if waiting.Add(1) == 3 {
				close(together)
			}
			<-together
		}
		return next.RoundTrip(r)
	})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if swept, err := b.cleaner.Sweep(t.Context(), cleanup.Sweep{}); err != nil || swept != (cleanup.Swept{Deleted: 1}) {
				t.Errorf("%+v, %v", swept, err)
			}
		})
	}
	all.Go(func() {
		result, err := b.cleaner.Run(t.Context(), b.ofWorkflow(workflow), &attempt{})
		if err != nil || len(result.Errors)+len(result.Kept) != 0 || !slices.Equal(result.Deleted, []txn.Branch{staged.StagingBranch}) {
			t.Errorf("%+v, %v", result, err)
		}
	})
	all.Wait()
	if len(b.left()) != 0 {
		t.Errorf("left %v", b.left())
	}
}

// Many orphans are read page by page and deleted a few at a time, and the sweep
// says how far it is.
func TestManyOrphans(t *testing.T) {
	t.Parallel()
	const orphans = 2000
	b := newBench(t)
	for i := range orphans {
		id := txn.WorkflowID(fmt.Sprintf("44444444-7f6e-4a54-9d8d-%012x", i))
		if i%2 == 0 {
			b.workflows[id] = txn.Workflow{ID: id, Status: txn.WorkflowTerminated}
		}
		b.of(id, 9*ttl)
	}
	var now, most atomic.Int32
	next := b.deletes.next
	b.deletes.next = roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodDelete {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			// As long as a server takes, so that the others would come meanwhile.
			time.Sleep(time.Millisecond)
		}
		return next.RoundTrip(r)
	})
	var progress []cleanup.Swept
	b.cleaner.Events.Progress = func(swept cleanup.Swept) { progress = append(progress, swept) }
	if swept, _ := b.sweep(cleanup.Sweep{DryRun: true}); swept != (cleanup.Swept{WouldDelete: orphans}) || len(b.left()) != orphans {
		t.Errorf("a dry run: %+v", swept)
	}
	progress = nil
	if swept, _ := b.sweep(cleanup.Sweep{}); swept != (cleanup.Swept{Deleted: orphans}) || len(b.left()) != 0 {
		t.Errorf("%+v, %d left", swept, len(b.left()))
	}
	if most.Load() != 4 {
		t.Errorf("%d deletes at once, want 4", most.Load())
	}
	if len(progress) != 2 || progress[0].Deleted == 0 || progress[1].Deleted <= progress[0].Deleted {
		t.Errorf("progress %+v, want one for each page", progress)
	}
}

// A sweep that is stopped ends at once and blames nothing else.
func TestStoppedSweep(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.of(workflow, 9*ttl)
	b.workflow(txn.WorkflowFailed)
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	b.deletes.fails = func() error {
		cancel(stopped)
		return context.Canceled
	}
	b.cleaner.Events.Decided = func(decided cleanup.Decided) { t.Errorf("told %+v", decided) }
	if swept, err := b.cleaner.Sweep(ctx, cleanup.Sweep{}); !errors.Is(err, stopped) || swept != (cleanup.Swept{}) {
		t.Errorf("%+v, %v, want the cause", swept, err)
	}
}

// The rounds keep their distance, and 0 is never.
func TestEvery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cleanup.Every(ctx, 0, func(context.Context) { t.Error("an interval of 0 swept") })
		begin, rounds := time.Now(), []time.Duration{}
		cleanup.Every(ctx, time.Hour, func(context.Context) {
			rounds = append(rounds, time.Since(begin))
			if begin = time.Now(); len(rounds) == 50 {
				cancel()
			}
		})
		differ := false
		for _, pause := range rounds {
			if pause < 54*time.Minute || pause > 66*time.Minute {
				t.Errorf("a pause of %s", pause)
			}
			differ = differ || pause != rounds[0]
		}
		if len(rounds) != 50 || !differ {
			t.Errorf("%d rounds, with different pauses: %v", len(rounds), differ)
		}
	})
}
