package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// command is one command with arguments that would do, and what it needs: which
// mistakes can be made with it follows.
type command struct {
	arguments []string
	// conductor and lake are the servers it asks.
	conductor, lake bool
	// address, file and workflow are where in the arguments a branch's address, a file
	// and a workflow's id stand; 0 where there is none.
	address, file, workflow int
	// source and destination are where a directory stands, to read or to make, beside
	// an address that may go on with a prefix.
	source, destination int
	// reports is a command that says on standard output what is wrong, and on standard
	// error how much.
	reports bool
}

const (
	someAddress  = "lakefs://lake/main"
	someFile     = "FILE"
	someSource   = "SOURCE"
	someNew      = "NEW"
	someWorkflow = "WORKFLOW"
	noWorkflow   = "00000000-0000-4000-8000-000000000000"
)

// everyCommand is every command of the program.
var everyCommand = []command{
	{arguments: []string{"register", someFile}, conductor: true, file: 1},
	{arguments: []string{"register"}, conductor: true},
	{arguments: []string{"lint", someFile}, conductor: true, file: 1},
	{arguments: []string{"lint", someFile, "--offline"}, file: 1},
	{arguments: []string{"insert", someFile, "--after", "work", "--prefix", "data/"}, file: 1},
	{arguments: []string{"ref", someAddress}, lake: true, address: 1},
	{arguments: []string{"log", someAddress}, lake: true, address: 1},
	{arguments: []string{"explain", someWorkflow}, conductor: true, lake: true, workflow: 1, reports: true},
	{arguments: []string{"fence", "install", someAddress, "--yes"}, lake: true, address: 2},
	{arguments: []string{"fence", "verify", someAddress}, lake: true, address: 2},
	{arguments: []string{"fence", "remove", someAddress, "--yes"}, lake: true, address: 2},
	{arguments: []string{"settle", someAddress, "--yes"}, lake: true, address: 1},
	{arguments: []string{"sweep", "--repository", "lake"}, conductor: true, lake: true, reports: true},
	{arguments: []string{"budget", someFile}, file: 1},
	{arguments: []string{"stage", someSource, someAddress, "--root"}, lake: true, address: 2, source: 1},
	{arguments: []string{"checkout", someAddress, someNew, "--root"}, lake: true, address: 1, destination: 2},
	{arguments: []string{"doctor", someAddress}, conductor: true, lake: true, address: 1, reports: true},
}

// mistake is one that people make, as a change of the arguments or of the
// environment.
type mistake struct {
	name string
	// applies says with which commands it can be made.
	applies func(command) bool
	make    func(command, *mistaken)
	// says is what the sentence holds, a regular expression; of a command that
	// reports, its output.
	says string
}

// mistaken is a command line with a mistake in it.
type mistaken struct {
	arguments   []string
	environment map[string]string
	// servers are addresses to make mistakes with, files a directory of files.
	servers map[string]string
	files   string
}

func (m *mistaken) set(name, value string) { m.environment[name] = value }

func onConductor(c command) bool { return c.conductor }
func onLake(c command) bool      { return c.lake }
func onAddress(c command) bool   { return c.address > 0 }
func onFile(c command) bool      { return c.file > 0 }
func onWorkflow(c command) bool  { return c.workflow > 0 }
func onDirectory(c command) bool { return c.source+c.destination > 0 }
func onAll(command) bool         { return true }

// quiet are the commands that end with a server's fault; one that reports goes on.
func quiet(applies func(command) bool) func(command) bool {
	return func(c command) bool { return applies(c) && !c.reports }
}

func setting(name, value string) func(command, *mistaken) {
	return func(_ command, m *mistaken) { m.set(name, value) }
}

func server(name, of string) func(command, *mistaken) {
	return func(_ command, m *mistaken) { m.set(name, m.servers[of]) }
}

func argument(of func(command) int, value string) func(command, *mistaken) {
	return func(c command, m *mistaken) { m.arguments[of(c)] = strings.ReplaceAll(value, "FILES", m.files) }
}

func addressOf(c command) int  { return c.address }
func fileOf(c command) int     { return c.file }
func workflowOf(c command) int { return c.workflow }
func sourceOf(c command) int   { return c.source }

func destinationOf(c command) int { return c.destination }

const (
	conductorURL    = "CONDUCTOR_SERVER_URL"
	lakeURL         = "LAKECTL_SERVER_ENDPOINT_URL"
	lakeKey         = "LAKECTL_CREDENTIALS_ACCESS_KEY_ID"
	lakeSecret      = "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
	conductorKey    = "CONDUCTOR_AUTH_KEY"
	conductorSecret = "CONDUCTOR_AUTH_SECRET"
)

var mistakes = []mistake{
	// The servers' addresses.
	{"Conductor is not there", onConductor, server(conductorURL, "nobody"), `Conductor gave no answer|Conductor gives no answer`},
	{"Conductor's address is not set", onConductor, setting(conductorURL, ""), `CONDUCTOR_SERVER_URL`},
	{"Conductor's address is malformed", onConductor, setting(conductorURL, "conductor:8080/api"), `CONDUCTOR_SERVER_URL`},
	{"Conductor's address has a password", onConductor, setting(conductorURL, "http://me:hunter-of-two@127.0.0.1:1/api"), `CONDUCTOR_SERVER_URL`},
	{"Conductor's address has a wrong path", onConductor, server(conductorURL, "wrong path"), `CONDUCTOR_SERVER_URL`},
	{"Conductor's address is another server's", onConductor, server(conductorURL, "page"), `CONDUCTOR_SERVER_URL`},
	{"Conductor refuses the key", onConductor, server(conductorURL, "denied"), `CONDUCTOR_AUTH_KEY`},
	{"Conductor does not permit it", onConductor, server(conductorURL, "forbidden"), `403`},
	{"Conductor is silent", quiet(onConductor), func(_ command, m *mistaken) {
		m.set(conductorURL, m.servers["silent"])
		m.arguments = append(m.arguments, "--timeout", "50ms")
	}, `given up after --timeout 50ms|gave no answer`},
	{"lakeFS is not there", onLake, server(lakeURL, "nobody"), `lakeFS gave no answer|lakeFS gives no answer`},
	{"lakeFS's address is not set", onLake, setting(lakeURL, ""), `LAKECTL_SERVER_ENDPOINT_URL`},
	{"lakeFS's address is malformed", onLake, setting(lakeURL, "lakefs:8000"), `LAKECTL_SERVER_ENDPOINT_URL`},
	{"lakeFS's address has a password", onLake, setting(lakeURL, "http://me:hunter-of-two@127.0.0.1:1"), `LAKECTL_SERVER_ENDPOINT_URL`},
	{"lakeFS's address is another server's", onLake, server(lakeURL, "page"), `LAKECTL_SERVER_ENDPOINT_URL`},

	// The credentials.
	{"no key for lakeFS", onLake, setting(lakeKey, ""), lakeKey},
	{"no secret for lakeFS", onLake, setting(lakeSecret, ""), lakeSecret},
	{"an example's secret", onLake, setting(lakeSecret, "replace-me"), lakeSecret},
	{"a wrong secret", onLake, setting(lakeSecret, "hunter-of-two"), `401`},
	{"a wrong key", onLake, setting(lakeKey, "nobody-at-all"), `401`},
	{"half of Conductor's credentials", onConductor, setting(conductorSecret, ""), `CONDUCTOR_AUTH_(KEY|SECRET)`},
	{"a secret's file that is not there", onLake, func(_ command, m *mistaken) {
		m.set(lakeSecret, "")
		m.set(lakeSecret+"_FILE", filepath.Join(m.files, "missing"))
	}, lakeSecret + `_FILE`},

	// Branches.
	{"no address", onAddress, argument(addressOf, "main"), `is not (the address of a branch|an address in lakeFS); write lakefs://`},
	{"an address of nothing", onAddress, argument(addressOf, "lakefs://"), `names no repository|is not an address in lakeFS`},
	{"an address without a branch", onAddress, argument(addressOf, "lakefs://lake"), `names no branch|is not an address in lakeFS`},
	{"an address of an object", func(c command) bool { return onAddress(c) && !onDirectory(c) }, argument(addressOf, "lakefs://lake/main/data"), `goes on after the branch`},
	{"a name that none can have", onAddress, argument(addressOf, "lakefs://lake/.."), `is not (the name of a lakeFS branch|a reference of lakeFS)`},
	{"a missing repository", onAddress, argument(addressOf, "lakefs://no-such-repository/main"), `lakeFS has no repository no-such-repository`},
	{"a missing branch", onAddress, argument(addressOf, "lakefs://lake/missing"), `the repository lake has no branch(, tag or commit)? missing`},

	// Directories, and what their files must be.
	{"a missing directory", func(c command) bool { return c.source > 0 }, argument(sourceOf, "FILES/missing"), `missing: no such file`},
	{"a file for a directory", func(c command) bool { return c.source > 0 }, argument(sourceOf, "FILES/sound.json"), `sound\.json: not a directory`},
	{"a directory without files", func(c command) bool { return c.source > 0 }, argument(sourceOf, "FILES/directory"), `holds no files, .* give --allow-empty`},
	{"a directory with files", func(c command) bool { return c.destination > 0 }, argument(destinationOf, "FILES/tree"), `tree`},
	{"missing guardrails", onDirectory, func(_ command, m *mistaken) {
		m.arguments = append(m.arguments, "--guardrails", filepath.Join(m.files, "missing.json"))
	}, `missing\.json: no such file`},
	{"guardrails that are no JSON", onDirectory, func(_ command, m *mistaken) {
		m.arguments = append(m.arguments, "--guardrails", filepath.Join(m.files, "bad.json"))
	}, `guardrails`},

	// Files.
	{"a missing file", onFile, argument(fileOf, "FILES/missing.json"), `missing\.json: no such file`},
	{"a file that is no JSON", onFile, argument(fileOf, "FILES/bad.json"), `bad\.json:2:`},
	{"an empty file", onFile, argument(fileOf, "FILES/empty.json"), `empty\.json`},
	{"a file of something else", onFile, argument(fileOf, "FILES/other.json"), `other\.json`},
	{"a directory without a definition", onFile, argument(fileOf, "FILES/directory"), `directory`},

	// Workflows.
	{"an unknown workflow", onWorkflow, argument(workflowOf, noWorkflow), `this Conductor has no workflow ` + noWorkflow},
	{"no workflow", onWorkflow, argument(workflowOf, ""), `takes the id of one workflow`},
	{"a workflow's name with a line break", onWorkflow, argument(workflowOf, "no\nsuch"), `no workflow`},

	// The command line.
	{"an unknown flag", onAll, func(_ command, m *mistaken) { m.arguments = append(m.arguments, "--frobnicate") }, `unknown flag: --frobnicate; see perago .*--help`},
	{"an unknown format", onAll, func(_ command, m *mistaken) { m.arguments = append(m.arguments, "-o", "yaml") }, `--output is "yaml"`},
	{"no time", onAll, func(_ command, m *mistaken) { m.arguments = append(m.arguments, "--timeout", "0s") }, `--timeout is 0s`},
	{"a time that is none", onAll, func(_ command, m *mistaken) { m.arguments = append(m.arguments, "--timeout", "soon") }, `invalid argument "soon" for "--timeout"`},
	{"nothing to work on", func(c command) bool {
		return c.address+c.file+c.workflow > 0 && !c.reports && !slices.Contains([]string{"register", "budget"}, c.arguments[0])
	}, func(c command, m *mistaken) {
		at := c.address + c.file + c.workflow
		m.arguments = slices.Delete(m.arguments, at, at+1)
	}, `given (0|none|1 arguments)`},
}

// Every mistake in every command: one sentence, exit code 1, nothing of the
// program's insides and none of the secrets.
//
// Most of the time of the whole goes into waiting for servers that are not there,
// so all of them are made at once.
func TestMistakes(t *testing.T) {
	t.Parallel()
	world := newWorld(t)
	insides := regexp.MustCompile(`goroutine|panic|\.go:\d|0x[0-9a-f]{6}|%!|<nil>|&\{|map\[`)
	secrets := []string{
		world.environment[lakeSecret], world.environment[conductorSecret], "hunter-of-two", "token-of-tests",
		base64.StdEncoding.EncodeToString([]byte(world.environment[lakeKey] + ":" + world.environment[lakeSecret])),
	}
	made := 0
	var all sync.WaitGroup
	for _, c := range everyCommand {
		for _, mistake := range mistakes {
			if !mistake.applies(c) {
				continue
			}
			made++
			all.Go(func() {
				fault := func(format string, arguments ...any) {
					t.Errorf("%s, %s: "+format, append([]any{strings.Join(c.arguments, " "), mistake.name}, arguments...)...)
				}
				m := mistaken{arguments: c.sound(world), environment: maps.Clone(world.environment), servers: world.servers, files: world.files}
				mistake.make(c, &m)
				var stdout, stderr bytes.Buffer
				code := run(t.Context(), m.arguments, func(name string) (string, bool) {
					value := m.environment[name]
					return value, value != ""
				}, &stdout, &stderr)
				said := stderr.String()
				if code != exitFailed {
					fault("exit code %d", code)
				}
				if !strings.HasPrefix(said, "perago: ") || strings.Count(said, "\n") != 1 || !strings.HasSuffix(said, "\n") || len(said) < 20 {
					fault("not one sentence: %q", said)
				}
				if c.reports {
					said += stdout.String()
				} else if stdout.Len() > 0 {
					fault("something was printed: %q", stdout.String())
				}
				if !regexp.MustCompile(mistake.says).MatchString(said) {
					fault("%q does not say %q", said, mistake.says)
				}
				if found := insides.FindString(said); found != "" {
					fault("%q holds %q", said, found)
				}
				for _, secret := range secrets {
					if strings.Contains(said, secret) {
						fault("%q holds a secret", said)
					}
				}
			})
		}
	}
	all.Wait()
	t.Logf("%d mistakes in %d commands", made, len(everyCommand))
}

// Without a mistake the same command lines do what they are for: it is the mistakes
// that the table above is about.
func TestCommandsWithoutMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range everyCommand {
		if c.arguments[0] == "doctor" || c.arguments[0] == "settle" || slices.Contains(c.arguments, "verify") {
			continue // they find that there is no fence
		}
		t.Run(strings.Join(c.arguments, "_"), func(t *testing.T) {
			t.Parallel()
			world := newWorld(t)
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), c.sound(world), func(name string) (string, bool) {
				value, ok := world.environment[name]
				return value, ok
			}, &stdout, &stderr)
			if code != exitOK {
				t.Errorf("%d: %s%s", code, stdout.String(), stderr.String())
			}
		})
	}
}

// No command is without its mistakes.
func TestEveryCommandHasItsMistakes(t *testing.T) {
	t.Parallel()
	var walk func(path []string, c *cobra.Command)
	walk = func(path []string, c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(append(slices.Clone(path), sub.Name()), sub)
		}
		if len(path) == 0 || c.HasSubCommands() || path[0] == "help" || path[0] == "completion" {
			return
		}
		if !slices.ContainsFunc(everyCommand, func(known command) bool {
			return len(known.arguments) >= len(path) && slices.Equal(known.arguments[:len(path)], path)
		}) {
			t.Errorf("perago %s is not among the commands of this test", strings.Join(path, " "))
		}
	}
	walk(nil, (&environment{lookup: os.LookupEnv, out: output{to: io.Discard}, stderr: io.Discard}).root())
}

// world is what command lines are tried in: servers by what is wrong with them, a
// directory of files, and an environment in which nothing is.
type world struct {
	servers     map[string]string
	files       string
	environment map[string]string
	workflow    string
}

// sound is the command line without a mistake.
func (c command) sound(w world) []string {
	arguments := slices.Clone(c.arguments)
	if c.file > 0 {
		arguments[c.file] = filepath.Join(w.files, "sound.json")
		if c.arguments[0] == "budget" {
			arguments[c.file] = filepath.Join(w.files, "sound_task.json")
		}
	}
	if c.workflow > 0 {
		arguments[c.workflow] = w.workflow
	}
	if c.source > 0 {
		arguments[c.source] = filepath.Join(w.files, "tree")
	}
	if c.destination > 0 {
		arguments[c.destination] = filepath.Join(w.files, uuid.NewString())
	}
	return arguments
}

func newWorld(t *testing.T) world {
	t.Helper()
	lake := lakefstest.NewServer()
	memory := conductortest.New(nil)
	addresses := map[string]string{}
	for name, handler := range map[string]http.Handler{
		"lakefs": lake,
		// Conductor with credentials gives a token for them.
		"conductor": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/token") {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"token":"token-of-tests"}`)
				return
			}
			memory.ServeHTTP(w, r)
		}),
		"page": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<!DOCTYPE html>\n<html>\n<body>hello</body>\n</html>\n")
		}),
		"denied": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			// It says again what it was asked with.
			said, _ := json.Marshal(map[string]any{"status": 401, "message": fmt.Sprintf("who is %q %q?", r.Header.Get("X-Authorization"), body)})
			http.Error(w, string(said), http.StatusUnauthorized)
		}),
		"forbidden": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"status":403,"message":"not you"}`, http.StatusForbidden)
		}),
		"silent": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}),
	} {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		// A client asks for a token to the end of it, whoever has given up.
		t.Cleanup(server.CloseClientConnections)
		addresses[name] = server.URL
	}
	addresses["wrong path"] = addresses["conductor"] + "/wrong"
	var err error
	if addresses["nobody"], err = unusedAddress(); err != nil {
		t.Fatal(err)
	}
	config := lake.Config()
	config.Endpoint = addresses["lakefs"]
	head, err := newRepository(config)
	if err != nil {
		t.Fatal(err)
	}
	w := world{servers: addresses, files: mistakenFiles(t), environment: map[string]string{
		conductorURL: addresses["conductor"], conductorKey: "conductor-key-id", conductorSecret: "conductor-secret-of-tests",
		lakeURL: config.Endpoint, lakeKey: config.AccessKeyID.Reveal(), lakeSecret: config.SecretAccessKey.Reveal(),
		"PERAGO_ALLOWED_REPOSITORIES": "*", "PERAGO_REQUIRE_HARD_FENCE": "true", "PERAGO_CONDUCTOR_ID": "mistakes",
	}}
	// What the sound commands find: a workflow that stages for the branch, and a
	// staging branch of it.
	client, err := lakefs.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	server, err := conductor.New(conductor.Config{ServerURL: addresses["conductor"]}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.CloseIdleConnections)
	operator := conductortest.NewOperator(addresses["conductor"], nil)
	for _, body := range []struct {
		method, path string
		of           []any
	}{
		{http.MethodPost, "/metadata/taskdefs", []any{map[string]any{"name": "perago_stage", "ownerEmail": "mistakes@example.com"}, map[string]any{"name": "work", "ownerEmail": "mistakes@example.com"}}},
		{http.MethodPut, "/metadata/workflow", []any{oneTask("staging", "perago_stage", map[string]any{"workspace": "${workflow.input.workspace}", "prefix": "data/"})}},
	} {
		if answer, err := operator.Do(t.Context(), body.method, body.path, body.of); err != nil || answer.Status >= 300 {
			t.Fatalf("%s: %v, %+v", body.path, err, answer)
		}
	}
	id, err := server.StartWorkflow(t.Context(), conductor.StartRequest{
		Name: "staging", Version: 1, Input: json.RawMessage(`{"workspace":{"repository":"lake","branch":"main","ref_type":"commit","ref":"` + head + `"}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.workflow = string(id)
	execution, err := lakefstest.ExecutionAt(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	branch := txn.NewStagingName("mistakes", id, txn.NewLogicalTaskKey(id, "perago_stage", 0), 0, execution).Branch()
	if err := client.CreateBranch(t.Context(), "lake", branch, txn.CommitID(head)); err != nil {
		t.Fatal(err)
	}
	return w
}

// oneTask is a workflow of one task.
func oneTask(name, kind string, input map[string]any) map[string]any {
	return map[string]any{
		"name": name, "version": 1, "schemaVersion": 2, "ownerEmail": "mistakes@example.com",
		"tasks": []any{map[string]any{"name": kind, "taskReferenceName": kind, "type": "SIMPLE", "inputParameters": input}},
	}
}

func mistakenFiles(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	sound, err := json.Marshal(oneTask("mine", "work", map[string]any{}))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"sound.json": string(sound), "sound_task.json": soundTask(t),
		"bad.json": "{\"name\": \"work\",\n\"tasks\": [}\n", "empty.json": "", "other.json": `{"name": "perago", "dependencies": {}}`,
	} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"directory", "tree"} {
		if err := os.Mkdir(filepath.Join(directory, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(directory, "tree", "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	return directory
}

// soundTask is the shipped publish TaskDef.
func soundTask(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../taskdefs/perago_publish.json")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A server that takes no credentials from anybody, when there are none to give.
func TestMistakeOfNoCredentialsAtAll(t *testing.T) {
	t.Parallel()
	servers := newWorld(t).servers
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"register", "--timeout", time.Minute.String()}, func(name string) (string, bool) {
		return map[string]string{conductorURL: servers["denied"]}[name], name == conductorURL
	}, &stdout, &stderr)
	if code != exitFailed || !strings.Contains(stderr.String(), "check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET") || stdout.Len() > 0 {
		t.Errorf("%d: %s%s", code, stdout.String(), stderr.String())
	}
}
