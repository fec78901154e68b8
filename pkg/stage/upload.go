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

	"perago/pkg/projection"
	"perago/pkg/txn"
)

// upload sends the added and changed files. The first failure cancels the rest:
// a staging branch with a hole in it is never committed.
func (e *execution) upload(ctx context.Context, branch txn.Branch, plan projection.Plan) error {
	uploads, uploading := errgroup.WithContext(ctx)
	uploads.SetLimit(max(e.UploadConcurrency, 1))
	for entry := range plan.Uploads() {
		if uploading.Err() != nil {
			break
		}
		uploads.Go(func() error {
			if err := e.uploadOne(uploading, branch, entry); err != nil {
				return fmt.Errorf("upload %s: %w", e.input.Prefix.Key(entry.Path), err)
			}
			return nil
		})
	}
	if err := uploads.Wait(); err != nil {
		return err
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
			file, err := projection.Open(e.Root, e.directory, entry)
			if err != nil {
				return nil, err
			}
			return sent.restart(file), nil
		},
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
