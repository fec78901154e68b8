//go:build unix

package projection

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestOpenStreamsTheWholeFileEachTime(t *testing.T) {
	t.Parallel()
	root, base := newRoot(t)
	for name, content := range map[string]string{"empty": "", "one": "x", "large": strings.Repeat("0123456789", 60_000)} {
		write(t, filepath.Join(base, "w", "sub", name), content)
	}
	for _, entry := range entriesOf(t, scanned(t, root, "w")) {
		want, err := os.ReadFile(filepath.Join(base, "w", entry.Path))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			file, err := testReader(t, root, "w").Open(entry)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(file)
			if err != nil || string(got) != string(want) {
				t.Errorf("%s: got %d bytes, %v; want %d", entry.Path, len(got), err, len(want))
			}
			if err := file.Close(); err != nil {
				t.Error(err)
			}
		}
		sum := md5.Sum(want)
		if got, err := testReader(t, root, "w").Hash(t.Context(), entry); err != nil || got != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: hash %q, %v", entry.Path, got, err)
		}
	}
}

// What became of a file between the scan and its use.
var replacements = map[string]func(t *testing.T, base string){
	"nothing":           func(*testing.T, string) {},
	"FIFO":              func(t *testing.T, base string) { fifo(t, filepath.Join(base, "w/a")) },
	"socket":            func(t *testing.T, base string) { socket(t, filepath.Join(base, "w/a")) },
	"link to another":   link("b", "w/a"),
	"link that escapes": link("/etc/passwd", "w/a"),
	"directory":         func(t *testing.T, base string) { mkdir(t, filepath.Join(base, "w/a")) },
	"equal other file":  func(t *testing.T, base string) { write(t, filepath.Join(base, "w/a"), "content") },
	"linked parent":     func(t *testing.T, base string) { rename(t, base+"/w", base+"/v"); link("w2", "w")(t, base) },
}

func TestOpenRefusesAnotherFile(t *testing.T) {
	t.Parallel()
	for name, replace := range replacements {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, base := newRoot(t)
			entry := replaced(t, root, base, replace)
			mustRefuse(t, entry, func() (*File, error) { return testReader(t, root, "w").Open(entry) })
		})
	}
	t.Run("link to itself moved", func(t *testing.T) {
		t.Parallel()
		root, base := newRoot(t)
		entry := replaced(t, root, base, link("../kept", "w/a"))
		mustRefuse(t, entry, func() (*File, error) { return testReader(t, root, "w").Open(entry) })
	})
}

// The same, when it happens between the look and the open.
func TestOpenSameRefusesAnotherFile(t *testing.T) {
	t.Parallel()
	for name, replace := range replacements {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, base := newRoot(t)
			entry := replaced(t, root, base, replace)
			mustRefuse(t, entry, func() (*File, error) { return openSame(root, "w/a", entry) })
		})
	}
}

func replaced(t *testing.T, root *os.Root, base string, replace func(*testing.T, string)) Entry {
	t.Helper()
	write(t, filepath.Join(base, "w/a"), "content")
	entry := entriesOf(t, scanned(t, root, "w"))[0]
	// Kept, so that its number cannot be given to its successor.
	rename(t, filepath.Join(base, "w/a"), filepath.Join(base, "kept"))
	write(t, filepath.Join(base, "w/b"), "content")
	write(t, filepath.Join(base, "w2/a"), "content")
	replace(t, base)
	// Alike in everything but identity.
	for _, name := range []string{"w/a", "w/b", "w2/a"} {
		if info, err := os.Lstat(filepath.Join(base, name)); err == nil && info.Mode().IsRegular() {
			restoreTime(t, filepath.Join(base, name), entry)
		}
	}
	return entry
}

func mustRefuse(t *testing.T, entry Entry, open func() (*File, error)) {
	t.Helper()
	file, err := open()
	var changed *ChangedError
	if !errors.As(err, &changed) || changed.Path != entry.Path {
		t.Errorf("got %v, %v; want a ChangedError of %q", file, err, entry.Path)
	}
	if isTerminal(err) {
		t.Errorf("%v is terminal; the writer may be done by the next attempt", err)
	}
}

func TestOpenRefusesAFileWrittenSince(t *testing.T) {
	t.Parallel()
	for name, alter := range map[string]func(t *testing.T, file string, entry Entry){
		"longer": func(t *testing.T, file string, entry Entry) {
			write(t, file, "content and more")
			restoreTime(t, file, entry)
		},
		"shorter": func(t *testing.T, file string, entry Entry) {
			write(t, file, "con")
			restoreTime(t, file, entry)
		},
		"same size, another time": func(t *testing.T, file string, _ Entry) {
			write(t, file, "CONTENT")
			touch(t, file)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, base := newRoot(t)
			file := filepath.Join(base, "w/a")
			write(t, file, "content")
			entry := entriesOf(t, scanned(t, root, "w"))[0]
			alter(t, file, entry)
			mustRefuse(t, entry, func() (*File, error) { return testReader(t, root, "w").Open(entry) })
		})
	}
}

// A reader that takes exactly Size bytes, as an HTTP client with a
// Content-Length does, must learn of a change without asking for the end.
func TestReadRefusesAFileWrittenWhileOpen(t *testing.T) {
	t.Parallel()
	for name, alter := range map[string]func(t *testing.T, file string){
		"longer":    func(t *testing.T, file string) { appendTo(t, file, "more") },
		"shorter":   func(t *testing.T, file string) { truncate(t, file, 3) },
		"emptied":   func(t *testing.T, file string) { truncate(t, file, 0) },
		"rewritten": touch,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, base := newRoot(t)
			name := filepath.Join(base, "w/a")
			write(t, name, "content")
			entry := entriesOf(t, scanned(t, root, "w"))[0]
			file, err := testReader(t, root, "w").Open(entry)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			first := make([]byte, 2)
			if _, err := io.ReadFull(file, first); err != nil {
				t.Fatal(err)
			}
			alter(t, name)
			if got, err := io.Copy(io.Discard, io.LimitReader(file, entry.Size-2)); !errors.As(err, new(*ChangedError)) {
				t.Errorf("read %d more bytes, %v; want a ChangedError", got, err)
			}
		})
		t.Run(name+", read in one go", func(t *testing.T) {
			t.Parallel()
			root, base := newRoot(t)
			name := filepath.Join(base, "w/a")
			write(t, name, "content")
			entry := entriesOf(t, scanned(t, root, "w"))[0]
			file, err := testReader(t, root, "w").Open(entry)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			alter(t, name)
			if got, err := io.ReadAll(file); int64(len(got)) > entry.Size || !errors.As(err, new(*ChangedError)) {
				t.Errorf("read %q, %v; want a ChangedError after at most %d bytes", got, err, entry.Size)
			}
		})
	}
	t.Run("empty file grows", func(t *testing.T) {
		t.Parallel()
		root, base := newRoot(t)
		write(t, filepath.Join(base, "w/a"), "")
		file, err := testReader(t, root, "w").Open(entriesOf(t, scanned(t, root, "w"))[0])
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		appendTo(t, filepath.Join(base, "w/a"), "more")
		if got, err := io.ReadAll(file); len(got) != 0 || !errors.As(err, new(*ChangedError)) {
			t.Errorf("got %q, %v; want a ChangedError", got, err)
		}
	})
}

func TestOpenNeedsAScannedEntry(t *testing.T) {
	t.Parallel()
	root, base := newRoot(t)
	write(t, filepath.Join(base, "w/a"), "x")
	// Not a ChangedError: nothing in the directory is at fault.
	if _, err := testReader(t, root, "w").Open(Entry{Path: "a", Size: 1}); err == nil || errors.As(err, new(*ChangedError)) {
		t.Errorf("got %v", err)
	}
}

func TestHashEndsWithItsContext(t *testing.T) {
	t.Parallel()
	root, base := newRoot(t)
	write(t, filepath.Join(base, "w/a"), "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := testReader(t, root, "w").Hash(ctx, entriesOf(t, scanned(t, root, "w"))[0]); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func touch(t *testing.T, name string) {
	t.Helper()
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(name, later, later); err != nil {
		t.Fatal(err)
	}
}

func restoreTime(t *testing.T, name string, entry Entry) {
	t.Helper()
	if err := os.Chtimes(name, time.Unix(0, entry.seen.modified), time.Unix(0, entry.seen.modified)); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, name string, size int64) {
	t.Helper()
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
}

func appendTo(t *testing.T, name, content string) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(content); err != nil {
		t.Fatal(err)
	}
}

// testReader is a reader of a scanned directory, for the time of a test.
func testReader(t *testing.T, root *os.Root, directory string) *Reader {
	t.Helper()
	r := NewReader(root, directory)
	t.Cleanup(r.Close)
	return r
}

// A reader opens one directory after the other, by many goroutines at once, and when
// it is closed nothing of it is open any more.
func TestReaderLeavesNothingOpen(t *testing.T) {
	root, base := newRoot(t)
	for d := range 20 {
		for f := range 5 {
			write(t, filepath.Join(base, "w", fmt.Sprint("d", d), fmt.Sprint("f", f)), fmt.Sprint(d, f))
		}
	}
	write(t, filepath.Join(base, "w", "top"), "at the top")
	entries := entriesOf(t, scanned(t, root, "w"))
	before := descriptors(t)
	r := NewReader(root, "w")
	var reads sync.WaitGroup
	for range 4 {
		reads.Go(func() {
			for _, i := range rand.Perm(len(entries)) {
				file, err := r.Open(entries[i])
				if err != nil {
					t.Error(err)
					return
				}
				content, err := io.ReadAll(file)
				if err != nil || int64(len(content)) != entries[i].Size {
					t.Errorf("%s: %q, %v", entries[i].Path, content, err)
				}
				file.Close()
			}
		})
	}
	reads.Wait()
	if open := descriptors(t); open > before+1 {
		t.Errorf("%d descriptors are open, with one directory, and %d were before", open, before)
	}
	r.Close()
	if open := descriptors(t); open != before {
		t.Errorf("%d descriptors are open, and %d were before", open, before)
	}
}

// descriptors is how many this process has open, the look itself aside.
func descriptors(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}
