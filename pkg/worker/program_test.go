package worker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"perago/pkg/config"
	"perago/pkg/credential"
	"perago/pkg/txn"
)

// hidden is a secret type that decodes itself, as an adapter's may.
type hidden struct{ value *string }

func (h *hidden) UnmarshalText(text []byte) error {
	if string(text) == "malformed" {
		return fmt.Errorf("cannot take %s", text)
	}
	value := string(text)
	h.value = &value
	return nil
}

type serverConfig struct {
	URL    string           `env:"EXAMPLE_URL, required" desc:"Address of the example server"`
	Secret hidden           `env:"EXAMPLE_SECRET, required" desc:"Secret of the example server"`
	Key    credential.Value `env:"EXAMPLE_KEY" desc:"Key of the example server" secret:"false"`
	Token  credential.Value `env:"EXAMPLE_TOKEN" desc:"Token of the example server"`
}

func (c serverConfig) Validate() []error {
	if strings.HasPrefix(c.URL, "http://") {
		return nil
	}
	return []error{fmt.Errorf("EXAMPLE_URL does not begin with http://")}
}

type exampleConfig struct {
	Server serverConfig
	Rate   float64 `env:"EXAMPLE_RATE,default=1.5" desc:"Rate"`
	Strict bool    `env:"EXAMPLE_STRICT" desc:"Strict"`
}

func environment(values map[string]string) config.Lookup {
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}

func soundEnvironment() map[string]string {
	return map[string]string{
		"EXAMPLE_URL": "http://example", "EXAMPLE_SECRET": secret,
		"PERAGO_ALLOWED_REPOSITORIES": "models/main,data", "PERAGO_TASK_TYPES": "perago_stage, perago_stage_large", "PERAGO_HTTP_ADDR": "127.0.0.1:0",
	}
}

// exampleProgram serves stage tasks of a memory server.
func exampleProgram(conductor *memoryConductor, handler Handler) Program[exampleConfig] {
	return Program[exampleConfig]{
		Name: "example-worker", Summary: "serves an example.", TaskTypes: []txn.TaskType{stageType}, HTTPAddr: "127.0.0.1:0",
		Build: func(_ context.Context, _ *Process, _ *exampleConfig) (Parts, error) {
			return Parts{
				Conductor: conductor, ConductorURL: conductorAt,
				Handler: func(taskType txn.TaskType) Handler {
					if !taskType.IsStage() {
						return nil
					}
					return handler
				},
			}, nil
		},
	}
}

func runProgram(t *testing.T, program Program[exampleConfig], values map[string]string, arguments ...string) (code int, stdout, stderr string) {
	t.Helper()
	// It is stopped already: what should have ended it before shows as a drain.
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var out, log bytes.Buffer
	code = Run(ctx, program, environment(values), arguments, &out, &log)
	return code, out.String(), log.String()
}

func TestHelpListsTheVariables(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-h", "--help"} {
		code, stdout, stderr := runProgram(t, exampleProgram(nil, nil), nil, flag)
		if code != 0 || stderr != "" {
			t.Errorf("exit %d, stderr %q", code, stderr)
		}
		lines := map[string]string{}
		for line := range strings.Lines(stdout) {
			if fields := strings.Fields(line); len(fields) > 1 {
				lines[fields[0]] = strings.Join(fields[1:], " ")
			}
		}
		for name, want := range map[string]string{
			"PERAGO_TASK_TYPES":           "perago_stage Task types",
			"PERAGO_HTTP_ADDR":            "127.0.0.1:0 Address",
			"PERAGO_ALLOWED_REPOSITORIES": "(required) Repositories",
			"PERAGO_POLL_INTERVAL":        "100ms Pace",
			"EXAMPLE_SECRET":              "(required) Secret of the example server (secret; may stand in a file named by EXAMPLE_SECRET_FILE)",
		} {
			if !strings.HasPrefix(lines[name], want) {
				t.Errorf("-h says %q of %s, want %q", lines[name], name, want)
			}
		}
	}
}

func TestVersionAndWrongArguments(t *testing.T) {
	t.Parallel()
	code, stdout, _ := runProgram(t, exampleProgram(nil, nil), nil, "-version")
	if code != 0 || !strings.HasPrefix(stdout, "example-worker ") || !strings.Contains(stdout, "go1.") {
		t.Errorf("exit %d, %q", code, stdout)
	}
	for _, arguments := range [][]string{{"-unknown"}, {"start"}} {
		code, stdout, stderr := runProgram(t, exampleProgram(nil, nil), nil, arguments...)
		if code != ExitConfiguration || stdout != "" || !strings.Contains(stderr, "example-worker -h") {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", arguments, code, stdout, stderr)
		}
	}
}

func TestFaultyConfigurationExitsWith2(t *testing.T) {
	t.Parallel()
	values := soundEnvironment()
	delete(values, "PERAGO_ALLOWED_REPOSITORIES")
	values["PERAGO_CONCURRENCY"] = "0"
	// A fault whose text holds a secret is redacted all the same.
	values["PERAGO_LOG_FORMAT"] = secret
	code, stdout, stderr := runProgram(t, exampleProgram(nil, nil), values)
	want := `example-worker: 3 faults in the configuration:
  PERAGO_ALLOWED_REPOSITORIES is not set: Repositories and branches a task may touch, separated by commas: repo or repo/branch-glob; * allows all
  PERAGO_CONCURRENCY is 0; it must be between 1 and 1000
  PERAGO_LOG_FORMAT is "[redacted]"; it must be json or text
example-worker -h lists the variables
`
	if code != ExitConfiguration || stdout != "" || stderr != want {
		t.Errorf("exit %d, stdout %q, stderr:\n%s", code, stdout, stderr)
	}
}

func TestUnknownTaskTypeExitsWith2(t *testing.T) {
	t.Parallel()
	values := soundEnvironment()
	values["PERAGO_TASK_TYPES"] = "perago_stage,perago_stag"
	code, _, stderr := runProgram(t, exampleProgram(newMemoryConductor(), done), values)
	if code != ExitConfiguration || !strings.Contains(stderr, `PERAGO_TASK_TYPES names "perago_stag", which example-worker does not serve`) {
		t.Errorf("exit %d, stderr:\n%s", code, stderr)
	}
}

func TestBuildThatFails(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err  error
		code int
	}{
		{fmt.Errorf("open the root of %s", secret), ExitFailed},
		{&config.Error{Faults: []error{fmt.Errorf("EXAMPLE_URL is %s", secret)}}, ExitConfiguration},
	} {
		program := exampleProgram(nil, nil)
		program.Build = func(context.Context, *Process, *exampleConfig) (Parts, error) { return Parts{}, row.err }
		code, _, stderr := runProgram(t, program, soundEnvironment())
		if code != row.code || !strings.Contains(stderr, "[redacted]") || strings.Contains(stderr, secret) {
			t.Errorf("%v: exit %d, stderr:\n%s", row.err, code, stderr)
		}
	}
}

func TestAddressInUse(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	values := soundEnvironment()
	values["PERAGO_HTTP_ADDR"] = listener.Addr().String()
	code, _, stderr := runProgram(t, exampleProgram(newMemoryConductor(), done), values)
	if code != ExitFailed || !strings.Contains(stderr, "PERAGO_HTTP_ADDR "+listener.Addr().String()+" cannot be listened on, give each worker on this host its own") {
		t.Errorf("exit %d, stderr:\n%s", code, stderr)
	}
}

func TestWholeLifeOfAProcess(t *testing.T) {
	t.Parallel()
	conductor := newMemoryConductor()
	conductor.register(stageDefinition())
	conductor.schedule("t", stageType, "")
	twice := make(chan struct{})
	conductor.fail(on("Poll", func(_ context.Context, call conductorCall) error {
		if call.Number == 3 {
			close(twice)
		}
		return nil
	}), nil)
	program := exampleProgram(conductor, done)
	build := program.Build
	var closed, background bool
	program.Build = func(ctx context.Context, process *Process, own *exampleConfig) (Parts, error) {
		if own.Server.URL != "http://example" || process.Worker == "" || process.Metrics == nil {
			t.Errorf("built with %+v, %+v", process, own)
		}
		parts, err := build(ctx, process, own)
		parts.Close = func() { closed = true }
		parts.Background = []func(context.Context){func(ctx context.Context) { <-ctx.Done(); background = true }}
		return parts, err
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	logs := &lockedBuffer{}
	values := soundEnvironment()
	delete(values, "PERAGO_TASK_TYPES")
	values["PERAGO_WORKER_ID_PREFIX"] = "host-7"
	code := make(chan int, 1)
	go func() { code <- Run(ctx, program, environment(values), nil, io.Discard, logs) }()
	<-twice
	h := &harness{t: t, logs: logs}
	started := h.logged("started")
	if len(started) != 1 || !strings.HasPrefix(fmt.Sprint(started[0]["worker_id"]), "host-7-") || fmt.Sprint(started[0]["task_types"]) != "[perago_stage]" {
		t.Fatalf("started: %v", started)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, want := range map[string]string{"/livez": "ok", "/readyz": `"ready": true`, "/metrics": `task_poll_total{taskType="perago_stage"}`, "/metrics?": `perago_ready_condition{condition="poll of perago_stage"} 1`} {
		response, err := client.Get(fmt.Sprintf("http://%s%s", started[0]["http_addr"], path))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s is %d %v: %s", path, response.StatusCode, err, body)
		}
	}
	stop()
	if got := <-code; got != ExitDrained {
		t.Errorf("exit %d\n%s", got, logs)
	}
	if got := conductor.status("t"); got != txn.TaskCompleted {
		t.Errorf("the task is %s", got)
	}
	if !closed || !background {
		t.Errorf("closed %v, background ended %v", closed, background)
	}
	if _, err := client.Get(fmt.Sprintf("http://%s/livez", started[0]["http_addr"])); err == nil {
		t.Error("the listener outlives the process")
	}
}

func TestWorkerIDsDiffer(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	first, err := newWorkerID("")
	if err != nil {
		t.Fatal(err)
	}
	second, err := newWorkerID("")
	if err != nil {
		t.Fatal(err)
	}
	if first == second || !strings.HasPrefix(string(first), host+"-") {
		t.Errorf("worker ids %s and %s", first, second)
	}
}

// The signals are shown on a process of its own: this test binary, which becomes
// a worker when the variable is set.
const childVariable = "PERAGO_TEST_CHILD"

// childProgram is what this binary is to do instead of the tests. Its task says
// that it works and ends when a line comes on stdin.
func childProgram() func() {
	if os.Getenv(childVariable) == "" {
		return nil
	}
	conductor := newMemoryConductor()
	conductor.register(stageDefinition())
	conductor.schedule("t", stageType, "")
	program := exampleProgram(conductor, func(context.Context, *Attempt) (map[string]any, error) {
		fmt.Println("working")
		_, err := bufio.NewReader(os.Stdin).ReadString('\n')
		return nil, err
	})
	return func() { Main(program) }
}

// child is a worker process of this binary.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr *watchedLog
}

func startChild(t *testing.T) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0]), stderr: &watchedLog{}}
	c.cmd.Env = []string{childVariable + "=1"}
	for name, value := range soundEnvironment() {
		c.cmd.Env = append(c.cmd.Env, name+"="+value)
	}
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin, c.cmd.Stderr = stdin, c.stderr
	out := &watchedLog{}
	c.cmd.Stdout = out
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.wait(t, "working")
	return c
}

func (c *child) terminate() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
}

// exit waits for the process and gives its exit code.
func (c *child) exit() int {
	c.t.Helper()
	err := c.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return c.cmd.ProcessState.ExitCode()
}

func TestFirstSignalDrains(t *testing.T) {
	t.Parallel()
	c := startChild(t)
	c.terminate()
	c.stderr.wait(t, `"msg":"stopping: no more polls, running tasks have the grace","program":"example-worker","cause":"received terminated"`)
	fmt.Fprintln(c.stdin)
	if code := c.exit(); code != ExitDrained {
		t.Errorf("exit %d\n%s", code, c.stderr)
	}
	if log := c.stderr.String(); !strings.Contains(log, `"msg":"task completed"`) || !strings.Contains(log, `"msg":"drained"`) {
		t.Errorf("the running task did not complete:\n%s", log)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	c := startChild(t)
	c.terminate()
	c.stderr.wait(t, "stopping: no more polls")
	c.terminate()
	// stdin stays open: the task would run on.
	if code := c.exit(); code != ExitFailed {
		t.Errorf("exit %d\n%s", code, c.stderr)
	}
	if log := c.stderr.String(); !strings.Contains(log, "example-worker: received terminated again, ending at once") || strings.Contains(log, "the grace is over") {
		t.Errorf("stderr:\n%s", log)
	}
}

// watchedLog is a process's output that a test can wait on.
type watchedLog struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{}
}

func (w *watchedLog) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
	return w.text.Write(p)
}

func (w *watchedLog) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// wait returns when the output holds the text.
func (w *watchedLog) wait(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		w.mu.Lock()
		if strings.Contains(w.text.String(), text) {
			w.mu.Unlock()
			return
		}
		if w.changed == nil {
			w.changed = make(chan struct{})
		}
		changed := w.changed
		w.mu.Unlock()
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("%q did not come within 30s:\n%s", text, w)
		}
	}
}
