package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"perago/e2e/stack"
)

// onS3 runs a scenario on a lakeFS of its own, whose objects are in an S3 server. dir
// holds the servers' data; a temporary directory when it is empty. settings are those
// of stack.StartOnS3.
func (b *bench) onS3(ctx context.Context, dir string, scenario func(b *bench, servers *stack.OnS3) error, settings ...string) (err error) {
	servers, err := stack.StartOnS3(ctx, stack.Options{Dir: dir, Progress: os.Stderr}, settings...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.Stop()) }()
	own := *b
	own.store = "s3://" + servers.Bucket + "/"
	own.servers.BlocksDir = servers.BucketDir()
	own.running.lakefs = []int{servers.LakeFS.Pid(), servers.S3.Pid()}
	own.servers.LakeFSURL, own.servers.AccessKeyID, own.servers.SecretAccessKey = servers.LakeFSURL, servers.AccessKeyID, servers.SecretAccessKey
	if own.lake, err = newLake(own.servers); err != nil {
		return err
	}
	return scenario(&own, servers)
}

func presignedSmall(ctx context.Context, b *bench, name string) error {
	count := 5000 / b.scale
	return b.presigned(ctx, name, count, 4*kib, float64(count), "/s")
}

func presignedMedium(ctx context.Context, b *bench, name string) error {
	count := 200 / b.scale
	return b.presigned(ctx, name, count, 4*mib, float64(4*count), "MiB/s")
}

// presigned uploads to the object store itself, against the same through lakeFS and
// lakectl, which goes to the store as well.
func (b *bench) presigned(ctx context.Context, name string, count, size int, amount float64, unit string) error {
	return b.onS3(ctx, "", func(b *bench, _ *stack.OnS3) error {
		u, err := b.uploads(ctx, name, count, size)
		if err != nil {
			return err
		}
		return b.compare(ctx, name, amount, unit, u.oursBy("perago", true), u.oursBy("through lakeFS", false), u.lakectlUpload("lakectl", 0))
	})
}

func importSmall(ctx context.Context, b *bench, name string) error {
	return b.imported(ctx, name, 4*kib)
}

func importMedium(ctx context.Context, b *bench, name string) error {
	return b.imported(ctx, name, 256*kib)
}

// existing begins the prefix of what is in the object store before an import.
const existing = "existing"

// imported is what is in the object store already, against uploading it.
func (b *bench) imported(ctx context.Context, name string, size int) error {
	count := 10_000 / b.scale
	return b.onS3(ctx, "", func(b *bench, servers *stack.OnS3) error {
		u, err := b.uploads(ctx, name, count, size)
		if err != nil {
			return err
		}
		prefix := unique(existing) + "/"
		if err := fill(ctx, servers, prefix, u.local()); err != nil {
			return err
		}
		uploading := u.oursBy("uploading them", true)
		uploading.goal = 20
		var sent int64
		importing := contender{name: "import", run: func(ctx context.Context) (time.Duration, error) {
			took, r, _, err := u.self(ctx, job{
				Kind: "ours", Repository: string(u.repository), Ref: string(u.first), Prefix: "data/",
				Root: u.dir, Import: "s3://" + servers.Bucket + "/" + prefix, Concurrency: ourConcurrency,
			})
			if err == nil && r.Objects != count {
				err = fmt.Errorf("%d objects were imported, want %d", r.Objects, count)
			}
			sent += r.Bytes
			return took, err
		}}
		bare := contender{name: "bare import", run: func(ctx context.Context) (time.Duration, error) {
			branch, err := u.branch(ctx, u.repository, u.first)
			if err != nil {
				return 0, err
			}
			took, _, _, err := u.self(ctx, job{
				Kind: "import", Repository: string(u.repository), Branch: string(branch), Prefix: "data/",
				Import: "s3://" + servers.Bucket + "/" + prefix,
			})
			return took, err
		}}
		if err := b.compare(ctx, name, float64(count), "/s", importing, uploading, bare); err != nil {
			return err
		}
		fmt.Fprintf(b.out, "bench %s sent=%d\n", name, sent)
		return nil
	})
}

// fill puts the files of a directory into the bucket, as whoever wrote them there
// would.
func fill(ctx context.Context, servers *stack.OnS3, prefix, directory string) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: ourConcurrency}}
	defer client.CloseIdleConnections()
	var puts errgroup.Group
	puts.SetLimit(ourConcurrency)
	err := filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		key, err := filepath.Rel(directory, path)
		if err != nil {
			return err
		}
		puts.Go(func() error {
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			defer file.Close()
			info, err := file.Stat()
			if err != nil {
				return err
			}
			request, err := http.NewRequestWithContext(ctx, http.MethodPut, servers.Sign(http.MethodPut, prefix+filepath.ToSlash(key), time.Now(), time.Minute), file)
			if err != nil {
				return err
			}
			request.ContentLength = info.Size()
			response, err := client.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			_, _ = io.Copy(io.Discard, response.Body)
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("put %s: %s", key, response.Status)
			}
			return nil
		})
		return nil
	})
	return errors.Join(err, puts.Wait())
}
