package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"perago/pkg/fence"
	"perago/pkg/lakefs"
	"perago/pkg/txn"
)

func (e *environment) settle() *cobra.Command {
	var yes bool
	command := &cobra.Command{
		Use:   "settle lakefs://REPOSITORY/BRANCH",
		Short: "End every doubt about publications under way",
		Long: `Puts an empty commit on the branch. By the hard fence lakeFS then refuses for good each
publication that was decided for the head below it, however late it arrives: the merge
of a worker that died, or one whose outcome is not known. It needs the hard fence
(perago fence install), and fails if lakeFS did not ask it for that very commit.

It prints the new head, and what had been staged for the branch and is not published:
"stopped" can no longer land; "loose" was staged from a commit without the fence, so
lakeFS does not ask it there, and a merge of it may still land.

What had not landed has to be started anew from the new head. Where the workflow can be
retried in Conductor, retry it instead: that settles too.

It moves the head of the branch, and the publications of workflows that are running
on the branch are then refused. On a terminal it asks before; elsewhere it wants
--yes.` + variables(lakefs.Config{}),
		Example: `  perago settle lakefs://my-repo/main
  perago settle lakefs://my-repo/main --yes --output json`,
		Args: oneBranch,
		RunE: func(command *cobra.Command, arguments []string) error {
			return e.runSettle(command, arguments[0], yes)
		},
	}
	command.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return command
}

func (e *environment) runSettle(command *cobra.Command, address string, yes bool) error {
	target, state, err := e.fenceTarget(command.Context(), address)
	if err != nil {
		return err
	}
	if state.Fault != nil {
		// Nobody has to be asked for what will not be done.
		return state.Fault
	}
	if err := e.confirm(command, yes, target.Address()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(command.Context(), e.timeout)
	defer cancel()
	settlement, err := target.Settle(ctx)
	if err != nil {
		return err
	}
	if err := e.printSettlement(target, settlement); err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.stderr, settledAdvice(settlement))
	return err
}

// settledAdvice is what is to be done now, for people.
func settledAdvice(settlement fence.Settlement) string {
	advice := fmt.Sprintf("From now on the hard fence refuses every publication that expected %s. A retry in Conductor adopts what had landed; what had not must be started anew with ref=%s.",
		settlement.Before.Short(), settlement.Head)
	if len(settlement.Loose) > 0 {
		advice += " What is loose was staged from a commit without the hard fence, so a merge of it may still land; look at the branch again later."
	}
	return advice
}

// settleReport is the result for programs.
type settleReport struct {
	Repository txn.Repository      `json:"repository"`
	Branch     txn.Branch          `json:"branch"`
	Head       txn.CommitID        `json:"head"`
	Before     txn.CommitID        `json:"before"`
	Stopped    []unpublishedReport `json:"stopped"`
	Loose      []unpublishedReport `json:"loose"`
}

type unpublishedReport struct {
	Key      txn.LogicalTaskKey `json:"logical_task_key"`
	Workflow txn.WorkflowID     `json:"workflow_id"`
	Branch   txn.Branch         `json:"branch"`
	Commit   txn.CommitID       `json:"commit"`
	Phase    txn.Phase          `json:"phase"`
}

func (e *environment) printSettlement(target fence.Target, settlement fence.Settlement) error {
	if e.out.format == formatJSON {
		report := settleReport{
			Repository: target.Repository, Branch: target.Branch, Head: settlement.Head, Before: settlement.Before,
			Stopped: []unpublishedReport{}, Loose: []unpublishedReport{},
		}
		for _, one := range settlement.Stopped {
			report.Stopped = append(report.Stopped, reportUnpublished(one))
		}
		for _, one := range settlement.Loose {
			report.Loose = append(report.Loose, reportUnpublished(one))
		}
		return e.out.json(report)
	}
	if err := e.out.rows([]string{"BRANCH", "STATE", "HEAD"}, [][]string{{target.Address(), "settled", string(settlement.Head)}}); err != nil {
		return err
	}
	var rows [][]string
	add := func(state string, all []fence.Unpublished) {
		for _, one := range all {
			rows = append(rows, []string{state, printable(string(one.Key)), printable(string(one.Workflow)), string(one.Branch)})
		}
	}
	add("stopped", settlement.Stopped)
	add("loose", settlement.Loose)
	if len(rows) == 0 {
		return nil
	}
	if e.out.format == formatTable {
		if _, err := fmt.Fprintln(e.out.to); err != nil {
			return err
		}
	}
	return e.out.rows([]string{"STATE", "STEP", "WORKFLOW", "BRANCH"}, rows)
}

func reportUnpublished(one fence.Unpublished) unpublishedReport {
	return unpublishedReport{Key: one.Key, Workflow: one.Workflow, Branch: one.Branch, Commit: one.Commit, Phase: one.Phase}
}

// printable keeps what a commit's metadata says from breaking a line or a
// terminal.
func printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}
