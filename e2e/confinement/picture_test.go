//go:build unix

package confinement

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// picture is everything below a directory, links as links.
func picture(t *testing.T, top string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode().IsRegular():
			read, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(read)
		case info.Mode()&fs.ModeSymlink != 0:
			if content, err = os.Readlink(path); err != nil {
				return err
			}
		}
		inode := info.Sys().(*syscall.Stat_t).Ino
		all[path] = fmt.Sprintf("%v, %d bytes, inode %d, written %s: %q", info.Mode(), info.Size(), inode, info.ModTime().UTC().Format("2006-01-02T15:04:05.000000000"), content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
