package publish_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

func inMemory(*testing.T) (lakefs.Config, http.RoundTripper) {
	server := lakefstest.NewServer()
	return server.Config(), server.Transport()
}

// answered is a server's answer with one field changed.
func answered(t *testing.T, response *http.Response, field string, value any) *http.Response {
	t.Helper()
	var fields map[string]any
	if err := json.NewDecoder(response.Body).Decode(&fields); err != nil {
		t.Error(err)
	}
	fields[field] = value
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Error(err)
	}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	return response
}

// A merge is answered with a commit that is all that it should be, and that stands
// beside the branch: nothing was published.
func TestACommitThatTheBranchDoesNotHold(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]map[string]string{"on the soft fence": {"data/a": "1"}, "on the hard fence": fenced(map[string]string{"data/a": "1"})} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, inMemory, files)
			staged := b.stage(map[string]string{"data/a": "2"})
			b.wire.fault = func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				if !strings.HasSuffix(r.URL.Path, "/merge/main") {
					return next.RoundTrip(r)
				}
				var merge struct{ Metadata map[string]string }
				if err := json.NewDecoder(r.Body).Decode(&merge); err != nil {
					return nil, err
				}
				if err := b.lake.CreateBranch(t.Context(), b.repo, "beside", b.first); err != nil {
					return nil, err
				}
				source, err := b.lake.Commit(t.Context(), b.repo, staged.Commit)
				if err != nil {
					return nil, err
				}
				commit, err := b.lake.CommitTree(t.Context(), b.repo, "beside", source.MetaRange, "beside", merge.Metadata)
				if err != nil {
					return nil, err
				}
				body := `{"reference":"` + string(commit.ID) + `"}`
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
			}
			result, err := b.run(staged, 0, &attempt{})
			if !errors.As(err, new(*txn.InDoubtError)) || result.Workspace != nil || result.Publication.Outcome != txn.OutcomeInDoubt {
				t.Errorf("%v, put out %+v", err, result)
			}
			if b.head() != b.first {
				t.Error("the branch moved")
			}
			b.wire.fault = nil
			b.published(staged, 1, txn.OutcomePublished)
		})
	}
}

// The commit on a source branch is answered with the id of somebody else's: that one
// is not merged.
func TestASourceIsMergedByTheIDItIsReadBy(t *testing.T) {
	t.Parallel()
	b := newBench(t, inMemory, map[string]string{"data/a": "1"})
	if err := b.lake.CreateBranch(t.Context(), b.repo, "theirs", b.first); err != nil {
		t.Fatal(err)
	}
	lakefstest.Put(t, b.lake, b.repo, "theirs", map[string]string{"theirs": "1"})
	theirs, err := b.lake.CreateCommit(t.Context(), b.repo, "theirs", "theirs", nil)
	if err != nil {
		t.Fatal(err)
	}
	first := b.published(b.stage(map[string]string{"data/a": "2"}), 0, txn.OutcomePublished)
	staged := b.stage(map[string]string{"data/a": "3"})
	before := len(b.wire.writes())
	b.wire.fault = func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err == nil && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/commits") {
			return answered(t, response, "id", theirs.ID), nil
		}
		return response, err
	}
	if _, err := b.run(staged, 1, &attempt{}); err == nil {
		t.Error("it is published")
	}
	if writes := b.wire.writes()[before:]; slices.ContainsFunc(writes, func(s string) bool { return strings.Contains(s, "/merge/") }) || b.head() != first.Commit {
		t.Errorf("sent %q, and the branch is at %s", writes, b.head())
	}
	b.wire.fault = nil
	b.published(staged, 2, txn.OutcomePublished)
}
