package roundtrip

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"perago/e2e/stack"
	"perago/pkg/checkout"
	"perago/pkg/credential"
	"perago/pkg/fence"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/publish"
	"perago/pkg/stage"
	"perago/pkg/txn"
)

// How many trees each lake sees; `make roundtrip` runs more.
const (
	casesInMemory = 20
	casesOnReal   = 60
)

// lanes are repositories that are worked on side by side.
const lanes = 4

func TestRandomTreesComeBackAsTheyWere(t *testing.T) {
	seed := number(t, "PERAGO_TEST_SEED", rand.Uint64N(1<<32))
	subjects := map[string]func() (lakefs.Config, http.RoundTripper){"memory": func() (lakefs.Config, http.RoundTripper) {
		server := lakefstest.NewServer()
		return server.Config(), server.Transport()
	}}
	if !stack.Short(t) {
		servers := stack.Require(t)
		subjects["real"] = func() (lakefs.Config, http.RoundTripper) {
			return lakefs.Config{
				Endpoint: servers.LakeFSURL, AccessKeyID: credential.New(servers.AccessKeyID), SecretAccessKey: credential.New(servers.SecretAccessKey),
			}, nil
		}
	}
	for name, subject := range subjects {
		t.Run(name, func(t *testing.T) {
			otherwise := uint64(casesInMemory)
			if name == "real" {
				otherwise = casesOnReal
			}
			count, began := number(t, "PERAGO_TEST_CASES", otherwise), time.Now()
			t.Run("lanes", func(t *testing.T) {
				for lane := range uint64(lanes) {
					t.Run(strconv.FormatUint(lane, 10), func(t *testing.T) {
						t.Parallel()
						t.Logf("PERAGO_TEST_SEED=%d PERAGO_TEST_CASES=%d", seed, count)
						config, transport := subject()
						l := newLane(t, config, transport, rand.New(rand.NewPCG(seed, lane)))
						for i := lane; i < count; i += lanes {
							l.round(i)
						}
					})
				}
			})
			t.Logf("%d cases in %s", count, time.Since(began).Round(time.Millisecond))
		})
	}
}

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

// lane is one repository and the trees that are published into it, one after the
// other, each an edit of the one before.
type lane struct {
	t      *testing.T
	random *rand.Rand
	lake   *lakefs.Client
	repo   txn.Repository
	root   string
	prefix txn.Prefix
	// outside is what the repository holds beside the prefix.
	outside map[string]string
	// files are the tree that was published last.
	files map[string]string
	head  txn.CommitID
	tasks tasks

	stager     *stage.Stager
	publisher  *publish.Publisher
	downloader *checkout.Downloader
}

func newLane(t *testing.T, config lakefs.Config, transport http.RoundTripper, random *rand.Rand) *lane {
	t.Helper()
	l := &lane{t: t, random: random, root: t.TempDir(), tasks: tasks{}, files: map[string]string{}}
	var err error
	if l.lake, err = lakefs.New(config, transport); err != nil {
		t.Fatal(err)
	}
	l.prefix = []txn.Prefix{"", "data/", "a b/тест/", "d/"}[random.IntN(4)]
	l.outside = map[string]string{}
	if l.prefix != "" {
		// Siblings that a prefix without its slash would catch.
		name := strings.TrimSuffix(string(l.prefix), "/")
		l.outside = map[string]string{name + ".json": "j", name + "2/z": "z", name + "-": "", "!": "first", "~": "last", name[:1]: "s"}
	}
	// Stage and publish leave their branches to cleanup.
	l.repo, l.head = lakefstest.NewRepository(t, l.lake, l.outside, lakefstest.Allow(lakefstest.RuleBranches))
	root, err := os.OpenRoot(l.root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	allowed := txn.AllowList{"*"}
	newID := func() (txn.ExecutionID, error) {
		id, err := uuid.NewV7()
		return txn.ExecutionID(id.String()), err
	}
	l.stager = &stage.Stager{Lake: lakefs.Settling{Client: l.lake}, Root: root, Identity: "test", Allowed: allowed, UploadConcurrency: 1 + random.IntN(32), NewExecutionID: newID}
	l.publisher = &publish.Publisher{Lake: lakefs.Settling{Client: l.lake}, Fence: fence.Prover{Lake: l.lake}, Tasks: l.tasks, Identity: "test", Allowed: allowed, NewExecutionID: newID}
	l.downloader = &checkout.Downloader{Lake: l.lake, Root: root, Allowed: allowed, Concurrency: 1 + random.IntN(32), NewExecutionID: newID}
	return l
}

// tasks is Conductor's record of the stage tasks.
type tasks map[txn.TaskID]txn.Task

func (t tasks) Task(_ context.Context, id txn.TaskID) (txn.Task, error) {
	task, ok := t[id]
	if !ok {
		return txn.Task{}, txn.ErrNotFound
	}
	return task, nil
}

// attempt is one that may always act.
type attempt struct{}

func (attempt) Current(context.Context) error              { return nil }
func (attempt) Cover(context.Context, time.Duration) error { return nil }
func (attempt) Phase(string) func()                        { return func() {} }
func (attempt) Expect(int, int64) func(int, int64)         { return func(int, int64) {} }

// round is one case: a tree is published, and comes back.
func (l *lane) round(number uint64) {
	l.t.Helper()
	before := maps.Clone(l.files)
	edit(l.random, l.files)
	staged, published := l.publish(number, "first")
	if staged.NoOp != maps.Equal(before, l.files) {
		l.t.Fatalf("case %d: no_op is %v; from\n%q to\n%q", number, staged.NoOp, before, l.files)
	}
	added, changed, removed := 0, 0, 0
	for path, content := range l.files {
		if old, ok := before[path]; !ok {
			added++
		} else if old != content {
			changed++
		}
	}
	for path := range before {
		if _, ok := l.files[path]; !ok {
			removed++
		}
	}
	if staged.Added != added || staged.Changed != changed || staged.Removed != removed || staged.Unchanged != len(l.files)-added-changed {
		l.t.Fatalf("case %d: staged %+v, want %d added, %d changed, %d removed; from\n%q to\n%q", number, staged, added, changed, removed, before, l.files)
	}
	l.head = published

	want := map[string]string{}
	for path, content := range l.outside {
		want[path] = sum(content)
	}
	for path, content := range l.files {
		want[l.prefix.Key(path)] = sum(content)
	}
	if diff := cmp.Diff(want, l.sums()); diff != "" {
		l.t.Fatalf("case %d: the published tree (-want +got):\n%s", number, diff)
	}
	result, err := l.downloader.Run(l.t.Context(), l.task(number, txn.TypeCheckout, map[string]any{"prefix": l.prefix, "root": l.prefix == ""}), attempt{})
	if err != nil {
		l.t.Fatalf("case %d: check out: %v", number, err)
	}
	if diff := cmp.Diff(l.files, readTree(l.t, result.Checkout.Directory)); diff != "" {
		l.t.Fatalf("case %d: checked out (-want +got):\n%s", number, diff)
	}

	again, same := l.publish(number, "second")
	if !again.NoOp || again.StagingBranch != "" || same != l.head {
		l.t.Fatalf("case %d: the same tree again is %+v, published as %s on %s", number, again, same, l.head)
	}
}

// sums is what the published tree holds: path to the MD5 of the content. The
// checkout reads the content itself.
func (l *lane) sums() map[string]string {
	l.t.Helper()
	all := map[string]string{}
	for object, err := range l.lake.Objects(l.t.Context(), l.repo, l.head, "") {
		if err != nil {
			l.t.Fatal(err)
		}
		all[object.Path] = object.Checksum
	}
	return all
}

func sum(content string) string {
	digest := md5.Sum([]byte(content))
	return hex.EncodeToString(digest[:])
}

// publish stages and publishes the files as one step of a workflow of its own.
func (l *lane) publish(number uint64, name string) (txn.Staged, txn.CommitID) {
	l.t.Helper()
	task := l.task(number, txn.TypeStage, nil)
	directory := filepath.Join(l.root, string(task.Workflow), name)
	writeTree(l.t, l.random, directory, l.files)
	task.Input = l.input(map[string]any{"prefix": l.prefix, "root": l.prefix == "", "source": map[string]any{"directory": directory}, "allow_empty": true})
	staged, err := l.stager.Run(l.t.Context(), task, attempt{})
	if err != nil {
		l.t.Fatalf("case %d, %s: stage: %v", number, name, err)
	}
	if task.Output, err = json.Marshal(staged.Output()); err != nil {
		l.t.Fatal(err)
	}
	task.Status = txn.TaskCompleted
	l.tasks[task.ID] = task

	confirm := l.task(number, txn.TypePublish, map[string]any{"staged": staged.Staged})
	confirm.Workflow = task.Workflow
	confirm.Definition = &txn.TaskDefinition{
		Name: txn.TypePublish, TimeoutPolicy: "RETRY", ResponseTimeoutSeconds: 90,
		InputTemplate: json.RawMessage(`{"budget": {"observed_merge_p99_seconds": 10, "safety_margin_seconds": 20, "lakefs_merge_timeout_seconds": 30,
			"conductor_completion_timeout_seconds": 15, "worker_shutdown_grace_seconds": 30, "heartbeat_interval_seconds": 15}}`),
	}
	result, err := l.publisher.Run(l.t.Context(), confirm, attempt{})
	if err != nil {
		l.t.Fatalf("case %d, %s: publish: %v", number, name, err)
	}
	return staged.Staged, result.Workspace.Ref
}

func (l *lane) input(fields map[string]any) json.RawMessage {
	l.t.Helper()
	fields["workspace"] = txn.Workspace{Repository: l.repo, Branch: lakefstest.DefaultBranch, RefType: txn.RefTypeCommit, Ref: l.head}
	raw, err := json.Marshal(fields)
	if err != nil {
		l.t.Fatal(err)
	}
	return raw
}

func (l *lane) task(number uint64, taskType txn.TaskType, fields map[string]any) txn.Task {
	l.t.Helper()
	if fields == nil {
		fields = map[string]any{}
	}
	return txn.Task{
		ID: txn.TaskID(uuid.NewString()), Workflow: txn.WorkflowID(uuid.NewString()), Type: taskType,
		ReferenceName: txn.ReferenceName(fmt.Sprintf("case_%d", number)), Status: txn.TaskInProgress,
		PollCount: 1, StartTime: 1764443290123, Worker: "w", Input: l.input(fields),
	}
}

// writeTree makes a directory of these files, with an empty directory or two,
// which have no form in lakeFS.
func writeTree(t *testing.T, random *rand.Rand, directory string, files map[string]string) {
	t.Helper()
	fail := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	fail(os.MkdirAll(directory, 0o755))
	for path, content := range files {
		full := filepath.Join(directory, path)
		fail(os.MkdirAll(filepath.Dir(full), 0o755))
		fail(os.WriteFile(full, []byte(content), 0o644))
		if random.IntN(8) == 0 {
			fail(os.MkdirAll(filepath.Join(filepath.Dir(full), ".nothing", "at all"), 0o755))
		}
	}
}

func readTree(t *testing.T, directory string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(directory, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		files[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
