package lakefs_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/fault"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
)

// A file above the limit of one PUT goes through lakeFS as a form with a length,
// whatever happens to the request. A file at the limit does not.
func TestUpload_SendsAFileAboveTheLimitAsAForm(t *testing.T) {
	t.Parallel()
	for _, f := range append(fault.All(), fault.Fault{}) {
		for _, length := range []int{1024, 1025, 100_000} {
			t.Run(fmt.Sprint(f.Name, "/", length), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					server := lakefstest.NewServer()
					server.PreSign = true
					plain := server.Client(t)
					var forms atomic.Int64
					wire := fault.NewWire(carry(func(r *http.Request) (*http.Response, error) {
						if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/form-data; boundary=") {
							if forms.Add(1); r.ContentLength < int64(length) || len(r.TransferEncoding) != 0 {
								t.Errorf("Content-Length %d, %v", r.ContentLength, r.TransferEncoding)
							}
						}
						return server.Transport().RoundTrip(r)
					}))
					repo, first := lakefstest.NewRepository(t, plain, nil, lakefstest.Allow(lakefstest.RuleBranches))
					if err := plain.CreateBranch(t.Context(), repo, staging, first); err != nil {
						t.Fatal(err)
					}
					config := server.Config()
					config.LargestPut = 1024
					client, err := lakefs.New(config, wire)
					if err != nil {
						t.Fatal(err)
					}
					var armed *fault.Hold
					if f.Name != "" && length > 1024 {
						armed = wire.Arm(throughLakeFS, f)
					}
					text := strings.Repeat("x", length)
					uploading := lakefs.NewPresigned(lakefs.Settling{Client: client}, server.Transport(), func(bool, string) {})
					object, err := uploading.Upload(t.Context(), repo, staging, "large", summed(text))
					if err != nil || object.Size != int64(length) {
						t.Fatal(object, err)
					}
					if armed != nil {
						<-armed.Over()
						if f.Server == fault.Later {
							time.Sleep(f.Wait) // and what was sent instead has landed too
						}
					}
					if above := length > 1024; (forms.Load() > 0) != above || (len(wire.Matching(throughLakeFS)) > 0) != above {
						t.Errorf("%d forms, %d uploads through lakeFS", forms.Load(), len(wire.Matching(throughLakeFS)))
					}
					commit, err := plain.CommitUnchanged(t.Context(), repo, staging, "to look at", nil)
					if err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(map[string]string{"large": text}, lakefstest.Tree(t, plain, repo, commit.ID)); diff != "" {
						t.Error("the object is not the file")
					}
				})
			})
		}
	}
}

// A limit is the limit of S3 alone. lakeFS is asked for its store only where it matters.
func TestUploadLimit(t *testing.T) {
	t.Parallel()
	const limit = 10_000 * 5 << 20
	for _, c := range []struct {
		s3          bool
		lowered     int64
		size, limit int64
		asked       int
	}{
		{s3: true, size: limit},
		{s3: true, size: limit + 1, limit: limit, asked: 1},
		{size: limit + 1, asked: 1},
		{s3: true, lowered: 5, size: 6, limit: 5, asked: 1},
	} {
		server := lakefstest.NewServer()
		server.PreSign = c.s3
		wire := fault.NewWire(server.Transport())
		config := server.Config()
		config.LargestUpload = c.lowered
		client, err := lakefs.New(config, wire)
		if err != nil {
			t.Fatal(err)
		}
		got, err := client.UploadLimit(t.Context(), c.size)
		if asked := len(wire.Matching(fault.Match{Path: "/config"})); err != nil || got != c.limit || asked != c.asked {
			t.Errorf("%+v: limit %d, %v; asked %d times", c, got, err, asked)
		}
	}
}
