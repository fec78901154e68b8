package lakefstest

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/lakefs"
	"perago/pkg/txn"
)

// PresignedContract holds a lakeFS on an S3 store to what uploads by pre-signed
// URLs rely on, and the store as well.
func PresignedContract(t *testing.T, newSubject func(t *testing.T) Subject) {
	for _, row := range []struct {
		fact string
		test func(*suite)
	}{
		{"configuration: says that the store is S3 and that lakeFS signs", (*suite).signs},
		{"pre-signed: what was put and linked is the object, under the store's checksum", (*suite).presigned},
		{"pre-signed: the ETag is the MD5 in quotes, also of nothing", (*suite).etag},
		{"pre-signed: equal bytes that went through lakeFS are no change", (*suite).presignedEqualBytes},
		{"pre-signed: every address is another one, whatever it is asked for", (*suite).addresses},
		{"pre-signed: a URL takes a second put, which changes what was linked", (*suite).putAgain},
		{"pre-signed: a URL that was changed is 403", (*suite).forgedURL},
		{"pre-signed: a URL that has expired is 403", (*suite).expiredURL},
		{"upload: a file of a form is stored whole and under its MD5, also of several parts", (*suite).uploadForm},
		{"link: lakeFS believes size and checksum, and looks at nothing", (*suite).linkBelieves},
		{"stat: the address of a linked object holds a signature, and its user metadata comes back", (*suite).statLinked},
		{"link: once more is the same", (*suite).linkAgain},
		{"link: of an address for another path, branch or repository is 400", (*suite).linkElsewhere},
		{"link: to a branch that is not there is 404, to a protected one 403", (*suite).linkRefused},
		{"link: every legal path goes there and back byte for byte", (*suite).linkPaths},
	} {
		t.Run(row.fact, func(t *testing.T) {
			t.Parallel()
			subject := newSubject(t)
			client, err := lakefs.New(subject.Config, subject.Transport)
			if err != nil {
				t.Fatal(err)
			}
			row.test(&suite{T: t, subject: subject, client: client})
		})
	}
}

// staged is an address as lakeFS gives it.
type staged struct {
	Physical string `json:"physical_address"`
	URL      string `json:"presigned_url"`
	Expiry   int64  `json:"presigned_url_expiry"`
}

func (s *suite) address(repo txn.Repository, branch txn.Branch, path string) staged {
	s.Helper()
	var at staged
	answer := s.status(200, "presigned_url", "GET", backing(repo, branch), url.Values{"path": {path}, "presign": {"true"}}, nil)
	s.no(json.Unmarshal([]byte(answer), &at))
	return at
}

func backing(repo txn.Repository, branch txn.Branch) string {
	return at(repo, "/branches/%s/staging/backing", branch)
}

// put sends a text to a URL, without credentials.
func (s *suite) put(address, text string) (status int, etag, answer string) {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), http.MethodPut, address, strings.NewReader(text))
	s.no(err)
	request.Header.Set("Content-Type", "application/octet-stream")
	response, err := (&http.Client{Transport: s.subject.Transport}).Do(request)
	s.no(err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	s.no(err)
	return response.StatusCode, response.Header.Get("ETag"), string(data)
}

func (s *suite) link(want int, part string, repo txn.Repository, branch txn.Branch, path string, at staged, checksum string, size int) string {
	s.Helper()
	return s.status(want, part, "PUT", backing(repo, branch), url.Values{"path": {path}}, object{
		"checksum": checksum, "size_bytes": size, "content_type": "application/octet-stream",
		"staging": object{"physical_address": at.Physical},
	})
}

func md5Of(text string) string {
	sum := md5.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (s Subject) store() string {
	if s.Store == "" {
		return "local://"
	}
	return s.Store
}

// onBranch makes a repository and a branch b in it.
func (s *suite) onBranch(files map[string]string) (txn.Repository, txn.CommitID) {
	s.Helper()
	repo, first := NewRepositoryIn(s, s.client, s.subject.store(), files)
	s.branch(repo, "b", first)
	return repo, first
}

// committed commits branch b and gives the tree with the checksums of its objects.
func (s *suite) committed(repo txn.Repository) (tree, sums map[string]string) {
	s.Helper()
	commit, err := s.client.CreateCommit(s.Context(), repo, "b", "what was linked", nil)
	s.no(err)
	sums = map[string]string{}
	for object, err := range s.client.Objects(s.Context(), repo, commit.ID, "") {
		s.no(err)
		sums[object.Path] = object.Checksum
	}
	return Tree(s, s.client, repo, commit.ID), sums
}

func (s *suite) signs() {
	answer := s.status(200, "storage_config", "GET", "/config", nil, nil)
	var config struct {
		Storage struct {
			Type    string `json:"blockstore_type"`
			PreSign bool   `json:"pre_sign_support"`
		} `json:"storage_config"`
	}
	s.no(json.Unmarshal([]byte(answer), &config))
	s.equal([]any{config.Storage.Type, config.Storage.PreSign}, []any{"s3", true})
}

// unsigned is the other kind of lakeFS.
func (s *suite) unsigned() {
	s.status(200, `"pre_sign_support":false`, "GET", "/config", nil, nil)
	repo, _ := s.onBranch(nil)
	s.status(500, "not supported", "GET", backing(repo, "b"), url.Values{"path": {"p"}, "presign": {"true"}}, nil)
}

// uploadForm is true of every store. On S3 the second text takes several parts.
func (s *suite) uploadForm() {
	config := s.subject.Config
	config.LargestPut = 1
	client, err := lakefs.New(config, s.subject.Transport)
	s.no(err)
	repo, _ := s.onBranch(nil)
	want := map[string]string{"small": "12", "large": strings.Repeat("0123456789abcdef", 12<<16)}
	for path, text := range want {
		object, err := client.Upload(s.Context(), repo, "b", path, Text(text))
		s.no(err)
		s.equal(object, txn.Object{Path: path, Size: int64(len(text)), Checksum: md5Of(text)})
	}
	tree, sums := s.committed(repo)
	if diff := cmp.Diff(want, tree); diff != "" {
		s.Fatal("what was read back differs")
	}
	s.equal(sums, map[string]string{"small": md5Of("12"), "large": md5Of(want["large"])})
}

func (s *suite) presigned() {
	repo, _ := s.onBranch(map[string]string{"a": "1"})
	at := s.address(repo, "b", "data/x")
	if until := time.Until(time.Unix(at.Expiry, 0)); until <= 0 || until > DefaultPreSignExpiry+time.Minute {
		s.Fatalf("a URL that holds for %s", until)
	}
	if strings.HasPrefix(at.URL, s.subject.Config.Endpoint) {
		s.Fatal("the URL is lakeFS's own")
	}
	status, etag, answer := s.put(at.URL, "hello")
	s.equal([]any{status, etag, answer}, []any{200, `"` + md5Of("hello") + `"`, ""})
	linked := s.link(200, `"size_bytes":5`, repo, "b", "data/x", at, etag, 5)
	if !strings.Contains(linked, `"checksum":"`+md5Of("hello")+`"`) || !strings.Contains(linked, `"path_type":"object"`) {
		s.Fatal(linked)
	}
	tree, sums := s.committed(repo)
	s.equal(tree, map[string]string{"a": "1", "data/x": "hello"})
	s.equal(sums, map[string]string{"a": md5Of("1"), "data/x": md5Of("hello")})
}

func (s *suite) etag() {
	repo, _ := s.onBranch(nil)
	for _, text := range []string{"", "x", strings.Repeat("0123456789abcdef", 1<<14)} {
		at := s.address(repo, "b", "p")
		status, etag, _ := s.put(at.URL, text)
		s.equal([]any{status, etag}, []any{200, `"` + md5Of(text) + `"`})
		s.link(200, md5Of(text), repo, "b", "p", at, etag, len(text))
	}
	tree, _ := s.committed(repo)
	s.equal(len(tree["p"]), 1<<18)
}

func (s *suite) presignedEqualBytes() {
	repo, _ := s.onBranch(map[string]string{"p": "the same"})
	at := s.address(repo, "b", "p")
	_, etag, _ := s.put(at.URL, "the same")
	s.link(200, "", repo, "b", "p", at, etag, len("the same"))
	_, err := s.client.CreateCommit(s.Context(), repo, "b", "nothing", nil)
	s.refused(err, txn.ErrNoChanges)
}

func (s *suite) addresses() {
	repo, _ := s.onBranch(nil)
	seen := map[string]bool{}
	for _, branch := range []txn.Branch{"b", "b", "no-such-branch"} {
		at := s.address(repo, branch, "p")
		seen[at.Physical], seen[at.URL] = true, true
	}
	s.equal(len(seen), 6)
	s.status(404, "", "GET", backing("t-no-such-repository", "b"), url.Values{"path": {"p"}, "presign": {"true"}}, nil)
}

func (s *suite) putAgain() {
	repo, _ := s.onBranch(nil)
	at := s.address(repo, "b", "p")
	_, etag, _ := s.put(at.URL, "first")
	s.link(200, "", repo, "b", "p", at, etag, 5)
	status, _, _ := s.put(at.URL, "later")
	s.equal(status, 200)
	tree, sums := s.committed(repo)
	s.equal(tree, map[string]string{"p": "later"})
	s.equal(sums, map[string]string{"p": md5Of("first")})
}

func (s *suite) forgedURL() {
	repo, _ := s.onBranch(nil)
	forged := s.address(repo, "b", "p").URL
	before, query, _ := strings.Cut(forged, "?")
	status, etag, answer := s.put(before+"x?"+query, "hello")
	if status != 403 || etag != "" || !strings.Contains(answer, "<Code>SignatureDoesNotMatch</Code>") {
		s.Fatalf("%d %s", status, answer)
	}
	status, _, answer = s.put(before, "hello")
	if status != 403 || !strings.Contains(answer, "<Code>") {
		s.Fatalf("%d %s", status, answer)
	}
}

func (s *suite) expiredURL() {
	repo, _ := s.onBranch(nil)
	at := s.address(repo, "b", "p")
	expired, err := s.subject.Expired(at.URL)
	s.no(err)
	status, etag, answer := s.put(expired, "hello")
	if status != 403 || etag != "" || !strings.Contains(answer, "<Code>AccessDenied</Code>") || !strings.Contains(answer, "expired") {
		s.Fatalf("%d %s", status, answer)
	}
}

func (s *suite) linkBelieves() {
	repo, _ := s.onBranch(nil)
	at := s.address(repo, "b", "p")
	s.link(400, "", repo, "b", "p", at, "", 3)
	s.link(200, `"size_bytes":3`, repo, "b", "p", at, `"anything"`, 3)
	commit, err := s.client.CreateCommit(s.Context(), repo, "b", "nothing is there", nil)
	s.no(err)
	for object, err := range s.client.Objects(s.Context(), repo, commit.ID, "") {
		s.no(err)
		s.equal(object, txn.Object{Path: "p", Size: 3, Checksum: "anything"})
	}
	_, err = s.client.ReadObject(s.Context(), repo, commit.ID, "p")
	if err == nil {
		s.Fatal("read what was never put")
	}
}

func (s *suite) linkAgain() {
	repo, _ := s.onBranch(nil)
	at := s.address(repo, "b", "p")
	_, etag, _ := s.put(at.URL, "hello")
	for range 3 {
		s.link(200, md5Of("hello"), repo, "b", "p", at, etag, 5)
	}
	tree, _ := s.committed(repo)
	s.equal(tree, map[string]string{"p": "hello"})
}

func (s *suite) linkElsewhere() {
	repo, first := s.onBranch(nil)
	other, _ := s.onBranch(nil)
	s.branch(repo, "c", first)
	at := s.address(repo, "b", "p")
	_, etag, _ := s.put(at.URL, "hello")
	s.link(400, "", repo, "b", "q", at, etag, 5)
	s.link(400, "", repo, "c", "p", at, etag, 5)
	foreign := at
	foreign.Physical += "x"
	s.link(400, "", repo, "b", "p", foreign, etag, 5)
	_, err := s.client.CreateCommit(s.Context(), other, "b", "nothing", nil)
	s.refused(err, txn.ErrNoChanges)
}

func (s *suite) linkRefused() {
	repo, _ := s.onBranch(nil)
	// Before anything is written that would make the server remember the rules.
	s.status(204, "", "PUT", protection(repo), nil, []object{{"pattern": "ma*"}})
	address := s.address(repo, DefaultBranch, "p")
	_, etag, _ := s.put(address.URL, "hello")
	s.link(403, "protected", repo, DefaultBranch, "p", address, etag, 5)
	address = s.address(repo, "no-such-branch", "p")
	_, etag, _ = s.put(address.URL, "hello")
	s.link(404, "", repo, "no-such-branch", "p", address, etag, 5)
}

func protection(repo txn.Repository) string { return at(repo, "/settings/branch_protection") }

func (s *suite) linkPaths() {
	repo, _ := s.onBranch(nil)
	want := map[string]string{}
	for _, path := range []string{"a b", "a+b", "a%2Fb", "ä/ü", "?x=1&y=2", "#frag", ".hidden", "x/../y", strings.Repeat("n", 1024)} {
		at := s.address(repo, "b", path)
		_, etag, _ := s.put(at.URL, path)
		s.link(200, "", repo, "b", path, at, etag, len(path))
		want[path] = path
	}
	tree, _ := s.committed(repo)
	if diff := cmp.Diff(want, tree); diff != "" {
		s.Fatalf("-want +got\n%s", diff)
	}
}

func (s *suite) statLinked() {
	repo, _ := s.onBranch(nil)
	for path, metadata := range map[string]object{"plain": {}, "marked": {lakefs.MarkMD5: md5Of("hello")}, "falsely": {lakefs.MarkMD5: md5Of("other")}} {
		at := s.address(repo, "b", path)
		_, etag, _ := s.put(at.URL, "hello")
		s.status(200, "", "PUT", backing(repo, "b"), url.Values{"path": {path}}, object{
			"checksum": etag, "size_bytes": 5, "staging": object{"physical_address": at.Physical}, "user_metadata": metadata,
		})
	}
	null := s.address(repo, "b", "null")
	s.status(400, "user_metadata", "PUT", backing(repo, "b"), url.Values{"path": {"null"}}, object{
		"checksum": "x", "size_bytes": 5, "staging": object{"physical_address": null.Physical}, "user_metadata": nil,
	})
	commit, err := s.client.CreateCommit(s.Context(), repo, "b", "m", nil)
	s.no(err)
	for path, want := range map[string]bool{"plain": false, "marked": true, "falsely": false} {
		stat := s.status(200, "physical_address", "GET", at(repo, "/refs/%s/objects/stat", commit.ID), url.Values{"path": {path}}, nil)
		if !regexp.MustCompile(`/data/[0-9a-v]{20}/[0-9a-v]{20},[A-Za-z0-9_-]+"`).MatchString(stat) {
			s.Fatal(stat)
		}
		known, err := s.client.MD5Known(s.Context(), repo, commit.ID, txn.Object{Path: path, Size: 5, Checksum: md5Of("hello")})
		s.no(err)
		s.equal(known, want)
	}
}
