package lakefs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"github.com/treeverse/lakefs/pkg/api/apigen"

	"perago/pkg/txn"
)

// pageSize is the most entries that lakeFS puts on a page.
const pageSize = 1000

// listing is one page of a listing. Both parts have to be there: an answer
// without them is no empty list.
type listing[T any] struct {
	Pagination *struct {
		HasMore bool `json:"has_more"`
	} `json:"pagination"`
	Results *[]T `json:"results"`
}

func (l listing[T]) page() (results []T, more bool, err error) {
	if l.Pagination == nil || l.Results == nil {
		return nil, false, errors.New("no page of a listing")
	}
	return *l.Results, l.Pagination.HasMore, nil
}

// CreateBranch makes a hidden branch at a commit. It is exclusive: a name that
// is taken is txn.ErrExists and the branch stays as it is. Not idempotent:
// without a clear answer txn.ErrUnknownOutcome, and the branch may be there.
func (c *Client) CreateBranch(ctx context.Context, repo txn.Repository, name txn.Branch, source txn.CommitID) error {
	return c.createBranch(ctx, repo, name, source, true)
}

// CreateVisibleBranch is CreateBranch for a branch that people are to see in
// listings.
func (c *Client) CreateVisibleBranch(ctx context.Context, repo txn.Repository, name txn.Branch, source txn.CommitID) error {
	return c.createBranch(ctx, repo, name, source, false)
}

func (c *Client) createBranch(ctx context.Context, repo txn.Repository, name txn.Branch, source txn.CommitID, hidden bool) error {
	if err := checkRepository(repo); err != nil {
		return err
	}
	if err := checkBranch(name); err != nil {
		return err
	}
	if err := checkCommit(source); err != nil {
		return err
	}
	request, err := apigen.NewCreateBranchRequest(c.api, string(repo), apigen.CreateBranchJSONRequestBody{
		Name: string(name), Source: string(source), Hidden: &hidden,
	})
	return c.do(ctx, request, err, &call{operation: createBranch, want: http.StatusCreated, decode: func(body []byte) error {
		// Plain text, the one answer of this API that is not JSON.
		if at := strings.TrimSpace(string(body)); at != string(source) {
			return fmt.Errorf("asked for a branch at %s, the answer is %q", source, at)
		}
		return nil
	}})
}

// A page of more than largePage bytes is looked at before it is read: of a list of
// millions of empty objects a hundred times its size would be made. mostTokens is
// far above what pageSize entries with all their metadata are.
const (
	largePage  = 1 << 20
	mostTokens = 1000 * pageSize
)

var errCrowded = errors.New("more entries than a page has")

// asPage is asJSON for a page of a listing.
func asPage[T any](check func(listing[T]) error) func([]byte) error {
	read := asJSON(check)
	return func(body []byte) error {
		if len(body) > largePage {
			decoder := json.NewDecoder(bytes.NewReader(body))
			for count := 0; ; count++ {
				// What is wrong with it, read will say.
				if _, err := decoder.Token(); err != nil {
					break
				}
				if count == mostTokens {
					return errCrowded
				}
			}
		}
		return read(body)
	}
}

// entriesOf reads a page of a listing that is in the order of its entries' names,
// behind the name last: convert gives an entry and its name.
func entriesOf[R, T any](a listing[R], last, prefix string, convert func(R) (T, string, error)) (entries []T, latest string, more bool, err error) {
	records, more, err := a.page()
	if err != nil {
		return nil, "", false, err
	}
	entries, latest = make([]T, 0, len(records)), last
	for _, record := range records {
		entry, name, err := convert(record)
		if err != nil {
			return nil, "", false, err
		}
		if err := advances(latest, name, prefix); err != nil {
			return nil, "", false, err
		}
		latest = name
		entries = append(entries, entry)
	}
	if more && latest == last {
		return nil, "", false, fmt.Errorf("an empty page that says there are more after %q", last)
	}
	return entries, latest, more, nil
}

type ref struct {
	ID       string `json:"id"`
	CommitID string `json:"commit_id"`
}

// Head is the commit a branch points at now. Errors: txn.ErrNotFound.
func (c *Client) Head(ctx context.Context, repo txn.Repository, branch txn.Branch) (txn.CommitID, error) {
	if err := checkRepository(repo); err != nil {
		return "", err
	}
	if err := checkBranch(branch); err != nil {
		return "", err
	}
	var head txn.CommitID
	request, err := apigen.NewGetBranchRequest(c.api, string(repo), string(branch))
	err = c.do(ctx, request, err, &call{operation: getBranch, want: http.StatusOK, decode: asJSON(func(a ref) (err error) {
		if a.ID != string(branch) {
			return fmt.Errorf("asked for branch %s, answered %q", branch, a.ID)
		}
		head, err = txn.ParseCommitID(a.CommitID)
		return err
	})})
	if err != nil {
		return "", err
	}
	return head, nil
}

// Branches are all branches whose name begins with prefix ("" is every name),
// hidden ones included, in the order of their names.
func (c *Client) Branches(ctx context.Context, repo txn.Repository, prefix string) ([]txn.BranchHead, error) {
	var all []txn.BranchHead
	for page, err := range c.BranchPages(ctx, repo, prefix) {
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
	}
	return all, nil
}

// BranchPages is Branches page by page, at most 1000 on each, for whoever need
// not hold them all; an error is the last pair. A branch that is deleted
// meanwhile moves no other one out of the listing.
func (c *Client) BranchPages(ctx context.Context, repo txn.Repository, prefix string) iter.Seq2[[]txn.BranchHead, error] {
	return func(yield func([]txn.BranchHead, error) bool) {
		if err := checkRepository(repo); err != nil {
			yield(nil, err)
			return
		}
		last, showHidden, amount, begins := "", true, apigen.PaginationAmount(pageSize), apigen.PaginationPrefix(prefix)
		for more := true; more; {
			var page []txn.BranchHead
			after := apigen.PaginationAfter(last)
			request, err := apigen.NewListBranchesRequest(c.api, string(repo), &apigen.ListBranchesParams{
				Prefix: &begins, After: &after, Amount: &amount, ShowHidden: &showHidden,
			})
			err = c.do(ctx, request, err, &call{operation: listBranches, want: http.StatusOK, decode: asPage(func(a listing[ref]) error {
				heads, latest, hasMore, err := entriesOf(a, last, prefix, func(r ref) (txn.BranchHead, string, error) {
					head, err := txn.ParseCommitID(r.CommitID)
					if err != nil {
						err = fmt.Errorf("branch %q: %w", r.ID, err)
					}
					return txn.BranchHead{Name: txn.Branch(r.ID), Head: head}, r.ID, err
				})
				if err == nil {
					// Only then: a page that could not be read is asked for again.
					page, last, more = heads, latest, hasMore
				}
				return err
			})})
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(page, nil) {
				return
			}
		}
	}
}

// advances holds a listing to its order. It is also what ends every page loop:
// names that only grow run out.
func advances(before, name, prefix string) error {
	if name <= before {
		return fmt.Errorf("the listing does not advance: %q after %q (is one of them not valid UTF-8?)", name, before)
	}
	if !strings.HasPrefix(name, prefix) {
		return fmt.Errorf("the listing of %q holds %q", prefix, name)
	}
	return nil
}

// DeleteBranch removes a branch, whatever it points at. Errors: txn.ErrNotFound
// when there is none, which is also what a repeat of a delete that landed
// without an answer may say; txn.ErrForbidden for the default branch. The delete of
// a name without an execution id is sent once, and is txn.ErrUnknownOutcome without
// a clear answer.
func (c *Client) DeleteBranch(ctx context.Context, repo txn.Repository, branch txn.Branch) error {
	if err := checkRepository(repo); err != nil {
		return err
	}
	if err := checkBranch(branch); err != nil {
		return err
	}
	delete := deleteBranch
	if !txn.HoldsExecution(branch) {
		delete = deleteChosen
	}
	request, err := apigen.NewDeleteBranchRequest(c.api, string(repo), string(branch), &apigen.DeleteBranchParams{})
	return c.do(ctx, request, err, &call{operation: delete, want: http.StatusNoContent})
}
