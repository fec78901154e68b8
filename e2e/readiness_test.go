package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"perago/e2e/stack"
)

var workers = []string{"stage-worker", "publish-worker", "cleanup-worker"}

// Everything that is wrong with a configuration comes in one message, names the
// variable, holds no secret, and ends the process with 2.
func TestConfigurationFaults(t *testing.T) {
	t.Parallel()
	for _, name := range workers {
		empty := start(t, name)
		if code := empty.exit(waitTime); code != 2 {
			t.Errorf("%s without an environment ended with %d, want 2", name, code)
		}
		for _, variable := range []string{
			"CONDUCTOR_SERVER_URL", "LAKECTL_SERVER_ENDPOINT_URL", "LAKECTL_CREDENTIALS_ACCESS_KEY_ID",
			"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", "PERAGO_ALLOWED_REPOSITORIES",
		} {
			if !strings.Contains(empty.stderr(), variable+" is not set") {
				t.Errorf("%s does not say that %s is not set:\n%s", name, variable, empty.stderr())
			}
		}

		wrong := start(t, name,
			"CONDUCTOR_SERVER_URL=replace-me", "LAKECTL_SERVER_ENDPOINT_URL=ftp://lake", "LAKECTL_CREDENTIALS_ACCESS_KEY_ID=replace-me",
			"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY=hunter2-hunter2", "PERAGO_ALLOWED_REPOSITORIES=lake/[", "PERAGO_CONCURRENCY=many",
			"PERAGO_WORKSPACE_ROOT=/no/such/directory", "PERAGO_SWEEP_TTL=-1s", "PERAGO_HTTP_ADDR=nowhere")
		if code := wrong.exit(waitTime); code != 2 {
			t.Errorf("%s with a wrong environment ended with %d, want 2", name, code)
		}
		variables := []string{
			"CONDUCTOR_SERVER_URL", "LAKECTL_SERVER_ENDPOINT_URL", "LAKECTL_CREDENTIALS_ACCESS_KEY_ID",
			"PERAGO_ALLOWED_REPOSITORIES", "PERAGO_CONCURRENCY", "PERAGO_HTTP_ADDR",
		}
		switch name {
		case "stage-worker":
			variables = append(variables, "PERAGO_WORKSPACE_ROOT", "PERAGO_SWEEP_TTL")
		case "cleanup-worker":
			variables = append(variables, "PERAGO_SWEEP_TTL")
		}
		said := wrong.stderr()
		for _, variable := range variables {
			if !slices.ContainsFunc(strings.Split(said, "\n"), func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), variable) }) {
				t.Errorf("%s has no line for the fault of %s:\n%s", name, variable, said)
			}
		}
		if strings.Contains(said, "hunter2") {
			t.Errorf("%s wrote a secret:\n%s", name, said)
		}
	}
}

func TestWrongCredentialsAreNotReady(t *testing.T) {
	t.Parallel()
	servers := stack.Require(t)
	for _, name := range workers {
		p := start(t, name, workerEnv(servers, "PERAGO_WORKSPACE_ROOT="+t.TempDir(), "PERAGO_DOMAINS=nobody", "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY=wrong-wrong-wrong")...)
		p.notReady("lakeFS answered 401", "check LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY")
		if _, body := p.get("/readyz"); strings.Contains(body+p.stderr(), "wrong-wrong-wrong") {
			t.Errorf("%s shows the secret", name)
		}
		p.drain()
	}
}

func TestServersThatAreDownAreNotReady(t *testing.T) {
	t.Parallel()
	servers := stack.Require(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	noLake := start(t, "publish-worker", workerEnv(servers, "PERAGO_DOMAINS=nobody", "LAKECTL_SERVER_ENDPOINT_URL="+nobody)...)
	noLake.notReady("lakeFS gave no answer", "connection refused", "is lakeFS up at "+nobody)
	noLake.drain()
	noConductor := start(t, "publish-worker", workerEnv(servers, "PERAGO_DOMAINS=nobody", "CONDUCTOR_SERVER_URL="+nobody)...)
	noConductor.notReady("Conductor gave no answer", "connection refused", "is the server at "+nobody)
	noConductor.drain()
}

// A stage worker whose temporary directory is missing polls nothing. It goes on without
// a restart when the directory is there.
func TestTemporaryDirectoryThatIsMissing(t *testing.T) {
	t.Parallel()
	servers := stack.Require(t)
	directory := filepath.Join(t.TempDir(), "later")
	p := start(t, "stage-worker", workerEnv(servers, "PERAGO_WORKSPACE_ROOT="+t.TempDir(), "PERAGO_DOMAINS=nobody", "TMPDIR="+directory)...)
	p.notReady("temporary directory", "make a temporary file for a list of files", "give the worker a writable /tmp, or set TMPDIR", "not polled while another condition fails")
	if _, metrics := p.get("/metrics"); strings.Contains(metrics, "task_poll_total{") {
		t.Error("a type was polled without a temporary directory")
	}
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	p.ready()
	p.drain()
}

// A TaskDef that is not registered or breaks a budget rule keeps its type from
// being polled, and the worker up.
func TestTaskDefinitionsThatAreMissingOrUnsound(t *testing.T) {
	t.Parallel()
	servers := stack.Require(t)
	missing := "perago_publish_" + strings.ReplaceAll(fmt.Sprint(time.Now().UnixNano()), "-", "_")
	p := start(t, "publish-worker", workerEnv(servers, "PERAGO_DOMAINS=nobody", "PERAGO_TASK_TYPES=perago_publish_unsound,"+missing)...)
	p.notReady(
		"TaskDef "+missing+" is not registered in Conductor", "run `perago register`",
		"TaskDef perago_publish_unsound: responseTimeoutSeconds is 20, less than merge timeout + completion + shutdown grace + heartbeat = 45s; raise it to at least 45s",
	)
	if _, metrics := p.get("/metrics"); strings.Contains(metrics, `task_poll_total{taskType="perago_publish_unsound"}`) {
		t.Error("a type with an unsound TaskDef was polled")
	}
	p.drain()
}

// A TaskDef that is registered later makes the worker ready without a restart.
func TestTaskDefinitionThatComesLater(t *testing.T) {
	t.Parallel()
	servers := stack.Require(t)
	server, _ := clients(t, servers)
	late := "perago_cleanup_late_" + fmt.Sprint(time.Now().UnixNano())
	p := start(t, "cleanup-worker", workerEnv(servers, "PERAGO_DOMAINS=nobody", "PERAGO_TASK_TYPES="+late)...)
	p.notReady("TaskDef " + late + " is not registered in Conductor")
	definition := fmt.Sprintf(`{"name": %q, "ownerEmail": "perago@example.com", "retryCount": 0, "timeoutSeconds": 0, "responseTimeoutSeconds": 60, "timeoutPolicy": "RETRY"}`, late)
	if err := server.PutTaskDefinition(t.Context(), []byte(definition)); err != nil {
		t.Fatal(err)
	}
	p.ready()
	p.drain()
}

func TestMetricsAreServed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"data/a": "1"})
	for _, p := range []*process{f.stage, f.publish, f.cleanup} {
		status, body := p.get("/metrics")
		if status != 200 || !strings.Contains(body, "task_poll_total{") || !strings.Contains(body, `perago_ready_condition{condition="lakefs"} 1`) {
			t.Errorf("%s: /metrics is %d:\n%s", p.name, status, body)
		}
	}
}
