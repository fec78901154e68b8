// Command demo shows the main job on real servers: it starts Conductor and
// lakeFS, the three workers and the example user worker as processes, runs
// three workflows, prints what happened, and checks it. It needs the binaries
// in ./bin, so run it with `make demo`.
//
// With -keep everything stays running afterwards, with its logs in .demo/, and
// -stop ends exactly those processes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

const (
	keptDir    = ".demo" // where a kept demo lives, in the project's directory
	recordFile = "processes.json"
)

func main() {
	keep := flag.Bool("keep", false, "leave everything running")
	stop := flag.Bool("stop", false, "stop what -keep left running")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()

	var err error
	if *stop {
		err = stopKept(keptDir, os.Stdout)
	} else {
		err = run(ctx, *keep)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	if !*stop {
		fmt.Println("demo: ok")
	}
}

func run(ctx context.Context, keep bool) (err error) {
	for _, name := range binaries {
		if _, err := os.Stat(filepath.Join("bin", name)); err != nil {
			return fmt.Errorf("bin/%s is missing: run `make demo`, which builds it", name)
		}
	}
	dir, err := makeDir(keep)
	if err != nil {
		return err
	}
	d := &demo{dir: dir, logs: filepath.Join(dir, "logs"), workspace: filepath.Join(dir, "workspace"), keep: keep}
	for _, dir := range []string{d.logs, d.workspace} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}

	err = d.start(ctx)
	if err == nil {
		err = d.story(ctx)
	}
	if err == nil && keep {
		d.handOver()
		return nil
	}
	if err = errors.Join(err, d.stop()); err == nil {
		fmt.Printf("All %d processes have ended, the workers with exit code 0.\n", len(d.recorded))
		return os.RemoveAll(dir)
	}
	d.printLogs(os.Stderr)
	// Only the logs are of use now.
	for _, name := range []string{"servers", "workspace", recordFile} {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name)))
	}
	return fmt.Errorf("%w\nthe logs are in %s", err, d.logs)
}

func makeDir(keep bool) (string, error) {
	if !keep {
		return os.MkdirTemp("", "perago-demo-")
	}
	running, err := keptProcesses(keptDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if len(running) > 0 {
		return "", errors.New("a demo was left running here: stop it first with `make demo-stop`")
	}
	if err := os.RemoveAll(keptDir); err != nil { // of one that has ended
		return "", err
	}
	if err := os.Mkdir(keptDir, 0o755); err != nil {
		return "", err
	}
	return filepath.Abs(keptDir)
}
