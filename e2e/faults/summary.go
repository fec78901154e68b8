package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"perago/e2e/stack"
	"perago/pkg/txn"
)

// summary is what a run came to.
type summary struct {
	requests                 int
	cases, recovered, closed int
	// retried is how many took more than one attempt at a task, left how many
	// branches the sweep found.
	retried, left int
	problems      []problem
}

func (s *summary) count(kind trouble) int {
	n := 0
	for _, p := range s.problems {
		if p.kind == kind {
			n++
		}
	}
	return n
}

// line is the last one of a run.
func (s *summary) line(crash bool) string {
	if !crash {
		return fmt.Sprintf("faults: %d cases, %d violations, %d recovered, %d failed closed", s.cases, len(s.problems), s.recovered, s.closed)
	}
	line := fmt.Sprintf("crash: %d kill points, %d lost, %d duplicated", s.cases, s.count(lost), s.count(duplicated))
	if n := s.count(violation); n > 0 {
		line += fmt.Sprintf(", %d other violations", n)
	}
	return line
}

// fewestRequests is how many requests the chain has at least: a recording that
// missed some would test less and look green.
const fewestRequests = 54

// runAll runs the cases, spread over the lanes.
func runAll(ctx context.Context, servers stack.Servers, o options, out io.Writer) (*summary, error) {
	dir, err := os.MkdirTemp("", "perago-faults-lanes-")
	if err != nil {
		return nil, err
	}
	if err := register(ctx, servers); err != nil {
		return nil, err
	}
	r := &runner{options: o, servers: servers, dir: dir, out: out}
	if err := r.run(ctx); err != nil {
		return nil, fmt.Errorf("%w (the workers' logs are in %s)", err, dir)
	}
	if len(r.problems) == 0 {
		return &r.summary, os.RemoveAll(dir)
	}
	fmt.Fprintf(out, "the workers' logs are in %s\n", dir)
	return &r.summary, nil
}

// runner collects what the lanes do.
type runner struct {
	options options
	servers stack.Servers
	dir     string
	out     io.Writer

	mu sync.Mutex
	summary
}

func (r *runner) run(ctx context.Context) error {
	first, err := newLane(ctx, "0", false, r.servers, r.options, r.dir)
	if err != nil {
		return err
	}
	requests, err := r.record(ctx, first)
	if err != nil {
		first.close()
		return err
	}
	r.requests = len(requests)
	if r.options.verbose {
		for _, request := range requests {
			fmt.Fprintln(r.out, request)
		}
	}
	random := rand.New(rand.NewPCG(r.options.seed, 0))
	all := plan(requests, r.options.pairs, random)
	if r.options.crash {
		all = kills(requests, random)
	}
	cases := r.choose(all, random)
	expected := len(cases)
	if r.requests < fewestRequests {
		r.trouble("the chains have %d requests, and must have %d at least", r.requests, fewestRequests)
	}

	if err := r.spread(ctx, first, cases); err != nil {
		return err
	}
	if r.cases < expected {
		r.trouble("%d cases ran, and there are %d", r.cases, expected)
	}
	if r.recovered == 0 {
		r.trouble("nothing was published")
	}
	return ctx.Err()
}

// spread runs the cases in as many lanes at once as there are to be. Cases in
// which Conductor tries nothing twice have a lane of their own.
func (r *runner) spread(ctx context.Context, first *lane, cases []planned) error {
	queues := map[bool]chan planned{false: make(chan planned, len(cases)), true: make(chan planned, len(cases))}
	for _, p := range cases {
		queues[p.once] <- p
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var lanes sync.WaitGroup
	var errs []error
	begin := func(i int, once bool) {
		lanes.Go(func() {
			err := r.lane(ctx, first, i, once, queues[once])
			if err == nil {
				return
			}
			cancel()
			r.mu.Lock()
			defer r.mu.Unlock()
			errs = append(errs, err)
		})
	}
	for _, queue := range queues {
		close(queue)
	}
	begin(r.options.lanes, true)
	// The first lane is there already, and is swept also when it has no case.
	for i := range r.options.lanes {
		begin(i, false)
	}
	lanes.Wait()
	return errors.Join(errs...)
}

func (r *runner) lane(ctx context.Context, first *lane, i int, once bool, queue <-chan planned) error {
	l := first
	if i > 0 {
		if len(queue) == 0 {
			return nil
		}
		var err error
		if l, err = newLane(ctx, fmt.Sprint(i), once, r.servers, r.options, r.dir); err != nil {
			return err
		}
	}
	defer l.close()
	return r.serve(ctx, l, queue)
}

// recordings is how often each flow is recorded. On a busy machine a worker asks more
// often whether its task is still its own, and polls more often; a fault that waits for
// such a request would wait in vain in a run that is quicker.
const recordings = 3

// record runs each flow as it is and gives the requests that each of its recordings
// has. Of a later flow only those count that no earlier one has.
func (r *runner) record(ctx context.Context, l *lane) ([]request, error) {
	var all []request
	for _, of := range flows {
		var requests []request
		for n := range recordings {
			recorded, err := l.clean(ctx, of)
			if err != nil {
				return nil, err
			}
			if n == 0 {
				requests = recorded
			}
			requests = slices.DeleteFunc(requests, func(r request) bool { return !slices.Contains(recorded, r) })
		}
		all = append(all, without(requests, all)...)
	}
	return all, nil
}

// choose orders the cases by the seed and draws the sample.
func (r *runner) choose(all []planned, random *rand.Rand) []planned {
	var cases []planned
	for _, p := range all {
		if r.options.only.MatchString(p.String()) {
			cases = append(cases, p)
		}
	}
	random.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
	if n := r.options.sample; n > 0 && n < len(cases) {
		cases = cases[:n]
	}
	return cases
}

// serve runs a lane's share of the cases.
func (r *runner) serve(ctx context.Context, l *lane, queue <-chan planned) error {
	for p := range queue {
		got, err := l.run(ctx, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		r.add(got)
	}
	left, still, err := l.swept(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.left += left
	r.mu.Unlock()
	if len(still) > 0 {
		r.trouble("the sweep leaves %v", still)
	}
	for _, text := range l.races() {
		r.trouble("%s", text)
	}
	return nil
}

func (r *runner) trouble(format string, arguments ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := problem{violation, fmt.Sprintf(format, arguments...)}
	r.problems = append(r.problems, p)
	fmt.Fprintf(r.out, "%s: %s\n", p.kind, p.text)
}

func (r *runner) add(got outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cases++
	if got.completed {
		r.recovered++
	} else {
		r.closed++
	}
	if slices.ContainsFunc(got.workflow.Tasks, func(t txn.Task) bool { return t.RetryCount > 0 }) {
		r.retried++
	}
	r.problems = append(r.problems, got.problems...)
	if r.options.verbose || len(got.problems) > 0 {
		fmt.Fprintf(r.out, "%s: %s after %s, %d tries\n", got.planned, got.workflow.Status, got.took.Round(10*1e6), len(got.workflow.Tasks))
	}
	for _, p := range got.problems {
		fmt.Fprintf(r.out, "  %s: %s\n", p.kind, strings.ReplaceAll(p.text, "\n", "\n  "))
	}
	if len(got.problems) > 0 {
		fmt.Fprintf(r.out, "  %s\n%s  again: -seed %d -only '^%s$'\n", strings.ReplaceAll(describe(got.workflow), "\n", "\n  "), got.log, r.options.seed, quoted(got.planned.String()))
	}
}

func quoted(name string) string { return regexp.QuoteMeta(name) }
