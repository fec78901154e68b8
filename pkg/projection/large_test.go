//go:build unix

package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"perago/pkg/txn"
)

// A tree that went to the disk in many runs is read like one that fits in memory: the
// same files in the same order, each time.
func TestScan_MergesTheRunsOfALargeTree(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	root, err := os.OpenRoot(base)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	part := rapid.SampledFrom([]string{"a", "a.", "a0", "b", ".h", "é"})
	name := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(part, 1, 3).Draw(t, "parts"), "/") })
	rapid.Check(t, func(rt *rapid.T) {
		directory, err := os.MkdirTemp(base, "d")
		if err != nil {
			rt.Fatal(err)
		}
		files := withoutClashes(rapid.MapOfN(name, rapid.SampledFrom([]string{"", "1", "22"}), 0, 30).Draw(rt, "files"))
		for name, content := range files {
			write(t, filepath.Join(directory, name), content)
		}
		whole := entriesOf(t, scanned(t, root, filepath.Base(directory)))
		memory := rapid.SampledFrom([]int{1, 2*entryBytes + 2, 10 * entryBytes}).Draw(rt, "memory")
		tree, err := scan(t.Context(), root, filepath.Base(directory), true, memory)
		if err != nil {
			rt.Fatal(err)
		}
		defer tree.Close()
		if memory == 1 && len(tree.ends) != len(files) {
			rt.Errorf("%d runs of %d files", len(tree.ends), len(files))
		}
		for range 2 {
			if got := entriesOf(t, tree); !slices.Equal(got, whole) {
				rt.Fatalf("got %q, want %q", paths(got), paths(whole))
			}
		}
		if tree.Len() != len(files) || len(whole) != len(files) || !slices.IsSortedFunc(whole, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) }) {
			rt.Errorf("%d files, %q of %d", tree.Len(), paths(whole), len(files))
		}
		if err := tree.Unchanged(t.Context()); err != nil {
			rt.Error(err)
		}
	})
}

// held is how much more memory is in use than before, in bytes, while kept is.
func held(before runtime.MemStats, kept ...any) int64 {
	after := inUse()
	runtime.KeepAlive(kept)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

func inUse() runtime.MemStats {
	var now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&now)
	return now
}

// The memory of a tree and its plan does not grow with the number of files, but for a
// byte each: whether all are added, all changed, all equal or all removed. As Go
// values they would take half as much again.
func TestDiff_HoldsLittleMemoryOfManyFiles(t *testing.T) {
	const files, most = 100_000, 12 << 20
	name := func(i int) string {
		return fmt.Sprintf("%s/day=%06d/part-%024d.parquet", strings.Repeat("t", 26), i/1000, i)
	}
	if len(name(0)) != 75 {
		t.Fatalf("the paths have %d bytes", len(name(0)))
	}
	objects := func(sum string, size int64) func(func(txn.Object, error) bool) {
		return func(yield func(txn.Object, error) bool) {
			for i := range files {
				if !yield(txn.Object{Path: "w/" + name(i), Size: size, Checksum: sum}, nil) {
					return
				}
			}
		}
	}
	hash := func(context.Context, Entry) (string, error) { return md5Of("1"), nil }
	before := inUse()
	tree := &Tree{memory: treeMemory}
	defer tree.Close()
	// Not in their order, as a walk finds them.
	for i := range files {
		entry := Entry{Path: name((i * 7919) % files), Size: 1, seen: look{device: 1, inode: uint64(i), size: 1, modified: 1764443290123456789}, scanned: true}
		if err := tree.add(entry); err != nil {
			t.Fatal(err)
		}
	}
	tree.sort()
	if got := held(before, tree); got > most {
		t.Errorf("a tree of %d files holds %d MiB", files, got>>20)
	}
	for what, c := range map[string]struct {
		local  *Tree
		remote func(func(txn.Object, error) bool)
		want   Plan
	}{
		"added":     {tree, Objects(nil), Plan{Added: files, Bytes: files}},
		"changed":   {tree, objects(md5Of("2"), 1), Plan{Changed: files, Bytes: files}},
		"unchanged": {tree, objects(md5Of("1"), 1), Plan{Unchanged: files}},
		"removed":   {treeOf(), objects(md5Of("1"), 1), Plan{Removed: files}},
	} {
		plan, err := Diff(t.Context(), "w/", c.local, c.remote, hash, 2)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Added != c.want.Added || plan.Changed != c.want.Changed || plan.Removed != c.want.Removed || plan.Unchanged != c.want.Unchanged || plan.Bytes != c.want.Bytes {
			t.Errorf("%s: the plan has %d added, %d changed, %d removed and %d unchanged", what, plan.Added, plan.Changed, plan.Removed, plan.Unchanged)
		}
		uploads, keys := 0, 0
		for _, err := range plan.Uploads() {
			if uploads++; err != nil {
				t.Fatal(err)
			}
			if uploads == files/2 {
				if got := held(before, tree, plan); got > most {
					t.Errorf("%s: half way through the uploads %d MiB are held", what, got>>20)
				}
			}
		}
		for _, err := range plan.RemovedKeys() {
			if keys++; err != nil {
				t.Fatal(err)
			}
		}
		if uploads != c.want.Added+c.want.Changed || keys != c.want.Removed {
			t.Errorf("%s: %d uploads and %d removed keys", what, uploads, keys)
		}
		if got := held(before, tree, plan); got > most {
			t.Errorf("%s: the tree and the plan hold %d MiB", what, got>>20)
		}
		plan.Close()
	}
}

// Empty directories inside one another, however many, end the scan at the first path
// that no key can have.
func TestScan_EndsAtADirectoryPathThatIsTooLong(t *testing.T) {
	root, base := newRoot(t)
	mkdir(t, filepath.Join(base, "w"))
	at, err := root.OpenRoot("w")
	if err != nil {
		t.Fatal(err)
	}
	for range 1100 {
		if err := at.Mkdir("d", 0o755); err != nil {
			t.Fatal(err)
		}
		below, err := at.OpenRoot("d")
		if err != nil {
			t.Fatal(err)
		}
		at.Close()
		at = below
	}
	at.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	tree, err := Scan(t.Context(), root, "w")
	runtime.ReadMemStats(&after)
	var refused *UnrepresentableError
	if !errors.As(err, &refused) || len(refused.Path) != 1025 || !isTerminal(err) {
		t.Fatalf("got %v, %v", tree, err)
	}
	if text := err.Error(); len(text) > 450 || !strings.Contains(text, "has 1025 bytes, and lakeFS takes 1024") {
		t.Errorf("the message is %q", text)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 32<<20 {
		t.Errorf("%d MiB were allocated", got>>20)
	}
}

// The longest path of a directory is one of its own, and a file may have it as well.
func TestScan_TakesTheLongestDirectoryPath(t *testing.T) {
	t.Parallel()
	root, base := newRoot(t)
	mkdir(t, filepath.Join(base, "w", strings.Repeat("d/", 511)+"dd"))
	write(t, filepath.Join(base, "w", strings.Repeat("d/", 511)+"ff"), "x")
	if tree := scanned(t, root, "w"); tree.Len() != 1 {
		t.Errorf("got %q", paths(entriesOf(t, tree)))
	}
}
