package e2e

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/e2e/stack"
	"perago/pkg/credential"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// The S3 server refuses a PUT above its limit, as AWS does above 5 GiB. A file above the
// limit is uploaded all the same, and under its MD5: with pre-signed URLs, without them,
// and where lakeFS does not sign.
func TestUpload_FileAboveTheLimitOfOnePut(t *testing.T) {
	t.Parallel()
	const limit = 6 << 20
	front := stack.NewPutLimit(limit)
	t.Cleanup(front.Close)

	for _, preSign := range []bool{true, false} {
		servers := stack.RequireOnS3(t, front.Setting(), fmt.Sprint("LAKEFS_BLOCKSTORE_S3_DISABLE_PRE_SIGNED=", !preSign))
		if err := front.Forward(servers.S3); err != nil {
			t.Fatal(err)
		}
		client, err := lakefs.New(lakefs.Config{
			Endpoint: servers.LakeFSURL, AccessKeyID: credential.New(servers.AccessKeyID),
			SecretAccessKey: credential.New(servers.SecretAccessKey), LargestPut: limit,
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		repo, first := lakefstest.NewRepositoryIn(t, client, "s3://"+servers.Bucket+"/", nil, lakefstest.Allow(lakefstest.RuleBranches))
		if err := client.CreateBranch(t.Context(), repo, "b", first); err != nil {
			t.Fatal(err)
		}
		upload := func(presigned bool, path, text string) (txn.Object, error) {
			var way interface {
				Upload(ctx context.Context, repo txn.Repository, branch txn.Branch, path string, from txn.Content) (txn.Object, error)
			} = lakefs.Settling{Client: client}
			if presigned {
				way = lakefs.NewPresigned(lakefs.Settling{Client: client}, nil, func(bool, string) {})
			}
			return way.Upload(t.Context(), repo, "b", path, lakefstest.Text(text))
		}
		want := map[string]string{}
		for _, presigned := range []bool{true, false} {
			for _, size := range []int{limit, limit + 1, 17 << 20} {
				front.Refused.Store(0)
				front.Parts.Store(0)
				path, text := fmt.Sprint(presigned, size), strings.Repeat("0123456789abcdef", size/16+1)[:size]
				want[path] = text
				object, err := upload(presigned, path, text)
				sum := md5.Sum([]byte(text))
				if err != nil || object.Size != int64(size) || object.Checksum != hex.EncodeToString(sum[:]) {
					t.Fatalf("lakeFS signs %t, pre-signed %t, %d bytes: %+v, %v", preSign, presigned, size, object, err)
				}
				if front.Refused.Load() != 0 || (front.Parts.Load() > 1) != (size > limit) {
					t.Errorf("%d bytes: the store refused %d requests and was sent %d parts", size, front.Refused.Load(), front.Parts.Load())
				}
			}
		}
		commit, err := client.CreateCommit(t.Context(), repo, "b", "large files", nil)
		if err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(want, lakefstest.Tree(t, client, repo, commit.ID)) {
			t.Error("the objects are not the files")
		}
	}
}
