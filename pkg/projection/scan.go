package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"perago/pkg/txn"
)

// Entry is one regular file of a scanned directory.
type Entry struct {
	// Path is relative to the directory, separated by slashes, and valid UTF-8.
	Path string
	// Size is in bytes.
	Size int64

	// info is the file's identity, size and modification time as scanned.
	info fs.FileInfo
}

// Scan lists every regular file below a directory of the root, in the byte order
// of their paths. The directory is slash separated and relative to the root; "."
// is the root itself. Files whose names begin with a dot are files like any
// other, hard links are plain files, and empty directories are not in the tree.
//
// The errors are ErrMissing and ErrNotDirectory for the directory itself,
// *UnrepresentableError for a symbolic link, device, FIFO or socket anywhere in
// it or among its own components and for a name that is not valid UTF-8,
// *ChangedError for something that moved during the walk, ctx.Err(), and those
// of the file system. No file is opened, so a FIFO cannot hold the walk.
func Scan(ctx context.Context, root *os.Root, directory string) ([]Entry, error) {
	if !filepath.IsLocal(directory) {
		return nil, txn.Terminalf("source.directory", "%q is not a path below the workspace root", directory)
	}
	top, err := openComponents(root, path.Clean(directory))
	if err != nil {
		return nil, err
	}
	defer top.Close()
	entries, err := appendDirectory(ctx, nil, top, "")
	if err != nil {
		return nil, err
	}
	// The walk goes by directory, which is not the order of the whole paths: a.b
	// sorts before a/b, although the directory a comes before the file a.b.
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) })
	return entries, nil
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
	if err != nil {
		return nil, notAsSeen(walked, err)
	}
	now, err := directory.Stat(".")
	if err != nil {
		directory.Close()
		return nil, fmt.Errorf("look at %q: %w", walked, err)
	}
	if !os.SameFile(seen, now) {
		directory.Close()
		return nil, &ChangedError{Path: walked, Detail: "is another directory now"}
	}
	return directory, nil
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

func appendDirectory(ctx context.Context, entries []Entry, directory *os.Root, prefix string) ([]Entry, error) {
	names, err := namesOf(directory)
	if err != nil {
		return nil, fmt.Errorf("list %q: %w", cmp.Or(prefix, "."), err)
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		walked := path.Join(prefix, name)
		info, err := directory.Lstat(name)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil, &ChangedError{Path: walked, Detail: "is gone", Cause: err}
			}
			return nil, fmt.Errorf("look at %q: %w", walked, err)
		}
		if reason := refusal(info.Mode()); reason != "" {
			return nil, &UnrepresentableError{Path: walked, Reason: reason}
		}
		if !info.IsDir() {
			// The whole path, so that an empty directory's name does no harm.
			if !utf8.ValidString(walked) {
				return nil, &UnrepresentableError{Path: walked, Reason: "is not valid UTF-8; rename it"}
			}
			entries = append(entries, Entry{Path: walked, Size: info.Size(), info: info})
			continue
		}
		below, err := openDirectory(directory, name, walked, info)
		if err != nil {
			return nil, err
		}
		entries, err = appendDirectory(ctx, entries, below, walked)
		below.Close()
		if err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// namesOf lists a directory in order, so that of two faults the same one is
// reported every time.
func namesOf(directory *os.Root) ([]string, error) {
	file, err := directory.Open(".")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	names, err := file.Readdirnames(-1)
	slices.Sort(names)
	return names, err
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
