package main

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"perago/e2e/stack"
	"perago/pkg/txn"
)

// sixGiBLimit is the most memory, in bytes, that the worker may take at its peak.
const sixGiBLimit = 100 * mib

// diskDir is where the files and the store of sixGiB are. They are too large for
// memory, where the data of the other scenarios usually is.
const diskDir = "/var/tmp"

// sixGiB stages a file that S3 does not take in one PUT request, stages it again
// unchanged, and checks it out: once where lakeFS signs URLs and once where it does
// not. It reads what lakeFS says of the object and the file that comes back, and
// fails where one of them is not what was staged, or where the worker took more
// memory than the limit.
func sixGiB(ctx context.Context, b *bench, name string) error {
	size, limit := int64(6<<30)/int64(b.scale), int64(5<<30)/int64(b.scale)
	lowered := limit
	if b.scale == 1 {
		lowered = 0 // the worker's own limit is the one to test
	}
	for _, signs := range []bool{true, false} {
		if err := b.aboveOnePut(ctx, name, size, limit, lowered, signs); err != nil {
			return fmt.Errorf("lakeFS signs %t: %w", signs, err)
		}
	}
	return nil
}

func (b *bench) aboveOnePut(ctx context.Context, name string, size, limit, lowered int64, signs bool) (err error) {
	dir, err := os.MkdirTemp(diskDir, "perago-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "root", string(workflow), name, "file")
	if err := sparse(file, size); err != nil {
		return err
	}
	want, err := md5Of(file)
	if err != nil {
		return err
	}
	front := stack.NewPutLimit(limit)
	defer front.Close()
	return b.onS3(ctx, filepath.Join(dir, "s3"), func(b *bench, servers *stack.OnS3) error {
		if err := front.Forward(servers.S3); err != nil {
			return err
		}
		repository, ref, err := b.repository(ctx, name)
		if err != nil {
			return err
		}
		j := job{
			Kind: "ours", Repository: string(repository), Prefix: "data/", Root: filepath.Join(dir, "root"), Directory: name,
			Concurrency: ourConcurrency, Presigned: true, LargestPut: lowered,
		}
		var peaks []peakMemory
		run := func(what string, ref txn.CommitID, objects int) (report, error) {
			j.Ref = string(ref)
			took, r, peak, err := b.self(ctx, j)
			switch {
			case err != nil:
				return r, fmt.Errorf("%s: %w", what, err)
			case r.Objects != objects:
				return r, fmt.Errorf("%s: %d objects, not %d", what, r.Objects, objects)
			}
			peaks = append(peaks, peakMemory{what, peak})
			fmt.Fprintf(b.out, "bench %s peak=%.1fMiB run=%s signs=%t bytes=%d took=%.1fs limit=%dMiB\n",
				name, float64(peak)/mib, what, signs, size, took.Seconds(), sixGiBLimit/mib)
			return r, nil
		}

		staged, err := run("stage", ref, 1)
		if err != nil {
			return err
		}
		ref = txn.CommitID(staged.Commit)
		for object, err := range b.lake.Objects(ctx, repository, ref, "data/") {
			if err != nil {
				return err
			}
			if object.Path != "data/file" || object.Size != size || object.Checksum != want {
				return fmt.Errorf("lakeFS holds %+v, not data/file of %d bytes with MD5 %s", object, size, want)
			}
		}
		if refused, parts := front.Refused.Load(), front.Parts.Load(); refused != 0 || parts < 2 {
			return fmt.Errorf("the store refused %d requests and was sent %d parts", refused, parts)
		}

		again, err := run("stage-unchanged", ref, 0)
		if err != nil {
			return err
		}
		if txn.CommitID(again.Commit) != ref {
			return fmt.Errorf("the unchanged file was committed anew: %s, not %s", again.Commit, ref)
		}

		// The file need not be there twice.
		if err := os.Remove(file); err != nil {
			return err
		}
		j.Kind = "checkout"
		if _, err := run("checkout", ref, 1); err != nil {
			return err
		}
		back, err := filepath.Glob(filepath.Join(dir, "root", string(workflow), "checkout-*", "file"))
		if err != nil {
			return err
		}
		if len(back) != 1 {
			return fmt.Errorf("checked out %q, not one file", back)
		}
		sum, err := md5Of(back[0])
		if err != nil {
			return err
		}
		if sum != want {
			return fmt.Errorf("the file came back with MD5 %s, not %s", sum, want)
		}
		return tooMuch(peaks, sixGiBLimit)
	}, front.Setting(), fmt.Sprint("LAKEFS_BLOCKSTORE_S3_DISABLE_PRE_SIGNED=", !signs))
}

// sparse writes a file of holes. Some bytes of it differ, so that parts in another
// order are another file.
func sparse(path string, size int64) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	const marks = 64
	for i := range int64(marks) {
		if _, err := file.WriteAt([]byte{byte(i + 1)}, i*size/marks); err != nil {
			return err
		}
	}
	return errors.Join(file.Truncate(size), file.Close())
}

func md5Of(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := md5.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
