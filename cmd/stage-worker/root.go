package main

import (
	"context"
	"fmt"
	"os"
	"sync"
)

// workspaceRoot is the directory that a path names now. A handle goes on naming what it
// was opened for: a worker that was started before its volume was mounted would write
// below the mount for ever. So each task, each sweep and each readiness check compares
// the path with the handle, and opens the path anew where it names another directory.
// A task that runs keeps the handle that it began with.
type workspaceRoot struct {
	path string

	mu   sync.Mutex
	root *os.Root
}

// openWorkspaceRoot fails when the path is no directory that can be opened.
func openWorkspaceRoot(path string) (*workspaceRoot, error) {
	w := &workspaceRoot{path: path}
	_, err := w.now()
	return w, err
}

// now is a handle of the directory that the path names now.
func (w *workspaceRoot) now() (*os.Root, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	named, err := os.Stat(w.path)
	if err != nil {
		return nil, fmt.Errorf("PERAGO_WORKSPACE_ROOT: %w", err)
	}
	if w.root != nil {
		if held, err := w.root.Stat("."); err == nil && os.SameFile(held, named) {
			return w.root, nil
		}
	}
	root, err := os.OpenRoot(w.path)
	if err != nil {
		return nil, fmt.Errorf("PERAGO_WORKSPACE_ROOT: %w", err)
	}
	// The one before is closed by the runtime when the last task has let it go.
	w.root = root
	return root, nil
}

// check is a condition of readiness.
func (w *workspaceRoot) check(context.Context) error {
	_, err := w.now()
	return err
}

func (w *workspaceRoot) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.root != nil {
		_ = w.root.Close()
	}
}
