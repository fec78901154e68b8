package stage_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/projection"
	"perago/pkg/txn"
)

// store makes a folder of the object store with these files and gives its URI.
func (b *bench) store(files map[string]string) string {
	b.t.Helper()
	directory := b.t.TempDir()
	for path, content := range files {
		full := filepath.Join(directory, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(content), 0o644)); err != nil {
			b.t.Fatal(err)
		}
	}
	b.stager.AllowedImports = txn.ImportList{"*"}
	return "local://" + directory
}

func (b *bench) importTask(uri string, more map[string]any) txn.Task {
	b.t.Helper()
	fields := map[string]any{"source": map[string]any{"import": uri}}
	for name, value := range more {
		fields[name] = value
	}
	return b.task("", fields)
}

func TestImportsExactlyTheProjection(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data/a": "1", "data/gone": "x", "data/same": "s", "data.json": "j", "data2/z": "z"})
	uri := b.store(map[string]string{"a": "2", "same": "s", "new/deep": "n", "empty": ""})
	a := &attempt{}
	result, err := b.stager.Run(t.Context(), b.importTask(uri, map[string]any{"guardrails": []any{map[string]any{"require_file": "new/deep"}, map[string]any{"max_removed": map[string]any{"count": 1}}}}), a)
	if err != nil {
		t.Fatal(err)
	}
	staged := result.Staged
	if staged.Added != 2 || staged.Changed != 1 || staged.Removed != 1 || staged.Unchanged != 1 || staged.Bytes != 0 || staged.NoOp || a.checks != 2 {
		t.Errorf("%+v after %d checks", staged, a.checks)
	}
	want := map[string]string{"data/a": "2", "data/same": "s", "data/new/deep": "n", "data/empty": "", "data.json": "j", "data2/z": "z"}
	if diff := cmp.Diff(want, lakefstest.Tree(t, b.lake, b.repo, staged.Commit)); diff != "" {
		t.Errorf("the staged tree (-want +got):\n%s", diff)
	}
	commit, err := b.lake.Commit(t.Context(), b.repo, staged.Commit)
	if err != nil {
		t.Fatal(err)
	}
	if err := txn.CheckStagedCommit(txn.StepOf(staged, workflow, staged.Key), staged, commit); err != nil {
		t.Error(err)
	}
	if n := b.wire.count(http.MethodPost, "/objects") + b.wire.count(http.MethodPost, "/commits"); n != 0 {
		t.Errorf("%d uploads and commits; an import moves no data and commits by itself", n)
	}

	// The same again, from what was staged: a no-op that leaves its branch.
	b.first = staged.Commit
	again, err := b.stager.Run(t.Context(), b.importTask(uri, nil), &attempt{})
	if s := again.Staged; err != nil || !s.NoOp || s.Commit != b.first || s.StagingBranch == "" || s.Unchanged != 4 || s.Added+s.Changed+s.Removed != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestImportsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		files      map[string]string
		more       map[string]any
		uri        string
		allowed    txn.ImportList
		terminal   bool
		sentence   string
		violations []projection.Violation
		branches   int
	}{
		{name: "not allowed", files: map[string]string{"a": "2"}, allowed: txn.ImportList{"s3://other/"}, terminal: true, sentence: "PERAGO_ALLOWED_IMPORTS"},
		{name: "nothing there", sentence: "allow_empty: true", branches: 1},
		{name: "no such prefix", uri: "/missing", sentence: "no such file or directory", branches: 1},
		{name: "guardrails", files: map[string]string{"a.tmp": "2"}, more: map[string]any{"guardrails": []any{
			map[string]any{"forbid_glob": "*.tmp"}, map[string]any{"max_removed": map[string]any{"fraction": 0.5}},
		}}, sentence: "guardrails: ", branches: 1, violations: []projection.Violation{
			`forbid_glob "*.tmp": matched by "a.tmp"`, "max_removed.fraction: 2 of 2 objects would be removed, at most the part 0.5 may",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, map[string]string{"data/a": "1", "data/b": "1"})
			uri := b.store(c.files)
			if c.allowed != nil {
				b.stager.AllowedImports = c.allowed
			}
			result, err := b.stager.Run(t.Context(), b.importTask(uri+c.uri, c.more), &attempt{})
			if err == nil || errors.As(err, new(*txn.TerminalError)) != c.terminal || !strings.Contains(err.Error(), c.sentence) || result.Staged.Commit != "" {
				t.Errorf("got %v, put out %+v; want terminal %v with %q", err, result.Staged, c.terminal, c.sentence)
			}
			if diff := cmp.Diff(c.violations, result.Violations); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
			if n := b.wire.count(http.MethodPost, "/branches"); n != c.branches {
				t.Errorf("%d branches were asked for, want %d", n, c.branches)
			}
		})
	}
}

func TestImportOfNothingThatIsMeant(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data/a": "1", "other": "o"})
	result, err := b.stager.Run(t.Context(), b.importTask(b.store(nil), map[string]any{"allow_empty": true}), &attempt{})
	if err != nil || result.Staged.Removed != 1 {
		t.Fatalf("%+v, %v", result.Staged, err)
	}
	if diff := cmp.Diff(map[string]string{"other": "o"}, lakefstest.Tree(t, b.lake, b.repo, result.Staged.Commit)); diff != "" {
		t.Error(diff)
	}
}

// Whether a lost start has taken effect cannot be told, and it may still come: its
// branch is abandoned, and one more import goes onto another, under a fresh
// execution, if the attempt is still current.
func TestLostImportIsAbandoned(t *testing.T) {
	t.Parallel()
	stale := &txn.StaleAttemptError{Reason: txn.StalePollCount}
	for name, c := range map[string]struct {
		lost          int
		current       bool
		starts, names int
	}{"once": {1, true, 2, 2}, "twice": {2, true, 2, 2}, "stale by then": {1, false, 1, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, map[string]string{"data/a": "1"})
			uri := b.store(map[string]string{"a": "2"})
			lost := 0
			b.wire.answered = func(r *http.Request, response *http.Response) (*http.Response, error) {
				if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/import") && lost < c.lost {
					lost++
					_ = response.Body.Close()
					return nil, io.ErrUnexpectedEOF
				}
				return response, nil
			}
			a := &attempt{on: func(n int) error {
				if n == 2 && !c.current {
					return stale
				}
				return nil
			}}
			result, err := b.stager.Run(t.Context(), b.importTask(uri, nil), a)
			if starts, names := b.wire.count(http.MethodPost, "/import"), b.wire.count(http.MethodPost, "/branches"); starts != c.starts || names != c.names {
				t.Errorf("%d imports on %d branches, want %d on %d", starts, names, c.starts, c.names)
			}
			switch {
			case c.lost == 1 && c.current:
				name, parseErr := txn.ParseStagingName(result.Staged.StagingBranch)
				if err != nil || parseErr != nil || name.Execution != result.Staged.Execution || result.Staged.Changed != 1 {
					t.Errorf("%+v, %v, %v", result.Staged, err, parseErr)
				}
			case c.current && !errors.Is(err, txn.ErrUnknownOutcome), !c.current && !errors.Is(err, stale):
				t.Errorf("got %v", err)
			}
		})
	}
}
