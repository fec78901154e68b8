package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"perago/pkg/explain"
	"perago/pkg/lakefs"
	"perago/pkg/txn"
)

func (e *environment) log() *cobra.Command {
	var amount int
	command := &cobra.Command{
		Use:   "log lakefs://REPOSITORY/BRANCH",
		Short: "List the publications of a branch, and whose the other commits are",
		Long: `Lists the newest commits of a branch, first parents only, as perago reads them:

  publication  of a step; with its workflow, the step's stage task and the retry count
               of the publish, and the publication that it superseded
  raced        a publication that landed on another head than it was decided for
  settled      the commit of perago settle
  foreign      somebody else's, and why: a workflow that started below it can not
               publish to the branch any more

A table shortens the ids; plain rows and JSON have them whole.` + variables(lakefs.Config{}),
		Example: `  perago log lakefs://my-repo/main
  perago log lakefs://my-repo/main --amount 100 --output json`,
		Args: oneBranch,
		RunE: func(command *cobra.Command, arguments []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), e.timeout)
			defer cancel()
			return e.runLog(ctx, arguments[0], amount)
		},
	}
	command.Flags().IntVar(&amount, "amount", 20, "how many `commits` to list at most")
	return command
}

func (e *environment) runLog(ctx context.Context, address string, amount int) error {
	if amount < 1 {
		return fmt.Errorf("--amount is %d; it must be at least 1", amount)
	}
	lake, at, err := e.headOf(ctx, address)
	if err != nil {
		return err
	}
	commits, whole, err := lake.WholeHistory(ctx, at.Repository, at.Ref, amount)
	if err != nil {
		return err
	}
	return e.printLog(at.Repository, at.Branch, explain.Log(at.Branch, commits), whole)
}

func (e *environment) printLog(repository txn.Repository, branch txn.Branch, entries []explain.Entry, whole bool) error {
	if e.out.format == formatJSON {
		return e.out.json(struct {
			Repository txn.Repository  `json:"repository"`
			Branch     txn.Branch      `json:"branch"`
			Whole      bool            `json:"whole"`
			Commits    []explain.Entry `json:"commits"`
		}{repository, branch, whole, entries})
	}
	id := func(commit txn.CommitID) string {
		if e.out.format == formatTable {
			return commit.Short()
		}
		return string(commit)
	}
	var rows [][]string
	for _, entry := range entries {
		attempt, workflow, step, supersedes := "-", "-", "-", "-"
		if entry.Workflow != "" {
			attempt, workflow, step = strconv.Itoa(entry.Retry), printable(string(entry.Workflow)), printable(string(entry.Step))
		}
		if entry.Supersedes != "" {
			supersedes = id(entry.Supersedes)
		}
		rows = append(rows, []string{
			id(entry.Commit), entry.Created.Format(time.RFC3339), string(entry.Kind), workflow, step, attempt, supersedes, printable(note(entry)),
		})
	}
	return e.out.rows([]string{"COMMIT", "TIME", "KIND", "WORKFLOW", "STEP", "RETRY", "SUPERSEDES", "NOTE"}, rows)
}

// note is what else there is to say of a commit.
func note(entry explain.Entry) string {
	var notes []string
	if entry.Why != "" {
		notes = append(notes, entry.Why)
	}
	if entry.SupersededBy != "" {
		notes = append(notes, "superseded by "+entry.SupersededBy.Short())
	}
	if entry.Kind == explain.Foreign && entry.Message != "" {
		notes = append(notes, entry.Message)
	}
	return strings.Join(notes, "; ")
}
