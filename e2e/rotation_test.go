package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"perago/pkg/txn"
)

// gate stands before lakeFS and lets in who shows one of its keys: the request
// goes on with the key that lakeFS knows. Everybody else's goes on as it is, so
// the refusal is lakeFS's own. A lakeFS without an external authorization server
// has one key, which cannot be changed while it runs.
type gate struct {
	address string

	mu   sync.Mutex
	keys []string
}

func newGate(t testing.TB, target, key, secret string) *gate {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			shownKey, shownSecret, _ := r.In.BasicAuth()
			g.mu.Lock()
			defer g.mu.Unlock()
			if slices.Contains(g.keys, shownKey+":"+shownSecret) {
				r.Out.SetBasicAuth(key, secret)
			}
		},
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	g.address = server.URL
	return g
}

// takes changes the keys that are let in.
func (g *gate) takes(keys ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keys = keys
}

// keyFiles are a key for the gate in two files, as a worker's environment.
type keyFiles struct {
	t      testing.TB
	folder string
}

// rotate changes the key as docs/operations.md says: make the new one, write the
// files, delete the old one.
func (k keyFiles) rotate(g *gate, old string) (now string) {
	k.t.Helper()
	id, secret := "key-"+uuid.NewString(), "secret-"+uuid.NewString()
	now = id + ":" + secret
	g.takes(old, now)
	k.write("id", id)
	k.write("secret", secret+"\n")
	g.takes(now)
	return now
}

func (k keyFiles) write(name, content string) {
	k.t.Helper()
	if err := os.WriteFile(filepath.Join(k.folder, name), []byte(content), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

func (k keyFiles) env(g *gate) []string {
	return []string{
		"LAKECTL_SERVER_ENDPOINT_URL=" + g.address,
		"LAKECTL_CREDENTIALS_ACCESS_KEY_ID=", "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY=",
		"LAKECTL_CREDENTIALS_ACCESS_KEY_ID_FILE=" + filepath.Join(k.folder, "id"),
		"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY_FILE=" + filepath.Join(k.folder, "secret"),
	}
}

// TestKeysRotateWhileTasksRun: three times, and no task of six workflows fails.
func TestKeysRotateWhileTasksRun(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{files: lakeBefore, without: strings.Join(workers, " ")})
	gate := newGate(t, f.servers.LakeFSURL, f.servers.AccessKeyID, f.servers.SecretAccessKey)
	files := keyFiles{t, t.TempDir()}
	key := files.rotate(gate, "")
	keys := []string{key}
	var running []*process
	for name, env := range map[string][]string{"stage-worker": f.stageEnv(), "publish-worker": {publishEnv}, "cleanup-worker": nil} {
		p := start(t, name, f.env(append(env, files.env(gate)...)...)...)
		t.Cleanup(func() {
			f.stop(p)
			for _, key := range keys {
				if _, secret, _ := strings.Cut(key, ":"); strings.Contains(p.stderr(), secret) {
					t.Errorf("the log of %s holds a secret", p.name)
				}
			}
		})
		p.ready()
		running = append(running, p)
	}
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a.csv": "new"} })

	var ids []txn.WorkflowID
	for i := range 6 {
		ids = append(ids, f.start("perago_example_one_step", map[string]any{"workspace": f.branch(fmt.Sprintf("target-%d", i))}))
	}
	for i, id := range ids {
		if i%2 == 0 {
			key = files.rotate(gate, key)
			keys = append(keys, key)
		}
		workflow := f.end(id)
		if workflow.Status != txn.WorkflowCompleted {
			t.Errorf("not completed: %s", describe(workflow))
		}
		for _, task := range workflow.Tasks {
			if task.RetryCount != 0 {
				t.Errorf("a task was tried again: %s", describe(workflow))
			}
		}
	}
	for _, p := range running {
		eventually(t, waitTime, p.name+" has a key that lakeFS takes", func() (bool, string) {
			status, body := p.get("/readyz")
			return status == http.StatusOK && strings.Contains(p.stderr(), "a key was refused: its files hold a new one"), body + p.stderr()
		})
	}

	// A key that goes before its files are whole: the worker says which variable, and
	// goes on when they are.
	files.write("secret", "")
	gate.takes()
	for _, p := range running {
		p.notReady("lakeFS answered 401", "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY_FILE names an empty file")
	}
	keys = append(keys, files.rotate(gate, ""))
	for _, p := range running {
		p.ready()
	}
}

// branch makes a branch of the fleet's repository at its first commit, and gives
// the workspace of it.
func (f *fleet) branch(name string) map[string]any {
	f.t.Helper()
	if err := f.lake.CreateVisibleBranch(f.t.Context(), f.repo, txn.Branch(name), f.first); err != nil {
		f.t.Fatal(err)
	}
	workspace := f.workspace(f.first)
	workspace["branch"] = name
	return workspace
}
