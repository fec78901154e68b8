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
func Verify(prefix txn.Prefix, local []Entry, remote iter.Seq2[txn.Object, error]) error {
	next := 0
	for object, err := range remote {
		if err != nil {
			return err
		}
		if !prefix.Contains(object.Path) {
			continue
		}
		path := strings.TrimPrefix(object.Path, string(prefix))
		switch {
		case next == len(local) || path < local[next].Path:
			return fmt.Errorf("%q is there and should not be", object.Path)
		case path > local[next].Path:
			return fmt.Errorf("%q is not there", prefix.Key(local[next].Path))
		case object.Size != local[next].Size:
			return fmt.Errorf("%q has %d bytes of %d", object.Path, object.Size, local[next].Size)
		}
		next++
	}
	if next < len(local) {
		return fmt.Errorf("%q is not there", prefix.Key(local[next].Path))
	}
	return nil
}
