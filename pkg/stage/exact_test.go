package stage_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/projection"
	"perago/pkg/txn"
)

// stageTree makes the step's directory exactly these files, stages it on the
// commit that the bench is at, and goes on from what was staged.
func (b *bench) stageTree(files map[string]string) txn.Staged {
	b.t.Helper()
	if err := os.RemoveAll(filepath.Join(b.root, string(workflow), "task")); err != nil {
		b.t.Fatal(err)
	}
	result, err := b.stager.Run(b.t.Context(), b.task(b.write(files), map[string]any{"allow_empty": true, "prefix": "data"}), &attempt{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.first = result.Staged.Commit
	return result.Staged
}

// Each tree replaces the one before it whole: files become directories and
// directories files, names are as long as they may be, and nothing beside the
// prefix is touched.
func TestOneTreeAfterAnother(t *testing.T) {
	t.Parallel()
	outside := map[string]string{"data": "a file", "data.json": "j", "data-/x": "x", "data0": "0", "data2/z": "z", "dat/a": "a"}
	b := newBench(t, outside)
	long := strings.Repeat("n", 255)
	// The longest key that lakeFS takes: 5 bytes of the prefix, and 1019 more.
	longest := strings.Repeat(long[:254]+"/", 3) + strings.Repeat("x", 254)
	for i, files := range []map[string]string{
		{"a": "1", "b": "2"},
		{"a/b": "1", "b": "2"},
		{"a/b/c": "1", "a.b": "3", "a!": "4", "b": "2"},
		{"a": "1", "b/a": "2"},
		{".hidden": "", ".a/.b": "", "empty": "", "sp ace": "1", "pl+us": "2", "pc%41": "3", "100%": "4", "h#x": "5", "q?x": "6", "a&b=c": "7", "new\nline": "8", `back\slash`: "9", "тест": "10"},
		{long: "1", longest: "2"},
		{long: "1", longest[:254]: "3"},
		{},
		{"a": "1"},
	} {
		staged := b.stageTree(files)
		if staged.NoOp {
			t.Errorf("tree %d is a no-op", i)
		}
		want := maps.Clone(outside)
		for path, content := range files {
			want["data/"+path] = content
		}
		if diff := cmp.Diff(want, lakefstest.Tree(t, b.lake, b.repo, b.first)); diff != "" {
			t.Fatalf("tree %d (-want +got):\n%s", i, diff)
		}
		if again := b.stageTree(files); !again.NoOp || again.StagingBranch != "" || again.Unchanged != len(files) {
			t.Errorf("tree %d again: %+v", i, again)
		}
	}
}

// A key that lakeFS would refuse is seen before anything is written.
func TestKeyThatIsTooLong(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data/a": "1"})
	name := strings.Repeat(strings.Repeat("n", 254)+"/", 3) + strings.Repeat("x", 255)
	_, err := b.stager.Run(t.Context(), b.task(b.write(map[string]string{name: "x"}), nil), &attempt{})
	if !errors.As(err, new(*txn.TerminalError)) || !strings.Contains(err.Error(), "1025 bytes, more than lakeFS's 1024") || b.wire.writes() != 0 {
		t.Errorf("got %v after %d writes", err, b.wire.writes())
	}
}

// More files than a page of the listing, and more removals than a bulk delete.
func TestThousandsOfObjects(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data": "a file", "data2/z": "z"})
	b.stager.UploadConcurrency = 32
	files := map[string]string{}
	for i := range 2100 {
		files[fmt.Sprintf("%d/f%04d", i%3, i)] = fmt.Sprint(i)
	}
	if staged := b.stageTree(files); staged.Added != 2100 {
		t.Fatalf("%+v", staged)
	}
	staged := b.stageTree(map[string]string{"0/f0000": "changed", "1/f0001": "1"})
	if staged.Removed != 2098 || staged.Unchanged != 1 || staged.Changed != 1 || staged.Added != 0 {
		t.Errorf("%+v", staged)
	}
	if n := b.wire.count(http.MethodPost, "/objects/delete"); n != 3 {
		t.Errorf("%d bulk deletes for 2098 objects, want 3", n)
	}
	want := map[string]string{"data": "a file", "data2/z": "z", "data/0/f0000": "changed", "data/1/f0001": "1"}
	if diff := cmp.Diff(want, lakefstest.Tree(t, b.lake, b.repo, b.first)); diff != "" {
		t.Error(diff)
	}
}

// A file that changes between the scan and the end of its upload is not
// published: not half of it, and not another one than was compared.
func TestFileThatChangesWhileItIsRead(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("0123456789", 200_000)
	for name, change := range map[string]func(path string) error{
		"written to": func(path string) error {
			file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			_, err = file.WriteString("more")
			return errors.Join(err, file.Close())
		},
		"cut short": func(path string) error { return os.Truncate(path, 10) },
		"replaced": func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte(content), 0o644))
		},
		"replaced by a link":      func(path string) error { return errors.Join(os.Rename(path, path+"2"), os.Symlink(path+"2", path)) },
		"replaced by a FIFO":      func(path string) error { return errors.Join(os.Remove(path), mkfifo(path)) },
		"given another time":      func(path string) error { return os.Chtimes(path, time.Now(), time.Now().Add(time.Hour)) },
		"gone":                    os.Remove,
		"under another directory": func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+"2") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, map[string]string{"data/sub/a": "1"})
			directory := b.write(map[string]string{"sub/a": content})
			next := b.wire.next
			b.wire.next = roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/branches") {
					if err := change(filepath.Join(directory, "sub", "a")); err != nil {
						t.Error(err)
					}
				}
				return next.RoundTrip(r)
			})
			result, err := b.stager.Run(t.Context(), b.task(directory, nil), &attempt{})
			var changed *projection.ChangedError
			if !errors.As(err, &changed) || changed.Path != "sub/a" || errors.As(err, new(*txn.TerminalError)) || result.Output() != nil {
				t.Errorf("got %v, output %v; want that sub/a changed", err, result.Output())
			}
			if n := b.wire.count(http.MethodPost, "/commits"); n != 0 {
				t.Errorf("%d commits, want none", n)
			}
		})
	}
}
