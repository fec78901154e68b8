package fence

import (
	"bytes"
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"perago/pkg/txn"
)

// Version is the version of the action file that this program knows. Every
// change of the file is a new version.
const Version = 1

//go:embed perago-publish-fence.yaml
var file []byte

// File is the action file as this program knows it.
func File() []byte { return bytes.Clone(file) }

var versionLine = regexp.MustCompile(`(?m)^# perago-publish-fence version (\d{1,9})\r?$`)

// FaultError says why the hard fence does not hold on a branch, and how that is
// mended.
type FaultError struct {
	// Found is what was found, naming the file or the setting.
	Found string
	// Mend is what to do about it.
	Mend string
	// Newer says that the file is of a newer perago, which alone should touch it.
	Newer bool
}

func (e *FaultError) Error() string { return e.Found + "; " + e.Mend }

// fault looks at the action file of a branch's head; nil is the known file.
func (t Target) fault(head txn.CommitID, content []byte) *FaultError {
	if bytes.Equal(content, file) {
		return nil
	}
	at := fmt.Sprintf("%s of %s (commit %s)", txn.FenceFile, t.Branch, head.Short())
	replace := "run " + t.command("install") + ", which replaces it"
	var action action
	if err := yaml.Unmarshal(content, &action); err != nil {
		return &FaultError{
			Found: fmt.Sprintf("%s is no action file, and lakeFS neither cuts a branch from such a commit nor merges it: %s", at, strings.Join(strings.Fields(err.Error()), " ")),
			Mend:  fmt.Sprintf("take the file out by a direct commit on %s, then run %s", t.Branch, t.command("install")),
		}
	}
	if line := versionLine.FindSubmatch(content); line != nil {
		version, _ := strconv.Atoi(string(line[1]))
		switch {
		case version > Version:
			return &FaultError{
				Found: fmt.Sprintf("%s is version %d, newer than the version %d that this perago knows", at, version, Version),
				Mend:  "use the perago that installed it", Newer: true,
			}
		case version < Version:
			return &FaultError{Found: fmt.Sprintf("%s is version %d, and this perago knows version %d", at, version, Version), Mend: replace}
		}
	}
	on, runs := action.On[preMerge]
	switch {
	case !runs:
		return &FaultError{Found: fmt.Sprintf("%s was edited: it does not run before merges (on: %s)", at, preMerge), Mend: replace}
	case on != nil && len(on.Branches) > 0:
		return &FaultError{
			Found: fmt.Sprintf("%s was edited: it runs only for merges into branches like %s", at, strings.Join(on.Branches, ", ")),
			Mend:  replace,
		}
	}
	return &FaultError{Found: at + " was edited", Mend: replace}
}

// preMerge is lakeFS's event before a merge.
const preMerge = "pre-merge"

// action is what is looked at in an action file that is not the known one.
type action struct {
	On map[string]*event `yaml:"on"`
}

type event struct {
	Branches []string `yaml:"branches"`
}
