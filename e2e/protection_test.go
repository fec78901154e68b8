package e2e

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// A protection rule that also catches the staging branches refuses the stage's
// uploads: the task fails with a hint at the rule, and nothing is published. The
// branch itself can be deleted.
func TestProtectionRuleOverTheStagingBranches(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{"*", "perago-*"} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, map[string]string{"data/a": "0"})
			f.counted("prepare")
			f.protectPattern(rule)
			name := f.register("caught", stagedBy("perago_stage_once", step("prepare", "data/", "${workflow.input.workspace}", nil))...)
			workflow := f.run(name, map[string]any{"workspace": f.workspace(f.first)})
			stage := last(t, workflow, "prepare_stage")
			if workflow.Status != txn.WorkflowFailed || stage.Status != txn.TaskFailed || !strings.Contains(stage.Reason, "a branch protection rule matches") {
				t.Errorf("%s", describe(workflow))
			}
			if f.head() != f.first {
				t.Error("the target moved")
			}
			if c := f.cancelled(workflow.ID); len(c.Errors) != 0 {
				t.Errorf("cleanup put out %+v", c)
			}
			(&ending{fleet: f}).nothingIsLeft()
			if diff := cmp.Diff(map[string]string{"data/a": "0"}, lakefstest.Tree(t, f.lake, f.repo, f.head())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// protectPattern adds a rule and waits until lakeFS follows it for a staging
// branch.
func (f *fleet) protectPattern(rule string) {
	f.t.Helper()
	const probe = txn.Branch("perago-rule")
	if err := f.lake.CreateBranch(f.t.Context(), f.repo, probe, f.first); err != nil {
		f.t.Fatal(err)
	}
	f.lakeRequest(http.MethodPut, "/settings/branch_protection", []map[string]string{{"pattern": rule}})
	eventually(f.t, waitTime, rule+" is protected", func() (bool, string) {
		_, err := f.lake.CreateCommit(f.t.Context(), f.repo, probe, "probe", nil)
		if err == nil {
			f.t.Fatal("a commit of nothing was accepted")
		}
		return errors.Is(err, txn.ErrForbidden), err.Error()
	})
	if err := f.lake.DeleteBranch(f.t.Context(), f.repo, probe); err != nil {
		f.t.Errorf("delete a protected branch: %v", err)
	}
}
