//go:build unix

package projection

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// numbered is a file with a number of its own making.
type numbered struct {
	fs.FileInfo
	inode uint64
}

func (n numbered) Sys() any {
	stat := *n.FileInfo.Sys().(*syscall.Stat_t)
	stat.Ino = n.inode
	return &stat
}

// Where the number of a file is another one at each look, the file system is named as
// the cause. A file that was replaced has one other number and is a changed file.
func TestOpen_NamesAFileSystemWithoutLastingNumbers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		numbers  []uint64
		unsteady bool
	}{
		"another at each look": {[]uint64{1, 2, 3}, true},
		"replaced once":        {[]uint64{1, 1, 1}, false},
		"replaced twice":       {[]uint64{1, 2, 2}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, base := newRoot(t)
			write(t, filepath.Join(base, "w/a"), "x")
			entry := entriesOf(t, scanned(t, root, "w"))[0]
			reader, looks := testReader(t, root, "w"), 0
			reader.lstat = func(directory *os.Root, name string) (fs.FileInfo, error) {
				info, err := directory.Lstat(name)
				looks++
				return numbered{info, entry.seen.inode + c.numbers[looks-1]}, err
			}
			_, err := reader.Open(entry)
			var unsteady *UnsteadyError
			var changed *ChangedError
			switch {
			case c.unsteady && (!errors.As(err, &unsteady) || !isTerminal(err) || !strings.Contains(err.Error(), "another inode number at each look") || !strings.Contains(err.Error(), "file system")):
				t.Errorf("got %v; want that the file system is at fault", err)
			case !c.unsteady && (!errors.As(err, &changed) || isTerminal(err)):
				t.Errorf("got %v; want a ChangedError", err)
			}
		})
	}
}

// Directories are looked at the same way, and a file that changes is no evidence.
func TestUnsteady(t *testing.T) {
	t.Parallel()
	root, base := newRoot(t)
	write(t, filepath.Join(base, "a"), "x")
	was := entriesOf(t, scanned(t, root, "."))[0].seen
	look := func(add uint64) look { l := was; l.inode += add; return l }
	numbers := func(numbers ...uint64) func() (fs.FileInfo, error) {
		return func() (fs.FileInfo, error) {
			info, err := root.Lstat("a")
			next := numbers[0]
			numbers = numbers[1:]
			return numbered{info, was.inode + next}, err
		}
	}
	if err := unsteady("d", was, look(1), numbers(2, 3), root); !errors.As(err, new(*UnsteadyError)) {
		t.Errorf("another number at each look: %v", err)
	}
	if err := unsteady("d", was, look(1), numbers(2, 0), root); err != nil {
		t.Errorf("the first number again: %v", err)
	}
	longer := look(1)
	longer.size++
	if err := unsteady("d", was, longer, numbers(2, 3), root); err != nil {
		t.Errorf("another size: %v", err)
	}
	gone := func() (fs.FileInfo, error) { return nil, fs.ErrNotExist }
	if err := unsteady("d", was, look(1), gone, root); err != nil {
		t.Errorf("gone: %v", err)
	}
}

// Every difference that a look can see is found, and named by its path, in a tree that
// fits in memory and in one that does not.
func TestTree_UnchangedNamesTheFirstDifference(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(t *testing.T, base string)
		path   string
		detail string
	}{
		"nothing":              {func(*testing.T, string) {}, "", ""},
		"an empty directory":   {func(t *testing.T, base string) { mkdir(t, base+"/w/none") }, "", ""},
		"another mode":         {func(t *testing.T, base string) { must(t, os.Chmod(base+"/w/b", 0o600)) }, "", ""},
		"a file more":          {func(t *testing.T, base string) { write(t, base+"/w/c/x", "") }, "c/x", "was not there when the files were listed"},
		"a file more, last":    {func(t *testing.T, base string) { write(t, base+"/w/zz", "") }, "zz", "was not there when the files were listed"},
		"a file less":          {func(t *testing.T, base string) { must(t, os.Remove(base+"/w/b")) }, "b", "is gone"},
		"the last file less":   {func(t *testing.T, base string) { must(t, os.Remove(base+"/w/z")) }, "z", "is gone"},
		"a longer file":        {func(t *testing.T, base string) { appendTo(t, base+"/w/c/d", "more") }, "c/d", "has 5 bytes, not 1"},
		"a rewritten file":     {func(t *testing.T, base string) { touch(t, base+"/w/c/d") }, "c/d", "has another modification time"},
		"two of them":          {func(t *testing.T, base string) { touch(t, base+"/w/z"); touch(t, base+"/w/b") }, "b", "has another modification time"},
		"a replaced file":      {replaceKeepingTime, "b", "is another file now"},
		"a link":               {link("b", "w/new"), "new", "is a symbolic link"},
		"a renamed file":       {func(t *testing.T, base string) { rename(t, base+"/w/b", base+"/w/bb") }, "b", "is gone"},
		"the directory itself": {func(t *testing.T, base string) { rename(t, base+"/w", base+"/v") }, ".", "is gone"},
	} {
		for _, memory := range []int{treeMemory, 1} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				root, base := newRoot(t)
				for _, path := range []string{"a", "b", "c/d", "c.d", "z"} {
					write(t, filepath.Join(base, "w", path), "1")
				}
				tree, err := scan(t.Context(), root, "w", true, memory)
				if err != nil {
					t.Fatal(err)
				}
				defer tree.Close()
				c.change(t, base)
				err = tree.Unchanged(t.Context())
				var changed *ChangedError
				switch {
				case c.path == "" && err != nil:
					t.Errorf("got %v, and nothing that counts has changed", err)
				case c.path != "" && (!errors.As(err, &changed) || changed.Path != c.path || !strings.Contains(changed.Detail, c.detail) || isTerminal(err)):
					t.Errorf("got %v; want that %s %s", err, c.path, c.detail)
				}
			})
		}
	}
}

func replaceKeepingTime(t *testing.T, base string) {
	t.Helper()
	info, err := os.Stat(base + "/w/b")
	must(t, err)
	write(t, base+"/w/b.new", "2")
	must(t, os.Chtimes(base+"/w/b.new", time.Time{}, info.ModTime()))
	rename(t, base+"/w/b.new", base+"/w/b")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
