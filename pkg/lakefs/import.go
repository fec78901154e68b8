package lakefs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/treeverse/lakefs/pkg/api/apigen"

	"perago/pkg/txn"
)

// How an import is waited for. Its commit is on the branch at once when it is done,
// but lakeFS renews the status only every second: so the branch is looked at after
// an eighth of the time that the import has taken, within importOften and
// importSeldom, and the status, which alone tells of a failure, every importRenews.
// A status that stands still for importStalls is of an import that died.
const (
	importOften  = 25 * time.Millisecond
	importSeldom = time.Second
	importRenews = time.Second
	importStalls = 2 * time.Minute
)

// Import makes the objects below a prefix of the object store the objects under
// destination, in one commit on the branch, and waits for it. No data moves: the
// objects stay where they are. It is exact: what was under destination before and
// is not imported is gone. Destination is not the root: it ends in a slash, for
// one without it would take its siblings with it.
//
// Not idempotent: without a clear answer to its start txn.ErrUnknownOutcome, and
// the commit may still come. After the start, a failure of the import itself is a
// refusal with lakeFS's word, and nothing was committed.
// Errors: txn.ErrNotFound for the branch, txn.ErrForbidden.
func (c *Client) Import(ctx context.Context, repo txn.Repository, branch txn.Branch, source txn.ImportSource, destination txn.Prefix, message string, metadata map[string]string) (txn.Commit, error) {
	if err := errors.Join(checkRepository(repo), checkBranch(branch)); err != nil {
		return txn.Commit{}, err
	}
	if destination == "" || destination[len(destination)-1] != '/' {
		return txn.Commit{}, fmt.Errorf("import into %q: not a prefix that ends in a slash: %w", destination, txn.ErrRefused)
	}
	before, err := c.Head(ctx, repo, branch)
	if err != nil {
		return txn.Commit{}, fmt.Errorf("import %s: %w", source, err)
	}
	id, err := c.startImport(ctx, repo, branch, source, destination, message, metadata)
	if err != nil {
		return txn.Commit{}, fmt.Errorf("import %s: %w", source, err)
	}
	commit, err := c.imported(ctx, repo, branch, before, metadata, id)
	if err != nil {
		return txn.Commit{}, fmt.Errorf("import %s: %w", source, err)
	}
	return commit, nil
}

// startImport gives the id of the import that was started.
func (c *Client) startImport(ctx context.Context, repo txn.Repository, branch txn.Branch, source txn.ImportSource, destination txn.Prefix, message string, metadata map[string]string) (string, error) {
	type started struct {
		ID string `json:"id"`
	}
	id := ""
	request, err := apigen.NewImportStartRequest(c.api, string(repo), string(branch), apigen.ImportStartJSONRequestBody{
		Paths:  []apigen.ImportLocation{{Path: string(source), Destination: string(destination), Type: "common_prefix"}},
		Commit: apigen.CommitCreation{Message: message, Metadata: &apigen.CommitCreation_Metadata{AdditionalProperties: metadata}},
	})
	err = c.do(ctx, request, err, &call{operation: startImport, want: http.StatusAccepted, decode: asJSON(func(a started) error {
		if id = a.ID; id == "" {
			return errors.New("an import without an id")
		}
		return nil
	})})
	return id, err
}

// imported waits for an import that has been started, until its commit stands on the
// branch or its status says what became of it.
func (c *Client) imported(ctx context.Context, repo txn.Repository, branch txn.Branch, before txn.CommitID, metadata map[string]string, id string) (txn.Commit, error) {
	began := time.Now()
	looked, renewed, renewal := began, began, ""
	for {
		if commit := c.onBranch(ctx, repo, branch, before, metadata); commit != nil {
			return *commit, nil
		}
		if time.Since(looked) >= importRenews {
			looked = time.Now()
			now, one, err := c.importStatus(ctx, repo, branch, id)
			switch {
			case err != nil:
				return txn.Commit{}, err
			case now.failure != "":
				return txn.Commit{}, one.failed(http.StatusOK, txn.ErrRefused, nil, now.failure, "", nil)
			case now.commit != nil:
				return *now.commit, nil
			}
			if now.renewal != renewal {
				renewed, renewal = time.Now(), now.renewal
			} else if time.Since(renewed) > importStalls {
				return txn.Commit{}, one.failed(http.StatusOK, txn.ErrRetryable, nil, "the import has not gone on for "+importStalls.String(), "was lakeFS restarted?", nil)
			}
		}
		if !wait(ctx, min(max(time.Since(began)/8, importOften), importSeldom)) {
			return txn.Commit{}, context.Cause(ctx)
		}
	}
}

// onBranch is the import's commit when it is the head of its branch, which nobody else
// writes; nil when it is not, or cannot be read: then the status has the word.
func (c *Client) onBranch(ctx context.Context, repo txn.Repository, branch txn.Branch, before txn.CommitID, metadata map[string]string) *txn.Commit {
	head, err := c.Head(ctx, repo, branch)
	if err != nil || head == before {
		return nil
	}
	commit, err := c.Commit(ctx, repo, head)
	if err != nil || !slices.Equal(commit.Parents, []txn.CommitID{before}) {
		return nil
	}
	for key, value := range metadata {
		if commit.Metadata[key] != value {
			return nil
		}
	}
	return &commit
}

// importState is what a status says: nothing yet, a failure or a commit.
type importState struct {
	renewal, failure string
	commit           *txn.Commit
}

func (c *Client) importStatus(ctx context.Context, repo txn.Repository, branch txn.Branch, id string) (now importState, one *call, err error) {
	type status struct {
		Completed  bool   `json:"completed"`
		UpdateTime string `json:"update_time"`
		Error      *struct {
			Message string `json:"message"`
		} `json:"error"`
		Commit *commitRecord `json:"commit"`
	}
	one = &call{operation: importStatus, want: http.StatusOK, decode: asJSON(func(s status) error {
		now = importState{renewal: s.UpdateTime}
		switch {
		case s.Error != nil:
			now.failure = cmp.Or(s.Error.Message, "no reason given")
			return nil
		case !s.Completed:
			if s.UpdateTime == "" {
				return errors.New("an import without a state")
			}
			return nil
		case s.Commit == nil:
			return errors.New("a completed import without a commit")
		}
		made, err := s.Commit.commit()
		now.commit = &made
		return err
	})}
	request, err := apigen.NewImportStatusRequest(c.api, string(repo), string(branch), &apigen.ImportStatusParams{Id: id})
	return now, one, c.do(ctx, request, err, one)
}
