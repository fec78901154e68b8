package lakefs

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/treeverse/lakefs/pkg/api/apigen"

	"perago/pkg/txn"
)

// actionRun is one run of a repository's actions for one event, as lakeFS writes
// it.
type actionRun struct {
	ID     string `json:"run_id"`
	Event  string `json:"event_type"`
	Commit string `json:"commit_id"`
}

// hookRun is one hook of such a run.
type hookRun struct {
	ID     string `json:"hook_run_id"`
	Action string `json:"action"`
	Hook   string `json:"hook_id"`
	Status string `json:"status"`
}

// HookRuns is every hook run that lakeFS recorded for a commit, of all its events
// and over all pages; none is no error. A merge's pre-merge run is recorded before
// the merge answers, and a merge that a hook refused has its run under the commit
// it would have made. Errors: txn.ErrNotFound for the repository, not for the
// commit; txn.ErrForbidden when the key may not read actions.
func (c *Client) HookRuns(ctx context.Context, repo txn.Repository, commit txn.CommitID) ([]txn.HookRun, error) {
	if err := errors.Join(checkRepository(repo), checkCommit(commit)); err != nil {
		return nil, err
	}
	runs, err := c.actionRuns(ctx, repo, commit)
	if err != nil {
		return nil, err
	}
	var all []txn.HookRun
	for _, run := range runs {
		hooks, err := c.hooksOf(ctx, repo, run.ID)
		if err != nil {
			return nil, err
		}
		for _, hook := range hooks {
			all = append(all, txn.HookRun{Event: run.Event, Action: hook.Action, Hook: hook.Hook, Status: hook.Status})
		}
	}
	return all, nil
}

func (c *Client) actionRuns(ctx context.Context, repo txn.Repository, commit txn.CommitID) ([]actionRun, error) {
	of := string(commit)
	return pages(ctx, c, listRuns, func(r actionRun) (string, error) {
		switch {
		case r.ID == "", r.Event == "":
			return "", fmt.Errorf("an action run without an id or an event: %+v", r)
		case r.Commit != of:
			return "", fmt.Errorf("asked for the action runs of commit %s, answered one of %q", of, r.Commit)
		}
		return r.ID, nil
	}, func(after apigen.PaginationAfter, amount apigen.PaginationAmount) (*http.Request, error) {
		return apigen.NewListRepositoryRunsRequest(c.api, string(repo), &apigen.ListRepositoryRunsParams{Commit: &of, After: &after, Amount: &amount})
	})
}

func (c *Client) hooksOf(ctx context.Context, repo txn.Repository, run string) ([]hookRun, error) {
	return pages(ctx, c, listHookRuns, func(r hookRun) (string, error) {
		if r.ID == "" || r.Action == "" || r.Hook == "" || r.Status == "" {
			return "", fmt.Errorf("a hook run without an id, an action, a hook or a status: %+v", r)
		}
		return r.ID, nil
	}, func(after apigen.PaginationAfter, amount apigen.PaginationAmount) (*http.Request, error) {
		return apigen.NewListRunHooksRequest(c.api, string(repo), run, &apigen.ListRunHooksParams{After: &after, Amount: &amount})
	})
}

// pages reads a listing to its end. name is an entry's place in the listing's
// order, which only grows, and an error when the entry is not whole.
func pages[T any](ctx context.Context, c *Client, op operation, name func(T) (string, error),
	build func(apigen.PaginationAfter, apigen.PaginationAmount) (*http.Request, error)) ([]T, error) {
	var all []T
	last := ""
	for more := true; more; {
		request, err := build(apigen.PaginationAfter(last), pageSize)
		err = c.do(ctx, request, err, &call{operation: op, want: http.StatusOK, decode: asPage(func(a listing[T]) error {
			page, hasMore, err := a.page()
			if err != nil {
				return err
			}
			latest := last
			for _, entry := range page {
				at, err := name(entry)
				if err != nil {
					return err
				}
				if err := advances(latest, at, ""); err != nil {
					return err
				}
				latest = at
			}
			if hasMore && latest == last {
				return fmt.Errorf("an empty page that says there are more after %q", last)
			}
			all, last, more = append(all, page...), latest, hasMore
			return nil
		})})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
