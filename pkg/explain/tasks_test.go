package explain

import (
	"slices"
	"strings"
	"testing"
	"time"

	"perago/pkg/txn"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// open is a task that has been in its status for some time at noon.
func open(status txn.TaskStatus, since time.Duration, change ...func(*txn.Task)) txn.Task {
	task := txn.Task{ID: "t", Workflow: workflowID, Type: "train", ReferenceName: "train", Status: status, Worker: "w-1", Domain: "gpu"}
	task.Times.Scheduled, task.Times.Updated, task.Times.ResponseTimeout = noon.Add(-since), noon.Add(-since), time.Minute
	for _, c := range change {
		c(&task)
	}
	return task
}

// "Nothing to do" is said only where everything was looked at: each task that is
// late, and each that failed, is named with what to do.
func TestExplain_LooksAtEveryTask(t *testing.T) {
	t.Parallel()
	polled := func(ago time.Duration, waiting int) []Queue {
		return []Queue{{Type: "train", Domain: "gpu", Polled: noon.Add(-ago), Waiting: waiting}, {Type: "train", Polled: noon}}
	}
	failed := txn.Task{ID: "u", Type: "train", ReferenceName: "train", Status: txn.TaskFailed, Reason: "no disk"}
	again := failed
	again.ID, again.RetryCount, again.Status, again.Reason = "u2", 1, txn.TaskCompleted, ""
	optional := failed
	optional.Status = txn.TaskCompletedWithErrors
	const wait, nothing = "Nothing is late. Wait: the workflow is under way.", "There is nothing to do."
	for name, c := range map[string]struct {
		status txn.WorkflowStatus
		tasks  []txn.Task
		queues []Queue
		next   string // a part of the only sentence
		rest   string
	}{
		"a user task failed":               {txn.WorkflowFailed, []txn.Task{failed}, nil, "train is FAILED: no disk; mend the cause and retry the workflow in Conductor, which goes on from that task", ""},
		"a checkout failed":                {txn.WorkflowFailed, []txn.Task{{Type: txn.TypeCheckout, ReferenceName: "get", Status: txn.TaskFailedWithTerminalError, Reason: "no such prefix"}}, nil, "get is FAILED_WITH_TERMINAL_ERROR: no such prefix; ", ""},
		"its retry completed":              {txn.WorkflowCompleted, []txn.Task{failed, again}, nil, "", nothing},
		"its retry completed, and it ends": {txn.WorkflowTerminated, []txn.Task{failed, again}, nil, "the workflow is TERMINATED: retry it in Conductor, or start a new one", ""},
		"an optional one failed":           {txn.WorkflowCompleted, []txn.Task{optional}, nil, "", nothing},
		"paused":                           {txn.WorkflowPaused, []txn.Task{open(txn.TaskScheduled, time.Second)}, nil, "the workflow is paused: resume it", ""},

		"at work":                    {txn.WorkflowRunning, []txn.Task{open(txn.TaskInProgress, time.Minute)}, nil, "", wait},
		"the lease is over":          {txn.WorkflowRunning, []txn.Task{open(txn.TaskInProgress, 10*time.Minute)}, nil, "the lease of train is over; have it look: PUT /api/workflow/decide/" + string(workflowID), ""},
		"without a response timeout": {txn.WorkflowRunning, []txn.Task{open(txn.TaskInProgress, time.Hour, func(t *txn.Task) { t.Times.ResponseTimeout = 0 })}, nil, "", wait},
		"a publish's lease is over": {txn.WorkflowRunning, []txn.Task{stage(txn.TaskCompleted), open(txn.TaskInProgress, 10*time.Minute, func(t *txn.Task) {
			p := publish(txn.TaskInProgress, txn.Publication{}, "")
			t.Type, t.ReferenceName, t.Input = p.Type, p.ReferenceName, p.Input
		})}, nil, "the lease of train_publish is over", ""},
		"over, and the workflow too": {txn.WorkflowTerminated, []txn.Task{open(txn.TaskInProgress, 10*time.Minute)}, nil, "the workflow is TERMINATED", ""},
		"waits for a moment":         {txn.WorkflowRunning, []txn.Task{open(txn.TaskScheduled, time.Second)}, polled(0, 0), "", wait},
		"lost from its queue":        {txn.WorkflowRunning, []txn.Task{open(txn.TaskScheduled, 10*time.Minute)}, polled(time.Second, 0), "Conductor lost train from its queue; put it back: POST /api/tasks/queue/requeue/train", ""},
		"told to wait, and not lost": {txn.WorkflowRunning, []txn.Task{open(txn.TaskScheduled, 10*time.Minute, func(t *txn.Task) { t.Times.Callback = time.Hour })}, polled(time.Second, 0), "", wait},
		"behind others":              {txn.WorkflowRunning, []txn.Task{open(txn.TaskScheduled, 10*time.Minute)}, polled(time.Second, 3), "", wait},
		"nobody polls any more":      {txn.WorkflowRunning, []txn.Task{open(txn.TaskScheduled, 10*time.Minute)}, polled(5*time.Minute, 1), "look at the workers that poll for train in the domain gpu", ""},
		"nobody ever polled there":   {txn.WorkflowRunning, []txn.Task{open(txn.TaskScheduled, 10*time.Minute)}, []Queue{{Type: "train", Domain: "gpu", Waiting: 1}}, "start a worker that polls for train in the domain gpu", ""},
		"Conductor's own":            {txn.WorkflowRunning, []txn.Task{open(txn.TaskInProgress, time.Hour, func(t *txn.Task) { t.Type = "WAIT" })}, nil, "", wait},
	} {
		f := Facts{Workflow: txn.Workflow{ID: workflowID, Status: c.status, Tasks: c.tasks}, Now: noon, Queues: c.queues}
		if waiting := Waiting(f.Workflow, noon); len(waiting) > 0 && c.queues == nil {
			t.Errorf("%s: asks for the queues of %+v", name, waiting)
		}
		e := Workflow(f)
		if c.next == "" && len(e.Next) > 0 || c.next != "" && (len(e.Next) != 1 || !strings.Contains(e.Next[0], c.next)) || e.Rest() != c.rest {
			t.Errorf("%s: what to do is %q, and %q; want %q, and %q", name, e.Next, e.Rest(), c.next, c.rest)
		}
	}
}

// A workflow whose steps are in sub-workflows is explained down to its ends.
func TestExplain_FollowsSubWorkflows(t *testing.T) {
	t.Parallel()
	published := txn.Publication{Commit: id("b"), ExpectedHead: id("a"), Outcome: txn.OutcomePublished, Fence: txn.FenceHard}
	refused := txn.Publication{Outcome: txn.OutcomeRefused, Fence: txn.FenceSoft}
	parent := func(status txn.WorkflowStatus, subs ...Facts) Facts {
		f := Facts{Workflow: txn.Workflow{ID: "parent", Name: "parent", Status: status}, Subs: subs, Now: noon}
		for _, sub := range subs {
			f.Workflow.Tasks = append(f.Workflow.Tasks, txn.Task{Type: "SUB_WORKFLOW", ReferenceName: "sub", Status: txn.TaskCompleted, SubWorkflow: sub.Workflow.ID})
		}
		return f
	}
	good := scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskCompleted, published, "")}, above: []txn.Commit{ours("b", "a")}, status: txn.WorkflowCompleted}.facts()
	bad := scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskFailed, refused, "main advanced")}, above: []txn.Commit{byHand("c", "a")}}.facts()
	bad.Workflow.ID = "bad"
	middle := parent(txn.WorkflowCompleted, good)
	middle.Workflow.ID = "middle"
	text := func(f Facts) (Explanation, string) {
		var text, page strings.Builder
		e := Workflow(f)
		if err := e.Text(&text); err != nil {
			t.Fatal(err)
		}
		if err := e.Page(&page); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page.String(), "models/") {
			t.Errorf("the page does not show the steps of sub-workflows: %s", &page)
		}
		return e, text.String()
	}
	e, said := text(parent(txn.WorkflowCompleted, middle))
	if e.Rest() != "There is nothing to do." || len(e.Subs) != 1 || len(e.Subs[0].Subs) != 1 || strings.Contains(said, "nothing is staged or published") ||
		!strings.Contains(said, "published: it is published: lakefs://lake/main holds it as "+string(id("b"))) {
		t.Errorf("%s", said)
	}
	e, said = text(parent(txn.WorkflowFailed, bad))
	if want := []string{"sub-workflow bad: start a new workflow with ref=" + string(id("c"))}; !slices.Equal(e.Next, want) || !strings.Contains(said, want[0]) {
		t.Errorf("what to do is %q, want %q", e.Next, want)
	}
	// What a retry replaced is history, and says nothing to do.
	if e, _ = text(parent(txn.WorkflowCompleted, bad, good)); len(e.Next) > 0 || e.Rest() == "" {
		t.Errorf("after a retry: %q", e.Next)
	}
	unread := good
	unread.Problems = []string{"lakeFS is down"}
	if e, _ = text(parent(txn.WorkflowCompleted, unread)); e.Rest() != "" || !slices.Equal(e.Problems, unread.Problems) {
		t.Errorf("unread: %q, %q", e.Problems, e.Rest())
	}
}

// What is known of a publication that no task reports is said, and no more.
func TestExplain_ARerunIsNoLostAnswer(t *testing.T) {
	t.Parallel()
	record := func(change func(txn.Commit)) []txn.Commit {
		c := ours("b", "a")
		change(c)
		return []txn.Commit{c}
	}
	own := record(func(c txn.Commit) { c.Metadata["perago.task_id"] = "p" })
	for name, c := range map[string]struct {
		scene   scene
		state   State
		summary string
	}{
		"the stage is rerun":            {scene{tasks: []txn.Task{stage(txn.TaskInProgress)}, above: own, status: txn.WorkflowRunning}, StateRunning, "which this step published before it was retried or rerun"},
		"the publish is rerun":          {scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskScheduled, txn.Publication{}, "")}, above: own, status: txn.WorkflowRunning}, StateRunning, "which this step published before it was retried or rerun"},
		"the rerun's stage failed":      {scene{tasks: []txn.Task{stage(txn.TaskFailed)}, above: own}, StateUnreported, "an earlier run of the step published it, and was replaced by a retry, rerun or restart"},
		"its task was cancelled":        {scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskCanceled, txn.Publication{}, "")}, above: own}, StateUnreported, "its task was cancelled, or replaced by a rerun or restart"},
		"its completion was lost":       {scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskTimedOut, txn.Publication{}, "")}, above: own}, StateUnreported, "the answer or the completion was lost"},
		"an earlier attempt's was lost": {scene{tasks: []txn.Task{stage(txn.TaskCompleted), publish(txn.TaskFailed, txn.Publication{}, "")}, above: record(func(c txn.Commit) { c.Metadata["perago.task_id"] = "p0" })}, StateUnreported, "an earlier attempt published it, and its answer or completion was lost"},
	} {
		s := Workflow(c.scene.facts()).Steps[0]
		if s.State != c.state || !strings.Contains(s.Summary, c.summary) {
			t.Errorf("%s: %s: %s; want %s: %s", name, s.State, s.Summary, c.state, c.summary)
		}
	}
}

// Conductor can miss that a task's worker is gone, and leave the task in progress. A
// worker that is alive extends its lease, however long ago the task began.
func TestWorkflow_NamesATaskWhoseTimeoutConductorMissed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		silent time.Duration
		want   bool
	}{"no heartbeat": {4 * time.Minute, true}, "not longer than it may": {time.Minute, false}} {
		task := open(txn.TaskInProgress, c.silent, func(t *txn.Task) { t.StartTime = noon.Add(-time.Hour).UnixMilli() })
		e := Workflow(Facts{Workflow: txn.Workflow{ID: workflowID, Status: txn.WorkflowRunning, Tasks: []txn.Task{task}}, Now: noon})
		if got := len(e.Next) == 1 && strings.Contains(e.Next[0], "PUT /api/workflow/decide/"); got != c.want {
			t.Errorf("%s: what to do is %q", name, e.Next)
		}
	}
}
