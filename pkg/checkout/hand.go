package checkout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"perago/pkg/projection"
	"perago/pkg/txn"
)

// Hand is a download by hand, outside of any workflow.
type Hand struct {
	// Workspace is the repository and the commit. Its branch is not looked at.
	Workspace  txn.Workspace
	Prefix     txn.Prefix
	Guardrails []txn.Guardrail
	// Directory is made, with what leads to it, unless it is there and empty.
	Directory string
}

// ErrNotEmpty is a directory that holds something already.
var ErrNotEmpty = errors.New("is not empty")

// ByHand downloads by the same steps as a task does. The directory that a failed one
// made is removed again.
func (d *Downloader) ByHand(ctx context.Context, hand Hand, attempt Attempt) (Result, error) {
	end := attempt.Phase("validate")
	run, err := d.prepareHand(ctx, hand, attempt)
	end()
	if err != nil {
		return Result{}, err
	}
	return run.run(ctx)
}

func (d *Downloader) prepareHand(ctx context.Context, hand Hand, attempt Attempt) (*execution, error) {
	if err := txn.CheckCheckoutGuardrails(hand.Guardrails); err != nil {
		return nil, err
	}
	guardrails, err := projection.NewGuardrails(hand.Guardrails)
	if err != nil {
		return nil, err
	}
	directory, err := filepath.Abs(hand.Directory)
	if err != nil {
		return nil, err
	}
	own := &newDirectory{at: directory}
	// Before anything is asked for: it would be a waste.
	if _, err := own.look(); err != nil {
		return nil, err
	}
	run := &execution{
		Downloader: d, attempt: attempt, guardrails: guardrails, destination: own,
		input: txn.CheckoutInput{Workspace: hand.Workspace, Prefix: hand.Prefix, Guardrails: hand.Guardrails},
	}
	return run, run.readInput(ctx)
}

// newDirectory is one that nobody uses: it is not there, or empty.
type newDirectory struct {
	at string
	// made says that it was not there.
	made bool
}

func (d *newDirectory) path() string { return d.at }

// look reports whether the directory is there, and refuses one that is used.
func (d *newDirectory) look() (there bool, err error) {
	entries, err := os.ReadDir(d.at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case len(entries) > 0:
		return true, fmt.Errorf("%s %w; give a directory that is not there yet, or an empty one", d.at, ErrNotEmpty)
	}
	return true, nil
}

func (d *newDirectory) create() (*os.Root, error) {
	there, err := d.look()
	if err != nil {
		return nil, err
	}
	if !there {
		if err := os.MkdirAll(filepath.Dir(d.at), 0o777); err != nil {
			return nil, err
		}
		// Exclusively: one that came meanwhile is somebody else's.
		if err := os.Mkdir(d.at, 0o777); err != nil {
			return nil, err
		}
		d.made = true
	}
	return os.OpenRoot(d.at)
}

// same follows a link, as create did.
func (d *newDirectory) same(made *os.Root) error {
	now, err := os.Stat(d.at)
	return sameDirectory(d.at, made, now, err)
}

// discard removes what was made in the directory and nothing else: of two that
// began to fill an empty one at the same time, each takes only its own away.
func (d *newDirectory) discard(made *contents) error {
	root, err := os.OpenRoot(d.at)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	defer root.Close()
	err = made.remove(root)
	if d.made && err == nil {
		err = os.Remove(d.at)
	}
	return err
}

// mostErrors bounds the errors of a removal that are kept.
const mostErrors = 5

// remove removes what was made: each file, and each directory after all that was made
// below it. What somebody else put there keeps its directories.
func (c *contents) remove(root *os.Root) error {
	if c.of == nil {
		return nil
	}
	var failures []error
	remove := func(path string) {
		if err := root.Remove(path); err != nil && len(failures) < mostErrors {
			failures = append(failures, err)
		}
	}
	// open are the made directories that the next file may still be in.
	var open []string
	leave := func(next string) {
		for len(open) > 0 && !strings.HasPrefix(next, open[len(open)-1]+"/") {
			remove(open[len(open)-1])
			open = open[:len(open)-1]
		}
	}
	i, directories, before := 0, 0, ""
	for one, err := range c.of.all() {
		if err != nil {
			return err
		}
		leave(one.local)
		for directory := range newDirectories(before, one.local) {
			if directories == c.directories {
				break
			}
			directories++
			open = append(open, directory)
		}
		if c.files[i] {
			remove(one.local)
		}
		i, before = i+1, one.local
	}
	leave("")
	return errors.Join(failures...)
}
