package txn

import (
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// wantPrefix fails unless a prefix has its normal form and reaches nothing but
// what is below it.
func wantPrefix(t *testing.T, prefix Prefix) {
	t.Helper()
	if back, err := ParsePrefix(prefix.String()); err != nil || back != prefix {
		t.Fatalf("%q comes back as %q, %v", prefix, back, err)
	}
	if prefix == "" {
		return
	}
	if err := CheckKey(strings.TrimSuffix(string(prefix), "/")); err != nil || !strings.HasSuffix(string(prefix), "/") ||
		strings.HasPrefix(string(prefix), ActionsPrefix) || path.Clean(string(prefix))+"/" != string(prefix) {
		t.Fatalf("accepted the prefix %q, %v", prefix, err)
	}
}

// FuzzPrefix: a prefix and a path in it make a key of the prefix, which neither a
// sibling nor the hooks are.
func FuzzPrefix(f *testing.F) {
	for _, prefix := range []string{"", "/", "models", "models/", "a/b", "/a", "a//b", "a/../b", ".", "_lakefs_actions", "_lakefs_actions/x", "_lakefs_actions2", "тест", "\xff", "a\x00"} {
		f.Add(prefix, "a/b.txt")
	}
	f.Add("/"+strings.Repeat("long", 2000), "")
	f.Add("", "_lakefs_actions/fence.yaml")
	f.Add("data", "../data2/x")
	f.Fuzz(func(t *testing.T, text, below string) {
		prefix, err := ParsePrefix(text)
		if err != nil {
			wantSentence(t, err)
			return
		}
		wantPrefix(t, prefix)
		raw, err := prefix.MarshalText()
		var back Prefix
		if err != nil || back.UnmarshalText(raw) != nil || back != prefix || len(raw) == 0 {
			t.Fatalf("%q comes back from %q as %q", prefix, raw, back)
		}
		if prefix != "" && prefix.Contains(strings.TrimSuffix(string(prefix), "/")+"2/"+below) {
			t.Fatalf("%q contains its sibling", prefix)
		}
		if CheckKey(below) != nil {
			return
		}
		key := prefix.Key(below)
		hooks := strings.HasPrefix(key, ActionsPrefix)
		if prefix.Contains(key) == hooks || path.Clean(key) != key || strings.TrimPrefix(key, string(prefix)) != below {
			t.Fatalf("the key %q of %q below %q", key, below, prefix)
		}
	})
}

// FuzzCheckKey: an accepted key is one path, the same wherever it is cleaned; else
// one sentence says why.
func FuzzCheckKey(f *testing.F) {
	for _, key := range []string{"a", "a/b", "/a", "a/", "a//b", "./a", "a/..", "\x00", "\xff", `a\b`, " ", strings.Repeat("я", 513), strings.Repeat("a/", 512) + "b"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if err := CheckKey(key); err != nil {
			wantSentence(t, err)
			return
		}
		if path.Clean("/"+key) != "/"+key || !utf8.ValidString(key) || len(key) > 1024 || strings.Contains(key, "\x00") {
			t.Fatalf("accepted %q", key)
		}
	})
}

// FuzzStagingName: a name parses in one way, and no target can have it.
func FuzzStagingName(f *testing.F) {
	name := NewStagingName("here", testWorkflow, "k", 12, execution1)
	f.Add(string(name.Branch()))
	name.Source = SourceSecond
	f.Add(string(name.Branch()))
	f.Add(string(NewStagingName("here", "no uuid", "k", 0, execution1).Branch()))
	f.Add(string(ProbeBranch(execution1)))
	f.Add("perago-staging-")
	f.Add(strings.Replace(string(name.Branch()), "-r12-", "-r012-", 1))
	f.Fuzz(func(t *testing.T, text string) {
		name, err := ParseStagingName(Branch(text))
		if err != nil {
			wantSentence(t, err)
			return
		}
		if string(name.Branch()) != text || checkTarget("branch", Branch(text)) == nil || !branchName.MatchString(text) {
			t.Fatalf("%q parses as %+v, whose name is %q", text, name, name.Branch())
		}
		if _, err := ParseExecutionID(string(name.Execution)); err != nil || name.Retry < 0 {
			t.Fatalf("%+v: %v", name, err)
		}
		if workflow, ok := name.WorkflowID(); ok && (!name.NamesWorkflow(workflow) || name.NamesWorkflow(workflow+"x")) {
			t.Fatalf("%q does not name its workflow", text)
		}
	})
}

// FuzzImportSource: what an import list allows stays, as lakeFS resolves it, below
// what the list names.
func FuzzImportSource(f *testing.F) {
	for _, source := range []string{
		"s3://bucket/path/", "s3://bucket", "s3://bucket/a b%41+c", "local:///srv/data", "s3://u:p@h/x", "s3://b/p?x#y", "s3:///", "s3://../", "local:///data/../",
		"local:///data/%2e%2e/", "s3://b//x", "gs+x.y-z://b/", "://", "S3://b/", "s3://b/\x00", "s3://b/%2f/",
	} {
		f.Add(source, "s3://bucket/")
		f.Add(source, "local:///data/")
	}
	f.Fuzz(func(t *testing.T, text, entry string) {
		source, err := ParseImportSource("source.import", text)
		if err != nil {
			wantSentence(t, err)
			if !strings.HasPrefix(err.Error(), "source.import: ") {
				t.Fatalf("%q names no field", err)
			}
			return
		}
		if back, err := ParseImportSource("source.import", string(source)); err != nil || back != source {
			t.Fatalf("%q comes back as %q, %v", source, back, err)
		}
		place, ok := resolved(source)
		if !ok {
			return // lakeFS cannot read it either
		}
		_, below, _ := strings.Cut(place, "://")
		for _, segment := range strings.Split(strings.Trim(below, "/"), "/") {
			if segment == "" || segment == "." || segment == ".." {
				t.Fatalf("%q is at %q", source, place)
			}
		}
		list, err := ParseImportList([]string{entry})
		if err != nil || !list.Allows(source) || slices.Contains(list, "*") {
			return
		}
		if bound, ok := resolved(list[0]); !ok || !strings.HasPrefix(path.Clean(place)+"/", path.Clean(bound)+"/") {
			t.Fatalf("%q allows %q, which is at %q", entry, source, place)
		}
	})
}

// resolved is where lakeFS finds an import: it takes the URI apart, and the escapes
// out of its path.
func resolved(source ImportSource) (string, bool) {
	parsed, err := url.Parse(string(source))
	if err != nil {
		return "", false
	}
	return parsed.Scheme + "://" + parsed.Host + parsed.Path, true
}

// FuzzAllowList: an accepted list matches by the repository's whole name and by
// well-formed globs.
func FuzzAllowList(f *testing.F) {
	f.Add("lake, other/dev-* ,", "lake", "main")
	f.Add("*", "lake", "main")
	f.Add("lake", "lake2", "main")
	f.Add("lake/main", "lake", "main2")
	f.Add("lake/[", "lake", "main")
	f.Add("lake/[a-z]x\\", "lake", "ax")
	f.Add("lake/*/x", "lake", "a/x")
	f.Add("*/main", "lake", "main")
	f.Fuzz(func(t *testing.T, text, repository, branch string) {
		list, err := ParseAllowList(strings.Split(text, ","))
		if err != nil {
			wantSentence(t, err)
			return
		}
		if back, err := ParseAllowList(list); err != nil || !slices.Equal(back, list) || len(list) == 0 {
			t.Fatalf("%q comes back as %q, %v", list, back, err)
		}
		want := false
		for _, entry := range list {
			glob, ok := strings.CutPrefix(entry, repository+"/")
			if _, err := path.Match(glob, branch); ok && err != nil && !strings.Contains(repository, "/") {
				t.Fatalf("%q is accepted: %v", entry, err)
			}
			matches, _ := path.Match(glob, branch)
			want = want || entry == "*" || entry == repository && !strings.Contains(repository, "/") || ok && matches && !strings.Contains(repository, "/")
		}
		if got := list.Allows(Repository(repository), Branch(branch)); got != want || got && !list.AllowsRepository(Repository(repository)) {
			t.Fatalf("%q allows %s/%s: %v, want %v", list, repository, branch, got, want)
		}
	})
}
