package documents

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every hazard has a test, which is there, is built, and is not skipped.
func TestHazards(t *testing.T) {
	t.Parallel()
	const document = "docs/hazards.md"
	packages := map[string]*testPackage{}
	var hazards []string
	tests := 0
	for _, rows := range tables(read(t, document), "table: hazards") {
		for _, row := range rows {
			if len(row) != 4 {
				t.Fatalf("%s: a row of %d cells: %q", document, len(row), row)
			}
			hazard := row[0]
			if slices.Contains(hazards, hazard) {
				t.Errorf("%s: two rows are called %q", document, hazard)
			}
			hazards = append(hazards, hazard)
			var p *testPackage
			found := 0
			for _, name := range names(row[3]) {
				if !strings.HasPrefix(name, "Test") {
					if packages[name] == nil {
						packages[name] = parseTests(t, name)
					}
					p = packages[name]
					continue
				}
				found++
				if p == nil {
					t.Errorf("%s: %q names %s before the package it is in", document, hazard, name)
					continue
				}
				if fault := p.fault(name); fault != "" {
					t.Errorf("%s: %q names %s of %s: %s", document, hazard, name, p.folder, fault)
				}
			}
			if found == 0 {
				t.Errorf("%s: nothing tests %q", document, hazard)
			}
			tests += found
		}
	}
	if len(hazards) < 20 || tests < 80 {
		t.Errorf("%s has %d hazards and %d tests; its tables are not read", document, len(hazards), tests)
	}
}

// testPackage is what the files of one folder declare.
type testPackage struct {
	folder    string
	functions map[string][]*ast.FuncDecl
	// tests are the tests, which stand in files for tests.
	tests map[string]bool
	// texts are all string literals: the names of cases stand in tables.
	texts map[string]bool
}

func parseTests(t *testing.T, folder string) *testPackage {
	t.Helper()
	p := &testPackage{folder: folder, functions: map[string][]*ast.FuncDecl{}, tests: map[string]bool{}, texts: map[string]bool{}}
	directory := filepath.Join(root, filepath.FromSlash(folder))
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		// A file that is not built holds no test.
		if built, err := build.Default.MatchFile(directory, entry.Name()); err != nil || !built || !strings.HasSuffix(entry.Name(), ".go") {
			continue
		}
		source, err := os.ReadFile(filepath.Join(directory, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		p.add(t, entry.Name(), source)
	}
	return p
}

func (p *testPackage) add(t *testing.T, name string, source []byte) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			p.functions[node.Name.Name] = append(p.functions[node.Name.Name], node)
			if node.Recv == nil && strings.HasPrefix(node.Name.Name, "Test") && strings.HasSuffix(name, "_test.go") {
				p.tests[node.Name.Name] = true
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(node.Value); err == nil && node.Kind == token.STRING {
				p.texts[text] = true
			}
		}
		return true
	})
}

// fault says what is wrong with a test's name, such as TestX/a case/another; ""
// when nothing is.
func (p *testPackage) fault(name string) string {
	parts := strings.Split(name, "/")
	if !p.tests[parts[0]] {
		return "there is no such test"
	}
	for _, part := range parts[1:] {
		if !p.texts[part] {
			return "no case is called " + strconv.Quote(part)
		}
	}
	if in := p.skips(parts[0], map[string]bool{}); in != "" {
		return in + " may skip it"
	}
	return ""
}

// skips is the name of a function that a function uses, of this package and by
// whatever way, and that skips a test; "" when there is none.
func (p *testPackage) skips(function string, seen map[string]bool) string {
	if seen[function] {
		return ""
	}
	seen[function] = true
	found := ""
	for _, declaration := range p.functions[function] {
		ast.Inspect(declaration, func(node ast.Node) bool {
			if found != "" {
				return false
			}
			identifier, ok := node.(*ast.Ident)
			switch {
			case !ok:
			case slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, identifier.Name):
				found = function
			case p.functions[identifier.Name] != nil:
				found = p.skips(identifier.Name, seen)
			}
			return true
		})
	}
	return found
}

// The check of the hazards finds what it is for.
func TestHazardsAreChecked(t *testing.T) {
	t.Parallel()
	p := &testPackage{functions: map[string][]*ast.FuncDecl{}, tests: map[string]bool{}, texts: map[string]bool{}}
	// LEAVE stands for Skip: whoever searches the sources for skipped tests should
	// find those, and not what this check is tried on.
	sample := func(source string) []byte { return []byte(strings.ReplaceAll(source, "LEAVE", "Skip")) }
	p.add(t, "a.go", sample("package a\nfunc TestNone(t *testing.T) {}\nfunc (s *suite) leave() { s.t.LEAVENow() }\n"))
	p.add(t, "a_test.go", sample(`package a
func TestSound(t *testing.T) { for name := range map[string]int{"a case": 1} { t.Run(name, nil) }; helper(t) }
func TestSkipped(t *testing.T) { t.LEAVE("why") }
func TestSkippedBelow(t *testing.T) { run(table{"x", between}) }
func between(t *testing.T) { s := suite{t}; s.leave() }
func helper(t *testing.T) { helper(t) }
`))
	for name, want := range map[string]string{
		"TestSound": "", "TestSound/a case": "", "TestSound/another": `no case is called "another"`,
		"TestMissing": "there is no such test", "TestNone": "there is no such test", "helper": "there is no such test",
		"TestSkipped": "TestSkipped may skip it", "TestSkippedBelow": "leave may skip it",
	} {
		if got := p.fault(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
