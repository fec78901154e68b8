package publish_test

import (
	"net/http"
	"strings"
	"testing"

	"perago/e2e/stack"
	"perago/pkg/credential"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// What comes onto the staging branch after the staged commit, from a stage that
// does not know that it was replaced, is not published: the merge names the
// commit and not the branch.
func TestWhatComesAfterTheStagedCommitIsNotPublished(t *testing.T) {
	subjects := map[string]subject{"memory": func(*testing.T) (lakefs.Config, http.RoundTripper) {
		server := lakefstest.NewServer()
		return server.Config(), server.Transport()
	}}
	if !stack.Short(t) {
		servers := stack.Require(t)
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		subjects["real"] = func(*testing.T) (lakefs.Config, http.RoundTripper) {
			return lakefs.Config{
				Endpoint: servers.LakeFSURL, AccessKeyID: credential.New(servers.AccessKeyID), SecretAccessKey: credential.New(servers.SecretAccessKey),
			}, transport
		}
	}
	for name, on := range subjects {
		for what, commit := range map[string]bool{"an upload": false, "a commit": true} {
			t.Run(name+"/"+what, func(t *testing.T) {
				b := newBench(t, on, map[string]string{"data/a": "1"})
				staged := b.stage(map[string]string{"data/a": "2"})
				lakefstest.Put(t, b.lake, b.repo, staged.StagingBranch, map[string]string{"data/late": "x"})
				if commit {
					if _, err := b.lake.CreateCommit(t.Context(), b.repo, staged.StagingBranch, "late", nil); err != nil {
						t.Fatal(err)
					}
				}
				b.published(staged, 0, txn.OutcomePublished)
				b.tree(map[string]string{"data/a": "2"})
				for _, request := range b.wire.writes() {
					if strings.Contains(request, "/merge/") && !strings.Contains(request, string(staged.Commit)) {
						t.Errorf("merged otherwise than by the commit's id: %s", request)
					}
				}
			})
		}
	}
}
