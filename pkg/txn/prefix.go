package txn

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// ActionsPrefix is where lakeFS keeps the hooks. lakeFS loads hooks from the
// merge's source commit, so a step that could change these files could switch
// the publish fence off: they are in no projection.
const ActionsPrefix = "_lakefs_actions/"

// Prefix is the part of a repository that a step owns: "" for the root, else a
// path that ends in a slash. The slash is what keeps data/ from including
// data.json and data2/.
type Prefix string

// MaxKeyBytes is lakeFS's limit on an object key. It counts bytes (measured: 512
// two-byte characters pass, 513 are refused).
const MaxKeyBytes = 1024

// ParsePrefix normalises what a user wrote: a missing final slash is added, ""
// and "/" are the root. It refuses what could not be a directory on disk and
// what reaches into the hooks.
func ParsePrefix(s string) (Prefix, error) {
	if s == "" || s == "/" {
		return "", nil
	}
	if strings.HasPrefix(s, "/") {
		return "", Terminalf("prefix", "%s begins with a slash; write it as %s", quote(s), quote(strings.TrimLeft(s, "/")))
	}
	if !strings.HasSuffix(s, "/") {
		s += "/"
	}
	if err := CheckKey(strings.TrimSuffix(s, "/")); err != nil {
		return "", Terminalf("prefix", "%v", err)
	}
	if strings.HasPrefix(s, ActionsPrefix) {
		return "", Terminalf("prefix", "%s holds the repository's hooks and belongs to no step; choose another prefix", ActionsPrefix)
	}
	return Prefix(s), nil
}

// CheckKey says why a path has no form that is the same in lakeFS and on a file
// system: absolute, empty or dot segments, a NUL, not UTF-8, too long. Such a
// path is refused and never cleaned into another one.
func CheckKey(path string) error {
	switch {
	case path == "":
		return errKey(path, "is empty")
	case !utf8.ValidString(path):
		return errKey(path, "is not valid UTF-8")
	case strings.ContainsRune(path, 0):
		return errKey(path, "holds a NUL")
	case len(path) > MaxKeyBytes:
		return errKey(path, fmt.Sprintf("has %d bytes, more than lakeFS's %d", len(path), MaxKeyBytes))
	}
	for segment := range strings.SplitSeq(path, "/") {
		switch segment {
		case "":
			return errKey(path, "has an empty segment (a slash at its beginning or end, or two together)")
		case ".", "..":
			return errKey(path, "has a segment "+segment)
		}
	}
	return nil
}

type keyError struct{ path, reason string }

func (e *keyError) Error() string { return quote(e.path) + " " + e.reason }

func errKey(path, reason string) error { return &keyError{path: path, reason: reason} }

// Contains reports whether the key is in the projection of this prefix.
func (p Prefix) Contains(key string) bool {
	return strings.HasPrefix(key, string(p)) && !strings.HasPrefix(key, ActionsPrefix)
}

// Covers reports whether everything in the projection of other is in this one's.
func (p Prefix) Covers(other Prefix) bool { return strings.HasPrefix(string(other), string(p)) }

// Key is the object key of a path of the projection.
func (p Prefix) Key(path string) string { return string(p) + path }

// String is the prefix in its text form, in which the root is "/".
func (p Prefix) String() string {
	if p == "" {
		return "/"
	}
	return string(p)
}

// MarshalText is String, so that the root is never an empty value.
func (p Prefix) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is ParsePrefix.
func (p *Prefix) UnmarshalText(text []byte) error {
	parsed, err := ParsePrefix(string(text))
	if err != nil {
		return err
	}
	*p = parsed
	return nil
}
