package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"perago/pkg/txn"
)

// millionLimit is the most memory, in bytes, that the worker may take at its peak.
const millionLimit = 256 * mib

// millionEdits is how many files change before the second stage.
const millionEdits = 10

// millionPath is the path of file i below its directory: 75 characters.
func millionPath(i int) string { return fmt.Sprintf("d%04d/%069d", i/250, i) }

// millionFiles writes count files of eight bytes. It keeps no list of them: a
// child's peak memory is at least what this process had when it started the child.
func millionFiles(ctx context.Context, directory string, count int) error {
	writers, writing := errgroup.WithContext(ctx)
	writers.SetLimit(16)
	for first := 0; first < count && writing.Err() == nil; first += 250 {
		writers.Go(func() error {
			if err := os.MkdirAll(filepath.Join(directory, filepath.Dir(millionPath(first))), 0o755); err != nil {
				return err
			}
			for i := first; i < min(first+250, count) && writing.Err() == nil; i++ {
				if err := os.WriteFile(filepath.Join(directory, millionPath(i)), fmt.Appendf(nil, "%08d", i), 0o644); err != nil {
					return err
				}
			}
			return writing.Err()
		})
	}
	// Cancelled before the first of them began, none has said so.
	return cmp.Or(writers.Wait(), ctx.Err())
}

// millionEdit changes ten files, spread over all of them. Their time changes by
// whole seconds, because lakectl goes by size and whole seconds.
func millionEdit(directory string, count int) error {
	later := time.Now().Add(time.Minute)
	for i := range millionEdits {
		path := filepath.Join(directory, millionPath(i*(count/millionEdits)))
		if err := os.WriteFile(path, []byte("changed!"), 0o644); err != nil {
			return err
		}
		if err := os.Chtimes(path, later, later); err != nil {
			return err
		}
	}
	return nil
}

// peakMemory is the figure of one run.
type peakMemory struct {
	of    string
	bytes int64
}

// tooMuch names every run that took more than the limit.
func tooMuch(peaks []peakMemory, limit int64) error {
	var failed error
	for _, p := range peaks {
		if p.bytes > limit {
			failed = errors.Join(failed, fmt.Errorf("%s took %d KiB of memory, more than %d KiB", p.of, p.bytes/kib, limit/kib))
		}
	}
	return failed
}

// million stages a million files into an empty prefix, stages them again with ten
// changed, and checks them out. It prints the peak memory of the worker for each,
// and that of lakectl local for the same work on some of the files. It fails when
// the worker took more than the limit.
func million(ctx context.Context, b *bench, name string) error {
	count, part := b.million/b.scale, min(b.millionLakectl, b.million)/b.scale
	if count < millionEdits || part < millionEdits {
		return fmt.Errorf("%d files, and %d for lakectl, are too few: %d of them change", count, part, millionEdits)
	}
	var peaks []peakMemory
	line := func(by, what string, files int, took time.Duration, peak int64) {
		fmt.Fprintf(b.out, "bench %s peak=%.1fMiB by=%s run=%s files=%d took=%.1fs", name, float64(peak)/mib, by, what, files, took.Seconds())
		if by == "perago" {
			peaks = append(peaks, peakMemory{what, peak})
			fmt.Fprintf(b.out, " limit=%dMiB", millionLimit/mib)
		}
		fmt.Fprintln(b.out)
	}

	directory := filepath.Join(b.dir, string(workflow), name)
	if err := millionFiles(ctx, directory, count); err != nil {
		return err
	}
	repository, ref, err := b.repository(ctx, name)
	if err != nil {
		return err
	}
	for _, stage := range []struct {
		what string
		want int
	}{{"stage", count}, {"stage-changed", millionEdits}} {
		took, staged, peak, err := b.self(ctx, job{
			Kind: "ours", Repository: string(repository), Ref: string(ref), Prefix: "data/",
			Root: b.dir, Directory: name, Concurrency: ourConcurrency,
		})
		if err != nil {
			return fmt.Errorf("%s: %w", stage.what, err)
		}
		if staged.Objects != stage.want {
			return fmt.Errorf("%s staged %d objects, not %d", stage.what, staged.Objects, stage.want)
		}
		line("perago", stage.what, count, took, peak)
		ref = txn.CommitID(staged.Commit)
		if stage.what == "stage" {
			if err := millionEdit(directory, count); err != nil {
				return err
			}
		}
	}
	// Three copies of a million files need not be there at once.
	if err := os.RemoveAll(directory); err != nil {
		return err
	}
	took, checkedOut, peak, err := b.self(ctx, job{
		Kind: "checkout", Repository: string(repository), Ref: string(ref), Prefix: "data/", Root: b.dir, Concurrency: ourConcurrency,
	})
	if err != nil {
		return fmt.Errorf("checkout: %w", err)
	}
	if checkedOut.Objects != count {
		return fmt.Errorf("checkout gave %d files, not %d", checkedOut.Objects, count)
	}
	line("perago", "checkout", count, took, peak)
	if err := os.RemoveAll(filepath.Join(b.dir, string(workflow))); err != nil {
		return err
	}

	if part < count {
		fmt.Fprintf(b.out, "bench %s lakectl has %d of the %d files, because its part is bounded (-million-lakectl)\n", name, part, count)
	}
	if err := b.millionOfLakectl(ctx, name, part, line); err != nil {
		return err
	}
	return tooMuch(peaks, millionLimit)
}

// millionOfLakectl does the same with lakectl local.
func (b *bench) millionOfLakectl(ctx context.Context, name string, count int, line func(by, what string, files int, took time.Duration, peak int64)) error {
	directory, again := filepath.Join(b.dir, name+"-lakectl"), filepath.Join(b.dir, name+"-lakectl-again")
	if err := millionFiles(ctx, directory, count); err != nil {
		return err
	}
	repository, _, err := b.repository(ctx, name+"-lakectl")
	if err != nil {
		return err
	}
	remote := fmt.Sprintf("lakefs://%s/main/data/", repository)
	if _, _, _, err := process(ctx, b.lakectlEnv(), b.lakectl, "local", "init", remote, directory); err != nil {
		return err
	}
	for _, run := range []struct {
		what      string
		arguments []string
	}{
		{"commit", []string{"commit", "--no-progress", "-y", "-m", "all of them", directory}},
		{"commit-changed", []string{"commit", "--no-progress", "-y", "-m", "ten of them", directory}},
		{"clone", []string{"clone", "--no-progress", remote, again}},
	} {
		if run.what == "commit-changed" {
			if err := millionEdit(directory, count); err != nil {
				return err
			}
		}
		took, _, peak, err := process(ctx, b.lakectlEnv(), b.lakectl, append([]string{"local"}, run.arguments...)...)
		if err != nil {
			return err
		}
		line("lakectl", run.what, count, took, peak)
	}
	// lakectl did the same work only if every file came back.
	for i := range count {
		if _, err := os.Stat(filepath.Join(again, millionPath(i))); err != nil {
			return fmt.Errorf("what lakectl committed and cloned: %w", err)
		}
	}
	return errors.Join(os.RemoveAll(directory), os.RemoveAll(again))
}
