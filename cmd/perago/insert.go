package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"perago/pkg/definition"
)

func (e *environment) insert() *cobra.Command {
	var what definition.Insertion
	var guards string
	command := &cobra.Command{
		Use:   "insert FILE",
		Short: "Print a workflow with the tasks of a step put in",
		Long: `Prints the workflow of a file with perago's tasks behind one of yours: stage, publish
and cleanup, chained to the steps before and after. All the rest of the file comes out
as it is, byte for byte. The file itself is not changed.

The task is named by its reference name, and may stand in a loop, a fork or a switch.
In a loop, and where a step follows a switch, the workspace is carried in a workflow
variable. What else was changed is said on standard error: later steps that now start
from the new one's publication, a join that now waits for it, and the failure workflow,
where there was none.

The new step takes its files from the directory that the task puts out
(${TASK.output.directory}). --source names another directory, or the URI of an import;
with it the step may also stand behind a join, a loop, a switch or another step.
--checkout PREFIX puts a perago_checkout before the task, for its input files.`,
		Example: `  perago insert my_workflow.json --after prepare --prefix data/ > with_perago.json
  perago insert my_workflow.json --after train --prefix models/ --checkout data/
  perago insert my_workflow.json --after join --name parts --source '${split.output.directory}' --prefix parts/
  perago lint with_perago.json`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) != 1 {
				return fmt.Errorf("perago insert takes one file, but was given %d", len(arguments))
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			switch {
			case what.After == "":
				return errors.New("--after is not given: the reference name of the task that writes the files")
			case command.Flags().Changed("source") && what.Source == "", command.Flags().Changed("checkout") && what.Checkout == "":
				return errors.New("--source or --checkout is empty; give it a value, or leave it out")
			case !command.Flags().Changed("prefix"):
				return errors.New("--prefix is not given: the part of the repository that the step owns, such as data/")
			}
			var err error
			if what.Guardrails, err = rawGuardrails(guards); err != nil {
				return err
			}
			return e.runInsert(arguments[0], what)
		},
	}
	flags := command.Flags()
	flags.StringVar(&what.After, "after", "", "reference name of the `task` that writes the files")
	flags.StringVar(&what.Prefix, "prefix", "", "what the step owns: its files become exactly those of the task")
	flags.BoolVar(&what.Root, "root", false, "the step owns the whole repository: --prefix is /")
	flags.StringVar(&guards, "guardrails", "", "what the files must be: a JSON `file`, or the list itself")
	flags.StringVar(&what.Name, "name", "", "the `name` that the step's tasks begin with (default the task of --after)")
	flags.StringVar(&what.Source, "source", "", "the directory, or the URI of an import, that the step publishes: a text or an `expression` (default ${TASK.output.directory})")
	flags.StringVar(&what.Checkout, "checkout", "", "download the files under this `prefix` for the task, before it runs")
	flags.StringVar(&what.Workspace, "workspace", "", "`expression` of the commit to start from (default what the step before published, else the workflow's input)")
	return command
}

// runInsert prints the text alone, whatever the format: it is JSON already.
func (e *environment) runInsert(file string, what definition.Insertion) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	edited, notes, err := definition.Insert(file, text, what)
	if err != nil {
		return err
	}
	if _, err := e.out.to.Write(edited); err != nil {
		return err
	}
	for _, note := range notes {
		fmt.Fprintln(e.stderr, "perago: "+printable(note))
	}
	return nil
}
