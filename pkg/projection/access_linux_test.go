package projection

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

const nobody = 65534

// asNobody calls f as a user who owns nothing. For root only this thread changes, so f
// starts nothing on others. Anybody else may not read what has no mode anyway.
func asNobody(t *testing.T, f func()) (uid int) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return os.Geteuid()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	become := func(uid uintptr) {
		if _, _, failed := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uid, ^uintptr(0)); failed != 0 {
			panic(failed)
		}
	}
	become(nobody)
	defer become(0)
	f()
	return nobody
}

// Files and directories that the worker may not read are all found by the scan, and
// the first one is named with what is needed to mend it.
func TestScan_NamesWhatTheWorkerMayNotRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		deny   map[string]fs.FileMode
		path   string
		mode   string
		others int
	}{
		"one file":                      {map[string]fs.FileMode{"d/b": 0}, "d/b", "----------", 0},
		"a file that may be written":    {map[string]fs.FileMode{"d/b": 0o333}, "d/b", "--wx-wx-wx", 0},
		"several, the first is named":   {map[string]fs.FileMode{"z": 0, "d/b": 0, "d/a": 0}, "d/a", "----------", 2},
		"a directory that is closed":    {map[string]fs.FileMode{"d": 0}, "d", "d---------", 0},
		"a directory without entrance":  {map[string]fs.FileMode{"d": 0o444}, "d", "dr--r--r--", 0},
		"a directory without a listing": {map[string]fs.FileMode{"d": 0o111}, "d", "d--x--x--x", 0},
	} {
		t.Run(name, func(t *testing.T) {
			root, base := newRoot(t)
			if err := os.Chmod(base, 0o755); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{"a", "d/a", "d/b", "z"} {
				write(t, filepath.Join(base, "w", path), "x")
			}
			for path, mode := range c.deny {
				full := filepath.Join(base, "w", path)
				if err := os.Chmod(full, mode); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { os.Chmod(full, 0o755) })
			}
			var err error
			uid := asNobody(t, func() { _, err = Scan(t.Context(), root, "w") })
			var denied *AccessError
			if !errors.As(err, &denied) || denied.Path != c.path || denied.Others != c.others || !isTerminal(err) {
				t.Fatalf("got %v; want %q and %d others", err, c.path, c.others)
			}
			for _, want := range []string{fmt.Sprintf("%q", c.path), c.mode, fmt.Sprintf("uid %d", uid), fmt.Sprintf("owner %d,", os.Getuid())} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %s", err, want)
				}
			}
		})
	}
}

// Root reads everything, also where no mode says so.
func TestScan_GoesByWhatTheWorkerMayDoAndNotByTheMode(t *testing.T) {
	t.Parallel()
	root, base := newRoot(t)
	write(t, filepath.Join(base, "w/a"), "x")
	mode := fs.FileMode(0o400)
	if os.Geteuid() == 0 {
		mode = 0
	}
	if err := os.Chmod(filepath.Join(base, "w/a"), mode); err != nil {
		t.Fatal(err)
	}
	if tree := scanned(t, root, "w"); tree.Len() != 1 {
		t.Error("the file is not there")
	}
}

// A component of the directory itself, and a file that is closed after the scan.
func TestOpen_NamesWhatTheWorkerMayNotRead(t *testing.T) {
	t.Parallel()
	root, base := newRoot(t)
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(base, "w/out/a"), "x")
	entry := entriesOf(t, scanned(t, root, "w/out"))[0]
	reader := testReader(t, root, "w/out")
	if err := os.Chmod(filepath.Join(base, "w/out/a"), 0); err != nil {
		t.Fatal(err)
	}
	var err error
	var denied *AccessError
	asNobody(t, func() { _, err = reader.Open(entry) })
	if !errors.As(err, &denied) || denied.Path != "a" {
		t.Errorf("the file: got %v", err)
	}
	if err := os.Chmod(filepath.Join(base, "w"), 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		if err := os.Chmod(filepath.Join(base, "w"), 0); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(filepath.Join(base, "w"), 0o755)
	}
	asNobody(t, func() { _, err = Scan(t.Context(), root, "w/out") })
	if !errors.As(err, &denied) || denied.Path != "w" {
		t.Errorf("the component: got %v", err)
	}
}
