package e2e

import (
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/conductor/conductortest"
	"perago/pkg/fault"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// A worker is suspended at a point of its work, its task is taken away from it,
// another worker does the task, and only then the first one goes on: a zombie.
// It must send nothing but reads, to lakeFS and to Conductor, whatever took its
// task away and wherever it stood.
//
// The zombie's process is stopped with SIGSTOP, as when a machine is suspended,
// and its lease is long, so that no heartbeat tells it what happened. What it is
// stopped at is an answer that is held back: when it wakes, all it knows is older
// than what took its task away, and only its fence stands before the next write.
// (During an upload there is no such fence, and the heartbeat is what ends it. To
// time out the lease has to be short.)
//
// Left out here: a write that the zombie had sent before its task was taken away
// and that reaches the server afterwards, the merge above all. No fence of the
// worker's can stop that one; it is for the publish fence and for settling.
func TestZombiesAreSilent(t *testing.T) {
	t.Parallel()
	for _, point := range points {
		t.Run(point.name, func(t *testing.T) {
			t.Parallel()
			l := newLane(t, point)
			for _, c := range point.cells {
				t.Run(c.action.name, func(t *testing.T) { l.run(t, c) })
			}
			l.finish()
		})
	}
}

// The contents of a step: what the repository holds at first, what the zombie's
// run of the step brings, and what the next run does.
var (
	inputTree = map[string]string{"data/a": "old", "data/keep": "k", "other": "o"}
	firstRun  = map[string]string{"a": "the first run's", "keep": "k", "1": "x", "2": "x", "3": "x", "only the first": "x"}
	secondRun = map[string]string{"a": "the second run's", "keep": "k", "1": "y", "only the second": "y"}
)

// published is the whole tree once a run's content is published.
func published(run map[string]string) map[string]string {
	tree := map[string]string{"other": inputTree["other"]}
	for path, content := range run {
		tree["data/"+path] = content
	}
	return tree
}

// point is where the zombie is stopped.
type point struct {
	name string
	// worker is whose work it is, task the reference name of that work.
	worker string
	task   txn.ReferenceName
	// hold stops the zombie there.
	hold func(lake *fault.Proxy, repo txn.Repository) *fault.Hold
	// sending says that the zombie is stopped in a write: it is let go only when
	// it has noticed by itself that its task is gone.
	sending bool
	// landed says that the zombie has published by then.
	landed bool
	cells  []cell
}

// action is what happens to the task while the zombie is stopped.
type action struct {
	name string
	// take takes the task away; nil where it stays the zombie's.
	take func(*trial)
	// sameTask, retry and polls are of the attempt that ends the task: Conductor
	// hands out the very same task again, or another.
	sameTask     bool
	retry, polls int
	// rerun says that Conductor may count the polls from zero again.
	rerun bool
	// over says that there is no other attempt.
	over bool
	// whileLive wakes the zombie while the other attempt is at work, when the task
	// is IN_PROGRESS and only the poll identity tells the two apart. Otherwise it
	// wakes when the workflow has ended.
	whileLive bool
	// whole says that the whole workflow runs again, its user task too.
	whole bool
	// brief says that the lease has to be a short one.
	brief bool
}

var (
	rerun = action{name: "rerun", sameTask: true, polls: 2, rerun: true, take: func(r *trial) {
		r.must(r.operator.Terminate(r.t.Context(), r.id, "an operator stops it"))
		r.must(r.operator.RerunPolled(r.t.Context(), r.id, r.task.ID))
	}}
	// Somebody fails the task by hand, the failure workflow cleans up, and then the
	// operator retries.
	retry = action{name: "retry", retry: 1, polls: 1, take: func(r *trial) {
		r.must(r.conductor.Update(r.t.Context(), txn.TaskResult{
			Task: r.task.ID, Workflow: r.id, Worker: "an operator", Status: txn.TaskFailedWithTerminalError, Reason: "an operator fails it",
		}))
		if workflow := r.end(r.id); workflow.Status != txn.WorkflowFailed {
			r.t.Fatalf("the failed task did not fail its workflow: %s", describe(workflow))
		}
		r.must(r.operator.RetryTaken(r.t.Context(), r.id))
	}}
	restart = action{name: "restart", polls: 1, whole: true, take: func(r *trial) {
		r.must(r.operator.Terminate(r.t.Context(), r.id, "an operator stops it"))
		r.must(r.operator.Restart(r.t.Context(), r.id))
	}}
	terminate = action{name: "terminate", over: true, sameTask: true, polls: 1, take: func(r *trial) {
		r.must(r.operator.Terminate(r.t.Context(), r.id, "an operator stops it"))
	}}
	pauseResume = action{name: "pause and resume", sameTask: true, polls: 1}
	timeout     = action{name: "timeout", retry: 1, polls: 1, brief: true, take: func(r *trial) { r.timeOut(r.id, r.task.ID) }}
	// A plain IN_PROGRESS puts the task back into its queue.
	duplicate = action{name: "duplicate delivery", sameTask: true, polls: 2, take: func(r *trial) {
		r.must(r.conductor.Update(r.t.Context(), txn.TaskResult{Task: r.task.ID, Workflow: r.id, Worker: "somebody", Status: txn.TaskInProgress}))
	}}
	rerunLive     = whileLive("rerun, its successor at work", rerun)
	duplicateLive = whileLive("duplicate delivery, its successor at work", duplicate)
)

func whileLive(name string, a action) action {
	a.name, a.whileLive = name, true
	return a
}

// cell is one action at one point, and what must come of it.
type cell struct {
	action action
	// run is the content that is published in the end; nil when nothing is.
	run map[string]string
	// commits is how many confirm commits the step has made.
	commits int
	// outcome is the publication's.
	outcome txn.Outcome
	// left is how many branches are left. What nobody published is settled only by
	// the hard fence or, once the workflow has ended, by a cleanup that comes then.
	left int
}

// A row for each action at each point. In the first three the zombie is a stage
// worker, so what is published is the other attempt's. A terminated workflow has
// no cleanup; after a failed one the failure workflow has cleaned up.
var points = []point{
	{
		// The listing is the last thing that stage asks before the fence and the
		// creation of its branch.
		name: "before stage writes", worker: "stage-worker", task: "prepare_stage",
		hold: func(lake *fault.Proxy, repo txn.Repository) *fault.Hold {
			return lake.HoldAnswer(fault.Match{Method: http.MethodGet, Path: "/repositories/" + string(repo) + "/refs/", Query: "prefix="})
		},
		cells: []cell{
			{pauseResume, firstRun, 1, txn.OutcomePublished, 0},
			{rerun, secondRun, 1, txn.OutcomePublished, 0},
			{rerunLive, secondRun, 1, txn.OutcomePublished, 0},
			{retry, secondRun, 1, txn.OutcomePublished, 0},
			{restart, secondRun, 1, txn.OutcomePublished, 0},
			{terminate, nil, 0, "", 0},
			{timeout, secondRun, 1, txn.OutcomePublished, 0},
			{duplicate, secondRun, 1, txn.OutcomePublished, 0},
			{duplicateLive, secondRun, 1, txn.OutcomePublished, 0},
		},
	},
	{
		name: "during upload", worker: "stage-worker", task: "prepare_stage", sending: true,
		hold: func(lake *fault.Proxy, repo txn.Repository) *fault.Hold {
			return lake.Hold(fault.Match{Method: http.MethodPost, Path: "/repositories/" + string(repo) + "/branches/", Query: "path=", Nth: 3})
		},
		cells: []cell{
			{pauseResume, firstRun, 1, txn.OutcomePublished, 0},
			{rerun, secondRun, 1, txn.OutcomePublished, 1},
			{rerunLive, secondRun, 1, txn.OutcomePublished, 1},
			{retry, secondRun, 1, txn.OutcomePublished, 0},
			{restart, secondRun, 1, txn.OutcomePublished, 1},
			{terminate, nil, 0, "", 1},
			{timeout, secondRun, 1, txn.OutcomePublished, 1},
			{duplicate, secondRun, 1, txn.OutcomePublished, 1},
			{duplicateLive, secondRun, 1, txn.OutcomePublished, 1},
		},
	},
	{
		name: "after the staging commit", worker: "stage-worker", task: "prepare_stage",
		hold: func(lake *fault.Proxy, repo txn.Repository) *fault.Hold {
			return lake.HoldAnswer(fault.Match{Method: http.MethodPost, Path: "/commits"})
		},
		cells: []cell{
			{pauseResume, firstRun, 1, txn.OutcomePublished, 0},
			{rerun, secondRun, 1, txn.OutcomePublished, 1},
			{rerunLive, secondRun, 1, txn.OutcomePublished, 1},
			{retry, secondRun, 1, txn.OutcomePublished, 0},
			{restart, secondRun, 1, txn.OutcomePublished, 1},
			{terminate, nil, 0, "", 1},
			{timeout, secondRun, 1, txn.OutcomePublished, 1},
			{duplicate, secondRun, 1, txn.OutcomePublished, 1},
			{duplicateLive, secondRun, 1, txn.OutcomePublished, 1},
		},
	},
	{
		// The zombie has read the old head and decided on it: only the fence right
		// before the merge is left.
		name: "before the merge", worker: "publish-worker", task: "prepare_publish",
		hold: func(lake *fault.Proxy, repo txn.Repository) *fault.Hold {
			return lake.HoldAnswer(fault.Match{Method: http.MethodGet, Path: "/repositories/" + string(repo) + "/branches/main"})
		},
		cells: []cell{
			{pauseResume, firstRun, 1, txn.OutcomePublished, 0},
			{rerun, firstRun, 1, txn.OutcomePublished, 0},
			{rerunLive, firstRun, 1, txn.OutcomePublished, 0},
			{retry, firstRun, 1, txn.OutcomePublished, 0},
			{restart, secondRun, 1, txn.OutcomePublished, 1},
			{terminate, nil, 0, "", 1},
			{timeout, firstRun, 1, txn.OutcomePublished, 0},
			{duplicate, firstRun, 1, txn.OutcomePublished, 0},
			{duplicateLive, firstRun, 1, txn.OutcomePublished, 0},
		},
	},
	{
		// Which fence held is the last thing that publish reads, of what landed. What
		// the zombie published, the next attempt adopts; a restarted workflow brings a
		// staging of its own, which supersedes it.
		name: "after the merge", worker: "publish-worker", task: "prepare_publish", landed: true,
		hold: func(lake *fault.Proxy, repo txn.Repository) *fault.Hold {
			return lake.HoldAnswer(fault.Match{Method: http.MethodGet, Path: "/repositories/" + string(repo) + "/actions/runs"})
		},
		cells: []cell{
			{pauseResume, firstRun, 1, txn.OutcomePublished, 0},
			{rerun, firstRun, 1, txn.OutcomeAlreadyPublished, 0},
			{rerunLive, firstRun, 1, txn.OutcomeAlreadyPublished, 0},
			{retry, firstRun, 1, txn.OutcomeAlreadyPublished, 0},
			{restart, secondRun, 2, txn.OutcomePublished, 1},
			{terminate, firstRun, 1, "", 1},
			{timeout, firstRun, 1, txn.OutcomeAlreadyPublished, 0},
			{duplicate, firstRun, 1, txn.OutcomeAlreadyPublished, 0},
			{duplicateLive, firstRun, 1, txn.OutcomeAlreadyPublished, 0},
		},
	},
}

// lane is one point's fleet: the worker that becomes a zombie and the one that
// takes over, each with a gate on its polls so that the test says which of them
// gets a task. The cells run one after the other.
type lane struct {
	*fleet
	point point
	// long and brief are the workflow, with a long lease of the zombie's task and
	// with a short one.
	long, brief string
	zombie      *fronted
	live        *fronted
	zombieGate  *fault.Gate
	liveGate    *fault.Gate
	slept       []sleep
}

// sleep is a zombie that was woken.
type sleep struct {
	mark
	repo     txn.Repository
	workflow txn.WorkflowID
}

func newLane(t *testing.T, p point) *lane {
	t.Helper()
	f := newFleetOf(t, setup{without: p.worker, repositories: "*"})
	l := &lane{fleet: f, point: p}
	l.long = f.register("zombie", publishedBy("perago_publish", step("prepare", "data/", "${workflow.input.workspace}", nil))...)
	var env []string
	if p.worker == "stage-worker" {
		l.brief = briefStage(f)
		// One upload at a time, so that the third is the third.
		env = append(f.stageEnv(), "PERAGO_UPLOAD_CONCURRENCY=1")
	} else {
		l.brief, env = brief(f), []string{publishEnv}
	}
	polls := fault.Match{Method: http.MethodGet, Path: "/tasks/poll/"}
	l.zombie, l.live = f.behind(p.worker, env...), f.behind(p.worker, env...)
	l.zombieGate, l.liveGate = l.zombie.conductor.Gate(polls), l.live.conductor.Gate(polls)

	var mu sync.Mutex
	runs := map[txn.WorkflowID]int{}
	f.user("prepare", func(task txn.Task) map[string]string {
		mu.Lock()
		defer mu.Unlock()
		runs[task.Workflow]++
		if runs[task.Workflow] > 1 {
			return secondRun
		}
		return firstRun
	})
	return l
}

// finish drains the workers, and holds each zombie once more to its silence: now
// nothing can come any more.
func (l *lane) finish() {
	l.t.Helper()
	l.stop(l.zombie.process)
	l.stop(l.live.process)
	for _, s := range l.slept {
		for _, request := range writes(s.after()) {
			if text := request.Path + request.Body; strings.Contains(text, string(s.repo)) || strings.Contains(text, string(s.workflow)) {
				l.t.Errorf("a zombie of workflow %s wrote after it had dropped its task: %s", s.workflow, request)
			}
		}
	}
}

// trial is one cell under way.
type trial struct {
	*fleet
	lane *lane
	cell cell
	// id is the workflow, task what was the zombie's when it was stopped.
	id   txn.WorkflowID
	task txn.Task
}

// run runs one cell on a repository of its own.
func (l *lane) run(t *testing.T, c cell) {
	f := *l.fleet
	f.t = t
	var expect []lakefstest.Expectation
	if c.left > 0 {
		expect = append(expect, lakefstest.Expect(lakefstest.RuleBranches))
	}
	f.repo, f.first = lakefstest.NewRepository(t, f.lake, inputTree, expect...)
	r := &trial{fleet: &f, lane: l, cell: c}

	began, beganLive := markOf(l.zombie), markOf(l.live)
	l.liveGate.Close()
	l.zombieGate.Open()
	held := l.point.hold(l.zombie.lake, f.repo)
	// Should the cell fail before it lets go, then the worker is free for the next.
	t.Cleanup(held.Pass)
	definition := l.long
	if c.action.brief || l.point.sending {
		definition = l.brief
	}
	r.id = f.start(definition, map[string]any{"workspace": f.workspace(f.first)})
	held.Wait(t, waitTime)
	r.task = f.inProgress(r.id, l.point.task)
	l.zombieGate.Close()
	if c.action.take == nil {
		r.pauseAndResume(held)
		workflow := f.end(r.id)
		// The control: these very logs see a worker that is no zombie.
		r.worked("the paused attempt", began.after(), true)
		r.ended(workflow)
		return
	}

	r.signal(syscall.SIGSTOP)
	t.Cleanup(func() { r.signal(syscall.SIGCONT) })
	c.action.take(r)
	var workflow txn.Workflow
	switch {
	case c.action.over:
		workflow = f.end(r.id)
		r.wake(held)
	case c.action.whileLive:
		begun := l.live.lake.HoldAnswer(fault.Match{Method: http.MethodGet, Path: "/repositories/" + string(f.repo) + "/commits/"})
		t.Cleanup(begun.Pass)
		r.next()
		begun.Wait(t, waitTime)
		r.wake(held)
		begun.Pass()
		workflow = f.end(r.id)
	default:
		r.next()
		workflow = f.end(r.id)
		r.wake(held)
	}
	if !c.action.over {
		r.worked("the other attempt", beganLive.after(), c.outcome == txn.OutcomePublished)
	}
	r.ended(workflow)
}

func (r *trial) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *trial) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.lane.zombie.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		r.t.Fatalf("signal %s: %v", s, err)
	}
}

// next lets the other worker have the task. A stage that runs again finds other
// files than the zombie did; those that both find are not touched, so that it is
// not a changed file that stops the zombie.
func (r *trial) next() {
	r.t.Helper()
	if r.lane.point.worker == "stage-worker" && !r.cell.action.whole {
		workflow, err := r.conductor.Workflow(r.t.Context(), r.id)
		r.must(err)
		directory := filepath.Join(r.root, string(r.id), string(last(r.t, workflow, "prepare").ID))
		other := maps.Clone(secondRun)
		for path, content := range firstRun {
			if other[path] == content {
				delete(other, path)
				continue
			}
			r.must(os.Remove(filepath.Join(directory, path)))
		}
		write(r.t, directory, other)
	}
	r.lane.liveGate.Open()
}

// pauseAndResume lets the attempt go on while its workflow is paused: it is as
// current as before.
func (r *trial) pauseAndResume(held *fault.Hold) {
	r.t.Helper()
	r.must(r.operator.Pause(r.t.Context(), r.id))
	held.Pass()
	eventually(r.t, waitTime, "the attempt completes in the paused workflow", func() (bool, string) {
		now, err := r.conductor.Task(r.t.Context(), r.task.ID)
		r.must(err)
		return now.Status == txn.TaskCompleted, string(now.Status)
	})
	if status, err := r.conductor.WorkflowStatus(r.t.Context(), r.id); err != nil || status != txn.WorkflowPaused {
		r.t.Errorf("the workflow is %s, %v; want PAUSED", status, err)
	}
	r.must(r.operator.Resume(r.t.Context(), r.id))
}

// wake lets the zombie go on and looks at what it sends until it drops its task.
func (r *trial) wake(held *fault.Hold) {
	r.t.Helper()
	zombie := r.lane.zombie
	asleep := sleep{mark: markOf(zombie), repo: r.repo, workflow: r.id}
	const (
		silence   = "stale attempt: nothing is reported"
		abandoned = "publication abandoned: it landed, but its task is not completed"
		leaseLost = "lease lost: the work is cancelled"
	)
	silences, lost, leases := said(zombie, silence, r.task.ID), said(zombie, abandoned, r.task.ID), said(zombie, leaseLost, r.task.ID)
	drops := func() {
		r.t.Helper()
		eventually(r.t, waitTime, "the zombie drops its task", func() (bool, string) {
			// One that writes is no better for being waited for.
			return said(zombie, silence, r.task.ID) > silences || len(writes(asleep.after())) > 0, ""
		})
	}
	if r.lane.point.sending {
		r.signal(syscall.SIGCONT)
		drops()
		held.Pass()
	} else {
		// The answer comes first: where a heartbeat is due, it comes too late to be
		// what stops the work.
		held.Pass()
		r.signal(syscall.SIGCONT)
		drops()
	}
	r.lane.slept = append(r.lane.slept, asleep)
	sent := asleep.after()
	if wrote := writes(sent); len(wrote) != 0 {
		r.t.Errorf("the zombie wrote: %v", wrote)
	}
	asked := slices.ContainsFunc(sent.conductor, func(q fault.Request) bool { return strings.HasSuffix(q.Path, "/tasks/"+string(r.task.ID)) })
	// A short lease may be over when it wakes: then there is nothing to ask for.
	if !asked && !(r.cell.action.brief && said(zombie, leaseLost, r.task.ID) > leases) {
		r.t.Errorf("the zombie did not ask whether the task is still its own: %v", sent.conductor)
	}
	if r.lane.point.landed {
		// What it published stands in lakeFS, and it may not say so to Conductor.
		eventually(r.t, waitTime, "the zombie says what it abandons", func() (bool, string) {
			return said(zombie, abandoned, r.task.ID) > lost, ""
		})
	}
}

// said is how many lines of a worker's log say this of a task.
func said(p *fronted, message string, task txn.TaskID) int {
	count := 0
	for line := range strings.Lines(p.stderr()) {
		if strings.Contains(line, `"msg":"`+message+`"`) && strings.Contains(line, string(task)) {
			count++
		}
	}
	return count
}

// worked is the control of what is asked of a zombie: a worker that may act is
// seen to write, in the same kind of log, by the same means.
func (r *trial) worked(who string, sent traffic, lake bool) {
	r.t.Helper()
	if toLake := writes(traffic{lake: sent.lake}); (len(toLake) > 0) != lake {
		r.t.Errorf("%s sent to lakeFS: %v", who, toLake)
	}
	if !slices.ContainsFunc(writes(sent), func(q fault.Request) bool {
		return strings.Contains(q.Body, `"COMPLETED"`) && strings.Contains(q.Body, string(r.id))
	}) {
		r.t.Errorf("the log does not see that %s completed its task: %v", who, sent.conductor)
	}
}

// ended looks at how the workflow ended and what the target holds.
func (r *trial) ended(workflow txn.Workflow) {
	r.t.Helper()
	c := r.cell
	want := txn.WorkflowCompleted
	if c.action.over {
		want = txn.WorkflowTerminated
	}
	if workflow.Status != want {
		r.t.Errorf("the workflow is not %s: %s", want, describe(workflow))
	}
	final := last(r.t, workflow, r.lane.point.task)
	polls := c.action.polls
	if c.action.rerun && conductortest.InTheMannerOf(r.servers.ConductorVersion).RerunResetsPolls() {
		polls = 1
	}
	if (final.ID == r.task.ID) != c.action.sameTask || final.RetryCount != c.action.retry || final.PollCount != polls {
		r.t.Errorf("the task was %s and ended as %s, retry count %d, poll count %d", r.task.ID, final.ID, final.RetryCount, final.PollCount)
	}

	tree := inputTree
	if c.run != nil {
		tree = published(c.run)
	}
	if diff := cmp.Diff(tree, lakefstest.Tree(r.t, r.lake, r.repo, r.head())); diff != "" {
		r.t.Errorf("the target's tree (-want +got):\n%s", diff)
	}
	commits, reached, err := r.lake.History(r.t.Context(), r.repo, r.head(), r.first, txn.HistoryLimit)
	if err != nil || !reached || len(commits) != c.commits {
		r.t.Errorf("the target has %d commits, %v, %v; want %d", len(commits), reached, err, c.commits)
	}
	for _, commit := range commits {
		if record := r.record(commit.ID); record.Phase != txn.PhaseConfirm || record.Key != txn.NewLogicalTaskKey(r.id, "prepare_stage", 0) {
			r.t.Errorf("%s is no publication of this step: %+v", commit.ID, record)
		}
	}
	if c.outcome != "" {
		publish := last(r.t, workflow, "prepare_publish")
		if o := outputOf(r.t, publish); o.Publication == nil || o.Publication.Outcome != c.outcome || o.Workspace == nil || o.Workspace.Ref != r.head() {
			r.t.Errorf("publish put out %s; the head is %s", publish.Output, r.head())
		}
	}
	branches, err := r.lake.Branches(r.t.Context(), r.repo, "perago-")
	if err != nil || len(branches) != c.left {
		r.t.Errorf("branches %v, %v; want %d", branches, err, c.left)
	}
}

// mark is a place in the logs of a worker's proxies.
type mark struct {
	of              *fronted
	lake, conductor int
}

func markOf(p *fronted) mark {
	return mark{of: p, lake: len(p.lake.Log()), conductor: len(p.conductor.Log())}
}

// traffic is what a worker sent.
type traffic struct{ lake, conductor []fault.Request }

// after is what came after the mark.
func (m mark) after() traffic {
	return traffic{lake: m.of.lake.Log()[m.lake:], conductor: m.of.conductor.Log()[m.conductor:]}
}

// writes are the requests that may change something: every write to lakeFS, a
// task's update and an extension of its lease. One extension may have been due
// when the worker was stopped, and comes when it wakes: Conductor ignores it.
func writes(sent traffic) []fault.Request {
	extensions := 0
	return slices.DeleteFunc(slices.Concat(sent.lake, sent.conductor), func(q fault.Request) bool {
		if strings.Contains(q.Body, `"extendLease":true`) {
			extensions++
			return extensions == 1
		}
		return q.Method == http.MethodGet
	})
}
