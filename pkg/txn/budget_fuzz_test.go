package txn

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// FuzzBudget: a budget that is accepted is in its bounds, comes back from its own
// numbers, and the rules that hold do so in exact numbers; else what is wrong is
// named.
func FuzzBudget(f *testing.F) {
	f.Add([]byte(`{"budget": `+budgetText+`}`), int64(86), int64(0))
	f.Add([]byte(`{"budget": {}}`), int64(60), int64(60))
	f.Add([]byte(`{"budget": null}`), int64(0), int64(-1))
	f.Add([]byte(`{"budget": `+strings.Replace(budgetText, "20.5", "1e300", 1)+`}`), int64(1)<<62, int64(0))
	f.Add([]byte(`{"budget": `+strings.Replace(budgetText, "20.5", "-1", 1)+`}`), int64(9_223_372_037), int64(0))
	f.Add([]byte(`[]`), int64(60), int64(0))
	f.Fuzz(func(t *testing.T, template []byte, response, total int64) {
		definition := TaskDefinition{Name: TypePublish, InputTemplate: template, ResponseTimeoutSeconds: response, TimeoutSeconds: total}
		// A response timeout that is sound is a lease that has not ended already.
		if beat := Heartbeat(definition); CheckTaskDefinition(definition) == nil && (beat <= 0 || Timeout(response) < 3*beat) {
			t.Fatalf("a heartbeat every %s of %d s", beat, response)
		}
		budget, err := BudgetOf(definition)
		if err != nil {
			if !strings.Contains(err.Error(), "TaskDef perago_publish") || len(err.Error()) > longestSentence {
				t.Fatalf("%.500q", err)
			}
			return
		}
		seconds := map[string]float64{}
		for name, d := range map[string]time.Duration{
			"observed_merge_p99_seconds": budget.ObservedMergeP99, "safety_margin_seconds": budget.SafetyMargin,
			"lakefs_merge_timeout_seconds": budget.MergeTimeout, "conductor_completion_timeout_seconds": budget.CompletionTimeout,
			"worker_shutdown_grace_seconds": budget.ShutdownGrace, "heartbeat_interval_seconds": budget.HeartbeatInterval,
		} {
			if d < 0 || d > maxBudgetSeconds*time.Second {
				t.Fatalf("%s is %s", name, d)
			}
			seconds[name] = d.Seconds()
		}
		if budget.MergeTimeout == 0 || budget.HeartbeatInterval == 0 {
			t.Fatalf("accepted %+v", budget)
		}
		raw, err := json.Marshal(seconds)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseBudget(raw)
		if err != nil {
			t.Fatal(err)
		}
		// The numbers are fractions of seconds in binary: the last nanosecond may go.
		if off := back.MergeTimeout - budget.MergeTimeout; off < -1 || off > 1 {
			t.Fatalf("%+v comes back as %+v", budget, back)
		}
		need := (budget.MergeTimeout + budget.CompletionTimeout + budget.ShutdownGrace + budget.HeartbeatInterval).Seconds()
		sound := response > 0 && float64(response) >= need && total >= 0 && (total == 0 || response < total) && budget.MergeTimeout >= budget.ObservedMergeP99+budget.SafetyMargin
		if _, err := CheckPublishDefinition(definition); (err == nil) != sound {
			t.Fatalf("a response timeout of %d and a total of %d for %+v: %v", response, total, budget, err)
		}
	})
}
