package cleanup_test

import (
	"testing"

	"perago/pkg/fence"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// newFencedBench is a bench whose repository carries the hard fence, with a
// first publication of another step under it: the fence has been seen to run.
func newFencedBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.installFence()
	b.proveFence()
	return b
}

func (b *bench) installFence() {
	b.t.Helper()
	lakefstest.Put(b.t, b.lake, b.repo, "main", map[string]string{txn.FenceFile: string(fence.File())})
	commit, err := b.lake.CreateCommit(b.t.Context(), b.repo, "main", "the fence", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.first = commit.ID
	b.workflow(txn.WorkflowRunning)
}

// proveFence publishes as another workflow would.
func (b *bench) proveFence() {
	b.t.Helper()
	record := txn.SettleRecord(b.executionAt(0), "main", b.first)
	landed, err := b.lake.Merge(b.t.Context(), txn.Merge{Repository: b.repo, Source: b.first, Destination: "main", Message: "proof", Metadata: record.Metadata("")})
	if err != nil {
		b.t.Fatal(err)
	}
	b.first = landed
	b.workflow(txn.WorkflowRunning)
}

func (b *bench) commitForeign() txn.CommitID {
	b.t.Helper()
	lakefstest.Put(b.t, b.lake, b.repo, "main", map[string]string{"elsewhere": "1"})
	commit, err := b.lake.CreateCommit(b.t.Context(), b.repo, "main", "somebody else's", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return commit.ID
}

// completedPublish is the record of a publish of a staging.
func (b *bench) completedPublish(staged txn.Staged, commit txn.CommitID) txn.Task {
	return txn.Task{
		ID: "publish", Workflow: workflow, Type: txn.TypePublish, ReferenceName: "prepare_publish", Status: txn.TaskCompleted,
		Input:  raw(b.t, map[string]any{"workspace": b.workspace(), "staged": staged}),
		Output: raw(b.t, map[string]any{"publication": txn.Publication{Commit: commit, Outcome: txn.OutcomePublished}}),
	}
}

// Where the hard fence is proven, a target that moved on settles what expected
// its old head.
func TestHardFenceSettlesWhatTheTargetLeftBehind(t *testing.T) {
	t.Parallel()
	b := newFencedBench(t)
	staged := b.stage(0, "2")
	empty := b.branch(txn.NewStagingName(identity, workflow, key(), 1, b.executionAt(0)), b.first)
	sourceName := txn.NewStagingName(identity, workflow, key(), 2, b.executionAt(0))
	sourceName.Source = txn.SourceFirst
	mark := b.branch(sourceName, b.first)
	result := b.run(b.afterStep(staged))
	b.kept(result, staged.StagingBranch, "its publication may still come")
	b.kept(result, empty, "nothing was committed on it")
	b.kept(result, mark, "its merge may still land")

	b.commitForeign()
	b.deleted(b.run(b.afterStep(staged)), staged.StagingBranch, empty, mark)
}

// An installed file proves nothing: lakeFS must have run it for a confirm commit
// on this target, and the source must carry it.
func TestFenceIsProvenByARunAndTheSource(t *testing.T) {
	t.Parallel()
	t.Run("never run", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.installFence()
		staged := b.stage(0, "2")
		b.commitForeign()
		b.kept(b.run(b.afterStep(staged)), staged.StagingBranch, "without the hard fence its merge may still land")
	})
	t.Run("not in the source", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		staged := b.stage(0, "2") // before the fence is there
		input := b.first
		b.installFence()
		b.proveFence()
		b.first = input
		b.kept(b.run(b.afterStep(staged)), staged.StagingBranch, "without the hard fence its merge may still land")
	})
	t.Run("edited in the source", func(t *testing.T) {
		t.Parallel()
		b := newFencedBench(t)
		staged := b.stage(0, "2")
		lakefstest.Put(t, b.lake, b.repo, staged.StagingBranch, map[string]string{txn.FenceFile: string(fence.File()) + "#"})
		record := txn.Record{
			Phase: txn.PhaseTry, Key: key(), Workflow: workflow, Task: "stage", Execution: staged.Execution,
			InputRef: b.first, TargetBranch: "main", Prefix: "data/", StagingBranch: staged.StagingBranch,
		}
		b.commit(staged.StagingBranch, record)
		b.commitForeign()
		b.kept(b.run(b.afterStep(staged)), staged.StagingBranch, "without the hard fence its merge may still land")
	})
}

// The stagings of earlier tries go when the step's publish has completed with
// another one, under the hard fence; a publish that has not completed, or
// published elsewhere, settles nothing.
func TestEarlierStagingsGoAfterThePublication(t *testing.T) {
	t.Parallel()
	b := newFencedBench(t)
	earlier, published := b.stage(0, "2"), b.stage(0, "3")
	died := b.branch(txn.NewStagingName(identity, workflow, key(), 1, b.executionAt(0)), b.first)
	commit := b.publish(published, published.Commit, b.first, "", b.executionAt(0))
	b.kept(b.run(b.afterStep(earlier)), earlier.StagingBranch, "not of this staging")

	b.workflow(txn.WorkflowRunning, b.completedPublish(published, b.first))
	b.kept(b.run(b.afterStep(earlier)), earlier.StagingBranch, "not of this staging")
	if len(b.left()) != 2 { // what was published went with the first cleanup
		t.Errorf("left %v", b.left())
	}
	b.workflow(txn.WorkflowRunning, b.completedPublish(published, commit))
	b.deleted(b.run(b.afterStep(earlier)), earlier.StagingBranch, died)
}

// What this staging has published is no other staging's publication: superseded
// by one whose publish has not completed, its branch stays.
func TestOwnPublicationIsNotAnotherStagings(t *testing.T) {
	t.Parallel()
	b := newFencedBench(t)
	older, newer := b.stage(0, "2"), b.stage(0, "3")
	p1 := b.publish(older, older.Commit, b.first, "", b.executionAt(0))
	b.publish(newer, p1, p1, p1, b.executionAt(0))
	b.workflow(txn.WorkflowRunning, b.completedPublish(older, p1))
	b.kept(b.run(b.afterStep(older)), older.StagingBranch, "not of this staging")
}

// Another step's publication below settles nothing for this one.
func TestAnotherStepsPublicationSettlesNothing(t *testing.T) {
	t.Parallel()
	b := newFencedBench(t)
	mine, newer := b.stage(0, "2"), b.stage(0, "3")
	theirs := txn.Staged{
		Repository: b.repo, Branch: "main", InputRef: b.first, Commit: b.first, Prefix: "models/", Key: txn.NewLogicalTaskKey(workflow, "train_stage", 0),
		Task: "train", PollCount: 1, StartTime: 1764443290123, Execution: b.executionAt(0), NoOp: true,
	}
	record := txn.ConfirmRecord(txn.StepOf(theirs, workflow, theirs.Key), theirs, txn.PublishDecision{ExpectedHead: b.first}, b.first, txn.Attempt{Task: "train"}, b.executionAt(0))
	p, err := b.lake.Merge(t.Context(), txn.Merge{Repository: b.repo, Source: b.first, Destination: "main", Message: "confirm", Metadata: record.Metadata("")})
	if err != nil {
		t.Fatal(err)
	}
	b.publish(newer, p, p, "", b.executionAt(0))
	b.workflow(txn.WorkflowRunning, b.completedPublish(theirs, p))
	b.kept(b.run(b.afterStep(mine)), mine.StagingBranch, "not of this staging")
}

// A commit that somebody made on a staging branch is no input ref: what the
// execution staged may lie below it.
func TestSomebodyElsesCommitOnAStagingBranchSettlesNothing(t *testing.T) {
	t.Parallel()
	b := newFencedBench(t)
	staged := b.stage(0, "2")
	lakefstest.Put(t, b.lake, b.repo, staged.StagingBranch, map[string]string{"data/note": "by hand"})
	if _, err := b.lake.CreateCommit(t.Context(), b.repo, staged.StagingBranch, "by hand", nil); err != nil {
		t.Fatal(err)
	}
	name := txn.NewStagingName(identity, workflow, key(), 1, b.executionAt(0))
	name.Source = txn.SourceFirst
	mark := b.branch(name, b.first)
	lakefstest.Put(t, b.lake, b.repo, mark, map[string]string{"data/note": "by hand"})
	if _, err := b.lake.CreateCommit(t.Context(), b.repo, mark, "by hand", nil); err != nil {
		t.Fatal(err)
	}
	b.commitForeign()
	result := b.run(b.afterStep(staged))
	b.kept(result, staged.StagingBranch, "does not point at a commit of its target or of its execution")
	b.kept(result, mark, "does not point at a commit of its target or of its execution")
}

// A publication that is not in the target's history any more has nothing above
// it.
func TestNothingIsAboveAPublicationThatIsGone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	staged := b.stage(0, "2")
	b.publish(staged, staged.Commit, b.first, "", b.executionAt(0))
	b.cleaner.Events.LateLanding = func(_ txn.Repository, _ txn.Branch, _, late txn.CommitID) { t.Errorf("told of %s", late) }
	b.workflow(txn.WorkflowRunning, b.completedPublish(staged, staged.Commit))
	if result := b.run(b.afterStep(staged)); len(result.Errors) != 0 {
		t.Errorf("%+v", result)
	}
}

// A target that is not allowed, or gone, settles nothing; age still does.
func TestTargetThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	staged := b.stage(9*ttl, "2")
	b.cleaner.Allowed = txn.AllowList{string(b.repo) + "/other"}
	b.kept(b.run(b.ofWorkflow(workflow)), staged.StagingBranch, "main is not in PERAGO_ALLOWED_REPOSITORIES")

	b.cleaner.Allowed = txn.AllowList{"*"}
	elsewhere := b.stage(9*ttl, "3")
	record := txn.Record{
		Phase: txn.PhaseTry, Key: key(), Workflow: workflow, Task: "stage", Execution: elsewhere.Execution,
		InputRef: b.first, TargetBranch: "gone", Prefix: "data/", StagingBranch: elsewhere.StagingBranch,
	}
	lakefstest.Put(t, b.lake, b.repo, elsewhere.StagingBranch, map[string]string{"data/a": "4"})
	b.commit(elsewhere.StagingBranch, record)
	result := b.run(b.ofWorkflow(workflow))
	if len(result.Errors) != 1 || len(b.left()) != 2 {
		t.Errorf("%+v, left %v", result, b.left())
	}
	b.workflow(txn.WorkflowFailed)
	b.deleted(b.run(b.ofWorkflow(workflow)), staged.StagingBranch, elsewhere.StagingBranch)
}
