package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is one running binary and what it wrote to stderr.
type process struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	done chan struct{}

	mu   sync.Mutex
	logs bytes.Buffer
}

// start runs a built binary with exactly this environment. It is killed at the
// end of the test if it still runs.
func start(t testing.TB, name string, env ...string) *process {
	t.Helper()
	return startIn(t, binaries, name, env...)
}

// startIn is start of a binary of another folder.
func startIn(t testing.TB, folder, name string, env ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: exec.Command(filepath.Join(folder, name)), done: make(chan struct{})}
	p.cmd.Env = env
	p.cmd.Stderr = writerFunc(func(b []byte) (int, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.logs.Write(b)
	})
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // the exit code is asked for
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // an error says that it has ended
		<-p.done
		if t.Failed() {
			t.Logf("%s wrote:\n%s", name, p.stderr())
		}
	})
	return p
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func (p *process) stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logs.String()
}

// exit waits for the process to end by itself and gives its code.
func (p *process) exit(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		p.t.Fatalf("%s still runs after %s", p.name, within)
		return -1
	}
}

// drain sends SIGTERM and requires an orderly end.
func (p *process) drain() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatalf("signal %s: %v", p.name, err)
	}
	if code := p.exit(40 * time.Second); code != 0 {
		p.t.Errorf("%s ended with %d after SIGTERM, want 0", p.name, code)
	}
}

// address is where the worker's health listener is, from its own log.
func (p *process) address() string {
	p.t.Helper()
	var address string
	eventually(p.t, waitTime, p.name+" says where it listens", func() (bool, string) {
		for line := range strings.Lines(p.stderr()) {
			var event struct {
				Message string `json:"msg"`
				Address string `json:"http_addr"`
			}
			if json.Unmarshal([]byte(line), &event) == nil && event.Message == "started" {
				address = event.Address
				return true, ""
			}
		}
		return false, p.stderr()
	})
	return address
}

// get asks the health listener and gives the status and the body.
func (p *process) get(path string) (int, string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address()+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatalf("%s %s: %v", p.name, path, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatalf("%s %s: %v", p.name, path, err)
	}
	return response.StatusCode, string(body)
}

// ready waits until /readyz is 200.
func (p *process) ready() {
	p.t.Helper()
	eventually(p.t, waitTime, p.name+" is ready", func() (bool, string) {
		status, body := p.get("/readyz")
		return status == http.StatusOK, body
	})
}

// notReady waits until /readyz is 503 and says all of the sentences.
func (p *process) notReady(sentences ...string) {
	p.t.Helper()
	eventually(p.t, waitTime, p.name+" says why it is not ready", func() (bool, string) {
		status, body := p.get("/readyz")
		for _, sentence := range sentences {
			if !strings.Contains(body, sentence) {
				return false, body + " does not say: " + sentence
			}
		}
		return status == http.StatusServiceUnavailable, body
	})
	if status, _ := p.get("/livez"); status != http.StatusOK {
		p.t.Errorf("%s: /livez is %d while it is not ready, want 200", p.name, status)
	}
}

// eventually asks until the condition holds; what it last said is in the
// failure.
func eventually(t testing.TB, within time.Duration, what string, holds func() (bool, string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, last := holds()
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited %s and still not: %s; last: %s", within, what, last)
		case <-tick.C:
		}
	}
}
