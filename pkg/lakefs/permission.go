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
	var request *http.Request
	var err error
	switch p.Action {
	case "fs:ReadCommit":
		request, err = apigen.NewGetCommitRequest(c.api, repo, ref)
	case "fs:ReadBranch":
		request, err = apigen.NewGetBranchRequest(c.api, repo, branch)
	case "fs:DeleteBranch":
		request, err = apigen.NewDeleteBranchRequest(c.api, repo, nobody, &apigen.DeleteBranchParams{})
	case "fs:ListRepositories":
		request, err = apigen.NewListRepositoriesRequest(c.api, &apigen.ListRepositoriesParams{Amount: &one})
	case "fs:ListBranches":
		request, err = apigen.NewListBranchesRequest(c.api, repo, &apigen.ListBranchesParams{Amount: &one})
	case "fs:ListObjects":
		request, err = apigen.NewListObjectsRequest(c.api, repo, ref, &apigen.ListObjectsParams{Amount: &one})
	case "fs:ReadObject":
		request, err = apigen.NewGetObjectRequest(c.api, repo, ref, &apigen.GetObjectParams{Path: path})
	case "ci:ReadAction":
		request, err = apigen.NewListRepositoryRunsRequest(c.api, repo, &apigen.ListRepositoryRunsParams{Commit: &ref, Amount: &one})
	case "fs:CreateBranch":
		request, err = apigen.NewCreateBranchRequest(c.api, repo,
			apigen.CreateBranchJSONRequestBody{Name: nobody, Source: nowhere, Hidden: &hidden})
	case "fs:WriteObject":
		request, err = apigen.NewUploadObjectRequestWithBody(c.api, repo, nobody,
			&apigen.UploadObjectParams{Path: path}, octets, strings.NewReader("x"))
	case "fs:DeleteObject":
		request, err = apigen.NewDeleteObjectsRequest(c.api, repo, nobody,
			&apigen.DeleteObjectsParams{}, apigen.DeleteObjectsJSONRequestBody{Paths: []string{path}})
	case "fs:CreateCommit":
		if branch == nobody {
			request, err = apigen.NewCommitRequest(c.api, repo, nobody,
				&apigen.CommitParams{}, apigen.CommitJSONRequestBody{Message: "asked for by doctor"})
		} else {
			request, err = apigen.NewMergeIntoBranchRequest(c.api, repo, nowhere, branch, apigen.MergeIntoBranchJSONRequestBody{})
		}
	case "fs:ImportFromStorage":
		request, err = apigen.NewImportStartRequest(c.api, repo, nobody, apigen.ImportStartJSONRequestBody{
			Commit: apigen.CommitCreation{Message: "asked for by doctor"},
			Paths:  []apigen.ImportLocation{{Type: "common_prefix", Path: p.Storage, Destination: path}},
		})
	default:
		return fmt.Errorf("nothing asks lakeFS for %s", p.Action)
	}
	err = c.do(ctx, request, err, &call{operation: askPermission, want: http.StatusOK})
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
