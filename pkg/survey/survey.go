package survey

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"perago/pkg/txn"
)

// Most is how many open workflows are read, at most.
const Most = 500

// Conductor is what a survey asks of Conductor; nothing changes it. The methods fail
// with a *txn.ServerError.
type Conductor interface {
	// WorkflowsWith lists the workflow definitions with a task of a wanted type.
	WorkflowsWith(ctx context.Context, wanted func(txn.TaskType) bool) ([]txn.WorkflowVersion, error)
	// Running lists the workflows of a definition that have not ended, and perhaps
	// those of its other versions.
	Running(ctx context.Context, of txn.WorkflowVersion) ([]txn.WorkflowID, error)
	// OpenWorkflow reads a workflow with its input. txn.ErrNotFound.
	OpenWorkflow(ctx context.Context, id txn.WorkflowID) (txn.OpenWorkflow, error)
	// Queues lists the queues that hold tasks.
	Queues(ctx context.Context) ([]txn.Queue, error)
	// LastPolls lists the latest polls of a type, one for each domain.
	LastPolls(ctx context.Context, kind txn.TaskType) ([]txn.LastPoll, error)
	// Task reads a task. txn.ErrNotFound.
	Task(ctx context.Context, id txn.TaskID) (txn.Task, error)
}

// Ours reports whether tasks of a type are perago's.
func Ours(t txn.TaskType) bool {
	return t.IsStage() || t.IsPublish() || t.IsCleanup() || t.IsCheckout()
}

// Open reads the workflows that have not ended and whose definitions hold a task of
// perago's, and gives each to visit. It reads Most of them, and returns how many more
// there are. Tasks that only a dynamic fork names are in no definition.
func Open(ctx context.Context, server Conductor, visit func(txn.OpenWorkflow)) (more int, err error) {
	definitions, err := server.WorkflowsWith(ctx, Ours)
	if err != nil {
		return 0, err
	}
	var ids []txn.WorkflowID
	for _, definition := range definitions {
		running, err := server.Running(ctx, definition)
		if err != nil {
			return 0, err
		}
		ids = append(ids, running...)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	more = max(0, len(ids)-Most)
	for _, id := range ids[:len(ids)-more] {
		workflow, err := server.OpenWorkflow(ctx, id)
		switch {
		case errors.Is(err, txn.ErrNotFound), err == nil && workflow.Status.Terminal():
			continue // it has ended meanwhile
		case err != nil:
			return more, err
		}
		visit(workflow)
	}
	return more, nil
}

// Scheduled are the tasks of perago's in a workflow that wait for a worker, without
// their inputs: there may be many.
func Scheduled(workflow txn.Workflow) []txn.Task {
	var all []txn.Task
	for _, task := range workflow.Tasks {
		if task.Status == txn.TaskScheduled && Ours(task.Type) {
			all = append(all, txn.Task{
				ID: task.ID, Workflow: workflow.ID, Type: task.Type, ReferenceName: task.ReferenceName,
				Status: task.Status, Domain: task.Domain, Times: task.Times,
			})
		}
	}
	return all
}

// Waiting is the tasks of one queue that wait for longer than txn.WaitPatience.
type Waiting struct {
	Type   txn.TaskType
	Domain string
	// Lost are the tasks that Conductor has lost from the queue, the longest wait first.
	Lost []txn.Task
	// Unpolled are the tasks of an empty queue that no worker polls, the longest wait
	// first. Whether Conductor has lost them is not known before a worker polls.
	Unpolled []txn.Task
	// Now is Conductor's time when the queue was read.
	Now time.Time
	// Err says why the queue, or a task of it, could not be read.
	Err error
}

// Lost decides about tasks that were read before the call: it reads the queues after
// them, and then each task that looks lost once more, because a worker may have got it
// in between. now is Conductor's clock.
func Lost(ctx context.Context, server Conductor, scheduled []txn.Task, now func() time.Time) ([]Waiting, error) {
	late := slices.DeleteFunc(slices.Clone(scheduled), func(t txn.Task) bool { return !t.WaitsLong(now()) })
	if len(late) == 0 {
		return nil, nil
	}
	queues, err := server.Queues(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the queues: %w", err)
	}
	slices.SortStableFunc(late, func(a, b txn.Task) int {
		if c := strings.Compare(string(a.Type)+"\x00"+a.Domain, string(b.Type)+"\x00"+b.Domain); c != 0 {
			return c
		}
		return a.WaitsSince().Compare(b.WaitsSince())
	})
	var all []Waiting
	for group := range groups(late) {
		waiting := Waiting{Type: group[0].Type, Domain: group[0].Domain}
		state := txn.QueueState{}
		for _, q := range queues {
			if q.Type == waiting.Type && q.Domain == waiting.Domain {
				state.Waiting = q.Waiting
			}
		}
		waiting.read(ctx, server, state, group, now)
		all = append(all, waiting)
	}
	return all, nil
}

func (w *Waiting) read(ctx context.Context, server Conductor, state txn.QueueState, tasks []txn.Task, now func() time.Time) {
	polls, err := server.LastPolls(ctx, w.Type)
	w.Now = now()
	if err != nil {
		w.Err = fmt.Errorf("read the last polls of %s: %w", w.Type, err)
		return
	}
	for _, poll := range polls {
		if poll.Domain == w.Domain {
			state.Polled = poll.At
		}
	}
	for _, task := range tasks {
		if state.Waiting > 0 || txn.DecideWait(task, state, w.Now) == txn.WaitNormal {
			continue
		}
		again, err := server.Task(ctx, task.ID)
		switch {
		case errors.Is(err, txn.ErrNotFound):
			continue
		case err != nil:
			w.Err = fmt.Errorf("read the task %s again: %w", task.ID, err)
			return
		}
		task.Status, task.Times = again.Status, again.Times
		switch txn.DecideWait(task, state, w.Now) {
		case txn.WaitLost:
			w.Lost = append(w.Lost, task)
		case txn.WaitNeverPolled, txn.WaitNotPolled:
			w.Unpolled = append(w.Unpolled, task)
		}
	}
}

// Found is what a search for lost tasks found.
type Found struct {
	Lost []txn.Task
	// Unpolled may be lost (Waiting.Unpolled).
	Unpolled []txn.Task
	// Unread is how many open workflows were not read, because there are more than Most.
	Unread int
}

// Search reads the open workflows and finds the lost tasks in them. With an error it
// has found nothing that can be believed.
func Search(ctx context.Context, server Conductor, now func() time.Time) (Found, error) {
	var scheduled []txn.Task
	unread, err := Open(ctx, server, func(workflow txn.OpenWorkflow) { scheduled = append(scheduled, Scheduled(workflow.Workflow)...) })
	if err != nil {
		return Found{}, fmt.Errorf("read the open workflows: %w", err)
	}
	queues, err := Lost(ctx, server, scheduled, now)
	if err != nil {
		return Found{}, err
	}
	found := Found{Unread: unread}
	for _, queue := range queues {
		if queue.Err != nil {
			return Found{}, queue.Err
		}
		found.Lost = append(found.Lost, queue.Lost...)
		found.Unpolled = append(found.Unpolled, queue.Unpolled...)
	}
	return found, nil
}

// groups cuts tasks, which are in order, where their queue changes.
func groups(tasks []txn.Task) func(yield func([]txn.Task) bool) {
	return func(yield func([]txn.Task) bool) {
		for len(tasks) > 0 {
			n := 1
			for n < len(tasks) && tasks[n].Type == tasks[0].Type && tasks[n].Domain == tasks[0].Domain {
				n++
			}
			if !yield(tasks[:n]) {
				return
			}
			tasks = tasks[n:]
		}
	}
}
