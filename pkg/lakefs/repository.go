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
	return c.do(ctx, &call{operation: ping, want: http.StatusOK, decode: asJSON(func(a answer) error {
		if a.User.ID == "" {
			return fmt.Errorf("the answer names no user")
		}
		return nil
	})}, func(ctx context.Context) (*http.Response, error) { return c.api.GetCurrentUser(ctx) })
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
	return c.do(ctx, &call{operation: createRepository, want: http.StatusCreated, decode: asJSON(func(a answer) error {
		if a.ID != string(repo) {
			return fmt.Errorf("asked for repository %s, answered %q", repo, a.ID)
		}
		return nil
	})}, func(ctx context.Context) (*http.Response, error) {
		return c.api.CreateRepository(ctx, &apigen.CreateRepositoryParams{}, apigen.CreateRepositoryJSONRequestBody{
			Name: string(repo), StorageNamespace: storageNamespace, DefaultBranch: &branch,
		})
	})
}
