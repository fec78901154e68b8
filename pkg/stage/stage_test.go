package stage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/projection"
	"perago/pkg/stage"
	"perago/pkg/txn"
)

const workflow = txn.WorkflowID("0b4a7d26-7f6e-4a54-9d8d-0e1f2a3b4c5d")

// wire records what the stager sends to lakeFS, and may change an answer.
type wire struct {
	next http.RoundTripper
	mu   sync.Mutex
	sent []string
	// answered, when set, may replace an answer.
	answered func(*http.Request, *http.Response) (*http.Response, error)
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.sent = append(w.sent, r.Method+" "+r.URL.Path)
	w.mu.Unlock()
	response, err := w.next.RoundTrip(r)
	if err != nil || w.answered == nil {
		return response, err
	}
	return w.answered(r, response)
}

// count is how many requests of a method end in a path.
func (w *wire) count(method, suffix string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, request := range w.sent {
		if strings.HasPrefix(request, method) && strings.HasSuffix(request, suffix) {
			n++
		}
	}
	return n
}

func (w *wire) writes() int { return w.count("", "") - w.count(http.MethodGet, "") }

type attempt struct {
	checks int
	phase  string
	counts map[string]*count
	on     func(check int) error
}

func (a *attempt) Current(context.Context) error {
	a.checks++
	if a.on == nil {
		return nil
	}
	return a.on(a.checks)
}

func (a *attempt) Phase(name string) func() {
	if a.counts == nil {
		a.counts = map[string]*count{}
	}
	a.counts[name] = &count{}
	a.phase = name
	return func() { a.phase = "" }
}

func (a *attempt) Expect(objects int, bytes int64) func(int, int64) {
	c := a.counts[a.phase]
	c.objectsTotal, c.bytesTotal = objects, bytes
	return func(objects int, bytes int64) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.objects, c.bytes = c.objects+objects, c.bytes+bytes
		c.most = max(c.most, c.bytes)
	}
}

// count is the progress of a phase.
type count struct {
	mu                    sync.Mutex
	objects, objectsTotal int
	bytes, bytesTotal     int64
	// most is the most bytes that were done at any time.
	most int64
}

// bench is a lake in memory and a workspace root on disk.
type bench struct {
	t      *testing.T
	lake   *lakefs.Client
	wire   *wire
	repo   txn.Repository
	first  txn.CommitID
	root   string
	stager *stage.Stager
	// recorded is the client behind the wire.
	recorded *lakefs.Client
}

func newBench(t *testing.T, files map[string]string) *bench {
	t.Helper()
	return newBenchOn(t, lakefstest.NewServer(), files)
}

func newBenchOn(t *testing.T, server *lakefstest.Server, files map[string]string) *bench {
	t.Helper()
	b := &bench{t: t, lake: server.Client(t), wire: &wire{next: server.Transport()}, root: t.TempDir()}
	// Stage leaves its branch to cleanup.
	b.repo, b.first = lakefstest.NewRepository(t, b.lake, files, lakefstest.Allow(lakefstest.RuleBranches))
	recorded, err := lakefs.New(server.Config(), b.wire)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(b.root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	b.recorded = recorded
	b.stager = &stage.Stager{
		Lake: recorded, Root: root, Identity: "test", Allowed: txn.AllowList{"*"}, UploadConcurrency: 4,
		NewExecutionID: func() (txn.ExecutionID, error) {
			id, err := uuid.NewV7()
			return txn.ExecutionID(id.String()), err
		},
	}
	return b
}

// write makes the step's directory with these files and gives its path.
func (b *bench) write(files map[string]string) string {
	b.t.Helper()
	directory := filepath.Join(b.root, string(workflow), "task")
	if err := os.MkdirAll(directory, 0o755); err != nil {
		b.t.Fatal(err)
	}
	for path, content := range files {
		full := filepath.Join(directory, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	return directory
}

func (b *bench) task(directory string, more map[string]any) txn.Task {
	b.t.Helper()
	input := map[string]any{
		"workspace": txn.Workspace{Repository: b.repo, Branch: "main", RefType: "commit", Ref: b.first},
		"prefix":    "data/", "source": map[string]any{"directory": directory},
	}
	for name, value := range more {
		input[name] = value
	}
	raw, err := json.Marshal(input)
	if err != nil {
		b.t.Fatal(err)
	}
	return txn.Task{
		ID: "t1", Workflow: workflow, Type: txn.TypeStage, ReferenceName: "prepare_stage", Status: txn.TaskInProgress,
		RetryCount: 2, PollCount: 1, StartTime: 1764443290123, Worker: "w", Input: raw,
	}
}

func TestStagesExactlyTheProjection(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data/a": "1", "data/gone": "x", "data/same": "s", "data.json": "j", "data2/z": "z"})
	directory := b.write(map[string]string{"a": "2", "same": "s", "new/deep": "n", "empty": ""})
	result, err := b.stager.Run(t.Context(), b.task(directory, nil), &attempt{})
	if err != nil {
		t.Fatal(err)
	}
	staged := result.Staged
	if staged.Added != 2 || staged.Changed != 1 || staged.Removed != 1 || staged.Unchanged != 1 || staged.Bytes != 2 || staged.RetryCount != 2 {
		t.Errorf("%+v", staged)
	}
	want := map[string]string{"data/a": "2", "data/same": "s", "data/new/deep": "n", "data/empty": "", "data.json": "j", "data2/z": "z"}
	if diff := cmp.Diff(want, lakefstest.Tree(t, b.lake, b.repo, staged.Commit)); diff != "" {
		t.Errorf("the staged tree (-want +got):\n%s", diff)
	}
	commit, err := b.lake.Commit(t.Context(), b.repo, staged.Commit)
	if err != nil {
		t.Fatal(err)
	}
	if err := txn.CheckStagedCommit(txn.StepOf(staged, workflow, staged.Key), staged, commit); err != nil {
		t.Error(err)
	}
	head, err := b.lake.Head(t.Context(), b.repo, "main")
	if err != nil || head != b.first {
		t.Errorf("main is at %s, %v; stage must not touch it", head, err)
	}
	if b.wire.count(http.MethodPost, "/objects") != 3 {
		t.Errorf("%d uploads, want 3: what is unchanged is not sent", b.wire.count(http.MethodPost, "/objects"))
	}
}

// A stale attempt writes nothing after the check of the fence that it failed at.
func TestStaleAttemptStops(t *testing.T) {
	t.Parallel()
	stale := &txn.StaleAttemptError{Reason: txn.StalePollCount}
	for _, c := range []struct {
		check, branches, uploads, commits int
	}{{1, 0, 0, 0}, {2, 0, 0, 0}, {3, 1, 1, 1}} {
		b := newBench(t, map[string]string{"data/a": "1"})
		directory := b.write(map[string]string{"a": "2"})
		a := &attempt{on: func(n int) error {
			if n == c.check {
				return stale
			}
			return nil
		}}
		result, err := b.stager.Run(t.Context(), b.task(directory, nil), a)
		if !errors.Is(err, stale) || a.checks != c.check || result.Staged.Commit != "" {
			t.Errorf("check %d: %v after %d checks, put out %+v", c.check, err, a.checks, result.Staged)
		}
		if got := [3]int{b.wire.count(http.MethodPost, "/branches"), b.wire.count(http.MethodPost, "/objects"), b.wire.count(http.MethodPost, "/commits")}; got != [3]int{c.branches, c.uploads, c.commits} {
			t.Errorf("check %d: branches, uploads and commits sent %v, want %d, %d, %d", c.check, got, c.branches, c.uploads, c.commits)
		}
	}
}

func TestNothingToStage(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data/a": "1", "other": "o"})
	for name, c := range map[string]struct {
		more     map[string]any
		readOnly bool
	}{
		"the same content": {nil, false},
		"read-only":        {map[string]any{"read_only": true, "source": nil}, true},
	} {
		a := &attempt{}
		result, err := b.stager.Run(t.Context(), b.task(b.write(map[string]string{"a": "1"}), c.more), a)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s := result.Staged
		if s.ReadOnly != c.readOnly || s.NoOp == c.readOnly || s.StagingBranch != "" || s.Commit != b.first || a.checks != 2 {
			t.Errorf("%s: %+v after %d checks", name, s, a.checks)
		}
	}
	if n := b.wire.writes(); n != 0 {
		t.Errorf("%d writes, want none", n)
	}
}

// What cannot be staged whole is not staged at all: no branch is made for what
// can be seen before, nothing is committed after a failure, and a commit that is
// not what it should be is not handed on.
func TestFailuresCommitNothing(t *testing.T) {
	t.Parallel()
	status := func(suffix string, code int, body string) func(*http.Request, *http.Response) (*http.Response, error) {
		return func(r *http.Request, response *http.Response) (*http.Response, error) {
			if r.Method == http.MethodGet || !strings.HasSuffix(r.URL.Path, suffix) {
				return response, nil
			}
			_ = response.Body.Close()
			response.StatusCode, response.Body = code, io.NopCloser(strings.NewReader(body))
			response.ContentLength = int64(len(body))
			return response, nil
		}
	}
	for _, c := range []struct {
		name     string
		files    map[string]string
		prepare  func(b *bench, directory string)
		more     map[string]any
		terminal bool
		branches int
		commits  int
		sentence string
	}{
		{name: "a link", files: map[string]string{"a": "2"}, prepare: func(b *bench, d string) {
			if err := os.Symlink("/etc/passwd", filepath.Join(d, "link")); err != nil {
				b.t.Fatal(err)
			}
		}, terminal: true, sentence: `"link"`},
		{name: "a link to another workflow's directory", files: map[string]string{"a": "2"}, prepare: func(b *bench, d string) {
			other := filepath.Join(b.root, "other")
			if err := errors.Join(os.MkdirAll(other, 0o755), os.RemoveAll(d), os.Symlink(other, d)); err != nil {
				b.t.Fatal(err)
			}
		}, terminal: true, sentence: "link"},
		{name: "a name that is not UTF-8", files: map[string]string{"a\xff": "2"}, terminal: true, sentence: "UTF-8"},
		{name: "no directory", prepare: func(b *bench, d string) {
			if err := os.RemoveAll(d); err != nil {
				b.t.Fatal(err)
			}
		}, sentence: "does not exist"},
		{name: "files that the sweep has set aside", files: map[string]string{"a": "2"}, prepare: func(b *bench, d string) {
			aside := txn.Removal{Token: strings.Repeat("A", txn.RemovalToken), Workflow: workflow}
			if err := os.Mkdir(filepath.Join(b.root, aside.Name()), 0o755); err != nil {
				b.t.Fatal(err)
			}
		}, sentence: "set aside"},
		{name: "an empty directory", sentence: "allow_empty: true"},
		{name: "an unknown input ref", files: map[string]string{"a": "2"}, more: map[string]any{
			"workspace": map[string]any{"repository": "no-such-lake", "branch": "main", "ref_type": "commit", "ref": strings.Repeat("0", 64)},
		}, terminal: true, sentence: "holds no commit"},
		{name: "an upload that is refused", files: map[string]string{"a": "2", "b": "3", "c": "4"}, prepare: func(b *bench, _ string) {
			b.wire.answered = status("/objects", http.StatusForbidden, `{"message": "no"}`)
		}, branches: 1, sentence: "upload data/"},
		{name: "an upload that lakeFS holds otherwise", files: map[string]string{"a": "2"}, prepare: func(b *bench, _ string) {
			b.wire.answered = status("/objects", http.StatusCreated, `{"path": "data/a", "path_type": "object", "physical_address": "x", "checksum": "00000000000000000000000000000000", "size_bytes": 1, "mtime": 1}`)
		}, branches: 1, sentence: "sent was c81e728d9d4c2f636f067f89cc14862c"},
		{name: "a remove that did nothing", files: map[string]string{"b": "1"}, prepare: func(b *bench, _ string) {
			next := b.wire.next
			b.wire.next = roundTripper(func(r *http.Request) (*http.Response, error) {
				if !strings.HasSuffix(r.URL.Path, "/objects/delete") {
					return next.RoundTrip(r)
				}
				_ = r.Body.Close()
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(`{"errors": []}`)), Request: r}, nil
			})
		}, branches: 1, commits: 1, sentence: `"data/a" is there and should not be`},
		{name: "a remove that fails inside a 200", files: map[string]string{"b": "1"}, prepare: func(b *bench, _ string) {
			b.wire.answered = status("/objects/delete", http.StatusOK, `{"errors": [{"status_code": 500, "message": "disk", "path": "data/a"}]}`)
		}, branches: 1, sentence: "data/a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, map[string]string{"data/a": "1"})
			directory := b.write(c.files)
			if c.prepare != nil {
				c.prepare(b, directory)
			}
			_, err := b.stager.Run(t.Context(), b.task(directory, c.more), &attempt{})
			var terminal *txn.TerminalError
			if err == nil || errors.As(err, &terminal) != c.terminal || !strings.Contains(err.Error(), c.sentence) {
				t.Errorf("got %v; want terminal %v with %q", err, c.terminal, c.sentence)
			}
			if got := b.wire.count(http.MethodPost, "/branches"); got != c.branches {
				t.Errorf("%d branches were asked for, want %d", got, c.branches)
			}
			if got := b.wire.count(http.MethodPost, "/commits"); got != c.commits {
				t.Errorf("%d commits were sent, want %d", got, c.commits)
			}
		})
	}
}

// The guardrails are asked before anything is written, and say all that does not
// hold at once. An unwanted mass delete is one of them.
func TestGuardrails(t *testing.T) {
	t.Parallel()
	held := map[string]string{"data/a": "1", "data/b": "1", "data/c": "1", "data/d": "1", "data2/e": "1"}
	guard := func(one ...any) map[string]any { return map[string]any{"guardrails": one} }
	type object = map[string]any
	for _, c := range []struct {
		name  string
		files map[string]string
		more  map[string]any
		want  []projection.Violation
	}{
		{"all hold", map[string]string{"a": "2", "b": "1", "x/y": "2"}, guard(
			object{"require_file": "a"}, object{"require_dir": "x"}, object{"require_glob": object{"pattern": "**", "max": 3}},
			object{"forbid_glob": "**/*.tmp"}, object{"max_removed": object{"count": 2, "fraction": 0.5}}), nil},
		{"none holds", map[string]string{"a.tmp": "2"}, guard(
			object{"require_file": "a"}, object{"require_dir": "x"}, object{"require_glob": object{"pattern": "**", "min": 2}},
			object{"forbid_glob": "**/*.tmp"}, object{"max_removed": object{"count": 2, "fraction": 0.5}}), []projection.Violation{
			`require_file "a": there is no such file`, `require_dir "x": there is no file in such a directory`,
			`require_glob "**": 1 files match, at least 2 must`, `forbid_glob "**/*.tmp": matched by "a.tmp"`,
			"max_removed.count: 4 of 4 objects would be removed, at most 2 may",
			"max_removed.fraction: 4 of 4 objects would be removed, at most the part 0.5 may",
		}},
		{"without a bound on removals", map[string]string{"a.tmp": "2"}, guard(object{"require_file": "a"}), []projection.Violation{`require_file "a": there is no such file`}},
		{"everything is removed", nil, map[string]any{"allow_empty": true, "guardrails": []any{object{"max_removed": object{"fraction": 0.9}}}},
			[]projection.Violation{"max_removed.fraction: 4 of 4 objects would be removed, at most the part 0.9 may"}},
		{"what is there already is guarded too", map[string]string{"a": "1", "b": "1", "c": "1", "d": "1"}, guard(object{"require_file": "e"}),
			[]projection.Violation{`require_file "e": there is no such file`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, held)
			result, err := b.stager.Run(t.Context(), b.task(b.write(c.files), c.more), &attempt{})
			var violated *projection.GuardrailError
			if errors.As(err, &violated) != (c.want != nil) || (c.want == nil) != (err == nil) || errors.As(err, new(*txn.TerminalError)) {
				t.Fatalf("got %v", err)
			}
			if diff := cmp.Diff(c.want, result.Violations); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
			if c.want == nil {
				return
			}
			if diff := cmp.Diff(map[string]any{"violations": c.want}, result.Output()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			for _, violation := range c.want {
				if !strings.Contains(err.Error(), string(violation)) {
					t.Errorf("%v does not say %s", err, violation)
				}
			}
			if n := b.wire.writes(); n != 0 {
				t.Errorf("%d writes, want none", n)
			}
		})
	}
}

// A malformed pattern is a fault of the input, seen before the servers are asked.
func TestMalformedPatternIsTerminal(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data/a": "1"})
	a := &attempt{}
	result, err := b.stager.Run(t.Context(), b.task(b.write(map[string]string{"a": "2"}), map[string]any{"guardrails": []any{map[string]any{"forbid_glob": "[a"}}}), a)
	var terminal *txn.TerminalError
	if !errors.As(err, &terminal) || terminal.Field != "guardrails[0].forbid_glob" || result.Output() != nil || a.checks != 0 || b.wire.count("", "") != 0 {
		t.Errorf("got %v, output %v, after %d checks and %d requests", err, result.Output(), a.checks, b.wire.count("", ""))
	}
}

// A branch name that is taken is refused and never reused.
func TestBranchIsExclusive(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data/a": "1"})
	id := txn.ExecutionID("01890a5d-ac96-774b-bcce-b302099a8057")
	b.stager.NewExecutionID = func() (txn.ExecutionID, error) { return id, nil }
	task := b.task(b.write(map[string]string{"a": "2"}), nil)
	name := txn.NewStagingName("test", workflow, txn.NewLogicalTaskKey(workflow, "prepare_stage", 0), 2, id).Branch()
	if err := b.lake.CreateBranch(t.Context(), b.repo, name, b.first); err != nil {
		t.Fatal(err)
	}
	lakefstest.Put(t, b.lake, b.repo, name, map[string]string{"data/leftover": "x"})
	if _, err := b.stager.Run(t.Context(), task, &attempt{}); !errors.Is(err, txn.ErrExists) {
		t.Errorf("got %v, want that the branch exists", err)
	}
	if n := b.wire.count(http.MethodPost, "/objects"); n != 0 {
		t.Errorf("%d uploads onto somebody else's branch", n)
	}
}

// A name whose creation could not be settled is abandoned and another one tried,
// unless the attempt has become stale meanwhile.
func TestUnsettledBranchIsAbandoned(t *testing.T) {
	t.Parallel()
	stale := &txn.StaleAttemptError{Reason: txn.StalePollCount}
	for name, current := range map[string]bool{"still current": true, "stale by then": false} {
		b := newBench(t, map[string]string{"data/a": "1"})
		lost := 0
		next := b.wire.next
		b.wire.next = roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/branches") && lost == 0 {
				lost++
				return nil, errors.New("connection reset by peer")
			}
			return next.RoundTrip(r)
		})
		a := &attempt{on: func(n int) error {
			if n == 3 && !current {
				return stale
			}
			return nil
		}}
		result, err := b.stager.Run(t.Context(), b.task(b.write(map[string]string{"a": "2"}), nil), a)
		want := 1
		if current {
			want = 2
		}
		if errors.Is(err, stale) == current || (current && (err != nil || result.Staged.Commit == b.first)) || b.wire.count(http.MethodPost, "/branches") != want {
			t.Errorf("%s: %v, %d branches were asked for, put out %+v", name, err, b.wire.count(http.MethodPost, "/branches"), result.Staged)
		}
	}
}

// A small upload takes one connection, a larger one several, and no more are
// taken than there are.
func TestUploadsAreBounded(t *testing.T) {
	t.Parallel()
	const kib = 1 << 10
	for _, c := range []struct {
		connections, files, size, most int
	}{
		{16, 40, 1, 16}, {4, 8, 256 * kib, 4}, {1, 3, 1, 1}, {0, 3, 1, 1},
		{16, 24, 256*kib + 1, 8}, {16, 10, 700 * kib, 8}, {32, 12, 700 * kib, 10}, {32, 10, 1500 * kib, 8}, {4, 6, 700 * kib, 4},
	} {
		t.Run(fmt.Sprintf("%d of %d bytes on %d", c.files, c.size, c.connections), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil)
				b.stager.UploadConcurrency = c.connections
				files := map[string]string{}
				content := strings.Repeat("x", c.size)
				for i := range c.files {
					files[fmt.Sprintf("f%03d", i)] = content
				}
				var mu sync.Mutex
				under, most := 0, 0
				next := b.wire.next
				b.wire.next = roundTripper(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/objects") {
						mu.Lock()
						under++
						most = max(most, under)
						mu.Unlock()
						time.Sleep(time.Second) // the bubble's clock: it goes on when all of them wait
						mu.Lock()
						under--
						mu.Unlock()
					}
					return next.RoundTrip(r)
				})
				began := time.Now()
				result, err := b.stager.Run(t.Context(), b.task(b.write(files), nil), &attempt{})
				if err != nil || result.Staged.Added != c.files {
					t.Fatalf("%+v, %v", result.Staged, err)
				}
				// Whatever one gives back another takes.
				if took, want := time.Since(began), time.Duration((c.files+c.most-1)/c.most)*time.Second; took != want {
					t.Errorf("took %s, want %s", took, want)
				}
				if most != c.most {
					t.Errorf("%d uploads were under way at once, want %d", most, c.most)
				}
			})
		})
	}
}

// All uploads of the process share one rate, and a stop does not wait for it.
func TestUploadRate(t *testing.T) {
	t.Parallel()
	files := map[string]string{"empty": "", "a": strings.Repeat("a", 300_000), "b": strings.Repeat("b", 200_000), "c": strings.Repeat("c", 500_000)}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.stager.UploadRate = stage.NewUploadRate(100_000)
		began := time.Now()
		result, err := b.stager.Run(t.Context(), b.task(b.write(files), nil), &attempt{})
		if took := time.Since(began); err != nil || result.Staged.Bytes != 1_000_000 || took < 9*time.Second || took > 10*time.Second {
			t.Errorf("%d bytes in %s, %v; want a second for each 100000, but for the first 65536", result.Staged.Bytes, took, err)
		}
		if diff := cmp.Diff(files["c"], lakefstest.Tree(t, b.lake, b.repo, result.Staged.Commit)["data/c"]); diff != "" {
			t.Error(diff)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.stager.UploadRate = stage.NewUploadRate(65536)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("stopped"))
		defer cancel()
		began := time.Now()
		if _, err := b.stager.Run(ctx, b.task(b.write(files), nil), &attempt{}); err == nil || time.Since(began) > 2*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// The listing of the input ref goes on while the files are looked at, and ends
// with the task.
func TestListingGoesAhead(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data/a": "1"})
	ended := make(chan struct{})
	next := b.wire.next
	b.wire.next = roundTripper(func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/objects/ls") {
			defer close(ended)
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		return next.RoundTrip(r)
	})
	directory := b.write(map[string]string{"b": "1"})
	if err := os.Symlink("b", filepath.Join(directory, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.stager.Run(t.Context(), b.task(directory, nil), &attempt{}); !errors.As(err, new(*projection.UnrepresentableError)) {
		t.Errorf("got %v", err)
	}
	select {
	case <-ended:
	default:
		t.Error("the listing went on")
	}
}

// A listing that ends with its context is not taken for a whole one: what it did
// not come to would look removed.
func TestListingThatIsCutIsNoListing(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i := range 1500 {
		files[fmt.Sprintf("data/f%04d", i)] = "1"
	}
	b := newBench(t, files)
	ctx, cancel := context.WithCancel(t.Context())
	pages := 0
	next := b.wire.next
	b.wire.next = roundTripper(func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/objects/ls") {
			if pages++; pages == 2 {
				cancel()
			}
		}
		return next.RoundTrip(r)
	})
	if result, err := b.stager.Run(ctx, b.task(b.write(map[string]string{"f0000": "1"}), nil), &attempt{}); !errors.Is(err, context.Canceled) || b.wire.writes() != 0 {
		t.Errorf("%+v, %v after %d writes", result.Staged, err, b.wire.writes())
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An input that Conductor keeps outside ends the task, and says so: the polled task
// holds none of its fields.
func TestRun_NamesExternalPayloadStorage(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data/a": "1"})
	task := b.task("x", nil)
	task.Input, task.ExternalInput = json.RawMessage(`{}`), true
	_, err := b.stager.Run(t.Context(), task, &attempt{})
	var terminal *txn.TerminalError
	if !errors.As(err, &terminal) || !strings.Contains(err.Error(), "conductor.app.taskInputPayloadSizeThreshold") {
		t.Errorf("got %v", err)
	}

}
