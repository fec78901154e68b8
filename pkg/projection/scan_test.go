//go:build unix

package projection

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/txn"
)

func TestScanListsEveryFileInKeyOrder(t *testing.T) {
	t.Parallel()
	names := []string{
		"a/b", "a.b", "a/b.c", "a/b/c", "ab", // '.' sorts before '/', and '/' before letters
		".hidden", ".DS_Store", ".git/config", "d/.keep", ".perago-marker",
		"sp ace", "pl+us", "pc%41", "h#x", "q?x", "a&b", "col=1/x", "тест/данные", "emo😀", " lead", "trail ", "it's",
		"new\nline", "back\\slash", "..double", "...",
		strings.Repeat("d/", 100) + "deep",
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n == "a/b" }) // a/b is a directory here
	root, base := newRoot(t)
	for i, name := range names {
		write(t, filepath.Join(base, "w", name), strings.Repeat("x", i))
	}
	mkdir(t, filepath.Join(base, "w", "empty", "also"))
	mkdir(t, filepath.Join(base, "w", "not utf-8 \xff but empty"))
	if err := os.Link(filepath.Join(base, "w", "ab"), filepath.Join(base, "w", "hard")); err != nil {
		t.Fatal(err)
	}
	sizes := map[string]int64{"hard": int64(slices.Index(names, "ab"))}
	for i, name := range names {
		sizes[name] = int64(i)
	}

	for _, directory := range []string{"w", "w/", "./w"} {
		entries := entriesOf(t, scanned(t, root, directory))
		got := map[string]int64{}
		for _, entry := range entries {
			got[entry.Path] = entry.Size
		}
		if diff := cmp.Diff(sizes, got); diff != "" {
			t.Errorf("%s: files (-want +got):\n%s", directory, diff)
		}
		if !slices.IsSortedFunc(entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) }) {
			t.Errorf("%s: not in byte order: %q", directory, paths(entries))
		}
	}
}

func TestScanOfTheRootItself(t *testing.T) {
	t.Parallel()
	root, base := newRoot(t)
	write(t, filepath.Join(base, "a"), "1")
	entries := entriesOf(t, scanned(t, root, "."))
	if len(entries) != 1 || entries[0].Path != "a" {
		t.Fatalf("got %q", paths(entries))
	}
}

func TestScanTellsMissingFromEmpty(t *testing.T) {
	t.Parallel()
	root, base := newRoot(t)
	mkdir(t, filepath.Join(base, "empty", "sub"))
	write(t, filepath.Join(base, "file"), "x")

	if tree := scanned(t, root, "empty"); tree.Len() != 0 {
		t.Errorf("empty: got %q", paths(entriesOf(t, tree)))
	}
	for directory, want := range map[string]error{
		"missing":       ErrMissing,
		"missing/below": ErrMissing,
		"empty/missing": ErrMissing,
		"file":          ErrNotDirectory,
		"file/below":    ErrNotDirectory,
	} {
		_, err := Scan(t.Context(), root, directory)
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", directory, err, want)
		}
		if isTerminal(err) {
			t.Errorf("%s: %v is terminal; a volume may be mounted by the next attempt", directory, err)
		}
	}
}

func TestScanRefusesADirectoryOutsideTheRoot(t *testing.T) {
	t.Parallel()
	root, _ := newRoot(t)
	for _, directory := range []string{"", "..", "../x", "a/../../x", "/tmp", "/"} {
		if _, err := Scan(t.Context(), root, directory); !isTerminal(err) {
			t.Errorf("%q: got %v, want a terminal error", directory, err)
		}
	}
}

func TestScanRefusesWhatLakeFSCannotHold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		make  func(t *testing.T, base string)
		path  string
		words string
	}{
		{"link to a file outside", link("/etc/passwd", "w/l"), "l", "symbolic link"},
		{"link to a file inside", link("a", "w/l"), "l", "symbolic link"},
		{"link that loops", link("..", "w/sub/dir"), "sub/dir", "symbolic link"},
		{"link to itself", link("l", "w/l"), "l", "symbolic link"},
		{"dangling link", link("nowhere", "w/l"), "l", "symbolic link"},
		{"linked directory", link("w2", "w"), "w", "symbolic link"},
		{"linked directory outside", link("/etc", "w"), "w", "symbolic link"},
		{"FIFO", func(t *testing.T, base string) { fifo(t, filepath.Join(base, "w/p")) }, "p", "FIFO"},
		{"FIFO as the directory", func(t *testing.T, base string) { fifo(t, filepath.Join(base, "w")) }, "w", "FIFO"},
		{"socket", func(t *testing.T, base string) { socket(t, filepath.Join(base, "w/s")) }, "s", "socket"},
		{"name that is not UTF-8", func(t *testing.T, base string) { write(t, filepath.Join(base, "w/\xff"), "") }, "\xff", "UTF-8"},
		{"directory name that is not UTF-8", func(t *testing.T, base string) { write(t, filepath.Join(base, "w/\xff/a"), "") }, "\xff/a", "UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root, base := newRoot(t)
			write(t, filepath.Join(base, "w2", "a"), "1")
			c.make(t, base)
			entries, err := Scan(t.Context(), root, "w")
			var refused *UnrepresentableError
			if !errors.As(err, &refused) || refused.Path != c.path || !strings.Contains(err.Error(), c.words) {
				t.Fatalf("got %q, %v; want %q refused as a %s", paths(entriesOf(t, entries)), err, c.path, c.words)
			}
			if !isTerminal(err) {
				t.Errorf("%v is not terminal", err)
			}
		})
	}
}

func TestScanRefusesALinkedComponent(t *testing.T) {
	t.Parallel()
	root, base := newRoot(t)
	write(t, filepath.Join(base, "other-workflow", "out", "a"), "1")
	mkdir(t, filepath.Join(base, "workflow"))
	link("../other-workflow", "workflow/t")(t, base)
	_, err := Scan(t.Context(), root, "workflow/t/out")
	var refused *UnrepresentableError
	if !errors.As(err, &refused) || refused.Path != "workflow/t" {
		t.Fatalf("got %v, want workflow/t refused", err)
	}
}

func TestRefusalByMode(t *testing.T) {
	t.Parallel()
	for mode, words := range map[fs.FileMode]string{
		0o644:                                  "",
		fs.ModeDir | 0o755:                     "",
		fs.ModeDir | fs.ModeSticky:             "",
		fs.ModeSetuid | 0o755:                  "",
		fs.ModeSymlink:                         "is a symbolic link",
		fs.ModeNamedPipe:                       "is a FIFO",
		fs.ModeSocket:                          "is a socket",
		fs.ModeDevice:                          "is a device",
		fs.ModeDevice | fs.ModeCharDevice:      "is a device",
		fs.ModeIrregular:                       "is not a regular file",
		fs.ModeSymlink | fs.ModeDir:            "is a symbolic link",
		fs.ModeNamedPipe | fs.ModeSticky | 0o6: "is a FIFO",
	} {
		got := refusal(mode)
		if (words == "") != (got == "") || !strings.HasPrefix(got, words) {
			t.Errorf("%v: got %q, want %q", mode, got, words)
		}
	}
}

// What takes the place of a directory between the look and the open.
func TestOpenDirectoryRefusesWhatTookItsPlace(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(t *testing.T, base string){
		"FIFO":              func(t *testing.T, base string) { fifo(t, filepath.Join(base, "w")) },
		"link":              link("elsewhere", "w"),
		"link that escapes": link("/etc", "w"),
		"file":              func(t *testing.T, base string) { write(t, filepath.Join(base, "w"), "") },
		"directory":         func(t *testing.T, base string) { mkdir(t, filepath.Join(base, "w")) },
		"nothing":           func(*testing.T, string) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, base := newRoot(t)
			mkdir(t, filepath.Join(base, "w"))
			mkdir(t, filepath.Join(base, "elsewhere"))
			seen, err := root.Lstat("w")
			if err != nil {
				t.Fatal(err)
			}
			rename(t, filepath.Join(base, "w"), filepath.Join(base, "kept"))
			replace(t, base)
			opened, err := openDirectory(root, "w", "w", seen)
			var changed *ChangedError
			if !errors.As(err, &changed) || changed.Path != "w" {
				t.Errorf("got %v, %v; want a ChangedError", opened, err)
			}
		})
	}
}

func TestScanSaysPermissionDenied(t *testing.T) {
	t.Parallel()
	err := notAsSeen("a", &fs.PathError{Op: "openat", Path: "a", Err: syscall.EACCES})
	if !errors.Is(err, fs.ErrPermission) || errors.As(err, new(*ChangedError)) || isTerminal(err) {
		t.Errorf("got %v", err)
	}
}

func TestScanEndsWithItsContext(t *testing.T) {
	t.Parallel()
	root, base := newRoot(t)
	write(t, filepath.Join(base, "w", "a"), "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Scan(ctx, root, "w"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func newRoot(t *testing.T) (*os.Root, string) {
	t.Helper()
	// Short, because a socket's path is at most 108 bytes.
	base, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		root.Close()
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	return root, base
}

func scanned(t *testing.T, root *os.Root, directory string) *Tree {
	t.Helper()
	tree, err := Scan(t.Context(), root, directory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree
}

// entriesOf reads a tree; none when there is no tree.
func entriesOf(t testing.TB, tree *Tree) []Entry {
	t.Helper()
	if tree == nil {
		return nil
	}
	return taken(t, tree.All())
}

func taken(t testing.TB, entries iter.Seq2[Entry, error]) []Entry {
	t.Helper()
	var all []Entry
	for entry, err := range entries {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, entry)
	}
	return all
}

func paths(entries []Entry) []string {
	var all []string
	for _, entry := range entries {
		all = append(all, entry.Path)
	}
	return all
}

func isTerminal(err error) bool { return errors.As(err, new(*txn.TerminalError)) }

func write(t *testing.T, name, content string) {
	t.Helper()
	mkdir(t, filepath.Dir(name))
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, name string) {
	t.Helper()
	if err := os.MkdirAll(name, 0o755); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func link(target, name string) func(*testing.T, string) {
	return func(t *testing.T, base string) {
		t.Helper()
		name := filepath.Join(base, name)
		mkdir(t, filepath.Dir(name))
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
}

func fifo(t *testing.T, name string) {
	t.Helper()
	mkdir(t, filepath.Dir(name))
	if err := syscall.Mkfifo(name, 0o644); err != nil {
		t.Fatal(err)
	}
}

func socket(t *testing.T, name string) {
	t.Helper()
	mkdir(t, filepath.Dir(name))
	listener, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
}
