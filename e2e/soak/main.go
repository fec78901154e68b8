package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"perago/e2e/fleet"
	"perago/e2e/stack"
)

// options are what can be chosen of a run.
type options struct {
	duration time.Duration
	seed     uint64
	replicas int
	memory   string
	store    string
	soft     bool
	blind    bool
	// binaries is the folder that the workers were built into.
	binaries string
	// dir is where everything is written that a run writes; kept when it is named.
	dir string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fail := func(err error) int {
		fmt.Fprintln(stderr, "soak:", err)
		return 1
	}
	var o options
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.DurationVar(&o.duration, "duration", 20*time.Minute, "how long new workflows are started")
	flags.Uint64Var(&o.seed, "seed", rand.Uint64()>>32, "what the nemesis, the operator and the user's tasks draw from")
	flags.IntVar(&o.replicas, "replicas", 3, "how many processes of each worker")
	flags.StringVar(&o.memory, "memory", "", "the memory `server` of the tests in place of the real one: conductor or both; nothing is restarted then")
	flags.StringVar(&o.store, "store", string(stack.PostgreSQL), "where Conductor keeps what it has: PostgreSQL or Redis")
	flags.BoolVar(&o.soft, "soft", false, "without the hard fence: there must be violations")
	flags.BoolVar(&o.blind, "blind", false, "with a parent check that sees nothing")
	flags.StringVar(&o.binaries, "binaries", "", "the `folder` that the workers have been built into; they are built when it is empty")
	flags.StringVar(&o.dir, "dir", "", "the `folder` for the logs and all data; a temporary one, removed unless there is a violation, when it is empty")
	race := flags.Bool("race", false, "build the workers with the race detector")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if o.replicas < 1 || flags.NArg() > 0 || o.memory != "" && o.memory != "conductor" && o.memory != "both" {
		fmt.Fprintln(stderr, "soak: -replicas is at least 1, -memory is conductor or both, and there are no arguments")
		return 2
	}
	temporary := o.dir == ""
	var err error
	if temporary {
		if o.dir, err = os.MkdirTemp("", "perago-soak-"); err != nil {
			return fail(err)
		}
		// As root, PostgreSQL runs as a user of its own, who has to come through.
		if err := os.Chmod(o.dir, 0o711); err != nil {
			return fail(err)
		}
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return fail(err)
	}
	if o.binaries == "" {
		o.binaries = filepath.Join(o.dir, "bin")
		if err := fleet.Build(ctx, o.binaries, *race); err != nil {
			return fail(err)
		}
	}
	s, err := newSoak(ctx, o, stdout, stderr)
	if err != nil {
		return fail(err)
	}
	verdict, err := s.run(ctx)
	s.close()
	if err != nil {
		fmt.Fprintln(stderr, "soak: what was written is in", o.dir)
		return fail(err)
	}
	verdict.print(stdout)
	if !verdict.clean() {
		fmt.Fprintln(stderr, "soak: what was written is in", o.dir)
		return 1
	}
	if temporary {
		if err := os.RemoveAll(o.dir); err != nil {
			return fail(err)
		}
	}
	return 0
}
