package lakefstest

import (
	"errors"
	"strings"
	"time"

	"perago/pkg/credential"
	"perago/pkg/lakefs"
	"perago/pkg/txn"
)

func (s *suite) uncommitted() {
	repo, _ := NewRepository(s, s.client, nil)
	change := func(branch txn.Branch) string {
		path, err := s.client.Uncommitted(s.Context(), repo, branch)
		s.no(err)
		return path
	}
	s.equal(change(DefaultBranch), "")
	_, err := s.client.Upload(s.Context(), repo, DefaultBranch, "b", Text("1"))
	s.no(err)
	s.equal(change(DefaultBranch), "b")
	_, err = s.client.Upload(s.Context(), repo, DefaultBranch, "a", Text("1"))
	s.no(err)
	s.equal(change(DefaultBranch), "a")
	_, err = s.client.Uncommitted(s.Context(), repo, "missing")
	s.refused(err, txn.ErrNotFound)
}

func (s *suite) readOnly() {
	repo, _ := NewRepository(s, s.client, nil)
	readOnly, err := s.client.ReadOnly(s.Context(), repo)
	s.no(err)
	s.equal(readOnly, false)
	name := NewName(s)
	s.status(201, "", "POST", "/repositories", nil, object{"name": name, "storage_namespace": "local://" + string(name), "default_branch": "main", "read_only": true})
	readOnly, err = s.client.ReadOnly(s.Context(), name)
	s.no(err)
	s.equal(readOnly, true)
	_, err = s.client.ReadOnly(s.Context(), NewName(s))
	s.refused(err, txn.ErrNotFound)
}

func (s *suite) retentionRules() {
	repo, _ := NewRepository(s, s.client, nil)
	rules := func(branch txn.Branch) [2]time.Duration {
		on, deleted, err := s.client.Retention(s.Context(), repo, branch)
		s.no(err)
		return [2]time.Duration{on, deleted}
	}
	const day = 24 * time.Hour
	// No rules: 404, as for a repository that is not there.
	s.status(404, "not found", "GET", at(repo, "/settings/gc_rules"), nil, nil)
	s.equal(rules(DefaultBranch), [2]time.Duration{})
	s.status(204, "", "PUT", at(repo, "/settings/gc_rules"), nil, object{"default_retention_days": 3, "branches": []object{{"branch_id": "main", "retention_days": 9}}})
	s.equal(rules(DefaultBranch), [2]time.Duration{9 * day, 3 * day})
	s.equal(rules("another"), [2]time.Duration{3 * day, 3 * day})
	_, _, err := s.client.Retention(s.Context(), NewName(s), DefaultBranch)
	s.refused(err, txn.ErrNotFound)
}

func (s *suite) protecting() {
	repo, _ := NewRepository(s, s.client, nil)
	protecting := func(branch txn.Branch) []string {
		patterns, _, err := s.client.Protecting(s.Context(), repo, branch)
		s.no(err)
		return patterns
	}
	s.equal(len(protecting(DefaultBranch)), 0)
	_, err := s.client.Protect(s.Context(), repo, DefaultBranch)
	s.no(err)
	s.equal(protecting(DefaultBranch), []string{"main"})
	s.equal(len(protecting("another")), 0)
}

// permissions: asking whether the key may do something does not do it. Whoever may
// gets the refusal of what was asked for; who may not, one of the key.
func (s *suite) permissions() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	ask := func(client *lakefs.Client, action string, branch txn.Branch) error {
		return client.Permitted(s.Context(), txn.Permission{
			Action: action, Repository: repo, Branch: branch, Path: "data/x", Storage: "local://" + s.subject.ImportDirectory + "/",
		})
	}
	cfg := s.subject.Config
	cfg.SecretAccessKey = credential.New("not-the-secret")
	wrong, err := lakefs.New(cfg, s.subject.Transport)
	s.no(err)
	for _, action := range []string{
		"fs:ReadCommit", "fs:ReadBranch", "fs:DeleteBranch", "fs:ListRepositories", "fs:ListBranches", "fs:ListObjects", "fs:ReadObject",
		"ci:ReadAction", "fs:CreateBranch", "fs:WriteObject", "fs:DeleteObject", "fs:CreateCommit", "fs:ImportFromStorage",
	} {
		for _, branch := range []txn.Branch{"", "main"} {
			if err := ask(s.client, action, branch); err != nil {
				s.Errorf("%s on %q: %v", action, branch, err)
			}
			if err := ask(wrong, action, branch); !errors.Is(err, txn.ErrUnauthorized) {
				s.Errorf("%s on %q with a wrong secret: %v", action, branch, err)
			}
		}
	}
	if err := ask(s.client, "fs:NoSuchAction", ""); err == nil || !strings.Contains(err.Error(), "fs:NoSuchAction") {
		s.Errorf("an action of nobody: %v", err)
	}
	s.equal(s.head(repo, DefaultBranch), first)
	branches, err := s.client.Branches(s.Context(), repo, "")
	s.no(err)
	s.equal(len(branches), 1)
	change, err := s.client.Uncommitted(s.Context(), repo, DefaultBranch)
	s.no(err)
	s.equal(change, "")
}
