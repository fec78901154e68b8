package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"perago/pkg/checkout"
	"perago/pkg/config"
	"perago/pkg/lakefs"
	"perago/pkg/txn"
)

var _ checkout.Lake = (*lakefs.Client)(nil)

func (e *environment) checkout() *cobra.Command {
	var guards string
	var root bool
	command := &cobra.Command{
		Use:   "checkout lakefs://REPOSITORY/REF[/PREFIX] DIR",
		Short: "Download the files of a commit into a directory of their own, verified",
		Long: `Does by hand what a perago_checkout task does: downloads all objects under a prefix, of
a branch, a tag or a commit, in parallel and compared with the sizes and checksums of
lakeFS. The whole repository, without PREFIX, needs --root. What is not committed is not
downloaded. The directory is made; one that is
there must be empty. When something fails, or an object has no form as a file, what was
downloaded is removed again.

--guardrails FILE, or a list in its place, is what the objects must be, as in a task's
input: else nothing is downloaded.

On a terminal it shows how far it is. --timeout is for the questions before the
download, which takes as long as it takes.` + variables(transferConfig{}),
		Example: `  perago checkout lakefs://my-repo/main/models/ ./models
  perago checkout lakefs://my-repo/v1.0 ./everything --root --output json
  perago checkout lakefs://my-repo/main/models/ ./models --guardrails '[{"require_file": "metrics.json"}]'`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) != 2 {
				return fmt.Errorf("perago checkout takes an address and a directory, such as lakefs://my-repo/main/models/ ./models, but was given %d arguments", len(arguments))
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			return e.runCheckout(command.Context(), arguments[0], arguments[1], guards, root)
		},
	}
	command.Flags().StringVar(&guards, "guardrails", "", "what the objects must be: a JSON `file`, or the list itself")
	command.Flags().BoolVar(&root, "root", false, "the whole repository is meant: the address names no PREFIX")
	return command
}

// checkoutReport is the result for programs.
type checkoutReport struct {
	Repository txn.Repository `json:"repository"`
	// Reference is what was given, Ref the commit that it meant.
	Reference string       `json:"reference"`
	Ref       txn.CommitID `json:"ref"`
	Prefix    string       `json:"prefix"`
	checkout.Checkout
}

func (e *environment) runCheckout(ctx context.Context, address, directory, guards string, root bool) error {
	at, err := parseLocation(address, "lakefs://REPOSITORY/REF[/PREFIX], such as lakefs://my-repo/main/models/", root)
	if err != nil {
		return err
	}
	hand := checkout.Hand{Prefix: at.prefix, Directory: directory}
	if hand.Guardrails, err = guardrails(guards); err != nil {
		return err
	}
	var settings transferConfig
	if err := e.configure(&settings); err != nil {
		return err
	}
	lake, err := lakefs.New(settings.LakeFS, nil)
	if err != nil {
		return err
	}
	ref, err := e.resolve(ctx, lake, at.repository, at.reference)
	if err != nil {
		return err
	}
	hand.Workspace = txn.Workspace{Repository: at.repository}.At(ref)
	downloader := &checkout.Downloader{Lake: lake, Concurrency: settings.Transfer.Concurrency, NewExecutionID: config.NewExecutionID}
	result, err := downloader.ByHand(ctx, hand, e.bars())
	if err != nil {
		return err
	}
	report := checkoutReport{Repository: at.repository, Reference: at.reference, Ref: ref, Prefix: at.prefix.String(), Checkout: result.Checkout}
	if report.Objects == 0 {
		fmt.Fprintf(e.stderr, "perago: warning: there is nothing under %s at %s; the directory is empty\n", at.prefix, ref.Short())
	}
	if report.ComparedBySize > 0 {
		fmt.Fprintf(e.stderr, "perago: warning: %d of %d objects were compared by size alone: lakeFS knows no MD5 of them\n", report.ComparedBySize, report.Objects)
	}
	if e.out.format == formatJSON {
		return e.out.json(report)
	}
	return e.out.rows([]string{"COMMIT", "OBJECTS", "BYTES", "DIRECTORY"}, [][]string{{
		string(ref), strconv.Itoa(report.Objects), strconv.FormatInt(report.Bytes, 10), printable(report.Directory),
	}})
}

// resolve finds the commit that a person means.
func (e *environment) resolve(ctx context.Context, lake *lakefs.Client, repository txn.Repository, reference string) (txn.CommitID, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	id, err := lake.Resolve(ctx, repository, reference)
	if !errors.Is(err, txn.ErrNotFound) {
		return id, err
	}
	if _, err := lake.Branches(ctx, repository, reference); errors.Is(err, txn.ErrNotFound) {
		return "", fmt.Errorf("lakeFS has no repository %s", repository)
	}
	return "", fmt.Errorf("the repository %s has no branch, tag or commit %s", repository, reference)
}
