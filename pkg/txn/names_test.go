package txn

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestLogicalTaskKey(t *testing.T) {
	t.Parallel()
	got := NewLogicalTaskKey("wf", "train_stage__2", 2)
	if want := LogicalTaskKey("wf:train_stage__2:2"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestStagingNameRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		workflow := WorkflowID(rapid.OneOf(
			rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`),
			rapid.String(),
		).Draw(t, "workflow"))
		key := LogicalTaskKey(rapid.String().Draw(t, "key"))
		execution := ExecutionID(rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`).Draw(t, "execution"))
		name := NewStagingName("conductor:8080", workflow, key, rapid.IntRange(0, 999_999_999).Draw(t, "retry"), execution)
		name.Source = rapid.IntRange(0, 3).Draw(t, "source")
		branch := name.Branch()
		if parsed, err := ParseStagingName(branch); err != nil || parsed != name {
			t.Fatalf("%s parses as %+v, %v; want %+v", branch, parsed, err, name)
		}
		if !name.OfStep("conductor:8080", workflow, key) {
			t.Fatalf("%s is not of its own step", branch)
		}
		if name.OfStep("other:8080", workflow, key) || name.OfStep("conductor:8080", workflow+"x", key) || name.OfStep("conductor:8080", workflow, key+"x") {
			t.Fatalf("%s is of another's step", branch)
		}
		for _, prefix := range []string{
			WorkflowBranches("conductor:8080", workflow), StepBranches("conductor:8080", workflow, key), BranchNamespace,
		} {
			if !strings.HasPrefix(string(branch), prefix) {
				t.Fatalf("%s does not begin with %s", branch, prefix)
			}
		}
	})
}

func TestParseStagingNameRefuses(t *testing.T) {
	t.Parallel()
	good := string(NewStagingName("c", testWorkflow, "k", 0, execution1).Branch())
	if _, err := ParseStagingName(Branch(good)); err != nil {
		t.Fatal(err)
	}
	for _, branch := range []string{
		"", "main", "perago-staging-", good + "-s0", good + "-s4", good + "-s1x", good + "x", "x" + good,
		strings.Replace(good, "-r0-", "-r00-", 1), strings.Replace(good, "-r0-", "-r-1-", 1), strings.ToUpper(good),
		good[:len(good)-1], strings.Replace(good, "774b", "474b", 1), // not version 7
	} {
		if name, err := ParseStagingName(Branch(branch)); err == nil {
			t.Errorf("%q parses as %+v", branch, name)
		}
	}
}

func TestDefaultConductorIdentity(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"http://conductor:8080", "http://conductor:8080/", "http://conductor:8080/api", "https://conductor:8080/api/",
	} {
		if got := DefaultConductorIdentity(url); got != "conductor:8080" {
			t.Errorf("%s: %q", url, got)
		}
	}
}

func TestExecutionIDTime(t *testing.T) {
	t.Parallel()
	// RFC 9562, appendix A.6: the example UUIDv7 is of 2022-02-22 19:22:22 UTC.
	got := ExecutionID("017f22e2-79b0-7cc3-98c4-dc0c0c07398f").Time()
	if want := time.Date(2022, 2, 22, 19, 22, 22, 0, time.UTC); !got.Equal(want) {
		t.Errorf("got %s, want %s", got.UTC(), want)
	}
}

func TestParseCommitID(t *testing.T) {
	t.Parallel()
	if _, err := ParseCommitID(strings.Repeat("0a", 32)); err != nil {
		t.Error(err)
	}
	for _, s := range []string{"", "main", "main~1", strings.Repeat("0", 63), strings.Repeat("0", 65), strings.Repeat("A", 64), "abcdef123456"} {
		if _, err := ParseCommitID(s); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
}

// Only a name that perago made up from an execution id says whose a branch is.
func TestHoldsExecution(t *testing.T) {
	t.Parallel()
	const execution = ExecutionID("01890a5d-ac96-774b-bcce-b302099a8057")
	name := NewStagingName("here", "workflow", "workflow:stage:0", 0, execution)
	source := name
	source.Source = SourceSecond
	for branch, want := range map[Branch]bool{
		name.Branch(): true, source.Branch(): true, ProbeBranch(execution): true, HandBranch(execution): true,
		"": false, "main": false, "mine": false, "perago-x": false, HandBranches: false, ProbeBranches: false,
		HandBranches + "mine": false, HandBranch(execution) + "0": false, ProbeBranch(execution)[:40]: false,
		name.Branch() + "-mine": false, "01890a5dac96774bbcceb302099a8057": false,
		HandBranches + "00000000000000000000000000000000": false,
	} {
		if got := HoldsExecution(branch); got != want {
			t.Errorf("%q: %v", branch, got)
		}
	}
}
