package txn

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestAttemptFence(t *testing.T) {
	t.Parallel()
	polled := Task{ID: "t", Workflow: "w", Status: TaskInProgress, RetryCount: 1, Worker: "me", PollCount: 2, StartTime: 7}
	attempt := AttemptOf(polled)
	for _, status := range []WorkflowStatus{WorkflowRunning, WorkflowPaused} {
		if err := attempt.Current(polled, status); err != nil {
			t.Errorf("the task as polled, workflow %s: %v", status, err)
		}
	}
	for _, c := range []struct {
		reason StaleReason
		change func(*Task)
	}{
		{StaleTaskGone, func(k *Task) { *k = Task{} }},
		{StaleTaskGone, func(k *Task) { k.ID = "other" }},
		{StaleTaskStatus, func(k *Task) { k.Status = TaskScheduled }},
		{StaleTaskStatus, func(k *Task) { k.Status = TaskCompleted }},
		{StaleTaskStatus, func(k *Task) { k.Status = TaskTimedOut }},
		{StaleTaskStatus, func(k *Task) { k.Status = "" }},
		{StaleWorkflowID, func(k *Task) { k.Workflow = "other" }},
		{StaleRetryCount, func(k *Task) { k.RetryCount++ }},
		{StaleWorker, func(k *Task) { k.Worker = "zombie" }},
		{StaleWorker, func(k *Task) { k.Worker = "" }},
		{StalePollCount, func(k *Task) { k.PollCount++ }},
		{StaleStartTime, func(k *Task) { k.StartTime++ }},
	} {
		now := polled
		c.change(&now)
		var stale *StaleAttemptError
		if err := attempt.CurrentTask(now); !errors.As(err, &stale) || stale.Reason != c.reason {
			t.Errorf("%+v: %v, want %s", now, err, c.reason)
		}
	}
	for _, status := range []WorkflowStatus{WorkflowCompleted, WorkflowFailed, WorkflowTimedOut, WorkflowTerminated, "", "NEW"} {
		var stale *StaleAttemptError
		if err := attempt.Current(polled, status); !errors.As(err, &stale) || stale.Reason != StaleWorkflowStatus {
			t.Errorf("workflow %q: %v", status, err)
		}
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	handedBack := Result{true, TaskInProgress, "handed_back"}
	stopped := fmt.Errorf("upload data/a: %w", ErrStopped)
	cases := []struct {
		row  string
		err  error
		want Result
	}{
		{"the work is done", nil, Result{true, TaskCompleted, "completed"}},
		{"input that can never succeed", Terminalf("prefix", "is wrong"), Result{true, TaskFailedWithTerminalError, "terminal"}},
		{"input that can never succeed", fmt.Errorf("scan: %w", Terminalf("source.directory", "is a link")), Result{true, TaskFailedWithTerminalError, "terminal"}},
		{"the publish fence", &PublishFenceError{}, Result{true, TaskFailed, "failed"}},
		{"a raced publication", &PublishRacedError{}, Result{true, TaskFailed, "failed"}},
		{"a raced publication", &UnexpectedLandingError{}, Result{true, TaskFailed, "failed"}},
		{"a publication that was taken back", fmt.Errorf("adopt: %w", &TakenBackError{}), Result{true, TaskFailedWithTerminalError, "terminal"}},
		{"a merge in doubt", &InDoubtError{Cause: ErrUnknownOutcome}, Result{true, TaskFailed, "failed"}},
		{"a server that refuses, fails or is down", &ServerError{Class: ErrRefused, Kind: ErrUnauthorized}, Result{true, TaskFailed, "failed"}},
		{"a server that refuses, fails or is down", &ServerError{Class: ErrRetryable}, Result{true, TaskFailed, "failed"}},
		{"a server that refuses, fails or is down", &ServerError{Class: ErrUnknownOutcome}, Result{true, TaskFailed, "failed"}},
		{"anything else", errors.New("disk full"), Result{true, TaskFailed, "failed"}},
		{"a stale attempt", &StaleAttemptError{Reason: StalePollCount}, Result{false, "", "stale"}},
		{"a stale attempt", fmt.Errorf("merge: %w", &StaleAttemptError{Reason: StalePollCount}), Result{false, "", "stale"}},
		{"a stale attempt", errors.Join(Terminalf("prefix", "is wrong"), &StaleAttemptError{}), Result{false, "", "stale"}},
	}
	var rows []string
	for _, c := range cases {
		rows = append(rows, c.row)
		for _, task := range []TaskType{TypeStage, TypeCheckout, TypePublish, TypeCleanup} {
			if got := ResultOf(task, c.err); got != c.want {
				t.Errorf("%s: ResultOf(%s, %v) = %+v, want %+v", c.row, task, c.err, got, c.want)
			}
		}
	}
	for _, c := range []struct {
		row  string
		task TaskType
		err  error
		want Result
	}{
		{"a stage or a checkout that its worker stopped", TypeStage, stopped, handedBack},
		{"a stage or a checkout that its worker stopped", TypeCheckout, ErrStopped, handedBack},
		{"a stage or a checkout that its worker stopped", "perago_stage_gpu", stopped, handedBack},
		{"input that can never succeed", TypeStage, errors.Join(stopped, Terminalf("prefix", "is wrong")), Result{true, TaskFailedWithTerminalError, "terminal"}},
		{"a stale attempt", TypeStage, errors.Join(stopped, &StaleAttemptError{}), Result{false, "", "stale"}},
		{"anything else", TypePublish, stopped, Result{true, TaskFailed, "failed"}},
		{"anything else", TypeCleanup, stopped, Result{true, TaskFailed, "failed"}},
	} {
		rows = append(rows, c.row)
		if got := ResultOf(c.task, c.err); got != c.want || got.HandedBack() != (c.want == handedBack) {
			t.Errorf("%s: ResultOf(%s, %v) = %+v, want %+v", c.row, c.task, c.err, got, c.want)
		}
	}
	sameRows(t, "results", rows)
}

func TestReason(t *testing.T) {
	t.Parallel()
	a, b := strings.Repeat("a1", 32), strings.Repeat("b2", 32)
	for _, c := range []struct {
		err   error
		limit int
		want  string
	}{
		{errors.New("one\n  two\tthree"), 500, "one two three"},
		{errors.New("the key is hunter2!"), 500, "the key is [redacted]!"},
		{errors.New("ééééé"), 5, "ééééé"},
		{errors.New("éééééé"), 5, "éééé…"},
		{errors.New("bad \xff byte"), 500, "bad � byte"},
		{errors.New(a + " and " + b + ": no"), 500, a + " and " + b + ": no"},
		{errors.New(a + " " + b + ": no"), 100, a[:12] + " " + b[:12] + ": no"},
		{errors.New("x" + a + " is none"), 70, "x" + a + " is …"},
		// To be copied.
		{errors.New(b + "; start with ref=" + a), 100, b[:12] + "; start with ref=" + a},
		{errors.New("open " + strings.Repeat("é/", 300) + ": permission denied"), 500, "open " + strings.Repeat("é/", 25) + "…" + strings.Repeat("é/", 24) + ": permission denied"},
	} {
		if got := Reason(c.err, c.limit, "", "hunter2"); got != c.want {
			t.Errorf("Reason(%q, %d) = %q, want %q", c.err, c.limit, got, c.want)
		}
	}
}
