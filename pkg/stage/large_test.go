package stage_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/stage"
	"perago/pkg/txn"
)

// The largest object that lakeFS can upload to S3.
const largestOnS3 = 10_000 * 5 << 20

// A file that the store cannot take is refused before a branch is made and before a
// byte is sent, by a task and by hand, with pre-signed uploads and without.
func TestStage_RefusesAFileThatTheStoreCannotTake(t *testing.T) {
	t.Parallel()
	const sentence = `source.directory: "sub/big" has 52428800001 bytes, but lakeFS uploads at most 52428800000 bytes to S3 as one object; split the file, or put it into the object store and import it`
	for name, run := range map[string]func(b *bench, directory string) error{
		"a task": func(b *bench, directory string) error {
			result, err := b.stager.Run(b.t.Context(), b.task(directory, nil), &attempt{})
			if result.Output() != nil {
				b.t.Errorf("output %v", result.Output())
			}
			return err
		},
		"by hand":          func(b *bench, directory string) error { return b.byHand(directory, false) },
		"by hand, dry run": func(b *bench, directory string) error { return b.byHand(directory, true) },
	} {
		for _, preSigned := range []bool{false, true} {
			server := lakefstest.NewServer()
			server.PreSign = true
			b := newBenchOn(t, server, map[string]string{"data/a": "1"})
			if preSigned {
				b.stager.Lake = lakefs.NewPresigned(lakefs.Settling{Client: b.recorded}, server.Transport(), func(bool, string) {})
			}
			directory := b.write(map[string]string{"a": "2", "sub/big": "", "z": "3"})
			b.grow(directory, "sub/big", largestOnS3+1)
			err := run(b, directory)
			var terminal *txn.TerminalError
			if !errors.As(err, &terminal) || err.Error() != sentence {
				t.Errorf("%s, pre-signed %t: got %v", name, preSigned, err)
			}
			if n := b.wire.writes() + b.wire.count(http.MethodGet, "/staging/backing"); n != 0 {
				t.Errorf("%s, pre-signed %t: %d writes", name, preSigned, n)
			}
		}
	}
}

// Another store has no such limit, and no other file is refused because of it.
func TestStage_TakesLargeFilesWhereTheStoreDoes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		s3   bool
		size int64
	}{"a local store": {false, largestOnS3 + 1}, "the limit itself": {true, largestOnS3}} {
		server := lakefstest.NewServer()
		server.PreSign = c.s3
		b := newBenchOn(t, server, nil)
		directory := b.write(map[string]string{"big": ""})
		b.grow(directory, "big", c.size)
		if err := b.byHand(directory, true); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// grow makes a file as large as size, without writing it.
func (b *bench) grow(directory, name string, size int64) {
	b.t.Helper()
	if err := os.Truncate(filepath.Join(directory, name), size); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) byHand(directory string, dryRun bool) error {
	b.t.Helper()
	root, err := os.OpenRoot(directory)
	if err != nil {
		b.t.Fatal(err)
	}
	defer root.Close()
	stager := *b.stager
	stager.Root = root
	result, err := stager.ByHand(b.t.Context(), stage.Hand{
		Workspace: txn.Workspace{Repository: b.repo, Branch: "main", RefType: "commit", Ref: b.first},
		Prefix:    "data/", Directory: directory, DryRun: dryRun,
	}, &attempt{})
	result.Close()
	return err
}
