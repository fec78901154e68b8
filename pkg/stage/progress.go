package stage

import (
	"context"
	"io"
	"iter"
	"sync"

	"perago/pkg/projection"
	"perago/pkg/txn"
)

// counted is the lake with what goes through it counted, as the progress of the
// attempt's phases.
type counted struct {
	Lake
	attempt Attempt
	// uploaded is that of the phase "upload"; nil until expect.
	uploaded func(objects int, bytes int64)
}

// expect begins to count the uploads of a plan.
func (l *counted) expect(plan projection.Plan) {
	l.uploaded = l.attempt.Expect(plan.Added+plan.Changed, plan.Bytes)
}

// Upload counts each piece that is read for an upload, and takes back those of a
// try that is repeated.
func (l *counted) Upload(ctx context.Context, repository txn.Repository, branch txn.Branch, path string, content txn.Content) (txn.Object, error) {
	upload := &upload{count: l.uploaded}
	open := content.Open
	content.Open = func() (io.ReadCloser, error) {
		upload.begin()
		file, err := open()
		if err != nil {
			return nil, err
		}
		return upload.of(file), nil
	}
	object, err := l.Lake.Upload(ctx, repository, branch, path, content)
	if err != nil {
		upload.end(0, 0)
		return object, err
	}
	upload.end(1, content.Size)
	return object, nil
}

// countedHashes counts the files whose content is read to be compared. How many
// that will be is known only at the end of the listing.
func countedHashes(hash projection.HashFunc, attempt Attempt) projection.HashFunc {
	read := attempt.Expect(0, 0)
	return func(ctx context.Context, entry projection.Entry) (string, error) {
		sum, err := hash(ctx, entry)
		if err == nil {
			read(1, entry.Size)
		}
		return sum, err
	}
}

// countedListing counts the objects of a listing of which the number is known.
func countedListing(objects iter.Seq2[txn.Object, error], number int, attempt Attempt) iter.Seq2[txn.Object, error] {
	listed := attempt.Expect(number, 0)
	return func(yield func(txn.Object, error) bool) {
		for object, err := range objects {
			if !yield(object, err) {
				return
			}
			listed(1, 0)
		}
	}
}

// upload counts the bytes of one upload. The transport may still be reading an
// earlier try's body when the next one begins, so a read counts only for the try
// that it belongs to.
type upload struct {
	count func(objects int, bytes int64)

	mu   sync.Mutex
	try  int
	sent int64
}

// begin takes back what an earlier try sent.
func (u *upload) begin() { u.end(0, 0) }

// end makes what was counted what it is: of this size, or nothing.
func (u *upload) end(objects int, size int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if objects != 0 || size != u.sent {
		u.count(objects, size-u.sent)
	}
	u.try++
	u.sent = 0
}

func (u *upload) of(file io.ReadCloser) io.ReadCloser {
	u.mu.Lock()
	defer u.mu.Unlock()
	return &uploadReader{ReadCloser: file, upload: u, try: u.try}
}

type uploadReader struct {
	io.ReadCloser
	upload *upload
	try    int
}

func (r *uploadReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.upload.mu.Lock()
	defer r.upload.mu.Unlock()
	if r.try == r.upload.try && n > 0 {
		r.upload.sent += int64(n)
		r.upload.count(0, int64(n))
	}
	return n, err
}
