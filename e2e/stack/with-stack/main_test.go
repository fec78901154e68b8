package main

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestRunCommandPassesTheExitCodeOn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		command string
		want    int
	}{
		{"exit 0", 0},
		{"exit 7", 7},
		{`test "$PERAGO_X" = y`, 0},
		{"kill -KILL $$", 137},
	} {
		code, err := runCommand([]string{"sh", "-c", tt.command}, []string{"PERAGO_X=y"}, nil)
		if code != tt.want || err != nil {
			t.Errorf("%s: %d, %v, want %d", tt.command, code, err, tt.want)
		}
	}
	if code, err := runCommand([]string{"/no/such/command"}, nil, nil); code == 0 || err == nil {
		t.Errorf("a command that is not there: %d, %v", code, err)
	}
}

func TestRunCommandPassesSignalsOn(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	// The whole group gets it: the shell's child as well, or the shell would
	// wait for it.
	code, err := runCommand([]string{"sh", "-c", "sleep 300; exit 0"}, os.Environ(), signals)
	if code != 128+int(syscall.SIGTERM) || err != nil {
		t.Errorf("%d, %v", code, err)
	}
}

func TestRunWithoutACommand(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--"}, {"-logs", "x"}} {
		var stderr bytes.Buffer
		if code := run(args, &stderr, nil); code != 2 || !strings.Contains(stderr.String(), "no command") {
			t.Errorf("%v: %d, %s", args, code, stderr.String())
		}
	}
}
