package lakefs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/treeverse/lakefs/pkg/api/apigen"

	"perago/pkg/txn"
)

// protectionTries bounds how often Protect begins again because somebody else
// changed the rules between its reading and its writing.
const protectionTries = 4

// Protect adds a branch protection rule for the branch, unless one covers it.
// The rules that are there stay. added says whether it had to be added. lakeFS
// follows a change within some seconds. Errors: txn.ErrNotFound for the
// repository, txn.ErrForbidden, txn.ErrConflict when the rules never stood still,
// txn.ErrUnknownOutcome when the rule may have been added.
func (c *Client) Protect(ctx context.Context, repo txn.Repository, branch txn.Branch) (added bool, err error) {
	if err := errors.Join(checkRepository(repo), checkBranch(branch)); err != nil {
		return false, err
	}
	for range protectionTries {
		patterns, version, readErr := c.protection(ctx, repo)
		switch {
		case readErr != nil && err != nil:
			return false, err
		case readErr != nil:
			return false, readErr
		case covered(patterns, branch):
			return added, nil
		}
		err = c.setProtection(ctx, repo, append(patterns, string(branch)), version)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, txn.ErrUnknownOutcome):
			// Read again: it may have landed, and adding it twice is adding it once.
			added = true
		case !errors.Is(err, txn.ErrConflict):
			return false, err
		}
	}
	return false, err
}

// covered reports whether a rule matches the branch. Of lakeFS's patterns it
// understands * and ?; a branch that only a richer pattern covers gets a rule of
// its own, which does no harm.
func covered(patterns []string, branch txn.Branch) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if rich(pattern) {
			return false
		}
		ok, err := path.Match(pattern, string(branch))
		return ok && err == nil
	})
}

// rich reports whether a pattern has more in it than * and ?.
func rich(pattern string) bool { return strings.ContainsAny(pattern, `[]{}\!`) }

// protection is the patterns of the protected branches, and the version of the
// rules, which is "" where there are none.
func (c *Client) protection(ctx context.Context, repo txn.Repository) (patterns []string, version string, err error) {
	type rule struct {
		Pattern string `json:"pattern"`
	}
	one := &call{operation: getProtection, want: http.StatusOK, decode: asJSON(func(rules *[]rule) error {
		if rules == nil {
			return errors.New("no list of rules")
		}
		patterns = nil
		for _, r := range *rules {
			if r.Pattern == "" {
				return errors.New("a rule without a pattern")
			}
			patterns = append(patterns, r.Pattern)
		}
		return nil
	})}
	request, err := apigen.NewGetBranchProtectionRulesRequest(c.api, string(repo))
	err = c.do(ctx, request, err, one)
	version = one.header.Get("ETag")
	if err == nil && version == "" && len(patterns) > 0 {
		// Without it a rule that somebody adds meanwhile would be lost.
		return nil, "", fmt.Errorf("the branch protection rules of %s came without their version (ETag): %w", repo, txn.ErrRetryable)
	}
	return patterns, version, err
}

// setProtection replaces the rules of a version. lakeFS has no way to say "only
// where there are none": with the version "" they are replaced whatever they are.
func (c *Client) setProtection(ctx context.Context, repo txn.Repository, patterns []string, version string) error {
	params := &apigen.SetBranchProtectionRulesParams{}
	if version != "" {
		params.IfMatch = &version
	}
	rules := apigen.SetBranchProtectionRulesJSONRequestBody{}
	for _, pattern := range patterns {
		rules = append(rules, apigen.BranchProtectionRule{Pattern: pattern})
	}
	request, err := apigen.NewSetBranchProtectionRulesRequest(c.api, string(repo), params, rules)
	return c.do(ctx, request, err, &call{operation: setProtection, want: http.StatusNoContent})
}
