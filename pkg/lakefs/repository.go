package lakefs

import (
	"context"
	"fmt"
	"net/http"

	"github.com/treeverse/lakefs/pkg/api/apigen"

	"perago/pkg/txn"
)

// Ping asks lakeFS who the key belongs to, which proves the address and the
// credentials. It is sent once: a probe asks how things are now. Errors:
// txn.ErrUnauthorized, txn.ErrRetryable.
func (c *Client) Ping(ctx context.Context) error {
	type answer struct {
		User struct {
			ID string `json:"id"`
		} `json:"user"`
	}
	request, err := apigen.NewGetCurrentUserRequest(c.api)
	return c.do(ctx, request, err, &call{operation: ping, want: http.StatusOK, decode: asJSON(func(a answer) error {
		if a.User.ID == "" {
			return fmt.Errorf("the answer names no user")
		}
		return nil
	})})
}

// Repositories are the names of all repositories that the key may see, in order.
func (c *Client) Repositories(ctx context.Context) ([]txn.Repository, error) {
	type entry struct {
		ID string `json:"id"`
	}
	var all []txn.Repository
	last, amount := "", apigen.PaginationAmount(pageSize)
	for more := true; more; {
		var page []txn.Repository
		after := apigen.PaginationAfter(last)
		request, err := apigen.NewListRepositoriesRequest(c.api, &apigen.ListRepositoriesParams{After: &after, Amount: &amount})
		err = c.do(ctx, request, err, &call{operation: listRepositories, want: http.StatusOK, decode: asPage(func(a listing[entry]) error {
			names, latest, hasMore, err := entriesOf(a, last, "", func(one entry) (txn.Repository, string, error) {
				return txn.Repository(one.ID), one.ID, nil
			})
			if err == nil {
				page, last, more = names, latest, hasMore
			}
			return err
		})})
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
	}
	return all, nil
}

// CreateRepository makes a repository whose default branch holds one empty
// commit. storageNamespace is where lakeFS keeps its data, such as
// s3://bucket/folder; lakeFS refuses one that is in use. Not idempotent:
// txn.ErrExists, txn.ErrUnknownOutcome.
func (c *Client) CreateRepository(ctx context.Context, repo txn.Repository, storageNamespace string, defaultBranch txn.Branch) error {
	if err := checkRepository(repo); err != nil {
		return err
	}
	if err := checkBranch(defaultBranch); err != nil {
		return err
	}
	branch := string(defaultBranch)
	type answer struct {
		ID string `json:"id"`
	}
	request, err := apigen.NewCreateRepositoryRequest(c.api, &apigen.CreateRepositoryParams{}, apigen.CreateRepositoryJSONRequestBody{
		Name: string(repo), StorageNamespace: storageNamespace, DefaultBranch: &branch,
	})
	return c.do(ctx, request, err, &call{operation: createRepository, want: http.StatusCreated, decode: asJSON(func(a answer) error {
		if a.ID != string(repo) {
			return fmt.Errorf("asked for repository %s, answered %q", repo, a.ID)
		}
		return nil
	})})
}
