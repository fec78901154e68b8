package projection

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// look is what one look at a file says of its identity and its content, without
// reading the content.
type look struct {
	device, inode uint64
	size          int64
	// modified is in nanoseconds.
	modified int64
}

func lookOf(info fs.FileInfo) look {
	// On every Unix it is one.
	stat := info.Sys().(*syscall.Stat_t)
	return look{device: uint64(stat.Dev), inode: stat.Ino, size: info.Size(), modified: info.ModTime().UnixNano()}
}

// same reports whether both are of one file, whatever it holds.
func (l look) same(other look) bool { return l.device == other.device && l.inode == other.inode }

// append encodes the look for a list.
func (l look) append(to []byte) []byte {
	to = binary.AppendUvarint(to, l.device)
	to = binary.AppendUvarint(to, l.inode)
	to = binary.AppendUvarint(to, uint64(l.size))
	return binary.LittleEndian.AppendUint64(to, uint64(l.modified))
}

var errLook = errors.New("a list of files holds a broken record")

func readLook(raw []byte) (look, error) {
	var numbers [3]uint64
	for i := range numbers {
		n := 0
		numbers[i], n = binary.Uvarint(raw)
		if n <= 0 {
			return look{}, errLook
		}
		raw = raw[n:]
	}
	if len(raw) != 8 {
		return look{}, errLook
	}
	return look{device: numbers[0], inode: numbers[1], size: int64(numbers[2]), modified: int64(binary.LittleEndian.Uint64(raw))}, nil
}

// unsteady is an *UnsteadyError when a file is another one at every look although
// nothing else about it differs. A file that somebody replaced is another one only
// once. Otherwise it is nil. parent is on the same file system.
func unsteady(walked string, was, is look, again func() (fs.FileInfo, error), parent *os.Root) error {
	seen := []look{was, is}
	for range 2 {
		info, err := again()
		if err != nil {
			return nil
		}
		seen = append(seen, lookOf(info))
	}
	for i, one := range seen {
		if one.size != was.size || one.modified != was.modified {
			return nil
		}
		for _, other := range seen[:i] {
			if one.same(other) {
				return nil
			}
		}
	}
	return &UnsteadyError{Path: walked, FileSystem: fileSystemOf(parent)}
}

// fileSystems are the names of those on which files have been seen or said to have
// other numbers at each look, and of what workspaces usually stand on.
var fileSystems = map[uint32]string{
	0x65735546: "FUSE", 0xff534d42: "CIFS", 0xfe534d42: "SMB", 0x517b: "SMB", 0x6969: "NFS",
	0x01021997: "9p", 0x794c7630: "overlayfs", 0x00c36400: "Ceph", 0x0bd00bd0: "Lustre", 0x786f4256: "vboxsf",
	0xef53: "ext4", 0x58465342: "XFS", 0x9123683e: "Btrfs", 0x01021994: "tmpfs",
}

// fileSystemOf is the name of the file system that a directory is on.
func fileSystemOf(directory *os.Root) string {
	const unknown = "the file system of the workspace"
	file, err := directory.Open(".")
	if err != nil {
		return unknown
	}
	defer file.Close()
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &stat); err != nil {
		return unknown
	}
	if name, ok := fileSystems[uint32(stat.Type)]; ok {
		return "the file system (" + name + ")"
	}
	return unknown
}
