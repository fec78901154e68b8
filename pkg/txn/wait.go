package txn

import "time"

// WaitPatience is how long a scheduled task may wait, and how long ago the last poll
// of its queue may be, before a person is told. Conductor looks at a workflow every
// 30 seconds unless it is told otherwise.
const WaitPatience = time.Minute

// Wait says why a scheduled task is not with a worker.
type Wait string

// The reasons.
const (
	// WaitNormal: the task waits for a short time, or its queue has it.
	WaitNormal Wait = "normal"
	// WaitNeverPolled: no worker ever polled the queue.
	WaitNeverPolled Wait = "never polled"
	// WaitNotPolled: the last poll of the queue is too long ago.
	WaitNotPolled Wait = "not polled"
	// WaitLost: workers poll the queue, it is empty, and it should hold the task.
	WaitLost Wait = "lost"
)

// RequeueTwice is what to know before a requeue in Conductor, which takes a type and
// no task.
const RequeueTwice = "this also hands out again the tasks of that type that workers have"

// QueueState is one queue, read after the tasks that should wait in it.
type QueueState struct {
	// Waiting is how many tasks the queue holds.
	Waiting int
	// Polled is the time of the last poll; zero for a queue that no worker polled.
	Polled time.Time
}

// WaitsSince is when a worker could first have polled a scheduled task. A task that
// was put back, or that waits for its retry, is due after its callback time.
func (t Task) WaitsSince() time.Time {
	since := t.Times.Scheduled
	if t.Times.Updated.After(since) {
		since = t.Times.Updated
	}
	return since.Add(t.Times.Callback)
}

// WaitsLong reports whether a task waits for longer than WaitPatience, so that its
// queue has to be read.
func (t Task) WaitsLong(now time.Time) bool {
	return t.Status == TaskScheduled && !t.Times.Scheduled.IsZero() && now.Sub(t.WaitsSince()) > WaitPatience
}

// DecideWait says why a task of an open workflow is not with a worker. A lost task
// may have been handed out after it was read: read it again before you report it.
// The rows are those of "Lost tasks" in docs/protocol.md.
func DecideWait(task Task, queue QueueState, now time.Time) Wait {
	switch {
	case !task.WaitsLong(now):
		return WaitNormal
	case queue.Polled.IsZero():
		return WaitNeverPolled
	case now.Sub(queue.Polled) > WaitPatience:
		return WaitNotPolled
	case queue.Waiting == 0:
		// The last poll came after the task was due: the task waits for longer than that
		// poll is old.
		return WaitLost
	}
	return WaitNormal
}
