package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/fault"
	"perago/pkg/fence"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

const (
	hardFenceRequired = "PERAGO_REQUIRE_HARD_FENCE=true"
	lakeActionsOff    = "LAKEFS_ACTIONS_ENABLED=false"
)

// Without the hard fence a publication says that it is on the soft one; where the
// fence is required it is refused, or said not to have held. Each sentence, also
// of the command that proves the fence, names what was found and the command that
// mends it.
func TestWithoutTheHardFence(t *testing.T) {
	t.Parallel()
	const (
		install  = "`perago fence install lakefs://REPO/main`"
		verify   = "`perago fence verify lakefs://REPO/main`"
		required = ", and PERAGO_REQUIRE_HARD_FENCE is set; run " + install + " and start a new workflow from the head it prints"
	)
	for _, c := range []struct {
		name   string
		lakeFS []string
		file   string
		// dropped takes the file out of what is staged.
		dropped bool
		// refused is why nothing is published where the fence is required, unfenced
		// is what is logged where the publication lands all the same.
		refused, unfenced string
		// before and after are what perago fence verify says of main before and after
		// a publication on the soft fence; it holds when that is empty.
		before, after string
	}{
		{
			name: "lakeFS's actions are switched off", lakeFS: []string{lakeActionsOff}, file: string(fence.File()),
			unfenced: "lakeFS ran no hook for commit HEAD: its actions are switched off (LAKEFS_ACTIONS_ENABLED, or actions.enabled in its configuration); switch them on, restart lakeFS and run " + verify,
			before:   "lakeFS ran no hook for a merge that the fence must refuse: its actions are switched off (LAKEFS_ACTIONS_ENABLED, or actions.enabled in its configuration); switch them on, restart lakeFS and run " + verify,
			after:    "its actions are switched off",
		},
		{
			// Its hook runs and completes, whatever it is asked.
			name: "the action file is edited", file: strings.Replace(string(fence.File()), `~= "confirm"`, `~= "nothing at all"`, 1),
			refused: "_lakefs_actions/perago-publish-fence.yaml of commit SOURCE is not the one that this version knows" + required,
			before:  "_lakefs_actions/perago-publish-fence.yaml of main (commit HEAD) was edited; run " + install + ", which replaces it",
			after:   "_lakefs_actions/perago-publish-fence.yaml of main (commit HEAD) was edited; run " + install + ", which replaces it",
		},
		{
			name: "the file is dropped from the source commit", file: string(fence.File()), dropped: true,
			refused: "commit SOURCE holds no _lakefs_actions/perago-publish-fence.yaml" + required,
			after:   "main (commit HEAD) holds no _lakefs_actions/perago-publish-fence.yaml; run " + install,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			without := "publish-worker"
			if c.dropped {
				without = "stage-worker and publish-worker"
			}
			f := newFleetOf(t, setup{files: map[string]string{"data/a": "0", txn.FenceFile: c.file}, without: without, lakeFS: c.lakeFS})
			f.user("prepare", func(task txn.Task) map[string]string { return map[string]string{"a": string(task.Workflow)} })
			begin := f.start
			if c.dropped {
				stage := f.behind("stage-worker", f.stageEnv()...)
				defer f.stop(stage.process)
				begin = func(name string, input map[string]any) txn.WorkflowID {
					held := stage.lake.Hold(fault.Match{Method: http.MethodPost, Path: "/commits"})
					id := f.start(name, input)
					path := held.Wait(t, waitTime).Path
					branch, _, _ := strings.Cut(path[strings.Index(path, "/branches/")+len("/branches/"):], "/")
					if err := f.lake.DeleteObjects(t.Context(), f.repo, txn.Branch(branch), []string{txn.FenceFile}); err != nil {
						t.Fatal(err)
					}
					held.Pass()
					return id
				}
			}
			named := func(sentence string, source txn.CommitID) string {
				head := string(f.head())
				if strings.Contains(sentence, "(commit HEAD)") {
					head = f.head().Short()
				}
				return strings.NewReplacer("REPO", string(f.repo), "HEAD", head, "SOURCE", string(source)).Replace(sentence)
			}
			f.verify(named(c.before, ""))
			name := f.register("unfenced", step("prepare", "data/", "${workflow.input.workspace}", nil)...)

			requiring := start(t, "publish-worker", f.env(publishEnv, hardFenceRequired)...)
			workflow := f.end(begin(name, map[string]any{"workspace": f.workspace(f.first)}))
			publish := last(t, workflow, "prepare_publish")
			o := outputOf(t, publish)
			source := outputOf(t, last(t, workflow, "prepare_stage")).Staged.Commit
			_, metrics := requiring.get("/metrics")
			noRun := strings.Contains(metrics, `perago_fence_rejections_total{fence="publish",reason="no_run"} 1`)
			if c.refused != "" {
				if want := named(c.refused, source); publish.Status != txn.TaskFailed || publish.Reason != want || o.Workspace != nil || o.Publication.Outcome != txn.OutcomeRefused || f.head() != f.first || noRun {
					t.Errorf("%s\nput out %s\nwant %s", describe(workflow), publish.Output, want)
				}
				f.verify(named(c.before, ""))
			} else {
				if workflow.Status != txn.WorkflowCompleted || o.Publication.Outcome != txn.OutcomePublished || o.Publication.Fence != txn.FenceSoft || f.history() != 1 || !noRun {
					t.Errorf("%s\nput out %s\nthe missing run is counted: %v", describe(workflow), publish.Output, noRun)
				}
				if want, logged := named(c.unfenced, source), requiring.logged("the hard fence is required, and lakeFS recorded no run of it for a publication that landed"); len(logged) != 1 || logged[0]["error"] != want {
					t.Errorf("logged %v, want one with %q", logged, want)
				}
			}
			f.stop(requiring)

			plain := start(t, "publish-worker", f.env(publishEnv)...)
			workflow = f.end(begin(name, map[string]any{"workspace": f.workspace(f.head())}))
			o = outputOf(t, last(t, workflow, "prepare_publish"))
			if workflow.Status != txn.WorkflowCompleted || o.Publication.Outcome != txn.OutcomePublished || o.Publication.Commit != f.head() || o.Publication.Fence != txn.FenceSoft {
				t.Errorf("where it is not required: %s\nput out %+v", describe(workflow), o.Publication)
			}
			f.stop(plain)
			f.verify(named(c.after, ""))
		})
	}
}

// Install and remove by the built command line on a protected branch, with a hook
// of somebody else's beside the fence; and what a publication of everything leaves
// of them.
func TestFenceOfAProtectedBranch(t *testing.T) {
	t.Parallel()
	const other = "name: other\non:\n  pre-merge:\n    branches: [no-such-branch]\nhooks:\n  - id: other\n    type: lua\n    properties:\n      script: |\n        print(\"nothing\")\n"
	f := newFleet(t, map[string]string{"data/a": "1", "_lakefs_actions/other.yaml": other})
	f.user("prepare", func(task txn.Task) map[string]string { return map[string]string{"of": string(task.Workflow)} })
	name := f.register("everything", step("prepare", "/", "${workflow.input.workspace}", func(s map[string]any) { s["root"] = true })...)
	address := "lakefs://" + string(f.repo) + "/main"
	// change runs a command that must leave this state.
	change := func(before txn.CommitID, state string, arguments ...string) {
		t.Helper()
		stdout, stderr, code := f.perago(append(arguments, address, "--output", "json")...)
		var report struct {
			Fence  string       `json:"fence"`
			Head   txn.CommitID `json:"head"`
			Before txn.CommitID `json:"before"`
		}
		if code != 0 || json.Unmarshal([]byte(stdout), &report) != nil || report.Fence != state || report.Head != f.head() || report.Before != before {
			t.Errorf("%v: exit %d, %s%s; want %s, head %s above %s", arguments, code, stdout, stderr, state, f.head(), before)
		}
	}
	// publishes runs the workflow from the head and holds the tree.
	publishes := func(want txn.Fence, kept map[string]string) {
		t.Helper()
		workflow := f.completed(name, map[string]any{"workspace": f.workspace(f.head())})
		if p := outputOf(t, last(t, workflow, "prepare_publish")).Publication; p.Outcome != txn.OutcomePublished || p.Fence != want {
			t.Errorf("published %+v, want the %s fence", p, want)
		}
		tree := map[string]string{"of": string(workflow.ID), "_lakefs_actions/other.yaml": other}
		for path, content := range kept {
			tree[path] = content
		}
		if diff := cmp.Diff(tree, lakefstest.Tree(t, f.lake, f.repo, f.head())); diff != "" {
			t.Errorf("the tree (-want +got):\n%s", diff)
		}
	}
	none := func() string {
		return "main (commit " + f.head().Short() + ") holds no " + txn.FenceFile + "; run `perago fence install " + address + "`"
	}

	f.verify(none())
	f.protect("main")
	head := f.head()
	if _, stderr, code := f.perago("fence", "install", address); code != 1 || !strings.Contains(stderr, "do it between runs, and give --yes") || f.head() != head {
		t.Errorf("install without --yes: exit %d, %s", code, stderr)
	}
	change(head, "installed", "fence", "install", "--yes")
	change("", "unchanged", "fence", "install", "--yes", "--protect")
	f.verify("")
	for range 2 { // the second from what the first left
		publishes(txn.FenceHard, map[string]string{txn.FenceFile: string(fence.File())})
	}
	change(f.head(), "removed", "fence", "remove", "--yes")
	change("", "unchanged", "fence", "remove", "--yes")
	f.verify(none())
	publishes(txn.FenceSoft, nil)
	if _, err := f.lake.CreateCommit(t.Context(), f.repo, lakefstest.DefaultBranch, "probe", nil); !errors.Is(err, txn.ErrForbidden) {
		t.Errorf("the branch is not protected any more: %v", err)
	}
}

// What the hard fence adds to a publication: requests to lakeFS, and a phase of
// its own in the timings.
func TestCostOfTheHardFence(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{files: map[string]string{"data/a": "1"}, without: "publish-worker"})
	f.user("prepare", func(task txn.Task) map[string]string { return map[string]string{"a": string(task.Workflow)} })
	name := f.register("cost", step("prepare", "data/", "${workflow.input.workspace}", nil)...)
	// requests is how many requests a publication takes, and how many of them are
	// about the fence.
	requests := func(want txn.Fence, env ...string) (all, fence int) {
		t.Helper()
		publish := f.behind("publish-worker", append(env, publishEnv)...)
		o := outputOf(t, last(t, f.completed(name, map[string]any{"workspace": f.workspace(f.head())}), "prepare_publish"))
		if _, timed := o.Timings["fence"]; !timed || o.Publication.Outcome != txn.OutcomePublished || o.Publication.Fence != want {
			t.Errorf("published %+v, timings %v, want the %s fence", o.Publication, o.Timings, want)
		}
		f.stop(publish.process)
		// Not the readiness checks of the server.
		for _, sent := range publish.lake.Matching(fault.Match{Path: "/repositories/" + string(f.repo) + "/"}) {
			all++
			if strings.Contains(sent.Path, "/actions/") || strings.Contains(sent.Query, "_lakefs_actions") {
				fence++
			}
		}
		t.Logf("%s fence, %v: %d requests, %d of them about the fence", want, env, all, fence)
		return all, fence
	}
	withoutAll, without := requests(txn.FenceSoft)
	if _, stderr, code := f.perago("fence", "install", "--yes", "lakefs://"+string(f.repo)+"/main"); code != 0 {
		t.Fatal(stderr)
	}
	for _, env := range [][]string{{}, {hardFenceRequired}} {
		if all, fence := requests(txn.FenceHard, env...); all > withoutAll+2 || fence > without+2 {
			t.Errorf("%v: %d requests, %d about the fence; without the fence %d and %d: want at most two more", env, all, fence, withoutAll, without)
		}
	}
}

// verify runs perago fence verify on main, which must say so and end with 1, or
// must find that the fence holds when the sentence is empty.
func (f *fleet) verify(sentence string) {
	f.t.Helper()
	stdout, stderr, code := f.perago("fence", "verify", "lakefs://"+string(f.repo)+"/main")
	if holds := sentence == ""; holds != (code == 0) || (holds && !strings.Contains(stdout, "holds")) || (!holds && code != 1) || !strings.Contains(stderr, sentence) {
		f.t.Errorf("verify: exit %d, %s%s; want %q", code, stdout, stderr, sentence)
	}
}

// perago runs the command line and gives what it wrote and its exit code.
func (f *fleet) perago(arguments ...string) (stdout, stderr string, code int) {
	f.t.Helper()
	command := exec.CommandContext(f.t.Context(), filepath.Join(binaries, "perago"), arguments...)
	command.Env = f.env()
	var out, said bytes.Buffer
	command.Stdout, command.Stderr = &out, &said
	if err := command.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		f.t.Fatalf("perago %v: %v", arguments, err)
	}
	return out.String(), said.String(), command.ProcessState.ExitCode()
}

// logged is the lines with this message that a worker wrote.
func (p *process) logged(message string) []map[string]any {
	p.t.Helper()
	var lines []map[string]any
	for text := range strings.Lines(p.stderr()) {
		var line map[string]any
		if json.Unmarshal([]byte(text), &line) == nil && line["msg"] == message {
			lines = append(lines, line)
		}
	}
	return lines
}

// answer is what lakeFS said to a merge into main.
type answer struct {
	status int
	body   string
}

// answers records what lakeFS says to the merges into main of the workers that
// are started behind proxies from now on, also to one that is delivered late.
func (f *fleet) answers() func() []answer {
	f.t.Helper()
	target, err := url.Parse(f.servers.LakeFSURL)
	if err != nil {
		f.t.Fatal(err)
	}
	var mu sync.Mutex
	var all []answer
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			if !strings.HasSuffix(r.Request.URL.Path, "/merge/main") {
				return nil
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			mu.Lock()
			defer mu.Unlock()
			all = append(all, answer{r.StatusCode, string(body)})
			return nil
		},
	})
	f.t.Cleanup(server.Close)
	f.front = server.URL
	return func() []answer {
		mu.Lock()
		defer mu.Unlock()
		return append([]answer(nil), all...)
	}
}

// refusedByTheFence requires that lakeFS answered these statuses to the merges,
// and the last one with the fence's own refusal, which names where the branch is.
func refusedByTheFence(t *testing.T, answers []answer, expected, found txn.CommitID, statuses ...int) {
	t.Helper()
	var got []int
	for _, a := range answers {
		got = append(got, a.status)
	}
	want := txn.FenceRefusal + " expected main at " + string(expected) + ", found it at " + string(found)
	if !cmp.Equal(got, statuses) || !strings.Contains(answers[len(answers)-1].body, want) {
		t.Errorf("lakeFS answered %v; want %v, the last with %q", answers, statuses, want)
	}
}
