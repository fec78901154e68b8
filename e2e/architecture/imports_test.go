// Package architecture holds the direction of imports that ARCHITECTURE.md
// describes.
package architecture

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// allowed is the table of ARCHITECTURE.md: for each package of pkg, the packages
// of this project that it may import, tests aside. A package that is not here is
// a fault too, so that the table stays whole.
var allowed = map[string][]string{
	"pkg/txn":                     {},
	"pkg/credential":              {},
	"pkg/spool":                   {},
	"pkg/projection":              {"pkg/txn", "pkg/spool"},
	"pkg/telemetry":               {"pkg/txn", "pkg/credential"},
	"pkg/stage":                   {"pkg/txn", "pkg/projection"},
	"pkg/checkout":                {"pkg/txn", "pkg/projection", "pkg/spool"},
	"pkg/publish":                 {"pkg/txn"},
	"pkg/cleanup":                 {"pkg/txn"},
	"pkg/config":                  {"pkg/txn", "pkg/credential"},
	"pkg/worker":                  {"pkg/txn", "pkg/credential", "pkg/config", "pkg/telemetry"},
	"pkg/conductor":               {"pkg/txn", "pkg/credential"},
	"pkg/conductor/conductortest": {"pkg/txn", "pkg/conductor"},
	"pkg/lakefs":                  {"pkg/txn", "pkg/credential"},
	"pkg/lakefs/lakefstest":       {"pkg/txn", "pkg/credential", "pkg/lakefs"},
	"pkg/definition":              {"pkg/txn"},
	"pkg/fence":                   {"pkg/txn"},
	"pkg/explain":                 {"pkg/txn"},
	"pkg/survey":                  {"pkg/txn"},
	"pkg/doctor":                  {"pkg/txn", "pkg/survey"},
	"pkg/fault":                   {},
}

// impure is what the decisions must do without: they read no clock, open no
// file, send nothing and log nothing.
var impure = []string{"net", "net/http", "os", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "time/tzdata"}

type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
	GoFiles    []string
	Dir        string
}

// list is every package of the module.
func list(t *testing.T) map[string]goPackage {
	t.Helper()
	// The go command keeps a test's result while nothing that it has opened
	// changes, and does not see what `go list` opens.
	for _, top := range []string{"cmd", "pkg", "e2e", "examples"} {
		err := filepath.WalkDir(filepath.Join("..", "..", top), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command("go", "list", "-json=ImportPath,Imports,Deps,GoFiles,Dir", "perago/...")
	command.Dir = filepath.Join("..", "..")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := map[string]goPackage{}
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[strings.TrimPrefix(p.ImportPath, "perago/")] = p
	}
}

func TestImports(t *testing.T) {
	t.Parallel()
	packages := list(t)
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		if !strings.HasPrefix(name, "pkg/") {
			continue
		}
		may, ok := allowed[name]
		if !ok {
			t.Errorf("%s is not in the table of imports; add it here and to ARCHITECTURE.md", name)
			continue
		}
		for _, imported := range packages[name].Imports {
			if own, ok := strings.CutPrefix(imported, "perago/"); ok && !slices.Contains(may, own) {
				t.Errorf("%s imports %s; it may import %v", name, own, may)
			}
		}
	}
	for name := range allowed {
		if _, ok := packages[name]; !ok {
			t.Errorf("the table of imports has %s, which does not exist", name)
		}
	}
}

// ARCHITECTURE.md has the same table, for people.
func TestTableOfTheDocument(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "..", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(raw), "<!-- table: imports -->\n")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no table of imports")
	}
	name := regexp.MustCompile("`([^`]+)`")
	documented := map[string][]string{}
	for line := range strings.Lines(rest) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			break
		}
		if m := name.FindStringSubmatch(cells[1]); m != nil {
			documented[m[1]] = []string{}
			for _, imported := range name.FindAllStringSubmatch(cells[2], -1) {
				documented[m[1]] = append(documented[m[1]], imported[1])
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(allowed)) {
		in, ok := documented[name]
		switch {
		case !ok:
			t.Errorf("ARCHITECTURE.md does not have %s in its table of imports; it may import %v", name, allowed[name])
		case !slices.Equal(slices.Sorted(slices.Values(in)), slices.Sorted(slices.Values(allowed[name]))):
			t.Errorf("ARCHITECTURE.md says that %s may import %v; it may import %v", name, in, allowed[name])
		}
	}
	for name := range documented {
		if _, ok := allowed[name]; !ok {
			t.Errorf("ARCHITECTURE.md has %s in its table of imports; this test has not", name)
		}
	}
}

// Nothing of the product reaches the tests' machinery.
func TestCommandsDoNotImportTests(t *testing.T) {
	t.Parallel()
	for name, p := range list(t) {
		if !strings.HasPrefix(name, "cmd/") {
			continue
		}
		for _, dependency := range p.Deps {
			if own, ok := strings.CutPrefix(dependency, "perago/"); ok && (strings.HasPrefix(own, "e2e/") || strings.HasSuffix(own, "test")) {
				t.Errorf("%s depends on %s, which is for tests", name, own)
			}
			if dependency == "testing" {
				t.Errorf("%s depends on the package testing", name)
			}
		}
	}
}

func TestDecisionsArePure(t *testing.T) {
	t.Parallel()
	for _, imported := range list(t)["pkg/txn"].Imports {
		if slices.Contains(impure, imported) || strings.Contains(strings.SplitN(imported, "/", 2)[0], ".") {
			t.Errorf("pkg/txn imports %s; it holds decisions only", imported)
		}
	}
}

// One adapter for each server: no other package knows its client.
func TestClientsStayInTheirAdapters(t *testing.T) {
	t.Parallel()
	for name, p := range list(t) {
		for _, imported := range p.Imports {
			switch {
			case strings.HasPrefix(imported, "github.com/treeverse/lakefs") && !strings.HasPrefix(name, "pkg/lakefs"):
				t.Errorf("%s imports %s; only pkg/lakefs may", name, imported)
			case strings.HasPrefix(imported, "github.com/conductor-sdk/conductor-go") && !strings.HasPrefix(name, "pkg/conductor") && !strings.HasPrefix(name, "examples/"):
				t.Errorf("%s imports %s; only pkg/conductor may", name, imported)
			}
		}
	}
}
