package lakefs

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"perago/pkg/credential"
	"perago/pkg/txn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testKey    = "AKIATESTTESTTESTTEST"
	testSecret = `s3cr3t/with+odd "chars"&more`
)

func testConfig() Config {
	return Config{Endpoint: "http://lakefs.test", AccessKeyID: credential.New(testKey), SecretAccessKey: credential.New(testSecret)}
}

// roundTrip is a transport made of a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	return f(r)
}

func testClient(t *testing.T, transport http.RoundTripper) *Client {
	t.Helper()
	c, err := New(testConfig(), transport)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// reply makes an answer. A body that begins with { is JSON.
func reply(status int, body string, header ...string) *http.Response {
	h := http.Header{"Content-Type": {"text/html"}}
	if strings.HasPrefix(body, "{") {
		h.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{
		StatusCode: status, Status: strconv.Itoa(status) + " " + http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

func id(digit string) txn.CommitID { return txn.CommitID(strings.Repeat(digit, 64)) }

const repo, main = txn.Repository("repo"), txn.Branch("main")

func text(s string) txn.Content {
	return txn.Content{Size: int64(len(s)), Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(s)), nil }}
}

// calls is every operation of the client: how it is made, and the answer that
// satisfies it.
var calls = []struct {
	operation operation
	good      string
	status    int
	call      func(context.Context, *Client) error
}{
	{ping, `{"user":{"id":"me"}}`, 200, func(ctx context.Context, c *Client) error { return c.Ping(ctx) }},
	{getCommit, commitJSON("a", "b"), 200, func(ctx context.Context, c *Client) error {
		_, err := c.Commit(ctx, repo, id("a"))
		return err
	}},
	{getBranch, `{"id":"main","commit_id":"` + string(id("a")) + `"}`, 200, func(ctx context.Context, c *Client) error {
		_, err := c.Head(ctx, repo, main)
		return err
	}},
	{logCommits, `{"pagination":{"has_more":false},"results":[` + commitJSON("a", "b") + `,` + commitJSON("b", "c") + `]}`, 200, func(ctx context.Context, c *Client) error {
		_, _, err := c.History(ctx, repo, id("a"), id("b"), 10)
		return err
	}},
	{listObjects, `{"pagination":{"has_more":false},"results":[{"path":"p","path_type":"object","size_bytes":1,"checksum":"x"}]}`, 200, func(ctx context.Context, c *Client) error {
		for _, err := range c.Objects(ctx, repo, id("a"), "") {
			return err
		}
		return nil
	}},
	{getObject, "bytes", 200, func(ctx context.Context, c *Client) error {
		body, err := c.ReadObject(ctx, repo, id("a"), "p")
		if err != nil {
			return err
		}
		defer body.Close()
		_, err = io.ReadAll(body)
		return err
	}},
	{statObject, `{"path":"p","path_type":"object","size_bytes":1,"checksum":"x","physical_address":"s3://bucket/x"}`, 200, func(ctx context.Context, c *Client) error {
		_, err := c.MD5Known(ctx, repo, id("a"), txn.Object{Path: "p", Size: 1, Checksum: "x"})
		return err
	}},
	{listBranches, `{"pagination":{"has_more":false},"results":[]}`, 200, func(ctx context.Context, c *Client) error {
		_, err := c.Branches(ctx, repo, "")
		return err
	}},
	{listRepositories, `{"pagination":{"has_more":false},"results":[{"id":"lake"}]}`, 200, func(ctx context.Context, c *Client) error {
		_, err := c.Repositories(ctx)
		return err
	}},
	{listRuns, `{"pagination":{"has_more":false},"results":[]}`, 200, func(ctx context.Context, c *Client) error {
		_, err := c.HookRuns(ctx, repo, id("a"))
		return err
	}},
	{listHookRuns, `{"pagination":{"has_more":false},"results":[{"hook_run_id":"0000_0000","action":"theirs","hook_id":"one","status":"completed"}]}`, 200, func(ctx context.Context, c *Client) error {
		_, err := c.hooksOf(ctx, repo, "run")
		return err
	}},
	{uploadObject, `{"path":"p","path_type":"object","size_bytes":2,"checksum":"x"}`, 201, func(ctx context.Context, c *Client) error {
		_, err := c.Upload(ctx, repo, main, "p", text("xx"))
		return err
	}},
	{deleteObjects, `{"errors":[]}`, 200, func(ctx context.Context, c *Client) error {
		return c.DeleteObjects(ctx, repo, main, []string{"p"})
	}},
	{deleteBranch, "", 204, func(ctx context.Context, c *Client) error {
		return c.DeleteBranch(ctx, repo, txn.HandBranch("01890a5d-ac96-774b-bcce-b302099a8057"))
	}},
	{deleteChosen, "", 204, func(ctx context.Context, c *Client) error { return c.DeleteBranch(ctx, repo, main) }},
	{createBranch, string(id("a")), 201, func(ctx context.Context, c *Client) error { return c.CreateBranch(ctx, repo, "b", id("a")) }},
	{createCommit, commitJSON("a", "b"), 201, func(ctx context.Context, c *Client) error {
		_, err := c.CreateCommit(ctx, repo, main, "m", map[string]string{"k": "v"})
		return err
	}},
	{createCommit, commitJSON("a", "b"), 201, func(ctx context.Context, c *Client) error {
		_, err := c.CommitTree(ctx, repo, main, txn.MetaRangeID(id("e")), "m", nil)
		return err
	}},
	{createCommit, commitJSON("a", "b"), 201, func(ctx context.Context, c *Client) error {
		_, err := c.CommitUnchanged(ctx, repo, main, "m", nil)
		return err
	}},
	{mergeCommit, `{"reference":"` + string(id("c")) + `"}`, 200, func(ctx context.Context, c *Client) error {
		_, err := c.Merge(ctx, txn.Merge{Repository: repo, Source: id("a"), Destination: main, Message: "m", Metadata: map[string]string{"k": "v"}})
		return err
	}},
	{startImport, `{"id":"i"}`, 202, func(ctx context.Context, c *Client) error {
		_, err := c.startImport(ctx, repo, main, "s3://bucket/x/", "data/", "m", map[string]string{"k": "v"})
		return err
	}},
	{importStatus, `{"completed":true,"update_time":"2026-03-01T00:00:00Z","commit":` + commitJSON("a", "b") + `}`, 200, func(ctx context.Context, c *Client) error {
		_, _, err := c.importStatus(ctx, repo, main, "i")
		return err
	}},
	{getProtection, `[]`, 200, func(ctx context.Context, c *Client) error {
		_, _, err := c.protection(ctx, repo)
		return err
	}},
	{setProtection, "", 204, func(ctx context.Context, c *Client) error {
		return c.setProtection(ctx, repo, []string{"main"}, "v1")
	}},
	{getRepository, `{"id":"repo","read_only":false}`, 200, func(ctx context.Context, c *Client) error {
		_, err := c.ReadOnly(ctx, repo)
		return err
	}},
	{diffBranch, `{"pagination":{"has_more":false},"results":[{"path":"p"}]}`, 200, func(ctx context.Context, c *Client) error {
		_, err := c.Uncommitted(ctx, repo, main)
		return err
	}},
	{diffCommits, `{"pagination":{"has_more":false},"results":[{"path":"p","path_type":"object","type":"changed"}]}`, 200, func(ctx context.Context, c *Client) error {
		_, err := c.Differ(ctx, repo, id("a"), id("b"), "")
		return err
	}},
	{getRetention, `{"default_retention_days":1,"branches":[]}`, 200, func(ctx context.Context, c *Client) error {
		_, _, err := c.retention(ctx, repo, main)
		return err
	}},
	{getConfig, `{"storage_config":{"blockstore_type":"s3","pre_sign_support":true}}`, 200, func(ctx context.Context, c *Client) error {
		_, err := c.signs(ctx)
		return err
	}},
	{signAddress, `{"physical_address":"s3://bucket/x","presigned_url":"http://store.test/x?s=1"}`, 200, func(ctx context.Context, c *Client) error {
		_, err := c.address(ctx, repo, main, "p")
		return err
	}},
	{linkAddress, `{"path":"p","path_type":"object","size_bytes":1,"checksum":"x"}`, 200, func(ctx context.Context, c *Client) error {
		_, err := c.link(ctx, repo, main, "p", address{physical: "s3://bucket/x"}, "x", 1, nil)
		return err
	}},
	{createRepository, `{"id":"repo"}`, 201, func(ctx context.Context, c *Client) error {
		return c.CreateRepository(ctx, repo, "local://repo", main)
	}},
}

func commitJSON(digit, parent string) string {
	return `{"id":"` + string(id(digit)) + `","parents":["` + string(id(parent)) + `"],"meta_range_id":"` + string(id("e")) + `","message":"m","metadata":{},"creation_date":1}`
}

// Every operation stands in the list above, so that no table below can leave
// one out.
func TestEveryOperationIsListed(t *testing.T) {
	listed := map[operation]bool{}
	for _, c := range calls {
		listed[c.operation] = true
	}
	for _, op := range []map[operation]bool{once, repeated, {ping: true}} {
		for name := range op {
			if !listed[name] {
				t.Errorf("%q is in a policy and not in the list of calls", name)
			}
			delete(listed, name)
		}
	}
	for name := range listed {
		t.Errorf("%q has no policy", name)
	}
	for name := range once {
		if repeated[name] {
			t.Errorf("%q is not idempotent and would be repeated", name)
		}
	}
}

func TestGoodAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range calls {
		t.Run(string(c.operation), func(t *testing.T) {
			var seen []*http.Request
			client := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
				seen = append(seen, r)
				return reply(c.status, c.good), nil
			}))
			if err := c.call(t.Context(), client); err != nil {
				t.Fatal(err)
			}
			if len(seen) != 1 {
				t.Fatalf("%d requests", len(seen))
			}
			key, secret, _ := seen[0].BasicAuth()
			if key != testKey || secret != testSecret {
				t.Errorf("sent without the credentials")
			}
			if !strings.HasPrefix(seen[0].URL.Path, "/api/v1/") {
				t.Errorf("sent to %s", seen[0].URL)
			}
		})
	}
}

// A name that lakeFS cannot have is refused before anything is sent: a branch
// ".." would delete the repository.
func TestNamesAreCheckedBeforeSending(t *testing.T) {
	t.Parallel()
	client := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
		t.Errorf("sent %s %s", r.Method, r.URL)
		return reply(400, `{"message":"no"}`), nil
	}))
	ctx := t.Context()
	for _, name := range []string{"", ".", "..", "a/b", "a b", "-a", "a?b", "a#b", "a%2fb", "é", "a.b"} {
		for what, err := range map[string]error{
			"delete branch":     client.DeleteBranch(ctx, repo, txn.Branch(name)),
			"head":              second(client.Head(ctx, repo, txn.Branch(name))),
			"create branch":     client.CreateBranch(ctx, repo, txn.Branch(name), id("a")),
			"upload":            second(client.Upload(ctx, repo, txn.Branch(name), "p", text("x"))),
			"delete objects":    client.DeleteObjects(ctx, repo, txn.Branch(name), []string{"p"}),
			"commit":            second(client.CreateCommit(ctx, repo, txn.Branch(name), "m", nil)),
			"commit a tree":     second(client.CommitTree(ctx, repo, txn.Branch(name), "tree", "m", nil)),
			"commit unchanged":  second(client.CommitUnchanged(ctx, repo, txn.Branch(name), "m", nil)),
			"merge":             second(client.Merge(ctx, txn.Merge{Repository: repo, Source: id("a"), Destination: txn.Branch(name)})),
			"repository":        second(client.Branches(ctx, txn.Repository(name), "")),
			"create repository": client.CreateRepository(ctx, txn.Repository(name), "local://x", main),
			"default branch":    client.CreateRepository(ctx, repo, "local://x", txn.Branch(name)),
			"read commit":       second(client.Commit(ctx, repo, txn.CommitID(name))),
			"merge source":      second(client.Merge(ctx, txn.Merge{Repository: repo, Source: txn.CommitID(name), Destination: main})),
			"branch source":     client.CreateBranch(ctx, repo, "b", txn.CommitID(name)),
			"read object":       second(client.ReadObject(ctx, repo, txn.CommitID(name), "p")),
			"protect":           second(client.Protect(ctx, repo, txn.Branch(name))),
			"protect in":        second(client.Protect(ctx, txn.Repository(name), main)),
			"hook runs":         second(client.HookRuns(ctx, repo, txn.CommitID(name))),
			"hook runs in":      second(client.HookRuns(ctx, txn.Repository(name), id("a"))),
		} {
			wantRefused(t, what+" of "+strconv.Quote(name), err)
		}
		for _, err := range client.Objects(ctx, repo, txn.CommitID(name), "") {
			wantRefused(t, "objects", err)
		}
		_, _, err := client.History(ctx, repo, txn.CommitID(name), id("a"), 1)
		wantRefused(t, "history", err)
		_, _, err = client.WholeHistory(ctx, repo, txn.CommitID(name), 1)
		wantRefused(t, "whole history", err)
		_, _, err = client.History(ctx, repo, id("a"), txn.CommitID(name), 1)
		wantRefused(t, "history", err)
	}
}

// A tree without an id is never sent: lakeFS would take the request for a plain
// commit of whatever the branch holds.
func TestCommitTreeNeedsATree(t *testing.T) {
	t.Parallel()
	client := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
		t.Errorf("sent %s %s", r.Method, r.URL)
		return reply(201, commitJSON("a", "b")), nil
	}))
	if _, err := client.CommitTree(t.Context(), repo, main, "", "m", nil); err == nil {
		t.Error("no error")
	}
}

func second[T any](_ T, err error) error { return err }

// A redirect is not followed, whatever is asked for: the key, or an object's
// bytes, would go to another host.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, c := range calls {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var hosts []string
				err := c.call(t.Context(), testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
					mu.Lock()
					defer mu.Unlock()
					hosts = append(hosts, r.URL.Host)
					return reply(status, "", "Location", "http://elsewhere.test/"+r.URL.Path), nil
				})))
				if err == nil || !slices.Equal(hosts, []string{"lakefs.test"}) {
					t.Errorf("%s, %d: %v, asked %q", c.operation, status, err, hosts)
				}
			})
		}
	}
}

// The body of a merge is always whole: lakeFS takes what is left out for a merge
// that is not squashed, without metadata.
func TestMergeSaysEverything(t *testing.T) {
	t.Parallel()
	for name, merge := range map[string]txn.Merge{
		"with metadata":    {Message: "m", Metadata: map[string]string{"k": "v", "empty": ""}},
		"with none":        {Message: "m"},
		"without anything": {},
	} {
		var sent []map[string]any
		client := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			var fields map[string]any
			if err := json.Unmarshal(body, &fields); err != nil || r.ContentLength != int64(len(body)) || r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %q, of length %d, %s: %v", name, body, r.ContentLength, r.Header.Get("Content-Type"), err)
			}
			sent = append(sent, fields)
			return reply(200, `{"reference":"`+string(id("c"))+`"}`), nil
		}))
		merge.Repository, merge.Source, merge.Destination = repo, id("a"), main
		if _, err := client.Merge(t.Context(), merge); err != nil {
			t.Error(err)
		}
		metadata := map[string]any{}
		for key, value := range merge.Metadata {
			metadata[key] = value
		}
		want := []map[string]any{{"squash_merge": true, "allow_empty": true, "message": merge.Message, "metadata": metadata}}
		if diff := cmp.Diff(want, sent); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
