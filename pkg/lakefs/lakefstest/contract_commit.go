package lakefstest

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"perago/pkg/txn"
)

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

func (s *suite) treeIDs() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	one := s.on(repo, "one", first, map[string]string{"b": "2"})
	two := s.on(repo, "two", first, map[string]string{"b": "2"})
	if one.MetaRange == two.MetaRange {
		s.Fatal("two uploads of equal bytes make one tree id")
	}
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
