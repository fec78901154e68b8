package lakefs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"

	"github.com/treeverse/lakefs/pkg/api/apigen"

	"perago/pkg/txn"
)

// commitRecord is a commit as lakeFS writes it.
type commitRecord struct {
	ID           string            `json:"id"`
	Parents      []string          `json:"parents"`
	MetaRangeID  *string           `json:"meta_range_id"`
	Message      string            `json:"message"`
	Metadata     map[string]string `json:"metadata"`
	CreationDate int64             `json:"creation_date"`
}

func (r commitRecord) commit() (txn.Commit, error) {
	id, err := txn.ParseCommitID(r.ID)
	if err != nil {
		return txn.Commit{}, err
	}
	if r.MetaRangeID == nil {
		return txn.Commit{}, fmt.Errorf("commit %s has no meta_range_id", id)
	}
	commit := txn.Commit{
		ID: id, MetaRange: txn.MetaRangeID(*r.MetaRangeID), Message: r.Message,
		Metadata: r.Metadata, Created: unixTime(r.CreationDate),
	}
	for _, parent := range r.Parents {
		p, err := txn.ParseCommitID(parent)
		if err != nil {
			return txn.Commit{}, fmt.Errorf("parent of %s: %w", id, err)
		}
		commit.Parents = append(commit.Parents, p)
	}
	return commit, nil
}

// Commit reads one commit by its full id. Errors: txn.ErrNotFound, also when
// lakeFS takes the id for another reference and answers another commit.
func (c *Client) Commit(ctx context.Context, repo txn.Repository, id txn.CommitID) (txn.Commit, error) {
	if err := checkRepository(repo); err != nil {
		return txn.Commit{}, err
	}
	if err := checkCommit(id); err != nil {
		return txn.Commit{}, err
	}
	var commit txn.Commit
	one := &call{operation: getCommit, want: http.StatusOK, decode: asJSON(func(r commitRecord) (err error) {
		commit, err = r.commit()
		return err
	})}
	request, err := apigen.NewGetCommitRequest(c.api, string(repo), string(id))
	if err := c.do(ctx, request, err, one); err != nil {
		return txn.Commit{}, err
	}
	if commit.ID != id {
		return txn.Commit{}, one.failed(http.StatusOK, txn.ErrRefused, txn.ErrNotFound,
			fmt.Sprintf("asked for commit %s, answered %s", id, commit.ID), "a branch or a tag has this name", nil)
	}
	return commit, nil
}

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

// History walks the first parents from a commit down to, and not including,
// stopAt: newest first, at most limit commits. reached says whether stopAt was
// met; it is false when it lies further down or is not in this history at all.
// Errors: txn.ErrNotFound for either end.
//
// lakeFS's stop_at is inclusive, and with a stop_at outside the history its log
// silently runs to the root, so the end is recognised here and not there.
func (c *Client) History(ctx context.Context, repo txn.Repository, from, stopAt txn.CommitID, limit int) (commits []txn.Commit, reached bool, err error) {
	// An id that is missing is a fault of the caller's, and not the beginning.
	if err := checkCommit(stopAt); err != nil {
		return nil, false, err
	}
	return c.firstParents(ctx, repo, from, stopAt, limit)
}

// WholeHistory walks the first parents from a commit down to the repository's
// first one: newest first, at most limit commits. whole says that the beginning is
// among them. Errors: txn.ErrNotFound.
func (c *Client) WholeHistory(ctx context.Context, repo txn.Repository, from txn.CommitID, limit int) (commits []txn.Commit, whole bool, err error) {
	return c.firstParents(ctx, repo, from, "", limit)
}

// firstParents is History, and without a stopAt WholeHistory.
func (c *Client) firstParents(ctx context.Context, repo txn.Repository, from, stopAt txn.CommitID, limit int) (commits []txn.Commit, reached bool, err error) {
	if err := errors.Join(checkRepository(repo), checkCommit(from)); err != nil {
		return nil, false, err
	}
	if from == stopAt {
		return nil, true, nil
	}
	var (
		firstParent = true
		stop        = string(stopAt)
		next        = from
		last        txn.CommitID
	)
	// One more than limit may be looked at: the one that is stopAt. Each page
	// adds at least one commit, so the loop ends.
	for more := true; more && !reached && len(commits) <= limit; {
		amount := apigen.PaginationAmount(min(pageSize, limit+1-len(commits)))
		params := &apigen.LogCommitsParams{Amount: &amount, FirstParent: &firstParent}
		if stopAt != "" {
			params.StopAt = &stop
		}
		if last != "" {
			after := apigen.PaginationAfter(last)
			params.After = &after
		}
		request, err := apigen.NewLogCommitsRequest(c.api, string(repo), string(from), params)
		err = c.do(ctx, request, err, &call{operation: logCommits, want: http.StatusOK, decode: asPage(func(a listing[commitRecord]) error {
			records, hasMore, err := a.page()
			if err != nil {
				return err
			}
			page := make([]txn.Commit, 0, len(records))
			want, met := next, false
			for _, record := range records {
				commit, err := record.commit()
				switch {
				case err != nil:
					return err
				case commit.ID != want:
					return fmt.Errorf("the log is no chain of first parents: %s where %q should stand", commit.ID, want)
				case commit.ID == stopAt:
					met = true
				}
				if met {
					break
				}
				want = ""
				if len(commit.Parents) > 0 {
					want = commit.Parents[0]
				}
				page = append(page, commit)
			}
			if len(page) == 0 && !met && (last == "" || hasMore) {
				return fmt.Errorf("an empty page of the log of %s", from)
			}
			commits, next, reached, more = append(commits, page...), want, met, hasMore
			if len(page) > 0 {
				last = page[len(page)-1].ID
			}
			return nil
		})})
		if err != nil {
			return nil, false, err
		}
	}
	if stopAt == "" {
		reached = next == "" && len(commits) <= limit
	}
	if len(commits) > limit {
		commits = commits[:limit]
	}
	return commits, reached, nil
}

// CreateCommit commits everything that is staged on the branch. Not idempotent.
// Errors: txn.ErrNoChanges when nothing is staged, txn.ErrForbidden on a
// protected branch, txn.ErrHookRefused with the hook's message,
// txn.ErrUnknownOutcome.
func (c *Client) CreateCommit(ctx context.Context, repo txn.Repository, branch txn.Branch, message string, metadata map[string]string) (txn.Commit, error) {
	return c.commit(ctx, repo, branch, &apigen.CommitParams{}, apigen.CommitJSONRequestBody{
		Message: message, Metadata: &apigen.CommitCreation_Metadata{AdditionalProperties: metadata},
	})
}

// CommitTree commits a tree whole, whatever the branch holds, also when that is
// the same tree. lakeFS does not check that the tree exists, so it must have been
// read from a commit; "" is refused. Not idempotent; errors as for CreateCommit.
func (c *Client) CommitTree(ctx context.Context, repo txn.Repository, branch txn.Branch, tree txn.MetaRangeID, message string, metadata map[string]string) (txn.Commit, error) {
	if tree == "" {
		return txn.Commit{}, errors.New("a tree without an id cannot be committed; read the id of the empty tree first")
	}
	source, yes := string(tree), true
	return c.commit(ctx, repo, branch, &apigen.CommitParams{SourceMetarange: &source}, apigen.CommitJSONRequestBody{
		Message: message, AllowEmpty: &yes, Metadata: &apigen.CommitCreation_Metadata{AdditionalProperties: metadata},
	})
}

// CommitUnchanged commits the branch's tree again as it is: the new commit has an
// id for the tree also where the branch's head, a repository's first commit, has
// none. Not idempotent; errors as for CreateCommit.
func (c *Client) CommitUnchanged(ctx context.Context, repo txn.Repository, branch txn.Branch, message string, metadata map[string]string) (txn.Commit, error) {
	yes := true
	return c.commit(ctx, repo, branch, &apigen.CommitParams{}, apigen.CommitJSONRequestBody{
		Message: message, AllowEmpty: &yes, Metadata: &apigen.CommitCreation_Metadata{AdditionalProperties: metadata},
	})
}

func (c *Client) commit(ctx context.Context, repo txn.Repository, branch txn.Branch, params *apigen.CommitParams, body apigen.CommitJSONRequestBody) (txn.Commit, error) {
	if err := errors.Join(checkRepository(repo), checkBranch(branch)); err != nil {
		return txn.Commit{}, err
	}
	var commit txn.Commit
	request, err := apigen.NewCommitRequest(c.api, string(repo), string(branch), params, body)
	err = c.do(ctx, request, err, &call{operation: createCommit, want: http.StatusCreated, decode: asJSON(func(r commitRecord) (err error) {
		commit, err = r.commit()
		return err
	})})
	if err != nil {
		return txn.Commit{}, err
	}
	return commit, nil
}

// Merge squashes one commit, given by its full id, into a branch and returns the
// new commit. A source that changes nothing makes an empty commit. Not
// idempotent: merged again, a source that landed adds an empty commit on top.
//
// Errors: txn.ErrConflict, txn.ErrHookRefused with the hook's message,
// txn.ErrDirtyBranch, txn.ErrUnauthorized, txn.ErrForbidden and txn.ErrNotFound
// are definite; after txn.ErrUnknownOutcome the merge may have landed or may
// still land.
func (c *Client) Merge(ctx context.Context, m txn.Merge) (txn.CommitID, error) {
	if err := errors.Join(checkRepository(m.Repository), checkCommit(m.Source), checkBranch(m.Destination)); err != nil {
		return "", err
	}
	yes := true
	type answer struct {
		Reference string `json:"reference"`
	}
	var merged txn.CommitID
	request, err := apigen.NewMergeIntoBranchRequest(c.api, string(m.Repository), string(m.Source), string(m.Destination),
		apigen.MergeIntoBranchJSONRequestBody{
			SquashMerge: &yes, AllowEmpty: &yes, Message: &m.Message,
			Metadata: &apigen.Merge_Metadata{AdditionalProperties: m.Metadata},
		})
	err = c.do(ctx, request, err, &call{
		operation: mergeCommit, want: http.StatusOK,
		subject: fmt.Sprintf("commit %s cannot be merged into %s", m.Source, m.Destination),
		decode: asJSON(func(a answer) (err error) {
			merged, err = txn.ParseCommitID(a.Reference)
			return err
		}),
	})
	if err != nil {
		return "", err
	}
	return merged, nil
}
