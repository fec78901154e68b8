package lakefs

import (
	"context"
	"fmt"
	"net/http"
	"regexp"

	"github.com/treeverse/lakefs/pkg/api/apigen"

	"perago/pkg/txn"
)

// reference is what lakeFS's references are made of, as far as people write them.
var reference = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.~^@-]*$`)

// Resolve finds the commit that a reference means now: a branch's head, a tag, a
// commit by its id or the beginning of it, with ~n behind it for its ancestors. It
// is for people's commands; an input of a workflow is a commit id. Errors:
// txn.ErrNotFound.
func (c *Client) Resolve(ctx context.Context, repo txn.Repository, ref string) (txn.CommitID, error) {
	if err := checkRepository(repo); err != nil {
		return "", err
	}
	if !reference.MatchString(ref) {
		return "", fmt.Errorf("%q is not a reference of lakeFS (a branch, a tag or a commit id): %w", ref, txn.ErrRefused)
	}
	var commit txn.Commit
	request, err := apigen.NewGetCommitRequest(c.api, string(repo), ref)
	err = c.do(ctx, request, err, &call{operation: getCommit, want: http.StatusOK, decode: asJSON(func(r commitRecord) (err error) {
		commit, err = r.commit()
		return err
	})})
	return commit.ID, err
}
