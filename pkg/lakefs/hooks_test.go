package lakefs

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/txn"
)

// All pages of the runs, and all pages of each run's hooks.
func TestHookRuns(t *testing.T) {
	t.Parallel()
	run := func(name, event string) any {
		return map[string]any{"run_id": name, "event_type": event, "commit_id": id("a")}
	}
	hook := func(name, action, status string) any {
		return map[string]any{"hook_run_id": name, "action": action, "hook_id": "the_hook", "status": status}
	}
	answers := map[string]string{
		"/runs?":            page(true, []any{run("r1", "post-merge")}),
		"/runs?r1":          page(false, []any{run("r2", "pre-merge")}),
		"/runs/r1/hooks?":   page(false, []any{}),
		"/runs/r2/hooks?":   page(true, []any{hook("h1", "theirs", "failed")}),
		"/runs/r2/hooks?h1": page(false, []any{hook("h2", "ours", "completed")}),
	}
	client := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
		path, query := strings.TrimPrefix(r.URL.Path, "/api/v1/repositories/repo/actions"), r.URL.Query()
		if path == "/runs" && query.Get("commit") != string(id("a")) {
			t.Errorf("asked for the runs of %q", query.Get("commit"))
		}
		answer, ok := answers[path+"?"+query.Get("after")]
		if !ok {
			return nil, fmt.Errorf("asked for %s", r.URL)
		}
		return reply(200, answer), nil
	}))
	got, err := client.HookRuns(t.Context(), repo, id("a"))
	want := []txn.HookRun{
		{Event: "pre-merge", Action: "theirs", Hook: "the_hook", Status: "failed"},
		{Event: "pre-merge", Action: "ours", Hook: "the_hook", Status: "completed"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
}

// What does not say which hook ran, or is about another commit, is no answer: it
// would be taken for a commit whose hook did not run.
func TestHookRunsThatSayNothing(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"another commit":    page(false, []any{map[string]any{"run_id": "r", "event_type": "pre-merge", "commit_id": id("b")}}),
		"no event":          page(false, []any{map[string]any{"run_id": "r", "commit_id": id("a")}}),
		"no id":             page(false, []any{map[string]any{"event_type": "pre-merge", "commit_id": id("a")}}),
		"no page":           `{"results":[]}`,
		"out of order":      page(false, []any{run("r2"), run("r1")}),
		"more after none":   page(true, []any{}),
		"a hook by no name": page(false, []any{run("r1")}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
					if strings.HasSuffix(r.URL.Path, "/hooks") {
						hook := map[string]any{"hook_run_id": "0000_0000", "action": "x", "status": "completed"}
						if name != "a hook by no name" {
							hook["hook_id"] = "y"
						}
						return reply(200, page(false, []any{hook})), nil
					}
					return reply(200, answer), nil
				}))
				got, err := client.HookRuns(t.Context(), repo, id("a"))
				if !errors.Is(err, txn.ErrRetryable) || got != nil {
					t.Errorf("got %v, %v", got, err)
				}
			})
		})
	}
}

func run(name string) any {
	return map[string]any{"run_id": name, "event_type": "pre-merge", "commit_id": id("a")}
}
