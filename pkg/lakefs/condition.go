package lakefs

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/treeverse/lakefs/pkg/api/apigen"

	"perago/pkg/txn"
)

// ReadOnly reports whether lakeFS takes no changes of a repository. Errors:
// txn.ErrNotFound.
func (c *Client) ReadOnly(ctx context.Context, repo txn.Repository) (bool, error) {
	if err := checkRepository(repo); err != nil {
		return false, err
	}
	type answer struct {
		ID       string `json:"id"`
		ReadOnly bool   `json:"read_only"`
	}
	readOnly := false
	request, err := apigen.NewGetRepositoryRequest(c.api, string(repo))
	err = c.do(ctx, request, err, &call{operation: getRepository, want: http.StatusOK, decode: asJSON(func(a answer) error {
		if a.ID != string(repo) {
			return errors.New("not the repository that was asked for")
		}
		readOnly = a.ReadOnly
		return nil
	})})
	return readOnly, err
}

// Uncommitted is the path of one uncommitted change of a branch; "" is none.
func (c *Client) Uncommitted(ctx context.Context, repo txn.Repository, branch txn.Branch) (string, error) {
	if err := errors.Join(checkRepository(repo), checkBranch(branch)); err != nil {
		return "", err
	}
	type change struct {
		Path string `json:"path"`
	}
	path, one := "", apigen.PaginationAmount(1)
	request, err := apigen.NewDiffBranchRequest(c.api, string(repo), string(branch), &apigen.DiffBranchParams{Amount: &one})
	err = c.do(ctx, request, err, &call{operation: diffBranch, want: http.StatusOK, decode: asPage(func(a listing[change]) error {
		changes, _, err := a.page()
		if err == nil && len(changes) > 0 {
			if path = changes[0].Path; path == "" {
				err = errors.New("a change without a path")
			}
		}
		return err
	})})
	return path, err
}

// Protecting is the patterns of a repository's branch protection rules that match
// a branch, of those whose pattern is of letters, * and ?; others is how many
// have a richer one, of which nothing is said.
func (c *Client) Protecting(ctx context.Context, repo txn.Repository, branch txn.Branch) (matching []string, others int, err error) {
	if err := errors.Join(checkRepository(repo), checkBranch(branch)); err != nil {
		return nil, 0, err
	}
	patterns, _, err := c.protection(ctx, repo)
	for _, pattern := range patterns {
		switch {
		case rich(pattern):
			others++
		case covered([]string{pattern}, branch):
			matching = append(matching, pattern)
		}
	}
	return matching, others, err
}

// Retention is how long garbage collection leaves a commit that is on a branch,
// behind its head, and one that is on no branch any more. Zero is for ever: the
// repository has no rules, or there is none for that. Errors: txn.ErrNotFound for
// the repository.
func (c *Client) Retention(ctx context.Context, repo txn.Repository, branch txn.Branch) (onBranch, deleted time.Duration, err error) {
	if err := errors.Join(checkRepository(repo), checkBranch(branch)); err != nil {
		return 0, 0, err
	}
	onBranch, deleted, err = c.retention(ctx, repo, branch)
	if errors.Is(err, txn.ErrNotFound) {
		// No rules, or no repository: the same answer.
		_, err = c.ReadOnly(ctx, repo)
		return 0, 0, err
	}
	return onBranch, deleted, err
}

func (c *Client) retention(ctx context.Context, repo txn.Repository, branch txn.Branch) (onBranch, deleted time.Duration, err error) {
	type answer struct {
		Default  *int `json:"default_retention_days"`
		Branches []struct {
			Branch string `json:"branch_id"`
			Days   int    `json:"retention_days"`
		} `json:"branches"`
	}
	const day = 24 * time.Hour
	request, err := apigen.NewGetGCRulesRequest(c.api, string(repo))
	err = c.do(ctx, request, err, &call{operation: getRetention, want: http.StatusOK, decode: asJSON(func(a answer) error {
		if a.Default == nil {
			return errors.New("retention rules without a default")
		}
		deleted = time.Duration(*a.Default) * day
		onBranch = deleted
		for _, rule := range a.Branches {
			if rule.Branch == string(branch) {
				onBranch = time.Duration(rule.Days) * day
			}
		}
		return nil
	})})
	return onBranch, deleted, err
}
