package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"perago/pkg/conductor"
	"perago/pkg/config"
	"perago/pkg/explain"
	"perago/pkg/lakefs"
	"perago/pkg/publish"
	"perago/pkg/txn"
)

// explainConfig is what explain reads of the environment.
type explainConfig struct {
	Conductor conductor.Config
	LakeFS    lakefs.Config
	Name      config.ConductorName
}

func (e *environment) explain() *cobra.Command {
	var page string
	command := &cobra.Command{
		Use:   "explain WORKFLOW_ID",
		Short: "Say what happened to the data of a workflow",
		Long: `Reads a workflow from Conductor and the branches that it publishes to from lakeFS, and
says for each step where its data is: what each attempt did and what its fences saw, what
is published as which commit, which hidden branches are still there, and what to do. It
follows sub-workflows, and looks at user tasks that failed, at workers that fell silent and
at tasks that wait for a worker. It changes nothing.

FAILED does not mean unpublished: it looks at the branch. Where it says what a retry in
Conductor would do, it has asked the decision that the retry's publish will ask.

--html writes the same as a page, with the attempts on a line of time and the history of
the branch. The page needs nothing else and asks nobody for anything.` + variables(explainConfig{}),
		Example: `  perago explain 0c1b3c6e-7f1e-4d0e-9a53-2f5d8f0a8c11
  perago explain 0c1b3c6e-7f1e-4d0e-9a53-2f5d8f0a8c11 --output json
  perago explain 0c1b3c6e-7f1e-4d0e-9a53-2f5d8f0a8c11 --html what_happened.html`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) != 1 || arguments[0] == "" {
				return fmt.Errorf("perago explain takes the id of one workflow, but was given %d", len(arguments))
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), e.timeout)
			defer cancel()
			return e.runExplain(ctx, txn.WorkflowID(arguments[0]), page)
		},
	}
	command.Flags().StringVar(&page, "html", "", "write a page to this `file`, too")
	return command
}

func (e *environment) runExplain(ctx context.Context, id txn.WorkflowID, page string) error {
	var config explainConfig
	if err := e.configure(&config); err != nil {
		return err
	}
	server, lake, err := clients(config.Conductor, config.LakeFS)
	if err != nil {
		return err
	}
	defer server.CloseIdleConnections()
	workflow, err := server.Workflow(ctx, id)
	if errors.Is(err, txn.ErrNotFound) {
		return fmt.Errorf("this Conductor has no workflow %s", printable(string(id)))
	}
	if err != nil {
		return err
	}
	identity := config.Name.Identity(config.Conductor.ServerURL)
	left := mostSubWorkflows
	facts, err := readWorkflow(ctx, server, lake, identity, workflow, &left)
	if err != nil {
		return err
	}
	explanation := explain.Workflow(facts)
	for i, problem := range explanation.Problems {
		explanation.Problems[i] = e.sentence(errors.New(problem))
	}
	if page != "" {
		if err := writePage(page, explanation); err != nil {
			return err
		}
	}
	if e.out.format == formatJSON {
		err = e.out.json(explanation)
	} else {
		err = explanation.Text(e.out.to)
	}
	if unread := len(explanation.Problems); err == nil && unread > 0 {
		err = fmt.Errorf("less is known than could be: %s: %s", count(unread, "read failed", "reads failed"), explanation.Problems[0])
	}
	return err
}

// writePage makes the page before it touches the file.
func writePage(file string, explanation explain.Explanation) error {
	var page bytes.Buffer
	if err := explanation.Page(&page); err != nil {
		return err
	}
	return os.WriteFile(file, page.Bytes(), 0o644)
}

// mostSubWorkflows is how many sub-workflows are read, at all depths together.
const mostSubWorkflows = 100

// readWorkflow reads what both servers say of a workflow and, as many as left, of
// its sub-workflows. What cannot be read is a problem of the facts.
func readWorkflow(ctx context.Context, server *conductor.Client, lake *lakefs.Client, identity txn.ConductorIdentity, workflow txn.Workflow, left *int) (explain.Facts, error) {
	facts, err := readFacts(ctx, lake, identity, workflow)
	if err != nil {
		return facts, err
	}
	problem := func(format string, arguments ...any) {
		facts.Problems = append(facts.Problems, fmt.Errorf(format, arguments...).Error())
	}
	if waiting := explain.Waiting(workflow, facts.Now); len(waiting) > 0 {
		queues, err := server.Queues(ctx)
		for _, task := range waiting {
			if err != nil {
				problem("read the queues: %w", err)
				break
			}
			polls, err := server.LastPolls(ctx, task.Type)
			if err != nil {
				problem("read who polls for %s: %w", task.Type, err)
				continue
			}
			queue := explain.Queue{Type: task.Type, Domain: task.Domain}
			for _, poll := range polls {
				if poll.Domain == task.Domain {
					queue.Polled = poll.At
				}
			}
			for _, one := range queues {
				if one.Type == task.Type && one.Domain == task.Domain {
					queue.Waiting = one.Waiting
				}
			}
			facts.Queues = append(facts.Queues, queue)
		}
	}
	for _, task := range workflow.Tasks {
		if task.SubWorkflow == "" {
			continue
		}
		if *left--; *left < 0 {
			problem("there are more than %d sub-workflows; explain the others by their own ids", mostSubWorkflows)
			break
		}
		sub, err := server.Workflow(ctx, task.SubWorkflow)
		if err != nil {
			problem("read the sub-workflow %s of %s: %w", task.SubWorkflow, task.ReferenceName, err)
			continue
		}
		below, err := readWorkflow(ctx, server, lake, identity, sub, left)
		if err != nil {
			return facts, err
		}
		facts.Subs = append(facts.Subs, below)
	}
	return facts, ctx.Err()
}

// readFacts reads what lakeFS says of a workflow. What cannot be read is a problem
// of the facts: the rest is still worth saying. It fails when there is no more
// time.
func readFacts(ctx context.Context, lake *lakefs.Client, identity txn.ConductorIdentity, workflow txn.Workflow) (explain.Facts, error) {
	facts := explain.Facts{Workflow: workflow, Identity: identity, Now: time.Now()}
	problem := func(format string, arguments ...any) {
		facts.Problems = append(facts.Problems, fmt.Errorf(format, arguments...).Error())
	}
	repositories := map[txn.Repository]bool{}
	targets := map[[2]string]int{}
	for _, input := range explain.Inputs(workflow) {
		if !repositories[input.Repository] {
			repositories[input.Repository] = true
			branches, err := readBranches(ctx, lake, input.Repository, txn.WorkflowBranches(identity, workflow.ID))
			if err != nil {
				problem("list the staging branches of %s: %w", input.Repository, err)
			}
			facts.Branches = append(facts.Branches, branches...)
		}
		name := [2]string{string(input.Repository), string(input.Branch)}
		at, known := targets[name]
		if !known {
			head, err := lake.Head(ctx, input.Repository, input.Branch)
			if err != nil {
				problem("read the head of lakefs://%s/%s: %w", input.Repository, input.Branch, err)
				continue
			}
			at = len(facts.Targets)
			targets[name] = at
			facts.Targets = append(facts.Targets, explain.Target{
				Repository: input.Repository, Branch: input.Branch, Head: head, Ranges: map[txn.CommitID]explain.Range{},
			})
		}
		target := facts.Targets[at]
		commits, reached, err := lake.History(ctx, input.Repository, target.Head, input.Ref, txn.HistoryLimit)
		if err != nil {
			problem("read the history of lakefs://%s/%s: %w", input.Repository, input.Branch, err)
			continue
		}
		target.Ranges[input.Ref] = explain.Range{Commits: commits, Reached: reached}
	}
	for _, staged := range explain.StagedBy(workflow) {
		commit, err := lake.Commit(ctx, staged.Repository, staged.Commit)
		switch {
		case errors.Is(err, txn.ErrNotFound):
			facts.Gone = append(facts.Gone, staged.Commit)
		case err != nil:
			problem("read the staged commit %s: %w", staged.Commit, err)
		default:
			facts.Staged = append(facts.Staged, commit)
		}
	}
	for _, landed := range explain.Publications(facts) {
		adoption, err := publish.ReadAdoption(ctx, lake, landed.Step, landed.Down)
		if err != nil {
			problem("read what lakefs://%s/%s holds of %s: %w", landed.Step.Repository, landed.Step.Branch, landed.Down[len(landed.Down)-1].ID, err)
			continue
		}
		facts.Adoptions = append(facts.Adoptions, adoption)
	}
	return facts, ctx.Err()
}

func readBranches(ctx context.Context, lake *lakefs.Client, repository txn.Repository, prefix string) ([]explain.Branch, error) {
	heads, err := lake.Branches(ctx, repository, prefix)
	var all []explain.Branch
	for _, branch := range heads {
		commit, read := lake.Commit(ctx, repository, branch.Head)
		if read != nil {
			err = errors.Join(err, read)
			continue
		}
		all = append(all, explain.Branch{Repository: repository, Name: branch.Name, Head: commit})
	}
	return all, err
}
