//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"perago/pkg/lakefs/lakefstest"
)

// Bars are for whoever looks at a terminal: not for a file that standard error goes
// to, and not beside JSON. What goes to standard output never has any.
func TestBarsAreForATerminal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arguments []string
		terminal  bool
		// bars are what is to be seen of them; none when empty.
		bars []string
	}{
		"checkout":             {[]string{"checkout", "ADDRESS", "DIR"}, true, []string{"download: 0 of 1 objects", "2.9 KiB"}},
		"checkout to a file":   {[]string{"checkout", "ADDRESS", "DIR"}, false, nil},
		"checkout beside JSON": {[]string{"checkout", "ADDRESS", "DIR", "-o", "json"}, true, nil},
		"stage":                {[]string{"stage", "FILES", "ADDRESS"}, true, []string{"upload: 0 of 1 objects", "4.9 KiB"}},
		"stage to a file":      {[]string{"stage", "FILES", "ADDRESS"}, false, nil},
		"stage beside JSON":    {[]string{"stage", "FILES", "ADDRESS", "-o", "json"}, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := lakefstest.NewServer()
			repository, _ := lakefstest.NewRepository(t, server.Client(t), map[string]string{"data/one": strings.Repeat("x", 3000)})
			// Every object is held up until the bars are seen, or could have been.
			release := make(chan struct{})
			var once sync.Once
			held := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/objects") {
					select {
					case <-release:
					case <-time.After(time.Minute):
					}
				}
				server.ServeHTTP(w, r)
			}))
			t.Cleanup(held.Close)
			if len(c.bars) == 0 {
				time.AfterFunc(3*drawn, func() { close(release) })
			}
			files := t.TempDir()
			if err := os.WriteFile(filepath.Join(files, "two"), bytes.Repeat([]byte("y"), 5000), 0o600); err != nil {
				t.Fatal(err)
			}
			config := server.Config()
			environment := map[string]string{
				"LAKECTL_SERVER_ENDPOINT_URL": held.URL, "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": config.AccessKeyID.Reveal(),
				"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": config.SecretAccessKey.Reveal(),
			}
			lookup := func(name string) (string, bool) {
				value, ok := environment[name]
				return value, ok
			}
			var arguments []string
			for _, argument := range c.arguments {
				arguments = append(arguments, strings.NewReplacer(
					"ADDRESS", fmt.Sprintf("lakefs://%s/main/data/", repository), "FILES", files, "DIR", filepath.Join(t.TempDir(), "new"),
				).Replace(argument))
			}
			var out bytes.Buffer
			seen := screen(t, c.terminal, func(text string) {
				for _, want := range c.bars {
					if !strings.Contains(text, want) {
						return
					}
				}
				if len(c.bars) > 0 {
					once.Do(func() { close(release) })
				}
			}, func(stderr io.Writer) {
				if code := run(context.Background(), arguments, lookup, &out, stderr); code != exitOK {
					t.Errorf("exit code %d", code)
				}
			})
			for _, want := range c.bars {
				if !strings.Contains(seen, want) {
					t.Errorf("no %q to be seen; the end is %q", want, tail(seen))
				}
			}
			const erased = "\x1b[2K\r"
			if drawn := strings.Contains(seen, erased); drawn != (len(c.bars) > 0) {
				t.Errorf("bars: %v, want %v: %q", drawn, len(c.bars) > 0, tail(seen))
			}
			if i := strings.LastIndex(seen, erased); i >= 0 && strings.ContainsAny(seen[i:], "█|%") {
				t.Errorf("the last bar is left behind: %q", tail(seen))
			}
			if strings.ContainsRune(out.String(), '\x1b') {
				t.Errorf("standard output has %q", out.String())
			}
		})
	}
}

func tail(text string) string { return text[max(0, len(text)-500):] }

// screen gives a program a standard error, and what was written to it. A terminal
// calls look with all that it shows, whenever that is more.
func screen(t *testing.T, terminal bool, look func(text string), program func(stderr io.Writer)) string {
	t.Helper()
	if !terminal {
		path := filepath.Join(t.TempDir(), "stderr")
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		program(file)
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	var text bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		// It ends with EIO when the last one has closed the terminal.
		for buffer := make([]byte, 4096); ; {
			n, err := master.Read(buffer)
			text.Write(buffer[:n])
			if err != nil {
				return
			}
			look(text.String())
		}
	}()
	program(tty)
	if err := tty.Close(); err != nil {
		t.Fatal(err)
	}
	<-read
	return text.String()
}
