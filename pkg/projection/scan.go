package projection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"perago/pkg/spool"
	"perago/pkg/txn"
)

// Scan lists every regular file below a directory of the root. The directory is
// slash separated and relative to the root; "." is the root itself. Files whose
// names begin with a dot are files like any other, hard links are plain files, and
// empty directories are not in the tree.
//
// The errors are ErrMissing and ErrNotDirectory for the directory itself,
// *UnrepresentableError for a symbolic link, device, FIFO or socket anywhere in
// it or among its own components, for a name that is not valid UTF-8 and for a
// directory whose path is too long, *AccessError for files and directories that
// the worker may not read, *UnsteadyError for a file system without lasting inode
// numbers, *ChangedError for something that moved during the walk, ctx.Err(), and
// those of the file system. No file is read, and what is no regular file is never
// opened, so a FIFO cannot hold the walk.
func Scan(ctx context.Context, root *os.Root, directory string) (*Tree, error) {
	return scan(ctx, root, directory, true, treeMemory)
}

// treeMemory is how many bytes of entries a scan holds before it writes them to a
// temporary file. It is enough for some fifty thousand files.
const treeMemory = 8 << 20

// scan is Scan. It asks for the right to read each file only where access says so.
func scan(ctx context.Context, root *os.Root, directory string, access bool, memory int) (_ *Tree, err error) {
	if !filepath.IsLocal(directory) {
		return nil, txn.Terminalf("source.directory", "%q is not a path below the workspace root", directory)
	}
	top, err := openComponents(root, path.Clean(directory))
	if err != nil {
		return nil, err
	}
	defer top.Close()
	w := &walk{ctx: ctx, top: top, access: access, tree: &Tree{root: root, directory: directory, memory: memory}}
	if err = w.run(); err == nil {
		return w.tree, nil
	}
	w.tree.Close()
	return nil, err
}

// walk is one scan under way. It goes from level to level of the tree, because the
// directories of a level are a list that need not be in memory. The order does not
// matter: the tree sorts.
type walk struct {
	ctx    context.Context
	top    *os.Root
	access bool
	tree   *Tree
	// below are the directories of the next level, each with its look.
	below *spool.List
	// refused and denied are of the first path in byte order, so that of several
	// faults the same one is reported every time.
	refused *UnrepresentableError
	denied  *AccessError
}

func (w *walk) run() error {
	w.below = &spool.List{}
	defer func() { w.below.Close() }()
	file, err := w.top.Open(".")
	if err != nil {
		return fmt.Errorf("list the directory: %w", err)
	}
	if err := w.list("", file); err != nil {
		return err
	}
	for w.below.Len() > 0 {
		if err := w.level(); err != nil {
			return err
		}
	}
	switch {
	case w.refused != nil:
		return w.refused
	case w.denied != nil:
		return w.denied
	}
	w.tree.sort()
	return nil
}

// level lists the directories of one level.
func (w *walk) level() error {
	level := w.below
	defer level.Close()
	w.below = &spool.List{}
	for record, err := range level.All() {
		if err != nil {
			return err
		}
		seen, err := readLook(record.Value)
		if err != nil {
			return err
		}
		file, err := w.open(record.Key, seen)
		if err == nil && file != nil {
			err = w.list(record.Key, file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// open opens the directory that was looked at, and no other that took its place in
// between. It is nil when the worker may not list the directory.
func (w *walk) open(walked string, seen look) (*os.File, error) {
	// With "/." it is opened as a directory or not at all. Opening the bare name would
	// wait for ever on a FIFO that took its place.
	file, err := w.top.Open(walked + "/.")
	if err != nil {
		info, failed := w.top.Lstat(walked)
		if failed == nil && errors.Is(err, fs.ErrPermission) {
			w.deny(accessError(walked, info))
			return nil, nil
		}
		return nil, notAsSeen(walked, err)
	}
	info, err := file.Stat()
	if err != nil {
		err = fmt.Errorf("look at %q: %w", walked, err)
	} else if now := lookOf(info); !now.same(seen) {
		err = otherDirectory(w.top, walked, walked, seen, now)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// namesAtOnce bounds the names that are read of a directory at once.
const namesAtOnce = 1024

// list takes what a directory holds and closes it.
func (w *walk) list(walked string, directory *os.File) error {
	defer directory.Close()
	prefix := ""
	if walked != "" {
		prefix = walked + "/"
	}
	for {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		names, err := directory.Readdirnames(namesAtOnce)
		for _, name := range names {
			more, err := w.take(directory, prefix+name, name)
			if err != nil || !more {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list %q: %w", path.Clean(walked), err)
		}
	}
}

// take looks at one name of a directory. more is false when the rest of the
// directory cannot be looked at either.
func (w *walk) take(directory *os.File, walked, name string) (more bool, err error) {
	var found unix.Stat_t
	err = ignoringEINTR(func() error {
		return unix.Fstatat(int(directory.Fd()), name, &found, unix.AT_SYMLINK_NOFOLLOW)
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, &ChangedError{Path: walked, Detail: "is gone", Cause: err}
	case errors.Is(err, fs.ErrPermission):
		// The directory may be listed, and what it holds may not be reached.
		info, failed := directory.Stat()
		if failed != nil {
			return false, fmt.Errorf("look at %q: %w", walked, err)
		}
		w.deny(accessError(path.Dir(walked), info))
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at %q: %w", walked, err)
	}
	mode := modeOf(uint32(found.Mode))
	seen := look{device: uint64(found.Dev), inode: found.Ino, size: found.Size, modified: found.Mtim.Nano()}
	if reason := refusal(mode); reason != "" {
		w.refuse(walked, reason)
		return true, nil
	}
	if mode.IsDir() {
		if len(walked) > txn.MaxKeyBytes {
			// At once: below it there may be no end of directories.
			return false, &UnrepresentableError{Path: walked, Reason: fmt.Sprintf("is a directory whose path has %d bytes, and lakeFS takes %d for a whole key; shorten the names, or put fewer directories inside one another", len(walked), txn.MaxKeyBytes)}
		}
		return true, w.below.Append(walked, seen.append(nil))
	}
	// The whole path, so that an empty directory's name does no harm.
	if !utf8.ValidString(walked) {
		w.refuse(walked, "is not valid UTF-8; rename it")
		return true, nil
	}
	if w.access {
		readable, err := mayRead(directory, name)
		if err != nil {
			return false, notAsSeen(walked, err)
		}
		if !readable {
			w.deny(newAccessError(walked, mode, found.Uid, found.Gid))
			return true, nil
		}
	}
	return true, w.tree.add(Entry{Path: walked, Size: found.Size, seen: seen, scanned: true})
}

func (w *walk) refuse(walked, reason string) {
	if w.refused == nil || walked < w.refused.Path {
		w.refused = &UnrepresentableError{Path: walked, Reason: reason}
	}
}

func (w *walk) deny(denied *AccessError) {
	others := 0
	if w.denied != nil {
		others = w.denied.Others + 1
		if w.denied.Path < denied.Path {
			denied = w.denied
		}
	}
	denied.Others = others
	w.denied = denied
}

// mayRead asks whether this process may open a file for reading. The system answers
// without opening the file, for the effective user and with the rights that open has,
// so that root, capabilities, access lists and network file systems all count. An
// older system answers by the mode alone, so a no is believed only when opening the
// file fails as well.
func mayRead(directory *os.File, name string) (bool, error) {
	at := int(directory.Fd())
	err := ignoringEINTR(func() error { return unix.Faccessat(at, name, unix.R_OK, unix.AT_EACCESS) })
	if err == nil {
		return true, nil
	}
	file := -1
	err = ignoringEINTR(func() (err error) {
		file, err = unix.Openat(at, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	if err == nil {
		return true, unix.Close(file)
	}
	if errors.Is(err, fs.ErrPermission) {
		return false, nil
	}
	return false, err
}

func ignoringEINTR(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// modeOf is the mode as package fs has it.
func modeOf(mode uint32) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		m |= fs.ModeDir
	case unix.S_IFLNK:
		m |= fs.ModeSymlink
	case unix.S_IFIFO:
		m |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		m |= fs.ModeSocket
	case unix.S_IFBLK, unix.S_IFCHR:
		m |= fs.ModeDevice
	default:
		m |= fs.ModeIrregular
	}
	return m
}

// openComponents goes down to the directory one component at a time, because a
// Root follows links that stay inside it, and a linked component would let one
// workflow publish the files of another.
func openComponents(root *os.Root, directory string) (*os.Root, error) {
	current, err := root.OpenRoot(".")
	if err != nil {
		return nil, fmt.Errorf("open the workspace root: %w", err)
	}
	if directory == "." {
		return current, nil
	}
	walked := ""
	for name := range strings.SplitSeq(directory, "/") {
		walked = path.Join(walked, name)
		next, err := openComponent(current, name, walked, directory)
		current.Close()
		if err != nil {
			return nil, err
		}
		current = next
	}
	return current, nil
}

func openComponent(parent *os.Root, name, walked, directory string) (*os.Root, error) {
	info, err := parent.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %q", ErrMissing, directory)
	case err != nil:
		return nil, fmt.Errorf("look at %q: %w", walked, err)
	case info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: %q", ErrNotDirectory, walked)
	}
	if reason := refusal(info.Mode()); reason != "" {
		return nil, &UnrepresentableError{Path: walked, Reason: reason}
	}
	return openDirectory(parent, name, walked, info)
}

// openDirectory opens the directory that was looked at, and no other that took
// its place in between.
func openDirectory(parent *os.Root, name, walked string, seen fs.FileInfo) (*os.Root, error) {
	// With "/." the name itself is opened as a directory or not at all; OpenRoot
	// of the bare name would wait for ever on a FIFO that took its place.
	directory, err := parent.OpenRoot(name + "/.")
	if errors.Is(err, fs.ErrPermission) {
		return nil, accessError(walked, seen)
	}
	if err != nil {
		return nil, notAsSeen(walked, err)
	}
	now, err := directory.Stat(".")
	if err != nil {
		err = fmt.Errorf("look at %q: %w", walked, err)
	} else if was, is := lookOf(seen), lookOf(now); !is.same(was) {
		err = otherDirectory(parent, name, walked, was, is)
	}
	if err != nil {
		directory.Close()
		return nil, err
	}
	return directory, nil
}

// otherDirectory is the error of a directory that is not the one that was looked at.
func otherDirectory(parent *os.Root, name, walked string, was, is look) error {
	if err := unsteady(walked, was, is, func() (fs.FileInfo, error) { return parent.Lstat(name) }, parent); err != nil {
		return err
	}
	return &ChangedError{Path: walked, Detail: "is another directory now"}
}

// notAsSeen is the error of opening what was there a moment ago. Refused
// permission and exhausted resources are what they are; anything about the name
// itself means that the name now stands for something else.
func notAsSeen(walked string, err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return fmt.Errorf("open %q: %w", walked, err)
	}
	return &ChangedError{Path: walked, Detail: "cannot be opened any more", Cause: err}
}

// refusal says why something of this mode cannot be published; "" for files and
// directories.
func refusal(mode fs.FileMode) string {
	const only = "; only files and directories can be published"
	switch kind := mode.Type(); {
	case kind == 0, kind == fs.ModeDir:
		return ""
	case kind&fs.ModeSymlink != 0:
		return "is a symbolic link" + only
	case kind&fs.ModeNamedPipe != 0:
		return "is a FIFO" + only
	case kind&fs.ModeSocket != 0:
		return "is a socket" + only
	case kind&fs.ModeDevice != 0:
		return "is a device" + only
	}
	return "is not a regular file" + only
}
