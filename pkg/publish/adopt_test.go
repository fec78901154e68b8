package publish_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/publish"
	"perago/pkg/txn"
)

// revert takes a commit back, as an operator does.
func (b *bench) revert(on subject, commit txn.CommitID) txn.CommitID {
	b.t.Helper()
	lakefstest.Revert(b.t, b.config, b.wire.next, b.repo, lakefstest.DefaultBranch, commit)
	return b.head()
}

// by makes a direct commit on the target.
func (b *bench) by(somebody string, files map[string]string, gone ...string) txn.CommitID {
	b.t.Helper()
	lakefstest.Put(b.t, b.lake, b.repo, lakefstest.DefaultBranch, files)
	if err := b.lake.DeleteObjects(b.t.Context(), b.repo, lakefstest.DefaultBranch, gone); err != nil {
		b.t.Fatal(err)
	}
	commit, err := b.lake.CreateCommit(b.t.Context(), b.repo, lakefstest.DefaultBranch, somebody, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return commit.ID
}

// later lands a publication of another step, which started from the head.
func (b *bench) later(prefix txn.Prefix, files map[string]string) txn.CommitID {
	b.t.Helper()
	head := b.head()
	name := txn.Branch(fmt.Sprintf("later-%d", len(b.wire.writes())))
	if err := b.lake.CreateBranch(b.t.Context(), b.repo, name, head); err != nil {
		b.t.Fatal(err)
	}
	lakefstest.Put(b.t, b.lake, b.repo, name, files)
	execution, err := newExecutionID()
	if err != nil {
		b.t.Fatal(err)
	}
	record := txn.Record{
		Phase: txn.PhaseTry, Key: "later:step:0", Workflow: "later", Task: "t", Execution: execution,
		InputRef: head, TargetBranch: lakefstest.DefaultBranch, Prefix: prefix, StagingBranch: name,
	}
	commit, err := b.lake.CreateCommit(b.t.Context(), b.repo, name, "try", record.Metadata(""))
	if err != nil {
		b.t.Fatal(err)
	}
	record.Phase, record.StagingCommit, record.SourceCommit, record.StagingExecution, record.ExpectedHead = txn.PhaseConfirm, commit.ID, commit.ID, execution, head
	landed, err := b.lake.Merge(b.t.Context(), txn.Merge{Repository: b.repo, Source: commit.ID, Destination: lakefstest.DefaultBranch, Message: "later", Metadata: record.Metadata("")})
	if err != nil {
		b.t.Fatal(err)
	}
	return landed
}

// A retry adopts P only where the branch holds what P put there, or where a later
// publication replaced it.
func testTakenBack(t *testing.T, on subject) {
	before := map[string]string{"data/a": "1", "data/gone": "1", "other": "1"}
	for name, c := range map[string]struct {
		above func(b *bench, p txn.CommitID) (by txn.CommitID)
		says  string // empty: it is adopted
	}{
		"reverted": {func(b *bench, p txn.CommitID) txn.CommitID { return b.revert(on, p) }, "was published as %s and taken back by %s; "},
		"reverted below another commit": {func(b *bench, p txn.CommitID) txn.CommitID {
			r := b.revert(on, p)
			b.by("elsewhere", map[string]string{"other": "2"})
			return r
		}, "was published as %s and taken back by %s; "},
		"reverted, and the revert too": {func(b *bench, p txn.CommitID) txn.CommitID { return b.revert(on, b.revert(on, p)) }, ""},
		"a file is gone":               {func(b *bench, _ txn.CommitID) txn.CommitID { return b.by("somebody", nil, "data/a") }, "was published as %s, and %.12s changed it since; "},
		"elsewhere only": {func(b *bench, _ txn.CommitID) txn.CommitID {
			return b.by("somebody", map[string]string{"data2/a": "2"})
		}, ""},
		"a later step replaced it": {func(b *bench, _ txn.CommitID) txn.CommitID {
			return b.later("data/", map[string]string{"data/a": "3"})
		}, ""},
		"a later step replaced a part": {func(b *bench, _ txn.CommitID) txn.CommitID {
			return b.later("data/part/", map[string]string{"data/part/a": "3"})
		}, ""},
		"a later step below a revert": {func(b *bench, p txn.CommitID) txn.CommitID {
			b.later("data/part/", map[string]string{"data/part/a": "3"})
			return b.revert(on, p)
		}, "was published as %s, and %.12s changed it since; "},
	} {
		t.Run(name, func(t *testing.T) {
			// What a person does to the branch, the checker calls foreign.
			b := newBench(t, on, before, lakefstest.Allow(lakefstest.RuleMetadata), lakefstest.Allow(lakefstest.RuleTree), lakefstest.Allow(lakefstest.RuleStaged))
			staged := b.stage(map[string]string{"data/a": "2", "data/b": "2"})
			p := b.published(staged, 0, txn.OutcomePublished)
			by := c.above(b, p.Commit)
			head := b.head()
			var counted []txn.Outcome
			b.publisher.Published = func(outcome txn.Outcome, _ txn.Fence) { counted = append(counted, outcome) }
			if c.says == "" {
				if adopted := b.published(staged, 1, txn.OutcomeAlreadyPublished); adopted.Commit != p.Commit || b.head() != head {
					t.Errorf("adopted %+v, want %s", adopted, p.Commit)
				}
				return
			}
			result, err := b.run(staged, 1, &attempt{})
			want := fmt.Sprintf("data/ of main "+c.says, p.Commit, by)
			if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "with ref="+string(head)) {
				t.Errorf("%v\nwant %s…", err, want)
			}
			if end := txn.ResultOf(txn.TypePublish, err); end.Status != txn.TaskFailedWithTerminalError {
				t.Errorf("it ends as %+v", end)
			}
			if result.Workspace != nil || result.Publication.Outcome != txn.OutcomeTakenBack || result.Publication.Commit != p.Commit || !slices.Equal(counted, []txn.Outcome{txn.OutcomeTakenBack}) || b.head() != head {
				t.Errorf("%+v, counted %v", result, counted)
			}
		})
	}
	// The merge's answer is lost, and what it made is taken back before it is settled.
	t.Run("while its outcome is settled", func(t *testing.T) {
		b := newBench(t, on, before, lakefstest.Allow(lakefstest.RuleMetadata), lakefstest.Allow(lakefstest.RuleTree))
		staged := b.stage(map[string]string{"data/a": "2", "data/b": "2"})
		lose := loseMerge(true)
		b.wire.fault = func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			answer, err := lose(r, next)
			if err != nil {
				b.revert(on, b.head())
			}
			return answer, err
		}
		result, err := b.run(staged, 0, &attempt{})
		if !errors.As(err, new(*txn.TakenBackError)) || result.Publication.Outcome != txn.OutcomeTakenBack {
			t.Errorf("%v, %+v", err, result.Publication)
		}
	})
	t.Run("a difference that cannot be read", func(t *testing.T) {
		b := newBench(t, on, before)
		staged := b.stage(map[string]string{"data/a": "2"})
		b.published(staged, 0, txn.OutcomePublished)
		b.by("elsewhere", map[string]string{"other": "2"})
		b.wire.fault = func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/diff/") {
				return &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
			}
			return next.RoundTrip(r)
		}
		if result, err := b.run(staged, 1, &attempt{}); err == nil || txn.ResultOf(txn.TypePublish, err).Status != txn.TaskFailed || result.Workspace != nil {
			t.Errorf("%v, %+v", err, result)
		}
	})
}

var _ publish.Differ = publish.Lake(nil)
