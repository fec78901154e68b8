package fence

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// parsed is the action file as lakeFS reads it.
func parsed(t *testing.T) (action struct {
	Name  string
	On    map[string]any
	Hooks []struct {
		ID         string
		Type       string
		If         string
		Properties map[string]any
	}
}) {
	t.Helper()
	if err := yaml.Unmarshal(file, &action); err != nil {
		t.Fatal(err)
	}
	return action
}

func script(t *testing.T) string {
	t.Helper()
	text, ok := parsed(t).Hooks[0].Properties["script"].(string)
	if !ok {
		t.Fatal("the hook has no script")
	}
	return text
}

// The names are those by which package txn tells the fence's runs from others,
// and it runs for every merge.
func TestFileIsTheFence(t *testing.T) {
	t.Parallel()
	action := parsed(t)
	if action.Name != txn.FenceAction || len(action.Hooks) != 1 || action.Hooks[0].ID != txn.FenceHook ||
		action.Hooks[0].Type != "lua" || action.Hooks[0].If != "" || len(action.Hooks[0].Properties) != 1 {
		t.Errorf("%+v", action)
	}
	if on, ok := action.On[preMerge]; len(action.On) != 1 || !ok || on != nil {
		t.Errorf("on: %v", action.On)
	}
	if line := versionLine.FindSubmatch(file); line == nil || string(line[1]) != fmt.Sprint(Version) {
		t.Errorf("the version line is %q", line)
	}
}

// A worker that requires the fence takes the file it knows, byte for byte. So a
// changed file is a new version, or installed ones would count as edited.
func TestVersionFollowsTheFile(t *testing.T) {
	t.Parallel()
	sums := map[int]string{1: "6ed7c68971719f480ef7f9cc1471a084913677d37d8935419181dd1191f99962"}
	sum := sha256.Sum256(file)
	if got := hex.EncodeToString(sum[:]); sums[Version] != got {
		t.Errorf("version %d has the sum %s, expected %s: a changed file needs a new version", Version, got, sums[Version])
	}
	given := File()
	given[0] = 'X'
	if file[0] == 'X' {
		t.Error("File gives its own bytes away")
	}
}

// It reaches nothing outside and decides at once: it loads only the library that
// words a refusal, and has no loop.
func TestScriptDecidesAtOnce(t *testing.T) {
	t.Parallel()
	text := script(t)
	for _, library := range regexp.MustCompile(`require\s*\(?\s*"?([^")]*)`).FindAllStringSubmatch(text, -1) {
		if library[1] != "hook" {
			t.Errorf("it loads %q", library[1])
		}
	}
	for _, word := range []string{"while", "for", "repeat", "goto"} {
		code := regexp.MustCompile(`--.*`).ReplaceAllString(text, "")
		if regexp.MustCompile(`\b` + word + `\b`).MatchString(code) {
			t.Errorf("it has a loop: %s", word)
		}
	}
}

// The script in lakeFS's own interpreter, on every kind of commit.
func TestScript(t *testing.T) {
	t.Parallel()
	head, other := strings.Repeat("a", 64), strings.Repeat("b", 64)
	good := func() map[string]string {
		return map[string]string{"perago.phase": "confirm", "perago.expected_head": head, "perago.target_branch": "main", ".lakefs.merge.strategy": "default"}
	}
	with := func(key, value string) map[string]string {
		m := good()
		m[key] = value
		return m
	}
	without := func(key string) map[string]string {
		m := good()
		delete(m, key)
		return m
	}
	for name, c := range map[string]struct {
		parents  []string
		metadata map[string]string
		// want is the whole refusal; empty when the merge passes.
		want string
	}{
		"a publication on its head":       {[]string{head}, good(), ""},
		"with keys that it does not know": {[]string{head}, with("theirs", "x"), ""},

		"on another head":        {[]string{other}, good(), "expected main at " + head + ", found it at " + other},
		"without an expectation": {[]string{head}, without("perago.expected_head"), "expected main at nothing, found it at " + head},
		"an empty expectation":   {[]string{head}, with("perago.expected_head", ""), "expected main at nothing, found it at " + head},
		"a short id":             {[]string{head}, with("perago.expected_head", head[:12]), "expected main at " + head[:12] + ", found it at " + head},
		"an id in capitals":      {[]string{head}, with("perago.expected_head", strings.ToUpper(head)), "expected main at " + strings.ToUpper(head) + ", found it at " + head},
		"a very long id":         {[]string{head}, with("perago.expected_head", strings.Repeat("x", 5000)), "expected main at " + strings.Repeat("x", 256) + ", found it at " + head},
		"not squashed":           {[]string{head, other}, good(), "expected one parent, " + head + ", found 2 (" + head + ", " + other + "); a publication is a squash merge"},
		"no parent":              {[]string{}, good(), "expected one parent, " + head + ", found 0 (); a publication is a squash merge"},
		"for another branch":     {[]string{head}, with("perago.target_branch", "release"), "expected a merge into release, found one into main"},
		"for no branch":          {[]string{head}, without("perago.target_branch"), "expected a merge into nothing, found one into main"},

		"no metadata":              {[]string{other}, nil, ""},
		"somebody's merge":         {[]string{head, other}, map[string]string{"k": "v"}, ""},
		"a try commit":             {[]string{other}, with("perago.phase", "try"), ""},
		"a source commit":          {[]string{other}, with("perago.phase", "source"), ""},
		"an empty phase":           {[]string{other}, with("perago.phase", ""), ""},
		"a phase that looks alike": {[]string{other}, with("perago.phase", "confirmed"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			commit := map[string]any{"parents": c.parents}
			if c.metadata != nil {
				commit["metadata"] = c.metadata
			}
			err := lakefstest.RunLua(script(t), map[string]any{"branch_id": "main", "commit": commit})
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || err.Error() != txn.FenceRefusal+" "+c.want):
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// Each way in which a file is not the known one has its own sentence, with the
// command that mends it.
func TestFaults(t *testing.T) {
	t.Parallel()
	target := Target{Repository: "lake", Branch: "main"}
	head := txn.CommitID(strings.Repeat("a", 64))
	change := func(old, changed string) string {
		text := strings.Replace(string(file), old, changed, 1)
		if text == string(file) {
			t.Fatalf("%q is not in the file", old)
		}
		return text
	}
	const at = "_lakefs_actions/perago-publish-fence.yaml of main (commit aaaaaaaaaaaa)"
	const replace = "; run `perago fence install lakefs://lake/main`, which replaces it"
	for name, c := range map[string]struct{ content, want string }{
		"edited":         {change("~= 1", "~= 2"), at + " was edited" + replace},
		"a line more":    {string(file) + "\n", at + " was edited" + replace},
		"other ends":     {strings.ReplaceAll(string(file), "\n", "\r\n"), at + " was edited" + replace},
		"empty":          {"", at + " was edited: it does not run before merges (on: pre-merge)" + replace},
		"no version":     {change("# perago-publish-fence version 1\n", ""), at + " was edited" + replace},
		"patterns":       {change("  pre-merge:\n", "  pre-merge:\n    branches: [release-*, dev]\n"), at + " was edited: it runs only for merges into branches like release-*, dev" + replace},
		"another event":  {change("  pre-merge:\n", "  post-merge:\n"), at + " was edited: it does not run before merges (on: pre-merge)" + replace},
		"older":          {change("version 1", "version 0"), at + " is version 0, and this perago knows version 1" + replace},
		"newer":          {change("version 1", "version 2"), at + " is version 2, newer than the version 1 that this perago knows; use the perago that installed it"},
		"no YAML":        {"name: [\n", at + " is no action file, and lakeFS neither cuts a branch from such a commit nor merges it: yaml: line 1: did not find expected node content; take the file out by a direct commit on main, then run `perago fence install lakefs://lake/main`"},
		"another action": {"name: theirs\non: pre-merge\n", at + " is no action file, and lakeFS neither cuts a branch from such a commit nor merges it: yaml: unmarshal errors: line 2: cannot unmarshal !!str `pre-merge` into map[string]*fence.event; take the file out by a direct commit on main, then run `perago fence install lakefs://lake/main`"},
	} {
		fault := target.fault(head, []byte(c.content))
		if fault == nil || fault.Error() != c.want || fault.Newer != (name == "newer") {
			t.Errorf("%s: got %v\nwant %s", name, fault, c.want)
		}
	}
	if fault := target.fault(head, File()); fault != nil {
		t.Errorf("the known file: %v", fault)
	}
}
