package checkout

import (
	"cmp"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"

	"perago/pkg/projection"
	"perago/pkg/txn"
)

// download makes the directory and all files in it. The first failure cancels
// the rest.
func (e *execution) download(ctx context.Context, objects *listing) error {
	directory, err := e.destination.create()
	if err != nil {
		return err
	}
	defer directory.Close()
	e.made = contents{of: objects, files: make([]bool, objects.objects.Len())}
	e.downloaded = e.attempt.Expect(objects.objects.Len(), objects.bytes)
	downloads, downloading := errgroup.WithContext(ctx)
	downloads.SetLimit(max(e.Concurrency, 1))
	i, before := 0, ""
	var failed error
	for one, err := range objects.all() {
		if failed = err; failed != nil || downloading.Err() != nil {
			break
		}
		if failed = e.makeDirectories(directory, before, one); failed != nil {
			break
		}
		made := &e.made.files[i]
		downloads.Go(func() error {
			if err := e.downloadOne(downloading, directory, one, made); err != nil {
				return fmt.Errorf("download %s: %w", one.Path, err)
			}
			return nil
		})
		i, before = i+1, one.local
	}
	if err := downloads.Wait(); err != nil {
		return err
	}
	// The files went where the directory was opened. The path has to lead there still.
	return cmp.Or(failed, context.Cause(ctx), e.destination.same(directory))
}

// discard removes what an execution could not complete, because a disk that is
// full would stay full for the next one. Nobody was told the directory's name. It
// gives the error back, with what stood in the way.
func (e *execution) discard(err error) error {
	if failed := e.destination.discard(&e.made); failed != nil {
		return fmt.Errorf("%w; what was downloaded stays in %s: %w", err, e.destination.path(), failed)
	}
	return err
}

// makeDirectories makes the directories of a file that are not those of the file
// before it, outermost first.
func (e *execution) makeDirectories(root *os.Root, before string, one object) error {
	for directory := range newDirectories(before, one.local) {
		if err := root.Mkdir(directory, 0o777); err != nil {
			return fmt.Errorf("make the directory of %s: %w", one.Path, err)
		}
		e.made.directories++
	}
	return nil
}

// newDirectories gives the directories of a path that are not those of the path
// before it, outermost first. In byte order the files below one directory stand
// together, so each directory comes once.
func newDirectories(before, path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range len(path) {
			if path[i] == '/' && !strings.HasPrefix(before, path[:i+1]) && !yield(path[:i]) {
				return
			}
		}
	}
}

// mostTries bounds how often one object is read from its beginning because its
// bytes stopped coming.
const mostTries = 3

// downloadOne makes one file, exclusively: where the file system takes two names
// for one, the second is a failure and not a replacement.
func (e *execution) downloadOne(ctx context.Context, directory *os.Root, one object, made *bool) error {
	file, err := directory.OpenFile(one.local, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	*made = true
	before := ""
	for try := 1; ; try++ {
		var sum string
		var again bool
		sum, again, err = e.fetch(ctx, file, one)
		if err == nil {
			if again, err = e.compare(ctx, one, sum, before); err != nil {
				e.downloaded(0, -one.Size)
			}
			before = sum
		}
		if err == nil || !again || try == mostTries || ctx.Err() != nil {
			break
		}
		if err = rewind(file); err != nil {
			break
		}
	}
	if err == nil {
		e.downloaded(1, 0)
	}
	return errors.Join(err, file.Close())
}

// compare checks the MD5 of what arrived, whose size is right, against what lakeFS
// says about the object. before is the MD5 of the previous download of it, or "". An
// error may be tried again when again is true.
//
// A checksum that nobody knows to be an MD5 proves damage no more than it proves
// content. Two downloads of equal bytes show that nothing was damaged on the way; then
// the size decides, and the object is counted as compared by size.
func (e *execution) compare(ctx context.Context, one object, sum, before string) (again bool, err error) {
	switch {
	case !projection.IsMD5(one.Checksum):
		e.bySize.Add(1)
		return false, nil
	case sum == one.Checksum:
		return false, nil
	}
	differs := fmt.Errorf("MD5 %s arrived, lakeFS holds %s", sum, one.Checksum)
	if sum != before {
		return true, differs
	}
	known, err := e.Lake.MD5Known(ctx, e.input.Workspace.Repository, e.input.Workspace.Ref, one.Object)
	switch {
	case err != nil:
		return false, e.expired(err)
	case known:
		return true, differs
	}
	e.bySize.Add(1)
	return false, nil
}

func rewind(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.Seek(0, io.SeekStart)
	return err
}

// copyBuffer is in bytes: few system calls for a large object, little memory for
// many at once.
const copyBuffer = 256 << 10

// fetch streams one object into the file, checks its size and returns its MD5. again
// says that the bytes stopped coming, so that the same may be tried again.
func (e *execution) fetch(ctx context.Context, file *os.File, one object) (md5sum string, again bool, err error) {
	arrived := int64(0)
	defer func() {
		if err != nil {
			e.downloaded(0, -arrived)
		}
	}()
	body, err := e.Lake.ReadObject(ctx, e.input.Workspace.Repository, e.input.Workspace.Ref, one.Path)
	if err != nil {
		return "", false, e.expired(err)
	}
	defer body.Close()
	sum := md5.New()
	buffer := make([]byte, min(copyBuffer, max(one.Size, 0))+1)
	// One byte more than there should be, to see that there is none.
	n, err := io.CopyBuffer(io.MultiWriter(file, sum), io.LimitReader(&countedReader{body, &arrived, e.downloaded}, one.Size+1), buffer)
	switch {
	case err != nil:
		return "", errors.Is(err, txn.ErrRetryable), err
	case n != one.Size:
		return "", n < one.Size, fmt.Errorf("%d bytes arrived of %d", n, one.Size)
	}
	return hex.EncodeToString(sum.Sum(nil)), false, nil
}

// countedReader counts what is read, as it is read.
type countedReader struct {
	io.Reader
	read  *int64
	count func(objects int, bytes int64)
}

func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	*r.read += int64(n)
	r.count(0, int64(n))
	return n, err
}
