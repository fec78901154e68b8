package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"perago/e2e/fleet"
	"perago/e2e/stack"
	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/credential"
	"perago/pkg/fault"
	"perago/pkg/fence"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// lane is one chain of its own, behind proxies: its cases come one after the
// other.
type lane struct {
	name    string
	options options
	// once says that Conductor tries nothing of this lane a second time.
	once      bool
	servers   stack.Servers
	conductor *conductor.Client
	operator  *conductortest.Operator
	lake      *lakefs.Client
	repo      txn.Repository
	// first is the commit that the lane began with.
	first txn.CommitID
	// root is the workspace root, and logs is where the workers write to.
	root, logs string
	// cases counts what ran here.
	cases int
	// meets is how long after the end of a workflow its fault may still meet its
	// request: the last thing that a worker asks is how its own report was taken.
	meets time.Duration

	fleet map[worker]*member
}

// member is one worker of the lane.
type member struct {
	*fleet.Member
	// gate is closed while a test wants no poll to get through.
	gate *fault.Gate
}

func (m *member) proxy(s server) *fault.Proxy {
	if s == toConductor {
		return m.Conductor
	}
	return m.LakeFS
}

// newLane makes the lane's repository and starts its workers.
func newLane(ctx context.Context, name string, once bool, servers stack.Servers, o options, dir string) (_ *lane, err error) {
	var unique [4]byte
	if _, err := rand.Read(unique[:]); err != nil {
		return nil, err
	}
	name = "faults-" + name + "-" + hex.EncodeToString(unique[:])
	l := &lane{name: name, once: once, options: o, servers: servers, repo: txn.Repository(name), meets: 15 * time.Second, fleet: map[worker]*member{}}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	l.root, l.logs = filepath.Join(dir, name, "root"), filepath.Join(dir, name)
	if err := os.MkdirAll(l.root, 0o755); err != nil {
		return nil, err
	}
	if l.conductor, err = conductor.New(conductor.Config{ServerURL: servers.ConductorURL}, nil); err != nil {
		return nil, err
	}
	l.operator = conductortest.NewOperator(servers.ConductorURL, nil)
	if l.lake, err = lakefs.New(lakefs.Config{
		Endpoint: servers.LakeFSURL, AccessKeyID: credential.New(servers.AccessKeyID), SecretAccessKey: credential.New(servers.SecretAccessKey),
	}, nil); err != nil {
		return nil, err
	}
	if err := l.makeRepository(ctx); err != nil {
		return nil, err
	}
	for _, w := range workers {
		m, err := l.member(w)
		if err != nil {
			return nil, err
		}
		l.fleet[w] = m
		if err := m.Start(); err != nil {
			return nil, err
		}
	}
	for _, m := range l.fleet {
		if err := m.idle(ctx); err != nil {
			return nil, fmt.Errorf("%s-worker never polled; its log is %s: %w", m.Worker, m.LogPath, err)
		}
	}
	return l, nil
}

// outside is the part of the tree that no step owns.
func (l *lane) outside() map[string]string {
	files := map[string]string{"README": "not of the step", "data.json": "not of the step either"}
	if !l.options.soft {
		files[txn.FenceFile] = string(fence.File())
	}
	return files
}

func (l *lane) makeRepository(ctx context.Context) error {
	if err := l.lake.CreateRepository(ctx, l.repo, "local://"+string(l.repo), lakefstest.DefaultBranch); err != nil {
		return err
	}
	files := map[string]string{prefix + "same": "always the same", prefix + "changing": "0", prefix + "only-0": "of the first"}
	for _, more := range []map[string]string{l.outside(), files} {
		for path, content := range more {
			if _, err := l.lake.Upload(ctx, l.repo, lakefstest.DefaultBranch, path, lakefstest.Text(content)); err != nil {
				return err
			}
		}
	}
	commit, err := l.lake.CreateCommit(ctx, l.repo, lakefstest.DefaultBranch, "input", nil)
	l.first = commit.ID
	return err
}

func (l *lane) member(w worker) (*member, error) {
	made, err := fleet.NewMember(w, l.servers, l.options.binaries, filepath.Join(l.logs, string(w)+".log"), nil, append(l.env(),
		"PERAGO_DOMAINS="+l.name,
		"PERAGO_TASK_TYPES="+taskType(w, l.once),
		"PERAGO_WORKSPACE_ROOT="+l.root, // the stage worker's alone
		// One at a time: a worker that polls has nothing else to do.
		"PERAGO_CONCURRENCY=1",
		"PERAGO_POLL_INTERVAL=100ms",
		// It would be asked for once in some minutes, not once a chain.
		"PERAGO_UPLOAD_PRESIGNED=never", // the stage worker's alone
		// The sweep has its turn at the end of the lane.
		"PERAGO_SWEEP_INTERVAL=0s",
	)...)
	if err != nil {
		return nil, err
	}
	return &member{made, made.Conductor.Gate(fault.Match{Method: http.MethodGet, Path: "/tasks/poll/"})}, nil
}

// env is what every program of the lane gets.
func (l *lane) env() []string {
	return []string{
		"PERAGO_ALLOWED_REPOSITORIES=" + string(l.repo),
		"PERAGO_CONDUCTOR_ID=" + l.name,
		fmt.Sprintf("PERAGO_REQUIRE_HARD_FENCE=%t", !l.options.soft),
	}
}

// polls is how many polls the worker has sent that the gate let through.
func (m *member) polls() int {
	return len(m.Conductor.Matching(fault.Match{Method: http.MethodGet, Path: "/tasks/poll/"}))
}

// idle waits until the worker polls again: then it has nothing else to do.
func (m *member) idle(ctx context.Context) error {
	m.gate.Open()
	before := m.polls()
	return wait(ctx, 30*time.Second, 10*time.Millisecond, func() (bool, error) { return m.polls() > before, nil })
}

func (l *lane) close() {
	for _, m := range l.fleet {
		m.Close()
	}
	if l.conductor != nil {
		l.conductor.CloseIdleConnections()
	}
}

// swept has the sweep remove what the cases left, and gives what then is left.
func (l *lane) swept(ctx context.Context) (before int, left []txn.Branch, err error) {
	branches, err := l.lake.Branches(ctx, l.repo, "perago-staging-")
	if err != nil {
		return 0, nil, err
	}
	command := exec.CommandContext(ctx, filepath.Join(l.options.binaries, "perago"), "sweep", "--repository", string(l.repo))
	command.Env = append(append(fleet.Env(l.servers), l.env()...), "PERAGO_SWEEP_TTL=0s")
	if out, err := command.CombinedOutput(); err != nil {
		return 0, nil, fmt.Errorf("perago sweep: %w\n%s", err, out)
	}
	after, err := l.lake.Branches(ctx, l.repo, "perago-")
	for _, branch := range after {
		left = append(left, branch.Name)
	}
	return len(branches), left, err
}

// races are the reports of the race detector in the workers' logs.
func (l *lane) races() []string {
	var found []string
	for _, m := range l.fleet {
		if strings.Contains(m.Log(), "DATA RACE") {
			found = append(found, fmt.Sprintf("%s-worker has a data race: %s", m.Worker, m.LogPath))
		}
	}
	return found
}

// logOf is what the workers logged of one workflow.
func (l *lane) logOf(id txn.WorkflowID) string {
	var b strings.Builder
	for _, w := range workers {
		for line := range strings.Lines(l.fleet[w].Log()) {
			if strings.Contains(line, string(id)) {
				fmt.Fprintf(&b, "    %s: %s", w, line)
			}
		}
	}
	return b.String()
}

var errTooLong = errors.New("it takes too long")

// wait asks until the condition holds.
func wait(ctx context.Context, within, pace time.Duration, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, errTooLong)
	defer cancel()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// write makes a directory with these files and no others.
func write(directory string, files map[string]string) error {
	// A rerun hands out the same task again.
	if err := os.RemoveAll(directory); err != nil {
		return err
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	for path, content := range files {
		if err := os.WriteFile(filepath.Join(directory, path), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}
