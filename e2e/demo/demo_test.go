package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"perago/e2e/stack"
	perago "perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
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

// What the demo prints is the address that each client of Conductor takes: Conductor's
// own append the path of a call to it, and the documents' curl commands do too.
func TestDemo_ExportsAnAddressForEveryClient(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(conductortest.New(nil))
	defer server.Close()
	d := &demo{servers: &stack.Stack{Servers: stack.Servers{ConductorURL: server.URL}}}
	var address string
	for _, kv := range d.exports() {
		if value, ok := strings.CutPrefix(kv, "CONDUCTOR_SERVER_URL="); ok {
			address = value
		}
	}
	got, err := http.Get(address + "/tasks/poll/prepare")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if got.StatusCode != http.StatusNoContent {
		t.Errorf("a poll below %s is answered %s, want 204", address, got.Status)
	}
	client, err := perago.New(perago.Config{ServerURL: address}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(t.Context()); err != nil {
		t.Errorf("Perago's own client: %v", err)
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
