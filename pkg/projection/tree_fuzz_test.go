package projection

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"perago/pkg/txn"
)

// names takes a text apart into distinct names in byte order.
func names(text string) []string {
	all := strings.Split(text, "\n")
	slices.Sort(all)
	return slices.Compact(all)
}

// FuzzDiff: of any tree and any listing the plan makes the tree, touches nothing
// outside the prefix and no hook, and removes exactly what is not there.
func FuzzDiff(f *testing.F) {
	f.Add("w", "a\nb/c\nd", "w/a\nw/b\nw/b/x\nw/../x\nw//x\nw/\nw/z")
	f.Add("/", "a\n_lakefs_actions.md", "_lakefs_actions/fence.yaml\na\nb\n..")
	f.Add("/", "_lakefs_actions/x", "a")
	f.Add("data", "x", "data.json\ndata2/z")
	f.Add("w", "a.b\na/b\na0", "w/a.b\nw/a/b\nw/a0\x00")
	f.Fuzz(func(t *testing.T, text, localText, remoteText string) {
		prefix, err := txn.ParsePrefix(text)
		if err != nil {
			return
		}
		var local []Entry
		for _, name := range names(localText) {
			if txn.CheckKey(name) == nil {
				local = append(local, Entry{Path: name, Size: int64(len(name))})
			}
		}
		var remote []txn.Object
		for i, key := range names(remoteText) {
			// Of each third object the content is that of a file of this name.
			object := txn.Object{Path: key, Size: int64(len(strings.TrimPrefix(key, string(prefix)))), Checksum: md5Of(key)}
			if i%3 == 0 {
				object.Checksum = md5Of(strings.TrimPrefix(key, string(prefix)))
			}
			remote = append(remote, object)
		}
		hash := func(_ context.Context, entry Entry) (string, error) { return md5Of(entry.Path), nil }
		plan, err := Diff(t.Context(), prefix, treeOf(local...), Objects(remote), hash, 1)

		outside := slices.ContainsFunc(remote, func(o txn.Object) bool { return !strings.HasPrefix(o.Path, string(prefix)) })
		unfit := slices.ContainsFunc(local, func(e Entry) bool {
			return !prefix.Contains(prefix.Key(e.Path)) || txn.CheckKey(prefix.Key(e.Path)) != nil
		})
		if err != nil {
			if !outside && !unfit {
				t.Fatal(err)
			}
			return
		}
		if outside || unfit {
			t.Fatalf("planned %+v", plan)
		}
		// The tree that the plan makes.
		tree := map[string]string{}
		for _, object := range remote {
			tree[object.Path] = object.Checksum
		}
		before := len(tree)
		for key, err := range plan.RemovedKeys() {
			if err != nil {
				t.Fatal(err)
			}
			if _, there := tree[key]; !there || !prefix.Contains(key) {
				t.Fatalf("removes %q", key)
			}
			delete(tree, key)
		}
		if before-len(tree) != plan.Removed {
			t.Fatalf("removes some twice: %+v", plan)
		}
		sent := int64(0)
		for entry, err := range plan.Uploads() {
			if err != nil {
				t.Fatal(err)
			}
			tree[prefix.Key(entry.Path)] = md5Of(entry.Path)
			sent += entry.Size
		}
		if sent != plan.Bytes || plan.Added+plan.Changed+plan.Unchanged != len(local) {
			t.Fatalf("%d bytes of %+v", sent, plan)
		}
		for _, entry := range local {
			if tree[prefix.Key(entry.Path)] != md5Of(entry.Path) {
				t.Fatalf("%q is not published by %+v", entry.Path, plan)
			}
			delete(tree, prefix.Key(entry.Path))
		}
		for key := range tree {
			if prefix.Contains(key) {
				t.Fatalf("%q stays under %q", key, prefix)
			}
		}
	})
}

// FuzzGuardrails: any guardrail that is accepted is answered at once, and by what its
// words mean.
func FuzzGuardrails(f *testing.F) {
	f.Add(`[{"require_file": "a/b"}, {"require_dir": "a"}, {"forbid_glob": "**/*.tmp"}]`, "a/b\na/c.tmp\nd")
	f.Add(`[{"forbid_glob": "a"}]`, "a/b\na/c")
	f.Add(`[{"require_glob": {"pattern": "**/*.{csv,parquet}", "min": 2, "max": 3}}]`, "x.csv\ny/z.parquet\nw.txt")
	f.Add(`[{"forbid_glob": "[a-"}, {"forbid_glob": "a\\"}, {"forbid_glob": "{a,{b}"}]`, "a")
	f.Add(`[{"forbid_glob": "**/**/**/**/*a*a*a*a*a*b"}]`, strings.Repeat("a/", 40)+"aaaaaaaaaaaaaaaa")
	f.Add(`[{"forbid_glob": "`+strings.Repeat("{a,a}", 40)+`b"}]`, strings.Repeat("a", 200))
	f.Add(`[{"forbid_glob": "`+strings.Repeat("{a,a}", 6)+`b"}]`, strings.Repeat("a", 200))
	f.Add(`[{"require_glob": {"pattern": "{,{,{,{,{,a}b}c}d}e}*{x,}*{y,}*z"}}]`, "aabbccddee")
	f.Add(`[{"max_removed": {"count": 0, "fraction": 1}}]`, "")
	f.Fuzz(func(t *testing.T, raw, text string) {
		list, err := txn.ParseGuardrails([]byte(raw))
		if err != nil {
			return
		}
		guardrails, err := NewGuardrails(list)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "guardrails[") {
				t.Fatalf("%q names no guardrail", err)
			}
			return
		}
		var paths []string
		for _, name := range names(text) {
			if txn.CheckKey(name) == nil {
				paths = append(paths, name)
			}
		}
		began := time.Now()
		violations, err := guardrails.Check(t.Context(), slices.Values(paths))
		if err != nil {
			t.Fatal(err)
		}
		// Workflow input is untrusted: a pattern must not stop a worker.
		if took := time.Since(began); took > 5*time.Second {
			t.Fatalf("%d paths took %s", len(paths), took)
		}
		want := 0
		for _, one := range list {
			matching, below := 0, 0
			seen := map[string]bool{}
			for _, path := range paths {
				pattern := one.ForbidGlob
				if one.RequireGlob != nil {
					pattern = one.RequireGlob.Pattern
				}
				if ok, _ := doublestar.Match(pattern, path); ok {
					matching++
				}
				for i := range path {
					if ok, _ := doublestar.Match(pattern, path[:i]); path[i] == '/' && ok && !seen[path[:i]] {
						seen[path[:i]] = true
						below++
					}
				}
			}
			holds := true
			switch {
			case one.RequireFile != "":
				holds = slices.Contains(paths, one.RequireFile)
			case one.RequireDir != "":
				holds = slices.ContainsFunc(paths, func(path string) bool { return strings.HasPrefix(path, one.RequireDir+"/") })
			case one.RequireGlob != nil:
				holds = matching >= one.RequireGlob.Min && (one.RequireGlob.Max == nil || matching <= *one.RequireGlob.Max)
			case one.ForbidGlob != "":
				holds = matching+below == 0
			}
			if !holds {
				want++
			}
		}
		if len(violations) != want {
			t.Fatalf("%q over %q: %d violations, want %d: %q", raw, paths, len(violations), want, violations)
		}
		if again, err := guardrails.Check(t.Context(), slices.Values(paths)); err != nil || !slices.Equal(again, violations) {
			t.Fatalf("%q, and then %q", violations, again)
		}
	})
}
