package worker

import (
	"testing"
	"time"

	"perago/pkg/txn"
)

// FuzzLimits: a TaskDef that is accepted gives a lease that has not ended, and more
// than one heartbeat in it.
func FuzzLimits(f *testing.F) {
	f.Add("perago_stage", int64(60), int64(0), "")
	f.Add("perago_stage", int64(9_223_372_037), int64(9_223_372_038), "")
	f.Add("perago_cleanup", int64(1), int64(2), "")
	f.Add("perago_publish_large", int64(86), int64(0), `{"budget":{"observed_merge_p99_seconds":5,"safety_margin_seconds":5,"lakefs_merge_timeout_seconds":30,"conductor_completion_timeout_seconds":10,"worker_shutdown_grace_seconds":20,"heartbeat_interval_seconds":20}}`)
	f.Fuzz(func(t *testing.T, name string, response, total int64, template string) {
		limits, err := LimitsOf(txn.TaskDefinition{Name: txn.TaskType(name), ResponseTimeoutSeconds: response, TimeoutSeconds: total, InputTemplate: []byte(template)})
		if err != nil {
			return
		}
		sent := time.Now()
		lease := newLease(sent, limits)
		if limits.Heartbeat <= 0 || limits.Heartbeat > limits.Response || limits.Completion < 0 || (limits.Total == 0) != (total == 0) ||
			!lease.deadline().After(sent) || lease.deadline().Add(limits.Completion).Before(lease.deadline()) {
			t.Fatalf("%+v, a lease until %s", limits, lease.deadline())
		}
	})
}
