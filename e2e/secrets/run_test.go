//go:build unix

package secrets_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binaries is where the real ones are built, once for all tests.
var binaries = sync.OnceValues(func() (string, error) {
	// Its name is in what a process says of its own command line.
	dir := filepath.Join(os.TempDir(), marker)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "../../cmd/...")
	out, err := build.CombinedOutput()
	if err != nil {
		os.Stderr.Write(out)
	}
	return dir, err
})

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(filepath.Join(os.TempDir(), marker))
	os.Exit(code)
}

// output is the directory in which everything that was said is collected.
type output struct {
	t   *testing.T
	dir string
}

func (o output) write(name string, content []byte) {
	o.t.Helper()
	path := filepath.Join(o.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		o.t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		o.t.Fatal(err)
	}
}

func (o output) create(name string) *os.File {
	o.t.Helper()
	path := filepath.Join(o.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		o.t.Fatal(err)
	}
	file, err := os.Create(path)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = file.Close() })
	return file
}

// run runs a binary to its end, keeps what it says, and gives its exit code.
func (o output) run(name, binary string, env []string, arguments ...string) int {
	o.t.Helper()
	dir, err := binaries()
	if err != nil {
		o.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(o.t.Context(), 2*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(dir, binary), arguments...)
	command.Env = env
	command.Stdout, command.Stderr = o.create(name+".stdout"), o.create(name+".stderr")
	if err := command.Run(); err != nil && command.ProcessState == nil {
		o.t.Fatal(err)
	}
	return command.ProcessState.ExitCode()
}

// worker is a running one.
type worker struct {
	output
	name, binary string
	command      *exec.Cmd
	done         chan struct{}
}

func (o output) start(name, binary string, env []string) *worker {
	o.t.Helper()
	dir, err := binaries()
	if err != nil {
		o.t.Fatal(err)
	}
	w := &worker{output: o, name: name + "/" + binary, binary: binary, command: exec.Command(filepath.Join(dir, binary)), done: make(chan struct{})}
	w.command.Env = env
	w.command.Stdout, w.command.Stderr = o.create("logs/"+w.name+".stdout"), o.create("logs/"+w.name+".stderr")
	if err := w.command.Start(); err != nil {
		o.t.Fatal(err)
	}
	go func() {
		_ = w.command.Wait() // the code is asked for
		close(w.done)
	}()
	o.t.Cleanup(func() {
		_ = w.command.Process.Kill() // an error says that it has ended
		<-w.done
	})
	return w
}

// log is what it has logged.
func (w *worker) log() string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "logs", w.name+".stderr"))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

// address is that of a listener, from the log.
func (w *worker) address(event, key string) string {
	w.t.Helper()
	var found string
	w.until(event, func() bool {
		for line := range strings.Lines(w.log()) {
			var fields map[string]any
			if json.Unmarshal([]byte(line), &fields) == nil && fields["msg"] == event {
				found, _ = fields[key].(string)
			}
		}
		return found != ""
	})
	return found
}

// get asks a listener.
func (w *worker) get(address, path string) (int, []byte) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		w.t.Fatalf("%s %s: %v", w.name, path, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", w.name, path, err)
	}
	return response.StatusCode, body
}

// ready waits for what /readyz answers.
func (w *worker) ready(status int, says string) {
	w.t.Helper()
	address := w.address("started", "http_addr")
	w.until("/readyz is "+http.StatusText(status), func() bool {
		got, body := w.get(address, "/readyz")
		return got == status && bytes.Contains(body, []byte(says))
	})
}

// collect keeps what the listeners answer.
func (w *worker) collect() {
	w.t.Helper()
	address, profiles := w.address("started", "http_addr"), w.address("serving profiles", "pprof_addr")
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		_, body := w.get(address, path)
		w.write("http/"+w.name+path, body)
	}
	paths := []string{"", "cmdline", "heap", "heap?debug=1", "allocs?debug=1", "goroutine?debug=1", "goroutine?debug=2", "threadcreate?debug=1", "symbol"}
	if w.name == "value/stage-worker" {
		paths = append(paths, "profile?seconds=1", "trace?seconds=1")
	}
	for _, path := range paths {
		_, body := w.get(profiles, "/debug/pprof/"+path)
		w.write("http/"+w.name+"/pprof/"+strings.ReplaceAll(path, "?", "_")+".answer", body)
	}
}

// drain stops it in order.
func (w *worker) drain() {
	w.t.Helper()
	if err := w.command.Process.Signal(syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	select {
	case <-w.done:
	case <-time.After(time.Minute):
		w.t.Fatalf("%s does not end", w.name)
	}
	if code := w.command.ProcessState.ExitCode(); code != 0 {
		w.t.Errorf("%s ended with %d", w.name, code)
	}
}

// until asks until it holds.
func (w *worker) until(what string, holds func() bool) {
	w.t.Helper()
	until(w.t, w.name+": "+what, holds)
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("still not: %s", what)
		case <-tick.C:
		}
	}
}
