package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"perago/pkg/conductor"
	"perago/pkg/definition"
)

// lintConfig is what lint reads of the environment, unless it is offline.
type lintConfig struct {
	Conductor conductor.Config
	Fence     lintFence
}

type lintFence struct {
	Require bool `env:"PERAGO_REQUIRE_HARD_FENCE,default=false" desc:"As the publish workers have it: whether they refuse to publish what was staged from a commit without the hard fence's action file"`
}

type lintOptions struct {
	offline bool
	without []string
}

func (e *environment) lint() *cobra.Command {
	var options lintOptions
	var rules strings.Builder
	for _, rule := range definition.Rules() {
		mark := ""
		if rule.Surroundings {
			mark = " (not with --offline)"
		}
		fmt.Fprintf(&rules, "  %-17s %s%s\n", rule.Rule, rule.About, mark)
	}
	command := &cobra.Command{
		Use:   "lint FILE|DIR...",
		Short: "Hold workflow and task definitions to perago's rules",
		Long: `Looks for what would make a workflow fail or publish what nobody meant, before it is
registered. Of a directory it reads the .json files directly in it. Each finding has
the file, the place in it, the rule, what is wrong and what to do.

It asks Conductor for what the files name and do not hold: give the files of a
workflow's tasks, its failure workflow and its sub-workflows as well, or have them
registered. --offline asks nobody, and leaves out the rules that need more than the
files.

Rules:
` + rules.String() + `
It ends with exit code 1 when it found something.` + variables(lintConfig{}),
		Example: `  perago lint my_workflow.json
  perago lint --offline workflows/ taskdefs/
  perago lint --without hard-fence my_workflow.json`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) == 0 {
				return errors.New("perago lint takes the files to look at, but was given none")
			}
			return nil
		},
		RunE: func(command *cobra.Command, paths []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), e.timeout)
			defer cancel()
			return e.runLint(ctx, options, paths)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&options.offline, "offline", false, "look at the files alone")
	flags.StringSliceVar(&options.without, "without", nil, "leave out these `rules`")
	return command
}

func (e *environment) runLint(ctx context.Context, options lintOptions, paths []string) error {
	left, err := options.leftOut()
	if err != nil {
		return err
	}
	definitions, err := definition.Load(paths...)
	if err != nil {
		return err
	}
	if len(definitions) == 0 {
		return errors.New("there is no definition to look at")
	}
	var around *definition.Surroundings
	if !options.offline {
		if around, err = e.surroundings(ctx, definitions); err != nil {
			return err
		}
	}
	findings := slices.DeleteFunc(definition.Lint(definitions, around), func(f definition.Finding) bool {
		return slices.Contains(left, f.Rule)
	})
	if err := e.printFindings(findings, left); err != nil {
		return err
	}
	if len(findings) > 0 {
		return fmt.Errorf("%s in %s", count(len(findings), "finding", "findings"), count(len(definitions), "definition", "definitions"))
	}
	return nil
}

// leftOut are the rules that are not looked at.
func (o lintOptions) leftOut() ([]definition.Rule, error) {
	var left []definition.Rule
	var names []string
	for _, rule := range definition.Rules() {
		names = append(names, string(rule.Rule))
		if slices.Contains(o.without, string(rule.Rule)) || o.offline && rule.Surroundings {
			left = append(left, rule.Rule)
		}
	}
	for _, name := range o.without {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("--without is %q; the rules are %s", name, strings.Join(names, ", "))
		}
	}
	return left, nil
}

func (e *environment) surroundings(ctx context.Context, definitions []definition.Definition) (*definition.Surroundings, error) {
	var config lintConfig
	if err := e.configure(&config); err != nil {
		return nil, fmt.Errorf("%w; or look at the files alone with --offline", err)
	}
	server, err := conductor.New(config.Conductor, nil)
	if err != nil {
		return nil, err
	}
	defer server.CloseIdleConnections()
	registered, err := definition.Survey(ctx, server, definitions)
	if err != nil {
		return nil, err
	}
	return &definition.Surroundings{Registered: registered, RequireHardFence: config.Fence.Require}, nil
}

func (e *environment) printFindings(findings []definition.Finding, left []definition.Rule) error {
	if e.out.format == formatJSON {
		return e.out.json(struct {
			Findings []definition.Finding `json:"findings"`
			LeftOut  []definition.Rule    `json:"left_out"`
		}{append([]definition.Finding{}, findings...), append([]definition.Rule{}, left...)})
	}
	if len(left) > 0 {
		var names []string
		for _, rule := range left {
			names = append(names, string(rule))
		}
		fmt.Fprintf(e.stderr, "perago: left out: %s\n", strings.Join(names, ", "))
	}
	var rows [][]string
	for _, f := range findings {
		rows = append(rows, []string{printable(f.File), printable(f.Path), string(f.Rule), printable(f.What), printable(f.Do)})
	}
	if len(rows) == 0 {
		return nil
	}
	return e.out.rows([]string{"FILE", "PATH", "RULE", "WHAT IS WRONG", "WHAT TO DO"}, rows)
}

// count is a number of things in words.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
