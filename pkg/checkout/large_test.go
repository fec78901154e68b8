//go:build unix

package checkout_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"perago/pkg/checkout"
	"perago/pkg/txn"
)

// endless is a lake with many objects, the last of which cannot be read.
type endless struct {
	objects int
	// download is called when the first object is asked for.
	download func()
}

func (e *endless) Commit(context.Context, txn.Repository, txn.CommitID) (txn.Commit, error) {
	return txn.Commit{}, nil
}

func (e *endless) Objects(_ context.Context, _ txn.Repository, _ txn.CommitID, prefix txn.Prefix) iter.Seq2[txn.Object, error] {
	return func(yield func(txn.Object, error) bool) {
		for i := range e.objects {
			if !yield(txn.Object{Path: fmt.Sprintf("%s%s/%08d", prefix, strings.Repeat("d", 60), i), Size: 1, Checksum: "c4ca4238a0b923820dcc509a6f75849b"}, nil) {
				return
			}
		}
	}
}

func (e *endless) MD5Known(context.Context, txn.Repository, txn.CommitID, txn.Object) (bool, error) {
	return true, nil
}

var errUnreadable = errors.New("the object cannot be read")

func (e *endless) ReadObject(context.Context, txn.Repository, txn.CommitID, string) (io.ReadCloser, error) {
	if e.download != nil {
		e.download()
		e.download = nil
	}
	return nil, errUnreadable
}

// The listing of a checkout, which is checked whole before anything is written, takes
// little memory. As Go values it would be four times the bound.
func TestCheckout_ListsManyObjectsInLittleMemory(t *testing.T) {
	const objects, most = 200_000, 8 << 20
	b := newBench(t, nil)
	var before, during runtime.MemStats
	b.downloader.Concurrency = 1
	lake := &endless{objects: objects, download: func() {
		runtime.GC()
		runtime.ReadMemStats(&during)
	}}
	b.downloader.Lake = lake
	runtime.GC()
	runtime.ReadMemStats(&before)
	if _, err := b.downloader.Run(t.Context(), b.task(nil), &attempt{}); !errors.Is(err, errUnreadable) {
		t.Fatal(err)
	}
	if held := int64(during.HeapAlloc) - int64(before.HeapAlloc); lake.download != nil || held > most {
		t.Errorf("%d MiB are held at the first download", held>>20)
	}
}

// unsorted is a lake whose listing is not one of the prefix, or not in order.
type unsorted struct {
	endless
	keys []string
}

func (u *unsorted) Objects(context.Context, txn.Repository, txn.CommitID, txn.Prefix) iter.Seq2[txn.Object, error] {
	return func(yield func(txn.Object, error) bool) {
		for _, key := range u.keys {
			if !yield(txn.Object{Path: key}, nil) {
				return
			}
		}
	}
}

// A file that is a directory as well is found by the order of the keys, so a listing
// that is not in order writes nothing.
func TestCheckout_RefusesAListingItCannotTrust(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][]string{
		"out of order":   {"data/b", "data/a"},
		"twice":          {"data/a", "data/a"},
		"another prefix": {"data.json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			b.downloader.Lake = &unsorted{keys: keys}
			if _, err := b.downloader.Run(t.Context(), b.task(nil), &attempt{}); err == nil || !strings.Contains(err.Error(), "the listing under ") {
				t.Errorf("got %v", err)
			}
			if entries, err := os.ReadDir(b.root); err != nil || len(entries) != 0 {
				t.Errorf("%v was made, %v", entries, err)
			}
		})
	}
}

// A failed checkout by hand takes away what it made in the order that directories
// need, whatever stands beside them.
func TestByHand_RemovesItsDirectories(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data/a": "1", "data/d": "2", "data/d.x/e": "2", "data/e/f/g": "3", "data/e/f.h": "3", "data/e/i/j": "3", "data/z/y": "4", "data/z/z": "5"})
	directory := filepath.Join(t.TempDir(), "new")
	b.downloader.Concurrency = 1
	b.downloader.Lake = &failing{Lake: b.downloader.Lake, at: "data/z/z"}
	if _, err := b.downloader.ByHand(t.Context(), b.hand(directory), &attempt{}); !errors.Is(err, errUnreadable) {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Stat(directory); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v is left: %v", tree(t, directory), err)
	}
}

type failing struct {
	checkout.Lake
	at string
}

func (f *failing) ReadObject(ctx context.Context, repository txn.Repository, ref txn.CommitID, path string) (io.ReadCloser, error) {
	if path == f.at {
		return nil, errUnreadable
	}
	return f.Lake.ReadObject(ctx, repository, ref, path)
}
