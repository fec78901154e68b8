package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"

	"golang.org/x/sync/errgroup"

	"perago/e2e/stack"
	"perago/pkg/checkout"
	"perago/pkg/config"
	"perago/pkg/lakefs"
	"perago/pkg/stage"
	"perago/pkg/txn"
)

func child(arguments []string) error {
	var j job
	if len(arguments) != 1 {
		return fmt.Errorf("a child takes one job")
	}
	if err := json.Unmarshal([]byte(arguments[0]), &j); err != nil {
		return err
	}
	servers, err := stack.FromEnv()
	if err != nil {
		return err
	}
	ctx := context.Background()
	switch j.Kind {
	case "ours":
		if j.Profile != "" {
			file, err := os.Create(j.Profile)
			if err != nil {
				return err
			}
			defer file.Close()
			if err := pprof.StartCPUProfile(file); err != nil {
				return err
			}
			defer pprof.StopCPUProfile()
		}
		r, err := ours(ctx, servers, j)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(r)
	case "checkout":
		r, err := checkedOut(ctx, servers, j)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(r)
	case "import":
		return bareImport(ctx, servers, j)
	case "sequential", "floor":
		if err := plain(ctx, servers, j); err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(report{})
	}
	return fmt.Errorf("no job is called %q", j.Kind)
}

// always is an attempt that is current.
type always struct{}

func (always) Current(context.Context) error      { return nil }
func (always) Phase(string) func()                { return func() {} }
func (always) Expect(int, int64) func(int, int64) { return func(int, int64) {} }

// workflow is whose directory the files are in.
const workflow = txn.WorkflowID("00000000-0000-4000-8000-000000000001")

// ours stages as the stage worker does, with its defaults: it lists the input
// ref, compares, uploads, commits.
func ours(ctx context.Context, servers stack.Servers, j job) (report, error) {
	lake, err := newLakeOf(servers, j.LargestPut)
	if err != nil {
		return report{}, err
	}
	root, err := os.OpenRoot(j.Root)
	if err != nil {
		return report{}, err
	}
	defer root.Close()
	source := map[string]any{"directory": filepath.Join(j.Root, string(workflow), j.Directory)}
	if j.Import != "" {
		source = map[string]any{"import": j.Import}
	}
	input, err := json.Marshal(map[string]any{
		"workspace": txn.Workspace{Repository: txn.Repository(j.Repository), Branch: "main", RefType: txn.RefTypeCommit, Ref: txn.CommitID(j.Ref)},
		"prefix":    j.Prefix, "source": source,
	})
	if err != nil {
		return report{}, err
	}
	imports, err := txn.ParseImportList([]string{"*"})
	if err != nil {
		return report{}, err
	}
	var uploading stage.Lake = lakefs.Settling{Client: lake.Client}
	if j.Presigned {
		uploading = lakefs.NewPresigned(lakefs.Settling{Client: lake.Client}, nil, func(direct bool, why string) {
			if !direct {
				fmt.Fprintln(os.Stderr, "uploads go through lakeFS:", why)
			}
		})
	}
	stager := &stage.Stager{
		Lake: uploading, Root: root, Identity: "bench", Allowed: txn.AllowList{"*"}, AllowedImports: imports,
		UploadConcurrency: j.Concurrency, NewExecutionID: config.NewExecutionID,
	}
	result, err := stager.Run(ctx, txn.Task{
		ID: "bench", Workflow: workflow, Type: txn.TypeStage, ReferenceName: "bench_stage", Status: txn.TaskInProgress,
		PollCount: 1, StartTime: 1, Worker: "bench", Input: input,
	}, always{})
	if err != nil {
		return report{}, err
	}
	return report{
		Commit: string(result.Staged.Commit), Objects: result.Staged.Added + result.Staged.Changed, Bytes: result.Staged.Bytes,
	}, nil
}

// checkedOut checks the prefix out as the stage worker does, with its defaults.
func checkedOut(ctx context.Context, servers stack.Servers, j job) (report, error) {
	lake, err := newLake(servers)
	if err != nil {
		return report{}, err
	}
	root, err := os.OpenRoot(j.Root)
	if err != nil {
		return report{}, err
	}
	defer root.Close()
	input, err := json.Marshal(map[string]any{
		"workspace": txn.Workspace{Repository: txn.Repository(j.Repository), Branch: "main", RefType: txn.RefTypeCommit, Ref: txn.CommitID(j.Ref)},
		"prefix":    j.Prefix,
	})
	if err != nil {
		return report{}, err
	}
	downloader := &checkout.Downloader{
		Lake: lakefs.Settling{Client: lake.Client}, Root: root, Allowed: txn.AllowList{"*"},
		Concurrency: j.Concurrency, NewExecutionID: config.NewExecutionID,
	}
	result, err := downloader.Run(ctx, txn.Task{
		ID: "bench", Workflow: workflow, Type: txn.TypeCheckout, ReferenceName: "bench_checkout", Status: txn.TaskInProgress,
		PollCount: 1, StartTime: 1, Worker: "bench", Input: input,
	}, always{})
	if err != nil {
		return report{}, err
	}
	return report{Commit: j.Ref, Objects: result.Checkout.Objects, Bytes: result.Checkout.Bytes}, nil
}

// bareImport is the one call, and nothing of what staging does around it.
func bareImport(ctx context.Context, servers stack.Servers, j job) error {
	lake, err := newLake(servers)
	if err != nil {
		return err
	}
	source, err := txn.ParseImportSource("import", j.Import)
	if err != nil {
		return err
	}
	if _, err := lake.Import(ctx, txn.Repository(j.Repository), txn.Branch(j.Branch), source, txn.Prefix(j.Prefix), "imported", nil); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report{})
}

// plain uploads every file of the directory and does nothing else. The sequential
// one sends one file after another, each whole in memory; the floor streams, with
// so many connections, and is as little as an upload can be.
func plain(ctx context.Context, servers stack.Servers, j job) error {
	directory := filepath.Join(j.Root, string(workflow), j.Directory)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: max(j.Concurrency, 1), DisableCompression: true}}
	var group errgroup.Group
	group.SetLimit(max(j.Concurrency, 1))
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		upload := func() error {
			key, err := filepath.Rel(directory, path)
			if err != nil {
				return err
			}
			var body io.Reader
			var size int64
			if j.Kind == "sequential" {
				content, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				body, size = bytes.NewReader(content), int64(len(content))
			} else {
				file, err := os.Open(path)
				if err != nil {
					return err
				}
				defer file.Close()
				info, err := file.Stat()
				if err != nil {
					return err
				}
				body, size = file, info.Size()
			}
			address := fmt.Sprintf("%s/api/v1/repositories/%s/branches/%s/objects?path=%s", servers.LakeFSURL, j.Repository, j.Branch, url.QueryEscape(j.Prefix+filepath.ToSlash(key)))
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, body)
			if err != nil {
				return err
			}
			request.ContentLength = size
			request.Header.Set("Content-Type", "application/octet-stream")
			request.SetBasicAuth(servers.AccessKeyID, servers.SecretAccessKey)
			response, err := client.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if _, err := io.Copy(io.Discard, response.Body); err != nil {
				return err
			}
			if response.StatusCode != http.StatusCreated {
				return fmt.Errorf("%s: %s", strings.TrimPrefix(address, servers.LakeFSURL), response.Status)
			}
			return nil
		}
		if j.Kind == "sequential" {
			return upload()
		}
		group.Go(upload)
		return nil
	})
	if waited := group.Wait(); err == nil {
		err = waited
	}
	return err
}
