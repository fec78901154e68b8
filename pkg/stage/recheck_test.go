//go:build unix

package stage_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"perago/pkg/projection"
	"perago/pkg/stage"
	"perago/pkg/txn"
)

// phases is an attempt that calls a function when a phase begins.
type phases struct {
	attempt
	begin map[string]func()
}

func (p *phases) Phase(name string) func() {
	if begin := p.begin[name]; begin != nil {
		begin()
	}
	return p.attempt.Phase(name)
}

// What a process that the task left behind writes before the commit is found: the
// stage fails, names the file and commits nothing. That holds also where the files
// are what the branch holds already.
func TestStage_LooksAgainBeforeTheCommit(t *testing.T) {
	t.Parallel()
	held := map[string]string{"data/a": "1", "data/sub/b": "1"}
	for tree, files := range map[string]map[string]string{
		"changed files":   {"a": "2", "sub/b": "1"},
		"unchanged files": {"a": "1", "sub/b": "1"},
		"a file less":     {"sub/b": "1", "a": "1", "c": "3"},
	} {
		for name, c := range map[string]struct {
			change func(directory string) error
			path   string
		}{
			"a file more":      {func(d string) error { return os.WriteFile(filepath.Join(d, "sub", "late"), nil, 0o644) }, "sub/late"},
			"a file rewritten": {func(d string) error { return os.WriteFile(filepath.Join(d, "sub", "b"), []byte("12"), 0o644) }, "sub/b"},
			"a file touched": {func(d string) error {
				return os.Chtimes(filepath.Join(d, "a"), time.Time{}, time.Now().Add(time.Hour))
			}, "a"},
			"a file less": {func(d string) error { return os.Remove(filepath.Join(d, "a")) }, "a"},
		} {
			t.Run(tree+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, held)
				directory := b.write(files)
				a := &phases{}
				a.begin = map[string]func(){"recheck": func() {
					if err := c.change(directory); err != nil {
						t.Error(err)
					}
				}}
				result, err := b.stager.Run(t.Context(), b.task(directory, nil), a)
				var changed *projection.ChangedError
				if !errors.As(err, &changed) || changed.Path != c.path || errors.As(err, new(*txn.TerminalError)) || result.Output() != nil {
					t.Errorf("got %v, output %v; want that %s changed", err, result.Output(), c.path)
				}
				if err != nil && !strings.Contains(err.Error(), "complete the user task only after") {
					t.Errorf("%q does not say what to do", err)
				}
				if n := b.wire.count(http.MethodPost, "/commits"); n != 0 {
					t.Errorf("%d commits, want none", n)
				}
			})
		}
	}
}

// endless is a lake that holds many objects and takes everything. It has no memory.
type endless struct {
	stage.Lake
	objects int
	removed int
}

func (e *endless) Commit(context.Context, txn.Repository, txn.CommitID) (txn.Commit, error) {
	return txn.Commit{}, nil
}

func (e *endless) Objects(_ context.Context, _ txn.Repository, ref txn.CommitID, prefix txn.Prefix) iter.Seq2[txn.Object, error] {
	return func(yield func(txn.Object, error) bool) {
		if ref == "staged" {
			return
		}
		name := []byte(string(prefix) + strings.Repeat("d", 60) + "/00000000")
		for range e.objects {
			for i := len(name) - 1; ; i-- {
				if name[i]++; name[i] <= '9' {
					break
				}
				name[i] = '0'
			}
			if !yield(txn.Object{Path: string(name), Size: 1, Checksum: "c4ca4238a0b923820dcc509a6f75849b"}, nil) {
				return
			}
		}
	}
}

func (e *endless) Head(context.Context, txn.Repository, txn.Branch) (txn.CommitID, error) {
	return "head", nil
}

func (e *endless) UploadLimit(context.Context, int64) (int64, error) { return 0, nil }

func (e *endless) CreateBranch(context.Context, txn.Repository, txn.Branch, txn.CommitID) error {
	return nil
}

func (e *endless) DeleteObjects(_ context.Context, _ txn.Repository, _ txn.Branch, paths []string) error {
	if len(paths) > 1000 {
		return errors.New("too many paths")
	}
	e.removed += len(paths)
	return nil
}

func (e *endless) Upload(_ context.Context, _ txn.Repository, _ txn.Branch, path string, content txn.Content) (txn.Object, error) {
	file, err := content.Open()
	if err != nil {
		return txn.Object{}, err
	}
	defer file.Close()
	n, err := io.Copy(io.Discard, file)
	return txn.Object{Path: path, Size: n, Checksum: content.Sum()}, err
}

func (e *endless) CreateCommit(_ context.Context, _ txn.Repository, _ txn.Branch, _ string, _ map[string]string) (txn.Commit, error) {
	return txn.Commit{ID: "staged", Parents: []txn.CommitID{txn.CommitID(strings.Repeat("a", 64))}}, nil
}

// A prefix of many objects is replaced by an empty directory in little memory. As a Go
// list the keys alone would be twice the bound.
func TestStage_RemovesManyObjectsInLittleMemory(t *testing.T) {
	const objects, most = 200_000, 10 << 20
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	directory := filepath.Join(root.Name(), string(workflow), "task")
	if err := os.MkdirAll(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	lake := &endless{objects: objects}
	stager := &stage.Stager{
		Lake: lake, Root: root, Identity: "test", Allowed: txn.AllowList{"*"}, UploadConcurrency: 4,
		NewExecutionID: func() (txn.ExecutionID, error) { return txn.ExecutionID(uuid.NewString()), nil },
	}
	b := &bench{t: t, repo: "repo", first: txn.CommitID(strings.Repeat("a", 64))}
	before := inUse()
	a := &phases{}
	a.begin = map[string]func(){"remove": func() {
		if held := int64(inUse().HeapAlloc) - int64(before.HeapAlloc); held > most {
			t.Errorf("%d MiB are held before the removal", held>>20)
		}
	}}
	result, err := stager.Run(t.Context(), b.task(directory, map[string]any{"allow_empty": true}), a)
	if err != nil || result.Staged.Removed != objects || lake.removed != objects {
		t.Errorf("%+v, %d removed, %v", result.Staged, lake.removed, err)
	}
}

func inUse() runtime.MemStats {
	var now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&now)
	return now
}
