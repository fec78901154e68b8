package documents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"perago/e2e/stack"
	"perago/pkg/conductor"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// What the documents say of the built binaries.
func TestBuilt(t *testing.T) {
	if stack.Short(t) {
		return
	}
	servers := stack.Require(t)
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	build := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "./cmd/...", "./examples/...")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	t.Run("help", func(t *testing.T) { help(t, bin) })
	t.Run("first workflow", func(t *testing.T) { firstWorkflow(t, servers, dir) })
}

// firstWorkflow is the README's, typed as it stands there, on the real servers:
// with the environment that `make demo KEEP=1` prints, against a repository of
// the test's own. dir is in the place of the project's directory: it has bin.
//
// The workers poll the queues without a domain, because the README says nothing
// of domains. It is the only test that does.
func firstWorkflow(t *testing.T, servers stack.Servers, dir string) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("curl is not installed, which the README's commands need; make deps installs it")
	}
	var commands []string
	for _, b := range blocks(read(t, "README.md")) {
		if _, ok := b.marked("run"); ok {
			commands = append(commands, b.text)
		}
		if file, ok := b.marked("file: "); ok {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(b.text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(commands) != 3 {
		t.Fatalf("README.md has %d blocks to run, want 3: register, start, look", len(commands))
	}

	server, err := conductor.New(conductor.Config{ServerURL: servers.ConductorURL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.CloseIdleConnections)
	lake, err := lakefs.New(lakefs.Config{
		Endpoint: servers.LakeFSURL, AccessKeyID: servers.AccessKeyID, SecretAccessKey: lakefs.NewSecret(servers.SecretAccessKey),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	repository, _ := lakefstest.NewRepository(t, lake, map[string]string{"data/old.csv": "old", "README.md": "outside"})
	environment := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir,
		"CONDUCTOR_SERVER_URL=" + servers.ConductorURL,
		"LAKECTL_SERVER_ENDPOINT_URL=" + servers.LakeFSURL,
		"LAKECTL_CREDENTIALS_ACCESS_KEY_ID=" + servers.AccessKeyID,
		"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY=" + servers.SecretAccessKey,
		"PERAGO_ALLOWED_REPOSITORIES=" + string(repository),
		"PERAGO_WORKSPACE_ROOT=" + t.TempDir(),
		"PERAGO_CONDUCTOR_ID=" + string(repository),
	}
	// What the demo has registered beside that: the example's task types.
	definitions, err := filepath.Abs(filepath.Join(root, "examples", "user-worker", "taskdefs"))
	if err != nil {
		t.Fatal(err)
	}

	shell := func(script string, more ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		run := exec.CommandContext(ctx, "bash", "-c", "set -eu\n"+strings.ReplaceAll(script, "lakefs://demo/main", "lakefs://"+string(repository)+"/main"))
		run.Dir, run.Env = dir, append(environment, more...)
		var said bytes.Buffer
		run.Stderr = &said
		out, err := run.Output()
		if err != nil || said.Len() > 0 {
			t.Fatalf("%v\n%s\n$ %s\n%s", err, script, out, said.String())
		}
		return string(out)
	}
	registered := shell("bin/perago register '" + definitions + "'\n" + commands[0])
	if !strings.Contains(registered, "workflow\tmy_workflow\t1\t") {
		t.Errorf("perago register said:\n%s", registered)
	}
	workers(t, dir, environment)
	id := txn.WorkflowID(shell(commands[1] + `printf %s "$id"`))
	workflow := ended(t, server, id)
	var output struct {
		Workspace txn.Workspace `json:"workspace"`
	}
	if err := json.Unmarshal(workflow.Output, &output); err != nil || workflow.Status != txn.WorkflowCompleted {
		t.Fatalf("the workflow is %s, %s: %+v", workflow.Status, workflow.Reason, workflow.Tasks)
	}
	looked := shell(commands[2], "id="+string(id))
	if !strings.Contains(looked, `"status":"COMPLETED"`) || !strings.HasSuffix(strings.TrimSpace(looked), string(output.Workspace.Ref)) {
		t.Errorf("the last commands say:\n%s\nwant COMPLETED, and the head %s", looked, output.Workspace.Ref)
	}
	tree := lakefstest.Tree(t, lake, repository, output.Workspace.Ref)
	if tree["README.md"] != "outside" || tree["data/old.csv"] != "" || len(tree) != 3 {
		t.Errorf("published %v", tree)
	}
}

// workers starts the three workers and the example one, as the demo does.
func workers(t *testing.T, dir string, environment []string) {
	t.Helper()
	for _, name := range []string{"stage-worker", "publish-worker", "cleanup-worker", "user-worker"} {
		s := stack.NewServer(stack.ServerConfig{
			Name: name, LogPath: filepath.Join(dir, name+".log"), Grace: 40 * time.Second,
			Command: func(port int) *exec.Cmd {
				c := exec.Command(filepath.Join(dir, "bin", name))
				c.Env = append(environment, fmt.Sprintf("PERAGO_HTTP_ADDR=127.0.0.1:%d", port))
				return c
			},
			Ready: func(ctx context.Context, port int, log []byte) error {
				if name == "user-worker" {
					if !bytes.Contains(log, []byte("polling prepare and train")) {
						return errors.New("it does not poll yet")
					}
					return nil
				}
				return ready(ctx, fmt.Sprintf("http://127.0.0.1:%d/readyz", port))
			},
		})
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Stop(); err != nil || s.ExitCode() != 0 {
				t.Errorf("%s ended with %d, %v", name, s.ExitCode(), err)
			}
		})
	}
}

func ready(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	return nil
}

func ended(t *testing.T, server *conductor.Client, id txn.WorkflowID) txn.Workflow {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		workflow, err := server.Workflow(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if workflow.Status.Terminal() {
			return workflow
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the workflow has not ended: %+v", workflow.Tasks)
		case <-tick.C:
		}
	}
}
