package projection

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/txn"
)

func TestGuardrails(t *testing.T) {
	t.Parallel()
	files := []string{".hidden/x.tmp", "a b/c+d", "data.parquet", "deep/er/part-0.parquet", "deep/er/part-1.parquet", "logs/a.TMP", "metrics.json", "tmp/x", "тест/файл"}
	glob := func(pattern string, least int, most ...int) txn.Guardrail {
		g := &txn.RequireGlob{Pattern: pattern, Min: least}
		if len(most) > 0 {
			g.Max = &most[0]
		}
		return txn.Guardrail{RequireGlob: g}
	}
	file := func(path string) txn.Guardrail { return txn.Guardrail{RequireFile: path} }
	dir := func(path string) txn.Guardrail { return txn.Guardrail{RequireDir: path} }
	forbid := func(pattern string) txn.Guardrail { return txn.Guardrail{ForbidGlob: pattern} }
	for _, c := range []struct {
		guardrail txn.Guardrail
		want      string
	}{
		{file("metrics.json"), ""},
		{file("a b/c+d"), ""},
		{file("deep"), `require_file "deep": there is no such file`},
		{file("Metrics.json"), `require_file "Metrics.json": there is no such file`},
		{file("*.json"), `require_file "*.json": there is no such file`},
		{dir("deep"), ""},
		{dir("deep/er"), ""},
		{dir("тест"), ""},
		{dir("dee"), `require_dir "dee": there is no file in such a directory`},
		{dir("metrics.json"), `require_dir "metrics.json": there is no file in such a directory`},
		{glob("**/*.parquet", 3), ""},
		{glob("**/*.parquet", 4), `require_glob "**/*.parquet": 3 files match, at least 4 must`},
		{glob("**/*.parquet", 0, 2), `require_glob "**/*.parquet": 3 files match, at most 2 may`},
		{glob("**/*.parquet", 3, 3), ""},
		{glob("*.parquet", 2), `require_glob "*.parquet": 1 files match, at least 2 must`},
		{glob("deep/**", 2, 2), ""},
		{glob("deep/*", 1), `require_glob "deep/*": 0 files match, at least 1 must`},
		{glob("**", 9, 9), ""},
		{glob("{deep,tmp}/**/*", 3, 3), ""},
		{glob("deep/er/part-[0-9].parquet", 2, 2), ""},
		{glob("т?ст/*", 1, 1), ""},
		{forbid("**/*.exe"), ""},
		{forbid("**/*.tmp"), `forbid_glob "**/*.tmp": matched by ".hidden/x.tmp"`},
		{forbid("*.tmp"), ""},
		// A directory is forbidden by its own name.
		{forbid("**/tmp"), `forbid_glob "**/tmp": matched by "tmp/"`},
		{forbid("**/er"), `forbid_glob "**/er": matched by "deep/er/"`},
		{forbid("deep/**"), `forbid_glob "deep/**": matched by "deep/", "deep/er/", "deep/er/part-0.parquet", "deep/er/part-1.parquet"`},
		{forbid(".*"), `forbid_glob ".*": matched by ".hidden/"`},
		{forbid("**"), `forbid_glob "**": matched by ".hidden/", ".hidden/x.tmp", "a b/", "a b/c+d", "data.parquet" and 11 more`},
	} {
		g, err := NewGuardrails([]txn.Guardrail{c.guardrail})
		if err != nil {
			t.Fatal(err)
		}
		got, err := g.Check(t.Context(), slices.Values(files))
		if err != nil {
			t.Fatal(err)
		}
		var want []Violation
		if c.want != "" {
			want = []Violation{Violation(c.want)}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.guardrail, diff)
		}
	}
}

func TestMaxRemoved(t *testing.T) {
	t.Parallel()
	zero, two, none, half := 0, 2, 0.0, 0.5
	for _, c := range []struct {
		bound          txn.MaxRemoved
		removed, total int
		want           []Violation
	}{
		{txn.MaxRemoved{Count: &two}, 2, 2, nil},
		{txn.MaxRemoved{Count: &two}, 3, 100, []Violation{"max_removed.count: 3 of 100 objects would be removed, at most 2 may"}},
		{txn.MaxRemoved{Count: &zero}, 0, 0, nil},
		{txn.MaxRemoved{Count: &zero}, 1, 1, []Violation{"max_removed.count: 1 of 1 objects would be removed, at most 0 may"}},
		{txn.MaxRemoved{Fraction: &half}, 50, 100, nil},
		{txn.MaxRemoved{Fraction: &half}, 51, 100, []Violation{"max_removed.fraction: 51 of 100 objects would be removed, at most the part 0.5 may"}},
		{txn.MaxRemoved{Fraction: &none}, 0, 0, nil},
		{txn.MaxRemoved{Fraction: &none}, 1, 1000, []Violation{"max_removed.fraction: 1 of 1000 objects would be removed, at most the part 0 may"}},
		{txn.MaxRemoved{Count: &two, Fraction: &half}, 3, 4, []Violation{
			"max_removed.count: 3 of 4 objects would be removed, at most 2 may",
			"max_removed.fraction: 3 of 4 objects would be removed, at most the part 0.5 may",
		}},
	} {
		g, err := NewGuardrails([]txn.Guardrail{{RequireFile: "x"}, {MaxRemoved: &c.bound}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, g.CheckRemoved(c.removed, c.total)); diff != "" || !g.Bounded() {
			t.Errorf("%+v, %d of %d (-want +got):\n%s", c.bound, c.removed, c.total, diff)
		}
	}
	if g, err := NewGuardrails([]txn.Guardrail{{RequireFile: "x"}}); err != nil || g.Bounded() || g.CheckRemoved(5, 5) != nil {
		t.Errorf("%+v, %v", g, err)
	}
}

func TestMalformedPatterns(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		guardrail txn.Guardrail
		field     string
	}{
		{txn.Guardrail{ForbidGlob: "[a"}, "guardrails[1].forbid_glob"},
		{txn.Guardrail{ForbidGlob: "{a,b"}, "guardrails[1].forbid_glob"},
		{txn.Guardrail{RequireGlob: &txn.RequireGlob{Pattern: `a\`}}, "guardrails[1].require_glob.pattern"},
	} {
		_, err := NewGuardrails([]txn.Guardrail{{ForbidGlob: "ok"}, c.guardrail})
		if terminal, ok := err.(*txn.TerminalError); !ok || terminal.Field != c.field {
			t.Errorf("%d: got %v; want a terminal error at %s", i, err, c.field)
		}
	}
}

// A directory and the listing of what was uploaded from it are one to a
// guardrail, and every directory of it is looked at once.
func TestGuardrailsOfADirectoryAndOfItsListing(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	names := []string{"a", "b", "a.b", ".c", "a b"}
	for range 50 {
		root, base := newRoot(t)
		directories := map[string]bool{}
		for range 1 + random.IntN(12) {
			parts := make([]string, 1+random.IntN(3))
			for i := range parts {
				parts[i] = names[random.IntN(len(names))]
			}
			path := strings.Join(parts, "/") + fmt.Sprintf("/f%d", random.IntN(3))
			write(t, filepath.Join(base, "w", path), "x")
			for i, c := range path {
				if c == '/' {
					directories[path[:i]] = true
				}
			}
		}
		tree := scanned(t, root, "w")
		entries := entriesOf(t, tree)
		var seen []string
		last := ""
		for _, entry := range entries {
			seen = slices.AppendSeq(seen, newDirectories(last, entry.Path))
			last = entry.Path
		}
		if len(seen) != len(directories) {
			t.Fatalf("directories %q of %q, want each of %v once", seen, paths(entries), directories)
		}
		all := []txn.Guardrail{
			{RequireFile: "a/f0"}, {RequireDir: "a"}, {ForbidGlob: "**/.c"}, {ForbidGlob: "a*/**"},
			{RequireGlob: &txn.RequireGlob{Pattern: "**/f[12]", Min: 4}},
		}
		g, err := NewGuardrails(all)
		if err != nil {
			t.Fatal(err)
		}
		var objects []txn.Object
		for _, entry := range entries {
			objects = append(objects, txn.Object{Path: "data/" + entry.Path})
		}
		listing := func(yield func(string) bool) {
			for _, object := range objects {
				if !yield(strings.TrimPrefix(object.Path, "data/")) {
					return
				}
			}
		}
		var failed error
		onDisk, err := g.Check(t.Context(), Paths(tree, &failed))
		if err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		listed, err := g.Check(t.Context(), listing)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(onDisk, listed); diff != "" {
			t.Errorf("of %q (-directory +listing):\n%s", paths(entries), diff)
		}
	}
}

func TestGuardrailErrorIsOneMessage(t *testing.T) {
	t.Parallel()
	err := &GuardrailError{Violations: []Violation{"one", "two"}}
	if err.Error() != "guardrails: one; two" || isTerminal(err) {
		t.Errorf("%v, terminal %v", err, isTerminal(err))
	}
}

// The costliest patterns that are accepted are answered, on the longest path, while a
// task would still be waited for.
func TestGuardrails_AcceptedPatternsAreCheap(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 255)
	paths := []string{long + "/" + long + "/" + long + "/" + long, strings.Repeat("a/", 511) + "a"}
	slices.Sort(paths)
	for _, pattern := range []string{
		strings.Repeat("{a,a}", 6) + strings.Repeat("*a", 400) + "b",
		strings.Repeat("*{a,a}", 6) + strings.Repeat("*a", 400) + "b",
		strings.Repeat("**/", 300) + "b",
		"**/" + strings.Repeat("*/**/*a*", 100) + "b",
		strings.Repeat("?*", 500) + "b",
		strings.Repeat("[a-z]*", 160) + "b",
		strings.Repeat("{*a", 64) + strings.Repeat("}", 64) + "b",
		"{" + strings.Repeat("*a*a*a*,", 63) + "b}",
	} {
		list, err := txn.ParseGuardrails([]byte(fmt.Sprintf(`[{"forbid_glob": %q}]`, pattern)))
		if err != nil {
			t.Errorf("%.60s…: %v", pattern, err)
			continue
		}
		g, err := NewGuardrails(list)
		if err != nil {
			t.Errorf("%.60s…: %v", pattern, err)
			continue
		}
		began := time.Now()
		if _, err := g.Check(t.Context(), slices.Values(paths)); err != nil {
			t.Error(err)
		}
		// Seconds would be a machine's fault, minutes a pattern's.
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%.60s… took %s", pattern, took)
		}
	}
}

// Check looks at its context between the paths, and between the directories of one.
func TestGuardrails_CheckEndsWithItsContext(t *testing.T) {
	t.Parallel()
	g, err := NewGuardrails([]txn.Guardrail{{ForbidGlob: "**/b"}, {RequireFile: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	visited := 0
	violations, err := g.Check(ctx, func(yield func(string) bool) {
		for yield(fmt.Sprintf("f%09d", visited)) { // without end
			if visited++; visited == 10 {
				cancel(over)
			}
		}
	})
	if !errors.Is(err, over) || violations != nil || visited != 10 {
		t.Errorf("%v, %v after %d paths, want the context's cause after 10", violations, err, visited)
	}
}
