package lakefstest

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

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

// actionFile is an action file with one hook for merges, which runs Lua. branches
// are patterns; none is every branch.
func actionFile(name, script string, branches ...string) string {
	text := "name: " + name + "\non:\n  pre-merge:\n"
	if len(branches) > 0 {
		text += "    branches: [" + strings.Join(branches, ", ") + "]\n"
	}
	return text + "hooks:\n  - id: the_hook\n    type: lua\n    properties:\n      script: |\n        " + strings.ReplaceAll(script, "\n", "\n        ") + "\n"
}

// refusingAction is the action file of a hook that refuses every merge into the
// default branch.
var refusingAction = actionFile("contract", `error("refused by the contract")`, string(DefaultBranch))

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

func (s *suite) repository() {
	repo, first := NewRepository(s, s.client, nil)
	commit := s.read(repo, first)
	s.equal(len(commit.Parents), 0)
	s.equal(commit.MetaRange, txn.MetaRangeID(""))
	s.equal(Tree(s, s.client, repo, first), map[string]string{})
	// The empty tree has an id once a commit writes it, one and the same.
	s.branch(repo, "empty", first)
	empty, err := s.client.CommitUnchanged(s.Context(), repo, "empty", "empty", map[string]string{"k": "v"})
	s.no(err)
	s.equal([]any{empty.Parents, empty.Metadata}, []any{[]txn.CommitID{first}, map[string]string{"k": "v"}})
	if empty.MetaRange == "" {
		s.Fatal("an empty commit has the tree \"\"")
	}
	landed := s.read(repo, s.land(repo, empty.ID))
	s.equal(landed.MetaRange, empty.MetaRange)
	// Also where everything was removed.
	s.on(repo, "full", first, map[string]string{"a": "1"})
	s.no(s.client.DeleteObjects(s.Context(), repo, "full", []string{"a"}))
	emptied, err := s.client.CreateCommit(s.Context(), repo, "full", "emptied", nil)
	s.no(err)
	s.equal(emptied.MetaRange, empty.MetaRange)
}

func (s *suite) repositoryNames() {
	repo, _ := NewRepository(s, s.client, nil)
	s.refused(s.client.CreateRepository(s.Context(), repo, "local://"+string(NewName(s)), DefaultBranch), txn.ErrExists)
	missing := NewName(s)
	none := txn.CommitID(strings.Repeat("0", 64))
	for call, err := range map[string]error{
		"head":     second(s.client.Head(s.Context(), missing, DefaultBranch)),
		"commit":   second(s.client.Commit(s.Context(), missing, none)),
		"branch":   s.client.CreateBranch(s.Context(), missing, "b", none),
		"branches": second(s.client.Branches(s.Context(), missing, "")),
		"upload":   second(s.client.Upload(s.Context(), missing, "b", "x", Text("x"))),
		"delete":   s.client.DeleteBranch(s.Context(), missing, "b"),
		"merge":    second(s.client.Merge(s.Context(), txn.Merge{Repository: missing, Source: none, Destination: DefaultBranch})),
	} {
		if !errors.Is(err, txn.ErrNotFound) || !errors.Is(err, txn.ErrRefused) {
			s.Errorf("%s in a missing repository: %v", call, err)
		}
	}
}

func (s *suite) branchExists() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	staged := s.on(repo, "taken", first, map[string]string{"a": "2"})
	s.refused(s.client.CreateBranch(s.Context(), repo, "taken", first), txn.ErrExists)
	s.equal(s.head(repo, "taken"), staged.ID)
}

func (s *suite) branchNames() {
	repo, first := NewRepository(s, s.client, nil)
	s.refused(s.client.CreateBranch(s.Context(), repo, "b", txn.CommitID(strings.Repeat("f", 64))), txn.ErrNotFound)
	for _, name := range []string{"a b", "-x", "x.y", "x/y", "é"} {
		s.status(400, "", "POST", at(repo, "/branches"), nil, object{"name": name, "source": first})
		if err := s.client.CreateBranch(s.Context(), repo, txn.Branch(name), first); !errors.Is(err, txn.ErrRefused) {
			s.Errorf("branch %q: %v", name, err)
		}
	}
	long := s.branch(repo, txn.Branch("B_9-"+strings.Repeat("x", 300)), first)
	s.equal(s.head(repo, long), first)
}

func (s *suite) repositories() {
	one, _ := NewRepository(s, s.client, nil)
	two, _ := NewRepository(s, s.client, nil)
	all, err := s.client.Repositories(s.Context())
	s.no(err)
	if !slices.Contains(all, one) || !slices.Contains(all, two) || !slices.IsSorted(all) {
		s.Fatalf("repositories %v; want %s and %s among them, in order", all, one, two)
	}
}

func (s *suite) deleteWhileListed() {
	repo, first := NewRepository(s, s.client, nil)
	const branches = 1001
	group := errgroup.Group{}
	group.SetLimit(16)
	for i := range branches {
		group.Go(func() error {
			return s.client.CreateBranch(s.Context(), repo, txn.Branch(fmt.Sprintf("d-%04d", i)), first)
		})
	}
	s.no(group.Wait())
	seen := 0
	for page, err := range s.client.BranchPages(s.Context(), repo, "d-") {
		s.no(err)
		for _, branch := range page {
			if want := txn.Branch(fmt.Sprintf("d-%04d", seen)); branch.Name != want {
				s.Fatalf("branch %d is %s", seen, branch.Name)
			}
			if seen++; seen%2 == 0 {
				s.no(s.client.DeleteBranch(s.Context(), repo, branch.Name))
			}
		}
	}
	s.equal(seen, branches)
	left, err := s.client.Branches(s.Context(), repo, "d-")
	s.no(err)
	s.equal(len(left), branches/2+1)
	for _, branch := range left {
		group.Go(func() error { return s.client.DeleteBranch(s.Context(), repo, branch.Name) })
	}
	s.no(group.Wait())
}

func (s *suite) hidden() {
	repo, first := NewRepository(s, s.client, nil)
	var want []txn.BranchHead
	for _, name := range []txn.Branch{"h-1", "h-2", "h-3", "h2"} {
		s.branch(repo, name, first)
		want = append(want, txn.BranchHead{Name: name, Head: first})
	}
	all, err := s.client.Branches(s.Context(), repo, "")
	s.no(err)
	s.equal(all, append(slices.Clone(want), txn.BranchHead{Name: DefaultBranch, Head: first}))
	some, err := s.client.Branches(s.Context(), repo, "h-")
	s.no(err)
	s.equal(some, want[:3])

	type page struct {
		Pagination struct {
			HasMore    bool   `json:"has_more"`
			NextOffset string `json:"next_offset"`
		} `json:"pagination"`
		Results []struct {
			ID string `json:"id"`
		} `json:"results"`
	}
	list := func(query url.Values) (p page) {
		s.no(json.Unmarshal([]byte(s.status(200, "", "GET", at(repo, "/branches"), query, nil)), &p))
		return p
	}
	plain := list(url.Values{})
	s.no(s.client.CreateVisibleBranch(s.Context(), repo, "a-seen-one", first))
	if seen := list(url.Values{}); len(seen.Results) != 2 || seen.Results[0].ID != "a-seen-one" {
		s.Fatalf("with a branch that is not hidden, a plain listing has %v", seen.Results)
	}
	s.no(s.client.DeleteBranch(s.Context(), repo, "a-seen-one"))
	if len(plain.Results) != 1 || plain.Results[0].ID != string(DefaultBranch) {
		s.Fatalf("a plain listing has %v", plain.Results)
	}
	one := list(url.Values{"show_hidden": {"true"}, "amount": {"2"}})
	if len(one.Results) != 2 || !one.Pagination.HasMore || one.Pagination.NextOffset != "h-2" {
		s.Fatalf("a page of two: %+v", one)
	}
	two := list(url.Values{"show_hidden": {"true"}, "amount": {"10"}, "after": {"h-2"}})
	if len(two.Results) != 3 || two.Results[0].ID != "h-3" || two.Pagination.HasMore {
		s.Fatalf("the page after: %+v", two)
	}
}

func (s *suite) deleteBranch() {
	repo, first := NewRepository(s, s.client, nil)
	s.branch(repo, "gone", first)
	s.no(s.client.DeleteBranch(s.Context(), repo, "gone"))
	s.refused(s.client.DeleteBranch(s.Context(), repo, "gone"), txn.ErrNotFound)
	s.refused(second(s.client.Head(s.Context(), repo, "gone")), txn.ErrNotFound)
	s.refused(s.client.DeleteBranch(s.Context(), repo, DefaultBranch), txn.ErrForbidden)
}

func (s *suite) references() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	head := s.land(repo, s.on(repo, "b", first, map[string]string{"a": "2"}).ID)
	s.status(201, string(first), "POST", at(repo, "/tags"), nil, object{"id": "v1.0", "ref": "main~1"})
	for _, c := range []struct {
		reference string
		want      txn.CommitID
	}{{"main", head}, {"main~1", first}, {"v1.0", first}, {string(head[:12]), head}, {string(head), head}} {
		s.status(200, string(c.want), "GET", at(repo, "/commits/%s", c.reference), nil, nil)
		resolved, err := s.client.Resolve(s.Context(), repo, c.reference)
		s.no(err)
		s.equal(resolved, c.want)
		name := "from-" + strings.NewReplacer("~", "-", ".", "-").Replace(c.reference)
		s.status(201, string(c.want), "POST", at(repo, "/branches"), nil, object{"name": name, "source": c.reference})
		s.equal(s.head(repo, txn.Branch(name)), c.want)
		// The client takes a full id and nothing else.
		if len(c.reference) != 64 {
			if _, err := s.client.Commit(s.Context(), repo, txn.CommitID(c.reference)); !errors.Is(err, txn.ErrRefused) {
				s.Errorf("the client read commit %q: %v", c.reference, err)
			}
		}
	}
	for _, missing := range []string{"nobody", "main~7", "v2.0", strings.Repeat("0", 64)} {
		_, err := s.client.Resolve(s.Context(), repo, missing)
		s.refused(err, txn.ErrNotFound)
	}
}

func (s *suite) commit() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1", "d/b": "2"})
	s.branch(repo, "b", first)
	Put(s, s.client, repo, "b", map[string]string{"a": "3"})
	metadata := map[string]string{"k": "v", "empty": "", "::lakefs::Conductor::url[url:ui]": "http://localhost/?a=1&b=2", "тест": "😀"}
	made, err := s.client.CreateCommit(s.Context(), repo, "b", "a message\nof two lines", metadata)
	s.no(err)
	s.equal(made.Parents, []txn.CommitID{first})
	s.equal(made.Message, "a message\nof two lines")
	s.equal(made.Metadata, metadata)
	if made.MetaRange == "" || made.MetaRange == s.read(repo, first).MetaRange || made.Created.Unix() <= 0 {
		s.Fatalf("%+v", made)
	}
	s.equal(s.head(repo, "b"), made.ID)
	s.equal(s.read(repo, made.ID), made)
	s.equal(Tree(s, s.client, repo, made.ID), map[string]string{"a": "3", "d/b": "2"})
	s.equal(Tree(s, s.client, repo, first), map[string]string{"a": "1", "d/b": "2"})
}

func (s *suite) commitMissing() {
	repo, _ := NewRepository(s, s.client, nil)
	s.refused(second(s.client.Commit(s.Context(), repo, txn.CommitID(strings.Repeat("0", 64)))), txn.ErrNotFound)
}

func (s *suite) noChanges() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	s.branch(repo, "b", first)
	s.refused(second(s.client.CreateCommit(s.Context(), repo, "b", "nothing", nil)), txn.ErrNoChanges)
	// Removing what is not there is nothing as well.
	s.no(s.client.DeleteObjects(s.Context(), repo, "b", []string{"missing"}))
	s.refused(second(s.client.CreateCommit(s.Context(), repo, "b", "nothing", nil)), txn.ErrNoChanges)
	s.equal(s.head(repo, "b"), first)
	s.status(201, "", "POST", at(repo, "/branches/b/commits"), nil, object{"message": "empty", "allow_empty": true})
	s.equal(s.read(repo, s.head(repo, "b")).MetaRange, s.read(repo, first).MetaRange)
	s.refused(second(s.client.CreateCommit(s.Context(), repo, "missing", "m", nil)), txn.ErrNotFound)
}

func (s *suite) equalBytes() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	s.branch(repo, "b", first)
	Put(s, s.client, repo, "b", map[string]string{"a": "1"})
	s.refused(second(s.client.CreateCommit(s.Context(), repo, "b", "again", nil)), txn.ErrNoChanges)
}

func (s *suite) equalCommits() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	tree := s.read(repo, first).MetaRange
	s.branch(repo, "b", first)
	s.branch(repo, "c", first)
	// With the date given, so that the clock cannot come between.
	body := object{"message": "equal", "date": 1_700_000_000}
	for _, branch := range []string{"b", "c"} {
		s.status(201, "", "POST", at(repo, "/branches/%s/commits", branch), url.Values{"source_metarange": {string(tree)}}, body)
	}
	s.equal(s.head(repo, "b"), s.head(repo, "c"))
}

func (s *suite) sourceMetarange() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1", "keep": "k"})
	one := s.on(repo, "one", first, map[string]string{"a": "2", "only-one": "x"})
	two := s.on(repo, "two", first, map[string]string{"a": "3"})
	head := s.land(repo, one.ID)
	// What supersedes a publication: the tree of two, on top of one.
	s.branch(repo, "source", head)
	source, err := s.client.CommitTree(s.Context(), repo, "source", two.MetaRange, "source", map[string]string{"k": "v"})
	s.no(err)
	s.equal(s.read(repo, s.head(repo, "source")), source)
	s.equal(source.Parents, []txn.CommitID{head})
	s.equal(source.MetaRange, two.MetaRange)
	s.equal(source.Metadata, map[string]string{"k": "v"})
	landed := s.read(repo, s.land(repo, source.ID))
	s.equal(landed.MetaRange, two.MetaRange)
	s.equal(Tree(s, s.client, repo, landed.ID), map[string]string{"a": "3", "keep": "k"})
	// The same tree again is a commit as well.
	again, err := s.client.CommitTree(s.Context(), repo, "source", two.MetaRange, "again", nil)
	s.no(err)
	s.equal([]any{again.Parents, again.MetaRange}, []any{[]txn.CommitID{source.ID}, two.MetaRange})
}

func (s *suite) sourceMetarangeDirty() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	s.branch(repo, "b", first)
	Put(s, s.client, repo, "b", map[string]string{"x": "1"})
	_, err := s.client.CommitTree(s.Context(), repo, "b", s.read(repo, first).MetaRange, "m", nil)
	s.refused(err, txn.ErrDirtyBranch)
	s.equal(s.head(repo, "b"), first)
}

func (s *suite) sourceMetarangeUnknown() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	s.branch(repo, "b", first)
	_, err := s.client.CommitTree(s.Context(), repo, "b", txn.MetaRangeID(strings.Repeat("ab", 32)), "m", nil)
	s.no(err)
	head := s.head(repo, "b")
	for _, err := range s.client.Objects(s.Context(), repo, head, "") {
		s.refused(err, txn.ErrGone)
	}
	s.refused(second(s.client.ReadObject(s.Context(), repo, head, "a")), txn.ErrGone)
}

func (s *suite) upload() {
	repo, first := NewRepository(s, s.client, nil)
	s.branch(repo, "b", first)
	for path, text := range map[string]string{"some": "some bytes\x00\xff", "none": ""} {
		got, err := s.client.Upload(s.Context(), repo, "b", path, Text(text))
		s.no(err)
		sum := md5.Sum([]byte(text))
		s.equal(got, txn.Object{Path: path, Size: int64(len(text)), Checksum: hex.EncodeToString(sum[:])})
	}
	commit, err := s.client.CreateCommit(s.Context(), repo, "b", "m", nil)
	s.no(err)
	s.equal(Tree(s, s.client, repo, commit.ID), map[string]string{"some": "some bytes\x00\xff", "none": ""})
	for object, err := range s.client.Objects(s.Context(), repo, commit.ID, "none") {
		s.no(err)
		s.equal(object, txn.Object{Path: "none", Size: 0, Checksum: "d41d8cd98f00b204e9800998ecf8427e"})
	}
}

func (s *suite) paths() {
	repo, first := NewRepository(s, s.client, nil)
	files := map[string]string{}
	for _, path := range []string{
		"sp ace", "pl+us", "pc%41", "100%.csv", "h#x", "q?x", "a&b", "a;b", "col=1/x", "тест/данные", "emo😀", " lead", "trail ",
		"it's", `qu"ote`, `back\slash`, "com,ma", "col:on", "st*r", "{b}", "$d", "@at", "tilde~1", "new\nline", "tab\t", ".hidden",
		"e\u0301", "\u00e9", "d/.../x",
	} {
		files[path] = "content of " + path
	}
	commit := s.on(repo, "b", first, files)
	s.equal(Tree(s, s.client, repo, commit.ID), files)
	// Each alone as a prefix, which is escaped the same way.
	for path := range files {
		var got []string
		for object, err := range s.client.Objects(s.Context(), repo, commit.ID, txn.Prefix(path)) {
			s.no(err)
			got = append(got, object.Path)
		}
		if !slices.Contains(got, path) {
			s.Errorf("the listing of %q has %q", path, got)
		}
	}
	// And each is found to be removed.
	paths := slices.Sorted(maps.Keys(files))
	s.no(s.client.DeleteObjects(s.Context(), repo, "b", paths[1:]))
	rest, err := s.client.CreateCommit(s.Context(), repo, "b", "all but one", nil)
	s.no(err)
	s.equal(Tree(s, s.client, repo, rest.ID), map[string]string{paths[0]: files[paths[0]]})
}

func (s *suite) hostilePaths() {
	repo, first := NewRepository(s, s.client, nil)
	files := map[string]string{}
	for _, path := range []string{"a/../b", "/abs", "a//b", "d/", "./x", "..", "nul\x00x"} {
		files[path] = "content of " + path
	}
	commit := s.on(repo, "b", first, files)
	s.equal(Tree(s, s.client, repo, commit.ID), files)
	// A name that is not UTF-8 is taken too, but shown as another one; the client
	// refuses to write it.
	s.status(201, `bad\ufffd`, "POST", at(repo, "/branches/b/objects"), url.Values{"path": {"bad\xff"}}, "x")
	if _, err := s.client.Upload(s.Context(), repo, "b", "bad\xff", Text("x")); !errors.Is(err, txn.ErrRefused) {
		s.Errorf("upload of a path that is not UTF-8: %v", err)
	}
}

func (s *suite) longPaths() {
	repo, first := NewRepository(s, s.client, nil)
	s.branch(repo, "b", first)
	for path, fits := range map[string]bool{
		strings.Repeat("a", 1024): true, strings.Repeat("a", 1025): false,
		strings.Repeat("é", 512): true, strings.Repeat("é", 513): false,
	} {
		_, err := s.client.Upload(s.Context(), repo, "b", path, Text("x"))
		if fits != (err == nil) || err != nil && !errors.Is(err, txn.ErrRefused) {
			s.Errorf("a path of %d bytes: %v", len(path), err)
		}
	}
}

func (s *suite) uploadMissing() {
	repo, _ := NewRepository(s, s.client, nil)
	s.refused(second(s.client.Upload(s.Context(), repo, "missing", "x", Text("x"))), txn.ErrNotFound)
}

func (s *suite) pages() {
	repo, first := NewRepository(s, s.client, nil)
	s.branch(repo, "b", first)
	const count = 1050
	paths := make([]string, count)
	for i := range paths {
		// Escaping matters in the token between two pages as well.
		paths[i] = "p/" + strconv.Itoa(i) + " +%41&é"
	}
	s.parallel(16, count, func(i int) error {
		return second(s.client.Upload(s.Context(), repo, "b", paths[i], Text("x")))
	})
	commit, err := s.client.CreateCommit(s.Context(), repo, "b", "many", nil)
	s.no(err)
	slices.Sort(paths)
	list := func(commit txn.CommitID) (got []string) {
		for object, err := range s.client.Objects(s.Context(), repo, commit, "p/") {
			s.no(err)
			got = append(got, object.Path)
		}
		return got
	}
	s.equal(list(commit.ID), paths)
	// More paths than one bulk delete takes.
	s.no(s.client.DeleteObjects(s.Context(), repo, "b", paths[5:]))
	rest, err := s.client.CreateCommit(s.Context(), repo, "b", "few", nil)
	s.no(err)
	s.equal(list(rest.ID), paths[:5])
}

func (s *suite) parallel(workers, count int, do func(i int) error) {
	s.Helper()
	var wait sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		wait.Go(func() {
			for i := w; i < count && errs[w] == nil; i += workers {
				errs[w] = do(i)
			}
		})
	}
	wait.Wait()
	s.no(errors.Join(errs...))
}

func (s *suite) prefix() {
	repo, first := NewRepository(s, s.client, map[string]string{"data/a": "1", "data.json": "2", "data2/z": "3", "other": "4"})
	for prefix, want := range map[txn.Prefix][]string{
		"": {"data.json", "data/a", "data2/z", "other"}, "data": {"data.json", "data/a", "data2/z"}, "data/": {"data/a"}, "nothing": nil,
	} {
		var got []string
		for object, err := range s.client.Objects(s.Context(), repo, first, prefix) {
			s.no(err)
			got = append(got, object.Path)
		}
		s.equal(got, want)
	}
}

func (s *suite) listingOfCommit() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	s.branch(repo, "b", first)
	Put(s, s.client, repo, "b", map[string]string{"b": "2"})
	s.equal(Tree(s, s.client, repo, first), map[string]string{"a": "1"})
	for _, err := range s.client.Objects(s.Context(), repo, txn.CommitID(strings.Repeat("0", 64)), "") {
		s.refused(err, txn.ErrNotFound)
	}
}

func (s *suite) objectMissing() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	s.refused(second(s.client.ReadObject(s.Context(), repo, first, "missing")), txn.ErrNotFound)
}

func (s *suite) bulkDelete() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1", "b": "2"})
	s.branch(repo, "b", first)
	paths := make([]string, 1001)
	for i := range paths {
		paths[i] = strconv.Itoa(i)
	}
	s.status(400, "1000", "POST", at(repo, "/branches/b/objects/delete"), nil, object{"paths": paths})
	s.status(200, `"errors":[]`, "POST", at(repo, "/branches/b/objects/delete"), nil, object{"paths": append(paths[:999], "a")})
	commit, err := s.client.CreateCommit(s.Context(), repo, "b", "m", nil)
	s.no(err)
	s.equal(Tree(s, s.client, repo, commit.ID), map[string]string{"b": "2"})
}

func (s *suite) bulkDeleteMissing() {
	repo, _ := NewRepository(s, s.client, nil)
	// So a bulk delete that succeeds proves nothing about the branch.
	s.no(s.client.DeleteObjects(s.Context(), repo, "missing", []string{"a"}))
	s.no(s.client.DeleteObjects(s.Context(), NewName(s), "missing", []string{"a"}))
}

func (s *suite) treeIDs() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	one := s.on(repo, "one", first, map[string]string{"b": "2"})
	two := s.on(repo, "two", first, map[string]string{"b": "2"})
	if one.MetaRange == two.MetaRange {
		s.Fatal("two uploads of equal bytes make one tree id")
	}
}

func (s *suite) merge() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1", "gone": "x"})
	s.branch(repo, "b", first)
	Put(s, s.client, repo, "b", map[string]string{"a": "2", "new": "3"})
	s.no(s.client.DeleteObjects(s.Context(), repo, "b", []string{"gone"}))
	staged, err := s.client.CreateCommit(s.Context(), repo, "b", "staged", map[string]string{"on": "the staging branch"})
	s.no(err)
	id, err := s.client.Merge(s.Context(), txn.Merge{
		Repository: repo, Source: staged.ID, Destination: DefaultBranch, Message: "published", Metadata: map[string]string{"k": "v", "empty": ""},
	})
	s.no(err)
	s.equal(s.head(repo, DefaultBranch), id)
	merged := s.read(repo, id)
	s.equal(merged.Parents, []txn.CommitID{first})
	s.equal(merged.MetaRange, staged.MetaRange)
	s.equal(merged.Message, "published")
	s.equal(merged.Metadata, map[string]string{"k": "v", "empty": "", ".lakefs.merge.strategy": "default"})
	s.equal(Tree(s, s.client, repo, id), map[string]string{"a": "2", "new": "3"})
}

func (s *suite) mergeWithoutBody() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"}, Expect(RuleLinear))
	s.branch(repo, "b", first)
	Put(s, s.client, repo, "b", map[string]string{"a": "2"})
	staged, err := s.client.CreateCommit(s.Context(), repo, "b", "staged", map[string]string{"on": "the staging branch"})
	s.no(err)
	s.status(200, "", "POST", at(repo, "/refs/%s/merge/main", staged.ID), nil, nil)
	merged := s.read(repo, s.head(repo, DefaultBranch))
	s.equal(merged.Parents, []txn.CommitID{first, staged.ID})
	s.equal(merged.MetaRange, staged.MetaRange)
	s.equal(merged.Metadata, map[string]string{".lakefs.merge.strategy": "default"})
}

func (s *suite) mergeDeleted() {
	repo, first := NewRepository(s, s.client, nil)
	staged := s.on(repo, "b", first, map[string]string{"a": "1"})
	s.no(s.client.DeleteBranch(s.Context(), repo, "b"))
	s.equal(s.read(repo, s.land(repo, staged.ID)).MetaRange, staged.MetaRange)
}

func (s *suite) mergeRepeated() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	staged := s.on(repo, "b", first, map[string]string{"a": "2"})
	once := s.land(repo, staged.ID)
	twice := s.read(repo, s.land(repo, staged.ID))
	s.equal(twice.Parents, []txn.CommitID{once})
	s.equal(twice.MetaRange, staged.MetaRange)
	// Without allow_empty it is the same: the head moved, so there is a difference
	// to its base.
	s.status(200, "", "POST", at(repo, "/refs/%s/merge/main", staged.ID), nil, object{"squash_merge": true})
	third := s.read(repo, s.head(repo, DefaultBranch))
	s.equal(third.Parents, []txn.CommitID{twice.ID})
	s.equal(third.MetaRange, staged.MetaRange)
}

func (s *suite) mergeHead() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	s.status(400, "no changes", "POST", at(repo, "/refs/%s/merge/main", first), nil, object{"squash_merge": true})
	merged := s.read(repo, s.land(repo, first))
	s.equal(merged.Parents, []txn.CommitID{first})
	s.equal(merged.MetaRange, s.read(repo, first).MetaRange)
	s.equal(s.head(repo, DefaultBranch), merged.ID)
}

func (s *suite) mergeMoved() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1", "b": "1"})
	one := s.on(repo, "one", first, map[string]string{"a": "2"})
	two := s.on(repo, "two", first, map[string]string{"b": "2"})
	head := s.land(repo, one.ID)
	merged := s.read(repo, s.land(repo, two.ID))
	s.equal(merged.Parents, []txn.CommitID{head})
	if merged.MetaRange == one.MetaRange || merged.MetaRange == two.MetaRange {
		s.Fatal("a merge of two changes has the tree of one of them")
	}
	s.equal(Tree(s, s.client, repo, merged.ID), map[string]string{"a": "2", "b": "2"})
}

func (s *suite) conflict() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1", "b": "1"})
	for name, source := range map[string]txn.Commit{
		"changed by both":                  s.on(repo, "two", first, map[string]string{"a": "3"}),
		"removed here and changed by them": s.without(repo, "three", first, "a"),
	} {
		s.Logf("a path %s", name)
		head := s.head(repo, DefaultBranch)
		if head == first {
			head = s.land(repo, s.on(repo, "one", first, map[string]string{"a": "2"}).ID)
		}
		_, err := s.client.Merge(s.Context(), txn.Merge{Repository: repo, Source: source.ID, Destination: DefaultBranch, Message: "m"})
		s.refused(err, txn.ErrConflict)
		if !strings.Contains(err.Error(), string(source.ID)) || !strings.Contains(err.Error(), string(DefaultBranch)) {
			s.Fatalf("%v does not say what conflicts with what", err)
		}
		s.equal(s.head(repo, DefaultBranch), head)
		s.equal(s.status(409, "", "POST", at(repo, "/refs/%s/merge/main", source.ID), nil, object{"squash_merge": true, "allow_empty": true}),
			"{\"reference\":\"\"}\n")
	}
}

// without makes a branch on which one path is removed.
func (s *suite) without(repo txn.Repository, name txn.Branch, at txn.CommitID, path string) txn.Commit {
	s.Helper()
	s.branch(repo, name, at)
	s.no(s.client.DeleteObjects(s.Context(), repo, name, []string{path}))
	commit, err := s.client.CreateCommit(s.Context(), repo, name, "without "+path, nil)
	s.no(err)
	return commit
}

func (s *suite) dirty() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	staged := s.on(repo, "b", first, map[string]string{"a": "2"})
	Put(s, s.client, repo, DefaultBranch, map[string]string{"left": "uncommitted"})
	_, err := s.client.Merge(s.Context(), txn.Merge{Repository: repo, Source: staged.ID, Destination: DefaultBranch, Message: "m"})
	s.refused(err, txn.ErrDirtyBranch)
	s.equal(s.head(repo, DefaultBranch), first)
}

func (s *suite) mergeMissing() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	staged := s.on(repo, "b", first, map[string]string{"a": "2"})
	_, err := s.client.Merge(s.Context(), txn.Merge{Repository: repo, Source: txn.CommitID(strings.Repeat("0", 64)), Destination: DefaultBranch})
	s.refused(err, txn.ErrNotFound)
	_, err = s.client.Merge(s.Context(), txn.Merge{Repository: repo, Source: staged.ID, Destination: "missing"})
	s.refused(err, txn.ErrNotFound)
}

func (s *suite) hook() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	// The hook is read from the source commit: it refuses the merge that brings
	// it, and not one whose source lacks it.
	with := s.on(repo, "with", first, map[string]string{"_lakefs_actions/contract.yaml": refusingAction})
	without := s.on(repo, "without", first, map[string]string{"a": "2"})
	_, err := s.client.Merge(s.Context(), txn.Merge{Repository: repo, Source: with.ID, Destination: DefaultBranch, Message: "m"})
	s.refused(err, txn.ErrHookRefused)
	if !strings.Contains(err.Error(), "refused by the contract") {
		s.Fatalf("%v does not hold the hook's message", err)
	}
	s.equal(s.head(repo, DefaultBranch), first)
	s.land(repo, without.ID)
}

// refusedWith merges a commit and expects a hook's refusal, whose text it returns.
func (s *suite) refusedWith(m txn.Merge) string {
	s.Helper()
	_, err := s.client.Merge(s.Context(), m)
	s.refused(err, txn.ErrHookRefused)
	return err.Error()
}

// dangling is the commit id in a text that ends in it.
func (s *suite) dangling(text, before string) txn.CommitID {
	s.Helper()
	_, rest, ok := strings.Cut(text, before)
	if !ok || len(rest) < 64 {
		s.Fatalf("%q is not in %q", before, text)
	}
	id, err := txn.ParseCommitID(rest[:64])
	s.no(err)
	return id
}

func (s *suite) hookSees() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	const script = `local c = action.commit
require("hook").fail(table.concat({"sees", action.event_type, action.branch_id, action.source_ref, #c.parents, c.parents[1],
  tostring(c.parents[2]), tostring(c.metadata["perago.key"]), tostring(c.metadata["none"]), c.message, action.commit_id}, " "))`
	source := s.on(repo, "source", first, map[string]string{"_lakefs_actions/contract.yaml": actionFile("contract", script)})
	head := s.land(repo, s.on(repo, "other", first, map[string]string{"b": "1"}).ID)
	text := s.refusedWith(txn.Merge{Repository: repo, Source: source.ID, Destination: DefaultBranch, Message: "m", Metadata: map[string]string{"perago.key": "v"}})
	if want := fmt.Sprintf("sees pre-merge main %s 1 %s nil v nil m ", source.ID, head); !strings.Contains(text, want) {
		s.Fatalf("%q is not in %q", want, text)
	}
	// What it saw is the commit that would have landed, and it is there.
	commit := s.read(repo, s.dangling(text, "nil v nil m "))
	s.equal(commit.Parents, []txn.CommitID{head})
	s.equal(commit.Metadata["perago.key"], "v")
	s.equal(s.head(repo, DefaultBranch), head)
	// Not squashed it has two.
	s.status(412, fmt.Sprintf(" 2 %s %s ", head, source.ID), "POST", at(repo, "/refs/%s/merge/main", source.ID), nil, object{"message": "m"})
}

func (s *suite) hookWords() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	fails := s.on(repo, "fails", first, map[string]string{"_lakefs_actions/contract.yaml": actionFile("contract", `require("hook").fail("in its own words")`)})
	errs := s.on(repo, "errs", first, map[string]string{"_lakefs_actions/contract.yaml": actionFile("contract", `error("in others")`)})
	text := s.refusedWith(txn.Merge{Repository: repo, Source: fails.ID, Destination: DefaultBranch, Message: "m"})
	if !strings.Contains(text, "hook the_hook of action contract refused: in its own words") || strings.Contains(text, "traceback") {
		s.Fatal(text)
	}
	text = s.refusedWith(txn.Merge{Repository: repo, Source: errs.ID, Destination: DefaultBranch, Message: "m"})
	if !strings.Contains(text, "in others") || !strings.Contains(text, "traceback") {
		s.Fatal(text)
	}
}

func (s *suite) hookBranches() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	always := s.on(repo, "always", first, map[string]string{"_lakefs_actions/contract.yaml": actionFile("contract", `require("hook").fail("always")`)})
	some := s.on(repo, "some", first, map[string]string{"_lakefs_actions/contract.yaml": actionFile("contract", `require("hook").fail("some")`, "ma*")})
	s.branch(repo, "hidden-one", first)
	// Each says where it goes: equal commits of one second are one, with one list
	// of runs.
	into := func(branch txn.Branch, source txn.Commit) txn.Merge {
		return txn.Merge{Repository: repo, Source: source.ID, Destination: branch, Message: "into " + string(branch)}
	}
	s.refusedWith(into("hidden-one", always))
	s.refusedWith(into(DefaultBranch, always))
	s.refusedWith(into(DefaultBranch, some))
	// The source's branch, some, is not asked for; and so it is no match.
	landed, err := s.client.Merge(s.Context(), into("hidden-one", some))
	s.no(err)
	runs, err := s.client.HookRuns(s.Context(), repo, landed)
	s.no(err)
	s.equal(len(runs), 0)
}

func (s *suite) hookOfHead() {
	repo, first := NewRepository(s, s.client, map[string]string{"_lakefs_actions/contract.yaml": actionFile("contract",
		`if action.commit.metadata["pass"] == nil then require("hook").fail("not this one") end`)})
	s.refusedWith(txn.Merge{Repository: repo, Source: first, Destination: DefaultBranch, Message: "m"})
	landed, err := s.client.Merge(s.Context(), txn.Merge{Repository: repo, Source: first, Destination: DefaultBranch, Message: "m", Metadata: map[string]string{"pass": ""}})
	s.no(err)
	s.equal(s.head(repo, DefaultBranch), landed)
	runs, err := s.client.HookRuns(s.Context(), repo, landed)
	s.no(err)
	s.equal(runs, []txn.HookRun{{Event: "pre-merge", Action: "contract", Hook: "the_hook", Status: "completed"}})
}

func (s *suite) hookRuns() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	const script = `if action.commit.metadata["pass"] == nil then require("hook").fail("refused " .. action.commit_id) end`
	source := s.on(repo, "source", first, map[string]string{"_lakefs_actions/contract.yaml": actionFile("contract", script)})
	run := txn.HookRun{Event: "pre-merge", Action: "contract", Hook: "the_hook", Status: "failed"}
	runs := func(commit txn.CommitID) []txn.HookRun {
		s.Helper()
		runs, err := s.client.HookRuns(s.Context(), repo, commit)
		s.no(err)
		return runs
	}
	refused := s.dangling(s.refusedWith(txn.Merge{Repository: repo, Source: source.ID, Destination: DefaultBranch, Message: "m"}), "refused ")
	s.equal(runs(refused), []txn.HookRun{run})
	landed, err := s.client.Merge(s.Context(), txn.Merge{Repository: repo, Source: source.ID, Destination: DefaultBranch, Message: "m", Metadata: map[string]string{"pass": "1"}})
	s.no(err)
	run.Status = "completed"
	s.equal(runs(landed), []txn.HookRun{run})
	// A merge whose source has no action files has no run, nor has a commit, and a
	// commit that is not there is no error.
	without := s.land(repo, s.on(repo, "without", first, map[string]string{"b": "1"}).ID)
	for _, commit := range []txn.CommitID{without, source.ID, first, txn.CommitID(strings.Repeat("0", 64))} {
		s.equal(len(runs(commit)), 0)
	}
	_, err = s.client.HookRuns(s.Context(), NewName(s), first)
	s.refused(err, txn.ErrNotFound)
}

func (s *suite) hookRunPages() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	hook := func(id, script string) string {
		return "  - id: " + id + "\n    type: lua\n    properties:\n      script: " + script + "\n"
	}
	source := s.on(repo, "source", first, map[string]string{
		"_lakefs_actions/a.yaml": "name: one action\non:\n  pre-merge:\nhooks:\n" + hook("h1", "print(1)") + hook("h2", `require("hook").fail("two " .. action.commit_id)`) + hook("h3", "print(3)"),
		"_lakefs_actions/b.yaml": "name: another\non:\n  pre-merge:\nhooks:\n" + hook("h1", "print(4)"),
	})
	refused := s.dangling(s.refusedWith(txn.Merge{Repository: repo, Source: source.ID, Destination: DefaultBranch, Message: "m"}), "two ")
	runs, err := s.client.HookRuns(s.Context(), repo, refused)
	s.no(err)
	s.equal(runs, []txn.HookRun{
		{Event: "pre-merge", Action: "one action", Hook: "h1", Status: "completed"},
		{Event: "pre-merge", Action: "one action", Hook: "h2", Status: "failed"},
		{Event: "pre-merge", Action: "one action", Hook: "h3", Status: "skipped"},
		{Event: "pre-merge", Action: "another", Hook: "h1", Status: "completed"},
	})
	type page struct {
		Pagination struct {
			HasMore    bool   `json:"has_more"`
			NextOffset string `json:"next_offset"`
		} `json:"pagination"`
		Results []struct {
			Run    string `json:"run_id"`
			Status string `json:"status"`
			Hook   string `json:"hook_run_id"`
		} `json:"results"`
	}
	list := func(path string, query url.Values) (p page) {
		s.no(json.Unmarshal([]byte(s.status(200, "", "GET", at(repo, "/actions/runs%s", path), query, nil)), &p))
		return p
	}
	all := list("", url.Values{"commit": {string(refused)}, "amount": {"1"}})
	if len(all.Results) != 1 || all.Results[0].Status != "failed" || all.Pagination.HasMore {
		s.Fatalf("%+v", all)
	}
	if after := list("", url.Values{"commit": {string(refused)}, "after": {all.Results[0].Run}}); len(after.Results) != 0 {
		s.Fatalf("behind the last run: %+v", after)
	}
	one := list("/"+all.Results[0].Run+"/hooks", url.Values{"amount": {"3"}})
	if len(one.Results) != 3 || one.Results[0].Hook != "0000_0000" || !one.Pagination.HasMore || one.Pagination.NextOffset != "0000_0002" {
		s.Fatalf("a page of three: %+v", one)
	}
	two := list("/"+all.Results[0].Run+"/hooks", url.Values{"amount": {"3"}, "after": {"0000_0002"}})
	if len(two.Results) != 1 || two.Results[0].Hook != "0001_0000" || two.Pagination.HasMore {
		s.Fatalf("the page after: %+v", two)
	}
}

func (s *suite) actionMalformed() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	for name, file := range map[string]string{"no-yaml": "name: [\n", "no-event": "name: contract\nhooks: []\n"} {
		branch := s.branch(repo, txn.Branch(name), first)
		Put(s, s.client, repo, branch, map[string]string{"_lakefs_actions/" + name + ".yaml": file})
		_, err := s.client.CreateCommit(s.Context(), repo, branch, "m", nil)
		if !errors.Is(err, txn.ErrUnknownOutcome) || !strings.Contains(err.Error(), "parsing file _lakefs_actions/"+name+".yaml") {
			s.Fatal(err)
		}
		s.equal(s.head(repo, branch), first)
	}
}

func (s *suite) protectionRules() {
	repo, _ := NewRepository(s, s.client, nil)
	// In no order.
	rules := func() (patterns []string) {
		var list []struct{ Pattern string }
		s.no(json.Unmarshal([]byte(s.status(200, "", "GET", at(repo, "/settings/branch_protection"), nil, nil)), &list))
		for _, rule := range list {
			patterns = append(patterns, rule.Pattern)
		}
		slices.Sort(patterns)
		return patterns
	}
	s.equal(len(rules()), 0)
	added, err := s.client.Protect(s.Context(), repo, DefaultBranch)
	s.no(err)
	s.equal([]any{added, rules()}, []any{true, []string{"main"}})
	added, err = s.client.Protect(s.Context(), repo, DefaultBranch)
	s.no(err)
	s.equal(added, false)
	added, err = s.client.Protect(s.Context(), repo, "another")
	s.no(err)
	s.equal([]any{added, rules()}, []any{true, []string{"another", "main"}})
	// Rules of another version are not replaced, and "no version" cannot be said.
	before := rules()
	for version, want := range map[string]int{"another": 412, "": 400} {
		status, answer := s.rawWith(http.Header{"If-Match": {version}}, "PUT", at(repo, "/settings/branch_protection"), nil, []object{{"pattern": "x"}})
		s.equal([]any{status, rules()}, []any{want, before})
		s.Log(answer)
	}
	_, err = s.client.Protect(s.Context(), NewName(s), DefaultBranch)
	s.refused(err, txn.ErrNotFound)
}

func (s *suite) conflictBeforeHook() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	with := s.on(repo, "with", first, map[string]string{"_lakefs_actions/contract.yaml": refusingAction, "a": "2"})
	s.land(repo, s.on(repo, "without", first, map[string]string{"a": "3"}).ID)
	_, err := s.client.Merge(s.Context(), txn.Merge{Repository: repo, Source: with.ID, Destination: DefaultBranch, Message: "m"})
	s.refused(err, txn.ErrConflict)
}

func (s *suite) concurrent() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	const count = 6
	sources := make([]txn.CommitID, count)
	for i := range sources {
		name := strconv.Itoa(i)
		sources[i] = s.on(repo, txn.Branch("b"+name), first, map[string]string{name: name}).ID
	}
	s.parallel(count, count, func(i int) error {
		_, err := s.client.Merge(s.Context(), txn.Merge{Repository: repo, Source: sources[i], Destination: DefaultBranch, Message: "m"})
		return err
	})
	history, reached, err := s.client.History(s.Context(), repo, s.head(repo, DefaultBranch), first, 100)
	s.no(err)
	s.equal([]any{len(history), reached}, []any{count, true})
	s.equal(len(Tree(s, s.client, repo, history[0].ID)), 1+count)
}

func (s *suite) protected() {
	// The real server remembers the rules for some seconds, so they are set
	// before anything is written that would make it read them.
	repo, first := NewRepository(s, s.client, nil)
	s.status(204, "", "PUT", at(repo, "/settings/branch_protection"), nil, []object{{"pattern": "ma*"}})
	s.refused(second(s.client.Upload(s.Context(), repo, DefaultBranch, "x", Text("x"))), txn.ErrForbidden)
	s.refused(second(s.client.CreateCommit(s.Context(), repo, DefaultBranch, "m", nil)), txn.ErrForbidden)
	err := s.client.DeleteObjects(s.Context(), repo, DefaultBranch, []string{"a path", "x"})
	s.refused(err, txn.ErrForbidden)
	if !strings.Contains(err.Error(), "a path") {
		s.Fatalf("%v names no path", err)
	}
	staged := s.on(repo, "b", first, map[string]string{"a": "1"})
	s.equal(s.head(repo, DefaultBranch), first)
	s.land(repo, staged.ID)
}

// chain lands count empty merges on the default branch: the cheapest commits.
func (s *suite) chain(repo txn.Repository, count int) []txn.CommitID {
	s.Helper()
	head := s.head(repo, DefaultBranch)
	var newestFirst []txn.CommitID
	for range count {
		head = s.land(repo, head)
		newestFirst = append(newestFirst, head)
	}
	slices.Reverse(newestFirst)
	return newestFirst
}

func ids(commits []txn.Commit) (all []txn.CommitID) {
	for _, c := range commits {
		all = append(all, c.ID)
	}
	return all
}

func (s *suite) log() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	chain := s.chain(repo, 5)
	body := s.status(200, "", "GET", at(repo, "/refs/%s/commits", chain[0]), url.Values{"first_parent": {"true"}, "stop_at": {string(chain[2])}}, nil)
	var page struct {
		Pagination struct {
			HasMore bool `json:"has_more"`
		} `json:"pagination"`
		Results []struct {
			ID txn.CommitID `json:"id"`
		} `json:"results"`
	}
	s.no(json.Unmarshal([]byte(body), &page))
	if len(page.Results) != 3 || page.Results[2].ID != chain[2] || page.Pagination.HasMore {
		s.Fatalf("stop_at is not the last of the answer: %s", body)
	}
	for _, c := range []struct {
		from, stop txn.CommitID
		limit      int
		want       []txn.CommitID
		reached    bool
	}{
		{chain[0], first, 10, chain, true},
		{chain[0], first, 5, chain, true},
		{chain[0], first, 4, chain[:4], false},
		{chain[0], first, 0, nil, false},
		{chain[0], chain[2], 10, chain[:2], true},
		{chain[0], chain[0], 10, nil, true},
		{chain[0], chain[1], 1, chain[:1], true},
	} {
		commits, reached, err := s.client.History(s.Context(), repo, c.from, c.stop, c.limit)
		s.no(err)
		s.equal([]any{ids(commits), reached}, []any{c.want, c.reached})
	}
	commits, _, err := s.client.History(s.Context(), repo, chain[0], first, 10)
	s.no(err)
	s.equal(commits[1], s.read(repo, chain[1]))
	// Down to the repository's own first commit, which has no parent.
	for limit, want := range map[int][]txn.CommitID{3: chain[:3], 6: append(slices.Clone(chain), first)} {
		commits, whole, err := s.client.WholeHistory(s.Context(), repo, chain[0], limit)
		s.no(err)
		s.equal([]any{ids(commits), whole}, []any{want, false})
	}
	for _, limit := range []int{7, 10} {
		commits, reached, err := s.client.WholeHistory(s.Context(), repo, chain[0], limit)
		s.no(err)
		s.equal([]any{len(commits), len(commits[6].Parents), reached}, []any{7, 0, true})
	}
}

func (s *suite) logFirstParent() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"}, Expect(RuleLinear))
	side := s.on(repo, "side", first, map[string]string{"side": "1"})
	s.status(200, "", "POST", at(repo, "/refs/%s/merge/main", side.ID), nil, object{})
	head := s.land(repo, s.head(repo, DefaultBranch))
	commits, reached, err := s.client.History(s.Context(), repo, head, first, 10)
	s.no(err)
	s.equal([]any{len(commits), reached}, []any{2, true})
	s.equal(commits[1].Parents, []txn.CommitID{first, side.ID})
	// The side is no part of the first parents' history.
	_, reached, err = s.client.History(s.Context(), repo, head, side.ID, 10)
	s.no(err)
	s.equal(reached, false)
}

func (s *suite) logElsewhere() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	chain := s.chain(repo, 2)
	elsewhere := s.on(repo, "b", first, map[string]string{"a": "2"})
	commits, reached, err := s.client.History(s.Context(), repo, chain[0], elsewhere.ID, 100)
	s.no(err)
	// Two of the chain, the input commit and the repository's own first one.
	s.equal(ids(commits)[:3], append(slices.Clone(chain), first))
	s.equal([]any{len(commits), reached}, []any{4, false})
	// Newer than from is elsewhere too.
	_, reached, err = s.client.History(s.Context(), repo, chain[1], chain[0], 100)
	s.no(err)
	s.equal(reached, false)
}

func (s *suite) logUnknown() {
	repo, first := NewRepository(s, s.client, nil)
	none := txn.CommitID(strings.Repeat("0", 64))
	_, _, err := s.client.History(s.Context(), repo, first, none, 10)
	s.refused(err, txn.ErrNotFound)
	_, _, err = s.client.History(s.Context(), repo, none, first, 10)
	s.refused(err, txn.ErrNotFound)
}

func (s *suite) logPages() {
	repo, first := NewRepository(s, s.client, nil)
	const count = 1030
	chain := s.chain(repo, count)
	for _, limit := range []int{count, 1024} {
		commits, reached, err := s.client.History(s.Context(), repo, chain[0], first, limit)
		s.no(err)
		s.equal(ids(commits), chain[:limit])
		s.equal(reached, limit == count)
	}
}

var _ Reader = (*lakefs.Client)(nil)
