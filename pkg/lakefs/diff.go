package lakefs

import (
	"context"
	"errors"
	"net/http"

	"github.com/treeverse/lakefs/pkg/api/apigen"

	"perago/pkg/txn"
)

// Differ reports whether two commits hold different objects in the projection of
// a prefix. lakeFS compares contents: the same bytes at another address are no
// difference. Errors: txn.ErrNotFound for either commit.
//
// One entry answers the question, except for the root prefix: there the hooks may
// come first, and they are in no projection.
func (c *Client) Differ(ctx context.Context, repo txn.Repository, left, right txn.CommitID, prefix txn.Prefix) (bool, error) {
	if err := errors.Join(checkRepository(repo), checkCommit(left), checkCommit(right)); err != nil {
		return false, err
	}
	type change struct {
		Path string `json:"path"`
	}
	amount := apigen.PaginationAmount(1)
	if prefix == "" {
		amount = pageSize
	}
	begins, twoDot := apigen.PaginationPrefix(prefix), "two_dot"
	last := ""
	for {
		var paths []string
		var more bool
		params := &apigen.DiffRefsParams{Amount: &amount, Prefix: &begins, Type: &twoDot}
		if last != "" {
			after := apigen.PaginationAfter(last)
			params.After = &after
		}
		request, err := apigen.NewDiffRefsRequest(c.api, string(repo), string(left), string(right), params)
		err = c.do(ctx, request, err, &call{operation: diffCommits, want: http.StatusOK, decode: asPage(func(a listing[change]) error {
			all, _, hasMore, err := entriesOf(a, last, string(prefix), func(one change) (string, string, error) {
				return one.Path, one.Path, nil
			})
			paths, more = all, hasMore
			return err
		})})
		if err != nil {
			return false, err
		}
		for _, path := range paths {
			if prefix.Contains(path) {
				return true, nil
			}
			last = path
		}
		if !more {
			return false, nil
		}
	}
}
