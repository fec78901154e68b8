//go:build unix

package secrets_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"perago/e2e/secrets"
	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// marker is a harmless text that has to be found in every kind of output, by the same
// search.
var marker = fmt.Sprintf("marker-%016x", rand.Uint64())

// planted are the secrets of one run.
type planted struct {
	lake, conductor pair
	// next are those that the files hold after a rotation.
	nextLake, nextConductor pair
	token, header, password string
}

func plant() planted {
	// With what has to be escaped in one place or another.
	awkward := func(name string) string {
		return fmt.Sprintf(`%s-%016x "&<>'\/+%%41 =ö`, name, rand.Uint64()) + name
	}
	one := func(name string) pair { return pair{awkward(name + "-key"), awkward(name + "-secret")} }
	return planted{
		lake: one("lake"), conductor: one("conductor"), nextLake: one("next-lake"), nextConductor: one("next-conductor"),
		token: fmt.Sprintf(`token-%016x"&<>'\/+%%41=`, rand.Uint64()), header: fmt.Sprintf(`header-%016x "&<>'\/+%%41=`, rand.Uint64()), password: awkward("password"),
	}
}

func (p planted) all() []string {
	var all []string
	for _, one := range []pair{p.lake, p.nextLake} {
		all = append(all, one.key, one.secret, one.basic())
	}
	for _, one := range []pair{p.conductor, p.nextConductor} {
		all = append(all, one.key, one.secret)
	}
	return append(all, p.token, p.header, p.password)
}

// The three workers and every command of perago, with secrets in every variable that
// takes one, on servers that refuse, fail, redirect and repeat what they were asked
// with: none of it is in a log, an output, a reason, a metric, a trace, a page, a
// profile or an error.
func TestNoSecretIsSaid(t *testing.T) {
	t.Parallel()
	secret := plant()
	out := output{t, t.TempDir()}
	s := newServers(t, out.dir, secret.token)
	s.lakeKeys, s.conductorKeys = []pair{secret.lake}, []pair{secret.conductor}
	w := &run{T: t, out: out, servers: s, secret: secret, root: t.TempDir()}
	w.prepare()

	var all sync.WaitGroup
	all.Go(w.faults)
	all.Go(w.helps)
	began := time.Now()
	done := func(what string) {
		t.Logf("%s took %s", what, time.Since(began).Round(time.Second))
		began = time.Now()
	}
	w.byValue()
	done("workflows")
	w.commands("commands", w.env(), hostile...)
	done("commands")
	all.Wait()
	done("faults")
	if t.Failed() {
		return
	}
	w.byFile()
	done("files")
	w.nobodyThere()
	done("nobody")
	w.keepServers()

	// What the hostile servers repeated is there to be found.
	s.mu.Lock()
	sent, looked := s.repeated.String(), append(slices.Clone(secret.all()), s.signed...)
	s.mu.Unlock()
	control := t.TempDir()
	if err := os.WriteFile(filepath.Join(control, "repeated"), []byte(sent), 0o600); err != nil {
		t.Fatal(err)
	}
	hits, err := secrets.Search(control, looked)
	if err != nil {
		t.Fatal(err)
	}
	repeated := map[int]bool{}
	for _, hit := range hits {
		repeated[hit.Secret] = true
	}
	for i, text := range secret.all() {
		if !repeated[i] && text != secret.password {
			t.Errorf("no server has repeated secret %d, %.12s", i, text)
		}
	}
	if len(s.signed) == 0 || !slices.ContainsFunc(hits, func(hit secrets.Hit) bool { return hit.Secret >= len(secret.all()) }) {
		t.Errorf("of %d signatures the store has repeated none", len(s.signed))
	}

	if hits, err = secrets.Search(out.dir, looked); err != nil {
		t.Fatal(err)
	}
	for _, hit := range hits {
		t.Errorf("%.12s: %s", looked[hit.Secret], hit)
	}
	done("search")
	w.controls()
	done("controls")
	if t.Failed() && os.Getenv("PERAGO_TEST_KEEP") != "" {
		t.Log(os.CopyFS(os.Getenv("PERAGO_TEST_KEEP"), os.DirFS(out.dir)))
	}
}

// run is what a run works with.
type run struct {
	*testing.T
	out       output
	servers   *servers
	secret    planted
	root      string
	conductor *conductor.Client
	lake      *lakefs.Client
	first     map[string]txn.CommitID
	ids       []txn.WorkflowID
}

// hostile are the ways in which lakeFS fails, of which each has a repository.
var hostile = []string{"ok", "401", "403", "500", "page", "text", "garbled", "redirect", "late-401", "late-403", "late-500", "late-page", "late-text", "late-garbled", "late-redirect", "store", "address"}

func repository(how string) string { return marker + "-" + how }

// prepare fills both servers, past those who stand before them.
func (r *run) prepare() {
	r.Helper()
	r.lake, r.first = r.servers.memory.Client(r.T), map[string]txn.CommitID{}
	for _, how := range hostile {
		repo := txn.Repository(repository(how))
		if err := r.lake.CreateRepository(r.Context(), repo, "local://"+string(repo), lakefstest.DefaultBranch); err != nil {
			r.Fatal(err)
		}
		lakefstest.Put(r.T, r.lake, repo, lakefstest.DefaultBranch, map[string]string{"data/a": "1", "data/gone": "1"})
		commit, err := r.lake.CreateCommit(r.Context(), repo, lakefstest.DefaultBranch, "input", nil)
		if err != nil {
			r.Fatal(err)
		}
		r.first[how] = commit.ID
	}
	transport := conductortest.Transport(r.servers.conductor)
	var err error
	if r.conductor, err = conductor.New(conductor.Config{ServerURL: "http://conductor.memory"}, transport); err != nil {
		r.Fatal(err)
	}
	if code := r.out.run("perago/register", "perago", r.env(), "register", "../../taskdefs", "../../workflows", "../../examples/user-worker/taskdefs"); code != 0 {
		r.Fatalf("register ended with %d", code)
	}
	// A failure is the end of a task here, and each worker has a type of the marker's
	// name, which is in its metrics.
	operator := conductortest.NewOperator("http://conductor.memory", transport)
	for _, name := range []string{"stage", "publish", "cleanup", "checkout"} {
		raw, err := os.ReadFile("../../taskdefs/perago_" + name + ".json")
		var definition map[string]any
		if err == nil {
			err = json.Unmarshal(raw, &definition)
		}
		definition["retryCount"] = 0
		also := maps.Clone(definition)
		also["name"] = "perago_" + name + "_" + marker
		if err == nil {
			_, err = operator.Do(r.Context(), http.MethodPost, "/metadata/taskdefs", []any{definition, also})
		}
		if err != nil {
			r.Fatal(err)
		}
	}
}

// env is an environment with the secrets by value.
func (r *run) env(more ...string) []string {
	return append([]string{
		"CONDUCTOR_SERVER_URL=" + r.servers.server.URL, "CONDUCTOR_AUTH_KEY=" + r.secret.conductor.key, "CONDUCTOR_AUTH_SECRET=" + r.secret.conductor.secret,
		"LAKECTL_SERVER_ENDPOINT_URL=" + r.servers.lake.URL + "/" + marker,
		"LAKECTL_CREDENTIALS_ACCESS_KEY_ID=" + r.secret.lake.key, "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY=" + r.secret.lake.secret,
		"PERAGO_ALLOWED_REPOSITORIES=*", "PERAGO_WORKSPACE_ROOT=" + r.root, "PERAGO_CONDUCTOR_ID=" + marker, "PERAGO_WORKER_ID_PREFIX=" + marker,
		"PERAGO_HTTP_ADDR=127.0.0.1:0", "PERAGO_PPROF_ADDR=127.0.0.1:0", "PERAGO_LOG_LEVEL=debug", "PERAGO_PROGRESS_INTERVAL=1s",
		"PERAGO_CONDUCTOR_UI_URL=http://ui." + marker + ".invalid", "PERAGO_SWEEP_INTERVAL=1s", "PERAGO_SWEEP_TTL=0s", "PERAGO_CONCURRENCY=32",
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + r.servers.collect.URL, // The tenant has the name of the branch, and the output must keep that.
		"OTEL_EXPORTER_OTLP_HEADERS=api-key=" + url.PathEscape(r.secret.header) + ",X-Scope-OrgID=" + string(lakefstest.DefaultBranch),
		"OTEL_BSP_SCHEDULE_DELAY=500", "OTEL_EXPORTER_OTLP_COMPRESSION=gzip",
	}, more...)
}

var kinds = []string{"stage", "publish", "cleanup"}

// types is a worker's own types, the marker's among them.
func types(kind string) string {
	text := "PERAGO_TASK_TYPES=perago_" + kind + ",perago_" + kind + "_" + marker
	if kind == "stage" {
		text += ",perago_checkout"
	}
	return text
}

// byValue runs workflows on every repository, two on the one where nothing fails.
func (r *run) byValue() {
	r.Helper()
	var workers []*worker
	for _, kind := range kinds {
		workers = append(workers, r.out.start("value", kind+"-worker", r.env(types(kind))))
	}
	for _, one := range workers {
		one.ready(http.StatusOK, "")
	}
	for _, how := range append([]string{"ok", "late-403"}, hostile...) {
		r.start("perago_example_one_step", how)
	}
	r.start("perago_example_checkout", "403")
	until(r.T, "the workflows have ended", r.ended)
	for _, one := range workers {
		one.collect()
	}
	for _, one := range workers {
		one.drain()
	}
	states := map[string]int{}
	for _, id := range r.ids {
		workflow, err := r.conductor.Workflow(r.Context(), id)
		if err != nil {
			r.Fatal(err)
		}
		states[string(workflow.Status)]++
	}
	if states["COMPLETED"] == 0 || states["FAILED"] < len(hostile)-4 {
		r.Errorf("the workflows ended as %v", states)
	}
}

func (r *run) start(name, how string) {
	r.Helper()
	input, err := json.Marshal(map[string]any{"workspace": txn.Workspace{Repository: txn.Repository(repository(how)), Branch: lakefstest.DefaultBranch, RefType: txn.RefTypeCommit, Ref: r.first[how]}})
	if err != nil {
		r.Fatal(err)
	}
	id, err := r.conductor.StartWorkflow(r.Context(), conductor.StartRequest{Name: name, Version: 1, Input: input})
	if err != nil {
		r.Fatal(err)
	}
	r.ids = append(r.ids, id)
}

// ended serves the user's tasks meanwhile.
func (r *run) ended() bool {
	r.Helper()
	tasks, err := r.conductor.Poll(r.Context(), txn.PollRequest{Type: "prepare", Worker: "user", Count: 10, Wait: 10 * time.Millisecond})
	if err != nil {
		r.Fatal(err)
	}
	for _, task := range tasks {
		directory := filepath.Join(r.root, string(task.Workflow), string(task.ID))
		err := os.MkdirAll(directory, 0o755)
		for n := range 40 {
			if err == nil {
				err = os.WriteFile(filepath.Join(directory, fmt.Sprintf("file-%d", n)), bytes.Repeat([]byte{byte(n)}, 1000), 0o644)
			}
		}
		if err == nil {
			err = r.conductor.Update(r.Context(), txn.TaskResult{Task: task.ID, Workflow: task.Workflow, Worker: "user", Status: txn.TaskCompleted, Output: map[string]any{"directory": directory}})
		}
		if err != nil {
			r.Fatal(err)
		}
	}
	for _, id := range r.ids {
		status, err := r.conductor.WorkflowStatus(r.Context(), id)
		if err != nil {
			r.Fatal(err)
		}
		if !status.Terminal() {
			return false
		}
	}
	return true
}

// commands runs every command of perago, on these repositories.
func (r *run) commands(name string, env []string, repositories ...string) {
	r.Helper()
	tree := filepath.Join(r.root, "by-hand-"+name)
	if err := os.MkdirAll(tree, 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "file"), []byte("x"), 0o644); err != nil {
		r.Fatal(err)
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, 8)
	perago := func(what string, arguments ...string) {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			r.out.run("perago/"+name+"/"+what, "perago", env, append(arguments, "--timeout", "4s")...)
		})
	}
	for i, id := range r.ids {
		page := filepath.Join(r.out.dir, "perago", name, fmt.Sprintf("explain-%d.html", i))
		perago(fmt.Sprintf("explain-%d", i), "explain", string(id), "--html", page)
		if i%4 == 0 {
			perago(fmt.Sprintf("explain-%d-json", i), "explain", string(id), "--output", "json")
		}
	}
	for _, how := range repositories {
		at := "lakefs://" + repository(how) + "/main"
		perago("ref-"+how, "ref", at)
		perago("log-"+how, "log", at)
		perago("doctor-"+how, "doctor", at, "--output", "json")
		perago("verify-"+how, "fence", "verify", at)
		perago("stage-"+how, "stage", tree, at+"/data/")
		perago("checkout-"+how, "checkout", at+"/data/", filepath.Join(tree+"-"+how))
	}
	perago("doctor-table", "doctor", "lakefs://"+repository("ok")+"/main", "--output", "table")
	perago("install", "fence", "install", "lakefs://"+repository("403")+"/main", "--yes")
	perago("settle", "settle", "lakefs://"+repository("late-500")+"/main", "--yes")
	perago("sweep", "sweep", "--dry-run")
	perago("budget", "budget", "../../taskdefs/perago_publish.json")
	perago("lint", "lint", "../../workflows/one_step.json")
	all.Wait()
}

// byFile has the secrets in files, wrong ones at first: everything is refused, and
// the files then hold those that are let in.
func (r *run) byFile() {
	r.Helper()
	dir := r.TempDir()
	write := func(lake, server pair) {
		for name, text := range map[string]string{"lake-key": lake.key, "lake-secret": lake.secret + "\n", "key": server.key, "secret": server.secret + "\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				r.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "headers"), []byte("api-key="+url.PathEscape(r.secret.header)), 0o600); err != nil {
		r.Fatal(err)
	}
	env := r.env(
		"CONDUCTOR_AUTH_KEY=", "CONDUCTOR_AUTH_SECRET=", "LAKECTL_CREDENTIALS_ACCESS_KEY_ID=", "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY=", "OTEL_EXPORTER_OTLP_HEADERS=",
		"CONDUCTOR_AUTH_KEY_FILE="+filepath.Join(dir, "key"), "CONDUCTOR_AUTH_SECRET_FILE="+filepath.Join(dir, "secret"),
		"LAKECTL_CREDENTIALS_ACCESS_KEY_ID_FILE="+filepath.Join(dir, "lake-key"), "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY_FILE="+filepath.Join(dir, "lake-secret"),
		"OTEL_EXPORTER_OTLP_HEADERS_FILE="+filepath.Join(dir, "headers"), "PERAGO_LOG_LEVEL=debug")
	// The wrong ones are as secret as the right ones: they may be right somewhere else.
	write(r.secret.nextLake, r.secret.nextConductor)
	var workers []*worker
	for _, kind := range kinds {
		workers = append(workers, r.out.start("file", kind+"-worker", append(slices.Clone(env), types(kind))))
	}
	for _, one := range workers {
		one.ready(http.StatusServiceUnavailable, "lakeFS answered 401")
		one.collect()
	}
	r.commands("refused", env, "ok", "403")
	write(r.secret.lake, r.secret.conductor)
	for _, one := range workers {
		one.ready(http.StatusOK, "")
	}
	r.start("perago_example_one_step", "late-text")
	until(r.T, "the workflow has ended", r.ended)
	for _, one := range workers {
		one.drain()
	}
}

// nobodyThere has addresses at which nobody listens, and logs in the other format.
func (r *run) nobodyThere() {
	r.Helper()
	closed := []string{"CONDUCTOR_SERVER_URL=http://127.0.0.1:1/" + marker, "LAKECTL_SERVER_ENDPOINT_URL=http://127.0.0.1:1/" + marker, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"}
	for _, kind := range kinds {
		one := r.out.start("nobody", kind+"-worker", r.env(append(closed, types(kind))...))
		one.ready(http.StatusServiceUnavailable, "connection refused")
		one.collect()
		one.drain()
	}
	// The key is withdrawn, so that Conductor repeats it as well.
	r.servers.mu.Lock()
	r.servers.conductorKeys = nil
	r.servers.mu.Unlock()
	text := r.out.start("text", "stage-worker", r.env("PERAGO_LOG_FORMAT=text", "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY="+r.secret.nextLake.secret, types("stage")))
	text.until("it says that it is refused", func() bool {
		return strings.Contains(text.log(), "to POST /token") && strings.Contains(text.log(), "lakeFS answered 401")
	})
	text.drain()
	for _, command := range [][]string{{"ref", "lakefs://" + repository("ok") + "/main"}, {"explain", string(r.ids[0])}, {"doctor", "lakefs://" + repository("ok") + "/main"}} {
		r.out.run("perago/nobody/"+command[0], "perago", r.env(closed...), append(command, "--timeout", "5s")...)
	}
}

// faults are configurations that cannot be used, with secrets where people put them.
func (r *run) faults() {
	withPassword := (&url.URL{Scheme: "http", User: url.UserPassword("me", r.secret.password), Host: "127.0.0.1:1"}).String()
	raw := "http://me:" + r.secret.password + "@127.0.0.1:1"
	for name, change := range map[string][]string{
		"userinfo":          {"CONDUCTOR_SERVER_URL=" + withPassword, "LAKECTL_SERVER_ENDPOINT_URL=" + withPassword, "PERAGO_CONDUCTOR_UI_URL=" + withPassword, "OTEL_EXPORTER_OTLP_ENDPOINT=" + withPassword},
		"userinfo as it is": {"CONDUCTOR_SERVER_URL=" + raw, "LAKECTL_SERVER_ENDPOINT_URL=" + raw, "PERAGO_CONDUCTOR_UI_URL=" + raw, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + raw},
		"a query":           {"CONDUCTOR_SERVER_URL=http://h/?key=" + url.QueryEscape(r.secret.password), "LAKECTL_SERVER_ENDPOINT_URL=http://h/?key=" + url.QueryEscape(r.secret.password)},
		"no URL":            {"CONDUCTOR_SERVER_URL=" + r.secret.password, "LAKECTL_SERVER_ENDPOINT_URL=" + r.secret.password, "OTEL_EXPORTER_OTLP_ENDPOINT=" + r.secret.password},
		"white space":       {"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY= " + r.secret.lake.secret, "CONDUCTOR_AUTH_SECRET=" + r.secret.conductor.secret + "\n", "CONDUCTOR_AUTH_KEY=" + r.secret.conductor.key + " "},
		"both":              {"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY_FILE=/nowhere", "CONDUCTOR_AUTH_SECRET_FILE=/nowhere", "LAKECTL_CREDENTIALS_ACCESS_KEY_ID_FILE=/nowhere", "OTEL_EXPORTER_OTLP_HEADERS_FILE=/nowhere"},
		"a placeholder":     {"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY=" + r.secret.lake.secret + "replace-me", "CONDUCTOR_AUTH_SECRET=replace-me"},
		"half":              {"CONDUCTOR_AUTH_KEY="},
		"headers":           {"OTEL_EXPORTER_OTLP_HEADERS=" + r.secret.header + "%zz", "OTEL_EXPORTER_OTLP_TRACES_HEADERS=" + r.secret.header},
		"another's fault":   {"PERAGO_CONCURRENCY=many"},
		"an import":         {"PERAGO_ALLOWED_IMPORTS=s3://me:" + url.PathEscape(r.secret.password) + "@bucket/path/"},
	} {
		for _, kind := range kinds {
			if name == "an import" && kind != "stage" {
				continue // a fault to that worker alone
			}
			code := r.out.run("faults/"+name+"/"+kind, kind+"-worker", r.env(change...))
			if code != 2 {
				r.Errorf("%s: %s ended with %d", name, kind, code)
			}
		}
		for what, arguments := range map[string][]string{"doctor": {"doctor"}, "explain": {"explain", "x"}, "ref": {"ref", "lakefs://" + repository("ok") + "/main"}} {
			r.out.run("faults/"+name+"/"+what, "perago", r.env(change...), append(arguments, "--timeout", "5s")...)
		}
	}
}

// helps are what the programs say of themselves.
func (r *run) helps() {
	for _, kind := range kinds {
		for _, flag := range []string{"-h", "--help", "-version", "-nonsense", "argument"} {
			r.out.run("help/"+kind+flag, kind+"-worker", r.env(), flag)
		}
	}
	for _, command := range []string{"", "register", "lint", "insert", "ref", "log", "explain", "fence", "settle", "sweep", "budget", "doctor", "stage", "checkout"} {
		r.out.run("help/perago-"+command, "perago", r.env(), strings.Fields(command+" --help")...)
	}
	r.out.run("help/perago-completion", "perago", r.env(), "completion", "bash")
	r.out.run("help/perago-version", "perago", r.env(), "--version")
}

// keepServers keeps what the servers hold in the end: workflows with their tasks,
// outputs and reasons, commits and branches.
func (r *run) keepServers() {
	r.Helper()
	operator := conductortest.NewOperator("http://conductor.memory", conductortest.Transport(r.servers.conductor))
	for i, id := range r.ids {
		answer, err := operator.Do(r.Context(), http.MethodGet, "/workflow/"+string(id), nil)
		if err != nil {
			r.Fatal(err)
		}
		r.out.write(fmt.Sprintf("conductor/workflow-%d.json", i), answer.Body)
	}
	for _, how := range hostile {
		repo := txn.Repository(repository(how))
		branches, err := r.lake.Branches(r.Context(), repo, "")
		for _, branch := range branches {
			var commits []txn.Commit
			if err == nil {
				commits, _, err = r.lake.WholeHistory(r.Context(), repo, branch.Head, 100)
			}
			var raw []byte
			if err == nil {
				raw, err = json.Marshal(commits)
			}
			r.out.write("lake/"+how+"/"+string(branch.Name)+".json", raw)
		}
		if err != nil {
			r.Fatal(err)
		}
	}
}

// controls are that a harmless text is found in every kind of output, in a place that
// the search has just found to hold no secret.
func (r *run) controls() {
	r.Helper()
	controls := []struct{ files, text string }{
		{"logs/value/*-worker.stderr", marker}, {"logs/file/*-worker.stderr", marker}, {"logs/nobody/*-worker.stderr", marker}, {"logs/text/*-worker.stderr", marker},
		{"logs/value/stage-worker.stderr", "[redacted]"}, {"logs/value/publish-worker.stderr", "[redacted]"}, {"logs/file/*-worker.stderr", "[redacted]"},
		{"http/value/*-worker/readyz", `"conditions"`}, {"http/file/*-worker/readyz", marker}, {"http/nobody/*-worker/readyz", marker}, {"http/file/*-worker/readyz", "[redacted]"},
		{"http/value/*-worker/metrics", marker}, {"http/*/*-worker/pprof/cmdline.answer", marker}, {"http/value/*-worker/pprof/heap.answer", marker},
		{"http/value/*-worker/pprof/goroutine_debug=2.answer", "goroutine "},
		{"traces/sent", marker}, {"conductor/updates", marker}, {"conductor/updates", "[redacted]"}, {"conductor/task_log", " objects"},
		{"conductor/workflow-*.json", marker}, {"lake/ok/main.json", "ui." + marker},
		{"perago/commands/explain-*.html", marker}, {"perago/commands/explain-*.stdout", marker}, {"perago/commands/log-*.stderr", marker}, {"perago/commands/log-ok.stdout", "prepare_stage"},
		{"perago/commands/doctor-*.stdout", marker}, {"perago/commands/doctor-*.stdout", "[redacted]"}, {"perago/refused/*.stderr", "[redacted]"}, {"perago/commands/stage-*.stderr", marker},
		{"perago/commands/*.stderr", "[redacted]"}, {"perago/nobody/*.stderr", marker},
		{"faults/*/*.stderr", "LAKECTL_"}, {"help/*.stdout", "CONDUCTOR_AUTH_SECRET"}, {"store/requests", marker},
	}
	var texts []string
	for _, control := range controls {
		if !slices.Contains(texts, control.text) {
			texts = append(texts, control.text)
		}
	}
	hits, err := secrets.Search(r.out.dir, texts)
	if err != nil {
		r.Fatal(err)
	}
	for _, control := range controls {
		found, err := filepath.Glob(filepath.Join(r.out.dir, control.files))
		if err != nil || len(found) == 0 {
			r.Errorf("%s: no such output, %v", control.files, err)
			continue
		}
		if !slices.ContainsFunc(hits, func(hit secrets.Hit) bool {
			matched, _ := filepath.Match(control.files, hit.File)
			return matched && hit.Line > 0 && texts[hit.Secret] == control.text
		}) {
			r.Errorf("%s: %q is not found in any of %d files", control.files, control.text, len(found))
		}
	}
}
