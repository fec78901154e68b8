package projection

import (
	"fmt"
	"iter"
	"strings"

	"perago/pkg/txn"
)

// Verify reads a listing of a prefix once and requires it to be exactly the local
// tree: the same paths, in the same order, with the same sizes. Contents are the
// upload's to compare.
func Verify(prefix txn.Prefix, local *Tree, remote iter.Seq2[txn.Object, error]) error {
	next, stop := iter.Pull2(local.All())
	defer stop()
	entry, failed, more := next()
	for object, err := range remote {
		if err != nil {
			return err
		}
		if failed != nil {
			return failed
		}
		if !prefix.Contains(object.Path) {
			continue
		}
		path := strings.TrimPrefix(object.Path, string(prefix))
		switch {
		case !more || path < entry.Path:
			return fmt.Errorf("%q is there and should not be", object.Path)
		case path > entry.Path:
			return fmt.Errorf("%q is not there", prefix.Key(entry.Path))
		case object.Size != entry.Size:
			return fmt.Errorf("%q has %d bytes of %d", object.Path, object.Size, entry.Size)
		}
		entry, failed, more = next()
	}
	switch {
	case failed != nil:
		return failed
	case more:
		return fmt.Errorf("%q is not there", prefix.Key(entry.Path))
	}
	return nil
}
