package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"perago/e2e/stack"
)

// binaries is the folder that the tested binaries were built into.
var binaries string

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("e2e: needs the real servers, left out by -short; `make test` runs it")
		return
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	servers, err := stack.FromEnv()
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "perago-e2e-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	binaries = dir
	// With the race detector, so that the tests see the workers' own races too.
	build := exec.Command("go", "build", "-race", "-o", dir+string(filepath.Separator), "../cmd/...", "../examples/...")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build: %w\n%s", err, out)
	}
	register := exec.Command(filepath.Join(dir, "perago"), "register", "../taskdefs", "../workflows", "../examples/user-worker/taskdefs", "testdata/definitions")
	register.Env = append(os.Environ(), "CONDUCTOR_SERVER_URL="+servers.ConductorURL)
	if out, err := register.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("perago register: %w\n%s", err, out)
	}
	return m.Run(), nil
}
