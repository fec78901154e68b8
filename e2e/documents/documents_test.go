// Package documents holds what the documents say to the code: commands,
// variables, files, fields, sentences and tables. Parts that can be made from
// the code are made from it; `go test ./e2e/documents -update` writes them anew.
package documents

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the project's directory.
const root = "../.."

// documents are the names of all documents, relative to root.
func documents(t *testing.T) []string {
	t.Helper()
	names := []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"}
	err := fs.WalkDir(os.DirFS(root), "docs", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(name, ".md") {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// block is a fenced block of a document and the marks (comments) right above it.
type block struct {
	language string
	text     string
	marks    []string
}

// marked is the rest of the mark that begins so, and whether there is one.
func (b block) marked(begin string) (string, bool) {
	for _, mark := range b.marks {
		if rest, ok := strings.CutPrefix(mark, begin); ok {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}

var markPattern = regexp.MustCompile(`^<!-- (.*) -->$`)

func blocks(text string) []block {
	var all []block
	var marks []string
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if m := markPattern.FindStringSubmatch(line); m != nil {
			marks = append(marks, m[1])
			continue
		}
		if language, ok := strings.CutPrefix(line, "```"); ok {
			b := block{language: language, marks: marks}
			for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
				b.text += lines[i] + "\n"
			}
			all = append(all, b)
		}
		if line != "" {
			marks = nil
		}
	}
	return all
}

var spanPattern = regexp.MustCompile("`([^`\n]+)`")

// code is everything that a document sets as code: spans, fenced blocks and
// indented ones.
func code(text string) []string {
	var all []string
	for _, b := range blocks(text) {
		all = append(all, strings.Split(b.text, "\n")...)
	}
	fenced := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced = !fenced
		case fenced:
		case strings.HasPrefix(line, "    "):
			all = append(all, line)
		default:
			for _, m := range spanPattern.FindAllStringSubmatch(line, -1) {
				all = append(all, m[1])
			}
		}
	}
	return all
}

// table is the rows of the table that follows a mark, without heading and rule;
// cells are trimmed.
func table(t *testing.T, name, mark string) [][]string {
	t.Helper()
	tables := tables(read(t, name), mark)
	if len(tables) != 1 {
		t.Fatalf("%s has %d tables marked %q, want 1", name, len(tables), mark)
	}
	return tables[0]
}

func tables(text, mark string) [][][]string {
	var all [][][]string
	parts := strings.Split(text, "<!-- "+mark+" -->\n")
	for _, rest := range parts[1:] {
		var rows [][]string
		for i, line := range strings.Split(rest, "\n") {
			if !strings.HasPrefix(line, "|") {
				break
			}
			if i < 2 {
				continue
			}
			var cells []string
			for _, cell := range strings.Split(strings.Trim(line, "|"), "|") {
				cells = append(cells, strings.TrimSpace(cell))
			}
			rows = append(rows, cells)
		}
		all = append(all, rows)
	}
	return all
}

// names are the code spans of a cell.
func names(cell string) []string {
	var all []string
	for _, m := range spanPattern.FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	return all
}

// sources parses the Go files of the product, tests and what is made for tests
// aside, by their names relative to root.
func sources(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	for _, top := range []string{"cmd", "pkg"} {
		err := fs.WalkDir(os.DirFS(root), top, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir():
				if entry.Name() == "testdata" || strings.HasSuffix(entry.Name(), "test") || entry.Name() == "fault" {
					return fs.SkipDir
				}
				return nil
			case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.SkipObjectResolution)
			files[name] = file
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// literals are all string literals of the product.
func literals(t *testing.T) string {
	t.Helper()
	var all bytes.Buffer
	for _, file := range sources(t) {
		ast.Inspect(file, func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil {
					all.WriteString(text + "\n")
				}
			}
			return true
		})
	}
	return all.String()
}

// same fails unless both lists hold the same, in whatever order.
func same(t *testing.T, where string, documented, real []string) {
	t.Helper()
	for _, name := range real {
		if !slices.Contains(documented, name) {
			t.Errorf("%s does not have %q, which the code has", where, name)
		}
	}
	for _, name := range documented {
		if !slices.Contains(real, name) {
			t.Errorf("%s has %q, which the code has not", where, name)
		}
	}
}
