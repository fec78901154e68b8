package lakefstest

import (
	"strings"

	"perago/pkg/txn"
)

func (s *suite) differ(repo txn.Repository, left, right txn.CommitID, prefix txn.Prefix) bool {
	s.Helper()
	differ, err := s.client.Differ(s.Context(), repo, left, right, prefix)
	s.no(err)
	return differ
}

func (s *suite) diffOfCommits() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1", "w/x": "1", "w2/x": "1"})
	changed := s.on(repo, "changed", first, map[string]string{"w/x": "2"})
	for prefix, want := range map[txn.Prefix]bool{"": true, "w/": true, "w2/": false, "v/": false} {
		s.equal(s.differ(repo, first, changed.ID, prefix), want)
		s.equal(s.differ(repo, changed.ID, first, prefix), want)
	}
	// The same bytes at another address are no difference.
	s.on(repo, "again", first, map[string]string{"w/x": "3"})
	Put(s, s.client, repo, "again", map[string]string{"w/x": "1"})
	again, err := s.client.CreateCommit(s.Context(), repo, "again", "again", nil)
	s.no(err)
	s.equal([]bool{again.MetaRange == s.read(repo, first).MetaRange, s.differ(repo, first, again.ID, "")}, []bool{false, false})
	hooks := s.on(repo, "hooks", first, map[string]string{txn.ActionsPrefix + "theirs.yaml": actionFile("theirs", "print(1)", "nowhere")})
	s.equal(s.differ(repo, first, hooks.ID, ""), false)
	Put(s, s.client, repo, "hooks", map[string]string{"z": "1"})
	behind, err := s.client.CreateCommit(s.Context(), repo, "hooks", "behind", nil)
	s.no(err)
	s.equal(s.differ(repo, first, behind.ID, ""), true)
	missing := txn.CommitID(strings.Repeat("0", 64))
	for _, pair := range [][2]txn.CommitID{{first, missing}, {missing, first}} {
		_, err := s.client.Differ(s.Context(), repo, pair[0], pair[1], "")
		s.refused(err, txn.ErrNotFound)
	}
}

// A revert is a commit of its own without the metadata of what it undoes, and the
// tree is as it was before.
func (s *suite) diffOfWhatCameBack() {
	repo, first := NewRepository(s, s.client, map[string]string{"w/x": "1", "w/old": "1"})
	source := s.on(repo, "source", first, map[string]string{"w/x": "2", "w/new": "1"})
	s.no(s.client.DeleteObjects(s.Context(), repo, "source", []string{"w/old"}))
	source, err := s.client.CreateCommit(s.Context(), repo, "source", "source", map[string]string{"k": "v"})
	s.no(err)
	landed, err := s.client.Merge(s.Context(), txn.Merge{Repository: repo, Source: source.ID, Destination: DefaultBranch, Message: "merge", Metadata: map[string]string{"k": "v"}})
	s.no(err)
	Put(s, s.client, repo, DefaultBranch, map[string]string{"elsewhere": "1"})
	_, err = s.client.CreateCommit(s.Context(), repo, DefaultBranch, "elsewhere", nil)
	s.no(err)
	Revert(s, s.subject.Config, s.subject.Transport, repo, DefaultBranch, landed)
	head := s.read(repo, s.head(repo, DefaultBranch))
	if !strings.Contains(head.Message, string(landed)) || head.Metadata["k"] != "" || len(head.Parents) != 1 {
		s.Fatalf("a revert of %s is %+v", landed, head)
	}
	s.equal([]bool{s.differ(repo, first, head.ID, "w/"), s.differ(repo, landed, head.ID, "w/"), s.differ(repo, first, head.ID, "")}, []bool{false, true, true})
}
