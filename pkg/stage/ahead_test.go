package stage

import (
	"context"
	"errors"
	"iter"
	"testing"

	"perago/pkg/txn"
)

// What a listing did not come to is an error and not the end of the listing.
func TestAListingThatWasStoppedIsNotWhole(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	left := errors.New("left")
	listing, stop := ahead(ctx, func(context.Context) iter.Seq2[txn.Object, error] {
		return func(yield func(txn.Object, error) bool) {
			cancel(left)
			for yield(txn.Object{Path: "a"}, nil) {
			}
		}
	})
	var last error
	for _, err := range listing {
		last = err
	}
	stop()
	if !errors.Is(last, left) {
		t.Errorf("the listing ended with %v, want %v", last, left)
	}
}
