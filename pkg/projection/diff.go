package projection

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"golang.org/x/sync/errgroup"

	"perago/pkg/txn"
)

// Plan is what turns a lakeFS tree into one whose projection is a local tree.
// All lists are in byte order.
type Plan struct {
	// Added are files with no object; Changed have an object of other content, or
	// one whose content cannot be compared.
	Added   []Entry
	Changed []Entry
	// Removed are objects with no file: whole object keys, prefix included,
	// because a key need not be a path (data//x, or data/ itself).
	Removed []string
	// Unchanged counts the files whose object has the same content.
	Unchanged int
	// Bytes is the size of Added and Changed together.
	Bytes int64
}

// Empty reports whether the plan changes nothing.
func (p Plan) Empty() bool { return len(p.Added) == 0 && len(p.Changed) == 0 && len(p.Removed) == 0 }

// Uploads gives the entries to upload: the added ones, then the changed ones.
func (p Plan) Uploads() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for _, list := range [][]Entry{p.Added, p.Changed} {
			for _, entry := range list {
				if !yield(entry) {
					return
				}
			}
		}
	}
}

// Objects gives a list of objects as the sequence that Diff reads.
func Objects(objects []txn.Object) iter.Seq2[txn.Object, error] {
	return func(yield func(txn.Object, error) bool) {
		for _, object := range objects {
			if !yield(object, nil) {
				return
			}
		}
	}
}

// Diff compares a scanned tree with the objects under a prefix, read once and in
// the order lakeFS lists them; an error in the sequence ends the comparison.
//
// Equality is by content alone: sizes that differ are a change, equal sizes are
// hashed and compared with the object's MD5, and an object whose checksum is not
// a plain MD5 (of parts, or of another uploader) counts as changed. Size and time
// never make two files equal. At most concurrency files are hashed at once, while
// the listing goes on; less than one means one.
//
// The repository's hooks are in no projection: under a root prefix their objects
// are left alone, and a local file there is an *UnrepresentableError, since it
// could not be published. So is a path whose object key lakeFS refuses.
func Diff(ctx context.Context, prefix txn.Prefix, local []Entry, remote iter.Seq2[txn.Object, error], hash HashFunc, concurrency int) (Plan, error) {
	if err := checkLocal(prefix, local); err != nil {
		return Plan{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hashes, hashing := errgroup.WithContext(ctx)
	hashes.SetLimit(max(concurrency, 1))

	plan, states := Plan{}, make([]state, len(local))
	listErr := join(hashing, prefix, local, remote,
		func(key string) { plan.Removed = append(plan.Removed, key) },
		func(i int, object txn.Object) {
			states[i] = changed
			if local[i].Size != object.Size || !IsMD5(object.Checksum) {
				return
			}
			hashes.Go(func() error {
				sum, err := hash(hashing, local[i])
				if err == nil && sum == object.Checksum {
					states[i] = unchanged
				}
				return err
			})
		})
	if listErr != nil && hashing.Err() == nil {
		// The listing failed by itself; no need to hash to the end.
		cancel()
		_ = hashes.Wait()
		return Plan{}, listErr
	}
	// A failed hash ends the listing too, and is the one to report.
	if err := hashes.Wait(); err != nil {
		return Plan{}, err
	}
	if listErr != nil {
		return Plan{}, listErr
	}
	for i, entry := range local {
		switch states[i] {
		case added:
			plan.Added = append(plan.Added, entry)
		case changed:
			plan.Changed = append(plan.Changed, entry)
		case unchanged:
			plan.Unchanged++
			continue
		}
		plan.Bytes += entry.Size
	}
	return plan, nil
}

// state is what became of a local entry: added until an object is found for it.
type state byte

const (
	added state = iota
	changed
	unchanged
)

// join walks both sorted lists once: gone is called for each object without a
// file, pair for each file with an object.
func join(ctx context.Context, prefix txn.Prefix, local []Entry, remote iter.Seq2[txn.Object, error], gone func(key string), pair func(int, txn.Object)) error {
	next, last, first := 0, "", true
	for object, err := range remote {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		// A listing out of order or of another prefix would make files look added
		// and objects look removed: wrong without a sign of it.
		if !first && object.Path <= last {
			return fmt.Errorf("the listing under %q is not in order: %q comes after %q", prefix, object.Path, last)
		}
		first, last = false, object.Path
		path, ok := strings.CutPrefix(object.Path, string(prefix))
		if !ok {
			return fmt.Errorf("the listing under %q holds %q", prefix, object.Path)
		}
		if !prefix.Contains(object.Path) {
			continue
		}
		for next < len(local) && local[next].Path < path {
			next++
		}
		if next < len(local) && local[next].Path == path {
			pair(next, object)
			continue
		}
		gone(object.Path)
	}
	return ctx.Err()
}

// checkLocal refuses what cannot be published under this prefix, before anything
// is read from lakeFS.
func checkLocal(prefix txn.Prefix, local []Entry) error {
	for i, entry := range local {
		key := prefix.Key(entry.Path)
		switch {
		case i > 0 && entry.Path <= local[i-1].Path:
			return fmt.Errorf("the local tree is not in order: %q comes after %q", entry.Path, local[i-1].Path)
		case !prefix.Contains(key):
			return &UnrepresentableError{Path: entry.Path, Reason: "would be one of the repository's hooks (" + txn.ActionsPrefix + "), which belong to no step; take it out of the directory or publish below a prefix"}
		}
		if err := txn.CheckKey(key); err != nil {
			return &UnrepresentableError{Path: entry.Path, Reason: "cannot be an object key: " + err.Error()}
		}
	}
	return nil
}

// IsMD5 reports whether a checksum is a plain MD5 of the object's content, which
// lakeFS keeps for what was uploaded through it.
func IsMD5(checksum string) bool {
	if len(checksum) != 32 {
		return false
	}
	for _, c := range []byte(checksum) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
