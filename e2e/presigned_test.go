package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/e2e/stack"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// front stands in front of a server and counts the bytes that are sent to it.
type front struct {
	*httptest.Server
	target atomic.Pointer[url.URL]
	bytes  atomic.Int64

	mu sync.Mutex
	// meet is asked about each upload with its number, from 1; what it answers is
	// the answer, unless that is 0.
	meet func(n int, r *http.Request) (status int)
	// urls are the queries of the uploads that it saw.
	urls []string
}

func newFront(t *testing.T) *front {
	f := &front{}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(f.target.Load())
			r.Out.Host = r.In.Host // a URL is signed for it
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 64},
	}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = &countedBody{r.Body, &f.bytes}
		if status := f.met(r); status != 0 {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(status)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Server.Close)
	return f
}

func (f *front) before(t *testing.T, target string) {
	t.Helper()
	address, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	f.target.Store(address)
}

func (f *front) met(r *http.Request) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Method != http.MethodPut || !strings.Contains(r.URL.RawQuery, "X-Amz-Signature=") {
		return 0
	}
	f.urls = append(f.urls, r.URL.RawQuery)
	if f.meet == nil {
		return 0
	}
	return f.meet(len(f.urls), r)
}

// from forgets what was seen and says what the next uploads meet.
func (f *front) from(meet func(n int, r *http.Request) int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.urls, f.meet = nil, meet
	f.bytes.Store(0)
}

func (f *front) uploads() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.urls...)
}

type countedBody struct {
	io.ReadCloser
	bytes *atomic.Int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes.Add(int64(n))
	return n, err
}

// A step is staged by pre-signed uploads on a lakeFS whose objects are in S3: the
// bytes go past lakeFS, what is published is exact, and what was staged in this way
// is comparable. Then one after the other: a URL expires, the store fails, and it is
// out of reach.
func TestPresignedUploads(t *testing.T) {
	t.Parallel()
	lake, store := newFront(t), newFront(t)
	servers := stack.RequireOnS3(t, "LAKEFS_BLOCKSTORE_S3_PRE_SIGNED_ENDPOINT="+store.URL)
	lake.before(t, servers.LakeFSURL)
	store.before(t, servers.S3.URL())
	f := newFleetOf(t, setup{
		files: map[string]string{"data/a": "old", "data/gone": "x", "data.json": "j"}, s3: servers, without: "stage-worker",
		// The workflow that fails leaves its branch to the sweep.
		expect: []lakefstest.Expectation{lakefstest.Allow(lakefstest.RuleBranches)},
	})
	begin := func(env ...string) *process {
		env = append(append(f.stageEnv(), "LAKECTL_SERVER_ENDPOINT_URL="+lake.URL), env...)
		p := start(t, "stage-worker", f.env(env...)...)
		p.ready()
		return p
	}
	stage := begin()

	files := map[string]string{"a": "new", "empty": "", "sp ace%41+é/?x=1&y=2": "odd", "large": strings.Repeat("0123456789abcdef", 1<<18)}
	for i := range 20 {
		files[fmt.Sprintf("many/%02d", i)] = fmt.Sprint("file ", i)
	}
	f.user("prepare", func(txn.Task) map[string]string { return files })
	tasks := step("prepare", "data", "${workflow.input.workspace}", nil)
	name := f.register("presigned", tasks...)
	once := step("prepare", "data", "${workflow.input.workspace}", nil)
	once[1]["name"] = "perago_stage_once"
	failing := f.register("presigned_once", once...)

	var secrets []string
	published := func(t *testing.T) txn.Staged {
		t.Helper()
		staged := outputOf(t, last(t, f.completed(name, map[string]any{"workspace": f.workspace(f.head())}), "prepare_stage")).Staged
		want := map[string]string{"data.json": "j"}
		for path, content := range files {
			want["data/"+path] = content
		}
		if diff := cmp.Diff(want, lakefstest.Tree(t, f.lake, f.repo, f.head())); diff != "" {
			t.Errorf("the published tree differs (-want +got):\n%s", diff)
		}
		secrets = append(secrets, store.uploads()...)
		return staged
	}
	// Of an upload lakeFS hears its address, checksum and size.
	past := func(t *testing.T, uploads int, staged txn.Staged) {
		t.Helper()
		if sent := lake.bytes.Load(); sent > int64(1024*(uploads+10)) || store.bytes.Load() < staged.Bytes {
			t.Errorf("of %d bytes lakeFS was sent %d and the store %d", staged.Bytes, sent, store.bytes.Load())
		}
		if got := len(store.uploads()); got != uploads {
			t.Errorf("%d uploads to the store, want %d", got, uploads)
		}
	}

	t.Run("the bytes go past lakeFS", func(t *testing.T) {
		store.from(nil)
		lake.from(nil)
		staged := published(t)
		if staged.Added != len(files)-1 || staged.Changed != 1 || staged.Removed != 1 || staged.Bytes < 4<<20 {
			t.Errorf("staged %+v", staged)
		}
		past(t, len(files), staged)
		if log := stage.stderr(); !strings.Contains(log, `"uploads go to the object store"`) {
			t.Error("the log does not say where uploads go")
		}
	})
	t.Run("the same again is a no-op", func(t *testing.T) {
		store.from(nil)
		if staged := published(t); !staged.NoOp || len(store.uploads()) != 0 {
			t.Errorf("staged %+v", staged)
		}
	})
	t.Run("a URL that expired is replaced", func(t *testing.T) {
		files = map[string]string{"a": "newer", "b": "b"}
		lake.from(nil)
		store.from(func(n int, r *http.Request) int {
			if n > 1 {
				return 0
			}
			expired, err := servers.Expired(r.URL.String())
			if err != nil {
				t.Error(err)
				return http.StatusTeapot
			}
			address, _ := url.Parse(expired)
			r.URL.RawQuery, r.Host = address.RawQuery, address.Host
			return 0
		})
		past(t, 3, published(t))
	})
	t.Run("a store that fails fails the task", func(t *testing.T) {
		files = map[string]string{"a": "never"}
		head := f.head()
		lake.from(nil)
		store.from(func(int, *http.Request) int { return http.StatusServiceUnavailable })
		task := last(t, f.run(failing, map[string]any{"workspace": f.workspace(head)}), "prepare_stage")
		want := "upload data/a: upload data/a: the object store answered 503 to PUT " + store.URL
		if task.Status != txn.TaskFailed || !strings.Contains(task.Reason, want) || f.head() != head {
			t.Errorf("%s: %s, want %s", task.Status, task.Reason, want)
		}
		secrets = append(secrets, store.uploads()...)
		if strings.Contains(task.Reason, "X-Amz-") {
			t.Errorf("the reason holds a URL: %s", task.Reason)
		}
	})
	through := func(t *testing.T, content string) {
		t.Helper()
		files = map[string]string{"a": content, "empty": ""}
		store.from(nil)
		lake.from(nil)
		if staged := published(t); staged.NoOp || len(store.uploads()) != 0 || lake.bytes.Load() < staged.Bytes {
			t.Errorf("staged %+v", staged)
		}
	}
	t.Run("without a way to the store uploads go through lakeFS", func(t *testing.T) {
		store.Server.Close()
		through(t, strings.Repeat("through lakeFS ", 1<<12))
		if log := stage.stderr(); !strings.Contains(log, "the object store gave no answer to PUT "+store.URL+": dial tcp") {
			t.Error("the log does not say why uploads go through lakeFS")
		}
	})
	f.stop(stage)
	t.Run("so they do where that is configured", func(t *testing.T) {
		never := begin("PERAGO_UPLOAD_PRESIGNED=never")
		through(t, strings.Repeat("not the store ", 1<<12))
		f.stop(never)
		if log := never.stderr(); strings.Contains(log, "uploads go") || strings.Contains(log, store.URL) {
			t.Error("the worker looked for the store")
		}
	})
	for _, secret := range append(secrets, "X-Amz-Signature") {
		if strings.Contains(stage.stderr(), secret) {
			t.Errorf("the worker's log holds %s", secret)
		}
	}
}
