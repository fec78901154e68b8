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
