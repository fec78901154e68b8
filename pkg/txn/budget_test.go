package txn

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// publishDefinition has a budget that needs 45 s of lease: 30 + 5 + 5 + 5.
func publishDefinition(response, total int64, change func(map[string]any)) TaskDefinition {
	budget := map[string]any{
		"observed_merge_p99_seconds": 20, "safety_margin_seconds": 10, "lakefs_merge_timeout_seconds": 30,
		"conductor_completion_timeout_seconds": 5, "worker_shutdown_grace_seconds": 5, "heartbeat_interval_seconds": 5,
	}
	if change != nil {
		change(budget)
	}
	raw, err := json.Marshal(map[string]any{"budget": budget})
	if err != nil {
		panic(err)
	}
	return TaskDefinition{Name: TypePublish, ResponseTimeoutSeconds: response, TimeoutSeconds: total, InputTemplate: raw}
}

func TestBudgetRules(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name       string
		definition TaskDefinition
		want       string // a part of the error, "" for sound
	}{
		{"sound", publishDefinition(45, 0, nil), ""},
		{"sound with a total timeout", publishDefinition(45, 46, nil), ""},
		{"fractions", publishDefinition(3, 0, func(b map[string]any) {
			b["observed_merge_p99_seconds"], b["safety_margin_seconds"], b["lakefs_merge_timeout_seconds"] = 0.5, 0.5, 1.0
			b["conductor_completion_timeout_seconds"], b["worker_shutdown_grace_seconds"], b["heartbeat_interval_seconds"] = 0.5, 0.75, 0.75
		}), ""},
		{"lease too short", publishDefinition(44, 0, nil), "responseTimeoutSeconds is 44, less than merge timeout + completion + shutdown grace + heartbeat = 45s; raise it to at least 45s"},
		{"merge timeout too short", publishDefinition(60, 0, func(b map[string]any) { b["lakefs_merge_timeout_seconds"] = 29 }), "lakefs_merge_timeout_seconds is 29s, less than observed_merge_p99_seconds + safety_margin_seconds = 30s"},
		{"response not below total", publishDefinition(45, 45, nil), "responseTimeoutSeconds is 45, not below timeoutSeconds 45"},
		{"no response timeout", publishDefinition(0, 0, nil), "responseTimeoutSeconds is 0"},
		{"a number is missing", publishDefinition(45, 0, func(b map[string]any) { delete(b, "safety_margin_seconds") }), "budget.safety_margin_seconds is missing"},
		{"an unknown number", publishDefinition(45, 0, func(b map[string]any) { b["retries"] = 1 }), "unknown field \"retries\""},
		{"a negative number", publishDefinition(45, 0, func(b map[string]any) { b["safety_margin_seconds"] = -1 }), "budget.safety_margin_seconds is -1"},
		{"milliseconds for seconds", publishDefinition(45, 0, func(b map[string]any) { b["safety_margin_seconds"] = 100_000 }), "between 0 and 86400"},
		{"no time for a merge", publishDefinition(45, 0, func(b map[string]any) { b["lakefs_merge_timeout_seconds"] = 0 }), "a merge needs time"},
		{"no heartbeat", publishDefinition(45, 0, func(b map[string]any) { b["heartbeat_interval_seconds"] = 0 }), "could not be extended"},
		{"no budget", TaskDefinition{Name: TypePublish, ResponseTimeoutSeconds: 60}, "has no inputTemplate.budget"},
		{"a template that is no object", TaskDefinition{Name: TypePublish, ResponseTimeoutSeconds: 60, InputTemplate: json.RawMessage(`[]`)}, "not a JSON object"},
	}
	for _, c := range cases {
		_, err := CheckPublishDefinition(c.definition)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	if budget, err := BudgetOf(publishDefinition(45, 0, func(b map[string]any) { b["lakefs_merge_timeout_seconds"] = 1.5 })); err != nil || budget.MergeTimeout != 1500*time.Millisecond {
		t.Errorf("got %+v, %v", budget, err)
	}
	if got := Heartbeat(TaskDefinition{ResponseTimeoutSeconds: 60}); got != 20*time.Second {
		t.Errorf("heartbeat %s, want 20s", got)
	}
}
