package lakefs

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"perago/pkg/txn"
)

// An import is waited for as long as lakeFS says that it goes on, and no longer.
func TestImportIsWaitedFor(t *testing.T) {
	t.Parallel()
	const working = `{"completed":false,"update_time":"%s"}`
	for name, c := range map[string]struct {
		// answers are those to the looks at the status, by the time since the start.
		answer   func(since time.Duration) string
		after    time.Duration
		class    error
		sentence string
	}{
		"slow": {func(since time.Duration) string {
			if since < 10*time.Minute {
				return strings.Replace(working, "%s", since.String(), 1)
			}
			return `{"completed":true,"update_time":"x","commit":` + commitJSON("a", "b") + `}`
		}, 10 * time.Minute, nil, ""},
		"stalled": {func(time.Duration) string { return strings.Replace(working, "%s", "x", 1) }, importStalls, txn.ErrRetryable, "has not gone on for"},
		"failed": {func(time.Duration) string {
			return `{"completed":false,"update_time":"x","error":{"message":"no such bucket"}}`
		}, 0, txn.ErrRefused, "no such bucket"},
		"without a commit": {func(time.Duration) string { return `{"completed":true,"update_time":"x"}` }, 0, txn.ErrRetryable, "without a commit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				client := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodPost {
						return reply(202, `{"id":"i"}`), nil
					}
					if !strings.HasSuffix(r.URL.Path, "/import") {
						// The branch stays where it was: the status has the word.
						return reply(200, `{"id":"main","commit_id":"`+string(id("b"))+`"}`), nil
					}
					return reply(200, c.answer(time.Since(began))), nil
				}))
				commit, err := client.Import(t.Context(), repo, main, "s3://bucket/x/", "data/", "m", nil)
				if c.class == nil {
					if err != nil || commit.ID != id("a") {
						t.Errorf("%v, %v", commit, err)
					}
				} else if !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.sentence) || errors.Is(err, txn.ErrUnknownOutcome) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(began); took < c.after || took > c.after+time.Minute {
					t.Errorf("after %s, want %s", took, c.after)
				}
			})
		})
	}
}

// by is a commit of an execution.
func by(commit, execution string) string {
	return strings.Replace(commit, `"metadata":{}`, `"metadata":{"perago.execution_id":"`+execution+`"}`, 1)
}

// The commit of an import is on its branch before the status says so. What stands
// there of another is not taken for it.
func TestImportIsSeenOnItsBranch(t *testing.T) {
	t.Parallel()
	metadata := map[string]string{"perago.execution_id": "e"}
	ours := by(commitJSON("a", "b"), "e")
	for name, c := range map[string]struct {
		head   string
		commit string
		after  time.Duration
	}{
		"ours":              {"a", ours, 200 * time.Millisecond},
		"of another parent": {"a", by(commitJSON("a", "c"), "e"), 2 * time.Second},
		"of another":        {"a", by(commitJSON("a", "b"), "f"), 2 * time.Second},
		"not there":         {"b", "", 2 * time.Second},
		"unreadable":        {"a", "<html>", 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				client := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
					done := time.Since(began) >= 150*time.Millisecond
					switch {
					case r.Method == http.MethodPost:
						return reply(202, `{"id":"i"}`), nil
					case strings.HasSuffix(r.URL.Path, "/import"):
						if time.Since(began) >= 2*time.Second {
							return reply(200, `{"completed":true,"update_time":"x","commit":`+ours+`}`), nil
						}
						return reply(200, `{"completed":false,"update_time":"x"}`), nil
					case strings.Contains(r.URL.Path, "/branches/"):
						head := "b"
						if done {
							head = c.head
						}
						return reply(200, `{"id":"main","commit_id":"`+string(id(head))+`"}`), nil
					}
					return reply(200, c.commit), nil
				}))
				commit, err := client.Import(t.Context(), repo, main, "s3://bucket/x/", "data/", "m", metadata)
				if err != nil || commit.ID != id("a") {
					t.Errorf("%v, %v", commit, err)
				}
				// Reads are repeated for a while before they are given up.
				if took := time.Since(began); took < c.after-50*time.Millisecond || took > c.after+time.Minute || c.commit == ours && took > c.after {
					t.Errorf("after %s, want %s", took, c.after)
				}
			})
		})
	}
}
