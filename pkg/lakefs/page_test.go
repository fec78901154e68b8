package lakefs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"perago/pkg/txn"
)

// A server whose pages never end. Each loop stops by itself, with an error, after
// a bounded number of requests; the listing that was wrong is not passed off as
// whole.
func TestPageLoopsEnd(t *testing.T) {
	t.Parallel()
	objects := func(more bool, paths ...string) string {
		results := []any{}
		for _, p := range paths {
			results = append(results, map[string]any{"path": p, "path_type": "object", "size_bytes": 1, "checksum": "x"})
		}
		return page(more, results)
	}
	branches := func(more bool, names ...string) string {
		results := []any{}
		for _, n := range names {
			results = append(results, map[string]any{"id": n, "commit_id": id("a")})
		}
		return page(more, results)
	}
	log := func(more bool, pairs ...string) string {
		results := []any{}
		for _, p := range pairs {
			results = append(results, json.RawMessage(commitJSON(p[:1], p[1:])))
		}
		return page(more, results)
	}
	for _, c := range []struct {
		name string
		op   operation
		page func(request int) string
	}{
		{"the same page for ever", listObjects, func(int) string { return objects(true, "p", "q") }},
		{"an empty page with more", listObjects, func(n int) string {
			if n == 1 {
				return objects(true, "p")
			}
			return objects(true)
		}},
		{"an empty first page with more", listObjects, func(int) string { return objects(true) }},
		{"a page that goes back", listObjects, func(n int) string { return objects(true, strconv.Itoa(900-n)) }},
		{"out of order in a page", listObjects, func(int) string { return objects(false, "q", "p") }},
		{"twice in a page", listObjects, func(int) string { return objects(false, "p", "p") }},
		{"the same page for ever", listBranches, func(int) string { return branches(true, "a", "b") }},
		{"an empty page with more", listBranches, func(int) string { return branches(true) }},
		{"a page that goes back", listBranches, func(n int) string { return branches(true, strconv.Itoa(900-n)) }},
		{"the same page for ever", listRepositories, func(int) string { return branches(true, "a", "b") }},
		{"an empty page with more", listRepositories, func(int) string { return branches(true) }},
		{"the same page for ever", logCommits, func(int) string { return log(true, "ab") }},
		{"an empty page with more", logCommits, func(n int) string {
			if n == 1 {
				return log(true, "ac")
			}
			return log(true)
		}},
		{"an empty first page", logCommits, func(int) string { return log(false) }},
		{"no chain", logCommits, func(int) string { return log(false, "ab", "cd") }},
		{"begins elsewhere", logCommits, func(int) string { return log(false, "cb") }},
		{"a ring", logCommits, func(n int) string {
			if n%2 == 1 {
				return log(true, "ac")
			}
			return log(true, "ca")
		}},
	} {
		t.Run(string(c.op)+"/"+c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Each wrong page is asked for again, so count the good ones.
				requests := 0
				client := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
					if requests++; requests > 2000 {
						t.Fatal("it does not end")
					}
					return reply(200, c.page(requests)), nil
				}))
				var err error
				switch c.op {
				case listObjects:
					count := 0
					for _, e := range client.Objects(t.Context(), repo, id("a"), "") {
						err = e
						if count++; count > 2000 {
							t.Fatal("it does not end")
						}
					}
				case listBranches:
					_, err = client.Branches(t.Context(), repo, "")
				case listRepositories:
					_, err = client.Repositories(t.Context())
				case logCommits:
					var commits []txn.Commit
					var reached bool
					commits, reached, err = client.History(t.Context(), repo, id("a"), id("b"), 1024)
					if c.name == "a ring" && err == nil {
						// The limit ends it, and the end was not reached.
						if reached || len(commits) != 1024 {
							t.Fatalf("%d commits, reached %v", len(commits), reached)
						}
						return
					}
				}
				if !errors.Is(err, txn.ErrRetryable) {
					t.Errorf("%d requests, %v", requests, err)
				}
			})
		})
	}
}

func page(more bool, results []any) string {
	text, err := json.Marshal(map[string]any{"pagination": map[string]any{"has_more": more}, "results": results})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// What is listed has the prefix that was asked for.
func TestListingsKeepToTheirPrefix(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			return reply(200, page(false, []any{map[string]any{
				"path": "data.json", "path_type": "object", "size_bytes": 1, "checksum": "x", "id": "other", "commit_id": id("a"),
			}})), nil
		}))
		for _, err := range client.Objects(t.Context(), repo, id("a"), "data/") {
			if err == nil {
				t.Error("data.json is listed below data/")
			}
		}
		if _, err := client.Branches(t.Context(), repo, "perago-"); err == nil {
			t.Error("another branch is listed")
		}
	})
}

// A page of millions of empty entries takes no gigabytes to be refused.
func TestPagesOfNothingTakeNoMemory(t *testing.T) {
	body := `{"pagination":{"has_more":false},"results":[{}` + strings.Repeat(",{}", 4<<20) + `]}`
	synctest.Test(t, func(t *testing.T) {
		client := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) { return reply(200, body), nil }))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond) // once
		defer cancel()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := client.History(ctx, repo, id("a"), id("b"), 10)
		runtime.ReadMemStats(&after)
		if made := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, txn.ErrRetryable) || made > 20*uint64(len(body)) {
			t.Errorf("%d bytes were made of %d: %v", made, len(body), err)
		}
	})
}

// A size that no object has is no object's.
func TestSizesOfObjects(t *testing.T) {
	t.Parallel()
	for size, good := range map[string]bool{"0": true, "1": true, "1125899906842624": true, "-1": false, "1125899906842625": false, "9223372036854775807": false, "9223372036854775808": false, "1.5": false, "null": false} {
		synctest.Test(t, func(t *testing.T) {
			client := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
				one := `{"path":"p","path_type":"object","size_bytes":` + size + `,"checksum":"x"}`
				if r.Method == http.MethodPost {
					return reply(201, one), nil
				}
				return reply(200, `{"pagination":{"has_more":false},"results":[`+one+`]}`), nil
			}))
			for _, err := range client.Objects(t.Context(), repo, id("a"), "") {
				if (err == nil) != good {
					t.Errorf("listed with %s bytes: %v", size, err)
				}
			}
			if _, err := client.Upload(t.Context(), repo, main, "p", text("x")); (err == nil) != good {
				t.Errorf("uploaded with %s bytes: %v", size, err)
			}
		})
	}
}

// Answers that are well formed and about something else.
func TestAnswersAreAboutWhatWasAsked(t *testing.T) {
	t.Parallel()
	for op, body := range map[operation]string{
		uploadObject:     `{"path":"another","path_type":"object","size_bytes":1,"checksum":"x"}`,
		getBranch:        `{"id":"another","commit_id":"` + string(id("a")) + `"}`,
		createBranch:     string(id("b")),
		createRepository: `{"id":"another"}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			for _, c := range calls {
				if c.operation == op {
					wantDoubt(t, op, c.call(t.Context(), testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
						return reply(c.status, body), nil
					}))))
				}
			}
		})
	}
}

// Bulk deletes go out in calls of at most a thousand paths, each path once.
func TestBulkDeleteChunks(t *testing.T) {
	t.Parallel()
	for _, count := range []int{0, 1, 999, 1000, 1001, 2501} {
		var paths []string
		for i := range count {
			paths = append(paths, fmt.Sprint(i))
		}
		var sent []string
		calls := 0
		err := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			var body struct{ Paths []string }
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Error(err)
			}
			if len(body.Paths) > 1000 || len(body.Paths) == 0 {
				t.Errorf("a call with %d paths", len(body.Paths))
			}
			calls++
			sent = append(sent, body.Paths...)
			return reply(200, `{"errors":[]}`), nil
		})).DeleteObjects(t.Context(), repo, main, paths)
		if err != nil || fmt.Sprint(sent) != fmt.Sprint(paths) || calls != (count+999)/1000 {
			t.Errorf("%d paths: %d calls, %d sent, %v", count, calls, len(sent), err)
		}
	}
}

// A listing that is left early asks for no further page.
func TestListingStopsWhenLeft(t *testing.T) {
	t.Parallel()
	requests := 0
	client := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
		requests++
		return reply(200, page(true, []any{map[string]any{"path": "p", "path_type": "object", "size_bytes": 1, "checksum": "x"}})), nil
	}))
	for range client.Objects(t.Context(), repo, id("a"), "") {
		break
	}
	if requests != 1 {
		t.Errorf("%d requests", requests)
	}
}

// The hooks are in no projection, however many pages of them come before an object.
func TestDiffer_LooksBehindTheHooks(t *testing.T) {
	t.Parallel()
	const page = `{"pagination":{"has_more":%t},"results":[%s]}`
	entry := func(path string) string {
		return fmt.Sprintf(`{"path":%q,"path_type":"object","type":"changed"}`, path)
	}
	for name, c := range map[string]struct {
		last string
		want bool
	}{
		"nothing":          {"", false},
		"an object":        {entry("a"), true},
		"one more hook":    {entry(txn.ActionsPrefix + "z.yaml"), false},
		"a name like that": {entry("_lakefs_actions2/a"), true},
	} {
		var asked []string
		client := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			after := r.URL.Query().Get("after")
			asked = append(asked, r.URL.Query().Get("type")+" "+after)
			if after != "" {
				return reply(200, fmt.Sprintf(page, false, c.last)), nil
			}
			return reply(200, fmt.Sprintf(page, true, entry(txn.ActionsPrefix+"a.yaml"))), nil
		}))
		got, err := client.Differ(t.Context(), repo, id("a"), id("b"), "")
		if err != nil || got != c.want || !strings.HasPrefix(asked[0], "two_dot") {
			t.Errorf("%s: %v, %v, asked %q", name, got, err, asked)
		}
	}
}
