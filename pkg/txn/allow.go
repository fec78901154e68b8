package txn

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// AllowList is the repositories and branches that a worker may touch. Workflow
// input is untrusted, so an empty list allows nothing; * alone allows all.
type AllowList []string

// ParseAllowList reads entries of the form repository, repository/branch-glob or
// *. In a glob, * stands for any characters but a slash (package path, Match).
func ParseAllowList(entries []string) (AllowList, error) {
	var list AllowList
	for _, entry := range entries {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		repository, glob, hasGlob := strings.Cut(entry, "/")
		if repository == "" || (hasGlob && glob == "") {
			return nil, fmt.Errorf("%s is neither repository, repository/branch-glob nor *", quote(entry))
		}
		if _, err := path.Match(glob, ""); err != nil {
			return nil, fmt.Errorf("%s: the branch glob is malformed", quote(entry))
		}
		if strings.ContainsAny(repository, "*?[") && entry != "*" {
			return nil, fmt.Errorf("%s: a repository is named in full; * alone allows all", quote(entry))
		}
		list = append(list, entry)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no repository is named")
	}
	return list, nil
}

// Allows reports whether the branch of the repository may be touched.
func (l AllowList) Allows(repository Repository, branch Branch) bool {
	for _, entry := range l {
		if entry == "*" {
			return true
		}
		name, glob, hasGlob := strings.Cut(entry, "/")
		if name != string(repository) {
			continue
		}
		if !hasGlob {
			return true
		}
		if matched, err := path.Match(glob, string(branch)); err == nil && matched {
			return true
		}
	}
	return false
}

// AllowsRepository reports whether some branch of the repository may be touched.
func (l AllowList) AllowsRepository(repository Repository) bool {
	for _, entry := range l {
		if name, _, _ := strings.Cut(entry, "/"); entry == "*" || name == string(repository) {
			return true
		}
	}
	return false
}

// Repositories is every repository the list names, in its order and once each;
// all says that it allows every other one too.
func (l AllowList) Repositories() (named []Repository, all bool) {
	for _, entry := range l {
		if entry == "*" {
			return nil, true
		}
		name, _, _ := strings.Cut(entry, "/")
		if !slices.Contains(named, Repository(name)) {
			named = append(named, Repository(name))
		}
	}
	return named, false
}
