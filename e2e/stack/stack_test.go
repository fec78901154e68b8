package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A Server is tested with this test binary in the place of a real server: it
// runs as one of the helpers below when this variable is set.
const helperEnv = "PERAGO_STACK_TEST_HELPER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperEnv); mode != "" {
		helper(mode, os.Args[1])
	}
	os.Exit(m.Run())
}

func helper(mode, addr string) {
	switch mode {
	case "dies":
		fmt.Println("cannot open the pod bay doors")
		os.Exit(3)
	case "hangs":
		fmt.Println("thinking")
		select {}
	case "stubborn":
		ignoreTerm()
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		fmt.Println(err)
		if mode == "zombie" { // alive without a listener, as Conductor is
			select {}
		}
		os.Exit(1)
	}
	fmt.Println("serving")
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/die" {
			os.Exit(4)
		}
	}))
}

func helperServer(t *testing.T, mode string) *Server {
	t.Helper()
	s := NewServer(ServerConfig{
		Name:    "helper",
		LogPath: filepath.Join(t.TempDir(), "log"),
		Command: func(port int) *exec.Cmd {
			cmd := exec.Command(os.Args[0], fmt.Sprintf("127.0.0.1:%d", port))
			cmd.Env = append(os.Environ(), helperEnv+"="+mode)
			return cmd
		},
		Ready: func(ctx context.Context, port int, log []byte) error {
			if !strings.Contains(string(log), "serving") {
				return errors.New("not serving")
			}
			return getOK(ctx, fmt.Sprintf("http://127.0.0.1:%d/", port), "", "")
		},
	})
	t.Cleanup(s.Kill)
	return s
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestServerStopsAndStartsOnItsPort(t *testing.T) {
	t.Parallel()
	s := helperServer(t, "serves")
	ctx := t.Context()
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(ctx); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("second start: %v", err)
	}
	url, pid := s.URL(), s.Pid()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if alive(pid) || s.Pid() != 0 {
		t.Errorf("process %d is still there after Stop", pid)
	}
	if err := s.Stop(); err != nil {
		t.Errorf("Stop of a stopped server: %v", err)
	}
	if err := getOK(ctx, url, "", ""); err == nil {
		t.Error("it answers after Stop")
	}
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if s.URL() != url || s.Pid() == pid {
		t.Errorf("after the second start: %s pid %d, before: %s pid %d", s.URL(), s.Pid(), url, pid)
	}
}

func TestServerThatDoesNotComeUp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ mode, want string }{
		{"dies", "helper ended while starting (exit status 3); its log ends:\ncannot open the pod bay doors"},
		{"hangs", "its log ends:\nthinking"},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			t.Parallel()
			s := helperServer(t, tt.mode)
			if tt.mode == "hangs" {
				s.StartTimeout = 2 * time.Second
			}
			err := s.Start(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to contain %q", err, tt.want)
			}
			if s.Pid() != 0 {
				t.Errorf("a process is left: %d", s.Pid())
			}
		})
	}
}

// The port may be lost between its choice and its use, to a server that
// answers our health check.
func TestServerTakesAnotherPort(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"serves", "zombie"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			other := helperServer(t, "serves")
			if err := other.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			s := helperServer(t, mode)
			ports := []int{other.port, other.port}
			s.choosePort = func() (int, error) {
				if len(ports) == 0 {
					return FreePort()
				}
				port := ports[0]
				ports = ports[1:]
				return port, nil
			}
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if s.URL() == other.URL() {
				t.Errorf("both servers claim %s", s.URL())
			}
		})
	}
}

func TestServerStopKillsAfterTheGrace(t *testing.T) {
	t.Parallel()
	s := helperServer(t, "stubborn")
	s.Grace = 200 * time.Millisecond
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid := s.Pid()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if alive(pid) || s.ExitCode() != -1 {
		t.Errorf("process %d: still there %v, exit code %d", pid, alive(pid), s.ExitCode())
	}
}

func TestServerThatEndedByItself(t *testing.T) {
	t.Parallel()
	s := helperServer(t, "serves")
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := s.proc.done
	_ = getOK(t.Context(), s.URL()+"/die", "", "")
	<-done
	if err := s.Stop(); err == nil || !strings.Contains(err.Error(), "had ended by itself (exit status 4)") {
		t.Errorf("got %v", err)
	}
}

// The shared servers, as every other suite sees them.
func TestSharedServers(t *testing.T) {
	t.Parallel()
	if Short(t) {
		return
	}
	s := Require(t)
	for _, err := range []error{
		getOK(t.Context(), s.ConductorURL+"/health", "", ""),
		getOK(t.Context(), s.ConductorURL+"/api/metadata/taskdefs", "", ""),
		getOK(t.Context(), s.LakeFSURL+"/_health", "", ""),
		getOK(t.Context(), s.LakeFSURL+"/api/v1/repositories", s.AccessKeyID, s.SecretAccessKey),
	} {
		if err != nil {
			t.Error(err)
		}
	}
}

// A lakeFS of our own. A second Conductor would cost every run of the tests a
// start of a JVM; with-stack and the demo start and stop the pair.
func TestLakeFSKeepsItsDataOverACrash(t *testing.T) {
	t.Parallel()
	if Short(t) {
		return
	}
	shared := Require(t)
	ctx := t.Context()
	bin, err := Prefetch(ctx, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	keys := Servers{AccessKeyID: "perago-test", SecretAccessKey: randomHex(20), ImportDir: filepath.Join(dir, "import"), BlocksDir: filepath.Join(dir, "blocks")}
	lake := lakeFSServer(bin, dir, filepath.Join(dir, "log"), keys)
	t.Cleanup(lake.Kill)
	if err := lake.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := getOK(ctx, shared.LakeFSURL+"/api/v1/user", keys.AccessKeyID, keys.SecretAccessKey); err == nil {
		t.Error("the keys of one server open another")
	}

	create := `{"name":"kept","storage_namespace":"local://kept","default_branch":"main"}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, lake.URL()+"/api/v1/repositories", strings.NewReader(create))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth(keys.AccessKeyID, keys.SecretAccessKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("create repository: %s", resp.Status)
	}
	lake.Kill()
	if err := getOK(ctx, lake.URL()+"/_health", "", ""); err == nil {
		t.Error("lakeFS answers after Kill")
	}
	if err := lake.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := getOK(ctx, lake.URL()+"/api/v1/repositories/kept", keys.AccessKeyID, keys.SecretAccessKey); err != nil {
		t.Error(err)
	}
	pid := lake.Pid()
	if err := lake.Stop(); err != nil {
		t.Error(err)
	}
	if alive(pid) {
		t.Errorf("process %d is left", pid)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(lake.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	// lakeFS names its cache in its log; by default that is in the home directory.
	if !strings.Contains(string(log), "cache_local_dir="+dir) || strings.Contains(string(log), "cache_local_dir="+home+"/") {
		t.Error("lakeFS keeps its cache outside of its folder")
	}
}
