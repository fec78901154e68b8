//go:build unix

package checkout_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"perago/pkg/checkout"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/projection"
	"perago/pkg/txn"
)

const workflow = txn.WorkflowID("0b4a7d26-7f6e-4a54-9d8d-0e1f2a3b4c5d")

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

// check holds the progress of a whole download to what it is of.
func (a *attempt) check(t *testing.T, objects int, bytes int64) {
	t.Helper()
	list, download := a.counts["list"], a.counts["download"]
	if list.objects != objects || list.objectsTotal != 0 {
		t.Errorf("list counted %d of %d objects, want %d of a number that is not known", list.objects, list.objectsTotal, objects)
	}
	if download.objects != objects || download.objectsTotal != objects || download.bytes != bytes || download.bytesTotal != bytes || download.most > bytes {
		t.Errorf("download counted %d of %d objects, %d of %d bytes (at most %d); want %d and %d of as many",
			download.objects, download.objectsTotal, download.bytes, download.bytesTotal, download.most, objects, bytes)
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

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// bench is a lake in memory and a workspace root on disk.
type bench struct {
	t          *testing.T
	server     *lakefstest.Server
	lake       *lakefs.Client
	repo       txn.Repository
	first      txn.CommitID
	root       string
	downloader *checkout.Downloader
	// intercept, when set, may answer in the server's place.
	intercept func(*http.Request, http.RoundTripper) (*http.Response, error)
}

func newBench(t *testing.T, files map[string]string) *bench {
	t.Helper()
	server := lakefstest.NewServer()
	server.ActionsOff = true
	b := &bench{t: t, server: server, lake: server.Client(t), root: t.TempDir()}
	b.repo, b.first = lakefstest.NewRepository(t, b.lake, files)
	client, err := lakefs.New(server.Config(), roundTripper(func(r *http.Request) (*http.Response, error) {
		if b.intercept != nil {
			return b.intercept(r, server.Transport())
		}
		return server.Transport().RoundTrip(r)
	}))
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(b.root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	b.downloader = &checkout.Downloader{
		Lake: client, Root: root, Allowed: txn.AllowList{"*"}, Concurrency: 4,
		NewExecutionID: func() (txn.ExecutionID, error) {
			id, err := uuid.NewV7()
			return txn.ExecutionID(id.String()), err
		},
	}
	return b
}

func (b *bench) task(more map[string]any) txn.Task {
	b.t.Helper()
	input := map[string]any{"workspace": txn.Workspace{Repository: b.repo, Branch: "main", RefType: "commit", Ref: b.first}, "prefix": "data/"}
	for name, value := range more {
		input[name] = value
	}
	raw, err := json.Marshal(input)
	if err != nil {
		b.t.Fatal(err)
	}
	return txn.Task{
		ID: "t1", Workflow: workflow, Type: txn.TypeCheckout, ReferenceName: "train_checkout", Status: txn.TaskInProgress,
		PollCount: 1, StartTime: 1764443290123, Worker: "w", Input: raw,
	}
}

// tree is what lies below a directory: path to content; directories that hold
// nothing end in a slash.
func tree(t *testing.T, directory string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == directory {
			return err
		}
		name, err := filepath.Rel(directory, path)
		if err != nil {
			return err
		}
		switch {
		case entry.IsDir():
			inside, err := os.ReadDir(path)
			if err == nil && len(inside) == 0 {
				all[name+"/"] = ""
			}
			return err
		case !entry.Type().IsRegular():
			return fmt.Errorf("%s is no file", path)
		}
		content, err := os.ReadFile(path)
		all[name] = string(content)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return all
}

// odd are names that a file system and lakeFS both take.
var odd = map[string]string{
	".hidden": "h", ".git/config": "g", "empty": "", "deep/er/and/deeper": "d", "a.b": "1", "a/b": "2", "a!/c": "3", "a-": "4",
	"sp ace": "s", "pl+us": "+", "pc%41": "%", "h#x": "#", "q?x": "?", "a&b": "&", "col=1/x": "=", "тест/данные": "т", "emo😀": "e",
	" lead": "l", "trail ": "t", "it's \"q\"": "q", "new\nline": "n", "back\\slash": "b", "..double": ".", "...": "...", "<x>|*": "x",
	strings.Repeat("n", 255): "long", strings.Repeat(strings.Repeat("d", 100)+"/", 9) + "x": "deep",
}

// The sweep renames the workflow's directory while it is filled. The path that the
// output would name is not the one that holds the files.
func TestCheckout_FailsWhenItsDirectoryIsRenamed(t *testing.T) {
	t.Parallel()
	for name, anew := range map[string]bool{"and missing": false, "and made anew": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, map[string]string{"data/a": "1"})
			b.intercept = func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				own, err := filepath.Glob(filepath.Join(b.root, string(workflow), "checkout-*"))
				if err == nil && len(own) == 1 {
					aside := txn.Removal{Token: strings.Repeat("A", txn.RemovalToken), Workflow: workflow}
					err = os.Rename(filepath.Dir(own[0]), filepath.Join(b.root, aside.Name()))
					if anew {
						err = errors.Join(err, os.MkdirAll(own[0], 0o755))
					}
				}
				if err != nil {
					t.Error(err)
				}
				return next.RoundTrip(r)
			}
			result, err := b.downloader.Run(t.Context(), b.task(nil), &attempt{})
			if err == nil || errors.As(err, new(*txn.TerminalError)) {
				t.Errorf("%+v, %v", result, err)
			}
		})
	}
	b := newBench(t, map[string]string{"data/a": "1"})
	task := b.task(nil)
	task.Workflow = txn.WorkflowID(txn.Removal{Token: strings.Repeat("A", txn.RemovalToken), Workflow: workflow}.Name())
	if _, err := b.downloader.Run(t.Context(), task, &attempt{}); !errors.As(err, new(*txn.TerminalError)) {
		t.Errorf("a workflow of the name that a sweep gives: %v", err)
	}
}

func TestDownloadsExactlyTheProjection(t *testing.T) {
	t.Parallel()
	files := map[string]string{"data.json": "j", "data2/z": "z", "data": "x", "other": "o"}
	bytes := 0
	for name, content := range odd {
		files["data/"+name] = content
		bytes += len(content)
	}
	b := newBench(t, files)
	a := &attempt{}
	result, err := b.downloader.Run(t.Context(), b.task(nil), a)
	if err != nil {
		t.Fatal(err)
	}
	c := result.Checkout
	if c.Objects != len(odd) || c.Bytes != int64(bytes) || result.Workspace.Ref != b.first || a.checks != 2 {
		t.Errorf("%+v after %d checks, want %d objects of %d bytes", result, a.checks, len(odd), bytes)
	}
	if diff := cmp.Diff(odd, tree(t, c.Directory)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	a.check(t, len(odd), int64(bytes))
	// Where the next stage may take files from, and no other user's directory.
	if relative, err := txn.SourceDirectory(b.root, workflow, c.Directory); err != nil || !strings.HasPrefix(relative, string(workflow)+"/checkout-t1-") {
		t.Errorf("%s, %v", relative, err)
	}
	raw, err := json.Marshal(result.Output())
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"checkout":{"directory":%q,"objects":%d,"bytes":%d},"workspace":{"repository":%q,"branch":"main","ref_type":"commit","ref":%q}}`,
		c.Directory, c.Objects, c.Bytes, b.repo, b.first)
	if string(raw) != want {
		t.Errorf("output %s, want %s", raw, want)
	}

	// Another execution of the same task has a directory of its own.
	again, err := b.downloader.Run(t.Context(), b.task(nil), &attempt{})
	if err != nil || again.Checkout.Directory == c.Directory {
		t.Errorf("%+v, %v", again.Checkout, err)
	}
}

func TestRootPrefixLeavesTheHooksOut(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"a": "1", "_lakefs_actions/x.yaml": "hook", "b/_lakefs_actions/y": "2"})
	result, err := b.downloader.Run(t.Context(), b.task(map[string]any{"prefix": "/", "root": true}), &attempt{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a": "1", "b/_lakefs_actions/y": "2"}, tree(t, result.Checkout.Directory)); diff != "" {
		t.Error(diff)
	}
}

func TestNothingUnderThePrefix(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data2/a": "1"})
	result, err := b.downloader.Run(t.Context(), b.task(nil), &attempt{})
	if err != nil || result.Checkout.Objects != 0 {
		t.Fatalf("%+v, %v", result, err)
	}
	if diff := cmp.Diff(map[string]string{}, tree(t, result.Checkout.Directory)); diff != "" {
		t.Error(diff)
	}
}

// More objects than a page of the listing holds.
func TestManyPages(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i := range 2100 {
		files[fmt.Sprintf("data/%d/f%04d", i%7, i)] = fmt.Sprint(i)
	}
	b := newBench(t, files)
	b.downloader.Concurrency = 32
	result, err := b.downloader.Run(t.Context(), b.task(nil), &attempt{})
	if err != nil || result.Checkout.Objects != 2100 {
		t.Fatalf("%+v, %v", result, err)
	}
	got := tree(t, result.Checkout.Directory)
	for path, content := range files {
		if got[strings.TrimPrefix(path, "data/")] != content {
			t.Fatalf("%s holds %q, want %q", path, got[strings.TrimPrefix(path, "data/")], content)
		}
	}
}

// A key that has no file of its own ends the task, named, and nothing is written:
// not even what comes before it in the listing.
func TestHostileKeys(t *testing.T) {
	t.Parallel()
	for key, sentence := range map[string]string{
		"data/../../../etc/passwd":           "segment ..",
		"data/a/../b":                        "segment ..",
		"data/..":                            "segment ..",
		"data/./x":                           "segment .",
		"data//etc/passwd":                   "empty segment",
		"data/a//b":                          "empty segment",
		"data/d/":                            "empty segment",
		"data/":                              "is empty",
		"data/nul\x00x":                      "NUL",
		"data/" + strings.Repeat("n", 256):   "more than the 255",
		"data/f/" + strings.Repeat("ж", 128): "more than the 255",
		"data/file/below":                    `"file" is an object too`,
		"data/a.b/c/d":                       `"a.b" is an object too`,
	} {
		t.Run(strings.ToValidUTF8(key[:min(len(key), 20)], ""), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, map[string]string{"data/0": "1", "data/file": "1", "data/file-": "1", "data/file.x": "1", "data/a.b": "1", "data/a.b-": "2", key: "x"})
			result, err := b.downloader.Run(t.Context(), b.task(nil), &attempt{})
			var terminal *txn.TerminalError
			if !errors.As(err, &terminal) || !strings.Contains(err.Error(), sentence) || !strings.Contains(err.Error(), fmt.Sprintf("%q", key)) {
				t.Errorf("got %v; want it terminal, with %q and the key", err, sentence)
			}
			if diff := cmp.Diff(map[string]string{}, tree(t, b.root)); diff != "" || result.Output() != nil {
				t.Errorf("output %v, on disk: %s", result.Output(), diff)
			}
		})
	}
}

// A violated guardrail ends the workflow before anything is downloaded.
func TestGuardrailsOfTheInput(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data/a.csv": "1", "data/tmp/x": "1", "_lakefs_actions/x.yaml": "hook"})
	type object = map[string]any
	a := &attempt{}
	result, err := b.downloader.Run(t.Context(), b.task(object{"guardrails": []any{
		object{"require_file": "days.json"}, object{"forbid_glob": "tmp"}, object{"require_file": "a.csv"},
	}}), a)
	want := []projection.Violation{`require_file "days.json": there is no such file`, `forbid_glob "tmp": matched by "tmp/"`}
	if diff := cmp.Diff(want, result.Violations); diff != "" || !errors.As(err, new(*txn.TerminalError)) {
		t.Errorf("%v, violations (-want +got):\n%s", err, diff)
	}
	for _, violation := range want {
		if !strings.Contains(err.Error(), string(violation)) {
			t.Errorf("%v does not say %s", err, violation)
		}
	}
	if diff := cmp.Diff(map[string]any{"violations": want}, result.Output()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{}, tree(t, b.root)); diff != "" {
		t.Errorf("on disk: %s", diff)
	}
	if result, err := b.downloader.Run(t.Context(), b.task(object{"guardrails": []any{object{"require_glob": object{"pattern": "*.csv"}}}}), a); err != nil || result.Checkout.Objects != 2 {
		t.Errorf("%+v, %v", result, err)
	}
}

// What cannot be downloaded whole is not handed on, and not left on the disk.
func TestFailures(t *testing.T) {
	t.Parallel()
	answer := func(r *http.Request, status int, body string) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r}, nil
	}
	reads := func(r *http.Request, path string) bool {
		return strings.HasSuffix(r.URL.Path, "/objects") && r.URL.Query().Get("path") == path
	}
	for _, c := range []struct {
		name      string
		intercept func(*http.Request, http.RoundTripper) (*http.Response, error)
		more      map[string]any
		prepare   func(b *bench)
		terminal  bool
		sentence  string
	}{
		{name: "an object whose data is gone", intercept: func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if reads(r, "data/b") {
				return answer(r, http.StatusGone, `{"message": "No data"}`)
			}
			return next.RoundTrip(r)
		}, terminal: true, sentence: "the input expired"},
		{name: "a listing whose data is gone", intercept: func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/objects/ls") {
				return answer(r, http.StatusGone, `{"message": "No data"}`)
			}
			return next.RoundTrip(r)
		}, terminal: true, sentence: "the input expired"},
		{name: "an object that is refused", intercept: func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if reads(r, "data/b") {
				return answer(r, http.StatusForbidden, `{"message": "no"}`)
			}
			return next.RoundTrip(r)
		}, sentence: "download data/b"},
		{name: "an object of other content", intercept: func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if reads(r, "data/b") {
				return answer(r, http.StatusOK, "x")
			}
			return next.RoundTrip(r)
		}, sentence: "lakeFS holds 92eb5ffee6ae2fec3ad71c777531578f"},
		{name: "an object that is longer", intercept: func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if reads(r, "data/b") {
				return answer(r, http.StatusOK, "bb")
			}
			return next.RoundTrip(r)
		}, sentence: "2 bytes arrived of 1"},
		{name: "an object that is cut every time", intercept: func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if reads(r, "data/b") {
				return answer(r, http.StatusOK, "")
			}
			return next.RoundTrip(r)
		}, sentence: "0 bytes arrived of 1"},
		{name: "no such commit", more: map[string]any{
			"workspace": map[string]any{"repository": "no-such-lake", "branch": "main", "ref_type": "commit", "ref": strings.Repeat("0", 64)},
		}, terminal: true, sentence: "holds no commit"},
		{name: "an unknown field", more: map[string]any{"source": "x"}, terminal: true, sentence: "source"},
		{name: "a bound on removals", more: map[string]any{"guardrails": []any{map[string]any{"max_removed": map[string]any{"count": 1}}}}, terminal: true, sentence: "a checkout removes nothing"},
		{name: "a malformed pattern", more: map[string]any{"guardrails": []any{map[string]any{"forbid_glob": "[a"}}}, terminal: true, sentence: "well-formed"},
		{name: "a link in the place of the workflow's directory", prepare: func(b *bench) {
			if err := errors.Join(os.Mkdir(filepath.Join(b.root, "other"), 0o755), os.Symlink("other", filepath.Join(b.root, string(workflow)))); err != nil {
				b.t.Fatal(err)
			}
		}, sentence: "is not a directory"},
		{name: "a FIFO in the place of the workflow's directory", prepare: func(b *bench) {
			if err := syscall.Mkfifo(filepath.Join(b.root, string(workflow)), 0o644); err != nil {
				b.t.Fatal(err)
			}
		}, sentence: "is not a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, map[string]string{"data/a": "a", "data/b": "b", "data/x/c": "c"})
			b.intercept = c.intercept
			if c.prepare != nil {
				c.prepare(b)
			}
			result, err := b.downloader.Run(t.Context(), b.task(c.more), &attempt{})
			if err == nil || errors.As(err, new(*txn.TerminalError)) != c.terminal || !strings.Contains(err.Error(), c.sentence) || result.Output() != nil {
				t.Errorf("got %v, output %v; want terminal %v with %q", err, result.Output(), c.terminal, c.sentence)
			}
			left, err := filepath.Glob(filepath.Join(b.root, "*", "*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left on disk: %q, %v", left, err)
			}
		})
	}
}

// An answer that is cut in its middle is asked for again, from the beginning.
func TestCutDownloadIsRepeated(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("0123456789", 100_000)
	b := newBench(t, map[string]string{"data/big": content})
	var mu sync.Mutex
	asked := 0
	b.intercept = func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil || !strings.HasSuffix(r.URL.Path, "/objects") {
			return response, err
		}
		mu.Lock()
		defer mu.Unlock()
		asked++
		if asked < 3 {
			response.Body = io.NopCloser(io.MultiReader(strings.NewReader(content[:700_000]), broken{}))
		}
		return response, nil
	}
	a := &attempt{}
	result, err := b.downloader.Run(t.Context(), b.task(nil), a)
	if err != nil || asked != 3 {
		t.Fatalf("%v after %d tries", err, asked)
	}
	// What a cut try brought is taken back.
	a.check(t, 1, 1_000_000)
	if got := tree(t, result.Checkout.Directory)["big"]; got != content {
		t.Errorf("%d bytes, want the %d that lakeFS holds", len(got), len(content))
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset by peer") }

// A stale attempt hands nothing on: found at the start it writes nothing, found
// at the end it takes its directory away again.
func TestStaleAttemptLeavesNothing(t *testing.T) {
	t.Parallel()
	stale := &txn.StaleAttemptError{Reason: txn.StalePollCount}
	for check := 1; check <= 2; check++ {
		b := newBench(t, map[string]string{"data/a": "1", "data/x/b": "2"})
		asked := 0
		b.intercept = func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			asked++
			return next.RoundTrip(r)
		}
		b.downloader.Concurrency = 1
		result, err := b.downloader.Run(t.Context(), b.task(nil), &attempt{on: func(n int) error {
			if n == check {
				return stale
			}
			return nil
		}})
		if !errors.Is(err, stale) || result.Output() != nil || (check == 1) != (asked == 0) {
			t.Errorf("check %d: %v, output %v, %d requests", check, err, result.Output(), asked)
		}
		if left, err := filepath.Glob(filepath.Join(b.root, "*", "*")); err != nil || len(left) > 0 {
			t.Errorf("check %d: left on disk: %q, %v", check, left, err)
		}
	}
}

// A checkout ends with its context, and other directories of the workflow stay.
func TestCancelledCheckoutLeavesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data/a": "1", "data/b": "2", "data/c": "3"})
	users := filepath.Join(b.root, string(workflow), "t1")
	if err := os.MkdirAll(users, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b.intercept = func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/objects") {
			cancel()
		}
		return next.RoundTrip(r)
	}
	result, err := b.downloader.Run(ctx, b.task(nil), &attempt{})
	if !errors.Is(err, context.Canceled) || result.Output() != nil {
		t.Errorf("%v, output %v", err, result.Output())
	}
	if diff := cmp.Diff(map[string]string{string(workflow) + "/t1/": ""}, tree(t, b.root)); diff != "" {
		t.Error(diff)
	}
}

// As many downloads as were configured are under way at once, and no more.
func TestDownloadsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		files := map[string]string{}
		for i := range 100 {
			files[fmt.Sprintf("data/f%03d", i)] = fmt.Sprint(i)
		}
		b := newBench(t, files)
		var mu sync.Mutex
		under, most := 0, 0
		b.intercept = func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/objects") {
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
		}
		if _, err := b.downloader.Run(t.Context(), b.task(nil), &attempt{}); err != nil {
			t.Fatal(err)
		}
		if most != 4 {
			t.Errorf("%d downloads were under way at once, want 4", most)
		}
	})
}

// Whatever appears in the directory meanwhile is not written through.
func TestFilesAreMadeExclusively(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data/a": "1", "data/b": "2"})
	b.downloader.Concurrency = 1
	b.intercept = func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/objects") && r.URL.Query().Get("path") == "data/a" {
			directories, err := filepath.Glob(filepath.Join(b.root, string(workflow), "checkout-*"))
			if err != nil || len(directories) != 1 {
				t.Errorf("%q, %v", directories, err)
			} else if err := os.Symlink("a", filepath.Join(directories[0], "b")); err != nil {
				t.Error(err)
			}
		}
		return next.RoundTrip(r)
	}
	result, err := b.downloader.Run(t.Context(), b.task(nil), &attempt{})
	if !errors.Is(err, fs.ErrExist) || result.Output() != nil {
		t.Errorf("%v, output %v", err, result.Output())
	}
}

// The name of the directory is made of ids that Conductor gives; one that leads
// elsewhere is refused.
func TestIdsThatAreNoNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ workflow, task string }{{"../other", "t"}, {"..", "t"}, {"a/b", "t"}, {"w", "../t"}, {"", "t"}, {"w", strings.Repeat("t", 250)}} {
		b := newBench(t, map[string]string{"data/a": "1"})
		task := b.task(nil)
		task.Workflow, task.ID = txn.WorkflowID(c.workflow), txn.TaskID(c.task)
		result, err := b.downloader.Run(t.Context(), task, &attempt{})
		if !errors.As(err, new(*txn.TerminalError)) || result.Output() != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if diff := cmp.Diff(map[string]string{}, tree(t, b.root)); diff != "" {
			t.Errorf("%+v: %s", c, diff)
		}
	}
}

// mostBytes is a lake whose objects have as many bytes as a number can say.
type mostBytes struct{ *lakefs.Client }

func (l mostBytes) Objects(ctx context.Context, repository txn.Repository, ref txn.CommitID, prefix txn.Prefix) iter.Seq2[txn.Object, error] {
	return func(yield func(txn.Object, error) bool) {
		for object, err := range l.Client.Objects(ctx, repository, ref, prefix) {
			object.Size = math.MaxInt64
			if !yield(object, err) {
				return
			}
		}
	}
}

// What is said of an object's size is no size of a buffer.
func TestAnObjectThatSaysItIsEndless(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data/a": "1", "data/b": "2"})
	b.downloader.Lake = mostBytes{b.lake}
	if result, err := b.downloader.Run(t.Context(), b.task(nil), &attempt{}); err == nil {
		t.Errorf("it is downloaded: %+v", result)
	}
}

// An input that Conductor keeps outside ends the task, and says so: the polled task
// holds none of its fields.
func TestRun_NamesExternalPayloadStorage(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data/a": "1"})
	task := b.task(nil)
	task.Input, task.ExternalInput = json.RawMessage(`{}`), true
	_, err := b.downloader.Run(t.Context(), task, &attempt{})
	var terminal *txn.TerminalError
	if !errors.As(err, &terminal) || !strings.Contains(err.Error(), "conductor.app.taskInputPayloadSizeThreshold") {
		t.Errorf("got %v", err)
	}

}
