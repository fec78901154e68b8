package stage_test

import (
	"errors"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/projection"
	"perago/pkg/stage"
	"perago/pkg/txn"
)

// byHand is a stager of a directory of its own, and what to stage by default.
func byHand(t *testing.T, held, files map[string]string) (*bench, stage.Hand) {
	t.Helper()
	b := newBench(t, held)
	directory := b.write(files)
	root, err := os.OpenRoot(directory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	b.stager.Root = root
	return b, stage.Hand{
		Workspace: txn.Workspace{Repository: b.repo, Branch: "main"}.At(b.first), Prefix: "data/", Directory: "./here", Branch: "mine",
	}
}

func TestByHand(t *testing.T) {
	t.Parallel()
	b, hand := byHand(t, map[string]string{"data/a": "1", "data/gone": "x", "data/same": "s", "other": "o"}, map[string]string{"a": "2", "same": "s", "new": "n"})
	hand.Metadata = map[string]string{"who": "a test"}
	result, err := b.stager.ByHand(t.Context(), hand, &attempt{})
	if err != nil {
		t.Fatal(err)
	}
	s := result.Staged
	if s.StagingBranch != "mine" || s.Added != 1 || s.Changed != 1 || s.Removed != 1 || s.Unchanged != 1 || s.Bytes != 2 || s.NoOp {
		t.Errorf("%+v", s)
	}
	if diff := cmp.Diff(map[string]string{"data/a": "2", "data/same": "s", "data/new": "n", "other": "o"}, lakefstest.Tree(t, b.lake, b.repo, s.Commit)); diff != "" {
		t.Errorf("the staged tree (-want +got):\n%s", diff)
	}
	commit, err := b.lake.Commit(t.Context(), b.repo, s.Commit)
	if err != nil {
		t.Fatal(err)
	}
	// It is nobody's publication and claims to be none.
	if txn.IsRecord(commit.Metadata) {
		t.Errorf("the metadata claims to be a record of the protocol's: %v", commit.Metadata)
	}
	if commit.Metadata["who"] != "a test" || commit.Metadata["perago.input_ref"] != string(b.first) || commit.Message != "Stage data/ for main by hand" {
		t.Errorf("%q %v", commit.Message, commit.Metadata)
	}
	if head, err := b.lake.Head(t.Context(), b.repo, "main"); err != nil || head != b.first {
		t.Errorf("main is at %s, %v; a stage must not touch it", head, err)
	}
	// What was staged is there now: nothing is left to do, and no branch is made.
	hand.Workspace.Ref, hand.Branch = s.Commit, ""
	if again, err := b.stager.ByHand(t.Context(), hand, &attempt{}); err != nil || !again.Staged.NoOp || again.Staged.StagingBranch != "" || again.Staged.Commit != s.Commit {
		t.Errorf("again: %+v, %v", again.Staged, err)
	}
}

// A name that nobody gave is nobody's, and no workflow's either.
func TestByHandNamesItsBranch(t *testing.T) {
	t.Parallel()
	b, hand := byHand(t, nil, map[string]string{"a": "2"})
	hand.Branch = ""
	result, err := b.stager.ByHand(t.Context(), hand, &attempt{})
	name := string(result.Staged.StagingBranch)
	if err != nil || !strings.HasPrefix(name, txn.HandBranches) || len(name) != len(txn.HandBranches)+32 || strings.HasPrefix(name, txn.BranchNamespace) {
		t.Errorf("%q, %v", name, err)
	}
}

func TestByHandDryRun(t *testing.T) {
	t.Parallel()
	b, hand := byHand(t, map[string]string{"data/a": "1", "data/gone": "x"}, map[string]string{"a": "2", "new": "n"})
	hand.DryRun = true
	result, err := b.stager.ByHand(t.Context(), hand, &attempt{})
	if err != nil {
		t.Fatal(err)
	}
	plan := result.Plan
	defer result.Close()
	added, changed, removed := firsts(plan.AddedFiles()), firsts(plan.ChangedFiles()), firsts(plan.RemovedKeys())
	if plan.Added != 1 || added[0].Path != "new" || plan.Changed != 1 || changed[0].Path != "a" || !cmp.Equal(removed, []string{"data/gone"}) || result.Staged.NoOp {
		t.Errorf("%+v", result)
	}
	if n := b.wire.writes(); n != 0 {
		t.Errorf("%d writes, want none", n)
	}
}

// Where a guardrail does not hold nothing is written, and what there was to do is
// known all the same.
func TestByHandGuardrails(t *testing.T) {
	t.Parallel()
	b, hand := byHand(t, map[string]string{"data/a": "1", "data/gone": "x"}, map[string]string{"a": "2"})
	none := 0
	hand.Guardrails = []txn.Guardrail{{RequireFile: "b"}, {MaxRemoved: &txn.MaxRemoved{Count: &none}}}
	result, err := b.stager.ByHand(t.Context(), hand, &attempt{})
	var violated *projection.GuardrailError
	if !errors.As(err, &violated) || len(violated.Violations) != 2 || len(result.Violations) != 2 || result.Plan.Removed != 1 {
		t.Errorf("%+v, %v", result, err)
	}
	// Also where none of them is about what is removed.
	hand.Guardrails = hand.Guardrails[:1]
	result, err = b.stager.ByHand(t.Context(), hand, &attempt{})
	if !errors.As(err, &violated) || len(result.Violations) != 1 || result.Plan.Removed != 1 {
		t.Errorf("%+v, %v", result, err)
	}
	if n := b.wire.writes(); n != 0 {
		t.Errorf("%d writes, want none", n)
	}
}

// What failed names the branch that it made, so that it can be removed.
func TestByHandFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files   map[string]string
		prepare func(b *bench, hand *stage.Hand)
		branch  txn.Branch
		want    string
	}{
		"an empty directory": {files: nil, want: "./here holds no files"},
		"a link": {files: map[string]string{"a": "1"}, prepare: func(b *bench, _ *stage.Hand) {
			if err := os.Symlink("a", filepath.Join(b.root, string(workflow), "task", "link")); err != nil {
				b.t.Fatal(err)
			}
		}, want: `"link" is a symbolic link`},
		"a name that is taken": {files: map[string]string{"a": "1"}, prepare: func(b *bench, _ *stage.Hand) {
			if err := b.lake.CreateBranch(b.t.Context(), b.repo, "mine", b.first); err != nil {
				b.t.Fatal(err)
			}
		}, want: "create branch mine: "},
		"no answer to the branch's creation": {files: map[string]string{"a": "1"}, prepare: func(b *bench, _ *stage.Hand) {
			next := b.wire.next
			b.wire.next = roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/branches") {
					return nil, errors.New("connection reset by peer")
				}
				return next.RoundTrip(r)
			})
		}, want: "create branch mine: it is not known whether lakeFS made it, so nothing was uploaded; choose another name"},
		"an upload that is refused": {files: map[string]string{"a": "1"}, prepare: func(b *bench, _ *stage.Hand) {
			next := b.wire.next
			b.wire.next = roundTripper(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "/branches/mine/objects") {
					return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
				}
				return next.RoundTrip(r)
			})
		}, branch: "mine", want: "upload data/a: "},
		"a commit that is not there": {files: map[string]string{"a": "1"}, prepare: func(_ *bench, hand *stage.Hand) {
			hand.Workspace.Ref = txn.CommitID(strings.Repeat("0", 64))
		}, want: "holds no commit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, hand := byHand(t, nil, c.files)
			if c.prepare != nil {
				c.prepare(b, &hand)
			}
			result, err := b.stager.ByHand(t.Context(), hand, &attempt{})
			if err == nil || !strings.Contains(err.Error(), c.want) || result.Staged.StagingBranch != c.branch {
				t.Errorf("%v with the branch %q, want %q with %q", err, result.Staged.StagingBranch, c.want, c.branch)
			}
		})
	}
}

func firsts[T any](all iter.Seq2[T, error]) []T {
	var got []T
	for one := range all {
		got = append(got, one)
	}
	return got
}
