package txn

import "testing"

// A probe branch is no staging branch, so that nothing sweeps it for one.
func TestProbeBranch(t *testing.T) {
	t.Parallel()
	branch := ProbeBranch("01890a5d-ac96-774b-bcce-b302099a8057")
	if branch != "perago-probe-01890a5dac96774bbcceb302099a8057" {
		t.Errorf("got %s", branch)
	}
	if name, err := ParseStagingName(branch); err == nil {
		t.Errorf("it parses as %+v", name)
	}
}

// A probe that landed where it should not is foreign to every step.
func TestProbeRecordIsForeign(t *testing.T) {
	t.Parallel()
	metadata := ProbeRecord("01890a5d-ac96-774b-bcce-b302099a8057", "perago-probe-x", CommitID("a"))
	if !IsRecord(metadata) {
		t.Error("it does not claim to be ours")
	}
	if record, err := ParseRecord(metadata); err == nil {
		t.Errorf("it is complete: %+v", record)
	}
}
