//go:build unix

package confinement

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"perago/pkg/checkout"
	"perago/pkg/cleanup"
	"perago/pkg/fence"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/stage"
	"perago/pkg/telemetry"
	"perago/pkg/txn"
)

const (
	// workflow is the one whose step is at work, neighbor another one that runs on
	// the same root, ended one that has ended.
	workflow = txn.WorkflowID("0b4a7d26-7f6e-4a54-9d8d-0e1f2a3b4c5d")
	neighbor = txn.WorkflowID("11111111-7f6e-4a54-9d8d-0e1f2a3b4c5d")
	ended    = txn.WorkflowID("22222222-7f6e-4a54-9d8d-0e1f2a3b4c5d")

	identity = txn.ConductorIdentity("test")
)

// files are those of a step. The same paths lie outside, in files that differ from
// them by their content alone.
var files = []string{"a", "b", "d/a", "d/b", "d/e/a", "d/e/b", "f/a", "f/b"}

// world is a workspace root, what lies beside it, and the use cases at work on it.
//
//	base/root/<workflow>/task/...     the step's own files
//	base/root/<workflow>/other/...    files of the same workflow that are not the step's
//	base/root/<neighbor>/task/...     another workflow's
//	base/root/<workflow>2/task/...    another's whose name begins alike
//	base/outside/..., base/root2/..., base/<workflow>/...
type world struct {
	t       *testing.T
	base    string
	root    string
	lake    *lakefs.Client
	wire    *wire
	repo    txn.Repository
	first   txn.CommitID
	said    lines
	log     *slog.Logger
	opened  *os.Root
	ends    ends
	watches []*watch
	before  map[string]string

	stager      *stage.Stager
	downloader  *checkout.Downloader
	cleaner     *cleanup.Cleaner
	directories *cleanup.Directories

	// The texts that are looked for: inside may go to lakeFS, the others nowhere.
	inside, elsewhere, others, outside string
}

func newWorld(t *testing.T, objects map[string]string) *world {
	t.Helper()
	return newWorldOf(t, files, objects)
}

// newWorldOf is newWorld with a step of these files.
func newWorldOf(t *testing.T, files []string, objects map[string]string) *world {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	server := lakefstest.NewServer()
	server.ActionsOff = true
	w := &world{
		t: t, base: base, root: filepath.Join(base, "root"), lake: server.Client(t), wire: &wire{next: server.Transport()},
		inside: marker("self"), elsewhere: marker("else"), others: marker("near"), outside: marker("away"),
	}
	w.log = telemetry.NewLogger(&w.said, telemetry.FormatJSON, slog.LevelDebug, nil)
	// Stage leaves its branches to cleanup.
	w.repo, w.first = lakefstest.NewRepository(t, w.lake, objects, lakefstest.Allow(lakefstest.RuleBranches), lakefstest.Allow(lakefstest.RuleTree))
	for _, name := range files {
		w.write(w.own("task", name), w.inside)
		w.write(w.own("other", name), w.elsewhere)
		for _, workflow := range []txn.WorkflowID{neighbor, workflow + "2"} {
			w.write(w.in(string(workflow), "task", name), w.others)
		}
		for _, beside := range []string{"outside", "root2/" + string(workflow), string(workflow)} {
			w.write(filepath.Join(base, beside, "task", name), w.outside)
		}
	}
	if w.opened, err = os.OpenRoot(w.root); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.opened.Close() })
	w.useCases(server)
	return w
}

func (w *world) useCases(server *lakefstest.Server) {
	recorded, err := lakefs.New(server.Config(), w.wire)
	if err != nil {
		w.t.Fatal(err)
	}
	newID := func() (txn.ExecutionID, error) {
		id, err := uuid.NewV7()
		return txn.ExecutionID(id.String()), err
	}
	allowed := txn.AllowList{string(w.repo) + "/main"}
	w.stager = &stage.Stager{
		Lake: lakefs.Settling{Client: recorded}, Root: w.opened, Identity: identity, Allowed: allowed, UploadConcurrency: 4, NewExecutionID: newID,
	}
	w.downloader = &checkout.Downloader{Lake: recorded, Root: w.opened, Allowed: allowed, Concurrency: 2, NewExecutionID: newID}
	w.ends = ends{
		ended: {ID: ended, Status: txn.WorkflowCompleted}, workflow: {ID: workflow, Status: txn.WorkflowRunning}, neighbor: {ID: neighbor, Status: txn.WorkflowRunning},
	}
	w.directories = &cleanup.Directories{
		Root: w.opened, Workflows: &w.ends, TTL: time.Hour, Now: time.Now,
		Decided: func(name string, state cleanup.State, reason string) {
			w.log.Info("directory decided", slog.String(telemetry.KeyWorkflow, name), slog.String(telemetry.KeyState, string(state)), slog.String(telemetry.KeyReason, reason))
		},
	}
	w.cleaner = &cleanup.Cleaner{
		Lake: recorded, Workflows: &w.ends, Fence: fence.Prover{Lake: recorded}, Identity: identity, Allowed: allowed, TTL: time.Hour, Now: time.Now,
		Events: cleanup.Events{Decided: func(d cleanup.Decided) {
			w.log.Info("branch decided", slog.String(telemetry.KeyBranch, string(d.Branch)), slog.String(telemetry.KeyState, string(d.State)), slog.String(telemetry.KeyReason, d.Reason))
		}},
	}
}

// marker is a text that stands nowhere else. All have one length.
func marker(what string) string { return fmt.Sprintf("canary-%s-%016x", what, rand.Uint64()) }

// in is a path below the root, own one of the step's workflow.
func (w *world) in(path ...string) string {
	return filepath.Join(append([]string{w.root}, path...)...)
}

func (w *world) own(path ...string) string {
	return w.in(append([]string{string(workflow)}, path...)...)
}

func (w *world) beside(path ...string) string {
	return filepath.Join(append([]string{w.base}, path...)...)
}

// written is the one time that all files have: size and time must not tell a file
// from the one outside.
var written = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (w *world) write(path, content string) {
	w.t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(content), 0o644)
	}
	if err == nil {
		err = os.Chtimes(path, written, written)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// link plants a link below the root; where something is in its place, that goes.
func (w *world) link(target string, path ...string) {
	w.t.Helper()
	name := w.in(path...)
	if err := errors.Join(os.RemoveAll(name), os.MkdirAll(filepath.Dir(name), 0o755), os.Symlink(target, name)); err != nil {
		w.t.Fatal(err)
	}
}

// guard takes the picture of everything that is not the step's, and has the kernel
// report who touches it from now on.
func (w *world) guard() {
	w.t.Helper()
	w.before = w.picture()
	for _, name := range []string{"outside", "root2", string(workflow)} {
		w.watches = append(w.watches, newWatch(w.t, w.beside(name), touched|opened))
	}
	for _, name := range []string{string(neighbor), string(workflow) + "2"} {
		// A link that stays below the root is opened, and closed again when what it leads
		// to is not what was looked at. Nothing is read.
		w.watches = append(w.watches, newWatch(w.t, w.in(name), touched))
	}
}

// picture is every file, directory and link outside the root and of other workflows:
// what it is, how large, which inode, when it was written, and what it holds.
func (w *world) picture() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for _, top := range []string{w.beside("outside"), w.beside("root2"), w.beside(string(workflow)), w.in(string(neighbor)), w.in(string(workflow) + "2")} {
		maps.Copy(all, picture(w.t, top))
	}
	beside, err := os.ReadDir(w.base)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, entry := range beside {
		all[entry.Name()] = entry.Type().String()
	}
	return all
}

// intact is what has to hold at the end of every case. what names it.
func (w *world) intact(what string) {
	w.t.Helper()
	for _, watch := range w.watches {
		for _, event := range watch.events() {
			w.t.Errorf("%s: %s", what, event)
		}
	}
	now := w.picture()
	for _, path := range slices.Sorted(maps.Keys(w.before)) {
		if now[path] != w.before[path] {
			w.t.Errorf("%s: %s was %s and is %q", what, path, w.before[path], now[path])
		}
	}
	for path := range now {
		if w.before[path] == "" {
			w.t.Errorf("%s: %s has appeared", what, path)
		}
	}
	for name, text := range map[string]string{"what lies outside": w.outside, "another workflow's file": w.others, "another directory's file": w.elsewhere} {
		for _, place := range w.search(text) {
			w.t.Errorf("%s: the content of %s is in %s", what, name, place)
		}
	}
	for _, watch := range w.watches {
		watch.forget() // the picture has opened everything
	}
}

// search finds a text in what the use cases sent, made and said.
func (w *world) search(text string) (places []string) {
	w.t.Helper()
	w.wire.mu.Lock()
	for _, request := range w.wire.sent {
		if strings.Contains(request, text) {
			method, _, _ := strings.Cut(request, " ")
			places = append(places, "a request: "+method)
		}
	}
	w.wire.mu.Unlock()
	branches, err := w.lake.Branches(w.t.Context(), w.repo, "")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, branch := range branches {
		for path, content := range lakefstest.Tree(w.t, w.lake, w.repo, branch.Head) {
			if strings.Contains(path+"\n"+content, text) {
				places = append(places, "an object: "+path)
			}
		}
	}
	for line := range strings.Lines(w.said.String()) {
		if strings.Contains(line, text) {
			places = append(places, "a line: "+line)
		}
	}
	return places
}

// tell logs and reports an end as the worker does.
func (w *world) tell(output map[string]any, err error) {
	w.t.Helper()
	if err != nil {
		w.log.Warn("task failed", slog.Any(telemetry.KeyError, err))
		w.log.Info("reported", slog.String(telemetry.KeyReason, txn.Reason(err, 0)))
	}
	raw, failed := json.Marshal(output)
	if failed != nil {
		w.t.Fatal(failed)
	}
	w.log.Info("output", slog.String("output", string(raw)))
}

// stage stages a directory under data/, with more fields or other ones.
func (w *world) stage(directory string, more map[string]any) (stage.Result, error) {
	w.t.Helper()
	return w.stageOf(workflow, directory, more)
}

func (w *world) stageOf(id txn.WorkflowID, directory string, more map[string]any) (stage.Result, error) {
	w.t.Helper()
	input := map[string]any{"source": map[string]any{"directory": directory}}
	maps.Copy(input, more)
	result, err := w.stager.Run(w.t.Context(), w.task(id, txn.TypeStage, input), attempt{})
	w.tell(result.Output(), err)
	return result, err
}

func (w *world) checkout() (checkout.Result, error) {
	w.t.Helper()
	result, err := w.downloader.Run(w.t.Context(), w.task(workflow, txn.TypeCheckout, map[string]any{}), attempt{})
	w.tell(result.Output(), err)
	return result, err
}

func (w *world) sweep() cleanup.Swept {
	w.t.Helper()
	swept, err := w.directories.Sweep(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.log.Info("swept", slog.Int(telemetry.KeyDeleted, swept.Deleted), slog.Int(telemetry.KeyFailed, swept.Failed))
	return swept
}

func (w *world) workspace() txn.Workspace {
	return txn.Workspace{Repository: w.repo, Branch: lakefstest.DefaultBranch, RefType: txn.RefTypeCommit, Ref: w.first}
}

func (w *world) task(id txn.WorkflowID, taskType txn.TaskType, fields map[string]any) txn.Task {
	w.t.Helper()
	input := map[string]any{"workspace": w.workspace()}
	if !taskType.IsCleanup() && !taskType.IsPublish() {
		input["prefix"] = "data"
	}
	maps.Copy(input, fields)
	raw, err := json.Marshal(input)
	if err != nil {
		w.t.Fatal(err)
	}
	return txn.Task{
		ID: txn.TaskID(uuid.NewString()), Workflow: id, Type: taskType, ReferenceName: "step", Status: txn.TaskInProgress,
		PollCount: 1, StartTime: 1764443290123, Worker: "w", Input: raw,
	}
}

// attempt is one that may always act.
type attempt struct{}

func (attempt) Current(context.Context) error              { return nil }
func (attempt) Cover(context.Context, time.Duration) error { return nil }
func (attempt) Phase(string) func()                        { return func() {} }
func (attempt) Expect(int, int64) func(int, int64)         { return func(int, int64) {} }

// ends is a Conductor that knows these workflows.
type ends map[txn.WorkflowID]txn.Workflow

func (e *ends) Workflow(_ context.Context, id txn.WorkflowID) (txn.Workflow, error) {
	found, ok := (*e)[id]
	if !ok {
		return found, txn.ErrNotFound
	}
	return found, nil
}

func (e *ends) WorkflowStatus(ctx context.Context, id txn.WorkflowID) (txn.WorkflowStatus, error) {
	found, err := e.Workflow(ctx, id)
	return found.Status, err
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

// wire keeps every request whole, what could be read of a body that broke included.
type wire struct {
	next http.RoundTripper
	// meets, when set, is asked about each request before it is sent; it may answer.
	meets func(*http.Request) *http.Response
	mu    sync.Mutex
	sent  []string
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	var broken error
	if r.Body != nil {
		body, broken = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	w.mu.Lock()
	w.sent = append(w.sent, fmt.Sprintf("%s %s %v %s", r.Method, r.URL, r.Header, body))
	w.mu.Unlock()
	if broken != nil {
		return nil, broken
	}
	if w.meets != nil {
		if answer := w.meets(r); answer != nil {
			return answer, nil
		}
	}
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	return w.next.RoundTrip(again)
}

// count is how many requests of a method were sent; "" is every one.
func (w *wire) count(method string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, request := range w.sent {
		if method == "" || strings.HasPrefix(request, method+" ") {
			n++
		}
	}
	return n
}

// writes is how many requests would have changed something.
func (w *wire) writes() int { return w.count("") - w.count(http.MethodGet) }

// number is that of a variable of the environment.
func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}
