package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pid may belong to another process by the time of `make demo-stop`.
func TestStopKeptEndsOnlyWhatWasRecorded(t *testing.T) {
	t.Parallel()
	sleep := exec.Command("sleep", "300")
	sleep.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- sleep.Wait() }()
	t.Cleanup(func() { _ = sleep.Process.Kill() })
	started, err := startTime(sleep.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}

	stop := func(p processRecord) string {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "kept")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal([]processRecord{p})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, recordFile), b, 0o644); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := stopKept(dir, &out); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("the folder is left: %v", err)
		}
		return out.String()
	}
	if out := stop(processRecord{Name: "x", Pid: sleep.Process.Pid, StartTime: started + "1"}); out != "" {
		t.Errorf("it stopped a process that it had not recorded: %s", out)
	}
	if _, err := startTime(sleep.Process.Pid); err != nil {
		t.Fatalf("a process that was not recorded is gone: %v", err)
	}
	if out := stop(processRecord{Name: "x", Pid: sleep.Process.Pid, StartTime: started}); !strings.Contains(out, "stopped x, pid ") {
		t.Errorf("got %q", out)
	}
	<-ended
}

// Systems without /proc have only ps.
func TestPsStartTime(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ps"); err != nil {
		t.Log("no ps here, and nothing to test")
		return
	}
	child := exec.Command("sleep", "300")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	first, err := psStartTime(pid)
	if err != nil || first == "" {
		t.Fatalf("%q, %v", first, err)
	}
	if again, err := psStartTime(pid); again != first || err != nil {
		t.Errorf("%q, then %q, %v", first, again, err)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if gone, err := psStartTime(pid); err == nil {
		t.Errorf("after the process has ended: %q", gone)
	}
}

func TestStopKeptWithNothingKept(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := stopKept(filepath.Join(t.TempDir(), "none"), &out); err != nil || out.String() != "no demo was left running here\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestProject(t *testing.T) {
	t.Parallel()
	got := project(
		tree{"data.json": "a", "data2/x": "b", "data/old": "c", "data/same": "d", "z": "e"},
		"data/",
		tree{"same": "d", "new": "f"})
	want := tree{"data.json": "a", "data2/x": "b", "data/same": "d", "data/new": "f", "z": "e"}
	if err := sameTree(got, want); err != nil {
		t.Error(err)
	}
}

func TestSameTreeNamesEachDifference(t *testing.T) {
	t.Parallel()
	err := sameTree(tree{"a": "1", "b": "1", "c": "1"}, tree{"a": "1", "b": "2", "d": "1"})
	if err == nil || err.Error() != "b has another content, c should not be there, d is missing" {
		t.Errorf("got %v", err)
	}
}
