package documents

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"perago/pkg/checkout"
	"perago/pkg/cleanup"
	"perago/pkg/fence"
	"perago/pkg/lakefs"
	"perago/pkg/publish"
	"perago/pkg/stage"
	"perago/pkg/txn"
)

// testPackages are the packages made for tests that documents speak of.
func testPackages(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	for _, pattern := range []string{"pkg/*/*test/*.go", "pkg/fault/*.go"} {
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range matches {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			if files[name], err = parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution); err != nil {
				t.Fatal(err)
			}
		}
	}
	return files
}

// The fields of the inputs are those that the parsers take: asked for a field
// that is none, they list them.
func TestInputFields(t *testing.T) {
	t.Parallel()
	const workspace = `{"repository": "lake", "branch": "main", "ref_type": "commit", "ref": "5f0cd4ab7b1c2d4e8f9a0b1c2d3e4f5061728394a5b6c7d8e9f0a1b2c3d4e5f6"}`
	all := txn.AllowList{"*"}
	stageInput := func(raw string) error {
		_, err := txn.ParseStageInput(json.RawMessage(raw), all)
		return err
	}
	for _, c := range []struct {
		table string
		err   func() error
	}{
		{"workspace", func() error { return stageInput(`{"workspace": {"no_such": 1}}`) }},
		{"stage", func() error { return stageInput(`{"no_such": 1}`) }},
		{"checkout", func() error {
			_, err := txn.ParseCheckoutInput(json.RawMessage(`{"no_such": 1}`), all)
			return err
		}},
		{"guardrail", func() error {
			return stageInput(`{"workspace": ` + workspace + `, "prefix": "p", "guardrails": [{"no_such": 1}]}`)
		}},
		{"publish", func() error {
			_, err := txn.ParsePublishInput(json.RawMessage(`{"no_such": 1}`), txn.TaskDefinition{}, all)
			return err
		}},
		{"cleanup", func() error {
			_, err := txn.ParseCleanupInput(json.RawMessage(`{"no_such": 1}`), all)
			return err
		}},
	} {
		err := c.err()
		if err == nil {
			t.Errorf("%s: the field no_such was taken", c.table)
			continue
		}
		_, list, ok := strings.Cut(err.Error(), "the fields are ")
		if !ok {
			t.Errorf("%s: %v does not list the fields", c.table, err)
			continue
		}
		var documented []string
		for _, row := range table(t, "docs/tasks.md", "input: "+c.table) {
			documented = append(documented, names(row[0])...)
		}
		same(t, "docs/tasks.md, input of "+c.table, documented, strings.Split(list, ", "))
	}
}

// The fields of the outputs are those of the structs, with their types.
func TestOutputFields(t *testing.T) {
	t.Parallel()
	for _, s := range []any{txn.Staged{}, txn.Publication{}, checkout.Checkout{}} {
		structure := reflect.TypeOf(s)
		documented := map[string]string{}
		for _, row := range table(t, "docs/tasks.md", "fields: "+structure.Name()) {
			for _, name := range names(row[0]) {
				documented[name] = row[1]
			}
		}
		real := map[string]string{}
		for i := range structure.NumField() {
			name, _, _ := strings.Cut(structure.Field(i).Tag.Get("json"), ",")
			real[name] = map[reflect.Kind]string{reflect.String: "string", reflect.Int: "number", reflect.Int64: "number", reflect.Bool: "boolean"}[structure.Field(i).Type.Kind()]
		}
		if !maps.Equal(documented, real) {
			t.Errorf("docs/tasks.md, fields of %s: %v, the code has %v", structure.Name(), documented, real)
		}
	}
	result := cleanup.Result{}.Output()
	if len(result) != 3 || result["deleted"] == nil || result["kept"] == nil || result["errors"] == nil {
		t.Errorf("cleanup puts out %v; correct docs/tasks.md and this test", result)
	}
}

// Tables of constants have a row for each value of their type.
func TestConstants(t *testing.T) {
	t.Parallel()
	files := sources(t)
	mark := regexp.MustCompile(`<!-- constants: (\S+) (\S+) -->`)
	found := 0
	for _, name := range documents(t) {
		for _, m := range mark.FindAllStringSubmatch(read(t, name), -1) {
			found++
			var real []string
			for file, parsed := range files {
				if path.Dir(file) != m[1] {
					continue
				}
				ast.Inspect(parsed, func(node ast.Node) bool {
					if value, ok := node.(*ast.ValueSpec); ok && value.Type != nil && selector(value.Type) == m[2] {
						for _, v := range value.Values {
							real = append(real, text(t, v))
						}
					}
					return true
				})
			}
			var documented []string
			for _, row := range table(t, name, "constants: "+m[1]+" "+m[2]) {
				documented = append(documented, names(row[0])...)
			}
			if len(real) == 0 {
				t.Errorf("%s has no constants of type %s", m[1], m[2])
			}
			same(t, name+", constants of "+m[2], documented, real)
		}
	}
	if found != 2 {
		t.Errorf("found %d tables of constants, want 2", found)
	}
}

// actions are what lakeFS 1.84.0 asks of a key for each call of the client. They
// were read from its pkg/api/controller.go.
var actions = map[string]string{
	"Commit": "fs:ReadCommit", "Head": "fs:ReadBranch", "History": "fs:ReadBranch", "Objects": "fs:ListObjects", "Differ": "fs:ListObjects", "ReadObject": "fs:ReadObject", "MD5Known": "fs:ReadObject",
	"Branches": "fs:ListBranches", "BranchPages": "fs:ListBranches", "Repositories": "fs:ListRepositories",
	"CreateBranch": "fs:CreateBranch", "DeleteBranch": "fs:DeleteBranch",
	"Upload": "fs:WriteObject", "DeleteObjects": "fs:DeleteObject",
	"HookRuns":     "ci:ReadAction",
	"Import":       "fs:ImportFromStorage",
	"UploadLimit":  "", // every user may read the configuration
	"CreateCommit": "fs:CreateCommit", "CommitTree": "fs:CreateCommit", "CommitUnchanged": "fs:CreateCommit", "Merge": "fs:CreateCommit",
}

// The table of permissions has for each worker exactly what its port needs.
func TestActions(t *testing.T) {
	t.Parallel()
	documented := map[string][]string{}
	for _, row := range table(t, "docs/security.md", "actions") {
		documented[row[0]] = append(documented[row[0]], names(row[1])...)
	}
	client := reflect.TypeFor[*lakefs.Client]()
	for worker, ports := range map[string][]reflect.Type{
		"stage":   {reflect.TypeFor[stage.Lake](), reflect.TypeFor[checkout.Lake]()},
		"publish": {reflect.TypeFor[publish.Lake]()}, "cleanup": {reflect.TypeFor[cleanup.Lake]()},
	} {
		var methods, real []string
		for _, port := range ports {
			for i := range port.NumMethod() {
				methods = append(methods, port.Method(i).Name)
			}
		}
		if strings.Contains(read(t, "cmd/"+worker+"-worker/main.go"), "fence.Prover{") {
			prover := reflect.TypeFor[fence.ProverLake]()
			for i := range prover.NumMethod() {
				methods = append(methods, prover.Method(i).Name)
			}
		}
		if strings.Contains(read(t, "cmd/"+worker+"-worker/main.go"), "lakefs.Settling{") {
			methods = append(methods, "Head", "Commit") // what it reads to settle
		}
		for _, method := range methods {
			action, ok := actions[method]
			if _, there := client.MethodByName(method); !ok || !there {
				t.Errorf("the %s worker calls %s; add what lakeFS asks for it to the table of this test", worker, method)
				continue
			}
			if action != "" && !slices.Contains(real, action) {
				real = append(real, action)
			}
		}
		rows := slices.Compact(slices.Sorted(slices.Values(documented[worker])))
		same(t, "docs/security.md, permissions of the "+worker+" worker", rows, real)
	}
}

// The keys of log lines are those of package telemetry.
func TestLogKeys(t *testing.T) {
	t.Parallel()
	var real []string
	ast.Inspect(sources(t)["pkg/telemetry/log.go"], func(node ast.Node) bool {
		if value, ok := node.(*ast.ValueSpec); ok && strings.HasPrefix(value.Names[0].Name, "Key") {
			real = append(real, text(t, value.Values[0]))
		}
		return true
	})
	var documented []string
	for _, row := range table(t, "docs/operations.md", "keys") {
		documented = append(documented, names(row[0])...)
	}
	same(t, "docs/operations.md, keys of log lines", documented, real)
}

// The phases are those that the use cases time.
func TestPhases(t *testing.T) {
	t.Parallel()
	for _, row := range table(t, "docs/tasks.md", "phases") {
		use := strings.TrimPrefix(names(row[0])[0], "perago_")
		var real []string
		for name, file := range sources(t) {
			if path.Dir(name) != "pkg/"+use {
				continue
			}
			ast.Inspect(file, func(node ast.Node) bool {
				if call, ok := node.(*ast.CallExpr); ok && strings.HasSuffix(fmt.Sprint(selectorName(call.Fun)), "Phase") && len(call.Args) == 1 {
					real = append(real, text(t, call.Args[0]))
				}
				return true
			})
		}
		same(t, "docs/tasks.md, phases of perago_"+use, names(row[1]), real)
	}
}

func selectorName(expression ast.Expr) string {
	if s, ok := expression.(*ast.SelectorExpr); ok {
		return s.Sel.Name
	}
	return ""
}
