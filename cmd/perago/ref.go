package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"perago/pkg/lakefs"
	"perago/pkg/txn"
)

func (e *environment) ref() *cobra.Command {
	return &cobra.Command{
		Use:   "ref lakefs://REPOSITORY/BRANCH",
		Short: "Print the commit id to start a workflow from",
		Long: `Prints the full id of the commit a branch points at now: the ref of the workspace that
a workflow starts from. With --output json it prints the whole workspace, ready to be
the input of a workflow.` + variables(lakefs.Config{}),
		Example: `  perago ref lakefs://my-repo/main
  perago ref lakefs://my-repo/main --output json`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) != 1 {
				return fmt.Errorf("perago ref takes one address, such as lakefs://my-repo/main, but was given %d", len(arguments))
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), e.timeout)
			defer cancel()
			return e.runRef(ctx, arguments[0])
		},
	}
}

func (e *environment) runRef(ctx context.Context, address string) error {
	_, at, err := e.headOf(ctx, address)
	if err != nil {
		return err
	}
	if e.out.format == formatJSON {
		return e.out.json(at)
	}
	_, err = fmt.Fprintln(e.out.to, at.Ref)
	return err
}

// headOf reads the head of the branch that an address names.
func (e *environment) headOf(ctx context.Context, address string) (*lakefs.Client, txn.Workspace, error) {
	repository, branch, err := parseAddress(address)
	if err != nil {
		return nil, txn.Workspace{}, err
	}
	var config struct{ LakeFS lakefs.Config }
	if err := e.configure(&config); err != nil {
		return nil, txn.Workspace{}, err
	}
	lake, err := lakefs.New(config.LakeFS, nil)
	if err != nil {
		return nil, txn.Workspace{}, err
	}
	head, err := lake.Head(ctx, repository, branch)
	if errors.Is(err, txn.ErrNotFound) {
		err = missing(ctx, lake, repository, branch)
	}
	return lake, txn.Workspace{Repository: repository, Branch: branch}.At(head), err
}

// missing tells a branch that is not there from a repository that is not: lakeFS
// answers both with the same status.
func missing(ctx context.Context, lake *lakefs.Client, repository txn.Repository, branch txn.Branch) error {
	_, err := lake.Branches(ctx, repository, string(branch))
	switch {
	case errors.Is(err, txn.ErrNotFound):
		return fmt.Errorf("lakeFS has no repository %s", repository)
	case err != nil:
		return err
	}
	return fmt.Errorf("the repository %s has no branch %s", repository, branch)
}

// parseAddress reads lakefs://repository/branch, as lakectl writes it. Whether
// the names are ones lakeFS would accept is the client's to say.
func parseAddress(address string) (txn.Repository, txn.Branch, error) {
	const form = "write lakefs://REPOSITORY/BRANCH"
	rest, ok := strings.CutPrefix(address, "lakefs://")
	if !ok {
		return "", "", fmt.Errorf("%q is not the address of a branch; %s", address, form)
	}
	repository, branch, _ := strings.Cut(strings.TrimSuffix(rest, "/"), "/")
	switch {
	case repository == "":
		return "", "", fmt.Errorf("%q names no repository; %s", address, form)
	case branch == "":
		return "", "", fmt.Errorf("%q names no branch; %s", address, form)
	case strings.Contains(branch, "/"):
		return "", "", fmt.Errorf("%q goes on after the branch; %s", address, form)
	}
	return txn.Repository(repository), txn.Branch(branch), nil
}
