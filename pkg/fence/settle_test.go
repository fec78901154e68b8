package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"perago/e2e/stack"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

func TestSettle(t *testing.T) {
	t.Parallel()
	onBoth(t, map[string]func(*suite){
		"a late merge":            (*suite).settleLateMerge,
		"what is listed":          (*suite).settleList,
		"staged without a fence":  (*suite).settleLoose,
		"a protected branch":      (*suite).settleProtected,
		"no fence":                (*suite).settleNoFence,
		"an unknown outcome":      (*suite).settleUnknown,
		"somebody else meanwhile": (*suite).settleMeanwhile,
		"what landed":             (*suite).settleWhatLanded,
		"not there":               (*suite).settleMissing,
	})
}

const settleWorkflowID = txn.WorkflowID("5b2bd0ab-8e3b-4b48-a3f5-6a7d0ac0b1f0")

// staging is one step's staged commit on a branch of ours.
type staging struct {
	step   txn.Step
	staged txn.Staged
	tree   txn.MetaRangeID
	open   Unpublished
}

// stage stages files for a target branch, as a stage worker would.
func (s *suite) stage(repo txn.Repository, target txn.Branch, step string, input txn.CommitID) staging {
	s.Helper()
	key := txn.NewLogicalTaskKey(settleWorkflowID, txn.ReferenceName(step), 0)
	id := execution(s)
	branch := txn.NewStagingName("conductor", settleWorkflowID, key, 0, id).Branch()
	s.no(s.client.CreateBranch(s.Context(), repo, branch, input))
	lakefstest.Put(s, s.client, repo, branch, map[string]string{"data/" + step: step})
	record := txn.Record{
		Phase: txn.PhaseTry, Key: key, Workflow: settleWorkflowID, Task: "stage", Execution: id,
		InputRef: input, TargetBranch: target, Prefix: "data/", StagingBranch: branch,
	}
	commit, err := s.client.CreateCommit(s.Context(), repo, branch, "stage", record.Metadata(""))
	s.no(err)
	return staging{
		step: txn.Step{Repository: repo, Branch: target, Workflow: settleWorkflowID, Key: key, Prefix: "data/", InputRef: input},
		staged: txn.Staged{
			Repository: repo, Branch: target, Commit: commit.ID, Execution: id, StagingBranch: branch, InputRef: input, Prefix: "data/",
		},
		tree: commit.MetaRange,
		open: Unpublished{Branch: branch, Commit: commit.ID, Phase: txn.PhaseTry, Key: key, Workflow: settleWorkflowID},
	}
}

// publication is the merge that a publish worker would send.
func (s *suite) publication(one staging, source, expected, supersedes txn.CommitID, publisher txn.ExecutionID) txn.Merge {
	decision := txn.PublishDecision{ExpectedHead: expected, Supersedes: supersedes}
	return txn.Merge{
		Repository: one.step.Repository, Source: source, Destination: one.step.Branch, Message: "publish",
		Metadata: txn.ConfirmRecord(one.step, one.staged, decision, source, txn.Attempt{Task: "publish"}, publisher).Metadata(""),
	}
}

// source is a source branch of a publish, with the staged tree on top of a head.
func (s *suite) source(one staging, head txn.CommitID, publisher txn.ExecutionID) Unpublished {
	s.Helper()
	name := txn.NewStagingName("conductor", settleWorkflowID, one.step.Key, 0, publisher)
	name.Source = txn.SourceFirst
	s.no(s.client.CreateBranch(s.Context(), one.step.Repository, name.Branch(), head))
	record := txn.Record{
		Phase: txn.PhaseSource, Key: one.step.Key, Workflow: settleWorkflowID, Task: "publish", Execution: publisher,
		InputRef: one.step.InputRef, TargetBranch: one.step.Branch, Prefix: one.step.Prefix, StagingBranch: one.staged.StagingBranch,
	}
	commit, err := s.client.CommitTree(s.Context(), one.step.Repository, name.Branch(), one.tree, "source", record.Metadata(""))
	s.no(err)
	return Unpublished{Branch: name.Branch(), Commit: commit.ID, Phase: txn.PhaseSource, Key: one.step.Key, Workflow: settleWorkflowID}
}

// fenced is a repository with the fence, and its head.
func (s *suite) fenced(expect ...lakefstest.Expectation) (txn.Repository, txn.CommitID) {
	s.Helper()
	repo, _ := lakefstest.NewRepository(s, s.client, map[string]string{"a": "1"}, expect...)
	change, err := s.target(repo).Install(s.Context(), Options{})
	s.no(err)
	return repo, change.Head
}

var branchesStay = lakefstest.Expect(lakefstest.RuleBranches)

// The merge that a dead worker had sent arrives after the slot was taken; without
// that it lands.
func (s *suite) settleLateMerge() {
	for _, settled := range []bool{false, true} {
		repo, head := s.fenced(branchesStay)
		late := s.stage(repo, lakefstest.DefaultBranch, "late", head)
		merge := s.publication(late, late.staged.Commit, head, "", execution(s))
		if !settled {
			landed, err := s.client.Merge(s.Context(), merge)
			s.no(err)
			s.equal(s.head(repo), landed)
			continue
		}
		first, err := s.target(repo).Settle(s.Context())
		s.no(err)
		s.equal(first, Settlement{Head: s.head(repo), Before: head, Stopped: []Unpublished{late.open}})
		s.equal(s.tree(repo, first.Head), s.tree(repo, head))
		// What the fence held is the very commit that the hook was asked for.
		runs, err := s.client.HookRuns(s.Context(), repo, first.Head)
		s.no(err)
		s.equal(txn.FenceOf(runs), txn.FenceHard)

		refused := func(merge txn.Merge) {
			s.Helper()
			before := s.head(repo)
			if _, err := s.client.Merge(s.Context(), merge); !errors.Is(err, txn.ErrHookRefused) || !strings.Contains(err.Error(), "412") || !strings.Contains(err.Error(), txn.FenceRefusal) {
				s.Errorf("the late merge: %v", err)
			}
			s.equal(s.head(repo), before)
		}
		refused(merge)
		// A second one takes the slot again, and the first stays refused.
		second, err := s.target(repo).Settle(s.Context())
		s.no(err)
		s.equal(second, Settlement{Head: s.head(repo), Before: first.Head, Stopped: []Unpublished{late.open}})
		refused(merge)
		// The branch is as usable as before.
		next := s.stage(repo, lakefstest.DefaultBranch, "next", second.Head)
		_, err = s.client.Merge(s.Context(), s.publication(next, next.staged.Commit, second.Head, "", execution(s)))
		s.no(err)
		third, err := s.target(repo).Settle(s.Context())
		s.no(err)
		s.equal(third.Stopped, []Unpublished{late.open})
	}
}

func byName(a, b Unpublished) int { return strings.Compare(string(a.Branch), string(b.Branch)) }

// What is published is not listed, nor what is for another branch, has no commit,
// is somebody else's, or was cut from what came after.
func (s *suite) settleList() {
	repo, head := s.fenced(branchesStay)
	main := txn.Branch(lakefstest.DefaultBranch)
	s.no(s.client.CreateBranch(s.Context(), repo, "release", head))

	published := s.stage(repo, main, "published", head)
	landed, err := s.client.Merge(s.Context(), s.publication(published, published.staged.Commit, head, "", execution(s)))
	s.no(err)
	// The same step staged again and superseded it, by a source branch.
	again := s.stage(repo, main, "published", head)
	publisher := execution(s)
	superseding := s.source(again, landed, publisher)
	landed, err = s.client.Merge(s.Context(), s.publication(again, superseding.Commit, landed, landed, publisher))
	s.no(err)
	// And once more, whose publication was not sent.
	third := s.stage(repo, main, "published", head)
	open := s.source(third, landed, execution(s))
	lost := s.stage(repo, main, "lost", landed)

	s.stage(repo, "release", "elsewhere", head)
	empty := txn.NewStagingName("conductor", settleWorkflowID, "w:empty:0", 0, execution(s)).Branch()
	s.no(s.client.CreateBranch(s.Context(), repo, empty, landed))
	// A branch that was cut from a staged commit holds that one's record, not its own.
	copied := txn.NewStagingName("conductor", settleWorkflowID, lost.step.Key, 0, execution(s)).Branch()
	s.no(s.client.CreateBranch(s.Context(), repo, copied, lost.staged.Commit))
	s.no(s.client.CreateBranch(s.Context(), repo, "perago-staging-theirs", lost.staged.Commit))

	var after staging
	settlement, err := s.with(repo, &lake{merge: func(ctx context.Context, m txn.Merge) (txn.CommitID, error) {
		id, err := s.client.Merge(ctx, m)
		if err == nil {
			after = s.stage(repo, main, "after", id)
		}
		return id, err
	}}).Settle(s.Context())
	s.no(err)
	want := []Unpublished{third.open, open, lost.open}
	slices.SortFunc(want, byName)
	s.equal(settlement, Settlement{Head: s.head(repo), Before: landed, Stopped: want})
	_, err = s.client.Merge(s.Context(), s.publication(after, after.staged.Commit, settlement.Head, "", execution(s)))
	s.no(err)
	_, err = s.client.Merge(s.Context(), s.publication(third, open.Commit, landed, landed, execution(s)))
	if !errors.Is(err, txn.ErrHookRefused) {
		s.Errorf("the superseding publication: %v", err)
	}
}

// What was staged before the fence was installed is not held by it, and settle
// must not say that it is.
func (s *suite) settleLoose() {
	var late txn.CommitID
	repo, first := lakefstest.NewRepository(s, s.client, map[string]string{"a": "1"},
		branchesStay, lakefstest.Raced(func() []txn.CommitID { return []txn.CommitID{late} }))
	loose := s.stage(repo, lakefstest.DefaultBranch, "loose", first)
	// An edited file may hold nothing at all.
	edited := s.commit(repo, map[string]string{txn.FenceFile: strings.Replace(string(file), "~= 1", "~= 2", 1)})
	other := s.stage(repo, lakefstest.DefaultBranch, "edited", edited)
	_, err := s.target(repo).Install(s.Context(), Options{})
	s.no(err)
	settlement, err := s.target(repo).Settle(s.Context())
	s.no(err)
	want := []Unpublished{loose.open, other.open}
	slices.SortFunc(want, byName)
	s.equal([][]Unpublished{settlement.Stopped, settlement.Loose}, [][]Unpublished{nil, want})
	late, err = s.client.Merge(s.Context(), s.publication(loose, loose.staged.Commit, first, "", execution(s)))
	s.no(err)
}

func (s *suite) settleProtected() {
	// As in protectedBranch, the rule is set before anything is written.
	repo, _ := lakefstest.NewRepository(s, s.client, nil)
	_, err := s.client.Protect(s.Context(), repo, lakefstest.DefaultBranch)
	s.no(err)
	if _, err := s.client.Upload(s.Context(), repo, lakefstest.DefaultBranch, "x", lakefstest.Text("x")); !errors.Is(err, txn.ErrForbidden) {
		s.Fatalf("the branch is not protected: %v", err)
	}
	change, err := s.target(repo).Install(s.Context(), Options{})
	s.no(err)
	settlement, err := s.target(repo).Settle(s.Context())
	s.no(err)
	s.equal(settlement, Settlement{Head: s.head(repo), Before: change.Head})
}

func (s *suite) settleNoFence() {
	for name, c := range map[string]struct{ content, said string }{
		"none":   {"", "holds no " + txn.FenceFile + "; run `perago fence install lakefs://"},
		"edited": {strings.Replace(string(file), "~= 1", "~= 2", 1), "was edited; run `perago fence install lakefs://"},
	} {
		files := map[string]string{"a": "1"}
		if c.content != "" {
			files[txn.FenceFile] = c.content
		}
		repo, head := lakefstest.NewRepository(s, s.client, files)
		_, err := s.with(repo, &lake{merge: func(context.Context, txn.Merge) (txn.CommitID, error) {
			s.Errorf("%s: a merge was sent", name)
			return "", txn.ErrConflict
		}}).Settle(s.Context())
		s.fault(err, txn.FenceFile, c.said)
		s.equal(s.head(repo), head)
	}
}

// fast is as many reads as txn.Pauses makes.
var fast = make([]time.Duration, len(txn.Pauses()))

func (s *suite) settleUnknown() {
	repo, head := s.fenced()
	sent := 0
	lost := &lake{merge: func(ctx context.Context, m txn.Merge) (txn.CommitID, error) {
		sent++
		_, err := s.client.Merge(ctx, m)
		return "", errors.Join(err, txn.ErrUnknownOutcome)
	}}
	settlement, err := s.with(repo, lost).settle(s.Context(), fast)
	s.no(err)
	s.equal(settlement, Settlement{Head: s.head(repo), Before: head})
	s.equal(sent, 1)

	// Interrupted while it was on its way: it is still found, and said.
	ctx, cancel := context.WithCancel(s.Context())
	_, err = s.with(repo, &lake{merge: func(ctx context.Context, m txn.Merge) (txn.CommitID, error) {
		_, err := s.client.Merge(ctx, m)
		cancel()
		return "", errors.Join(err, txn.ErrUnknownOutcome)
	}}).settle(ctx, fast)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "main is settled by commit "+string(s.head(repo))+", but what can no longer land could not be listed") {
		s.Errorf("interrupted: %v", err)
	}

	// Never applied: that is not known, and nothing is sent again.
	head, sent = s.head(repo), 0
	_, err = s.with(repo, &lake{merge: func(context.Context, txn.Merge) (txn.CommitID, error) {
		sent++
		return "", txn.ErrUnknownOutcome
	}}).settle(s.Context(), fast)
	if !errors.Is(err, txn.ErrUnknownOutcome) || !strings.Contains(err.Error(), "whether the commit that settles main landed is not known; run `perago settle lakefs://"+string(repo)+"/main` again") {
		s.Errorf("never applied: %v", err)
	}
	s.equal([]any{s.head(repo), sent}, []any{head, 1})
}

// Somebody else's commit takes the slot: that is said, whichever answer comes.
func (s *suite) settleMeanwhile() {
	repo, _ := s.fenced()
	for name, answer := range map[string]func(context.Context, txn.Merge) (txn.CommitID, error){
		"refused": s.client.Merge,
		"lost":    func(context.Context, txn.Merge) (txn.CommitID, error) { return "", txn.ErrUnknownOutcome },
	} {
		var theirs txn.CommitID
		_, err := s.with(repo, &lake{merge: func(ctx context.Context, m txn.Merge) (txn.CommitID, error) {
			theirs = s.commit(repo, map[string]string{"b": name})
			return answer(ctx, m)
		}}).settle(s.Context(), fast)
		if err == nil || !strings.Contains(err.Error(), "main moved while it was being settled; look at what landed there, and run `perago settle") {
			s.Errorf("%s: %v", name, err)
		}
		s.equal(s.head(repo), theirs)
	}
}

// A lakeFS that does not do what it was asked settles nothing, and settle says so.
func (s *suite) settleWhatLanded() {
	repo, _ := s.fenced(lakefstest.Allow(lakefstest.RuleMetadata))
	run := func(status string) func(context.Context, txn.Repository, txn.CommitID) ([]txn.HookRun, error) {
		return func(context.Context, txn.Repository, txn.CommitID) ([]txn.HookRun, error) {
			return []txn.HookRun{{Event: "pre-merge", Action: txn.FenceAction, Hook: txn.FenceHook, Status: status}}, nil
		}
	}
	refuse := func(words string) func(context.Context, txn.Merge) (txn.CommitID, error) {
		return func(context.Context, txn.Merge) (txn.CommitID, error) {
			return "", fmt.Errorf("412: %s: %w", words, txn.ErrHookRefused)
		}
	}
	for name, c := range map[string]struct {
		lake lake
		said string
	}{
		"without our metadata": {lake{merge: func(ctx context.Context, m txn.Merge) (txn.CommitID, error) {
			m.Metadata = nil
			return s.client.Merge(ctx, m)
		}}, "nothing is settled: main was raced: the merge landed as"},
		"on another head": {lake{hookRuns: run("completed"), merge: func(ctx context.Context, m txn.Merge) (txn.CommitID, error) {
			s.commit(repo, map[string]string{"between": "1"})
			meta := m.Metadata
			m.Metadata = nil
			id, err := s.client.Merge(ctx, m)
			m.Metadata = meta
			return id, err
		}}, "nothing is settled: main was raced"},
		"the hook was skipped": {lake{hookRuns: run("skipped")}, "nothing is settled: lakeFS has no completed run of the hook perago_publish_fence"},
		"the runs cannot be read": {lake{hookRuns: func(context.Context, txn.Repository, txn.CommitID) ([]txn.HookRun, error) {
			return nil, txn.ErrForbidden
		}}, "cannot be read, so it is not known that anything is settled; run `perago settle"},
		"another hook":   {lake{merge: refuse("not on my watch")}, "a hook of another action in _lakefs_actions/ refused the commit, so nothing is settled"},
		"a dirty branch": {lake{merge: func(context.Context, txn.Merge) (txn.CommitID, error) { return "", txn.ErrDirtyBranch }}, "so nothing is settled: "},
	} {
		settlement, err := s.with(repo, &c.lake).settle(s.Context(), fast)
		if err == nil || !strings.Contains(err.Error(), c.said) || settlement.Head != "" {
			s.Errorf("%s: %+v, %v", name, settlement, err)
		}
	}
}

func (s *suite) settleMissing() {
	repo, _ := lakefstest.NewRepository(s, s.client, nil)
	target := s.target(repo)
	target.Branch = "missing"
	if _, err := target.Settle(s.Context()); !errors.Is(err, txn.ErrNotFound) {
		s.Errorf("%v", err)
	}
}

// The file is there and nothing asks it: what looks settled is not. The control is
// that the late merge lands all the same.
func TestSettleActionsOff(t *testing.T) {
	t.Parallel()
	off := func(s *suite) {
		var landed txn.CommitID
		repo, head := s.fenced(branchesStay, lakefstest.Raced(func() []txn.CommitID { return []txn.CommitID{landed} }))
		late := s.stage(repo, lakefstest.DefaultBranch, "late", head)
		_, err := s.target(repo).Settle(s.Context())
		s.fault(err, "nothing is settled: lakeFS ran no hook for the commit "+string(s.head(repo))+" that now is on main, its actions are switched off (LAKEFS_ACTIONS_ENABLED, or actions.enabled in its configuration); "+
			"switch them on, restart lakeFS and run `perago settle lakefs://"+string(repo)+"/main` again")
		landed, err = s.client.Merge(s.Context(), s.publication(late, late.staged.Commit, head, "", execution(s)))
		s.no(err)
	}
	t.Run("memory", func(t *testing.T) {
		server := lakefstest.NewServer()
		server.ActionsOff = true
		off(&suite{T: t, client: server.Client(t)})
	})
	if stack.Short(t) {
		return
	}
	t.Run("real", func(t *testing.T) {
		off(&suite{T: t, client: realClient(t, stack.StartLakeFS(t, "LAKEFS_ACTIONS_ENABLED=false"))})
	})
}
