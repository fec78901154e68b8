package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"perago/e2e/stack"
)

// On PATH as lakectl-perago it is lakectl's own command perago: under that name in
// its help, with its exit code and its sentence.
func TestPluginOfLakectl(t *testing.T) {
	t.Parallel()
	if stack.Short(t) {
		return
	}
	binaries, err := stack.Prefetch(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	if err := os.Symlink(self, filepath.Join(path, "lakectl-perago")); err != nil {
		t.Fatal(err)
	}
	lakectl := func(arguments ...string) (string, error) {
		command := exec.CommandContext(t.Context(), binaries.Lakectl, arguments...)
		command.Env = []string{"HOME=" + t.TempDir(), "PATH=" + path}
		out, err := command.CombinedOutput()
		return string(out), err
	}
	if out, err := lakectl("perago", "ref", "--help"); err != nil || !strings.Contains(out, "lakectl perago ref lakefs://") {
		t.Errorf("%v: %s", err, out)
	}
	out, err := lakectl("perago", "ref", "nowhere")
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != exitFailed || !strings.HasPrefix(out, "perago: ") || strings.Count(out, "\n") != 1 {
		t.Errorf("%v: %s", err, out)
	}
}
