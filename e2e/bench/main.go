// Command bench measures staging and publishing against other ways to do the
// same, each as a process of its own, one after another in every round, on a
// lakeFS and a Conductor that it starts. It prints a line for each figure:
//
//	bench NAME ratio=X ours=V other=V peer=NAME n=ROUNDS spread=LOW-HIGH
//
// ratio is the median throughput of ours over the peer's in the same run: above 1
// ours is faster. spread is the ratio of each round. The figures with a goal say
// so. Before them stands where each contender's time went:
//
//	bench NAME cpu=CONTENDER took=S lakefs=S conductor=S client=S
//
// in seconds of one run, medians: how long it took, and the processor time of
// lakeFS with the server of its objects, of Conductor, and of the contender with
// its workers. See docs/performance.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"perago/e2e/stack"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == childFlag {
		if len(os.Args) == 3 && os.Args[2] == "empty" {
			os.Exit(empty())
		}
		if err := child(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one run of the measurements.
type bench struct {
	out     io.Writer
	servers stack.Servers
	// running are the processes whose processor time is reported.
	running processes
	lake    lake
	// store is where repositories have their data.
	store   string
	lakectl string
	rclone  string
	rounds  int
	// profiles is where each staging of ours leaves a CPU profile; nowhere when it is
	// empty.
	profiles string
	// dir holds the data; scale divides the sizes, for a quick look.
	dir   string
	scale int
	// million is how many files the scenario of that name has, and millionLakectl how
	// many of them lakectl gets.
	million, millionLakectl int
}

func run(ctx context.Context, arguments []string, out io.Writer) (err error) {
	b := &bench{out: out, store: "local://"}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&b.lakectl, "lakectl", "", "lakectl's `file`; the one that belongs to the tests' lakeFS when empty")
	flags.StringVar(&b.rclone, "rclone", "rclone", "rclone's `file`; empty leaves it out")
	flags.IntVar(&b.rounds, "rounds", 5, "how often each contender runs")
	flags.IntVar(&b.scale, "scale", 1, "divide the sizes by this: a quick look, not a result")
	flags.IntVar(&b.million, "million", 1_000_000, "how many files the scenario million has")
	flags.IntVar(&b.millionLakectl, "million-lakectl", 100_000, "how many of them lakectl gets at most")
	flags.StringVar(&b.profiles, "profile", "", "the `directory` for CPU profiles of what perago stages, for go tool pprof")
	store := flags.String("store", string(stack.PostgreSQL), "where Conductor keeps what it has: PostgreSQL or Redis")
	only := flags.String("only", "", "only the scenarios whose name matches this `regexp`")
	dir := flags.String("dir", "", "where the data goes; a temporary directory when empty")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if b.lakectl == "" {
		binaries, err := stack.Prefetch(ctx, os.Stderr)
		if err != nil {
			return err
		}
		b.lakectl = binaries.Lakectl
	}
	started, err := stack.Start(ctx, stack.Options{Progress: os.Stderr, Store: stack.Store(*store)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, started.Stop()) }()
	b.servers = started.Servers
	b.running = processes{lakefs: []int{started.LakeFS.Pid()}, conductor: []int{started.Conductor.Pid()}}
	if b.dir, err = os.MkdirTemp(*dir, "perago-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if b.lake, err = newLake(b.servers); err != nil {
		return err
	}
	ran := 0
	for _, scenario := range scenarios {
		if !wanted.MatchString(scenario.name) {
			continue
		}
		ran++
		began := time.Now()
		if err := scenario.run(ctx, b, scenario.name); err != nil {
			return fmt.Errorf("%s: %w", scenario.name, err)
		}
		fmt.Fprintf(os.Stderr, "bench: %s took %s\n", scenario.name, time.Since(began).Round(time.Second))
	}
	if ran == 0 {
		return fmt.Errorf("no scenario is called like %q", *only)
	}
	return nil
}

// scenarios in the order in which they run.
var scenarios = []struct {
	name string
	run  func(ctx context.Context, b *bench, name string) error
}{
	{"small", small},
	{"medium", medium},
	{"large", large},
	{"six-gib", sixGiB},
	{"edited", edited},
	{"million", million},
	{"presigned-small", presignedSmall},
	{"presigned-medium", presignedMedium},
	{"import", importSmall},
	{"import-medium", importMedium},
	{"history", longHistory},
	{"changes", manyChanges},
	{"step", wholeStep},
	{"scale", scaled},
}

// contender is one way to do the work of a scenario.
type contender struct {
	name string
	// goal is the ratio that ours should reach over it; 0 for none.
	goal float64
	// run does it once and gives how long it took.
	run func(ctx context.Context) (time.Duration, error)
}

// compare runs ours and its peers by turns and prints a line for each peer.
// amount is how much work one run is, in units a second.
func (b *bench) compare(ctx context.Context, name string, amount float64, unit string, ours contender, peers ...contender) error {
	times, spent := map[string][]time.Duration{}, map[string][]usage{}
	all := append([]contender{ours}, peers...)
	for round := range b.rounds {
		// Nobody is always the first one, or always after the same one.
		for i := range all {
			c := all[(i+round)%len(all)]
			took, used, err := b.measure(ctx, c)
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, c.name, err)
			}
			times[c.name], spent[c.name] = append(times[c.name], took), append(spent[c.name], used)
		}
	}
	for _, c := range all {
		fmt.Fprintf(b.out, "bench %s cpu=%s %s\n", name, word(c.name), describe(spent[c.name]))
	}
	own := times[ours.name]
	for _, peer := range peers {
		var ratios []float64
		for round, took := range times[peer.name] {
			ratios = append(ratios, took.Seconds()/own[round].Seconds())
		}
		line := fmt.Sprintf("bench %s ratio=%.2f ours=%.1f%s other=%.1f%s peer=%s n=%d spread=%.2f-%.2f", name,
			median(times[peer.name]).Seconds()/median(own).Seconds(),
			amount/median(own).Seconds(), unit, amount/median(times[peer.name]).Seconds(), unit,
			word(peer.name), b.rounds, slices.Min(ratios), slices.Max(ratios))
		if peer.goal > 0 {
			line += fmt.Sprintf(" goal=%.2f", peer.goal)
		}
		fmt.Fprintln(b.out, line)
	}
	return nil
}

// word is a contender's name as one word.
func word(name string) string { return strings.ReplaceAll(name, " ", "_") }

// measure runs a contender once. The large objects that it uploaded are dropped
// from lakeFS's store after it, for no later run reads them and the data of all
// rounds is more than the memory that it stands in.
func (b *bench) measure(ctx context.Context, c contender) (time.Duration, usage, error) {
	before, err := b.running.usage()
	if err != nil {
		return 0, usage{}, err
	}
	took, err := c.run(ctx)
	if err != nil {
		return 0, usage{}, err
	}
	after, err := b.running.usage()
	if err != nil {
		return 0, usage{}, err
	}
	const large = 128 * kib
	return took, after.since(before), filepath.WalkDir(b.servers.BlocksDir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "_lakefs" || strings.HasPrefix(entry.Name(), existing)):
			return filepath.SkipDir // lakeFS's own files, and those that are imported
		case entry.IsDir():
			return nil
		}
		info, err := entry.Info()
		if err != nil || info.Size() < large {
			return err
		}
		return os.Remove(path)
	})
}

// best is of several contenders the one with the shortest median, under a name
// of its own: a peer at its best setting.
func (b *bench) best(ctx context.Context, name string, goal float64, candidates ...contender) (contender, error) {
	var winner contender
	var shortest time.Duration
	for _, c := range candidates {
		var all []time.Duration
		for range 3 {
			took, _, err := b.measure(ctx, c)
			if err != nil {
				return contender{}, fmt.Errorf("%s: %w", c.name, err)
			}
			all = append(all, took)
		}
		if m := median(all); winner.run == nil || m < shortest {
			winner, shortest = c, m
		}
	}
	return contender{name: name + " at " + winner.name, goal: goal, run: winner.run}, nil
}

func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)/2]
}
