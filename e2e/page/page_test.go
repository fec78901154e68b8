//go:build chromium

// Package page looks at the page of perago explain in a browser: make page.
package page

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/explain"
	"perago/pkg/txn"
)

// measured is what the browser says of the page at one width.
type measured struct {
	// Width is the frame's. Sideways is by how much the page can be scrolled, Over
	// how many of its elements reach over its edge.
	Width, Sideways, Over               int
	Attempts, Commits, Refusals, Styled int
}

// frame shows the page at two widths and writes down what it sees there.
const frame = `<!DOCTYPE html><body><pre id="measured"></pre>
<iframe src="/page" style="border:0;width:1280px;height:900px"></iframe><iframe src="/page" style="border:0;width:400px;height:900px"></iframe>
<script>
onload = () => {
	const all = [];
	for (const frame of document.querySelectorAll("iframe")) {
		const page = frame.contentDocument, root = page.documentElement, count = what => page.querySelectorAll(what).length;
		all.push({Width: frame.clientWidth, Sideways: root.scrollWidth - root.clientWidth,
			Over: [...page.body.querySelectorAll("*")].filter(e => e.getBoundingClientRect().right > root.clientWidth + 0.5).length,
			Attempts: count("li.attempt"), Commits: count("li.commit"), Refusals: count(".refusal"),
			Styled: frame.contentWindow.getComputedStyle(page.querySelector("li")).listStyleType == "none" ? 1 : 0});
	}
	document.getElementById("measured").textContent = "measured " + JSON.stringify(all) + " end";
};
</script></body>`

// The page of a workflow with a retry, a superseded publication and a refusal by
// somebody's commit has one element for each, sends no request, and fits a wide
// window and a narrow one.
func TestPageInABrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("needs Debian's package chromium")
	}
	var page strings.Builder
	if err := retried().Page(&page); err != nil {
		t.Fatal(err)
	}
	// The server is the browser's proxy as well, so it sees every request.
	var mu sync.Mutex
	requests := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		requests[r.Host+r.URL.Path]++
		mu.Unlock()
		switch {
		case r.Method != http.MethodGet:
			http.Error(w, "no", http.StatusForbidden)
		case r.URL.Path == "/frame":
			fmt.Fprint(w, frame)
		case r.URL.Path == "/page":
			fmt.Fprint(w, page.String())
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	command := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--no-first-run",
		"--proxy-server="+server.URL, "--proxy-bypass-list=<-loopback>", "--user-data-dir="+t.TempDir(),
		"--window-size=1400,1000", "--virtual-time-budget=10000", "--dump-dom", server.URL+"/frame")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("chromium: %v", err)
	}
	found := regexp.MustCompile(`measured (\[.*\]) end`).FindSubmatch(out)
	if found == nil {
		t.Fatalf("the browser measured nothing: %s", out)
	}
	var all []measured
	if err := json.Unmarshal(found[1], &all); err != nil {
		t.Fatal(err)
	}
	want := []measured{{1280, 0, 0, 4, 3, 1, 1}, {400, 0, 0, 4, 3, 1, 1}}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("what the browser sees (-want +got):\n%s", diff)
	}
	mu.Lock()
	defer mu.Unlock()
	if requests[host+"/page"] == 0 {
		t.Errorf("the browser's requests were not seen: %v", requests)
	}
	for request := range requests {
		switch name := strings.TrimPrefix(request, host); {
		case name == "/frame", name == "/page", name == "/favicon.ico":
		case strings.Contains(request, ".google.com") || strings.Contains(request, ".googleapis.com") || strings.Contains(request, ".gvt1.com"):
			// The browser's own, whatever page it shows.
		default:
			t.Errorf("a request for %s", request)
		}
	}
}

// retried is a workflow whose first publish was in doubt, whose second one
// superseded it and was lost, and whose third met a commit by hand.
func retried() explain.Explanation {
	const workflow txn.WorkflowID = "0c1b3c6e-7f1e-4d0e-9a53-2f5d8f0a8c11"
	const execution txn.ExecutionID = "01890a5d-ac96-7cc0-8000-000000000001"
	id := func(letter string) txn.CommitID { return txn.CommitID(strings.Repeat(letter, 64)) }
	object := func(value any) json.RawMessage {
		raw, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		return raw
	}
	key := txn.NewLogicalTaskKey(workflow, "train_stage", 0)
	branch := txn.NewStagingName("c", workflow, key, 0, execution).Branch()
	workspace := txn.Workspace{Repository: "lake", Branch: "main"}.At(id("a"))
	staged := txn.Staged{
		Repository: "lake", Branch: "main", StagingBranch: branch, Commit: id("5"), Key: key, InputRef: id("a"), Prefix: "models/",
		Task: "s", PollCount: 1, StartTime: 1, Execution: execution, Added: 3,
	}
	begin := time.Date(2026, 5, 1, 8, 0, 0, 0, time.UTC)
	publish := func(task txn.TaskID, retry int, status txn.TaskStatus, outcome txn.Outcome, reason string) txn.Task {
		return txn.Task{ID: task, Workflow: workflow, Type: txn.TypePublish, ReferenceName: "train_publish", Status: status, RetryCount: retry,
			StartTime: begin.Add(time.Duration(retry+1) * time.Minute).UnixMilli(), Reason: reason,
			Input:  object(map[string]any{"workspace": workspace, "staged": staged}),
			Output: object(map[string]any{"publication": txn.Publication{ExpectedHead: id("a"), Outcome: outcome, Fence: txn.FenceHard}})}
	}
	confirm := func(commit, on, supersedes txn.CommitID) txn.Commit {
		record := txn.Record{
			Phase: txn.PhaseConfirm, Key: key, Workflow: workflow, Task: "p", Execution: execution, InputRef: id("a"), TargetBranch: "main", Prefix: "models/",
			StagingBranch: branch, StagingCommit: id("5"), StagingExecution: execution, SourceCommit: id("5"), ExpectedHead: on, Supersedes: supersedes,
		}
		return txn.Commit{ID: commit, Parents: []txn.CommitID{on}, MetaRange: "tree", Metadata: record.Metadata(""), Created: begin}
	}
	foreign := txn.Commit{ID: id("d"), Parents: []txn.CommitID{id("c")}, Created: begin, Message: strings.Repeat("averylongword", 40) + `"><img src="http://example.com/picture.png"><script src="http://example.com/script.js"></script>`}
	return explain.Workflow(explain.Facts{
		Workflow: txn.Workflow{ID: workflow, Name: "mine", Status: txn.WorkflowFailed, Reason: strings.Repeat("x", 500), Tasks: []txn.Task{
			{ID: "s", Workflow: workflow, Type: txn.TypeStage, ReferenceName: "train_stage", Status: txn.TaskCompleted, StartTime: begin.UnixMilli(), Times: txn.TaskTimes{Ended: begin.Add(30 * time.Second)},
				Input: object(map[string]any{"workspace": workspace, "prefix": "models/"}), Output: object(map[string]any{"staged": staged})},
			publish("p1", 0, txn.TaskFailed, txn.OutcomeInDoubt, "the merge was sent and its outcome is not known"),
			publish("p2", 1, txn.TaskTimedOut, "", "responseTimeout"),
			publish("p3", 2, txn.TaskFailed, txn.OutcomeRefused, "main advanced"),
		}},
		Identity: "c",
		Targets: []explain.Target{{Repository: "lake", Branch: "main", Head: id("d"), Ranges: map[txn.CommitID]explain.Range{
			id("a"): {Commits: []txn.Commit{foreign, confirm(id("c"), id("b"), id("b")), confirm(id("b"), id("a"), "")}, Reached: true},
		}}},
		Branches: []explain.Branch{{Repository: "lake", Name: branch, Head: txn.Commit{ID: id("5")}}},
	})
}
