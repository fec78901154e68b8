package worker

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"perago/pkg/config"
	"perago/pkg/credential"
	"perago/pkg/telemetry"
	"perago/pkg/txn"
)

// The exit codes of a worker process.
const (
	// ExitDrained is an orderly end after a stop.
	ExitDrained = 0
	// ExitFailed is any other end.
	ExitFailed = 1
	// ExitConfiguration is a configuration that cannot be used, or a wrong flag.
	ExitConfiguration = 2
)

// Program is what differs from one worker binary to the next. C is the struct of
// its own configuration: the adapters' and the use case's structs as fields.
type Program[C any] struct {
	// Name is the binary's name.
	Name string
	// Summary is one sentence for -h.
	Summary string
	// TaskTypes is the default of PERAGO_TASK_TYPES.
	TaskTypes []txn.TaskType
	// HTTPAddr is the default of PERAGO_HTTP_ADDR: another one for each binary, so
	// that one of each can run on a host as they are.
	HTTPAddr string
	// Build makes the parts from the configuration. It is the one place that may
	// see adapters and use cases together, and it sends nothing: a server that is
	// down is a failing Check, not an error. An error ends the process; a
	// *config.Error as a fault of the configuration.
	Build func(ctx context.Context, process *Process, config *C) (Parts, error)
}

// Process is what Build may use of the process it builds for.
type Process struct {
	Config  Config
	Worker  txn.WorkerID
	Log     *slog.Logger
	Metrics *telemetry.Metrics
	// Redactor knows the secrets of the configuration; a secret read later is
	// added to it.
	Redactor *telemetry.Redactor
}

// Renewed is told of the keys that the process takes up for a server after it
// refused the old ones.
func (p *Process) Renewed(server string) func(credential.Shown) {
	return func(now credential.Shown) {
		p.Redactor.Add(now.Secret.Reveal())
		p.Log.Info("a key was refused: its files hold a new one, which is used from now on", slog.String(telemetry.KeyServer, server))
	}
}

// Swept logs and counts how a background sweep ended. A sweep that a stop ended
// did not fail: the next process sweeps.
func (p *Process) Swept(ctx context.Context, deleted, kept, failed int, err error) {
	if ctx.Err() != nil {
		return
	}
	p.Metrics.Swept(err)
	log := p.Log.With(slog.Int(telemetry.KeyDeleted, deleted), slog.Int(telemetry.KeyKept, kept), slog.Int(telemetry.KeyFailed, failed))
	if err != nil {
		log.Warn("sweep failed", slog.Any(telemetry.KeyError, err))
		return
	}
	log.Info("swept")
}

// Parts are what Build makes.
type Parts struct {
	Conductor Conductor
	// ConductorURL is the server's address as people write it.
	ConductorURL string
	// Handler gives the handler of a task type; nil for a type the binary does not
	// know, which is a fault of PERAGO_TASK_TYPES.
	Handler func(txn.TaskType) Handler
	// Checks are what must hold beside Conductor.
	Checks []Check
	// ProgressInterval is how often a task that takes long says how far it is; 0 is
	// never.
	ProgressInterval time.Duration
	// TaskLog is told as well, less often; may be nil.
	TaskLog TaskLog
	// Background runs beside the tasks until ctx ends at a stop, such as a sweep.
	Background []func(ctx context.Context)
	// Close is called when everything has ended; may be nil.
	Close func()
}

// Main runs a program as this process and exits: the first SIGINT or SIGTERM
// drains, the second ends at once.
func Main[C any](program Program[C]) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		first := <-signals
		cancel(fmt.Errorf("received %s", first))
		// The default action would do, but not for process 1 of a container,
		// which the kernel does not end by a signal it has no handler for.
		second := <-signals
		fmt.Fprintf(os.Stderr, "%s: received %s again, ending at once; running tasks come back after their response timeout\n", program.Name, second)
		os.Exit(ExitFailed)
	}()
	os.Exit(Run(ctx, program, os.LookupEnv, os.Args[1:], os.Stdout, os.Stderr))
}

// Run runs a program until ctx ends and the drain after it, and returns the exit
// code. arguments are without the program's name.
func Run[C any](ctx context.Context, program Program[C], lookup config.Lookup, arguments []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(program.Name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	showVersion := flags.Bool("version", false, "print the version and exit")
	flags.Usage = func() {}
	switch err := flags.Parse(arguments); {
	case errors.Is(err, flag.ErrHelp):
		program.help(stdout)
		return ExitDrained
	case err != nil:
		fmt.Fprintf(stderr, "%s -h lists the variables that configure it\n", program.Name)
		return ExitConfiguration
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "%s takes no arguments, but was given %q; it is configured by the environment (%s -h)\n", program.Name, flags.Args(), program.Name)
		return ExitConfiguration
	case *showVersion:
		fmt.Fprintln(stdout, program.Name, config.Version())
		return ExitDrained
	}

	var common Config
	own := new(C)
	secrets, err := config.Read(program.withDefaults(lookup), &common, own)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %s\n%s -h lists the variables\n", program.Name, txn.Redact(err.Error(), secrets...), program.Name)
		return ExitConfiguration
	}
	redactor := telemetry.NewRedactor(secrets...)
	log := telemetry.NewLogger(stderr, telemetry.LogFormat(common.LogFormat), common.LogLevel, redactor).
		With(slog.String(telemetry.KeyProgram, program.Name))
	if err := program.serve(ctx, common, own, redactor, log); err != nil {
		var faults *config.Error
		if errors.As(err, &faults) {
			fmt.Fprintf(stderr, "%s: %s\n%s -h lists the variables\n", program.Name, redactor.Text(err.Error()), program.Name)
			return ExitConfiguration
		}
		log.Error("ended", slog.Any(telemetry.KeyError, err))
		return ExitFailed
	}
	return ExitDrained
}

// serve builds the parts and runs them until the drain is over.
func (p Program[C]) serve(ctx context.Context, common Config, own *C, redactor *telemetry.Redactor, log *slog.Logger) error {
	worker, err := newWorkerID(common.WorkerIDPrefix)
	if err != nil {
		return err
	}
	process := &Process{Config: common, Worker: worker, Log: log, Metrics: telemetry.NewMetrics(), Redactor: redactor}
	parts, err := p.Build(ctx, process, own)
	if err != nil {
		return err
	}
	if parts.Close != nil {
		defer parts.Close()
	}
	traces, err := telemetry.NewTraces(ctx, common.Traces, telemetry.Service{Name: p.Name, Version: config.Version(), Instance: string(worker)}, redactor, log)
	if err != nil {
		return err
	}
	handlers := map[txn.TaskType]Handler{}
	var faults []error
	for _, taskType := range common.Types() {
		handler := parts.Handler(taskType)
		if handler == nil {
			faults = append(faults, fmt.Errorf("PERAGO_TASK_TYPES names %q, which %s does not serve", taskType, p.Name))
			continue
		}
		handlers[taskType] = handler
	}
	if len(faults) > 0 {
		return &config.Error{Faults: faults}
	}
	tasks := New(Options{
		Conductor: parts.Conductor, ConductorURL: parts.ConductorURL, Worker: worker,
		Handlers: handlers, Domains: common.domains(),
		Concurrency: common.Concurrency, PollInterval: common.PollInterval,
		ReasonLength: common.ReasonLength, ShutdownGrace: common.ShutdownGrace,
		ProgressInterval: parts.ProgressInterval, TaskLog: parts.TaskLog,
		Checks: parts.Checks, Log: log, Metrics: process.Metrics, Traces: traces, Redactor: redactor,
	})
	process.Metrics.Conditions(tasks.Conditions)
	health, err := telemetry.ListenHealth(common.HTTPAddr, telemetry.NewHealthHandler(process.Metrics.Registry(), tasks.Conditions))
	if err != nil {
		return fmt.Errorf("PERAGO_HTTP_ADDR %s cannot be listened on, give each worker on this host its own: %w", common.HTTPAddr, err)
	}
	if common.ProfileAddr != "" {
		profiles, err := telemetry.ListenProfiles(common.ProfileAddr)
		if err != nil {
			return fmt.Errorf("PERAGO_PPROF_ADDR %s cannot be listened on, give each worker on this host its own: %w", common.ProfileAddr, err)
		}
		// At once: a profile may take as long as it was asked to.
		defer profiles.Abort()
		log.Info("serving profiles", slog.String(telemetry.KeyProfileAddr, profiles.Address()))
	}
	log.Info("started",
		slog.String(telemetry.KeyVersion, config.Version()), slog.String(telemetry.KeyWorker, string(worker)),
		slog.String(telemetry.KeyConductor, parts.ConductorURL), slog.Any(telemetry.KeyTaskTypes, common.TaskTypes), slog.Any(telemetry.KeyDomains, common.domains()),
		slog.Int(telemetry.KeyConcurrency, common.Concurrency), slog.String(telemetry.KeyHTTPAddr, health.Address()))

	var background sync.WaitGroup
	for _, run := range parts.Background {
		background.Go(func() { run(ctx) })
	}
	err = tasks.Run(ctx)
	within(finalTime, &background)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err = errors.Join(err, health.Close(closing))
	flushing, cancelFlush := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancelFlush()
	if lost := traces.Shutdown(flushing); lost != nil {
		// Not a failure of the process: its work is done.
		log.Warn("the last traces are lost", slog.Any(telemetry.KeyError, lost))
	}
	return err
}

// flushTime is what a stopping process gives the collector for the last spans: a
// collector that is down must not hold it.
const flushTime = 2 * time.Second

// Variables lists every variable of the program, with the defaults it has here:
// its own first, then those that every worker has.
func (p Program[C]) Variables() []config.Variable {
	all := config.Variables(new(C), Config{})
	for i := range all {
		if value, ok := p.ownDefaults()[all[i].Name]; ok {
			all[i].Default = value
		}
	}
	return all
}

// ownDefaults are the defaults that differ from binary to binary.
func (p Program[C]) ownDefaults() map[string]string {
	var types []string
	for _, taskType := range p.TaskTypes {
		types = append(types, string(taskType))
	}
	return map[string]string{"PERAGO_TASK_TYPES": strings.Join(types, ","), "PERAGO_HTTP_ADDR": p.HTTPAddr}
}

func (p Program[C]) withDefaults(lookup config.Lookup) config.Lookup {
	defaults := p.ownDefaults()
	return func(name string) (string, bool) {
		if value, ok := lookup(name); ok && value != "" {
			return value, true
		}
		value, ok := defaults[name]
		return value, ok
	}
}

func (p Program[C]) help(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n\nIt is configured by the environment:\n\n", p.Name, p.Summary)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, variable := range p.Variables() {
		value := variable.Default
		if variable.Required {
			value = "(required)"
		}
		description := variable.Description
		switch {
		case variable.Secret:
			description += " (secret; may stand in a file named by " + variable.Name + "_FILE)"
		case variable.File:
			description += " (may stand in a file named by " + variable.Name + "_FILE)"
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\n", variable.Name, value, description)
	}
	_ = table.Flush() // the terminal is gone: nobody is left to tell
	fmt.Fprintf(w, "\nExit codes: 0 after a drain, 1 on failure, 2 when the configuration cannot be used.\n")
}

// newWorkerID names this process start: the prefix is for people, the UUID makes
// sure that no two starts share an id, which the attempt fence relies on.
func newWorkerID(prefix string) (txn.WorkerID, error) {
	if prefix == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("the host has no name, set PERAGO_WORKER_ID_PREFIX: %w", err)
		}
		prefix = host
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return "", fmt.Errorf("make a worker id: %w", err)
	}
	return txn.WorkerID(prefix + "-" + id.String()), nil
}

// within waits for the group, but no longer than d.
func within(d time.Duration, group *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
