package stage

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"perago/pkg/projection"
	"perago/pkg/txn"
)

// A small upload waits for the server, a large one works: small ones are fast when
// many are under way, and a few large ones fill the server's cores. So an upload
// takes one of the connections for each sizeOfConnection of its size that has
// begun, but at most an eighth of all of them.
const (
	sizeOfConnection = 256 << 10
	leastLarge       = 8
)

// connections is how many of limit an upload of size bytes takes.
func connections(size, limit int64) int64 {
	return max(1, min((size+sizeOfConnection-1)/sizeOfConnection, limit/leastLarge))
}

// upload sends the added and changed files. The first failure cancels the rest:
// a staging branch with a hole in it is never committed.
func (e *execution) upload(ctx context.Context, branch txn.Branch, plan projection.Plan) error {
	uploads, uploading := errgroup.WithContext(ctx)
	limit := int64(max(e.UploadConcurrency, 1))
	free := semaphore.NewWeighted(limit)
	var failed error
	for entry, err := range plan.Uploads() {
		if failed = err; err != nil {
			break
		}
		taken := connections(entry.Size, limit)
		if free.Acquire(uploading, taken) != nil {
			break
		}
		uploads.Go(func() error {
			defer free.Release(taken)
			if err := e.uploadOne(uploading, branch, entry); err != nil {
				return fmt.Errorf("upload %s: %w", e.input.Prefix.Key(entry.Path), err)
			}
			return nil
		})
	}
	if err := uploads.Wait(); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	return ctx.Err()
}

// uploadOne streams one file and compares what lakeFS says it holds with what
// was read.
func (e *execution) uploadOne(ctx context.Context, branch txn.Branch, entry projection.Entry) error {
	sent := digest{md5: md5.New()} // an empty file's content may never be asked for
	object, err := e.Lake.Upload(ctx, e.repository(), branch, e.input.Prefix.Key(entry.Path), txn.Content{
		Size: entry.Size,
		Open: func() (io.ReadCloser, error) {
			file, err := e.files.Open(entry)
			if err != nil {
				return nil, err
			}
			return sent.restart(limited(ctx, file, e.UploadRate)), nil
		},
		Sum: sent.sum,
	})
	if err != nil {
		return err
	}
	if object.Size != entry.Size {
		return fmt.Errorf("lakeFS holds %d bytes of %d", object.Size, entry.Size)
	}
	if sum := sent.sum(); object.Checksum != sum {
		return fmt.Errorf("lakeFS holds MD5 %s, sent was %s", object.Checksum, sum)
	}
	return nil
}

// mostAtOnce bounds what is read of a file between two looks at the rate, in
// bytes. It is the limiter's burst as well, so that any such piece can pass.
const mostAtOnce = 64 << 10

// NewUploadRate is a bound on the bytes that are read for uploads in a second; nil,
// which is no bound, when it is 0.
func NewUploadRate(bytesPerSecond int64) *rate.Limiter {
	if bytesPerSecond == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(bytesPerSecond), mostAtOnce)
}

// limited holds the reading of a file to a rate.
func limited(ctx context.Context, file io.ReadCloser, bound *rate.Limiter) io.ReadCloser {
	if bound == nil {
		return file
	}
	return &limitedReader{ReadCloser: file, ctx: ctx, bound: bound}
}

type limitedReader struct {
	io.ReadCloser
	ctx   context.Context
	bound *rate.Limiter
}

func (r *limitedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p[:min(len(p), mostAtOnce)])
	if waited := r.bound.WaitN(r.ctx, n); waited != nil && err == nil {
		err = waited
	}
	return n, err
}

// digest is the MD5 of the newest try of an upload. The transport may still be
// reading an earlier try's body when the next one begins, so each has a hash of
// its own and the lock is only for which one counts.
type digest struct {
	mu  sync.Mutex
	md5 hash.Hash
}

func (d *digest) restart(file io.ReadCloser) io.ReadCloser {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.md5 = md5.New()
	return &digesting{ReadCloser: file, digest: d, md5: d.md5}
}

func (d *digest) sum() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return hex.EncodeToString(d.md5.Sum(nil))
}

type digesting struct {
	io.ReadCloser
	digest *digest
	md5    hash.Hash
}

func (r *digesting) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.digest.mu.Lock()
	r.md5.Write(p[:n])
	r.digest.mu.Unlock()
	return n, err
}
