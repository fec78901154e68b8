package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"perago/e2e/fleet"
	"perago/e2e/stack"
	"perago/pkg/fault"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// binaries is what the tests run, built once: with the race detector.
var binaries string

func TestMain(m *testing.M) { os.Exit(fleet.RunTests(m, &binaries)) }

// short runs for a moment, drawn anew each time; its log has the seed.
func short(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), append(args, "-binaries", binaries, "-dir", t.TempDir()), &stdout, &stderr)
	t.Logf("soak %s\n%s%s", strings.Join(args, " "), stderr.String(), stdout.String())
	return code, stdout.String()
}

var closing = regexp.MustCompile(`(?m)^soak: [1-9]\d* publications, 0 lost, 0 duplicated, 0 foreign overwritten, 0 orphans\n\z`)

// A short one with the real lakeFS: the Conductor of this one is in memory, and
// nothing is restarted.
func TestShortSoak(t *testing.T) {
	memory := "conductor"
	if stack.Short(t) {
		memory = "both"
	}
	if code, out := short(t, "-memory", memory, "-duration", "25s", "-replicas", "2"); code != 0 || !closing.MatchString(out) {
		t.Errorf("exit code %d, and it ends with\n%s", code, out)
	}
}

// The soak can fail. Without the hard fence merges that arrive late land on a head
// that they did not expect, and that is seen on the branches even where the workers'
// own parent check sees nothing.
func TestSoakWithoutTheFence(t *testing.T) {
	code, out := short(t, "-soft", "-blind", "-memory", "both", "-duration", "12s", "-replicas", "2")
	if code != 1 || !strings.Contains(out, "parent is the expected head") {
		t.Errorf("exit code %d, and no merge on another head was seen", code)
	}
}

// Green is only what was tested.
func TestNothingTestedIsNoSuccess(t *testing.T) {
	if code, out := short(t, "-memory", "both", "-duration", "0s", "-replicas", "1"); code != 1 || !strings.Contains(out, "nothing was published") {
		t.Errorf("exit code %d when nothing was published", code)
	}
	m, err := fleet.NewMember(fleet.Stage, stack.Servers{ConductorURL: "http://127.0.0.1:1", LakeFSURL: "http://127.0.0.1:1"}, "", "stage-0.log", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	n := &nemesis{armed: map[*fault.Hold]string{}}
	n.strike(m, fault.Lost())
	var v verdict
	n.judge(&v)
	if want := "violation: a fault never met its request: lost to a merge of stage-0.log"; !slices.Equal(v.problems, []string{want}) {
		t.Errorf("%q, want %q", v.problems, want)
	}
}

// What a completed publish task says is held to the branch and to the files.
func TestClaims(t *testing.T) {
	t.Parallel()
	lake, repository := lakefstest.NewServer().Client(t), txn.Repository("soak-claims")
	if err := lake.CreateRepository(t.Context(), repository, "local://"+string(repository), lakefstest.DefaultBranch); err != nil {
		t.Fatal(err)
	}
	s := &soak{lake: lake, record: newRecord(), targets: []target{}}
	first, err := lake.Head(t.Context(), repository, lakefstest.DefaultBranch)
	if err != nil {
		t.Fatal(err)
	}
	lakefstest.Put(t, lake, repository, lakefstest.DefaultBranch, map[string]string{"a/x": "1", "a/y": "2", "else": "3"})
	published, err := lake.CreateCommit(t.Context(), repository, lakefstest.DefaultBranch, "published", map[string]string{"perago.phase": "confirm", "perago.task_id": "publish"})
	if err != nil {
		t.Fatal(err)
	}
	branch := txn.Branch("elsewhere")
	if err := lake.CreateBranch(t.Context(), repository, branch, first); err != nil {
		t.Fatal(err)
	}
	other, err := lake.CommitUnchanged(t.Context(), repository, branch, "on another branch", nil)
	if err != nil {
		t.Fatal(err)
	}
	at := target{repository, lakefstest.DefaultBranch, first, 1}
	s.record.files["made"], s.record.files["more"] = map[string]string{"x": "1", "y": "2"}, map[string]string{"x": "1", "y": "2", "z": ""}
	s.record.files["changed"] = map[string]string{"x": "1", "y": "3"}
	right := claim{workflow: "w", task: "publish", target: at, commit: published.ID, staged: published.ID, prefix: "a/", directory: "made"}
	history := map[txn.CommitID]txn.Commit{first: {}, published.ID: published}
	for says, wrong := range map[string]func(*claim){
		"":                                     func(*claim) {},
		"which is not on its branch":           func(c *claim) { c.commit = other.ID },
		"which no user's task was seen":        func(c *claim) { c.directory = "never made" },
		"and the user's task wrote":            func(c *claim) { c.directory = "more" },
		"and the user's task wrote map[a/x:c4": func(c *claim) { c.directory = "changed" },
		"has another tree than":                func(c *claim) { c.staged = other.ID },
		"its output is not there":              func(c *claim) { c.unread = "its output is not there" },
	} {
		c := right
		wrong(&c)
		var v verdict
		if err := s.hold(t.Context(), &v, c, history); err != nil {
			t.Fatal(err)
		}
		if said := strings.Join(v.problems, "\n"); v.clean() != (says == "") || !strings.Contains(said, says) || !v.clean() && !strings.HasPrefix(said, "lost: ") {
			t.Errorf("%q, want %q", said, says)
		}
	}

	// A confirm commit that nobody was seen to make.
	s.targets = []target{at}
	var v verdict
	if err := s.judge(t.Context(), &v); err != nil {
		t.Fatal(err)
	}
	if said := strings.Join(v.problems, "\n"); !strings.Contains(said, "is of task publish, which no worker was seen to get") || v.publications != 1 {
		t.Errorf("%d publications, and %s", v.publications, said)
	}
}

// A key in what was said is a violation, and so is a search that would not see one.
func TestKeysAreLookedFor(t *testing.T) {
	t.Parallel()
	s := &soak{name: "soak-of-the-test", options: options{dir: t.TempDir()}, servers: &servers{Servers: stack.Servers{AccessKeyID: "key-of-the-test", SecretAccessKey: "secret-of-the-test"}}}
	if err := os.MkdirAll(s.said(), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ file, content, says string }{
		{"stage-0.log", "domain soak-of-the-test", ""},
		{"publish-0.metrics", "nothing", "finds not even the name of the run in what ends in .metrics"},
		{"publish-0.metrics", "in soak-of-the-test", ""},
		{"explain.html", "soak-of-the-test, c2VjcmV0LW9mLXRoZS10ZXN0", "a key to lakeFS is in what was said: explain.html:1 holds secret 0 (base64)"},
	} {
		if err := os.WriteFile(filepath.Join(s.said(), step.file), []byte(step.content), 0o644); err != nil {
			t.Fatal(err)
		}
		var v verdict
		if err := s.search(&v); err != nil {
			t.Fatal(err)
		}
		if said := strings.Join(v.problems, "\n"); v.clean() != (step.says == "") || !strings.Contains(said, step.says) {
			t.Errorf("with %s: %q, want %q", step.file, said, step.says)
		}
	}
}

// A leak is both much and more than before.
func TestLeaks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		before, after float64
		leaked        bool
	}{{20, 20, false}, {20, 49, false}, {20, 51, true}, {200, 240, false}, {200, 301, true}} {
		if got := leaked(c.before, c.after, 30); got != c.leaked {
			t.Errorf("from %v to %v: %v", c.before, c.after, got)
		}
	}
	l := &leaks{soak: &soak{options: options{replicas: 2}}, samples: map[fleet.Worker][]fleet.Held{}}
	for i := range 20 {
		l.samples[fleet.Publish] = append(l.samples[fleet.Publish], fleet.Held{Goroutines: 20, Descriptors: 20 + 10*float64(i), Memory: 1 << 20})
	}
	var v verdict
	l.judge(&v)
	if want := []string{"violation: publish-worker leaks: 90 descriptors, at the end 190"}; len(v.problems) != 1 || !strings.HasPrefix(v.problems[0], "violation: publish-worker leaks: ") || !strings.Contains(v.problems[0], "descriptors") {
		t.Errorf("%q, want something like %q", v.problems, want)
	}
}
