package txn

import "testing"

func TestStepName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key      LogicalTaskKey
		workflow WorkflowID
		want     ReferenceName
	}{
		{NewLogicalTaskKey("w", "train_stage", 0), "w", "train_stage"},
		{NewLogicalTaskKey("w", "train_stage__2", 2), "w", "train_stage__2"},
		{NewLogicalTaskKey("w", "a:b", 0), "w", "a:b"},
		{"other:train:0", "w", "other:train:0"},
		{"w:", "w", "w:"},
		{"", "w", ""},
	} {
		if got := StepName(c.key, c.workflow); got != c.want {
			t.Errorf("%q of %q: got %q, want %q", c.key, c.workflow, got, c.want)
		}
	}
}
