package conductor_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"perago/pkg/txn"
)

// A list of millions of empty objects is an answer of a few megabytes, and takes no
// gigabytes to be refused.
func TestListsOfNothingTakeNoMemory(t *testing.T) {
	list := "[{}" + strings.Repeat(",{}", 2<<20) + "]"
	for name, body := range map[string]string{
		"poll":     list,
		"workflow": `{"workflowId":"w","status":"RUNNING","tasks":` + list + `}`,
	} {
		client := newClient(t, respond(200, "application/json", body))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var err error
		if name == "poll" {
			_, err = client.Poll(t.Context(), txn.PollRequest{Type: "t", Worker: "w", Count: 1})
		} else {
			_, err = client.Workflow(t.Context(), "w")
		}
		runtime.ReadMemStats(&after)
		if !errors.Is(err, txn.ErrRetryable) {
			t.Errorf("%s: %v", name, err)
		}
		if made := after.TotalAlloc - before.TotalAlloc; made > 20*uint64(len(body)) {
			t.Errorf("%s: %d bytes were made of %d", name, made, len(body))
		}
	}
}
