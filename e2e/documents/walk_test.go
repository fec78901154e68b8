package documents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"perago/e2e/stack"
	environ "perago/pkg/config"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// walked are the documents whose commands are typed, in this order, on the real
// servers. They are for whoever has `make demo KEEP=1` running.
var walked = []string{"README.md", "docs/quickstart.md"}

// A block of commands says what becomes of it: it is walked, or why it is not.
func TestCommandsAreRunOrSayWhyNot(t *testing.T) {
	t.Parallel()
	for _, name := range documents(t) {
		for _, b := range blocks(read(t, name)) {
			if b.language != "sh" && b.language != "bash" && b.language != "console" {
				continue
			}
			_, run := b.marked("run")
			reason, not := b.marked("not run:")
			_, environment := b.marked("environment")
			switch {
			case run && not, !run && !not && !environment:
				t.Errorf("%s has commands without exactly one of the marks `run` and `not run: REASON`:\n%s", name, b.text)
			case not && reason == "":
				t.Errorf("%s does not say why these commands are not run:\n%s", name, b.text)
			case run && !slices.Contains(walked, name):
				t.Errorf("%s has commands to run, but nothing runs it; it is not among %v:\n%s", name, walked, b.text)
			}
			if out, err := exec.Command("bash", "-n", "-c", b.text).CombinedOutput(); err != nil {
				t.Errorf("%s: bash cannot read these commands: %s\n%s", name, out, b.text)
			}
		}
	}
}

// What the documents say of the built binaries.
func TestBuilt(t *testing.T) {
	if stack.Short(t) {
		return
	}
	servers := stack.Require(t)
	bin := filepath.Join(t.TempDir(), "bin")
	build := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "./cmd/...", "./examples/...")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	t.Run("help", func(t *testing.T) { help(t, bin) })
	t.Run("walk", func(t *testing.T) { walk(t, servers, bin) })
}

// walk types the commands of the documents as they stand there, on a terminal,
// in a directory that has bin like the project's, with the environment that
// `make demo KEEP=1` prints and what it has registered.
//
// The workers poll the queues without a domain, because the documents start
// their workflows in none. It is the only test that does.
func walk(t *testing.T, servers stack.Servers, bin string) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("curl is not installed, which the documents' commands need; make deps installs it")
	}
	dir := t.TempDir()
	environment := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TERM=dumb",
		"CONDUCTOR_SERVER_URL=" + servers.ConductorURL + "/api",
		"LAKECTL_SERVER_ENDPOINT_URL=" + servers.LakeFSURL,
		"LAKECTL_CREDENTIALS_ACCESS_KEY_ID=" + servers.AccessKeyID,
		"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY=" + servers.SecretAccessKey,
		"PERAGO_ALLOWED_REPOSITORIES=" + string(demo),
		"PERAGO_WORKSPACE_ROOT=" + t.TempDir(),
		"PERAGO_CONDUCTOR_ID=" + string(demo),
		"PERAGO_SWEEP_TTL=0s",
	}
	lake := lakeOf(t, environment)
	first := demoRepository(t, servers, lake)
	forgetDefinitions(t, servers)
	register := exec.Command(filepath.Join(bin, "perago"), "register", "taskdefs", "workflows", "examples/user-worker/taskdefs")
	register.Dir, register.Env = root, environment
	if out, err := register.CombinedOutput(); err != nil {
		t.Fatalf("register: %v\n%s", err, out)
	}
	workers(t, bin, environment)
	for _, name := range walked {
		t.Run(filepath.Base(name), func(t *testing.T) { walkDocument(t, name, bin, environment) })
	}

	// What the last document leaves behind: its own files, and nothing else is
	// touched.
	head, err := lake.Head(t.Context(), demo, lakefstest.DefaultBranch)
	if err != nil {
		t.Fatal(err)
	}
	tree := lakefstest.Tree(t, lake, demo, head)
	if tree["README.md"] != "outside" || tree["data/old.csv"] != "" || tree["data/days.json"] == "" {
		t.Errorf("main holds %v", slices.Sorted(maps.Keys(tree)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lakefstest.Check(ctx, t, lake, demo, first)
}

// lakeOf is a client with the key that an environment has.
func lakeOf(t *testing.T, environment []string) *lakefs.Client {
	t.Helper()
	lookup := func(name string) (string, bool) {
		for _, variable := range environment {
			if value, ok := strings.CutPrefix(variable, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}
	var config lakefs.Config
	if _, err := environ.Read(lookup, &config); err != nil {
		t.Fatal(err)
	}
	lake, err := lakefs.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return lake
}

// demo is the repository that the documents name.
const demo txn.Repository = "demo"

// demoRepository makes it anew and returns its first commit with files.
func demoRepository(t *testing.T, servers stack.Servers, lake *lakefs.Client) txn.CommitID {
	t.Helper()
	remove := func() {
		request(t, http.MethodDelete, servers.LakeFSURL+"/api/v1/repositories/"+string(demo)+"?force=true", servers)
	}
	remove()
	if err := lake.CreateRepository(t.Context(), demo, "local://"+string(lakefstest.NewName(t)), lakefstest.DefaultBranch); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	lakefstest.Put(t, lake, demo, lakefstest.DefaultBranch, map[string]string{"data/old.csv": "old", "README.md": "outside"})
	first, err := lake.CreateCommit(t.Context(), demo, lakefstest.DefaultBranch, "Initial files", nil)
	if err != nil {
		t.Fatal(err)
	}
	return first.ID
}

// forgetDefinitions removes the workflows of the documents, which an earlier run
// on the same Conductor registered.
func forgetDefinitions(t *testing.T, servers stack.Servers) {
	t.Helper()
	for _, name := range walked {
		for _, b := range blocks(read(t, name)) {
			if file, ok := b.marked("file: "); ok {
				request(t, http.MethodDelete, servers.ConductorURL+"/api/metadata/workflow/"+strings.TrimSuffix(file, ".json")+"/1", servers)
			}
		}
	}
}

// request sends a request of which a missing object is no fault.
func request(t *testing.T, method, address string, servers stack.Servers) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(address, servers.LakeFSURL) {
		r.SetBasicAuth(servers.AccessKeyID, servers.SecretAccessKey)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 && response.StatusCode != http.StatusNotFound {
		t.Fatalf("%s %s: %s", method, address, response.Status)
	}
}

// command is a block of commands of a document.
type command struct {
	text string
	// exit is what its last command has to end with; the others must succeed.
	exit int
	// shown is what the document shows of its output; shows says whether it does.
	shown string
	shows bool
}

// walkDocument types a document's commands in one shell on a terminal, and holds
// the outputs that it shows to what they print.
func walkDocument(t *testing.T, name, bin string, environment []string) {
	files := map[string]string{}
	var commands []command
	for _, b := range blocks(read(t, name)) {
		if file, ok := b.marked("file: "); ok {
			files[file] = b.text
		}
		if how, ok := b.marked("run"); ok {
			c := command{text: b.text}
			if exit, ok := strings.CutPrefix(how, ": exit "); ok {
				c.exit, _ = strconv.Atoi(exit)
			}
			commands = append(commands, c)
		}
		if _, ok := b.marked("output"); ok {
			if len(commands) == 0 || commands[len(commands)-1].shows {
				t.Fatalf("%s shows an output that is of no commands:\n%s", name, b.text)
			}
			last := &commands[len(commands)-1]
			last.shown, last.shows = b.text, true
		}
	}
	if len(commands) == 0 {
		t.Fatalf("%s has no commands to run", name)
	}
	script := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(name), ".md")+".txtar")
	if err := os.WriteFile(script, []byte(session(commands)), 0o644); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files:    []string{script},
		Deadline: time.Now().Add(10 * time.Minute),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"shown": func(ts *testscript.TestScript, _ bool, _ []string) {
				if faults := shown(t, name, commands, ts.ReadFile("ttyout")); faults != "" {
					ts.Fatalf("%s", faults)
				}
			},
		},
		Setup: func(e *testscript.Env) error {
			e.Vars = append(e.Vars, environment...)
			for file, text := range files {
				if err := os.WriteFile(filepath.Join(e.WorkDir, file), []byte(text), 0o644); err != nil {
					return err
				}
			}
			return os.Symlink(bin, filepath.Join(e.WorkDir, "bin"))
		},
	})
}

// shown compares what a document shows with what its commands printed, and says
// what differs; with -update it writes the document anew.
func shown(t *testing.T, name string, commands []command, screen string) string {
	outputs, err := outputsOf(screen, commands)
	if err != nil {
		return err.Error()
	}
	text := read(t, name)
	updated, at := text, 0 // at is behind the commands before
	var faults strings.Builder
	var same renaming
	for i, c := range commands {
		at += strings.Index(updated[at:], c.text) + len(c.text)
		if !c.shows {
			continue
		}
		fault := same.fault(c.shown, outputs[i])
		switch {
		case fault == "":
		case *update && !strings.Contains(c.shown, elision):
			updated = updated[:at] + strings.Replace(updated[at:], "```text\n"+c.shown, "```text\n"+same.renamed(outputs[i]), 1)
		default:
			fmt.Fprintf(&faults, "%s shows another output of\n%s%s\nThey print:\n%s\n", name, c.text, fault, outputs[i])
		}
	}
	if updated != text {
		if err := os.WriteFile(filepath.Join(root, name), []byte(updated), 0o644); err != nil {
			return err.Error()
		}
	}
	return faults.String()
}

// mark begins a line of the session's own, which no command prints.
const mark = "\x1e"

// session is a testscript that types the commands, one block after the other, in
// one shell: what a block sets, the next one has.
func session(commands []command) string {
	var s strings.Builder
	s.WriteString("ttyin newline\nexec bash session.sh\nshown\n-- newline --\n\n-- session.sh --\n")
	// The newline is echoed when it is typed: it is waited for, or its echo lands in
	// some output.
	s.WriteString("exec >/dev/tty 2>&1 </dev/tty\nread -r\nexec </dev/null\n")
	for _, c := range commands {
		fmt.Fprintf(&s, "printf '%s\\n'\nwalk_failed=0; trap 'walk_failed=1' ERR\n%swalk_last=$?; trap - ERR; printf '%s%%d %%d\\n' $walk_last $walk_failed\n", mark, c.text, mark)
	}
	return s.String()
}

// outputsOf cuts what the session printed into the outputs of its commands, and
// fails for those that did not end as they have to.
func outputsOf(screen string, commands []command) ([]string, error) {
	parts := strings.Split(strings.ReplaceAll(screen, "\r\n", "\n"), mark)
	var outputs []string
	for i, c := range commands {
		if len(parts) < 2*i+3 {
			return nil, fmt.Errorf("the shell ended early:\n%s", screen)
		}
		output := strings.TrimPrefix(parts[2*i+1], "\n")
		var last, failed int
		if _, err := fmt.Sscanf(parts[2*i+2], "%d %d", &last, &failed); err != nil {
			return nil, err
		}
		if last != c.exit || c.exit == 0 && failed != 0 {
			return nil, fmt.Errorf("the last command ended with %d, want %d, or one before it failed:\n%s\n%s", last, c.exit, c.text, output)
		}
		outputs = append(outputs, output)
	}
	return outputs, nil
}

// workers starts the three workers and the example one, as the demo does.
func workers(t *testing.T, bin string, environment []string) {
	t.Helper()
	logs := t.TempDir()
	for _, name := range []string{"stage-worker", "publish-worker", "cleanup-worker", "user-worker"} {
		s := stack.NewServer(stack.ServerConfig{
			Name: name, LogPath: filepath.Join(logs, name+".log"), Grace: 40 * time.Second,
			Command: func(port int) *exec.Cmd {
				c := exec.Command(filepath.Join(bin, name))
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
