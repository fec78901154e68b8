package stage_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"perago/pkg/projection"
)

// One file that the worker may not read ends the stage before the first byte, for good:
// no branch is made, and the file is named with its owner and mode.
func TestStage_AsksForAllFilesBeforeTheFirstByte(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data/a": "1"})
	directory := b.write(map[string]string{"a": "2", "b": "2", "z/closed": "3"})
	if err := os.Chmod(filepath.Join(directory, "z/closed"), 0); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		// Only this thread, on which the scan runs, is nobody: root reads everything.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		become := func(uid uintptr) {
			if _, _, failed := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uid, ^uintptr(0)); failed != 0 {
				panic(failed)
			}
		}
		for dir := directory; dir != b.root; dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		become(65534)
		defer become(0)
	}
	result, err := b.stager.Run(t.Context(), b.task(directory, nil), &attempt{})
	var denied *projection.AccessError
	if !errors.As(err, &denied) || denied.Path != "z/closed" || result.Output() != nil {
		t.Fatalf("got %v", err)
	}
	if !strings.Contains(err.Error(), `may not read "z/closed" (mode ----------, owner `) || b.wire.writes() != 0 {
		t.Errorf("%q after %d writes", err, b.wire.writes())
	}
}
