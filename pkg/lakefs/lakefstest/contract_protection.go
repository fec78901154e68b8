package lakefstest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"perago/pkg/txn"
)

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
