package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"perago/pkg/txn"
)

// A user's hook refuses the merge with more words than a reason holds. The reason
// begins with the hook's words, and the output has all of them.
func TestUsersHook_IsHeardWhole(t *testing.T) {
	t.Parallel()
	const action = `name: data quality of the orders that the accounting department reads
on:
  pre-merge:
    branches: [main]
hooks:
  - id: every_order_has_a_date_and_a_customer
    type: lua
    properties:
      script: |
        local rows = {}
        for i = 1, 200 do
          rows[i] = "row " .. i .. " of the orders has no date"
        end
        error(table.concat(rows, "\n") .. "\nask the accounting department")
`
	f := newFleet(t, map[string]string{"_lakefs_actions/quality.yaml": action, "data/a": "1"})
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": "2"} })
	name := f.register("hooked", step("prepare", "data/", "${workflow.input.workspace}", nil)...)
	workflow := f.run(name, map[string]any{"workspace": f.workspace(f.first)})
	publish := last(t, workflow, "prepare_publish")

	words, _, found := strings.Cut(publish.Reason, "row 1 of the orders has no date row 2 of the orders has no date")
	if publish.Status != txn.TaskFailed || !found || len(words) > 250 || !strings.Contains(words, "hook every_order_has_a_date_and_a_customer of action data quality of the orders that the accounting department reads refused: ") {
		t.Errorf("publish is %s: %q; want the hook's words in the first half", publish.Status, publish.Reason)
	}
	var output struct {
		HookMessage string `json:"hook_message"`
	}
	if err := json.Unmarshal(publish.Output, &output); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(output.HookMessage, "row 199 of the orders has no date\nrow 200 of the orders has no date\nask the accounting department") {
		t.Errorf("the output's hook_message is %q", output.HookMessage)
	}
	if o := outputOf(t, publish); o.Workspace != nil || o.Publication == nil || o.Publication.Outcome != txn.OutcomeRefused || f.head() != f.first {
		t.Errorf("the refused publish put out %s, and main is at %s", publish.Output, f.head())
	}
}
