package checkout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// taskDirectory is an execution's directory below the workflow's.
type taskDirectory struct {
	root           *os.Root
	workflow, name string
	// made says that the directory is there, and this execution's.
	made bool
}

func (d *taskDirectory) path() string { return filepath.Join(d.root.Name(), d.workflow, d.name) }

// create makes the directory below the workflow's, which a user's worker may have
// made already. It is made where it was looked at: a link in the place of the
// workflow's directory would lead into another workflow's.
func (d *taskDirectory) create() (*os.Root, error) {
	if err := d.root.Mkdir(d.workflow, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the workflow's directory: %w", err)
	}
	parent, err := d.openWorkflow()
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	if err := parent.Mkdir(d.name, 0o777); err != nil {
		return nil, fmt.Errorf("make the directory of the checkout: %w", err)
	}
	d.made = true
	return parent.OpenRoot(d.name)
}

// same looks at the path, which the sweep may have renamed since: the workflow had
// ended, and an operator reran it.
func (d *taskDirectory) same(made *os.Root) error {
	now, err := d.root.Lstat(d.workflow + "/" + d.name)
	return sameDirectory(d.path(), made, now, err)
}

func sameDirectory(path string, made *os.Root, now fs.FileInfo, err error) error {
	if err != nil {
		return fmt.Errorf("look at the directory of the checkout: %w", err)
	}
	if was, err := made.Stat("."); err != nil || !os.SameFile(was, now) {
		return errors.Join(fmt.Errorf("%s was renamed or replaced during the download", path), err)
	}
	return nil
}

func (d *taskDirectory) openWorkflow() (*os.Root, error) {
	seen, err := d.root.Lstat(d.workflow)
	if err != nil {
		return nil, err
	}
	if !seen.IsDir() {
		return nil, fmt.Errorf("%s in the workspace root is not a directory", d.workflow)
	}
	// With "/." it is opened as a directory or not at all.
	parent, err := d.root.OpenRoot(d.workflow + "/.")
	if err != nil {
		return nil, err
	}
	if now, err := parent.Stat("."); err != nil || !os.SameFile(seen, now) {
		parent.Close()
		return nil, errors.Join(fmt.Errorf("%s in the workspace root is another directory now", d.workflow), err)
	}
	return parent, nil
}

// discard removes all of it: nobody else knows its name.
func (d *taskDirectory) discard(*contents) error {
	if !d.made {
		return nil
	}
	parent, err := d.openWorkflow()
	if err != nil {
		return err
	}
	defer parent.Close()
	return parent.RemoveAll(d.name)
}
