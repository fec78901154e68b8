package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"perago/pkg/cleanup"
	"perago/pkg/conductor"
	"perago/pkg/config"
	"perago/pkg/fence"
	"perago/pkg/lakefs"
	"perago/pkg/txn"
)

var (
	_ cleanup.Workflows = conductor.Repeating{}
	_ cleanup.Lake      = (*lakefs.Client)(nil)
)

// sweepConfig is what a sweep by hand reads of the environment.
type sweepConfig struct {
	Conductor conductor.Config
	LakeFS    lakefs.Config
	Scope     config.Scope
	// The interval is the workers' alone.
	TTL sweepTTL
}

type sweepTTL struct {
	TTL        time.Duration `env:"PERAGO_SWEEP_TTL,default=24h" desc:"Age from which a branch goes that may still be needed, once its workflow has ended"`
	UnknownTTL time.Duration `env:"PERAGO_UNKNOWN_TTL,default=0s" desc:"Age from which a branch goes whose workflow Conductor does not know, also when it knows none; at least 168h, 0s is never"`
}

func (s sweepTTL) Validate() []error {
	return cleanup.Config{TTL: s.TTL, UnknownTTL: s.UnknownTTL}.Validate()
}

type sweepOptions struct {
	what  cleanup.Sweep
	force bool
}

func (e *environment) sweep() *cobra.Command {
	var options sweepOptions
	var repository, branch string
	command := &cobra.Command{
		Use:   "sweep",
		Short: "Delete the staging branches that nothing needs any more",
		Long: `Does once, and by hand, what the cleanup worker does at each PERAGO_SWEEP_INTERVAL: goes
over the staging branches of this Conductor in the repositories that are allowed, and
deletes those of workflows that have ended which are settled, or older than
PERAGO_SWEEP_TTL. It prints what goes, what stays and why. --dry-run deletes nothing.

A branch whose name does not parse, whose workflow still runs, or whose workflow this
Conductor does not know and has not aged, is kept. --branch NAME --force deletes one
branch of perago's by its name, whatever needs it: its publication can still be merged,
but nothing lists it as open any more.

It ends with exit code 1 when something could not be read or deleted.` + variables(sweepConfig{}),
		Example: `  perago sweep --dry-run
  perago sweep --repository my-repo
  perago sweep --repository my-repo --branch perago-staging-... --force`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			options.what.Repository, options.what.Branch = txn.Repository(repository), txn.Branch(branch)
			return e.runSweep(command, options)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&options.what.DryRun, "dry-run", false, "decide, and delete nothing")
	flags.StringVar(&repository, "repository", "", "only this `repository`")
	flags.StringVar(&branch, "branch", "", "only this `branch`; needs --repository")
	flags.BoolVar(&options.force, "force", false, "delete --branch whatever needs it, without listing")
	return command
}

func (o sweepOptions) check() error {
	switch {
	case o.what.Branch != "" && o.what.Repository == "":
		return errors.New("--branch needs --repository: which one holds it?")
	case o.force && o.what.Branch == "":
		return errors.New("--force deletes one branch by its name; give --branch")
	case o.force && o.what.DryRun:
		return errors.New("--force and --dry-run exclude each other")
	}
	return nil
}

func (e *environment) runSweep(command *cobra.Command, options sweepOptions) error {
	if err := options.check(); err != nil {
		return err
	}
	var config sweepConfig
	if err := e.configure(&config); err != nil {
		return err
	}
	server, lake, err := clients(config.Conductor, config.LakeFS)
	if err != nil {
		return err
	}
	defer server.CloseIdleConnections()
	var mu sync.Mutex
	var report sweepReport
	cleaner := &cleanup.Cleaner{
		Lake: lake, Workflows: conductor.Repeating{Client: server}, Fence: fence.Prover{Lake: lake},
		Identity: config.Scope.Identity(config.Conductor.ServerURL), Allowed: config.Scope.Allowed(),
		TTL: config.TTL.TTL, UnknownTTL: config.TTL.UnknownTTL, Now: time.Now,
		Events: cleanup.Events{
			Decided: func(d cleanup.Decided) {
				mu.Lock()
				defer mu.Unlock()
				report.Branches = append(report.Branches, sweptBranch{d.Repository, d.Branch, d.Workflow, d.State, d.Reason})
			},
			LateLanding: func(repository txn.Repository, target txn.Branch, published, late txn.CommitID) {
				e.warn(&mu, "late landing: %s of %s holds %s of a step above the %s that it published; inspect it", target, repository, late, published)
			},
			PublishedAfterEnd: func(workflow txn.WorkflowID, repository txn.Repository, target txn.Branch, commit txn.CommitID) {
				e.warn(&mu, "%s is on %s of %s, but no publish task of the ended workflow %s put it out", commit, target, repository, workflow)
			},
		},
	}
	if options.force {
		return e.runForce(command, cleaner, options)
	}
	// A sweep takes as long as there are branches: the timeout is each request's.
	_, err = cleaner.Sweep(command.Context(), options.what)
	slices.SortFunc(report.Branches, func(a, b sweptBranch) int {
		return strings.Compare(string(a.Repository)+"/"+string(a.Branch), string(b.Repository)+"/"+string(b.Branch))
	})
	if printed := e.printSweep(report, options.what.DryRun); printed != nil {
		return printed
	}
	if failed := report.failed(); err == nil && failed > 0 {
		err = fmt.Errorf("%d of %d branches could not be swept; the table says why", failed, len(report.Branches))
	}
	return err
}

func (e *environment) runForce(command *cobra.Command, cleaner *cleanup.Cleaner, options sweepOptions) error {
	ctx, cancel := context.WithTimeout(command.Context(), e.timeout)
	defer cancel()
	err := cleaner.Force(ctx, options.what.Repository, options.what.Branch)
	if errors.Is(err, txn.ErrNotFound) {
		return fmt.Errorf("the repository %s has no branch %s", options.what.Repository, options.what.Branch)
	}
	if err != nil {
		return err
	}
	return e.printSweep(sweepReport{Branches: []sweptBranch{{
		Repository: options.what.Repository, Branch: options.what.Branch, State: cleanup.StateDeleted, Reason: "by --force",
	}}}, false)
}

func (e *environment) warn(mu *sync.Mutex, format string, arguments ...any) {
	mu.Lock()
	defer mu.Unlock()
	fmt.Fprintf(e.stderr, "perago: warning: "+format+"\n", arguments...)
}

// sweepReport is the result for programs.
type sweepReport struct {
	DryRun   bool          `json:"dry_run"`
	Branches []sweptBranch `json:"branches"`
}

type sweptBranch struct {
	Repository txn.Repository `json:"repository"`
	Branch     txn.Branch     `json:"branch"`
	Workflow   txn.WorkflowID `json:"workflow_id"`
	State      cleanup.State  `json:"state"`
	Reason     string         `json:"reason"`
}

func (r sweepReport) failed() int {
	n := 0
	for _, branch := range r.Branches {
		if branch.State == cleanup.StateFailed {
			n++
		}
	}
	return n
}

// states are the words of a table for what programs read as one word.
var states = map[cleanup.State]string{cleanup.StateWouldDelete: "would delete"}

func (e *environment) printSweep(report sweepReport, dryRun bool) error {
	if e.out.format == formatJSON {
		report.DryRun = dryRun
		report.Branches = append([]sweptBranch{}, report.Branches...)
		return e.out.json(report)
	}
	var rows [][]string
	for _, branch := range report.Branches {
		state, ok := states[branch.State]
		if !ok {
			state = string(branch.State)
		}
		rows = append(rows, []string{string(branch.Repository), string(branch.Branch), state, printable(branch.Reason)})
	}
	if len(rows) == 0 {
		return nil
	}
	return e.out.rows([]string{"REPOSITORY", "BRANCH", "STATE", "REASON"}, rows)
}
