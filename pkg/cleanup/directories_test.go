package cleanup_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"perago/pkg/cleanup"
	"perago/pkg/projection"
	"perago/pkg/txn"
)

// ends is a Conductor that knows these workflows.
type ends map[txn.WorkflowID]txn.Workflow

func (e ends) Workflow(_ context.Context, id txn.WorkflowID) (txn.Workflow, error) {
	switch w, ok := e[id]; {
	case !ok:
		return w, txn.ErrNotFound
	case w.Status == "":
		return w, errors.New("connection refused")
	default:
		return w, nil
	}
}

func (e ends) WorkflowStatus(ctx context.Context, id txn.WorkflowID) (txn.WorkflowStatus, error) {
	w, err := e.Workflow(ctx, id)
	return w.Status, err
}

func directories(t *testing.T, workflows cleanup.WorkflowEnds) (root string, sweep func() (cleanup.Swept, map[string]cleanup.State)) {
	t.Helper()
	base := t.TempDir()
	root = filepath.Join(base, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	opened, err := os.OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return root, func() (cleanup.Swept, map[string]cleanup.State) {
		t.Helper()
		decided := map[string]cleanup.State{}
		d := &cleanup.Directories{
			Root: opened, Workflows: workflows, TTL: ttl, Now: time.Now,
			Decided: func(name string, state cleanup.State, reason string) {
				if reason == "" {
					t.Errorf("%s is %s without a reason", name, state)
				}
				decided[name] = state
			},
		}
		swept, err := d.Sweep(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return swept, decided
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func TestDirectoriesGoWithTheirWorkflows(t *testing.T) {
	t.Parallel()
	long, short := time.Now().Add(-2*ttl), time.Now().Add(-ttl/2)
	root, sweep := directories(t, ends{
		"completed":       {Status: txn.WorkflowCompleted, Ended: time.Now()},
		"running":         {Status: txn.WorkflowRunning},
		"paused":          {Status: txn.WorkflowPaused},
		"failed-long":     {Status: txn.WorkflowFailed, Ended: long},
		"failed-short":    {Status: txn.WorkflowFailed, Ended: short},
		"terminated-long": {Status: txn.WorkflowTerminated, Ended: long},
		"timed-out-short": {Status: txn.WorkflowTimedOut, Ended: short},
		"failed-unknown":  {Status: txn.WorkflowFailed},
		"a-new-status":    {Status: "SOMETHING_NEW", Ended: long},
		"unreachable":     {},
	})
	want := map[string]cleanup.State{
		"completed": cleanup.StateDeleted, "failed-long": cleanup.StateDeleted, "terminated-long": cleanup.StateDeleted,
		"running": cleanup.StateKept, "paused": cleanup.StateKept, "failed-short": cleanup.StateKept, "timed-out-short": cleanup.StateKept,
		"failed-unknown": cleanup.StateKept, "a-new-status": cleanup.StateKept, "nobody-s": cleanup.StateKept,
		"unreachable": cleanup.StateFailed,
	}
	for name := range want {
		touch(t, filepath.Join(root, name, "task", "sub", "file"))
	}
	touch(t, filepath.Join(root, "a-file"))
	swept, decided := sweep()
	if swept != (cleanup.Swept{Deleted: 3, Kept: 7, Failed: 1}) {
		t.Errorf("%+v", swept)
	}
	for name, state := range want {
		if decided[name] != state || exists(t, filepath.Join(root, name)) == (state == cleanup.StateDeleted) {
			t.Errorf("%s: %s, want %s", name, decided[name], state)
		}
	}
	if !exists(t, filepath.Join(root, "a-file")) || len(decided) != len(want) {
		t.Errorf("decided %v", decided)
	}
}

// Links are removed, never followed: inside a directory, as the directory, and
// up and out of the root.
func TestLinksAreRemovedAndNotFollowed(t *testing.T) {
	t.Parallel()
	root, sweep := directories(t, ends{
		"inside":   {Status: txn.WorkflowCompleted},
		"itself":   {Status: txn.WorkflowCompleted},
		"dangling": {Status: txn.WorkflowCompleted},
		"neighbor": {Status: txn.WorkflowRunning},
	})
	outside := filepath.Join(filepath.Dir(root), "outside")
	touch(t, filepath.Join(outside, "kept"))
	touch(t, filepath.Join(root, "neighbor", "kept"))
	touch(t, filepath.Join(root, "inside", "task", "file"))
	for link, target := range map[string]string{
		"inside/task/out":      outside,
		"inside/task/file-out": filepath.Join(outside, "kept"),
		"inside/up":            "../..",
		"inside/neighbor":      "../neighbor",
		"itself":               outside,
		"dangling":             "nowhere",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if swept, decided := sweep(); swept != (cleanup.Swept{Deleted: 3, Kept: 1}) {
		t.Errorf("%+v, %v", swept, decided)
	}
	for path, want := range map[string]bool{
		filepath.Join(outside, "kept"): true, filepath.Join(root, "neighbor", "kept"): true,
		filepath.Join(root, "inside"): false, filepath.Join(root, "itself"): false, filepath.Join(root, "dangling"): false,
	} {
		if exists(t, path) != want {
			t.Errorf("%s is there: %v", path, !want)
		}
	}
}

// Removing entries while the root is read skips none of them.
func TestManyDirectories(t *testing.T) {
	t.Parallel()
	workflows := ends{}
	root, sweep := directories(t, workflows)
	const many = 1500
	for i := range many {
		name := fmt.Sprintf("w-%04d", i)
		workflows[txn.WorkflowID(name)] = txn.Workflow{Status: txn.WorkflowCompleted}
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if swept, _ := sweep(); swept != (cleanup.Swept{Deleted: many}) {
		t.Errorf("%+v", swept)
	}
	left, err := os.ReadDir(root)
	if err != nil || len(left) != 0 {
		t.Errorf("%d left, %v", len(left), err)
	}
}

// silent is a Conductor that takes questions and answers none.
type silent struct{}

func (silent) Workflow(ctx context.Context, _ txn.WorkflowID) (txn.Workflow, error) {
	<-ctx.Done()
	return txn.Workflow{}, ctx.Err()
}

func (s silent) WorkflowStatus(ctx context.Context, id txn.WorkflowID) (txn.WorkflowStatus, error) {
	workflow, err := s.Workflow(ctx, id)
	return workflow.Status, err
}

// A sweep does not wait for ever for what became of one workflow.
func TestASilentConductorEndsNoSweep(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	touch(t, filepath.Join(path, "a", "file"))
	touch(t, filepath.Join(path, "b", "file"))
	synctest.Test(t, func(t *testing.T) {
		root, err := os.OpenRoot(path)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		began := time.Now()
		swept, err := (&cleanup.Directories{Root: root, Workflows: silent{}, Now: time.Now}).Sweep(t.Context())
		if err != nil || swept.Failed != 2 || time.Since(began) != 2*time.Minute {
			t.Errorf("%+v, %v after %s", swept, err, time.Since(began))
		}
	})
}

// rerun is a Conductor whose one workflow is COMPLETED when it is read first, and of
// another status afterwards. meanwhile is what happens before the second read.
type rerun struct {
	status    txn.WorkflowStatus
	err       error
	reads     int
	meanwhile func()
}

func (r *rerun) WorkflowStatus(context.Context, txn.WorkflowID) (txn.WorkflowStatus, error) {
	if r.reads++; r.reads == 1 {
		return txn.WorkflowCompleted, nil
	}
	if r.reads == 2 && r.meanwhile != nil {
		r.meanwhile()
	}
	return r.status, r.err
}

func (r *rerun) Workflow(ctx context.Context, id txn.WorkflowID) (txn.Workflow, error) {
	status, err := r.WorkflowStatus(ctx, id)
	return txn.Workflow{ID: id, Status: status, Ended: time.Now()}, err
}

const manyFiles = 500

// many makes the files of a user task and gives a function that scans them as a
// stage does.
func many(t *testing.T, root string) (scan func() (int, error)) {
	t.Helper()
	for i := range manyFiles {
		touch(t, filepath.Join(root, "w", "task", fmt.Sprintf("d%d", i%7), fmt.Sprint(i)))
	}
	opened, err := os.OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return func() (int, error) {
		tree, err := projection.Scan(t.Context(), opened, "w/task")
		if err != nil {
			return 0, err
		}
		return tree.Len(), errors.Join(tree.Close(), projection.CheckSetAside(opened, "w"))
	}
}

// An operator reruns a workflow after the sweep has read that it is COMPLETED. While
// the sweep is at the directory a stage finds nothing, and afterwards everything.
func TestDirectories_ReadTheStatusAgainBeforeTheyRemove(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]*rerun{
		"rerun":              {status: txn.WorkflowRunning},
		"failed":             {status: txn.WorkflowFailed},
		"unknown by then":    {err: txn.ErrNotFound},
		"Conductor was lost": {err: errors.New("connection refused")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, sweep := directories(t, r)
			scan := many(t, root)
			r.meanwhile = func() {
				if files, err := scan(); err == nil {
					t.Errorf("a stage takes %d of %d files from under the sweep", files, manyFiles)
				}
			}
			swept, decided := sweep()
			if files, err := scan(); files != manyFiles || err != nil || swept.Deleted != 0 {
				t.Errorf("%d of %d files are left (%v); swept %+v, %v", files, manyFiles, err, swept, decided)
			}
		})
	}
}

// The user task that was rerun writes while its directory is set aside. Nothing is
// lost, no stage takes a part, and each sweep tells of it until the workflow ends.
func TestDirectories_KeepBothWhenTheNameWasMadeAnew(t *testing.T) {
	t.Parallel()
	r := &rerun{status: txn.WorkflowRunning}
	root, sweep := directories(t, r)
	scan := many(t, root)
	r.meanwhile = func() { touch(t, filepath.Join(root, "w", "task", "new")) }
	for range 2 {
		swept, decided := sweep()
		if swept.Failed != 1 || swept.Deleted != 0 {
			t.Errorf("swept %+v, %v", swept, decided)
		}
		var aside *projection.SetAsideError
		if files, err := scan(); !errors.As(err, &aside) {
			t.Errorf("a stage takes %d files: %v", files, err)
		} else if old, err := filepath.Glob(filepath.Join(root, aside.Directory, "task", "*", "*")); len(old) != manyFiles || err != nil {
			t.Errorf("%d files are set aside, %v", len(old), err)
		}
		if !exists(t, filepath.Join(root, "w", "task", "new")) {
			t.Error("the new file is gone")
		}
	}
	r.status = txn.WorkflowCompleted
	if swept, _ := sweep(); swept.Deleted != 2 || exists(t, filepath.Join(root, "w")) {
		t.Errorf("after its end: %+v", swept)
	}
	left, err := os.ReadDir(root)
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Another sweep, or a user task, is faster while this sweep asks Conductor about what
// it has set aside.
func TestDirectories_AnotherIsFasterMeanwhile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status    txn.WorkflowStatus
		meanwhile func(root *os.Root, aside string) error
		failed    bool
		left      int
	}{
		"it removes":                  {txn.WorkflowCompleted, (*os.Root).RemoveAll, false, 0},
		"it removes, and this is not": {txn.WorkflowRunning, (*os.Root).RemoveAll, false, 0},
		"it puts back":                {txn.WorkflowRunning, func(root *os.Root, aside string) error { return root.Rename(aside, "w") }, false, 1},
		"an empty directory is made":  {txn.WorkflowRunning, func(root *os.Root, _ string) error { return root.Mkdir("w", 0o755) }, true, 2},
		"a link is made": {txn.WorkflowRunning, func(root *os.Root, aside string) error {
			// Rename would replace it, if a link was set aside.
			return errors.Join(root.RemoveAll(aside), root.Symlink("old", aside), root.Symlink("new", "w"))
		}, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &rerun{status: c.status}
			path, sweep := directories(t, r)
			touch(t, filepath.Join(path, "w", "task", "file"))
			root, err := os.OpenRoot(path)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			r.meanwhile = func() {
				names, err := filepath.Glob(filepath.Join(path, ".perago-*"))
				if err != nil || len(names) != 1 {
					t.Fatalf("set aside: %v, %v", names, err)
				}
				if err := c.meanwhile(root, filepath.Base(names[0])); err != nil {
					t.Fatal(err)
				}
			}
			swept, decided := sweep()
			if left, err := os.ReadDir(path); err != nil || len(left) != c.left || swept.Deleted != 0 || swept.Failed == 1 != c.failed {
				t.Errorf("left %v, %v; swept %+v, %v", left, err, swept, decided)
			}
		})
	}
}

// A sweep that ended in the middle is gone on with by the next one.
func TestDirectories_FinishWhatACrashLeft(t *testing.T) {
	t.Parallel()
	name := func(workflow txn.WorkflowID, decided bool) string {
		return txn.Removal{Token: strings.Repeat("A", txn.RemovalToken), Workflow: workflow, Decided: decided}.Name()
	}
	root, sweep := directories(t, ends{
		"running":   {Status: txn.WorkflowRunning},
		"completed": {Status: txn.WorkflowCompleted},
		"down":      {},
	})
	for _, one := range []string{
		name("running", false), name("completed", false), name("down", false), name("nobody-s", false),
		// Its removal was decided, whatever became of the workflow since.
		name("running", true), name("down", true),
		".perago-of-somebody",
	} {
		touch(t, filepath.Join(root, one, "task", "file"))
	}
	swept, decided := sweep()
	if swept != (cleanup.Swept{Deleted: 3, Kept: 3, Failed: 1}) {
		t.Errorf("%+v, %v", swept, decided)
	}
	left, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range left {
		names = append(names, entry.Name())
		if !exists(t, filepath.Join(root, entry.Name(), "task", "file")) {
			t.Errorf("%s is not whole", entry.Name())
		}
	}
	if want := []string{".perago-of-somebody", "down", "nobody-s", "running"}; !slices.Equal(names, want) {
		t.Errorf("left %v, want %v", names, want)
	}
}

// Several stage workers sweep one shared volume at once.
func TestDirectories_SeveralSweepsAtOnce(t *testing.T) {
	t.Parallel()
	workflows := ends{}
	root, _ := directories(t, workflows)
	for i := range 200 {
		id := txn.WorkflowID(fmt.Sprintf("w-%03d", i))
		workflows[id] = txn.Workflow{Status: txn.WorkflowCompleted}
		if i%2 == 0 {
			workflows[id] = txn.Workflow{Status: txn.WorkflowRunning}
		}
		touch(t, filepath.Join(root, string(id), "task", "file"))
	}
	var sweeps sync.WaitGroup
	for range 4 {
		opened, err := os.OpenRoot(root)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = opened.Close() })
		sweeps.Go(func() {
			swept, err := (&cleanup.Directories{Root: opened, Workflows: workflows, TTL: ttl, Now: time.Now}).Sweep(t.Context())
			if err != nil || swept.Failed != 0 {
				t.Errorf("%+v, %v", swept, err)
			}
		})
	}
	sweeps.Wait()
	left, err := filepath.Glob(filepath.Join(root, "*", "task", "file"))
	if err != nil || len(left) != 100 {
		t.Errorf("%d directories are left, want those of 100 workflows that run; %v", len(left), err)
	}
}
