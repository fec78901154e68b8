package lakefstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"perago/pkg/txn"
)

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
