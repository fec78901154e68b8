package fence

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"perago/e2e/stack"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// raw is a lakeFS spoken to in requests that the client never makes.
type raw struct {
	*suite
	servers stack.Servers
	repo    txn.Repository
	http    *http.Client
}

func newRaw(t *testing.T, expect ...lakefstest.Expectation) *raw {
	t.Helper()
	servers := stack.Require(t)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	r := &raw{suite: &suite{T: t, client: realClient(t, servers)}, servers: servers, http: &http.Client{Transport: transport}}
	r.repo, _ = lakefstest.NewRepository(t, r.client, nil, expect...)
	return r
}

// status sends a request about the default branch and holds it to a status.
func (r *raw) status(want int, method, path string, query url.Values, body any) {
	r.Helper()
	data, err := json.Marshal(body)
	r.no(err)
	address := r.servers.LakeFSURL + "/api/v1/repositories/" + string(r.repo) + "/branches/main" + path + "?" + query.Encode()
	request, err := http.NewRequestWithContext(r.Context(), method, address, bytes.NewReader(data))
	r.no(err)
	request.Header.Set("Content-Type", "application/json")
	request.SetBasicAuth(r.servers.AccessKeyID, r.servers.SecretAccessKey)
	response, err := r.http.Do(request)
	r.no(err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	r.no(err)
	if response.StatusCode != want {
		r.Fatalf("%s %s: %d %s, want %d", method, path, response.StatusCode, answer, want)
	}
}

// Branch protection refuses what writes directly. A revert and a cherry-pick are
// neither that nor merges: they reach a protected branch, and the fence does not
// see them. A publication that was on its way is refused after each.
func TestWhatReachesAProtectedBranch(t *testing.T) {
	t.Parallel()
	if stack.Short(t) {
		return
	}
	r := newRaw(t, lakefstest.Allow(lakefstest.RuleMetadata))
	_, err := r.client.Protect(t.Context(), r.repo, lakefstest.DefaultBranch)
	r.no(err)
	_, err = r.client.Upload(t.Context(), r.repo, lakefstest.DefaultBranch, "x", lakefstest.Text("x"))
	if !errors.Is(err, txn.ErrForbidden) {
		t.Fatalf("an upload: %v", err)
	}
	change, err := r.target(r.repo).Install(t.Context(), Options{})
	r.no(err)
	r.status(403, "POST", "/commits", nil, map[string]any{"message": "m", "allow_empty": true})
	r.status(403, "PUT", "/hard_reset", url.Values{"ref": {string(change.Before)}}, nil)

	side := r.on(r.repo, "side", change.Head, map[string]string{"a": "1"})
	for name, move := range map[string]func(){
		"cherry-pick": func() { r.status(201, "POST", "/cherry-pick", nil, map[string]any{"ref": side.ID}) },
		"revert": func() {
			r.status(204, "POST", "/revert", nil, map[string]any{"ref": r.head(r.repo), "parent_number": 0})
		},
	} {
		// A revert needs something to revert, and a cherry-pick something new.
		if name == "revert" {
			landed, err := r.client.Merge(t.Context(), txn.Merge{
				Repository: r.repo, Source: r.on(r.repo, "reverted", r.head(r.repo), map[string]string{"b": "1"}).ID,
				Destination: lakefstest.DefaultBranch, Message: "to be reverted",
			})
			r.no(err)
			r.equal(r.head(r.repo), landed)
		}
		head := r.head(r.repo)
		publication := r.confirm(r.repo, r.on(r.repo, txn.Branch("before-"+name), head, map[string]string{name: "1"}).ID, head)
		move()
		if r.head(r.repo) == head {
			t.Fatalf("a %s did not move the head", name)
		}
		if _, err := r.client.Merge(t.Context(), publication); !errors.Is(err, txn.ErrHookRefused) || !strings.Contains(err.Error(), txn.FenceRefusal) {
			t.Errorf("a publication after a %s: %v", name, err)
		}
	}
}

// A hard reset makes an old head current, and with it every merge that expected
// it: the second publication from one head lands, and the first is gone.
func TestHardResetArmsAgain(t *testing.T) {
	t.Parallel()
	if stack.Short(t) {
		return
	}
	r := newRaw(t, lakefstest.Allow(lakefstest.RuleMetadata))
	change, err := r.target(r.repo).Install(t.Context(), Options{})
	r.no(err)
	first := r.confirm(r.repo, r.on(r.repo, "first", change.Head, map[string]string{"a": "1"}).ID, change.Head)
	second := r.confirm(r.repo, r.on(r.repo, "second", change.Head, map[string]string{"b": "2"}).ID, change.Head)
	_, err = r.client.Merge(t.Context(), first)
	r.no(err)
	if _, err = r.client.Merge(t.Context(), second); !errors.Is(err, txn.ErrHookRefused) {
		t.Fatalf("%v", err)
	}
	r.status(204, "PUT", "/hard_reset", url.Values{"ref": {string(change.Head)}}, nil)
	landed, err := r.client.Merge(t.Context(), second)
	r.no(err)
	r.equal(r.head(r.repo), landed)
	r.equal(r.tree(r.repo, landed), map[string]string{"b": "2", txn.FenceFile: string(file)})
}
