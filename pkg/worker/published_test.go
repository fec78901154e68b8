package worker

import (
	"testing"

	"perago/pkg/txn"
)

func TestPublishedCommit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status  txn.TaskStatus
		outcome txn.Outcome
		commit  string
		want    string
	}{
		{txn.TaskCompleted, txn.OutcomePublished, "c", "c"},
		{txn.TaskCompleted, txn.OutcomeAlreadyPublished, "c", "c"},
		{txn.TaskCompleted, txn.OutcomeNoOp, "input", ""},
		{txn.TaskCompleted, txn.OutcomeReadOnly, "input", ""},
		{txn.TaskFailed, txn.OutcomeRefused, "", ""},
		{txn.TaskFailed, txn.OutcomeRaced, "c", ""},
		{txn.TaskFailed, txn.OutcomeInDoubt, "", ""},
		// It landed, and the worker was away for too long to read it back.
		{txn.TaskFailed, txn.OutcomeInDoubt, "c", "c"},
	} {
		result := txn.TaskResult{Status: c.status, Output: map[string]any{
			"publication": map[string]any{"outcome": string(c.outcome), "commit": c.commit},
		}}
		if got := publishedCommit(result); got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.status, c.outcome, got, c.want)
		}
	}
	if got := publishedCommit(txn.TaskResult{Status: txn.TaskCompleted}); got != "" {
		t.Errorf("a task that is no publish: %q", got)
	}
}
