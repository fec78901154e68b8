package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"perago/pkg/conductor/conductortest"
	"perago/pkg/credential"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/telemetry"
	"perago/pkg/txn"
)

func TestMain(m *testing.M) {
	testscript.Main(unleaked{m}, map[string]func(){"perago": main, "lakectl-perago": main})
}

// unleaked is tests that fail when they leave goroutines behind.
type unleaked struct{ *testing.M }

func (u unleaked) Run() int {
	code := u.M.Run()
	if code != 0 {
		return code
	}
	// A command that is run here leaves its idle connections to the end of its process.
	if err := goleak.Find(
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
	); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// The scripts run the program as a process of its own against servers in this
// one. In their environment: CONDUCTOR and LAKEFS are the servers' addresses, KEY
// and SECRET the credentials for lakeFS, HEAD the commit that lake/main points at,
// LAKEFS_WITHOUT_ACTIONS is a lakeFS of the same credentials and with the same empty
// repository that runs no actions, NOBODY an address where nobody listens. The
// command "commit PATH FILE" puts a file on lake/main, and "stage STEP [COMMIT]" stages
// one for it, "publish VARIABLE STEP RETRY [SUPERSEDES]" publishes one, and "orphan
// VARIABLE WORKFLOW AGE" makes a branch for a sweep. "workflow VARIABLE ENDING" runs
// one that stages and publishes. "branches" prints the branches that people see, and
// "protect BRANCH" has uploads to one refused.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:  "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"commit": commitFile, "stage": stageStep, "orphan": orphan, "publish": publishStep, "workflow": workflowThat, "branches": listBranches, "protect": protectBranch},
		Setup: func(e *testscript.Env) error {
			// Under the race detector every program waits a second at its end, and a
			// script is made of programs.
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			conductor := httptest.NewServer(newConductor())
			e.Defer(conductor.Close)
			lake := lakefstest.NewServer()
			lakeServer := httptest.NewServer(lake)
			e.Defer(lakeServer.Close)
			config := lake.Config()
			config.Endpoint = lakeServer.URL
			head, err := newRepository(config)
			if err != nil {
				return err
			}
			e.Defer(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				lakefstest.Check(ctx, t, lake.Client(t), "lake", txn.CommitID(head), lakefstest.Allow(lakefstest.RuleBranches))
			})
			idle := lakefstest.NewServer()
			idle.ActionsOff = true
			idleServer := httptest.NewServer(idle)
			e.Defer(idleServer.Close)
			idleConfig := idle.Config()
			idleConfig.Endpoint = idleServer.URL
			if _, err := newRepository(idleConfig); err != nil {
				return err
			}
			nobody, err := unusedAddress()
			if err != nil {
				return err
			}
			e.Setenv("CONDUCTOR", conductor.URL)
			e.Setenv("LAKEFS", lakeServer.URL)
			e.Setenv("LAKEFS_WITHOUT_ACTIONS", idleServer.URL)
			e.Setenv("KEY", config.AccessKeyID.Reveal())
			e.Setenv("SECRET", config.SecretAccessKey.Reveal())
			e.Setenv("HEAD", head)
			e.Setenv("NOBODY", nobody)
			return nil
		},
	})
}

func newRepository(config lakefs.Config) (string, error) {
	client, err := lakefs.New(config, nil)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := client.CreateRepository(ctx, "lake", "local://lake", "main"); err != nil {
		return "", err
	}
	head, err := client.Head(ctx, "lake", "main")
	return string(head), err
}

// lakeOf is a client of the scripts' lakeFS.
func lakeOf(ts *testscript.TestScript) *lakefs.Client {
	client, err := lakefs.New(lakefs.Config{
		Endpoint: ts.Getenv("LAKEFS"), AccessKeyID: credential.New(ts.Getenv("KEY")), SecretAccessKey: credential.New(ts.Getenv("SECRET")),
	}, nil)
	ts.Check(err)
	return client
}

// commitFile is the scripts' command "commit PATH FILE".
func commitFile(ts *testscript.TestScript, negated bool, arguments []string) {
	if negated || len(arguments) != 2 {
		ts.Fatalf("usage: commit PATH FILE")
	}
	client := lakeOf(ts)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := client.Upload(ctx, "lake", "main", arguments[0], lakefstest.Text(ts.ReadFile(arguments[1])))
	ts.Check(err)
	_, err = client.CreateCommit(ctx, "lake", "main", "by a script", nil)
	ts.Check(err)
}

// unusedAddress had a listener a moment ago, so nothing else is likely to have it
// now.
func unusedAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return "http://" + listener.Addr().String(), listener.Close()
}

// newConductor is a Conductor in memory, which asks for credentials below
// /denied, gives no answer below /silent, and has a publish worker's metrics below
// /measured.
func newConductor() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", conductortest.NewVersion(nil, conductortest.V3_21_14)) // one that refuses a definition without an owner
	mux.HandleFunc("/denied/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"status":401,"message":"who are you?"}`, http.StatusUnauthorized)
	})
	mux.HandleFunc("/measured/metrics", func(w http.ResponseWriter, _ *http.Request) {
		metrics := telemetry.NewMetrics()
		for range 99 {
			metrics.Merged(time.Second/2, time.Minute)
		}
		metrics.Merged(time.Minute, time.Minute)
		promhttp.HandlerFor(metrics.Registry(), promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	})
	mux.HandleFunc("/silent/", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	return mux
}

// A person at a terminal sees a table; a pipe gets rows.
func TestOutputFormats(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		"":      "a\tb\nlong one\t\n",
		"plain": "a\tb\nlong one\t\n",
		"table": "KIND      NAME\na         b\nlong one\n",
	} {
		var text bytes.Buffer
		o := output{to: &text, format: format}
		if err := o.check(); err != nil {
			t.Fatal(err)
		}
		if err := o.rows([]string{"KIND", "NAME"}, [][]string{{"a", "b"}, {"long one", ""}}); err != nil {
			t.Fatal(err)
		}
		if text.String() != want {
			t.Errorf("%q: got %q, want %q", format, text.String(), want)
		}
	}
}

// A file is not a terminal.
func TestOutputToAFile(t *testing.T) {
	t.Parallel()
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	o := output{to: file}
	if err := o.check(); err != nil || o.format != formatPlain {
		t.Errorf("got %q, %v", o.format, err)
	}
}

// A signal ends the command with a sentence.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(newConductor())
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errors bytes.Buffer
	lookup := func(name string) (string, bool) {
		if name == "CONDUCTOR_SERVER_URL" {
			return server.URL + "/silent", true
		}
		return "", false
	}
	if code := run(ctx, []string{"register"}, lookup, &out, &errors); code != exitFailed || !strings.HasPrefix(errors.String(), "perago: interrupted: ") {
		t.Errorf("code %d, %q", code, errors.String())
	}
}
