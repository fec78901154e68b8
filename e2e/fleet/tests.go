package fleet

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/worker"
	"perago/taskdefs"
)

// RunTests is the TestMain of a package whose tests run the programs: they are built
// once, with the race detector, and into is told where.
func RunTests(m *testing.M, into *string) int {
	flag.Parse()
	var err error
	if *into, err = os.MkdirTemp("", "perago-binaries-"); err == nil {
		defer os.RemoveAll(*into)
		err = Build(context.Background(), *into, true)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Drain runs a worker's program in this process, on memory servers, until it has
// polled each of its task types, and drains it. What then still runs of it is for the
// caller to see.
func Drain[C any](t *testing.T, program worker.Program[C]) {
	t.Helper()
	lake := lakefstest.NewServer()
	lakeServer, conductorServer := httptest.NewServer(lake), httptest.NewServer(conductortest.New(nil))
	t.Cleanup(lakeServer.Close)
	t.Cleanup(conductorServer.Close)
	client, err := conductor.New(conductor.Config{ServerURL: conductorServer.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	for _, taskType := range program.TaskTypes {
		definition, err := taskdefs.Files.ReadFile(string(taskType) + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if err := client.PutTaskDefinition(t.Context(), definition); err != nil {
			t.Fatal(err)
		}
	}
	environment := map[string]string{
		"CONDUCTOR_SERVER_URL": conductorServer.URL, "LAKECTL_SERVER_ENDPOINT_URL": lakeServer.URL,
		"LAKECTL_CREDENTIALS_ACCESS_KEY_ID":     lake.Config().AccessKeyID.Reveal(),
		"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": lake.Config().SecretAccessKey.Reveal(),
		"PERAGO_ALLOWED_REPOSITORIES":           "*", "PERAGO_WORKSPACE_ROOT": t.TempDir(), "PERAGO_HTTP_ADDR": "127.0.0.1:0",
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- worker.Run(ctx, program, func(name string) (string, bool) {
			value, ok := environment[name]
			return value, ok
		}, nil, io.Discard, &log)
	}()
	tick, tooLong := time.NewTicker(10*time.Millisecond), time.After(30*time.Second)
	defer tick.Stop()
	for waiting := program.TaskTypes; len(waiting) > 0; {
		polls, err := client.LastPolls(t.Context(), waiting[0])
		if err != nil {
			t.Fatal(err)
		}
		if len(polls) > 0 {
			waiting = waiting[1:]
			continue
		}
		select {
		case <-tick.C:
		case code := <-ended:
			t.Fatalf("it ended with %d:\n%s", code, log.String())
		case <-tooLong:
			stop()
			<-ended
			t.Fatalf("it never polled %s:\n%s", waiting[0], log.String())
		}
	}
	stop()
	if code := <-ended; code != worker.ExitDrained {
		t.Errorf("exit code %d, want %d:\n%s", code, worker.ExitDrained, log.String())
	}
}
