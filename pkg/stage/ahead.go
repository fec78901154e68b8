package stage

import (
	"context"
	"iter"

	"perago/pkg/txn"
)

// readAhead bounds how many objects of a listing wait to be compared.
const readAhead = 8192

// ahead reads a listing in the background from now on, while its reader is still
// at something else. stop ends it and waits for its end.
func ahead(ctx context.Context, list func(context.Context) iter.Seq2[txn.Object, error]) (listing iter.Seq2[txn.Object, error], stop func()) {
	type item struct {
		object txn.Object
		err    error
	}
	ctx, cancel := context.WithCancel(ctx)
	read, whole := make(chan item, readAhead), false
	go func() {
		defer close(read)
		for object, err := range list(ctx) {
			select {
			case read <- item{object, err}:
			case <-ctx.Done():
				return
			}
		}
		whole = true
	}()
	listing = func(yield func(txn.Object, error) bool) {
		for next := range read {
			if !yield(next.object, next.err) {
				return
			}
		}
		if !whole {
			// Without this the rest of the objects would look removed.
			yield(txn.Object{}, context.Cause(ctx))
		}
	}
	return listing, func() {
		cancel()
		for range read {
		}
	}
}
