package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"perago/pkg/conductor"
	"perago/pkg/config"
	"perago/pkg/definition"
	"perago/pkg/doctor"
	"perago/pkg/fence"
	"perago/pkg/lakefs"
	"perago/pkg/txn"
)

var (
	_ doctor.Conductor = (*conductor.Client)(nil)
	_ doctor.Lake      = (*lakefs.Client)(nil)
)

// doctorConfig is what doctor reads of the environment.
type doctorConfig struct {
	Conductor conductor.Config
	LakeFS    lakefs.Config
	Scope     doctorScope
	Fence     lintFence
	TTL       sweepTTL
}

type doctorScope struct {
	AllowedRepositories []string `env:"PERAGO_ALLOWED_REPOSITORIES" desc:"As the workers have it; where it names repositories, nobody needs to list them"`
	config.ConductorName
}

type doctorOptions struct {
	only, without, workers []string
	policy                 string
	prefix, storage        string
	verify                 bool
}

func (e *environment) doctor() *cobra.Command {
	var options doctorOptions
	var checks strings.Builder
	for _, check := range doctor.Checks() {
		fmt.Fprintf(&checks, "  %-15s %s\n", check.Check, check.About)
	}
	command := &cobra.Command{
		Use:   "doctor [lakefs://REPOSITORY/BRANCH...]",
		Short: "Say what is wrong with an installation, and what to do",
		Long: `Looks at both servers, at what is registered, and at the branches that are given, which
are those that workflows publish to. It prints a line for each check: whether it holds,
what is wrong, and what to do. It changes nothing; --verify-fence alone makes and deletes
a hidden branch, as perago fence verify does.

Run it with the environment of a worker. lakeFS is asked for each action of the workers'
policies, with requests that name what is not there, so that nothing comes of them. Where
each worker has a key of its own, run it with each, and say with --for whose it is.
--policy prints the policy of a worker for a branch.

Checks:
` + checks.String() + `
A check that could not be made is "unknown", and never counts as healthy. It ends with
exit code 1 when there is an error or something is unknown; a warning is no failure.` + variables(doctorConfig{}),
		Example: `  perago doctor lakefs://my-repo/main
  perago doctor lakefs://my-repo/main --for publish --only lakefs,permissions
  perago doctor lakefs://my-repo/main --policy stage --prefix models/ > stage_policy.json`,
		RunE: func(command *cobra.Command, addresses []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), e.timeout)
			defer cancel()
			return e.runDoctor(ctx, options, addresses)
		},
	}
	flags := command.Flags()
	flags.StringSliceVar(&options.only, "only", nil, "make these `checks` alone")
	flags.StringSliceVar(&options.without, "without", nil, "leave out these `checks`")
	flags.StringSliceVar(&options.workers, "for", nil, "whose key it is: `workers` among stage, publish and cleanup (default all)")
	flags.StringVar(&options.prefix, "prefix", "", "`prefix` of the steps, where the stage worker's key may write nothing else")
	flags.StringVar(&options.storage, "import", "", "beginning of the object-store `addresses` that workflows import from, if they do")
	flags.StringVar(&options.policy, "policy", "", "print the policy of this `worker` for the branch, and look at nothing")
	flags.BoolVar(&options.verify, "verify-fence", false, "prove the hard fence with probe merges on a hidden branch")
	return command
}

func (e *environment) runDoctor(ctx context.Context, options doctorOptions, addresses []string) error {
	leftOut, workers, err := options.check()
	if err != nil {
		return err
	}
	var targets []doctor.Address
	for _, address := range addresses {
		repository, branch, err := parseAddress(address)
		if err != nil {
			return err
		}
		target := doctor.Address{Repository: repository, Branch: branch}
		if !slices.Contains(targets, target) {
			targets = append(targets, target)
		}
	}
	if options.policy != "" {
		return e.printPolicy(options, targets)
	}
	var config doctorConfig
	if err := e.configure(&config); err != nil {
		return err
	}
	conductorClock, lakeClock := newClockReader(), newClockReader()
	server, err := conductor.New(config.Conductor, conductorClock)
	if err != nil {
		return err
	}
	defer server.CloseIdleConnections()
	lake, err := lakefs.New(config.LakeFS, lakeClock)
	if err != nil {
		return err
	}
	defer lakeClock.CloseIdleConnections()
	identity := config.Scope.Identity(config.Conductor.ServerURL)
	allowed := config.Scope.AllowedRepositories
	facts := doctor.Gather(ctx, doctor.Patient{
		Conductor: server, Lake: lake, Definitions: registered{server}, Fences: fences{lake, options.verify},
		ConductorClock: conductorClock.read, LakeClock: lakeClock.read, Now: time.Now,
	}, doctor.Request{
		Settings: doctor.Settings{
			ConductorID: config.Scope.ConductorID, Identity: identity, TTL: config.TTL.TTL, RequireHardFence: config.Fence.Require,
			NamedRepositories: len(allowed) > 0 && !slices.Contains(allowed, "*"),
		},
		Conductor: config.Conductor.ServerURL, LakeFS: config.LakeFS.Endpoint, Targets: targets,
		Workers: workers, Prefix: options.prefix, Storage: options.storage, LeftOut: leftOut,
	})
	return e.printDiagnosis(doctor.Diagnose(facts, leftOut))
}

// check gives the checks that are left out, and the workers whose key it is.
func (o doctorOptions) check() (leftOut []doctor.Check, workers []doctor.Worker, err error) {
	var names []string
	for _, check := range doctor.Checks() {
		name := string(check.Check)
		names = append(names, name)
		if len(o.only) > 0 && !slices.Contains(o.only, name) || slices.Contains(o.without, name) {
			leftOut = append(leftOut, check.Check)
		}
	}
	for _, of := range []struct {
		flag  string
		given []string
	}{{"--only", o.only}, {"--without", o.without}} {
		for _, name := range of.given {
			if !slices.Contains(names, name) {
				return nil, nil, fmt.Errorf("%s is %q; the checks are %s", of.flag, name, strings.Join(names, ", "))
			}
		}
	}
	workers = doctor.Workers()
	if len(o.workers) > 0 {
		workers = nil
	}
	for _, name := range o.workers {
		if !slices.Contains(doctor.Workers(), doctor.Worker(name)) {
			return nil, nil, fmt.Errorf("--for is %q; the workers are stage, publish and cleanup", name)
		}
		workers = append(workers, doctor.Worker(name))
	}
	return leftOut, workers, nil
}

func (e *environment) printPolicy(options doctorOptions, targets []doctor.Address) error {
	if len(targets) != 1 {
		return fmt.Errorf("--policy takes one branch, such as lakefs://my-repo/main, but was given %d", len(targets))
	}
	text, err := doctor.Policy(doctor.Worker(options.policy), doctor.Scope{
		Repository: targets[0].Repository, Branch: targets[0].Branch, Prefix: options.prefix, Storage: options.storage,
	})
	if err != nil {
		return err
	}
	_, err = e.out.to.Write(text)
	return err
}

func (e *environment) printDiagnosis(findings []doctor.Finding) error {
	counts := map[doctor.State]int{}
	for i := range findings {
		counts[findings[i].State]++
		// An answer of a server may say what it was asked with.
		findings[i].What, findings[i].Do = e.sentence(errors.New(findings[i].What)), e.sentence(errors.New(findings[i].Do))
	}
	var err error
	if e.out.format == formatJSON {
		err = e.out.json(struct {
			Errors   int              `json:"errors"`
			Warnings int              `json:"warnings"`
			Unknown  int              `json:"unknown"`
			LeftOut  int              `json:"left_out"`
			Findings []doctor.Finding `json:"findings"`
		}{counts[doctor.Error], counts[doctor.Warning], counts[doctor.Unknown], counts[doctor.LeftOut], findings})
	} else {
		var rows [][]string
		for _, f := range findings {
			rows = append(rows, []string{string(f.State), string(f.Check), printable(f.Subject), printable(f.What), printable(f.Do)})
		}
		err = e.out.rows([]string{"STATE", "CHECK", "SUBJECT", "WHAT", "WHAT TO DO"}, rows)
	}
	if err == nil && counts[doctor.Error]+counts[doctor.Unknown] > 0 {
		err = fmt.Errorf("%s, %s, and %s could not be made", count(counts[doctor.Error], "error", "errors"),
			count(counts[doctor.Warning], "warning", "warnings"), count(counts[doctor.Unknown], "check", "checks"))
	}
	return err
}

// registered compares what a Conductor has with what is shipped.
type registered struct{ server *conductor.Client }

func (r registered) Compare(ctx context.Context) ([]doctor.Definition, error) {
	definitions, err := shipped(false)
	if err != nil {
		return nil, err
	}
	changes, err := definition.Plan(ctx, r.server, definitions)
	var all []doctor.Definition
	for _, change := range changes {
		name := txn.TaskType(change.Definition.Name)
		one := doctor.Definition{
			Name: change.Definition.Name, Missing: change.Action == definition.Created,
			Optional: change.Definition.Kind == definition.Task && name.IsCheckout(),
		}
		for _, difference := range change.Differences {
			if !name.IsPublish() || !tuned(difference.Path) {
				one.Differences = append(one.Differences, difference.String())
			}
		}
		all = append(all, one)
	}
	return all, err
}

// tuned reports whether a field of the publish TaskDef is the operator's to set.
func tuned(path string) bool {
	return path == "responseTimeoutSeconds" || path == "inputTemplate.budget" || strings.HasPrefix(path, "inputTemplate.budget.")
}

func (r registered) Rules(ctx context.Context, names []txn.TaskType) ([]doctor.Broken, error) {
	var all []doctor.Broken
	for _, name := range names {
		raw, err := r.server.RawTaskDefinition(ctx, name)
		if err != nil {
			return nil, err
		}
		definitions, err := definition.Parse(string(name), raw)
		if err != nil {
			return nil, err
		}
		for _, finding := range definition.Lint(definitions, nil) {
			all = append(all, doctor.Broken{Name: string(name), What: finding.Path + " " + finding.What, Do: finding.Do + ", and register it"})
		}
	}
	return all, nil
}

// fences looks at hard fences, and proves them where it is asked to.
type fences struct {
	lake   *lakefs.Client
	verify bool
}

// fenceHistory is how many commits are looked through for publications that
// lakeFS asked the fence about.
const fenceHistory = 100

func (f fences) Fence(ctx context.Context, at doctor.Address, head txn.CommitID) (doctor.Fence, error) {
	execution, err := config.NewExecutionID()
	if err != nil {
		return doctor.Fence{}, err
	}
	target := fence.Target{Lake: f.lake, Repository: at.Repository, Branch: at.Branch, Execution: execution}
	state, err := target.State(ctx)
	switch {
	case err != nil:
		return doctor.Fence{}, err
	case state.Fault != nil:
		return doctor.Fence{Found: state.Fault.Found, Mend: state.Fault.Mend}, nil
	}
	if f.verify {
		_, err := target.Verify(ctx)
		return doctor.Fence{Verified: err == nil, Fault: err}, nil
	}
	commits, _, err := f.lake.WholeHistory(ctx, at.Repository, head, fenceHistory)
	if err != nil {
		return doctor.Fence{}, err
	}
	return doctor.Fence{Held: fence.Prover{Lake: f.lake}.Proven(ctx, at.Repository, at.Branch, head, commits)}, nil
}

// clockReader is a transport that reads the clock of the server from the dates of
// its answers.
type clockReader struct {
	base  *http.Transport
	mu    sync.Mutex
	clock doctor.Clock
}

func newClockReader() *clockReader {
	return &clockReader{base: http.DefaultTransport.(*http.Transport).Clone()}
}

func (c *clockReader) RoundTrip(request *http.Request) (*http.Response, error) {
	sent := time.Now()
	response, err := c.base.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	took := time.Since(sent)
	// A date is in whole seconds, cut.
	const cut = time.Second
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		clock := doctor.Clock{Seen: true, Ahead: date.Add(cut / 2).Sub(sent.Add(took / 2)), Within: (cut + took) / 2}
		c.mu.Lock()
		if !c.clock.Seen || clock.Within < c.clock.Within {
			c.clock = clock
		}
		c.mu.Unlock()
	}
	return response, nil
}

func (c *clockReader) CloseIdleConnections() { c.base.CloseIdleConnections() }

func (c *clockReader) read() doctor.Clock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock
}
