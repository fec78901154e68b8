package projection

import (
	"errors"
	"iter"
	"strings"

	"perago/pkg/txn"
)

// Changes counts what one listing has done to another.
type Changes struct{ Added, Changed, Removed, Unchanged int }

var errLeft = errors.New("the comparison was left before its end")

// Compare reads two listings of one prefix, in byte order, once and side by side.
// Objects with the same size and checksum are the same. visit is called with each
// path of after, relative to the prefix, in order; when it returns false the
// comparison ends with an error.
func Compare(prefix txn.Prefix, before, after iter.Seq2[txn.Object, error], visit func(path string) bool) (Changes, error) {
	var changes Changes
	next, stop := iter.Pull2(before)
	defer stop()
	old, err, more := next()
	for object, failed := range after {
		if failed != nil {
			return Changes{}, failed
		}
		for more && err == nil && old.Path < object.Path {
			changes.Removed++
			old, err, more = next()
		}
		switch {
		case err != nil:
			return Changes{}, err
		case !more || old.Path != object.Path:
			changes.Added++
		default:
			if old.Size == object.Size && old.Checksum == object.Checksum {
				changes.Unchanged++
			} else {
				changes.Changed++
			}
			old, err, more = next()
		}
		if !visit(strings.TrimPrefix(object.Path, string(prefix))) {
			return Changes{}, errLeft
		}
	}
	for ; more; _, err, more = next() {
		if err != nil {
			return Changes{}, err
		}
		changes.Removed++
	}
	return changes, nil
}
