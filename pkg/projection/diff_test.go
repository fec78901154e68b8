//go:build unix

package projection

import (
	"cmp"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"perago/pkg/txn"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		prefix txn.Prefix
		local  map[string]string
		remote []txn.Object
		want   summary
		// hashed counts the files read: only those that a hash can decide.
		hashed int32
	}{
		{
			name: "nothing anywhere", prefix: "w/",
		},
		{
			name: "all new", prefix: "w/",
			local: map[string]string{"a": "1", "b/c": "22"},
			want:  summary{Added: []string{"a", "b/c"}, Bytes: 3},
		},
		{
			name: "all gone", prefix: "w/",
			remote: []txn.Object{plain("w/a", "1"), plain("w/b/c", "2")},
			want:   summary{Removed: []string{"w/a", "w/b/c"}},
		},
		{
			name: "equal", prefix: "w/",
			local:  map[string]string{"a": "1", "z": ""},
			remote: []txn.Object{plain("w/a", "1"), plain("w/z", "")},
			want:   summary{Unchanged: 2}, hashed: 2,
		},
		{
			name: "same size, other content", prefix: "w/",
			local:  map[string]string{"a": "Stun"},
			remote: []txn.Object{plain("w/a", "Stan")},
			want:   summary{Changed: []string{"a"}, Bytes: 4}, hashed: 1,
		},
		{
			name: "other size", prefix: "w/",
			local:  map[string]string{"a": "123"},
			remote: []txn.Object{plain("w/a", "12")},
			want:   summary{Changed: []string{"a"}, Bytes: 3},
		},
		{
			name: "checksums that are no plain MD5", prefix: "w/",
			local: map[string]string{"a": "1", "b": "1", "c": "1", "d": "1"},
			remote: []txn.Object{
				{Path: "w/a", Size: 1, Checksum: `"` + md5Of("1") + `"`},
				{Path: "w/b", Size: 1, Checksum: md5Of("1") + "-3"},
				{Path: "w/c", Size: 1, Checksum: ""},
				{Path: "w/d", Size: 1, Checksum: strings.ToUpper(md5Of("1"))},
			},
			want: summary{Changed: []string{"a", "b", "c", "d"}, Bytes: 4},
		},
		{
			name: "a file becomes a directory", prefix: "w/",
			local:  map[string]string{"a/b": "1"},
			remote: []txn.Object{plain("w/a", "1")},
			want:   summary{Added: []string{"a/b"}, Removed: []string{"w/a"}, Bytes: 1},
		},
		{
			name: "a directory becomes a file", prefix: "w/",
			local:  map[string]string{"a": "1"},
			remote: []txn.Object{plain("w/a/b", "1"), plain("w/a/c", "1")},
			want:   summary{Added: []string{"a"}, Removed: []string{"w/a/b", "w/a/c"}, Bytes: 1},
		},
		{
			name: "keys that are no paths", prefix: "w/",
			local:  map[string]string{"x": "1"},
			remote: []txn.Object{plain("w/", ""), plain("w/../x", "1"), plain("w//x", "1"), plain("w/x", "1"), plain("w/x/", "")},
			want:   summary{Unchanged: 1, Removed: []string{"w/", "w/../x", "w//x", "w/x/"}}, hashed: 1,
		},
		{
			name: "byte order, not directory order", prefix: "w/",
			local:  map[string]string{"a.b": "1", "a/b": "1", "a0": "1"},
			remote: []txn.Object{plain("w/a.b", "1"), plain("w/a/b", "1"), plain("w/a0", "1")},
			want:   summary{Unchanged: 3}, hashed: 3,
		},
		{
			name: "the hooks under a root prefix", prefix: "",
			local:  map[string]string{"a": "1", "_lakefs_actions.md": "1"},
			remote: []txn.Object{plain("_lakefs_actions.md", "1"), plain("_lakefs_actions/fence.yaml", "x"), plain("a", "2"), plain("z", "1")},
			want:   summary{Unchanged: 1, Changed: []string{"a"}, Removed: []string{"z"}, Bytes: 1}, hashed: 2,
		},
		{
			name: "a directory of that name below a prefix", prefix: "w/",
			local:  map[string]string{"_lakefs_actions/a": "1"},
			remote: []txn.Object{plain("w/_lakefs_actions/b", "1")},
			want:   summary{Added: []string{"_lakefs_actions/a"}, Removed: []string{"w/_lakefs_actions/b"}, Bytes: 1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root, base := newRoot(t)
			mkdir(t, filepath.Join(base, "w"))
			for name, content := range c.local {
				write(t, filepath.Join(base, "w", name), content)
			}
			var hashed atomic.Int32
			hash := func(ctx context.Context, entry Entry) (string, error) {
				hashed.Add(1)
				return testReader(t, root, "w").Hash(ctx, entry)
			}
			plan, err := Diff(t.Context(), c.prefix, scanned(t, root, "w"), Objects(c.remote), hash, 2)
			if err != nil {
				t.Fatal(err)
			}
			if hashed.Load() != c.hashed {
				t.Errorf("%d files were hashed, want %d", hashed.Load(), c.hashed)
			}
			if diff := gocmp.Diff(c.want, summarise(t, plan)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if empty := len(c.want.Added)+len(c.want.Changed)+len(c.want.Removed) == 0; plan.Empty() != empty {
				t.Errorf("Empty() is %v", plan.Empty())
			}
			if got, want := paths(taken(t, plan.Uploads())), slices.Sorted(slices.Values(slices.Concat(c.want.Added, c.want.Changed))); !slices.Equal(got, want) {
				t.Errorf("Uploads() are %q, want %q", got, want)
			}
		})
	}
}

func TestDiffRefusesWhatCannotBePublished(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, file string
		prefix     txn.Prefix
	}{
		{"a hook", "_lakefs_actions/fence.yaml", ""},
		{"key too long", strings.Repeat("d/", 510) + "1234", "w/"},
		// 342 characters of three bytes are within the limit only in characters.
		{"key too long in bytes", strings.Repeat("あ/", 256) + "1", "w/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root, base := newRoot(t)
			mkdir(t, filepath.Join(base, "d"))
			write(t, filepath.Join(base, "d", c.file), "1")
			never := func(func(txn.Object, error) bool) { t.Error("the listing was read") }
			_, err := Diff(t.Context(), c.prefix, scanned(t, root, "d"), never, testReader(t, root, "d").Hash, 2)
			var refused *UnrepresentableError
			if !errors.As(err, &refused) || refused.Path != c.file || !isTerminal(err) {
				t.Fatalf("got %v", err)
			}
		})
	}
	t.Run("the longest key passes", func(t *testing.T) {
		t.Parallel()
		root, base := newRoot(t)
		write(t, filepath.Join(base, "d", strings.Repeat("d/", 510)+"12"), "1")
		if _, err := Diff(t.Context(), "w/", scanned(t, root, "d"), Objects(nil), testReader(t, root, "d").Hash, 2); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDiffRefusesAListingItCannotTrust(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken listing")
	for name, remote := range map[string]iter.Seq2[txn.Object, error]{
		"out of order":   Objects([]txn.Object{plain("w/b", "1"), plain("w/a", "1")}),
		"twice":          Objects([]txn.Object{plain("w/b", "1"), plain("w/b", "1")}),
		"another prefix": Objects([]txn.Object{plain("w.txt", "1")}),
		"an error": func(yield func(txn.Object, error) bool) {
			_ = yield(plain("w/a", "1"), nil) && yield(txn.Object{}, broken)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, base := newRoot(t)
			write(t, filepath.Join(base, "d/a"), "1")
			plan, err := Diff(t.Context(), "w/", scanned(t, root, "d"), remote, testReader(t, root, "d").Hash, 2)
			if err == nil || !plan.Empty() {
				t.Errorf("got %v, %v", plan, err)
			}
			if name == "an error" && !errors.Is(err, broken) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestDiffReportsAFailedHash(t *testing.T) {
	t.Parallel()
	root, base := newRoot(t)
	var remote []txn.Object
	for i := range 50 {
		name := fmt.Sprintf("%02d", i)
		write(t, filepath.Join(base, "d", name), "1")
		remote = append(remote, plain("w/"+name, "1"))
	}
	entries := scanned(t, root, "d")
	bad := errors.New("unreadable")
	hash := func(ctx context.Context, entry Entry) (string, error) {
		if entry.Path == "07" {
			return "", bad
		}
		return md5Of("1"), ctx.Err()
	}
	if _, err := Diff(t.Context(), "w/", entries, Objects(remote), hash, 4); !errors.Is(err, bad) {
		t.Errorf("got %v", err)
	}
}

func TestDiffBoundsItsHashing(t *testing.T) {
	t.Parallel()
	const limit, files = 3, 40
	root, base := newRoot(t)
	var remote []txn.Object
	for i := range files {
		name := fmt.Sprintf("%02d", i)
		write(t, filepath.Join(base, "d", name), "1")
		remote = append(remote, plain("w/"+name, "1"))
	}
	entries := scanned(t, root, "d")
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int32
		gate, done := make(chan struct{}), make(chan Plan)
		go func() {
			plan, err := Diff(t.Context(), "w/", entries, Objects(remote), func(context.Context, Entry) (string, error) {
				running.Add(1)
				<-gate
				return md5Of("1"), nil
			}, limit)
			if err != nil {
				t.Error(err)
			}
			done <- plan
		}()
		synctest.Wait()
		if running.Load() != limit {
			t.Errorf("%d hashes run at once, want %d", running.Load(), limit)
		}
		close(gate)
		if plan := <-done; plan.Unchanged != files {
			t.Errorf("got %+v", plan)
		}
	})
}

// A listing that fails does not wait for hashes that take minutes.
func TestDiffEndsItsHashesWithTheListing(t *testing.T) {
	t.Parallel()
	root, base := newRoot(t)
	write(t, filepath.Join(base, "d/a"), "1")
	broken := errors.New("broken listing")
	remote := func(yield func(txn.Object, error) bool) {
		_ = yield(plain("w/a", "1"), nil) && yield(txn.Object{}, broken)
	}
	hash := func(ctx context.Context, _ Entry) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}
	if _, err := Diff(t.Context(), "w/", scanned(t, root, "d"), remote, hash, 2); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestDiffEndsWithItsContext(t *testing.T) {
	t.Parallel()
	root, base := newRoot(t)
	write(t, filepath.Join(base, "d/a"), "1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Diff(ctx, "w/", scanned(t, root, "d"), Objects([]txn.Object{plain("w/a", "1")}), testReader(t, root, "d").Hash, 2)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Applying the plan to the objects gives the files, whatever either was, and
// touches nothing that was equal.
func TestDiffAppliedGivesTheLocalTree(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	root, err := os.OpenRoot(base)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	// Few names and contents, so that trees meet; '.' and '0' are the neighbours
	// of '/'.
	part := rapid.SampledFrom([]string{"a", "a.", "a0", "b", ".h", "é"})
	name := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(part, 1, 3).Draw(t, "parts"), "/")
	})
	content := rapid.SampledFrom([]string{"", "1", "2", "12", "21"})
	rapid.Check(t, func(rt *rapid.T) {
		prefix := txn.Prefix(rapid.SampledFrom([]string{"", "w/", "w/a/"}).Draw(rt, "prefix"))
		files := withoutClashes(rapid.MapOfN(name, content, 0, 12).Draw(rt, "files"))
		objects := map[string]txn.Object{}
		for name, content := range rapid.MapOfN(name, content, 0, 12).Draw(rt, "objects") {
			key := prefix.Key(name)
			objects[key] = plain(key, content)
			if rapid.Bool().Draw(rt, "imported") {
				objects[key] = txn.Object{Path: key, Size: int64(len(content)), Checksum: md5Of(content) + "-1"}
			}
		}

		directory, err := os.MkdirTemp(base, "d")
		if err != nil {
			rt.Fatal(err)
		}
		for name, content := range files {
			write(t, filepath.Join(directory, name), content)
		}
		entries, err := Scan(t.Context(), root, filepath.Base(directory))
		if err != nil {
			rt.Fatal(err)
		}
		sorted := slices.SortedFunc(maps.Values(objects), func(a, b txn.Object) int { return cmp.Compare(a.Path, b.Path) })
		plan, err := Diff(t.Context(), prefix, entries, Objects(sorted), testReader(t, root, filepath.Base(directory)).Hash, 3)
		if err != nil {
			rt.Fatal(err)
		}

		for key, err := range plan.RemovedKeys() {
			if err != nil {
				rt.Fatal(err)
			}
			if _, ok := objects[key]; !ok {
				rt.Fatalf("removes %q, which is not there", key)
			}
			delete(objects, key)
		}
		uploaded := 0
		var bytes int64
		for entry, err := range plan.Uploads() {
			if err != nil {
				rt.Fatal(err)
			}
			key := prefix.Key(entry.Path)
			if before, ok := objects[key]; ok && before == plain(key, files[entry.Path]) {
				rt.Fatalf("uploads %q, which is equal", key)
			}
			objects[key] = plain(key, files[entry.Path])
			uploaded++
			bytes += int64(len(files[entry.Path]))
		}
		want := map[string]txn.Object{}
		for name, content := range files {
			want[prefix.Key(name)] = plain(prefix.Key(name), content)
		}
		if diff := gocmp.Diff(want, objects); diff != "" {
			rt.Fatalf("after the plan (-files +objects):\n%s", diff)
		}
		if uploaded+plan.Unchanged != len(files) || bytes != plan.Bytes {
			rt.Fatalf("%d uploads and %d unchanged of %d files, %d bytes in %+v", uploaded, plan.Unchanged, len(files), bytes, plan)
		}
	})
}

// withoutClashes leaves out what a file system cannot hold: a file that is also
// a directory.
func withoutClashes(files map[string]string) map[string]string {
	out := map[string]string{}
	for name, content := range files {
		clash := false
		for other := range files {
			clash = clash || strings.HasPrefix(other, name+"/")
		}
		if !clash {
			out[name] = content
		}
	}
	return out
}

type summary struct {
	Added, Changed, Removed []string
	Unchanged               int
	Bytes                   int64
}

func summarise(t testing.TB, p Plan) summary {
	t.Helper()
	var removed []string
	for key, err := range p.RemovedKeys() {
		if err != nil {
			t.Fatal(err)
		}
		removed = append(removed, key)
	}
	s := summary{Added: paths(taken(t, p.AddedFiles())), Changed: paths(taken(t, p.ChangedFiles())), Removed: removed, Unchanged: p.Unchanged, Bytes: p.Bytes}
	if len(s.Added) != p.Added || len(s.Changed) != p.Changed || len(removed) != p.Removed {
		t.Errorf("%+v is counted as %d added, %d changed and %d removed", s, p.Added, p.Changed, p.Removed)
	}
	return s
}

// treeOf is a tree of entries that come from no scan.
func treeOf(entries ...Entry) *Tree { return &Tree{rest: entries, length: len(entries)} }

func plain(key, content string) txn.Object {
	return txn.Object{Path: key, Size: int64(len(content)), Checksum: md5Of(content)}
}

func md5Of(content string) string {
	sum := md5.Sum([]byte(content))
	return hex.EncodeToString(sum[:])
}
