package txn

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

func TestRecordRoundTrip(t *testing.T) {
	t.Parallel()
	for _, phase := range []Phase{PhaseTry, PhaseSource, PhaseConfirm} {
		record := Record{
			Phase: phase, Key: testStep.Key, Workflow: testWorkflow, Task: "t", RetryCount: 2, Execution: execution1,
			InputRef: id("A"), TargetBranch: "main", Prefix: "", StagingBranch: "perago-staging-x",
		}
		if phase == PhaseConfirm {
			record.StagingCommit, record.StagingExecution = id("S"), execution2
			record.SourceCommit, record.ExpectedHead, record.Supersedes = id("S"), id("A"), id("P")
		}
		metadata := record.Metadata("http://ui/execution/1")
		back, err := ParseRecord(metadata)
		if err != nil || back != record {
			t.Errorf("%s: %+v comes back as %+v, %v", phase, record, back, err)
		}
		if metadata["::lakefs::Conductor::url[url:ui]"] != "http://ui/execution/1" {
			t.Errorf("%s: no link for people in %v", phase, metadata)
		}
		for key, value := range metadata {
			if value == "" {
				t.Errorf("%s: %s is empty", phase, key)
			}
		}
	}
}

func TestEveryKeyIsRequired(t *testing.T) {
	t.Parallel()
	whole := confirm("P", "A", func(r *Record) { r.Supersedes = id("P0") }).Metadata
	if len(whole) != 16 {
		t.Fatalf("a confirm commit has %d keys, want 16: %v", len(whole), whole)
	}
	for key := range whole {
		missing, empty, wrong := maps.Clone(whole), maps.Clone(whole), maps.Clone(whole)
		delete(missing, key)
		empty[key] = ""
		wrong[key] = "\x00 not a value"
		if _, err := ParseRecord(missing); err == nil {
			t.Errorf("a record without %s is accepted", key)
		}
		if _, err := ParseRecord(empty); (err == nil) != (key == keySupersedes) {
			t.Errorf("a record with an empty %s: %v", key, err)
		}
		switch key {
		case keyLogicalTaskKey, keyWorkflowID, keyTaskID, keyTargetBranch, keyStagingBranch: // any text
		default:
			if _, err := ParseRecord(wrong); err == nil {
				t.Errorf("a record with a malformed %s is accepted", key)
			}
		}
	}
}

func TestNoOpHasNoStagingBranch(t *testing.T) {
	t.Parallel()
	noOp := confirm("P", "A", func(r *Record) { r.StagingCommit, r.StagingBranch = r.InputRef, "" })
	if _, err := ParseRecord(noOp.Metadata); err != nil {
		t.Errorf("a no-op's confirm commit: %v", err)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for version, newer := range map[string]bool{"1": false, "1.7": false, "2": true, "10": true, "": true} {
		commit := confirm("P", "A")
		commit.Metadata[keyVersion] = version
		_, err := ParseRecord(commit.Metadata)
		var e *NewerVersionError
		if errors.As(err, &e) != newer {
			t.Errorf("version %q: %v", version, err)
		}
		if newer && !strings.Contains(err.Error(), "upgrade this worker") {
			t.Errorf("version %q: %v does not say what to do", version, err)
		}
	}
}
