package lakefstest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/credential"
	"perago/pkg/lakefs"
	"perago/pkg/txn"
)

// Subject is one lakeFS that the contract is held against.
type Subject struct {
	// Config is how to reach it.
	Config lakefs.Config
	// Transport carries the requests; nil is a connection.
	Transport http.RoundTripper
	// ImportDirectory is where the test may write what lakeFS can import, as
	// local://<ImportDirectory>/...
	ImportDirectory string
	// Store is where repositories are made; local:// when it is empty.
	Store string
	// Expired makes a pre-signed URL one whose time has run out.
	Expired func(signed string) (string, error)
}

// Contract holds a lakeFS to what the client and the protocol rely on. Each row
// is one fact, measured first on the real server. It runs in repositories of its
// own and leaves them behind.
func Contract(t *testing.T, newSubject func(t *testing.T) Subject) {
	for _, row := range []struct {
		fact string
		test func(*suite)
	}{
		{"credentials: a wrong key or secret is 401", (*suite).credentials},
		{"repository: made with one empty commit, whose tree has the id \"\"", (*suite).repository},
		{"repository: a name that is taken is 409, one that is not there 404", (*suite).repositoryNames},
		{"branch: a name that is taken is 409 and stays as it is", (*suite).branchExists},
		{"branch: a source that is not there is 404, a bad name 400, a long one fine", (*suite).branchNames},
		{"branch: hidden ones are listed only with show_hidden, by prefix, over pages", (*suite).hidden},
		{"repository: all of them are listed, in order", (*suite).repositories},
		{"branch: deletes during a listing move no other one out of it", (*suite).deleteWhileListed},
		{"branch: a delete of a missing one is 404, of the default branch 403", (*suite).deleteBranch},
		{"reference: a branch, a tag, ~n and a short id are accepted where a commit id is", (*suite).references},
		{"commit: read back by its full id with all that was given", (*suite).commit},
		{"commit: an id that is not there is 404", (*suite).commitMissing},
		{"commit: with nothing to commit is 400, 201 with allow_empty", (*suite).noChanges},
		{"commit: equal bytes uploaded again are no change", (*suite).equalBytes},
		{"commit: equal commits of one second are one commit", (*suite).equalCommits},
		{"commit: source_metarange makes exactly that tree", (*suite).sourceMetarange},
		{"commit: source_metarange on a branch with uncommitted changes is 400", (*suite).sourceMetarangeDirty},
		{"commit: an unknown source_metarange is 201, and reading it 410", (*suite).sourceMetarangeUnknown},
		{"upload: MD5 and size come back, zero bytes as well", (*suite).upload},
		{"upload: every legal path goes there and back byte for byte", (*suite).paths},
		{"upload: paths that no file system has are taken as they are", (*suite).hostilePaths},
		{"upload: a path holds at most 1024 bytes", (*suite).longPaths},
		{"upload: to a branch that is not there is 404", (*suite).uploadMissing},
		{"upload: a file of a form is stored whole and under its MD5", (*suite).uploadForm},
		{"upload: a local store signs no URL, and the configuration says so", (*suite).unsigned},
		{"listing: whole, in order, over several pages", (*suite).pages},
		{"listing: a prefix is a string, not a directory", (*suite).prefix},
		{"listing: of a commit, untouched by what is uploaded later", (*suite).listingOfCommit},
		{"object: one that is not there is 404", (*suite).objectMissing},
		{"stat: lakeFS's own addresses are told from the store's", (*suite).stats},
		{"import: replaces a prefix with what the store holds, in one commit, and moves no data", (*suite).imports},
		{"import: the same again is a commit with the same tree", (*suite).importUnchanged},
		{"import: a destination without its slash takes siblings with it", (*suite).importSiblings},
		{"import: from a local store leaves names that begin with a dot out", (*suite).importHidden},
		{"import: what goes wrong after the start is in the status, and nothing is committed", (*suite).importErrors},
		{"bulk delete: 1000 paths and no more, missing ones are fine", (*suite).bulkDelete},
		{"bulk delete: on a branch or in a repository that is not there is 200 and no error", (*suite).bulkDeleteMissing},
		{"tree id: two uploads of equal bytes differ", (*suite).treeIDs},
		{"merge: squashed onto its base has one parent, the source's tree, the metadata given", (*suite).merge},
		{"merge: without a body lands, neither squashed nor with metadata", (*suite).mergeWithoutBody},
		{"merge: by commit id lands after its branch was deleted", (*suite).mergeDeleted},
		{"merge: repeated is 200 and an empty commit", (*suite).mergeRepeated},
		{"merge: of the head into its own branch is 400, with allow_empty one empty commit", (*suite).mergeHead},
		{"merge: of another step's paths onto a head that moved has neither tree", (*suite).mergeMoved},
		{"merge: of conflicting changes is 409 with an empty reference", (*suite).conflict},
		{"merge: into a branch with uncommitted changes is 400", (*suite).dirty},
		{"merge: of a missing source or into a missing branch is 404", (*suite).mergeMissing},
		{"merge: a hook of the source commit refuses with 412 and its message", (*suite).hook},
		{"merge: a conflict is found before the hook runs", (*suite).conflictBeforeHook},
		{"hook: sees the branch, the commit, its only parent when it is squashed, and its metadata", (*suite).hookSees},
		{"hook: hook.fail gives its own text, error adds a traceback", (*suite).hookWords},
		{"hook: without a branch pattern it runs for every destination, a pattern is of the destination", (*suite).hookBranches},
		{"hook: of the head merged into its own branch it runs as well", (*suite).hookOfHead},
		{"hook runs: a merge's stand under the commit that landed, a refused one's under the commit that did not", (*suite).hookRuns},
		{"hook runs: of many hooks, over pages; those behind a failed one of their action are skipped", (*suite).hookRunPages},
		{"action file: one that is no action makes its commit fail with 500", (*suite).actionMalformed},
		{"branch protection: rules are added to those that are there, against their version", (*suite).protectionRules},
		{"branch protection: the rules that match a branch", (*suite).protecting},
		{"branch: its uncommitted changes are listed, one page is enough to see one", (*suite).uncommitted},
		{"repository: says whether it takes changes", (*suite).readOnly},
		{"retention: no rules are 404; a branch's own go before the default", (*suite).retentionRules},
		{"permission: asked for with what is not there, and nothing is done", (*suite).permissions},
		{"merge: concurrent ones all land, one after the other", (*suite).concurrent},
		{"protected branch: upload, delete and commit are 403, a merge passes", (*suite).protected},
		{"diff: of two commits, by content, under a prefix", (*suite).diffOfCommits},
		{"diff: of a tree that came back there is none, whatever was between", (*suite).diffOfWhatCameBack},
		{"log: first parents down to stop_at, which is part of the answer", (*suite).log},
		{"log: a merge commit leads on to its first parent, not to its source", (*suite).logFirstParent},
		{"log: with a stop_at that is not in the history it runs to the root", (*suite).logElsewhere},
		{"log: with a stop_at that is no commit it is 404", (*suite).logUnknown},
		{"log: longer than a page", (*suite).logPages},
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

// suite is one row on its way.
type suite struct {
	*testing.T
	subject Subject
	client  *lakefs.Client
}

func (s *suite) no(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// refused holds an error to its kind, and to being a refusal.
func (s *suite) refused(err, kind error) {
	s.Helper()
	if !errors.Is(err, kind) || !errors.Is(err, txn.ErrRefused) {
		s.Fatalf("%v is not a refusal of the kind %q", err, kind)
	}
}

func (s *suite) equal(got, want any) {
	s.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		s.Fatalf("-want +got\n%s", diff)
	}
}

func (s *suite) branch(repo txn.Repository, name txn.Branch, at txn.CommitID) txn.Branch {
	s.Helper()
	s.no(s.client.CreateBranch(s.Context(), repo, name, at))
	return name
}

// on makes a branch at a commit, uploads files and commits them.
func (s *suite) on(repo txn.Repository, name txn.Branch, at txn.CommitID, files map[string]string) txn.Commit {
	s.Helper()
	s.branch(repo, name, at)
	Put(s, s.client, repo, name, files)
	commit, err := s.client.CreateCommit(s.Context(), repo, name, "on "+string(name), map[string]string{"branch": string(name)})
	s.no(err)
	return commit
}

func (s *suite) read(repo txn.Repository, id txn.CommitID) txn.Commit {
	s.Helper()
	commit, err := s.client.Commit(s.Context(), repo, id)
	s.no(err)
	return commit
}

func (s *suite) head(repo txn.Repository, branch txn.Branch) txn.CommitID {
	s.Helper()
	head, err := s.client.Head(s.Context(), repo, branch)
	s.no(err)
	return head
}

func (s *suite) land(repo txn.Repository, source txn.CommitID) txn.CommitID {
	s.Helper()
	merged, err := s.client.Merge(s.Context(), txn.Merge{Repository: repo, Source: source, Destination: DefaultBranch, Message: "merge"})
	s.no(err)
	return merged
}

// raw is what the client never sends: path is below /api/v1.
func (s *suite) raw(method, path string, query url.Values, body any) (int, string) {
	s.Helper()
	return s.rawWith(nil, method, path, query, body)
}

func (s *suite) rawWith(header http.Header, method, path string, query url.Values, body any) (int, string) {
	s.Helper()
	var reader io.Reader
	contentType := "application/octet-stream"
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		data, err := json.Marshal(body)
		s.no(err)
		reader, contentType = bytes.NewReader(data), "application/json"
	}
	address := strings.TrimSuffix(s.subject.Config.Endpoint, "/") + "/api/v1" + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(s.Context(), method, address, reader)
	s.no(err)
	if header != nil {
		request.Header = header
	}
	request.Header.Set("Content-Type", contentType)
	request.SetBasicAuth(s.subject.Config.AccessKeyID.Reveal(), s.subject.Config.SecretAccessKey.Reveal())
	response, err := (&http.Client{Transport: s.subject.Transport}).Do(request)
	s.no(err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	s.no(err)
	return response.StatusCode, string(data)
}

// status sends a raw request and holds it to a status, and its body to a part.
func (s *suite) status(want int, part, method, path string, query url.Values, body any) string {
	s.Helper()
	status, answer := s.raw(method, path, query, body)
	if status != want || !strings.Contains(answer, part) {
		s.Fatalf("%s %s %v: %d %s, want %d and %q", method, path, query, status, answer, want, part)
	}
	return answer
}

type object = map[string]any

func at(repo txn.Repository, path string, arguments ...any) string {
	return "/repositories/" + string(repo) + fmt.Sprintf(path, arguments...)
}

func (s *suite) credentials() {
	repo, _ := NewRepository(s, s.client, nil)
	s.no(s.client.Ping(s.Context()))
	for name, spoil := range map[string]func(*lakefs.Config){
		"secret": func(c *lakefs.Config) { c.SecretAccessKey = credential.New("not-the-secret") },
		"key":    func(c *lakefs.Config) { c.AccessKeyID = credential.New("nobody-s-key") },
	} {
		cfg := s.subject.Config
		spoil(&cfg)
		wrong, err := lakefs.New(cfg, s.subject.Transport)
		s.no(err)
		for call, err := range map[string]error{
			"ping":   wrong.Ping(s.Context()),
			"read":   second(wrong.Head(s.Context(), repo, DefaultBranch)),
			"upload": second(wrong.Upload(s.Context(), repo, DefaultBranch, "x", Text("x"))),
			"merge": second(wrong.Merge(s.Context(), txn.Merge{
				Repository: repo, Source: txn.CommitID(strings.Repeat("0", 64)), Destination: DefaultBranch,
			})),
		} {
			if !errors.Is(err, txn.ErrUnauthorized) || !errors.Is(err, txn.ErrRefused) {
				s.Errorf("%s with a wrong %s: %v", call, name, err)
			}
		}
	}
	s.status(200, "", "GET", at(repo, ""), nil, nil)
}

func second[T any](_ T, err error) error { return err }

var _ Reader = (*lakefs.Client)(nil)
