package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"perago/pkg/txn"
)

// oldBinaries builds the workers of the commit that the file upgrade_from names,
// and gives the folder they are in.
func oldBinaries(t testing.TB) string {
	t.Helper()
	raw, err := os.ReadFile("upgrade_from")
	if err != nil {
		t.Fatal(err)
	}
	commit := strings.TrimSpace(string(raw))
	git := func(arguments ...string) []byte {
		t.Helper()
		command := exec.Command("git", arguments...)
		command.Dir = ".."
		var errors bytes.Buffer
		command.Stderr = &errors
		out, err := command.Output()
		if err != nil {
			t.Fatalf("git %s: %v\n%sthis test needs a clone with its whole history, which holds commit %s", strings.Join(arguments, " "), err, errors.String(), commit)
		}
		return out
	}
	if shallow := strings.TrimSpace(string(git("rev-parse", "--is-shallow-repository"))); shallow != "false" {
		t.Fatalf("this clone is shallow (%s); the test needs the whole history, for commit %s: git fetch --unshallow", shallow, commit)
	}
	source, out := t.TempDir(), t.TempDir()
	archive := git("archive", "--format=tar", commit)
	unpack := exec.Command("tar", "-x", "-C", source)
	unpack.Stdin = bytes.NewReader(archive)
	if said, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", commit, err, said)
	}
	build := exec.Command("go", "build", "-o", out+string(filepath.Separator), "./cmd/stage-worker", "./cmd/publish-worker", "./cmd/cleanup-worker")
	build.Dir = source
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the workers of %s: %v\n%s", commit, err, said)
	}
	return out
}

// TestRollingUpgrade: the workers of an earlier commit and those of now serve fifty
// workflows together, then the old ones stop, one after another, and the key
// changes. Every workflow completes without a second try, and every branch has one
// publication.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	old := oldBinaries(t)
	f := newFleetOf(t, setup{files: lakeBefore, without: strings.Join(workers, " ")})
	gate := newGate(t, f.servers.LakeFSURL, f.servers.AccessKeyID, f.servers.SecretAccessKey)
	files := keyFiles{t, t.TempDir()}
	first := files.rotate(gate, "")
	id, secret, _ := strings.Cut(first, ":")
	env := map[string][]string{"stage-worker": f.stageEnv(), "publish-worker": {publishEnv}, "cleanup-worker": nil}
	completed := func(p *process) int { return strings.Count(p.stderr(), `"msg":"task completed"`) }

	before, now := map[string]*process{}, map[string]*process{}
	for name, own := range env {
		// Values, because the old workers do not read a key id from a file.
		before[name] = startIn(t, old, name, f.env(append(own, "LAKECTL_SERVER_ENDPOINT_URL="+gate.address,
			"LAKECTL_CREDENTIALS_ACCESS_KEY_ID="+id, "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY="+secret)...)...)
		before[name].ready()
	}
	f.user("prepare", func(task txn.Task) map[string]string { return map[string]string{"a.csv": string(task.Workflow)} })
	const workflows = 50
	var ids []txn.WorkflowID
	begin := func(n int) {
		for range n {
			ids = append(ids, f.start("perago_example_one_step", map[string]any{"workspace": f.branch(fmt.Sprintf("target-%d", len(ids)))}))
		}
	}
	begin(workflows / 2)
	for name, own := range env {
		now[name] = start(t, name, f.env(append(own, files.env(gate)...)...)...)
		t.Cleanup(func() { f.stop(now[name]) })
		now[name].ready()
	}
	begin(workflows / 2)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		eventually(t, waitTime, "both versions of "+name+" have completed a task", func() (bool, string) {
			return completed(before[name]) > 0 && completed(now[name]) > 0, fmt.Sprint(completed(before[name]), completed(now[name]))
		})
		before[name].drain()
	}
	files.rotate(gate, first)

	for i, id := range ids {
		workflow := f.end(id)
		if workflow.Status != txn.WorkflowCompleted {
			t.Errorf("not completed: %s", describe(workflow))
			continue
		}
		for _, task := range workflow.Tasks {
			if task.RetryCount != 0 {
				t.Errorf("a task was tried again: %s", describe(workflow))
			}
		}
		head, err := f.lake.Head(t.Context(), f.repo, txn.Branch(fmt.Sprintf("target-%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		commits, reached, err := f.lake.History(t.Context(), f.repo, head, f.first, txn.HistoryLimit)
		if err != nil || !reached || len(commits) != 1 {
			t.Errorf("%d commits above the first one for %s (%v, %v)", len(commits), id, reached, err)
		}
		if record := f.record(head); record.Workflow != id {
			t.Errorf("the publication of %s is by %s", id, record.Workflow)
		}
	}
	for name := range env {
		t.Logf("%s: %d tasks by the old one, %d by the new one", name, completed(before[name]), completed(now[name]))
	}
}
