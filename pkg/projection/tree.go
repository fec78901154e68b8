package projection

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"

	"perago/pkg/spool"
)

// Entry is one regular file of a scanned directory.
type Entry struct {
	// Path is relative to the directory, separated by slashes, and valid UTF-8.
	Path string
	// Size is in bytes.
	Size int64

	// seen is the file's identity, size and modification time as scanned; scanned says
	// that it is set.
	seen    look
	scanned bool
}

// Tree is the files of a directory, in the byte order of their paths. A small tree is
// in memory. A large one is sorted runs in a temporary file, which each reading
// merges, and takes no more memory than a small one.
type Tree struct {
	root      *os.Root
	directory string
	// memory bounds what rest may hold, and held is what it holds, in bytes.
	memory, held int
	// runs are sorted runs, one after the other, and ends are where each of them ends.
	runs spool.List
	ends []spool.Mark
	// rest is the last run, sorted when the tree is whole.
	rest   []Entry
	length int
}

// entryBytes is what an entry takes in memory besides its path.
const entryBytes = 96

func (t *Tree) add(entry Entry) error {
	t.rest = append(t.rest, entry)
	t.length++
	if t.held += entryBytes + len(entry.Path); t.held < t.memory {
		return nil
	}
	return t.spill()
}

// spill writes the entries in memory as one more sorted run.
func (t *Tree) spill() error {
	t.sort()
	var value []byte
	for _, entry := range t.rest {
		value = entry.seen.append(value[:0])
		if err := t.runs.Append(entry.Path, value); err != nil {
			return err
		}
	}
	t.ends = append(t.ends, t.runs.Mark())
	clear(t.rest)
	t.rest, t.held = t.rest[:0], 0
	return nil
}

func (t *Tree) sort() {
	// A walk goes by directory, which is not the order of the whole paths: a.b sorts
	// before a/b, although the directory a comes before the file a.b.
	slices.SortFunc(t.rest, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) })
}

// Len is the number of files.
func (t *Tree) Len() int { return t.length }

// Close gives the temporary file back. The tree can no longer be read.
func (t *Tree) Close() error {
	if t == nil {
		return nil
	}
	return t.runs.Close()
}

// All gives the files in order. It may be asked several times, also at once. A pair
// with an error is the last one.
func (t *Tree) All() iter.Seq2[Entry, error] {
	if len(t.ends) == 0 {
		return func(yield func(Entry, error) bool) {
			for _, entry := range t.rest {
				if !yield(entry, nil) {
					return
				}
			}
		}
	}
	return t.merged
}

func (t *Tree) merged(yield func(Entry, error) bool) {
	var all cursors
	defer func() {
		for _, c := range all {
			c.stop()
		}
	}()
	add := func(run iter.Seq2[Entry, error]) bool {
		c := &cursor{}
		c.next, c.stop = iter.Pull2(run)
		if c.step() {
			all = append(all, c)
		} else {
			c.stop()
		}
		return c.err == nil || !failed(yield, c.err)
	}
	begin := spool.Mark{}
	for _, end := range t.ends {
		if !add(entries(t.runs.Between(begin, end))) {
			return
		}
		begin = end
	}
	if !add(func(yield func(Entry, error) bool) {
		for _, entry := range t.rest {
			if !yield(entry, nil) {
				return
			}
		}
	}) {
		return
	}
	heap.Init(&all)
	for len(all) > 0 {
		first := all[0]
		if !yield(first.entry, nil) {
			return
		}
		if first.step() {
			heap.Fix(&all, 0)
			continue
		}
		first.stop()
		heap.Remove(&all, 0)
		if first.err != nil {
			failed(yield, first.err)
			return
		}
	}
}

func failed(yield func(Entry, error) bool, err error) bool {
	yield(Entry{}, err)
	return true
}

// entries reads the entries of a run.
func entries(records iter.Seq2[spool.Record, error]) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for record, err := range records {
			var seen look
			if err == nil {
				seen, err = readLook(record.Value)
			}
			if !yield(Entry{Path: record.Key, Size: seen.size, seen: seen, scanned: true}, err) || err != nil {
				return
			}
		}
	}
}

// cursor is a place in a sequence of entries.
type cursor struct {
	next  func() (Entry, error, bool)
	stop  func()
	entry Entry
	err   error
}

// step goes to the next entry. It is false at the end and after an error.
func (c *cursor) step() bool {
	entry, err, more := c.next()
	if !more || err != nil {
		c.entry, c.err = Entry{}, err
		return false
	}
	c.entry = entry
	return true
}

// cursors is a heap: the first one has the least path.
type cursors []*cursor

func (c cursors) Len() int           { return len(c) }
func (c cursors) Less(i, j int) bool { return c[i].entry.Path < c[j].entry.Path }
func (c cursors) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *cursors) Push(x any)        { *c = append(*c, x.(*cursor)) }
func (c *cursors) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// Unchanged looks at the whole directory once more, without reading a file. It fails
// with a *ChangedError for the first path that was added, that is gone, or whose
// identity, size or modification time is not what it was.
func (t *Tree) Unchanged(ctx context.Context) error {
	now, err := scan(ctx, t.root, t.directory, false, t.memory)
	var refused *UnrepresentableError
	switch {
	case errors.As(err, &refused):
		return &ChangedError{Path: refused.Path, Detail: refused.Reason + ", and it was none when the files were listed"}
	case errors.Is(err, ErrMissing), errors.Is(err, ErrNotDirectory):
		return &ChangedError{Path: ".", Detail: "is gone", Cause: err}
	case err != nil:
		return err
	}
	defer now.Close()
	return compareTrees(t, now)
}

func compareTrees(before, after *Tree) error {
	next, stop := iter.Pull2(after.All())
	defer stop()
	is, err, more := next()
	for was, failed := range before.All() {
		switch {
		case failed != nil:
			return failed
		case err != nil:
			return err
		case !more || was.Path < is.Path:
			return &ChangedError{Path: was.Path, Detail: "is gone"}
		case is.Path < was.Path:
			return appeared(is)
		}
		if err := was.same(is.seen); err != nil {
			return err
		}
		is, err, more = next()
	}
	switch {
	case err != nil:
		return err
	case more:
		return appeared(is)
	}
	return nil
}

func appeared(entry Entry) error {
	return &ChangedError{Path: entry.Path, Detail: "was not there when the files were listed"}
}

// same compares what the path leads to now with what was scanned. Identity alone
// is not enough: a file system gives the number of a removed file to the next.
func (e Entry) same(now look) error {
	switch {
	case !e.seen.same(now):
		return &ChangedError{Path: e.Path, Detail: "is another file now"}
	case now.size != e.Size:
		return &ChangedError{Path: e.Path, Detail: fmt.Sprintf("has %d bytes, not %d", now.size, e.Size)}
	case now.modified != e.seen.modified:
		return &ChangedError{Path: e.Path, Detail: "has another modification time"}
	}
	return nil
}
