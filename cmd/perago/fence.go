package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"perago/pkg/config"
	"perago/pkg/fence"
	"perago/pkg/lakefs"
	"perago/pkg/txn"
)

var _ fence.Lake = (*lakefs.Client)(nil)

func (e *environment) fence() *cobra.Command {
	command := &cobra.Command{
		Use:   "fence",
		Short: "Install, prove or remove the hard fence of a branch",
		Long: `The hard fence is a lakeFS action file, ` + txn.FenceFile + `,
with a hook that lakeFS itself asks before each merge. It refuses a publication that
would not land on the head that it was decided for. Without it two publications that
race can both land, and a merge whose worker is gone can land much later. Production
needs it.

lakeFS reads the hook from the commit that is merged. So the fence holds for
workflows that start from a head which carries the file.`,
		Args: func(command *cobra.Command, arguments []string) error {
			if len(arguments) > 0 {
				return fmt.Errorf("perago fence has no command %q; it has install, verify and remove", arguments[0])
			}
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(e.fenceInstall(), e.fenceVerify(), e.fenceRemove())
	return command
}

const betweenRuns = `

It moves the head of the branch, and the publications of workflows that are running
on the branch are then refused. So do it between runs. On a terminal it asks before;
elsewhere it wants --yes.`

func (e *environment) fenceInstall() *cobra.Command {
	var yes, protect bool
	command := &cobra.Command{
		Use:   "install lakefs://REPOSITORY/BRANCH",
		Short: "Put the hard fence into a branch",
		Long: `Puts the action file into the branch by a hidden branch and a merge, so that it works
on a protected branch too, and leaves everything else in ` + txn.ActionsPrefix + ` as it is.
A file of an older version and an edited one are replaced. If the file is there,
nothing is changed. Afterwards prove it with perago fence verify.` + betweenRuns + variables(lakefs.Config{}),
		Example: `  perago fence install lakefs://my-repo/main
  perago fence install lakefs://my-repo/main --protect --yes`,
		Args: oneBranch,
		RunE: func(command *cobra.Command, arguments []string) error {
			return e.runFenceInstall(command, arguments[0], yes, protect)
		},
	}
	command.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	command.Flags().BoolVar(&protect, "protect", false, "turn on branch protection for the branch, too")
	return command
}

func (e *environment) fenceVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify lakefs://REPOSITORY/BRANCH",
		Short: "Prove that the hard fence of a branch holds",
		Long: `Looks at the action file in the head of the branch, and proves that lakeFS asks it: on
a hidden branch cut from that head it sends one merge that must be refused and one
that must be accepted. The branch itself is not touched, and the hidden one is
deleted. Hooks of other actions in the repository see these merges too.

It ends with exit code 1 and one sentence when the file is missing, is of another
version, was edited or runs for some branches only, and when lakeFS has its actions
switched off.` + variables(lakefs.Config{}),
		Example: `  perago fence verify lakefs://my-repo/main`,
		Args:    oneBranch,
		RunE: func(command *cobra.Command, arguments []string) error {
			return e.runFenceVerify(command.Context(), arguments[0])
		},
	}
}

func (e *environment) fenceRemove() *cobra.Command {
	var yes bool
	command := &cobra.Command{
		Use:   "remove lakefs://REPOSITORY/BRANCH",
		Short: "Take the hard fence out of a branch",
		Long: `Takes the action file out of the branch, whatever its version, and leaves everything
else in ` + txn.ActionsPrefix + ` and the branch protection as they are. What was staged before
still carries the file, and is still held to it.` + betweenRuns + variables(lakefs.Config{}),
		Example: `  perago fence remove lakefs://my-repo/main`,
		Args:    oneBranch,
		RunE: func(command *cobra.Command, arguments []string) error {
			return e.runFenceRemove(command, arguments[0], yes)
		},
	}
	command.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return command
}

func oneBranch(command *cobra.Command, arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("%s takes one address, such as lakefs://my-repo/main, but was given %d", command.CommandPath(), len(arguments))
	}
	return nil
}

func (e *environment) runFenceInstall(command *cobra.Command, address string, yes, protect bool) error {
	target, state, err := e.fenceTarget(command.Context(), address)
	if err != nil {
		return err
	}
	if state.Fault != nil && !state.Fault.Newer {
		if err := e.confirm(command, yes, target.Address()); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(command.Context(), e.timeout)
	defer cancel()
	change, err := target.Install(ctx, fence.Options{Protect: protect})
	if err != nil {
		return err
	}
	report := reportOf(target, change)
	report.Version = fence.Version
	protection := "-"
	if protect {
		report.Protection = "unchanged"
		if change.Protected {
			report.Protection = "added"
		}
		protection = report.Protection
	}
	if e.out.format == formatJSON {
		return e.out.json(report)
	}
	return e.out.rows([]string{"BRANCH", "FENCE", "PROTECTION", "HEAD"}, [][]string{{target.Address(), report.Fence, protection, string(report.Head)}})
}

func (e *environment) runFenceVerify(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	target, _, err := e.fenceTarget(ctx, address)
	if err != nil {
		return err
	}
	verified, err := target.Verify(ctx)
	if err != nil {
		return err
	}
	report := reportOf(target, fence.Change{Action: "holds", Head: verified.Head})
	report.Version, report.Refused = verified.Version, verified.Refused
	if e.out.format == formatJSON {
		return e.out.json(report)
	}
	return e.out.rows([]string{"BRANCH", "FENCE", "VERSION", "HEAD"}, [][]string{{target.Address(), report.Fence, fmt.Sprint(report.Version), string(report.Head)}})
}

func (e *environment) runFenceRemove(command *cobra.Command, address string, yes bool) error {
	target, state, err := e.fenceTarget(command.Context(), address)
	if err != nil {
		return err
	}
	if state.Present {
		if err := e.confirm(command, yes, target.Address()); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(command.Context(), e.timeout)
	defer cancel()
	change, err := target.Remove(ctx)
	if err != nil {
		return err
	}
	report := reportOf(target, change)
	if e.out.format == formatJSON {
		return e.out.json(report)
	}
	return e.out.rows([]string{"BRANCH", "FENCE", "HEAD"}, [][]string{{target.Address(), report.Fence, string(report.Head)}})
}

// fenceTarget is the branch of an address, and what stands in its head.
func (e *environment) fenceTarget(ctx context.Context, address string) (fence.Target, fence.State, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	fail := func(err error) (fence.Target, fence.State, error) { return fence.Target{}, fence.State{}, err }
	repository, branch, err := parseAddress(address)
	if err != nil {
		return fail(err)
	}
	var settings struct{ LakeFS lakefs.Config }
	if err := e.configure(&settings); err != nil {
		return fail(err)
	}
	lake, err := lakefs.New(settings.LakeFS, nil)
	if err != nil {
		return fail(err)
	}
	execution, err := config.NewExecutionID()
	if err != nil {
		return fail(err)
	}
	target := fence.Target{Lake: lake, Repository: repository, Branch: branch, Execution: execution}
	state, err := target.State(ctx)
	if errors.Is(err, txn.ErrNotFound) {
		return fail(missing(ctx, lake, repository, branch))
	}
	if err != nil {
		return fail(err)
	}
	return target, state, nil
}

// fenceReport is the result for programs.
type fenceReport struct {
	Repository txn.Repository `json:"repository"`
	Branch     txn.Branch     `json:"branch"`
	Fence      string         `json:"fence"`
	Version    int            `json:"version,omitempty"`
	Head       txn.CommitID   `json:"head"`
	Before     txn.CommitID   `json:"before,omitempty"`
	Protection string         `json:"protection,omitempty"`
	Refused    string         `json:"refused,omitempty"`
}

func reportOf(target fence.Target, change fence.Change) fenceReport {
	return fenceReport{
		Repository: target.Repository, Branch: target.Branch, Fence: string(change.Action), Head: change.Head, Before: change.Before,
	}
}

// confirm asks a person at a terminal whether the head of a branch may be moved.
// Where nobody can be asked, --yes has to say so.
func (e *environment) confirm(command *cobra.Command, yes bool, address string) error {
	if yes {
		return nil
	}
	moves := fmt.Sprintf("%s moves the head of %s, and the publications of workflows that are running on it are then refused", command.CommandPath(), address)
	in := command.InOrStdin()
	if file, ok := in.(*os.File); !ok || !term.IsTerminal(int(file.Fd())) {
		return fmt.Errorf("%s; do it between runs, and give --yes", moves)
	}
	fmt.Fprintf(e.stderr, "%s.\nGo on? [y/N] ", moves)
	answered := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(in).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			line = ""
		}
		answered <- line
	}()
	select {
	case <-command.Context().Done():
		return command.Context().Err()
	case line := <-answered:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return errors.New("not confirmed; nothing was changed")
	}
}
