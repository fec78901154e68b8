// Command perago is the operator's command line.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"perago/pkg/conductor"
	"perago/pkg/config"
	"perago/pkg/lakefs"
	"perago/pkg/txn"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// The exit codes, as lakectl has them.
const (
	exitOK     = 0
	exitFailed = 1
)

// run is the program; arguments are without its name.
func run(ctx context.Context, arguments []string, lookup config.Lookup, stdout, stderr io.Writer) int {
	e := &environment{lookup: lookup, out: output{to: stdout}, stderr: stderr}
	root := e.root()
	root.SetArgs(arguments)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, "perago: "+e.sentence(err))
		return exitFailed
	}
	return exitOK
}

// environment is what every command works in.
type environment struct {
	lookup  config.Lookup
	out     output
	stderr  io.Writer
	timeout time.Duration
	// secrets are those of the configuration that was read.
	secrets []string
}

func (e *environment) root() *cobra.Command {
	root := &cobra.Command{
		Use:     "perago",
		Short:   "Publishes the files of Conductor workflows into lakeFS, whole or not at all",
		Long:    "perago is the operator's command line of perago, which publishes the files of Conductor\nworkflows into lakeFS, whole or not at all. It is configured by the same environment\nvariables as the workers; each command's help names those it needs.",
		Version: config.Version(),
		// What went wrong is one sentence, written in one place.
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(command *cobra.Command, _ []string) error {
			if e.timeout <= 0 {
				return fmt.Errorf("--timeout is %s; it must be more than 0", e.timeout)
			}
			return e.out.check()
		},
	}
	// lakectl runs what stands on PATH as lakectl-NAME for "lakectl NAME".
	if filepath.Base(os.Args[0]) == "lakectl-perago" {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "lakectl perago"}
	}
	root.SetVersionTemplate("perago {{.Version}}\n")
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, command.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVarP(&e.out.format, "output", "o", "", "`format` of the output: table, plain or json (default table on a terminal, else plain)")
	flags.DurationVar(&e.timeout, "timeout", 30*time.Second, "give up after this long")
	root.AddCommand(e.register(), e.lint(), e.insert(), e.ref(), e.log(), e.explain(), e.fence(), e.settle(), e.sweep(), e.budget(), e.doctor(), e.stage(), e.checkout())
	return root
}

// configure reads the part of the environment a command needs, given as pointers
// to the structs that hold it.
func (e *environment) configure(configurations ...any) (err error) {
	e.secrets, err = config.Read(e.lookup, configurations...)
	return err
}

// clients reach both servers.
func clients(server conductor.Config, lake lakefs.Config) (*conductor.Client, *lakefs.Client, error) {
	toConductor, err := conductor.New(server, nil)
	if err != nil {
		return nil, nil, err
	}
	toLake, err := lakefs.New(lake, nil)
	return toConductor, toLake, err
}

// variables lists for a command's help the environment variables it reads.
func variables(configurations ...any) string {
	text := "\n\nEnvironment:"
	for _, v := range config.Variables(configurations...) {
		required := ""
		if v.Required {
			required = " (required)"
		}
		text += fmt.Sprintf("\n  %s\n        %s%s", v.Name, v.Description, required)
	}
	return text
}

// sentence is the one place where an error becomes what people read: a single
// line that says what is wrong and holds no secret.
func (e *environment) sentence(err error) string {
	var faults *config.Error
	switch {
	case errors.As(err, &faults):
		var all []string
		for _, fault := range faults.Faults {
			all = append(all, fault.Error())
		}
		err = errors.New(strings.Join(all, "; "))
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w; given up after --timeout %s", err, e.timeout)
	case errors.Is(err, context.Canceled):
		err = fmt.Errorf("interrupted: %w", err)
	}
	return txn.Reason(err, 0, e.secrets...)
}
