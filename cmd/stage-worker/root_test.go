package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A volume that is mounted, unmounted or replaced after the start gives the path
// another directory. Renaming does the same without privileges.
func TestWorkspaceRoot_FollowsWhatThePathNames(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "workspace")
	mount := func(name string) {
		t.Helper()
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	unmount := func(to string) {
		t.Helper()
		if err := os.Rename(path, filepath.Join(filepath.Dir(path), to)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openWorkspaceRoot(path); err == nil {
		t.Error("a directory that is missing was opened")
	}
	mount("below the mount")
	w, err := openWorkspaceRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	first, err := w.now()
	if again, _ := w.now(); err != nil || again != first {
		t.Errorf("opened anew without need: %v", err)
	}

	unmount("before")
	if err := w.check(t.Context()); err == nil {
		t.Error("ready while the path names nothing")
	}
	mount("in the volume")
	if err := w.check(t.Context()); err != nil {
		t.Error(err)
	}
	now, err := w.now()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := now.Stat("in the volume"); err != nil {
		t.Errorf("the handle is of another directory than the path: %v", err)
	}
	// A task that runs keeps the directory that it began in.
	if _, err := first.Stat("below the mount"); err != nil {
		t.Errorf("the handle of a task that runs: %v", err)
	}
}
