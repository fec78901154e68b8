package documents

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"perago/e2e/stack"
	environ "perago/pkg/config"
	"perago/pkg/txn"
)

// Every link inside the project leads to a file, and to a heading of it.
func TestLinks(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, name := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, name), -1) {
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s links to %s, but %s has no such heading", name, m[1], target)
			}
		}
	}
}

// anchors are the names that headings can be linked by, as GitHub makes them.
func anchors(text string) []string {
	var all []string
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		heading := strings.TrimLeft(line, "#")
		if fenced || heading == line || !strings.HasPrefix(heading, " ") {
			continue
		}
		var anchor strings.Builder
		for _, r := range strings.ToLower(strings.TrimSpace(heading)) {
			switch {
			case r == ' ':
				anchor.WriteRune('-')
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				anchor.WriteRune(r)
			}
		}
		all = append(all, anchor.String())
	}
	return all
}

// Every file and folder that a document names as code exists.
func TestFiles(t *testing.T) {
	t.Parallel()
	file := regexp.MustCompile(`(?:^|[\s(=])(?:\./)?((?:cmd|pkg|e2e|docs|taskdefs|workflows|examples)/[\w./-]*[\w])`)
	for _, name := range documents(t) {
		for _, text := range code(read(t, name)) {
			for _, m := range file.FindAllStringSubmatch(text, -1) {
				if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
					t.Errorf("%s names %s: %v", name, m[1], err)
				}
			}
		}
	}
}

// Every make target that a document names is there.
func TestMakeTargets(t *testing.T) {
	t.Parallel()
	var targets []string
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z-]*):`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets = append(targets, m[1])
	}
	used := regexp.MustCompile(`\bmake ([a-z][a-z-]*)`)
	found := 0
	for _, name := range documents(t) {
		for _, text := range code(read(t, name)) {
			for _, m := range used.FindAllStringSubmatch(text, -1) {
				found++
				if !slices.Contains(targets, m[1]) {
					t.Errorf("%s names the target %q, which the Makefile has not", name, m[1])
				}
			}
		}
	}
	if found == 0 {
		t.Error("found no make target in any document")
	}
}

// Every command of perago that a document names is there, with its flags.
func TestCommands(t *testing.T) {
	t.Parallel()
	var commands, flags []string
	for name, file := range sources(t) {
		if !strings.HasPrefix(name, "cmd/perago/") {
			continue
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.KeyValueExpr:
				if literal, ok := node.Value.(*ast.BasicLit); ok && selector(node.Key) == "Use" {
					command, _, _ := strings.Cut(text(t, literal), " ")
					commands = append(commands, command)
				}
			case *ast.CallExpr:
				if function, ok := node.Fun.(*ast.SelectorExpr); ok && strings.Contains(function.Sel.Name, "Var") && len(node.Args) > 1 {
					if literal, ok := node.Args[1].(*ast.BasicLit); ok {
						flags = append(flags, "--"+text(t, literal))
					}
				}
			}
			return true
		})
	}
	used := regexp.MustCompile(`(?:^|[\s(]|bin/)perago ([a-z]+)([^)|;]*)`)
	found := 0
	for _, name := range documents(t) {
		for _, span := range code(read(t, name)) {
			if strings.Contains(span, txn.FenceRefusal) {
				continue // the begin of a message
			}
			for _, m := range used.FindAllStringSubmatch(span, -1) {
				found++
				if !slices.Contains(commands, m[1]) {
					t.Errorf("%s names `perago %s`, which is not a command; there are %v", name, m[1], commands)
				}
				for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(m[2], -1) {
					if !slices.Contains(flags, flag) {
						t.Errorf("%s gives `perago %s` the flag %s; there are %v", name, m[1], flag, flags)
					}
				}
			}
		}
	}
	if found == 0 {
		t.Error("found no command in any document")
	}
}

// Every environment variable that a document names is read by something.
func TestVariables(t *testing.T) {
	t.Parallel()
	known := []string{stack.EnvConductorURL, stack.EnvLakeFSURL, stack.EnvAccessKeyID, stack.EnvSecretAccessKey, stack.EnvImportDir, stack.EnvScriptSeconds}
	for _, config := range configs {
		for _, v := range environ.Variables(config.value) {
			known = append(known, v.Name)
			if v.File {
				known = append(known, v.Name+"_FILE")
			}
		}
	}
	for _, m := range regexp.MustCompile(`\$\(([A-Z_]+)\)`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		known = append(known, m[1])
	}
	used := regexp.MustCompile(`\b(?:PERAGO|CONDUCTOR|LAKECTL|OTEL)_[A-Z0-9_]+\b`)
	for _, name := range documents(t) {
		for _, variable := range used.FindAllString(read(t, name), -1) {
			if !slices.Contains(known, variable) {
				t.Errorf("%s names the variable %s, which nothing reads", name, variable)
			}
		}
	}
}

// Every function, method and type that a document names as pkg.Name is declared
// there.
func TestNames(t *testing.T) {
	t.Parallel()
	declared := map[string]bool{}
	packages := map[string]bool{}
	add := func(name string, files map[string]*ast.File) {
		for _, file := range files {
			packages[file.Name.Name] = true
			for _, declaration := range file.Decls {
				switch d := declaration.(type) {
				case *ast.FuncDecl:
					declared[strings.Join(append([]string{file.Name.Name}, receiver(d)...), ".")+"."+d.Name.Name] = true
				case *ast.GenDecl:
					for _, spec := range d.Specs {
						if s, ok := spec.(*ast.TypeSpec); ok {
							declared[file.Name.Name+"."+s.Name.Name] = true
						}
					}
				}
			}
		}
	}
	add("", sources(t))
	add("", testPackages(t))
	name := regexp.MustCompile(`^([a-z]+)((?:\.[A-Za-z]+)+)$`)
	found := 0
	for _, document := range documents(t) {
		for _, span := range code(read(t, document)) {
			m := name.FindStringSubmatch(span)
			// A word of metadata or JSON, such as perago.phase, is not a name of Go.
			if m == nil || !packages[m[1]] || m[1] == "main" {
				continue
			}
			found++
			if !declared[span] {
				t.Errorf("%s names %s, which is not declared", document, span)
			}
		}
	}
	if found < 20 {
		t.Errorf("found %d names in all documents; the pattern misses them", found)
	}
}

func receiver(d *ast.FuncDecl) []string {
	if d.Recv == nil {
		return nil
	}
	expression := d.Recv.List[0].Type
	for {
		switch e := expression.(type) {
		case *ast.StarExpr:
			expression = e.X
		case *ast.IndexExpr:
			expression = e.X
		case *ast.Ident:
			return []string{e.Name}
		default:
			return nil
		}
	}
}
