package checkout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

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
	for _, list := range [][]string{made.files, made.directories} {
		for _, path := range slices.Backward(list) {
			err = errors.Join(err, root.Remove(path))
		}
	}
	if d.made && err == nil {
		err = os.Remove(d.at)
	}
	return err
}
