package lakefstest

import (
	"strconv"
	"strings"

	"perago/pkg/txn"
)

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
