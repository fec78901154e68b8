// Command with-stack starts Conductor and lakeFS, runs a command with their
// addresses in its environment, stops them, and exits with the command's code:
//
//	go run ./e2e/stack/with-stack [-logs DIR] -- go test ./...
//
// SIGINT and SIGTERM go on to the command.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"perago/e2e/stack"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(run(os.Args[1:], os.Stderr, signals))
}

func run(args []string, stderr io.Writer, signals <-chan os.Signal) int {
	flags := flag.NewFlagSet("with-stack", flag.ContinueOnError)
	flags.SetOutput(stderr)
	logs := flags.String("logs", "", "keep the servers' logs in this `directory`")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() == 0 {
		fmt.Fprintln(stderr, "with-stack: no command: with-stack [-logs DIR] -- COMMAND ARG...")
		return 2
	}

	st, err := start(stack.Options{LogDir: *logs, Progress: stderr}, signals)
	if err != nil {
		fmt.Fprintln(stderr, "with-stack:", err)
		return 1
	}
	code, err := runCommand(flags.Args(), append(os.Environ(), st.Env()...), signals)
	if err = errors.Join(err, stop(st)); err != nil {
		fmt.Fprintln(stderr, "with-stack:", err)
		if code == 0 {
			code = 1
		}
	}
	return code
}

// start gives up at the first signal.
func start(opts stack.Options, signals <-chan os.Signal) (*stack.Stack, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type result struct {
		st  *stack.Stack
		err error
	}
	started := make(chan result, 1)
	began := time.Now()
	go func() {
		st, err := stack.Start(ctx, opts)
		started <- result{st, err}
	}()
	for {
		select {
		case r := <-started:
			if r.err == nil && ctx.Err() != nil {
				return nil, errors.Join(errors.New("interrupted"), r.st.Stop())
			}
			if r.err == nil {
				fmt.Fprintf(opts.Progress, "with-stack: Conductor %s and lakeFS %s are up after %s\n",
					r.st.ConductorURL, r.st.LakeFSURL, time.Since(began).Round(100*time.Millisecond))
			}
			return r.st, r.err
		case <-signals:
			cancel()
		}
	}
}

// stop also checks that nothing is left, in every run of the tests.
func stop(st *stack.Stack) error {
	pids := st.Pids()
	err := st.Stop()
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			err = errors.Join(err, fmt.Errorf("process %d is left", pid))
		}
	}
	if _, statErr := os.Stat(st.Dir()); !errors.Is(statErr, fs.ErrNotExist) {
		err = errors.Join(err, fmt.Errorf("the folder %s is left", st.Dir()))
	}
	return err
}

// runCommand puts the command into a process group of its own, so that a
// Ctrl-C reaches it once, through us, and reaches all that it started.
func runCommand(args, env []string, signals <-chan os.Signal) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			_ = syscall.Kill(-cmd.Process.Pid, sig.(syscall.Signal))
		case err := <-ended:
			return exitCode(err)
		}
	}
}

func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case !errors.As(err, &exit):
		return 1, err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil // as a shell would say it
	}
	return exit.ExitCode(), nil
}
