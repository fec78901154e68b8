//go:build unix

package confinement

import (
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"

	"perago/pkg/cleanup"
	"perago/pkg/publish"
	"perago/pkg/txn"
)

// A repository or a branch that the worker may not touch ends the task before
// anything is asked of lakeFS, whichever task it is.
func TestOutsideTheAllowListNothingIsAsked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		allowed            string
		repository, branch string
	}{
		{"lake", "another", "main"},
		{"lake", "lake2", "main"},
		{"lake2", "lake", "main"},
		{"lake", "lak", "main"},
		{"lake", "LAKE", "main"},
		{"lake", "lake/main", "main"},
		{"lake", "../lake", "main"},
		{"lake", "lake/", "main"},
		{"lake", " lake", "main"},
		{"lake", "*", "main"},
		{"lake/main", "lake", "main2"},
		{"lake/main", "lake", "mai"},
		{"lake/main", "lake", "MAIN"},
		{"lake/main", "lake", "main/"},
		{"lake/main", "lake", "../main"},
		{"lake/main", "lake", "main~1"},
		{"lake/main", "lake", "main@"},
		{"lake/main", "lake", "main "},
		{"lake/main", "lake", "main\x00"},
		{"lake/main", "lake", "*"},
		{"lake/exp-*", "lake", "exp"},
		{"lake/exp-*", "lake", "exp-a/b"},
		{"lake/exp-*", "lake2", "exp-a"},
		{"lake/*", "lake", "perago-staging-x"},
		{"*", "lake", "perago-"},
		{"*", "lake", ".."},
		{"*", "..", "main"},
		{"*", "a/b", "main"},
		{"", "lake", "main"},
	} {
		t.Run(strings.ReplaceAll(c.allowed+" and "+c.repository+" "+c.branch, "/", "|"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{"data/a": "1"})
			var allowed txn.AllowList
			if c.allowed != "" {
				var err error
				if allowed, err = txn.ParseAllowList([]string{c.allowed}); err != nil {
					t.Fatal(err)
				}
			}
			w.stager.Allowed, w.downloader.Allowed, w.cleaner.Allowed = allowed, allowed, allowed
			publisher := &publish.Publisher{Lake: nil, Tasks: nil, Identity: identity, Allowed: allowed, NewExecutionID: w.stager.NewExecutionID}
			w.guard()
			workspace := map[string]any{"workspace": txn.Workspace{Repository: txn.Repository(c.repository), Branch: txn.Branch(c.branch), RefType: txn.RefTypeCommit, Ref: w.first}}
			with := func(name string, value any) map[string]any {
				input := maps.Clone(workspace)
				input[name] = value
				return input
			}
			staged := map[string]any{
				"repository": c.repository, "branch": c.branch, "staging_branch": "", "commit": w.first, "logical_task_key": string(workflow) + ":step:0", "input_ref": w.first,
				"prefix": "data/", "task_id": "t", "retry_count": 0, "poll_count": 1, "start_time": 1, "execution_id": "01890a5d-ac96-774b-bcce-b302099a8057", "no_op": true, "read_only": false,
				"added": 0, "changed": 0, "removed": 0, "unchanged": 0, "bytes": 0,
			}

			_, stages := w.stage(w.own("task"), workspace)
			_, reads := w.stage("", map[string]any{"workspace": workspace["workspace"], "read_only": true, "source": nil})
			downloaded, downloads := w.downloader.Run(t.Context(), w.task(workflow, txn.TypeCheckout, workspace), attempt{})
			w.tell(downloaded.Output(), downloads)
			published, publishes := publisher.Run(t.Context(), w.task(workflow, txn.TypePublish, with("staged", staged)), attempt{})
			w.tell(published.Output(), publishes)
			for what, err := range map[string]error{"stage": stages, "a read-only step": reads, "checkout": downloads, "publish": publishes} {
				if !errors.As(err, new(*txn.TerminalError)) {
					t.Errorf("%s: got %v, want it refused for good", what, err)
				}
			}
			cleaned, err := w.cleaner.Run(t.Context(), w.task(workflow, txn.TypeCleanup, with("staged", staged)), attempt{})
			w.tell(cleaned.Output(), err)
			if err != nil || len(cleaned.Errors) != 1 {
				t.Errorf("cleanup: %v, %+v; want one problem", err, cleaned)
			}
			if c.branch == "main" && c.allowed != "*" {
				// By hand, too.
				_, err := w.cleaner.Sweep(t.Context(), cleanup.Sweep{Repository: txn.Repository(c.repository)})
				if err == nil || w.cleaner.Force(t.Context(), txn.Repository(c.repository), "perago-staging-x") == nil {
					t.Errorf("sweep: %v", err)
				}
			}
			w.intact("outside the allow-list")
			if sent := w.wire.count(""); sent != 0 {
				t.Errorf("%d requests, want none: %q", sent, w.wire.sent)
			}
		})
	}
}

// What is no part of the allowed prefixes of the object store is not imported, and
// nothing is asked of lakeFS: neither by its text nor as lakeFS reads it.
func TestOutsideTheAllowedImportsNothingIsAsked(t *testing.T) {
	t.Parallel()
	refused := []string{
		"s3://bucket/", "s3://bucket/allowed2/", "s3://bucket/allow/", "s3://bucket/allowed2", "s3://bucket2/allowed/x/", "s3://bucket/ALLOWED/x/", "gs://bucket/allowed/x/", "S3://bucket/allowed/x/",
		"s3://bucket/allowed/../", "s3://bucket/allowed/x/../../", "s3://bucket/allowed/x/../../other/", "s3://bucket/allowed/..", "s3://bucket/allowed/./", "s3://bucket/allowed//", "s3://bucket//allowed/x/",
		"s3://bucket/allowed/%2e%2e/", "s3://bucket/allowed/%2E%2E/other/", "s3://bucket/allowed/.%2e/other/", "s3://bucket/allowed/x%2f..%2f..%2fother/", "s3://bucket/allowed/%2e/", "s3://bucket/allowed/x%2f/",
		"s3://bucket/allowed/\x00/", "s3://bucket/allowed/%00/", "s3://bucket/allowed/?x", "s3://bucket/allowed/#x", "s3://me:secret@bucket/allowed/x/", "bucket/allowed/x/", "/allowed/x/", "",
		"local:///srv/allowed/../secret/", "local:///srv/allowed/%2e%2e/secret/", "local:///srv/allowed/..", "local:///srv/allowed2/", "local:////srv/allowed/x/", "local://srv/allowed/x/",
	}
	allowed, err := txn.ParseImportList([]string{"s3://bucket/allowed", "local:///srv/allowed/"})
	if err != nil {
		t.Fatal(err)
	}
	for _, uri := range refused {
		t.Run(strings.ReplaceAll(uri, "/", "|"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{"data/a": "1"})
			w.stager.AllowedImports = allowed
			w.guard()
			_, err := w.stage("", map[string]any{"source": map[string]any{"import": uri}})
			w.intact(uri)
			if !errors.As(err, new(*txn.TerminalError)) || w.wire.count("") != 0 {
				t.Errorf("got %v after %d requests, want it refused before any", err, w.wire.count(""))
			}
		})
	}
	// What is allowed is asked for.
	for _, uri := range []string{"s3://bucket/allowed/", "s3://bucket/allowed/x", "local:///srv/allowed/%2e%2e%2e/", "s3://bucket/allowed/..x/"} {
		w := newWorld(t, map[string]string{"data/a": "1"})
		w.stager.AllowedImports = allowed
		if _, err := w.stage("", map[string]any{"source": map[string]any{"import": uri}}); err == nil || w.wire.count(http.MethodPost) == 0 {
			t.Errorf("%s: %v after %d requests", uri, err, w.wire.count(""))
		}
	}
}
