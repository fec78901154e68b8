package projection

import (
	"errors"
	"fmt"
	"io"
	"os"

	"perago/pkg/txn"
)

// SetAsideError says that the sweep has set aside a directory of the workflow, so
// that what stands under the workflow's name may be only a part of its files.
type SetAsideError struct {
	Workflow txn.WorkflowID
	// Directory is the name of the one that is set aside.
	Directory string
}

func (e *SetAsideError) Error() string {
	return fmt.Sprintf("the sweep has set aside files of this workflow as %s in the workspace root, and the next sweep puts them back; if %s was made anew meanwhile, move them there by hand", e.Directory, e.Workflow)
}

// CheckSetAside fails with *SetAsideError when the sweep has set aside a directory of
// the workflow. It is asked after the files were listed: a directory that was set
// aside and made anew while they were listed stays set aside.
func CheckSetAside(root *os.Root, workflow txn.WorkflowID) error {
	directory, err := root.Open(".")
	if err != nil {
		return fmt.Errorf("open the workspace root: %w", err)
	}
	defer directory.Close()
	for {
		names, err := directory.Readdirnames(1024)
		for _, name := range names {
			if removal, ok := txn.ParseRemoval(name); ok && !removal.Decided && removal.Workflow == workflow {
				return &SetAsideError{Workflow: workflow, Directory: name}
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the workspace root: %w", err)
		}
	}
}
