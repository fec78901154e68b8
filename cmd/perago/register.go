package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"perago/pkg/conductor"
	"perago/pkg/definition"
	"perago/taskdefs"
	"perago/workflows"
)

var _ definition.Server = (*conductor.Client)(nil)

// failureWorkflow is the one shipped workflow that is no example.
const failureWorkflow = "perago_cancel"

func (e *environment) register() *cobra.Command {
	var options registerOptions
	command := &cobra.Command{
		Use:   "register [FILE|DIR...]",
		Short: "Register task and workflow definitions in Conductor",
		Long: `Registers task and workflow definitions in Conductor: task definitions first, then
failure workflows, then the workflows that name them. What is registered already
and does not differ is left alone, so running it again changes nothing.

Without arguments it registers what every installation needs: the task definitions
of perago and the failure workflow perago_cancel. With arguments it registers the
files given, and of a directory the .json files directly in it. Definitions are
sent as they are written, whatever fields they hold.

A definition that was changed in Conductor alone is set back to its file. Keep a tuned
publish budget in a file of your own, and register that one.` + variables(conductor.Config{}),
		Example: `  perago register                      # what perago needs
  perago register --dry-run            # what that would change
  perago register my_workflow.json     # a workflow of your own`,
		RunE: func(command *cobra.Command, paths []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), e.timeout)
			defer cancel()
			return e.runRegister(ctx, options, paths)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&options.dryRun, "dry-run", false, "say what would change and change nothing")
	flags.BoolVar(&options.examples, "examples", false, "register the shipped example workflows too")
	flags.StringVar(&options.only, "only", "", "register definitions of one `kind` alone: tasks or workflows")
	return command
}

type registerOptions struct {
	dryRun, examples bool
	only             string
}

func (e *environment) runRegister(ctx context.Context, options registerOptions, paths []string) error {
	definitions, err := load(options, paths)
	if err != nil {
		return err
	}
	var config struct{ Conductor conductor.Config }
	if err := e.configure(&config); err != nil {
		return err
	}
	server, err := conductor.New(config.Conductor, nil)
	if err != nil {
		return err
	}
	defer server.CloseIdleConnections()

	changes, err := definition.Plan(ctx, server, definitions)
	if err == nil && !options.dryRun {
		changes, err = definition.Apply(ctx, server, changes)
	}
	// What was registered before an error is registered.
	return errors.Join(e.printChanges(changes, options.dryRun), err)
}

func load(options registerOptions, paths []string) ([]definition.Definition, error) {
	var keep definition.Kind
	switch options.only {
	case "":
	case "tasks":
		keep = definition.Task
	case "workflows":
		keep = definition.Workflow
	default:
		return nil, fmt.Errorf("--only is %q; it must be tasks or workflows", options.only)
	}
	definitions, err := definition.Load(paths...)
	switch {
	case err != nil:
		return nil, err
	case len(paths) > 0 && options.examples:
		return nil, errors.New("--examples goes with the shipped definitions; leave out the files")
	case len(paths) == 0:
		if definitions, err = shipped(options.examples); err != nil {
			return nil, err
		}
	}
	if keep != "" {
		definitions = slices.DeleteFunc(definitions, func(d definition.Definition) bool { return d.Kind != keep })
	}
	if len(definitions) == 0 {
		return nil, errors.New("there is no definition to register")
	}
	return definitions, nil
}

func shipped(examples bool) ([]definition.Definition, error) {
	var all []definition.Definition
	for _, from := range []struct {
		name  string
		files fs.FS
	}{{"taskdefs", taskdefs.Files}, {"workflows", workflows.Files}} {
		definitions, err := definition.LoadFS(from.name, from.files)
		if err != nil {
			return nil, err
		}
		all = append(all, definitions...)
	}
	return slices.DeleteFunc(all, func(d definition.Definition) bool {
		return d.Kind == definition.Workflow && d.Name != failureWorkflow && !examples
	}), nil
}

// registration is the JSON of one definition's registration.
type registration struct {
	Kind    definition.Kind         `json:"kind"`
	Name    string                  `json:"name"`
	Version int                     `json:"version,omitempty"`
	File    string                  `json:"file"`
	Action  definition.Action       `json:"action"`
	Changes []definition.Difference `json:"changes"`
	Ignored []definition.Difference `json:"ignored,omitempty"`
	Warning string                  `json:"warning,omitempty"`
}

// planned are the words for what a dry run does not do.
var planned = map[definition.Action]string{definition.Created: "would create", definition.Updated: "would update"}

func (e *environment) printChanges(changes []definition.Change, dryRun bool) error {
	var all []registration
	var rows [][]string
	for _, c := range changes {
		d := c.Definition
		all = append(all, registration{
			Kind: d.Kind, Name: d.Name, Version: d.Version, File: d.Source,
			Action: c.Action, Changes: append([]definition.Difference{}, c.Differences...), Ignored: c.Ignored, Warning: c.Warning,
		})
		version, action := "-", string(c.Action)
		if d.Version != 0 {
			version = strconv.Itoa(d.Version)
		}
		if words, ok := planned[c.Action]; ok && dryRun {
			action = words
		}
		rows = append(rows, []string{string(d.Kind), d.Name, version, action, texts(c.Differences)})
	}
	if e.out.format == formatJSON {
		return e.out.json(struct {
			DryRun      bool           `json:"dry_run"`
			Definitions []registration `json:"definitions"`
		}{dryRun, append([]registration{}, all...)})
	}
	for _, c := range changes {
		if c.Warning != "" {
			fmt.Fprintf(e.stderr, "perago: warning: %s: no worker will poll it: %s\n", c.Definition.Source, strings.ReplaceAll(c.Warning, "\n", "; "))
		}
		if len(c.Ignored) > 0 {
			fmt.Fprintf(e.stderr, "perago: warning: %s: the server did not keep %s\n", c.Definition.Source, texts(c.Ignored))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return e.out.rows([]string{"KIND", "NAME", "VERSION", "ACTION", "CHANGES"}, rows)
}

func texts(differences []definition.Difference) string {
	var all []string
	for _, d := range differences {
		all = append(all, d.String())
	}
	return strings.Join(all, "; ")
}
