package txn

import "strings"

// Removal is a workflow's directory below the workspace root that the sweep has
// renamed. No workflow has its name, so no stage takes files from it.
type Removal struct {
	// Token tells removals of one workflow apart. It is never used again.
	Token    string
	Workflow WorkflowID
	// Decided says that the directory goes. Otherwise it is set aside: the workflow
	// is still to be read, and the directory may be put back.
	Decided bool
}

// RemovalToken is the length of a Removal's token.
const RemovalToken = 26

const (
	reservedDirectories = ".perago-"
	directoryAside      = reservedDirectories + "aside-"
	directoryGone       = reservedDirectories + "gone-"
)

// Name is the name of the directory.
func (r Removal) Name() string {
	prefix := directoryAside
	if r.Decided {
		prefix = directoryGone
	}
	return prefix + r.Token + "-" + string(r.Workflow)
}

// ParseRemoval reads the name of a directory below the workspace root.
func ParseRemoval(name string) (Removal, bool) {
	rest, decided := strings.CutPrefix(name, directoryGone)
	if !decided {
		var aside bool
		if rest, aside = strings.CutPrefix(name, directoryAside); !aside {
			return Removal{}, false
		}
	}
	if len(rest) <= RemovalToken+1 || rest[RemovalToken] != '-' || strings.ContainsRune(rest[:RemovalToken], '-') {
		return Removal{}, false
	}
	return Removal{Token: rest[:RemovalToken], Workflow: WorkflowID(rest[RemovalToken+1:]), Decided: decided}, true
}

// ReservedDirectory reports whether a name below the workspace root is one that
// only the sweep gives, so that it is no workflow's.
func ReservedDirectory(name string) bool { return strings.HasPrefix(name, reservedDirectories) }

// NamesWorkflow reports whether a directory's name has the form of a workflow id of
// Conductor's, which is a UUID.
func NamesWorkflow(name string) bool { return isUUID(name) }
