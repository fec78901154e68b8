package lakefs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"

	"perago/pkg/txn"
)

// rules is a server's branch protection rules. before, when set, is called before
// each write, as somebody else who is at it.
type rules struct {
	patterns []string
	version  int
	writes   int
	before   func(*rules)
	// lost loses the answer of so many writes; applied says whether they were done.
	lost    int
	applied bool
}

func (s *rules) RoundTrip(r *http.Request) (*http.Response, error) {
	version := ""
	if len(s.patterns) > 0 {
		version = fmt.Sprint("v", s.version)
	}
	if r.Method == http.MethodGet {
		list := []map[string]string{}
		for _, p := range s.patterns {
			list = append(list, map[string]string{"pattern": p})
		}
		body, err := json.Marshal(list)
		return reply(200, string(body), "ETag", version), err
	}
	s.writes++
	if s.before != nil {
		s.before(s)
		if version = ""; len(s.patterns) > 0 {
			version = fmt.Sprint("v", s.version)
		}
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	lost := s.lost > 0
	s.lost--
	if !lost || s.applied {
		if match := r.Header["If-Match"]; len(match) > 0 && match[0] != version {
			return reply(412, `{"message":"Precondition failed"}`), nil
		}
		var list []struct{ Pattern string }
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, err
		}
		s.patterns = nil
		for _, rule := range list {
			s.patterns = append(s.patterns, rule.Pattern)
		}
		s.version++
	}
	if lost {
		return nil, io.ErrUnexpectedEOF
	}
	return reply(204, ""), nil
}

func TestProtect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		server rules
		want   []string
		added  bool
		writes int
	}{
		{"none", rules{}, []string{"main"}, true, 1},
		{"others", rules{patterns: []string{"release-*", "a[b]"}}, []string{"release-*", "a[b]", "main"}, true, 1},
		{"there", rules{patterns: []string{"x", "main"}}, []string{"x", "main"}, false, 0},
		{"a pattern", rules{patterns: []string{"m?i*"}}, []string{"m?i*"}, false, 0},
		{"a pattern of something else", rules{patterns: []string{"main2*"}}, []string{"main2*", "main"}, true, 1},
		{"a pattern that may mean something else", rules{patterns: []string{"[^x]ain"}}, []string{"[^x]ain", "main"}, true, 1},
		{"somebody else's comes between", rules{patterns: []string{"x"}, before: func(s *rules) {
			if s.writes == 1 {
				s.patterns, s.version = append(s.patterns, "theirs"), s.version+1
			}
		}}, []string{"x", "theirs", "main"}, true, 2},
		{"lost and done", rules{patterns: []string{"x"}, lost: 1, applied: true}, []string{"x", "main"}, true, 1},
		{"lost and not done", rules{patterns: []string{"x"}, lost: 1}, []string{"x", "main"}, true, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			added, err := testClient(t, &c.server).Protect(t.Context(), repo, main)
			if err != nil || added != c.added || c.server.writes != c.writes || !slices.Equal(c.server.patterns, c.want) {
				t.Errorf("added %v in %d writes, now %q: %v", added, c.server.writes, c.server.patterns, err)
			}
		})
	}
}

// It gives up, and drops nobody's rule.
func TestProtectGivesUp(t *testing.T) {
	t.Parallel()
	restless := &rules{patterns: []string{"x"}, before: func(s *rules) { s.version++ }}
	if _, err := testClient(t, restless).Protect(t.Context(), repo, main); !errors.Is(err, txn.ErrConflict) || len(restless.patterns) != 1 {
		t.Errorf("%q: %v", restless.patterns, err)
	}
	lossy := &rules{lost: 100}
	if _, err := testClient(t, lossy).Protect(t.Context(), repo, main); !errors.Is(err, txn.ErrUnknownOutcome) || lossy.writes != protectionTries {
		t.Errorf("%d writes: %v", lossy.writes, err)
	}
	for name, answer := range map[string]string{"no list": `null`, "no pattern": `[{}]`, "rules without a version": `[{"pattern":"x"}]`} {
		synctest.Test(t, func(t *testing.T) {
			_, err := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodGet {
					t.Errorf("%s: written", name)
				}
				return reply(200, answer), nil
			})).Protect(t.Context(), repo, main)
			if !errors.Is(err, txn.ErrRetryable) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
