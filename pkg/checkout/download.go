package checkout

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"

	"perago/pkg/projection"
	"perago/pkg/txn"
)

// download makes the directory and all files in it. The first failure cancels
// the rest.
func (e *execution) download(ctx context.Context, objects []object) error {
	directory, err := e.create()
	if err != nil {
		return err
	}
	defer directory.Close()
	if err := makeDirectories(directory, objects); err != nil {
		return err
	}
	downloads, downloading := errgroup.WithContext(ctx)
	downloads.SetLimit(max(e.Concurrency, 1))
	for _, one := range objects {
		if downloading.Err() != nil {
			break
		}
		downloads.Go(func() error {
			if err := e.downloadOne(downloading, directory, one); err != nil {
				return fmt.Errorf("download %s: %w", one.Path, err)
			}
			return nil
		})
	}
	if err := downloads.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// create makes the execution's directory below the workflow's, which a user's
// worker may have made already. It is made where it was looked at: a link in the
// place of the workflow's directory would lead into another workflow's.
func (e *execution) create() (*os.Root, error) {
	if err := e.Root.Mkdir(e.workflow, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the workflow's directory: %w", err)
	}
	parent, err := e.openWorkflow()
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	if err := parent.Mkdir(e.name, 0o777); err != nil {
		return nil, fmt.Errorf("make the directory of the checkout: %w", err)
	}
	e.made = true
	return parent.OpenRoot(e.name)
}

func (e *execution) openWorkflow() (*os.Root, error) {
	seen, err := e.Root.Lstat(e.workflow)
	if err != nil {
		return nil, err
	}
	if !seen.IsDir() {
		return nil, fmt.Errorf("%s in the workspace root is not a directory", e.workflow)
	}
	// With "/." it is opened as a directory or not at all.
	parent, err := e.Root.OpenRoot(e.workflow + "/.")
	if err != nil {
		return nil, err
	}
	if now, err := parent.Stat("."); err != nil || !os.SameFile(seen, now) {
		parent.Close()
		return nil, errors.Join(fmt.Errorf("%s in the workspace root is another directory now", e.workflow), err)
	}
	return parent, nil
}

// discard removes what an execution could not complete, because a disk that is
// full would stay full for the next one. Nobody was told the directory's name. It
// gives the error back, with what stood in the way.
func (e *execution) discard(err error) error {
	if !e.made {
		return err
	}
	parent, failed := e.openWorkflow()
	if failed == nil {
		failed = parent.RemoveAll(e.name)
		parent.Close()
	}
	if failed != nil {
		return fmt.Errorf("%w; what was downloaded stays in %s: %w", err, e.directory(), failed)
	}
	return err
}

// makeDirectories makes every directory that holds a file, outermost first: in
// byte order the files below one directory stand together.
func makeDirectories(directory *os.Root, objects []object) error {
	before := ""
	for _, one := range objects {
		for i := range len(one.local) {
			if one.local[i] != '/' || strings.HasPrefix(before, one.local[:i+1]) {
				continue
			}
			if err := directory.Mkdir(one.local[:i], 0o777); err != nil {
				return fmt.Errorf("make the directory of %s: %w", one.Path, err)
			}
		}
		before = one.local
	}
	return nil
}

// mostTries bounds how often one object is read from its beginning because its
// bytes stopped coming.
const mostTries = 3

// downloadOne makes one file, exclusively: where the file system takes two names
// for one, the second is a failure and not a replacement.
func (e *execution) downloadOne(ctx context.Context, directory *os.Root, one object) error {
	file, err := directory.OpenFile(one.local, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		var cut bool
		cut, err = e.fetch(ctx, file, one)
		if err == nil || !cut || try == mostTries || ctx.Err() != nil {
			break
		}
		if err = rewind(file); err != nil {
			break
		}
	}
	return errors.Join(err, file.Close())
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

// fetch streams one object into the file and compares what arrived with what
// lakeFS says it holds. cut says that the bytes stopped coming, so that the same
// may be tried again.
func (e *execution) fetch(ctx context.Context, file *os.File, one object) (cut bool, err error) {
	body, err := e.Lake.ReadObject(ctx, e.input.Workspace.Repository, e.input.Workspace.Ref, one.Path)
	if err != nil {
		return false, e.expired(err)
	}
	defer body.Close()
	sum := md5.New()
	buffer := make([]byte, min(copyBuffer, max(one.Size, 0)+1))
	// One byte more than there should be, to see that there is none.
	n, err := io.CopyBuffer(io.MultiWriter(file, sum), io.LimitReader(body, one.Size+1), buffer)
	switch {
	case err != nil:
		return errors.Is(err, txn.ErrRetryable), err
	case n != one.Size:
		return n < one.Size, fmt.Errorf("%d bytes arrived of %d", n, one.Size)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); projection.IsMD5(one.Checksum) && got != one.Checksum {
		return true, fmt.Errorf("MD5 %s arrived, lakeFS holds %s", got, one.Checksum)
	}
	return false, nil
}
