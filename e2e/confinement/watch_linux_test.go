package confinement

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What is reported of a tree: that something in it was read or changed, and that
// something was opened at all.
const (
	touched = syscall.IN_ACCESS | syscall.IN_MODIFY | syscall.IN_ATTRIB | syscall.IN_CREATE | syscall.IN_DELETE | syscall.IN_MOVED_FROM | syscall.IN_MOVED_TO
	opened  = syscall.IN_OPEN
)

var eventNames = []struct {
	mask uint32
	name string
}{
	{syscall.IN_OPEN, "opened"}, {syscall.IN_ACCESS, "read"}, {syscall.IN_MODIFY, "written"}, {syscall.IN_ATTRIB, "changed in its attributes"},
	{syscall.IN_CREATE, "created"}, {syscall.IN_DELETE, "deleted"}, {syscall.IN_MOVED_FROM, "moved away"}, {syscall.IN_MOVED_TO, "moved there"},
	{syscall.IN_Q_OVERFLOW, "one of very many events"},
}

// watch is the kernel's own report on a tree.
type watch struct {
	t     *testing.T
	fd    int
	paths map[int32]string
}

func newWatch(t *testing.T, top string, mask uint32) *watch {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatalf("watch %s: %v", top, err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	w := &watch{t: t, fd: fd, paths: map[int32]string{}}
	err = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		id, err := syscall.InotifyAddWatch(fd, path, mask|syscall.IN_DONT_FOLLOW)
		w.paths[int32(id)] = path
		return err
	})
	if err != nil {
		t.Fatalf("watch %s: %v", top, err)
	}
	w.forget() // the walk's own
	return w
}

// events are those since the last time.
func (w *watch) events() (all []string) {
	w.t.Helper()
	seen := map[string]bool{}
	for _, event := range w.read() {
		if !seen[event] {
			seen[event] = true
			all = append(all, event)
		}
	}
	return all
}

// forget drops the events so far.
func (w *watch) forget() { w.read() }

func (w *watch) read() (all []string) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := syscall.Read(w.fd, buffer)
		if err == syscall.EAGAIN {
			return all
		}
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			w.t.Fatalf("read what was watched: %d, %v", n, err)
		}
		for at := 0; at+syscall.SizeofInotifyEvent <= n; {
			id := int32(binary.NativeEndian.Uint32(buffer[at:]))
			mask := binary.NativeEndian.Uint32(buffer[at+4:])
			length := int(binary.NativeEndian.Uint32(buffer[at+12:]))
			at += syscall.SizeofInotifyEvent
			name := strings.TrimRight(string(buffer[at:at+length]), "\x00")
			at += length
			for _, known := range eventNames {
				if mask&known.mask != 0 {
					all = append(all, fmt.Sprintf("%s was %s", filepath.Join(w.paths[id], name), known.name))
				}
			}
		}
	}
}

// watches says that the kernel reports.
const watches = true
