package projection

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"syscall"
)

// File is the content of one entry. It gives exactly the entry's Size bytes, or
// a *ChangedError: together with the last byte at the latest, so that a reader
// who counts and never asks for the end of file learns it too.
type File struct {
	file  *os.File
	entry Entry
	left  int64
}

// Reader opens the files of a directory that Scan has scanned. Files come in the
// order of their paths, so it keeps the directory of the latest one open: going down
// from the root to each file anew is most of what reading a small file costs. It may
// be used by many goroutines at once.
type Reader struct {
	root      *os.Root
	directory string
	// lstat looks at a name in a directory.
	lstat func(directory *os.Root, name string) (fs.FileInfo, error)

	mu     sync.Mutex
	latest *parent
}

// parent is an open directory, which is closed when it is not the latest any more
// and nobody looks for a file in it.
type parent struct {
	*os.Root
	path   string
	users  int
	passed bool
}

// NewReader is for the entries that Scan found in this directory of this root.
func NewReader(root *os.Root, directory string) *Reader {
	return &Reader{root: root, directory: directory, lstat: (*os.Root).Lstat}
}

// Close closes the directory that is kept open. Files that are open stay so.
func (r *Reader) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pass()
}

// pass ends the latest directory's being so; the lock is held.
func (r *Reader) pass() {
	if r.latest == nil {
		return
	}
	r.latest.passed = true
	if r.latest.users == 0 {
		r.latest.Close()
	}
	r.latest = nil
}

// enter gives the directory of a path below the scanned one; leave ends its use.
func (r *Reader) enter(below string) (*parent, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latest == nil || r.latest.path != below {
		// With "/." it is opened as a directory or not at all, and nothing waits on a
		// FIFO that took its place.
		opened, err := r.root.OpenRoot(path.Join(r.directory, below) + "/.")
		if err != nil {
			return nil, err
		}
		r.pass()
		r.latest = &parent{Root: opened, path: below}
	}
	r.latest.users++
	return r.latest, nil
}

func (r *Reader) leave(p *parent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.users--; p.users == 0 && p.passed {
		p.Close()
	}
}

// Open opens the file of an entry for streaming. It fails with a *ChangedError when
// the path no longer leads to the same file with the same size and modification
// time, and never waits on a FIFO. The file can be opened again for each try of an
// upload.
func (r *Reader) Open(entry Entry) (*File, error) {
	if !entry.scanned {
		return nil, fmt.Errorf("open %q: the entry comes from no scan", entry.Path)
	}
	below, name := path.Split(entry.Path)
	parent, err := r.enter(path.Clean(below))
	if err != nil {
		return nil, notAsSeen(entry.Path, err)
	}
	defer r.leave(parent)
	info, err := r.lstat(parent.Root, name)
	if err != nil {
		return nil, notAsSeen(entry.Path, err)
	}
	// Looked at before it is opened, because merely opening a device may do
	// something, and a link to the same file is a link all the same.
	if now := lookOf(info); !entry.seen.same(now) {
		if err := unsteady(entry.Path, entry.seen, now, func() (fs.FileInfo, error) { return r.lstat(parent.Root, name) }, parent.Root); err != nil {
			return nil, err
		}
	}
	if err := entry.same(lookOf(info)); err != nil {
		return nil, err
	}
	return openSame(parent.Root, name, entry)
}

// openSame opens what may have been replaced since it was looked at.
func openSame(root *os.Root, name string, entry Entry) (*File, error) {
	// O_NONBLOCK, so that a FIFO that took the file's place opens at once and is
	// refused by its identity. It means nothing for a regular file.
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		// Its rights were changed since the scan, or the system answered the scan wrongly.
		if info, failed := root.Lstat(name); failed == nil {
			return nil, accessError(entry.Path, info)
		}
	}
	if err != nil {
		return nil, notAsSeen(entry.Path, err)
	}
	opened := &File{file: file, entry: entry, left: entry.Size}
	if err := opened.verify(); err != nil {
		file.Close()
		return nil, err
	}
	return opened, nil
}

// Read reads the next bytes of the file, up to the size that was scanned.
func (f *File) Read(p []byte) (int, error) {
	if f.left == 0 {
		// What has bytes was looked at with the last of them.
		if f.entry.Size == 0 {
			if err := f.verify(); err != nil {
				return 0, err
			}
		}
		return 0, io.EOF
	}
	if int64(len(p)) > f.left {
		p = p[:f.left]
	}
	n, err := f.file.Read(p)
	f.left -= int64(n)
	switch {
	case err == io.EOF:
		return n, &ChangedError{Path: f.entry.Path, Detail: fmt.Sprintf("ended %d bytes short of %d", f.left, f.entry.Size)}
	case err != nil:
		return n, fmt.Errorf("read %q: %w", f.entry.Path, err)
	case f.left == 0:
		return n, f.verify()
	}
	return n, nil
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

func (f *File) verify() error {
	info, err := f.file.Stat()
	if err != nil {
		return fmt.Errorf("look at %q: %w", f.entry.Path, err)
	}
	return f.entry.same(lookOf(info))
}

// HashFunc gives the MD5 of an entry's content as 32 lower-case hex digits.
type HashFunc func(context.Context, Entry) (string, error)

// Hash streams an entry's content through MD5, which is what lakeFS keeps as the
// checksum of an upload, and gives 32 lower-case hex digits. The errors are
// those of Open and of reading, and ctx.Err().
func (r *Reader) Hash(ctx context.Context, entry Entry) (string, error) {
	file, err := r.Open(entry)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := md5.New()
	buffer := make([]byte, min(hashBuffer, max(entry.Size, 1)))
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := file.Read(buffer)
		sum.Write(buffer[:n])
		switch err {
		case nil:
		case io.EOF:
			return hex.EncodeToString(sum.Sum(nil)), nil
		default:
			return "", err
		}
	}
}

// hashBuffer is in bytes: few system calls for a large file, little memory for
// many at once.
const hashBuffer = 256 << 10
