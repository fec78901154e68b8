// Package fleet runs the built workers as processes of their own, each behind a
// fault proxy to Conductor and one to lakeFS, for programs that do to them what a
// production does.
package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"perago/e2e/stack"
	"perago/pkg/fault"
	"perago/taskdefs"
)

// Worker is one of the three binaries, without its "-worker".
type Worker string

// The workers, in the order of a chain.
const (
	Stage   Worker = "stage"
	Publish Worker = "publish"
	Cleanup Worker = "cleanup"
)

// Workers are all of them.
func Workers() []Worker { return []Worker{Stage, Publish, Cleanup} }

// Build builds the workers and the command line into a folder.
func Build(ctx context.Context, into string, race bool) error {
	args := []string{"build", "-o", into + string(filepath.Separator)}
	if race {
		args = append(args, "-race")
	}
	command := exec.CommandContext(ctx, "go", append(args, "perago/cmd/...")...)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

// The shipped TaskDefs with leases that a test can wait for, and that still leave
// time for an answer where the machine has much else to do.
var leases = map[Worker]map[string]any{
	Stage:   {"responseTimeoutSeconds": 8},
	Cleanup: {"responseTimeoutSeconds": 8},
	Publish: {"responseTimeoutSeconds": 8, "inputTemplate": map[string]any{"budget": map[string]any{
		"observed_merge_p99_seconds": 2, "safety_margin_seconds": 1, "lakefs_merge_timeout_seconds": 3,
		"conductor_completion_timeout_seconds": 2, "worker_shutdown_grace_seconds": 0.5, "heartbeat_interval_seconds": 2,
	}}},
}

// TaskDefinition is the worker's shipped TaskDef under another name, with a short
// lease, and with retries a second apart.
func TaskDefinition(w Worker, name string) (map[string]any, error) {
	raw, err := taskdefs.Files.ReadFile("perago_" + string(w) + ".json")
	if err != nil {
		return nil, err
	}
	var definition map[string]any
	if err := json.Unmarshal(raw, &definition); err != nil {
		return nil, err
	}
	maps.Copy(definition, leases[w])
	maps.Copy(definition, map[string]any{"name": name, "retryLogic": "FIXED", "retryDelaySeconds": 1})
	return definition, nil
}

// Member is one worker, its proxies and its log.
type Member struct {
	Worker Worker
	// Conductor and LakeFS stand between it and the servers.
	Conductor, LakeFS *fault.Proxy
	LogPath           string

	binaries string
	env      []string
	closers  []func()

	mu      sync.Mutex
	process *exec.Cmd
	done    chan struct{}
}

// Wrap stands around a proxy and sees what goes through it; nil is none.
type Wrap func(w Worker, toLakeFS bool, proxy http.Handler) http.Handler

// NewMember makes a worker's proxies; Start starts it. env stands behind what it
// gets to find the servers.
func NewMember(w Worker, servers stack.Servers, binaries, logPath string, wrap Wrap, env ...string) (_ *Member, err error) {
	m := &Member{Worker: w, LogPath: logPath, binaries: binaries}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	serve := func(target string, toLakeFS bool) (*fault.Proxy, string, error) {
		proxy, err := fault.NewProxy(target)
		if err != nil {
			return nil, "", err
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, "", err
		}
		var handler http.Handler = proxy
		if wrap != nil {
			handler = wrap(w, toLakeFS, proxy)
		}
		front := &http.Server{Handler: handler}
		var serving sync.WaitGroup
		serving.Go(func() { _ = front.Serve(listener) }) // until it is closed
		m.closers = append(m.closers, func() { proxy.Release(); _ = front.Close(); serving.Wait() })
		return proxy, "http://" + listener.Addr().String(), nil
	}
	var toConductor, toLakeFS string
	if m.Conductor, toConductor, err = serve(servers.ConductorURL, false); err != nil {
		return nil, err
	}
	if m.LakeFS, toLakeFS, err = serve(servers.LakeFSURL, true); err != nil {
		return nil, err
	}
	servers.ConductorURL, servers.LakeFSURL = toConductor, toLakeFS
	m.env = append(append(Env(servers), "PERAGO_HTTP_ADDR=127.0.0.1:0"), env...)
	return m, nil
}

// Env is how a program finds the servers.
func Env(servers stack.Servers) []string {
	return []string{
		"HOME=" + os.Getenv("HOME"),
		"CONDUCTOR_SERVER_URL=" + servers.ConductorURL,
		"LAKECTL_SERVER_ENDPOINT_URL=" + servers.LakeFSURL,
		"LAKECTL_CREDENTIALS_ACCESS_KEY_ID=" + servers.AccessKeyID,
		"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY=" + servers.SecretAccessKey,
	}
}

// Start starts the worker. env stands behind its own.
func (m *Member) Start(env ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process != nil {
		return fmt.Errorf("%s-worker runs already", m.Worker)
	}
	log, err := os.OpenFile(m.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(filepath.Join(m.binaries, string(m.Worker)+"-worker"))
	command.Env, command.Stderr = append(m.env, env...), log
	if err := command.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = command.Wait() // it is killed, or its log says why it ended
	}()
	m.process, m.done = command, done
	return nil
}

// Pid is the process id; 0 when it does not run.
func (m *Member) Pid() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return 0
	}
	return m.process.Process.Pid
}

// Signal sends it a signal. One that has ended by itself is an error.
func (m *Member) Signal(signal syscall.Signal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return fmt.Errorf("%s-worker does not run", m.Worker)
	}
	if err := m.process.Process.Signal(signal); err != nil {
		return fmt.Errorf("%s-worker: %w; its log is %s", m.Worker, err, m.LogPath)
	}
	return nil
}

// Kill ends the worker as a crash does. One that had ended by itself is an error.
func (m *Member) Kill() error { return m.end(syscall.SIGKILL, time.Minute) }

// Stop asks the worker to end, and waits for an orderly end.
func (m *Member) Stop(within time.Duration) error { return m.end(syscall.SIGTERM, within) }

func (m *Member) end(signal syscall.Signal, within time.Duration) error {
	if err := m.Signal(signal); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.done:
	case <-time.After(within):
		return fmt.Errorf("%s-worker still runs %s after %s; its log is %s", m.Worker, within, signal, m.LogPath)
	}
	m.process = nil
	return nil
}

// HTTPAddress is where its health listener is, from its log: the newest start.
func (m *Member) HTTPAddress() (string, error) {
	address := ""
	for line := range strings.Lines(m.Log()) {
		var event struct {
			Message string `json:"msg"`
			Address string `json:"http_addr"`
		}
		if json.Unmarshal([]byte(line), &event) == nil && event.Message == "started" {
			address = event.Address
		}
	}
	if address == "" {
		return "", errors.New("it has not started yet")
	}
	return address, nil
}

// Held is what a process holds: numbers, and bytes of memory.
type Held struct{ Goroutines, Descriptors, Memory float64 }

// Get asks the worker's health listener. One that is suspended does not answer.
func (m *Member) Get(ctx context.Context, path string) ([]byte, error) {
	address, err := m.HTTPAddress()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	// A connection that waits for the next look would be held by the worker too.
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

// Held asks the worker's own metrics.
func (m *Member) Held(ctx context.Context) (Held, error) {
	text, err := m.Get(ctx, "/metrics")
	if err != nil {
		return Held{}, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return Held{}, err
	}
	var held Held
	for name, into := range map[string]*float64{
		"go_goroutines": &held.Goroutines, "process_open_fds": &held.Descriptors, "process_resident_memory_bytes": &held.Memory,
	} {
		family := families[name]
		if family == nil || len(family.Metric) != 1 || family.Metric[0].GetGauge().GetValue() == 0 {
			return Held{}, fmt.Errorf("%s-worker has no metric %s", m.Worker, name)
		}
		*into = family.Metric[0].GetGauge().GetValue()
	}
	return held, nil
}

// Log is what the worker has written.
func (m *Member) Log() string {
	raw, err := os.ReadFile(m.LogPath)
	if err != nil {
		return err.Error() // where it is looked for, it is seen
	}
	return string(raw)
}

// Close kills what runs and closes the proxies.
func (m *Member) Close() {
	m.mu.Lock()
	if m.process != nil {
		_ = m.process.Process.Kill() // an error says that it has ended
		<-m.done
		m.process = nil
	}
	m.mu.Unlock()
	for _, closer := range m.closers {
		closer()
	}
	m.closers = nil
}
