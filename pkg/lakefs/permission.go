package lakefs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/treeverse/lakefs/pkg/api/apigen"

	"perago/pkg/txn"
)

// nowhere is the id of a commit that does not exist.
var nowhere = strings.Repeat("0", 64)

// nobody is a branch that does not exist. It is named like a staging branch, so
// that a policy for those is asked.
const nobody = txn.BranchNamespace + "staging-asked-for-by-doctor"

// Permitted asks whether the key may do something, and does not do it: lakeFS
// looks at the permission of a request before it looks whether its commit or its
// branch is there, so the request names some that are not. nil is yes. Errors:
// txn.ErrForbidden when it may not; any other when that could not be found out.
//
// Instead of the branch of the permission the request names one that does not
// exist, unless the branch is only a merge's destination: a policy for
// perago-staging-* covers it.
func (c *Client) Permitted(ctx context.Context, p txn.Permission) error {
	repo, branch, ref := string(p.Repository), string(p.Branch), nowhere
	if p.Repository != "" {
		if err := checkRepository(p.Repository); err != nil {
			return err
		}
	}
	if branch == "" || strings.HasPrefix(branch, txn.BranchNamespace) {
		branch = nobody
	}
	if err := checkBranch(txn.Branch(branch)); err != nil {
		return err
	}
	hidden, one, path := true, apigen.PaginationAmount(1), p.Path
	send := map[string]func(context.Context) (*http.Response, error){
		"fs:ReadCommit": func(ctx context.Context) (*http.Response, error) { return c.api.GetCommit(ctx, repo, ref) },
		"fs:ReadBranch": func(ctx context.Context) (*http.Response, error) { return c.api.GetBranch(ctx, repo, branch) },
		"fs:DeleteBranch": func(ctx context.Context) (*http.Response, error) {
			return c.api.DeleteBranch(ctx, repo, nobody, &apigen.DeleteBranchParams{})
		},
		"fs:ListRepositories": func(ctx context.Context) (*http.Response, error) {
			return c.api.ListRepositories(ctx, &apigen.ListRepositoriesParams{Amount: &one})
		},
		"fs:ListBranches": func(ctx context.Context) (*http.Response, error) {
			return c.api.ListBranches(ctx, repo, &apigen.ListBranchesParams{Amount: &one})
		},
		"fs:ListObjects": func(ctx context.Context) (*http.Response, error) {
			return c.api.ListObjects(ctx, repo, ref, &apigen.ListObjectsParams{Amount: &one})
		},
		"fs:ReadObject": func(ctx context.Context) (*http.Response, error) {
			return c.api.GetObject(ctx, repo, ref, &apigen.GetObjectParams{Path: path})
		},
		"ci:ReadAction": func(ctx context.Context) (*http.Response, error) {
			return c.api.ListRepositoryRuns(ctx, repo, &apigen.ListRepositoryRunsParams{Commit: &ref, Amount: &one})
		},
		"fs:CreateBranch": func(ctx context.Context) (*http.Response, error) {
			return c.api.CreateBranch(ctx, repo, apigen.CreateBranchJSONRequestBody{Name: nobody, Source: nowhere, Hidden: &hidden})
		},
		"fs:WriteObject": func(ctx context.Context) (*http.Response, error) {
			return c.api.UploadObjectWithBody(ctx, repo, nobody, &apigen.UploadObjectParams{Path: path}, "application/octet-stream", strings.NewReader("x"))
		},
		"fs:DeleteObject": func(ctx context.Context) (*http.Response, error) {
			return c.api.DeleteObjects(ctx, repo, nobody, &apigen.DeleteObjectsParams{}, apigen.DeleteObjectsJSONRequestBody{Paths: []string{path}})
		},
		"fs:CreateCommit": func(ctx context.Context) (*http.Response, error) {
			if branch == nobody {
				return c.api.Commit(ctx, repo, nobody, &apigen.CommitParams{}, apigen.CommitJSONRequestBody{Message: "asked for by doctor"})
			}
			return c.api.MergeIntoBranch(ctx, repo, nowhere, branch, apigen.MergeIntoBranchJSONRequestBody{})
		},
		"fs:ImportFromStorage": func(ctx context.Context) (*http.Response, error) {
			return c.api.ImportStart(ctx, repo, nobody, apigen.ImportStartJSONRequestBody{
				Commit: apigen.CommitCreation{Message: "asked for by doctor"},
				Paths:  []apigen.ImportLocation{{Type: "common_prefix", Path: p.Storage, Destination: path}},
			})
		},
	}[p.Action]
	if send == nil {
		return fmt.Errorf("nothing asks lakeFS for %s", p.Action)
	}
	err := c.do(ctx, &call{operation: askPermission, want: http.StatusOK}, send)
	var answer *txn.ServerError
	switch {
	case !errors.As(err, &answer):
		return err
	case errors.Is(err, txn.ErrUnauthorized), errors.Is(err, txn.ErrForbidden):
		return err
	case errors.Is(err, txn.ErrRefused):
		// Refused for what it asked, so it may ask.
		return nil
	}
	return err
}
