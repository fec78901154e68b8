package main

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"perago/pkg/txn"
)

// ourConcurrency is the stage worker's default of PERAGO_UPLOAD_CONCURRENCY.
const ourConcurrency = 128

const (
	kib = 1 << 10
	mib = 1 << 20
)

// uploads are the contenders of a scenario that uploads a directory into an empty
// prefix. Each uploads to a branch of its own.
type uploads struct {
	*bench
	repository txn.Repository
	first      txn.CommitID
	directory  string
	// peak is the most memory a run of ours took.
	peak int64
}

func (b *bench) uploads(ctx context.Context, name string, count, size int) (*uploads, error) {
	u := &uploads{bench: b}
	var err error
	if u.directory, err = b.files(name, count, size); err != nil {
		return nil, err
	}
	u.repository, u.first, err = b.repository(ctx, name)
	return u, err
}

func (u *uploads) ours() contender { return u.oursBy("perago", false) }

// oursBy is ours, whose uploads go to the object store itself where lakeFS offers
// that.
func (u *uploads) oursBy(name string, presigned bool) contender {
	return contender{name: name, run: func(ctx context.Context) (time.Duration, error) {
		took, _, peak, err := u.self(ctx, job{
			Kind: "ours", Repository: string(u.repository), Ref: string(u.first), Prefix: "data/",
			Root: u.dir, Directory: u.directory, Concurrency: ourConcurrency, Presigned: presigned,
		})
		u.peak = max(u.peak, peak)
		return took, err
	}}
}

func (u *uploads) local() string { return filepath.Join(u.dir, string(workflow), u.directory) }

func (u *uploads) lakectlUpload(name string, goal float64, flags ...string) contender {
	return contender{name: name, goal: goal, run: func(ctx context.Context) (time.Duration, error) {
		branch, err := u.branch(ctx, u.repository, u.first)
		if err != nil {
			return 0, err
		}
		arguments := append([]string{
			"fs", "upload", "--recursive", "--no-progress", "--source", u.local() + "/",
			fmt.Sprintf("lakefs://%s/%s/data/", u.repository, branch),
		}, flags...)
		took, _, _, err := process(ctx, u.lakectlEnv(), u.lakectl, arguments...)
		return took, err
	}}
}

func (u *uploads) rcloneCopy(goal float64) contender {
	return contender{name: "rclone", goal: goal, run: func(ctx context.Context) (time.Duration, error) {
		branch, err := u.branch(ctx, u.repository, u.first)
		if err != nil {
			return 0, err
		}
		return u.runRclone(ctx, "copy", u.local(), fmt.Sprintf(":s3:%s/%s/data", u.repository, branch), "--transfers", "32", "--checkers", "32")
	}}
}

func (u *uploads) plain(kind, name string, goal float64, concurrency int) contender {
	return contender{name: name, goal: goal, run: func(ctx context.Context) (time.Duration, error) {
		branch, err := u.branch(ctx, u.repository, u.first)
		if err != nil {
			return 0, err
		}
		took, _, _, err := u.self(ctx, job{
			Kind: kind, Repository: string(u.repository), Branch: string(branch), Prefix: "data/",
			Root: u.dir, Directory: u.directory, Concurrency: concurrency,
		})
		return took, err
	}}
}

// floor is the bare loop at its best concurrency.
func (u *uploads) floor(ctx context.Context, goal float64, concurrencies ...int) (contender, error) {
	var candidates []contender
	for _, n := range concurrencies {
		candidates = append(candidates, u.plain("floor", fmt.Sprint(n), 0, n))
	}
	return u.best(ctx, "floor", goal, candidates...)
}

// memory prints the peak memory of ours.
func (u *uploads) memory(name string, limit int64) {
	fmt.Fprintf(u.out, "bench %s peak=%dMiB limit=%dMiB\n", name, u.peak/mib, limit)
}

func (u *uploads) withRclone(peers []contender, goal float64) []contender {
	if u.rclone == "" {
		return peers
	}
	return append(peers, u.rcloneCopy(goal))
}

func small(ctx context.Context, b *bench, name string) error {
	count := 5000 / b.scale
	u, err := b.uploads(ctx, name, count, 4*kib)
	if err != nil {
		return err
	}
	floor, err := u.floor(ctx, 0.85, 32, 64, 128)
	if err != nil {
		return err
	}
	peers := u.withRclone([]contender{
		u.lakectlUpload("lakectl", 2), u.lakectlUpload("lakectl -p 128", 1, "-p", "128"),
		u.plain("sequential", "sequential", 20, 1), floor,
	}, 2.5)
	return b.compare(ctx, name, float64(count), "/s", u.ours(), peers...)
}

func medium(ctx context.Context, b *bench, name string) error {
	count := 200 / b.scale
	u, err := b.uploads(ctx, name, count, 4*mib)
	if err != nil {
		return err
	}
	floor, err := u.floor(ctx, 0.9, 4, 8, 16)
	if err != nil {
		return err
	}
	return b.compare(ctx, name, float64(4*count), "MiB/s", u.ours(), u.lakectlUpload("lakectl", 1.5), floor)
}

func large(ctx context.Context, b *bench, name string) error {
	size := 1024 / b.scale
	u, err := b.uploads(ctx, name, 1, size*mib)
	if err != nil {
		return err
	}
	peers := u.withRclone([]contender{u.lakectlUpload("lakectl", 3.5), u.plain("floor", "floor", 0.9, 1)}, 2)
	if err := b.compare(ctx, name, float64(size), "MiB/s", u.ours(), peers...); err != nil {
		return err
	}
	u.memory(name, 100)
	return nil
}

// edited is a directory of many files of which a few have changed since they were
// committed. Ours compares the content of all of them.
func edited(ctx context.Context, b *bench, name string) error {
	count, edits := 50_000/b.scale, 10
	u, err := b.uploads(ctx, name, count, kib)
	if err != nil {
		return err
	}
	_, staged, _, err := u.self(ctx, job{
		Kind: "ours", Repository: string(u.repository), Ref: string(u.first), Prefix: "data/",
		Root: u.dir, Directory: u.directory, Concurrency: ourConcurrency,
	})
	if err != nil {
		return err
	}
	u.first = txn.CommitID(staged.Commit)
	source := mathrand.NewChaCha8([32]byte{2})
	edit := func(local string) error {
		for i := range edits {
			n := i * (count / edits)
			if err := writeRandom(source, filepath.Join(local, fmt.Sprintf("d%03d", n/250), fmt.Sprintf("f%06d", n)), kib); err != nil {
				return err
			}
		}
		return nil
	}
	// lakectl and rclone keep a directory and a branch of their own.
	clone := filepath.Join(b.dir, name+"-lakectl")
	lakectlBranch, err := b.branch(ctx, u.repository, u.first)
	if err != nil {
		return err
	}
	if _, _, _, err := process(ctx, b.lakectlEnv(), b.lakectl, "local", "clone", "--no-progress", fmt.Sprintf("lakefs://%s/%s/data/", u.repository, lakectlBranch), clone); err != nil {
		return err
	}
	own := u.ours()
	mine := contender{name: own.name, run: func(ctx context.Context) (time.Duration, error) {
		if err := edit(u.local()); err != nil {
			return 0, err
		}
		return own.run(ctx)
	}}
	peers := []contender{{name: "lakectl local commit", goal: 0.9, run: func(ctx context.Context) (time.Duration, error) {
		if err := edit(clone); err != nil {
			return 0, err
		}
		// It goes by size and whole seconds: in the same second it would see nothing.
		later := time.Now().Add(time.Duration(source.Uint64()%1000+2) * time.Second)
		for i := range edits {
			n := i * (count / edits)
			if err := os.Chtimes(filepath.Join(clone, fmt.Sprintf("d%03d", n/250), fmt.Sprintf("f%06d", n)), later, later); err != nil {
				return 0, err
			}
		}
		took, _, _, err := process(ctx, b.lakectlEnv(), b.lakectl, "local", "commit", "--no-progress", "-y", "-m", "edited", clone)
		return took, err
	}}}
	if b.rclone != "" {
		synced := filepath.Join(b.dir, name+"-rclone")
		if err := os.CopyFS(synced, os.DirFS(u.local())); err != nil {
			return err
		}
		branch, err := b.branch(ctx, u.repository, u.first)
		if err != nil {
			return err
		}
		peers = append(peers, contender{name: "rclone sync --checksum", goal: 2.2, run: func(ctx context.Context) (time.Duration, error) {
			if err := edit(synced); err != nil {
				return 0, err
			}
			return b.runRclone(ctx, "sync", "--checksum", synced, fmt.Sprintf(":s3:%s/%s/data", u.repository, branch), "--transfers", "32", "--checkers", "32")
		}})
	}
	if err := b.compare(ctx, name, float64(count), "/s", mine, peers...); err != nil {
		return err
	}
	u.memory(name, 200)
	return nil
}
