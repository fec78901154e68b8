package txn

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// Each row of the table, and beside it the nearest task that the row is not about.
func TestDecideWait(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	waits := func(since time.Duration, change ...func(*Task)) Task {
		task := Task{Status: TaskScheduled, Times: TaskTimes{Scheduled: now.Add(-since)}}
		for _, c := range change {
			c(&task)
		}
		return task
	}
	empty := func(polled time.Duration) QueueState { return QueueState{Polled: now.Add(-polled)} }
	cases := map[string][]struct {
		task  Task
		queue QueueState
		want  Wait
	}{
		"the task is not scheduled": {
			{waits(time.Hour, func(t *Task) { t.Status = TaskInProgress }), empty(time.Second), WaitNormal},
			{waits(time.Hour, func(t *Task) { t.Status = TaskCanceled }), empty(time.Second), WaitNormal},
			{waits(time.Hour, func(t *Task) { t.Times.Scheduled = time.Time{} }), empty(time.Second), WaitNormal},
		},
		"it was due a minute ago or later": {
			{waits(time.Minute), empty(0), WaitNormal},
			{waits(time.Minute + 1), empty(0), WaitLost},
			{waits(time.Minute), QueueState{}, WaitNormal},
			// A retry waits for its backoff, and a task that was put back for its callback.
			{waits(time.Hour, func(t *Task) { t.Times.Callback = time.Hour }), empty(0), WaitNormal},
			{waits(time.Hour, func(t *Task) { t.Times.Callback = time.Hour - 2*time.Minute }), empty(0), WaitLost},
			{waits(time.Hour, func(t *Task) { t.Times.Updated = now.Add(-time.Second) }), empty(0), WaitNormal},
			{waits(time.Hour, func(t *Task) { t.Times.Updated = now.Add(-2 * time.Minute) }), empty(0), WaitLost},
		},
		"no worker ever polled its queue": {
			{waits(time.Hour), QueueState{Waiting: 1}, WaitNeverPolled},
			{waits(time.Hour), QueueState{}, WaitNeverPolled},
		},
		"the last poll of its queue was more than a minute ago": {
			{waits(time.Hour), empty(time.Minute + 1), WaitNotPolled},
			{waits(time.Hour), empty(time.Minute), WaitLost},
		},
		"its queue is empty": {
			{waits(time.Hour), empty(time.Second), WaitLost},
		},
		"otherwise": {
			{waits(time.Hour), QueueState{Waiting: 1, Polled: now}, WaitNormal},
		},
	}
	sameRows(t, "lost tasks", slices.Collect(maps.Keys(cases)))
	for row, all := range cases {
		for i, c := range all {
			if got := DecideWait(c.task, c.queue, now); got != c.want {
				t.Errorf("%s, case %d: %s, want %s", row, i, got, c.want)
			}
		}
	}
}
