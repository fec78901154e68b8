package projection

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"perago/pkg/spool"
	"perago/pkg/txn"
)

// Plan is what turns a lakeFS tree into one whose projection is a local tree. It
// reads the local tree, which must stay open as long as the plan is used.
type Plan struct {
	// Added counts the files with no object; Changed those with an object of other
	// content, or with one whose content cannot be compared.
	Added, Changed int
	// Removed counts the objects with no file.
	Removed int
	// Unchanged counts the files whose object has the same content.
	Unchanged int
	// Bytes is the size of the added and changed files together.
	Bytes int64
	// Largest is the largest of the added and changed files.
	Largest Entry

	local *Tree
	// states is a byte for each file of local. It is the only part of a plan that
	// grows in memory with the number of files.
	states  []state
	removed *spool.List
}

// Empty reports whether the plan changes nothing.
func (p Plan) Empty() bool { return p.Added == 0 && p.Changed == 0 && p.Removed == 0 }

// Close gives the temporary file back in which the removed keys are. The local tree
// stays open.
func (p Plan) Close() error { return p.removed.Close() }

// Uploads gives the files to upload, in byte order.
func (p Plan) Uploads() iter.Seq2[Entry, error] { return p.of(added, changed) }

// AddedFiles gives the added files, in byte order.
func (p Plan) AddedFiles() iter.Seq2[Entry, error] { return p.of(added) }

// ChangedFiles gives the changed files, in byte order.
func (p Plan) ChangedFiles() iter.Seq2[Entry, error] { return p.of(changed) }

func (p Plan) of(wanted ...state) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if p.local == nil {
			return
		}
		i := 0
		for entry, err := range p.local.All() {
			if err != nil || slices.Contains(wanted, p.states[i]) {
				if !yield(entry, err) || err != nil {
					return
				}
			}
			i++
		}
	}
}

// RemovedKeys gives the keys of the removed objects, in byte order: whole object keys,
// prefix included, because a key need not be a path (data//x, or data/ itself).
func (p Plan) RemovedKeys() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if p.removed == nil {
			return
		}
		for record, err := range p.removed.All() {
			if !yield(record.Key, err) || err != nil {
				return
			}
		}
	}
}

// upload counts a file that has to be uploaded.
func (p *Plan) upload(entry Entry) {
	p.Bytes += entry.Size
	if entry.Size > p.Largest.Size {
		p.Largest = entry
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
func Diff(ctx context.Context, prefix txn.Prefix, local *Tree, remote iter.Seq2[txn.Object, error], hash HashFunc, concurrency int) (_ Plan, err error) {
	if err := checkLocal(prefix, local); err != nil {
		return Plan{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hashes, hashing := errgroup.WithContext(ctx)
	hashes.SetLimit(max(concurrency, 1))

	plan := Plan{local: local, states: make([]state, local.Len()), removed: &spool.List{}}
	defer func() {
		if err != nil {
			plan.Close()
		}
	}()
	listErr := join(hashing, prefix, local, remote,
		func(key string) error { return plan.removed.Append(key, nil) },
		func(i int, entry Entry, object txn.Object) {
			plan.states[i] = changed
			if entry.Size != object.Size || !IsMD5(object.Checksum) {
				return
			}
			hashes.Go(func() error {
				sum, err := hash(hashing, entry)
				if err == nil && sum == object.Checksum {
					plan.states[i] = unchanged
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
	plan.Removed = plan.removed.Len()
	i := 0
	for entry, err := range local.All() {
		if err != nil {
			return Plan{}, err
		}
		switch plan.states[i] {
		case added:
			plan.Added++
			plan.upload(entry)
		case changed:
			plan.Changed++
			plan.upload(entry)
		case unchanged:
			plan.Unchanged++
		}
		i++
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
func join(ctx context.Context, prefix txn.Prefix, local *Tree, remote iter.Seq2[txn.Object, error], gone func(key string) error, pair func(int, Entry, txn.Object)) error {
	next, stop := iter.Pull2(local.All())
	defer stop()
	entry, failed, more := next()
	i, last, first := 0, "", true
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
		for more && failed == nil && entry.Path < path {
			entry, failed, more = next()
			i++
		}
		switch {
		case failed != nil:
			return failed
		case more && entry.Path == path:
			pair(i, entry, object)
		default:
			if err := gone(object.Path); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// checkLocal refuses what cannot be published under this prefix, before anything
// is read from lakeFS.
func checkLocal(prefix txn.Prefix, local *Tree) error {
	last, first := "", true
	for entry, err := range local.All() {
		if err != nil {
			return err
		}
		key := prefix.Key(entry.Path)
		switch {
		case !first && entry.Path == last:
			// A system may list a name twice when the directory changes meanwhile.
			return &ChangedError{Path: entry.Path, Detail: "was listed twice"}
		case !first && entry.Path < last:
			return fmt.Errorf("the local tree is not in order: %q comes after %q", entry.Path, last)
		case !prefix.Contains(key):
			return &UnrepresentableError{Path: entry.Path, Reason: "would be one of the repository's hooks (" + txn.ActionsPrefix + "), which belong to no step; take it out of the directory or publish below a prefix"}
		}
		if err := txn.CheckKey(key); err != nil {
			return &UnrepresentableError{Path: entry.Path, Reason: "cannot be an object key: " + err.Error()}
		}
		first, last = false, entry.Path
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
