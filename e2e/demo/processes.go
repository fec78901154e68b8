package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"perago/e2e/stack"
)

// binaries are what the demo runs from ./bin.
var binaries = []string{"stage-worker", "publish-worker", "cleanup-worker", "perago", "user-worker"}

// demo is the processes of one run and how to reach them.
type demo struct {
	dir, logs, workspace string
	keep                 bool

	servers   *stack.Stack
	workers   []*stack.Server
	lake      lakeFS
	conductor conductor
	recorded  []processRecord
}

// processRecord names a process for good: a pid alone may be another process
// later, a pid with the time at which it started is not.
type processRecord struct {
	Name      string `json:"name"`
	Pid       int    `json:"pid"`
	StartTime string `json:"start_time"` // as startTime has it
}

func (d *demo) start(ctx context.Context) error {
	title("Starting the servers and the workers")
	fmt.Println("Conductor takes some seconds to come up.")
	st, err := stack.Start(ctx, stack.Options{
		Dir: filepath.Join(d.dir, "servers"), LogDir: d.logs, Detach: d.keep, Progress: os.Stderr,
		Store: stack.SQLite, // it needs no other program
	})
	if err != nil {
		return err
	}
	d.servers = st
	d.lake = lakeFS{api{base: st.LakeFSURL + "/api/v1", user: st.AccessKeyID, password: st.SecretAccessKey}}
	d.conductor = conductor{api{base: st.ConductorURL + "/api"}}
	for _, s := range []*stack.Server{st.Conductor, st.LakeFS} {
		if err := d.record(s); err != nil {
			return err
		}
	}

	if err := d.lake.createRepository(ctx, repository); err != nil {
		return err
	}
	fmt.Println("\n$ perago register " + strings.Join(definitions, " "))
	if err := d.perago(ctx, os.Stdout, append([]string{"register", "--output", "table"}, definitions...)...); err != nil {
		return err
	}
	fmt.Println()

	for _, name := range []string{"stage-worker", "publish-worker", "cleanup-worker"} {
		if err := d.startWorker(ctx, name, workerReady); err != nil {
			return err
		}
	}
	if err := d.startWorker(ctx, "user-worker", userWorkerReady); err != nil {
		return err
	}
	var rows [][]string
	for _, p := range d.recorded {
		rows = append(rows, []string{p.Name, "pid " + strconv.Itoa(p.Pid), "up"})
	}
	table(rows)
	return nil
}

func (d *demo) startWorker(ctx context.Context, name string, ready func(context.Context, int, []byte) error) error {
	bin, err := filepath.Abs(filepath.Join("bin", name))
	if err != nil {
		return err
	}
	s := stack.NewServer(stack.ServerConfig{
		Name: name, LogPath: filepath.Join(d.logs, name+".log"), Detach: d.keep, Grace: 30 * time.Second,
		Command: func(port int) *exec.Cmd {
			cmd := exec.Command(bin)
			cmd.Dir = d.dir
			cmd.Env = append(d.env(), fmt.Sprintf("PERAGO_HTTP_ADDR=127.0.0.1:%d", port))
			return cmd
		},
		Ready: ready,
	})
	if err := s.Start(ctx); err != nil {
		return err
	}
	d.workers = append(d.workers, s)
	return d.record(s)
}

// workerReady shows a worker's own words for what it still waits for.
func workerReady(ctx context.Context, port int, _ []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/readyz", port), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz is %s: %s", resp.Status, body)
	}
	return nil
}

// userWorkerReady goes by the log: a worker of a user's has no health listener.
func userWorkerReady(_ context.Context, _ int, log []byte) error {
	if !strings.Contains(string(log), "polling prepare and train") {
		return errors.New("it does not poll yet")
	}
	return nil
}

// env configures the workers and the command line alike. Nothing of the
// person's own environment goes in, so that every run is the same.
func (d *demo) env() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + d.dir,
		// Perago takes it with or without /api; Conductor's own clients need it.
		"CONDUCTOR_SERVER_URL=" + d.servers.ConductorURL + "/api",
		"LAKECTL_SERVER_ENDPOINT_URL=" + d.servers.LakeFSURL,
		"LAKECTL_CREDENTIALS_ACCESS_KEY_ID=" + d.servers.AccessKeyID,
		"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY=" + d.servers.SecretAccessKey,
		"PERAGO_ALLOWED_REPOSITORIES=" + repository,
		"PERAGO_WORKSPACE_ROOT=" + d.workspace,
		"PERAGO_CONDUCTOR_ID=demo",
		// So that the refused workflow's staging branch goes at once. In
		// production it stays for a day, for the operator who retries.
		"PERAGO_SWEEP_TTL=0s",
	}
}

// perago runs the operator's command line.
func (d *demo) perago(ctx context.Context, stdout io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join("bin", "perago"), args...)
	cmd.Env = d.env()
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = stdout, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("perago %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

func (d *demo) record(s *stack.Server) error {
	started, err := startTime(s.Pid())
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	d.recorded = append(d.recorded, processRecord{Name: s.Name, Pid: s.Pid(), StartTime: started})
	if !d.keep {
		return nil
	}
	// Written at once: processes that outlive us must be found also when we
	// are killed.
	b, err := json.MarshalIndent(d.recorded, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.dir, recordFile), append(b, '\n'), 0o644)
}

// stop ends everything and checks that nothing is left. Workers go first: they
// have a last word to say to the servers.
func (d *demo) stop() error {
	var errs []error
	for _, w := range d.workers {
		if err := w.Stop(); err != nil {
			errs = append(errs, err)
		} else if code := w.ExitCode(); code != 0 {
			errs = append(errs, fmt.Errorf("%s ended with exit code %d after SIGTERM, want 0", w.Name, code))
		}
	}
	if d.servers != nil {
		errs = append(errs, d.servers.Stop())
	}
	for _, p := range d.recorded {
		if p.alive() {
			errs = append(errs, fmt.Errorf("%s, pid %d, is still there", p.Name, p.Pid))
		}
	}
	return errors.Join(errs...)
}

// handOver leaves everything running for a person to look at.
func (d *demo) handOver() {
	title("Everything is still running")
	rows := [][]string{
		{"Conductor", d.servers.ConductorURL + "/api", "(Swagger page: " + d.servers.ConductorURL + "/swagger-ui/index.html)"},
		{"lakeFS", d.servers.LakeFSURL, "(repository " + repository + "; this build has no web page)"},
		{"files", d.workspace},
		{"logs", d.logs},
	}
	for _, p := range d.recorded {
		rows = append(rows, []string{p.Name, "pid " + strconv.Itoa(p.Pid)})
	}
	table(rows)
	fmt.Println("\nFor perago and lakectl in your shell:")
	for _, kv := range d.exports() {
		fmt.Println("  export " + kv)
	}
	fmt.Println("\nStop it with `make demo-stop`.")
}

// exports are what a person's shell needs of the environment.
func (d *demo) exports() []string {
	return slices.DeleteFunc(d.env(), func(kv string) bool {
		return strings.HasPrefix(kv, "PATH=") || strings.HasPrefix(kv, "HOME=")
	})
}

// stopKept ends the recorded processes of a kept demo and removes its folder.
func stopKept(dir string, out io.Writer) error {
	running, err := keptProcesses(dir)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(out, "no demo was left running here")
		return nil
	}
	if err != nil {
		return err
	}
	// As in stop: workers, which were started last, end first.
	for i := len(running) - 1; i >= 0; i-- {
		p := running[i]
		if err := p.end(30 * time.Second); err != nil {
			return err
		}
		fmt.Fprintf(out, "stopped %s, pid %d\n", p.Name, p.Pid)
	}
	return os.RemoveAll(dir)
}

// keptProcesses are those that were recorded and are still the same processes.
func keptProcesses(dir string) ([]processRecord, error) {
	path := filepath.Join(dir, recordFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all, running []processRecord
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, p := range all {
		if p.alive() {
			running = append(running, p)
		}
	}
	return running, nil
}

func (p processRecord) alive() bool {
	started, err := startTime(p.Pid)
	return err == nil && started == p.StartTime
}

// end sends SIGTERM, and SIGKILL after the grace. Each recorded process leads a
// process group of its own.
func (p processRecord) end(grace time.Duration) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	if p.ended(grace) {
		return nil
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	if !p.ended(grace) {
		return fmt.Errorf("%s, pid %d, does not end", p.Name, p.Pid)
	}
	return nil
}

func (p processRecord) signal(sig syscall.Signal) error {
	if !p.alive() {
		return nil
	}
	if err := syscall.Kill(-p.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop %s, pid %d: %w", p.Name, p.Pid, err)
	}
	return nil
}

func (p processRecord) ended(within time.Duration) bool {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if !p.alive() {
			return true
		}
	}
	return false
}

// startTime says when a process started, in whatever form the system has it:
// field 22 of /proc/<pid>/stat, and where there is no /proc what ps says. A
// process that has ended and only waits for its parent to notice counts as gone.
func startTime(pid int) (string, error) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return psStartTime(pid)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The second field is the program's name in brackets, with anything in it.
	_, rest, _ := strings.Cut(string(b[bytes.LastIndexByte(b, ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat has an unknown form", pid)
	}
	if state := fields[0]; state == "Z" || state == "X" {
		return "", fs.ErrNotExist
	}
	return fields[19], nil
}

func psStartTime(pid int) (string, error) {
	out, err := exec.Command("ps", "-o", "stat=,lstart=", "-p", strconv.Itoa(pid)).Output()
	if err != nil { // ps exits 1 for a pid that it does not find
		return "", err
	}
	state, started, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if strings.HasPrefix(state, "Z") || started == "" {
		return "", fs.ErrNotExist
	}
	return strings.TrimSpace(started), nil
}

// printLogs shows the end of each worker's log.
func (d *demo) printLogs(out io.Writer) {
	for _, w := range d.workers {
		b, err := os.ReadFile(w.LogPath)
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		fmt.Fprintf(out, "\nThe log of %s ends:\n%s\n", w.Name, strings.Join(lines[max(0, len(lines)-8):], "\n"))
	}
}
