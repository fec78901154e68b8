package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"perago/e2e/fleet"
	"perago/e2e/stack"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/fault"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// binaries is what the tests run, built once: with the race detector.
var binaries string

func TestMain(m *testing.M) { os.Exit(fleet.RunTests(m, &binaries)) }

// shortForm runs a sample, drawn anew each time; a failure prints the seed.
func shortForm(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), append(args, "-binaries", binaries), &out, &errs)
	t.Logf("faults %s\n%s%s", strings.Join(args, " "), out.String(), errs.String())
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	return out.String()
}

var (
	faultsLine = regexp.MustCompile(`(?m)^faults: (\d+) cases, 0 violations, (\d+) recovered, (\d+) failed closed\n\z`)
	crashLine  = regexp.MustCompile(`(?m)^crash: (\d+) kill points, 0 lost, 0 duplicated\n\z`)
)

// A sample of both on the real servers.
func TestSample(t *testing.T) {
	if stack.Short(t) {
		return
	}
	if out := shortForm(t, "-sample", "20", "-lanes", "3"); !faultsLine.MatchString(out) {
		t.Error("no closing line")
	}
	if out := shortForm(t, "-crash", "-sample", "6", "-lanes", "3"); !crashLine.MatchString(out) {
		t.Error("no closing line")
	}
}

// A smaller one on the memory servers, for every save.
func TestSampleOnMemoryServers(t *testing.T) {
	t.Parallel()
	if out := shortForm(t, "-memory", "both", "-sample", "16", "-lanes", "4"); !faultsLine.MatchString(out) {
		t.Error("no closing line")
	}
	if out := shortForm(t, "-memory", "both", "-crash", "-sample", "3", "-lanes", "4"); !crashLine.MatchString(out) {
		t.Error("no closing line")
	}
}

// And on a Conductor in the manner of newer ones.
func TestSampleOnANewerConductor(t *testing.T) {
	t.Parallel()
	newer := []string{"-memory", "both", "-manner", string(conductortest.Newest), "-lanes", "3"}
	if out := shortForm(t, append(newer, "-sample", "8", "-pairs", "4")...); !faultsLine.MatchString(out) {
		t.Error("no closing line")
	}
	if out := shortForm(t, append(newer, "-crash", "-sample", "2")...); !crashLine.MatchString(out) {
		t.Error("no closing line")
	}
}

// Green is only what was tested.
func TestNothingTestedIsNoSuccess(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"-memory", "both", "-lanes", "1", "-only", "no such case", "-binaries", binaries}, &out, &errs); code != 1 {
		t.Errorf("exit code %d for no case at all", code)
	}
	if want := "nothing was published"; !strings.Contains(out.String(), want) {
		t.Errorf("%q does not hold %q", out.String(), want)
	}
	if code := run(t.Context(), []string{"-only", "("}, &out, &errs); code != 2 {
		t.Errorf("exit code %d for an expression that is none", code)
	}
}

// Without the hard fence a merge that lands when the next attempt has published is
// a second publication. That is what the fence is for, and it must be seen here.
func TestTheFenceIsMissed(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]int{"": 0, "-soft": 1} {
		var out, errs bytes.Buffer
		all := append(strings.Fields(args), "-memory", "both", "-lanes", "1", "-only", "^plain publish .*merge/main #1 very-late$", "-binaries", binaries)
		if code := run(t.Context(), all, &out, &errs); code != want {
			t.Errorf("exit code %d with %q, want %d:\n%s%s", code, args, want, out.String(), errs.String())
		}
		for _, said := range []string{string(lakefstest.RuleParent), string(lakefstest.RuleOnce), "2 commits on the branch, want 1"} {
			if strings.Contains(out.String(), said) != (want == 1) {
				t.Errorf("with %q it says of %q:\n%s", args, said, out.String())
			}
		}
	}
}

// testLane is a lane on memory servers, with workers.
func testLane(t *testing.T) *lane {
	t.Helper()
	servers, stop, err := serversOf("both", conductortest.V3_15_0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	l, err := prepared(t.Context(), servers, options{binaries: binaries}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

func prepared(ctx context.Context, servers stack.Servers, o options, dir string) (*lane, error) {
	if err := register(ctx, servers); err != nil {
		return nil, err
	}
	return newLane(ctx, "t", false, servers, o, dir)
}

func kinds(problems []problem) string {
	var all []string
	for _, p := range problems {
		all = append(all, fmt.Sprintf("%s: %s", p.kind, p.text))
	}
	return strings.Join(all, "\n")
}

// What a run must see: each of these is made, and has to be reported.
func TestJudge(t *testing.T) {
	t.Parallel()
	l := testLane(t)
	ctx := t.Context()
	if _, err := l.clean(ctx, plain); err != nil {
		t.Fatal(err)
	}
	l.meets = time.Second
	p := planned{request: request{plain, stager, toLakeFS, "GET /not asked for", 1}, fault: fault.Lost()}
	missed, err := l.run(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	if got := kinds(missed.problems); got != "violation: the fault never met its request" {
		t.Errorf("a fault that meets nothing: %q", got)
	}

	head := func() txn.CommitID {
		t.Helper()
		head, err := l.lake.Head(ctx, l.repo, "main")
		if err != nil {
			t.Fatal(err)
		}
		return head
	}
	judged := func(from txn.CommitID, change func(*outcome), files map[string]string) string {
		t.Helper()
		got := outcome{workflow: missed.workflow}
		got.workflow.Tasks = append([]txn.Task(nil), missed.workflow.Tasks...)
		if change != nil {
			change(&got)
		}
		if err := l.judge(ctx, &got, from, files); err != nil {
			t.Fatal(err)
		}
		return kinds(got.problems)
	}
	contains := func(what, got, want string) {
		t.Helper()
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q does not hold %q", what, got, want)
		}
	}
	whole := files(l.cases)
	publication, err := l.lake.Commit(ctx, l.repo, head())
	if err != nil {
		t.Fatal(err)
	}
	before := publication.Parents[0]
	if got := judged(before, nil, whole); got != "" {
		t.Errorf("all is well, and it says %q", got)
	}
	contains("another tree", judged(before, nil, map[string]string{"same": "1"}), "lost: COMPLETED, and the branch holds")
	contains("nothing published", judged(head(), nil, whole), "lost: COMPLETED, and the branch holds")
	contains("two publications", judged(l.first, nil, whole), "duplicated: 2 commits on the branch")
	contains("failed for good", judged(before, func(o *outcome) {
		o.workflow.Status, o.workflow.Tasks[2].Status = txn.WorkflowFailed, txn.TaskFailedWithTerminalError
	}, whole), "lost: publish failed for good")
	contains("failed with tries left", judged(before, func(o *outcome) {
		o.workflow.Status, o.workflow.Tasks[2].Output = txn.WorkflowFailed, nil
	}, whole), "lost: failed although Conductor had tries left")
	contains("timed out", judged(before, func(o *outcome) { o.workflow.Status = txn.WorkflowTimedOut }, whole), "lost: the workflow is TIMED_OUT")
	contains("something else published", judged(before, func(o *outcome) { o.workflow.Status = txn.WorkflowFailed }, files(0)), "violation: FAILED, and the branch holds something else")
	left := func(o *outcome) {
		for i := range o.workflow.Tasks {
			if o.workflow.Tasks[i].Type.IsCleanup() {
				o.workflow.Tasks[i].Output = nil
			}
		}
	}
	branch := stagingBranch(t, missed.workflow)
	if err := l.lake.CreateBranch(ctx, l.repo, branch, before); err != nil {
		t.Fatal(err)
	}
	contains("a branch left", judged(before, left, whole), "violation: "+string(branch)+" is left, and cleanup does not say why")
	found, still, err := l.swept(ctx)
	if err != nil || found != 1 || len(still) != 0 {
		t.Errorf("the sweep found %d and left %v, %v", found, still, err)
	}
}

// stagingBranch is the name that the workflow's stage task gave.
func stagingBranch(t *testing.T, workflow txn.Workflow) txn.Branch {
	t.Helper()
	var o struct {
		Staged struct {
			Branch txn.Branch `json:"staging_branch"`
		} `json:"staged"`
	}
	if err := json.Unmarshal(last(workflow, referenceOf(stager)).Output, &o); err != nil {
		t.Fatal(err)
	}
	return o.Staged.Branch
}

// Requests that do the same have the same name, whatever the run.
func TestKindOf(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("0123456789abcdef", 4)
	for want, r := range map[string]fault.Request{
		"poll perago_stage_faults":                 {Method: "GET", Path: "/api/tasks/poll/batch/perago_stage_faults"},
		"GET /api/tasks/*":                         {Method: "GET", Path: "/api/tasks/0df2f696-6484-4c8b-835c-81049beb0745"},
		"POST /api/tasks COMPLETED":                {Method: "POST", Path: "/api/tasks", Body: `{"status":"COMPLETED"}`},
		"POST /api/tasks FAILED":                   {Method: "POST", Path: "/api/tasks", Body: `{"status":"FAILED"}`},
		"POST /repositories/*/refs/*/merge/main":   {Method: "POST", Path: "/api/v1/repositories/r-1/refs/" + id + "/merge/main"},
		"POST /repositories/*/branches/*/commits":  {Method: "POST", Path: "/api/v1/repositories/r-1/branches/perago-staging-0-1-2-r0-3/commits"},
		"GET /repositories/*/branches/main":        {Method: "GET", Path: "/api/v1/repositories/r-1/branches/main"},
		"GET /repositories/*/actions/runs/*/hooks": {Method: "GET", Path: "/api/v1/repositories/r-1/actions/runs/4ojv/hooks"},
		"": {Method: "GET", Path: "/api/v1/user"},
	} {
		if got := kindOf(r); got != want {
			t.Errorf("%s %s is %q, want %q", r.Method, r.Path, got, want)
		}
	}
	for _, r := range []fault.Request{
		{Method: "GET", Path: "/api/metadata/taskdefs/perago_stage"},
		{Method: "GET", Path: "/api/tasks/queue/sizes"},
		{Method: "POST", Path: "/api/tasks", Body: `{"extendLease":true,"status":"IN_PROGRESS"}`},
	} {
		if got := kindOf(r); got != "" {
			t.Errorf("%s %s is %q, and comes at any time", r.Method, r.Path, got)
		}
	}
}
