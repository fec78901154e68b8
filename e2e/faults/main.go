package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"perago/e2e/fleet"
	"perago/pkg/conductor/conductortest"
)

// options are what can be chosen of a run.
type options struct {
	crash bool
	// soft leaves the hard fence out.
	soft bool
	// seed orders the cases, and draws the sample.
	seed uint64
	// sample is how many cases are run, 0 is all.
	sample int
	// pairs is how many runs have two faults.
	pairs int
	only  *regexp.Regexp
	lanes int
	// binaries is the folder that the workers were built into.
	binaries string
	verbose  bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.crash, "crash", false, "kill the worker at each request in place of the faults")
	flags.BoolVar(&o.soft, "soft", false, "without the hard fence: what lands late is then a violation")
	flags.Uint64Var(&o.seed, "seed", rand.Uint64()>>32, "the order of the cases")
	flags.IntVar(&o.sample, "sample", 0, "how many cases, drawn by the seed; 0 is all")
	flags.IntVar(&o.pairs, "pairs", 100, "how many cases with two faults, drawn by the seed")
	only := flags.String("only", "", "run only the cases whose name matches this `regexp`")
	flags.IntVar(&o.lanes, "lanes", 6, "how many cases at once")
	flags.BoolVar(&o.verbose, "v", false, "print each case")
	memory := flags.String("memory", "", "the memory `server` of the tests in place of the real one: conductor, lakefs or both")
	manner := flags.String("manner", string(conductortest.V3_15_0), "the `version` of Conductor in whose manner the memory server is")
	flags.StringVar(&o.binaries, "binaries", "", "the `folder` that the workers have been built into; they are built when it is empty")
	race := flags.Bool("race", false, "build the workers with the race detector")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		fmt.Fprintln(stderr, "faults:", err)
		return 2
	}
	if o.binaries == "" {
		if o.binaries, err = os.MkdirTemp("", "perago-faults-"); err != nil {
			fmt.Fprintln(stderr, "faults:", err)
			return 1
		}
		defer os.RemoveAll(o.binaries)
		if err := fleet.Build(ctx, o.binaries, *race); err != nil {
			fmt.Fprintln(stderr, "faults:", err)
			return 1
		}
	}
	servers, stop, err := serversOf(*memory, conductortest.Version(*manner))
	if err != nil {
		fmt.Fprintln(stderr, "faults:", err)
		return 1
	}
	defer stop()
	began := time.Now()
	summary, err := runAll(ctx, servers, o, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "faults:", err)
		return 1
	}
	fmt.Fprintf(stdout, "seed %d, %d requests, %d cases took another attempt, the sweep found %d branches, %s\n",
		o.seed, summary.requests, summary.retried, summary.left, time.Since(began).Round(time.Second))
	fmt.Fprintln(stdout, summary.line(o.crash))
	if len(summary.problems) > 0 {
		return 1
	}
	return 0
}
