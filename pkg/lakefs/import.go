package lakefs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/treeverse/lakefs/pkg/api/apigen"

	"perago/pkg/txn"
)

// The pauses between the reads of an import's status: the first, and the last,
// which it doubles up to. lakeFS renews the status every second while it works,
// so one that stands still for importStalls is of an import that died.
const (
	importFirst  = 100 * time.Millisecond
	importLast   = time.Second
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
	id, err := c.startImport(ctx, repo, branch, source, destination, message, metadata)
	if err != nil {
		return txn.Commit{}, fmt.Errorf("import %s: %w", source, err)
	}
	commit, err := c.imported(ctx, repo, branch, id)
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
	err := c.do(ctx, &call{operation: startImport, want: http.StatusAccepted, decode: asJSON(func(a started) error {
		if id = a.ID; id == "" {
			return errors.New("an import without an id")
		}
		return nil
	})}, func(ctx context.Context) (*http.Response, error) {
		return c.api.ImportStart(ctx, string(repo), string(branch), apigen.ImportStartJSONRequestBody{
			Paths:  []apigen.ImportLocation{{Path: string(source), Destination: string(destination), Type: "common_prefix"}},
			Commit: apigen.CommitCreation{Message: message, Metadata: &apigen.CommitCreation_Metadata{AdditionalProperties: metadata}},
		})
	})
	return id, err
}

// imported waits for an import that has been started.
func (c *Client) imported(ctx context.Context, repo txn.Repository, branch txn.Branch, id string) (txn.Commit, error) {
	type status struct {
		Completed  bool   `json:"completed"`
		UpdateTime string `json:"update_time"`
		Error      *struct {
			Message string `json:"message"`
		} `json:"error"`
		Commit *commitRecord `json:"commit"`
	}
	renewed, renewal := time.Now(), ""
	for pause := importFirst; ; pause = min(2*pause, importLast) {
		var commit *txn.Commit
		one := &call{operation: importStatus, want: http.StatusOK}
		var now status
		one.decode = asJSON(func(s status) error {
			now = s
			switch {
			case s.Error != nil:
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
			commit = &made
			return err
		})
		err := c.do(ctx, one, func(ctx context.Context) (*http.Response, error) {
			return c.api.ImportStatus(ctx, string(repo), string(branch), &apigen.ImportStatusParams{Id: id})
		})
		switch {
		case err != nil:
			return txn.Commit{}, err
		case now.Error != nil:
			return txn.Commit{}, one.failed(http.StatusOK, txn.ErrRefused, nil, now.Error.Message, "", nil)
		case commit != nil:
			return *commit, nil
		}
		if now.UpdateTime != renewal {
			renewed, renewal = time.Now(), now.UpdateTime
		} else if time.Since(renewed) > importStalls {
			return txn.Commit{}, one.failed(http.StatusOK, txn.ErrRetryable, nil, "the import has not gone on for "+importStalls.String(), "was lakeFS restarted?", nil)
		}
		if !wait(ctx, pause) {
			return txn.Commit{}, context.Cause(ctx)
		}
	}
}
