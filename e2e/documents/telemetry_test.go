package documents

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"

	"perago/pkg/telemetry"
)

// spans are a task's, and one for each phase that its use case times.
func spans(t *testing.T) string {
	every, task := telemetry.SpanAttributes()
	out := "| span | is in | attributes |\n|---|---|---|\n"
	out += fmt.Sprintf("| the task type, such as `perago_stage` | nothing | `%s` |\n", strings.Join(slices.Concat(every, task), "`, `"))
	for _, use := range []string{"checkout", "stage", "publish", "cleanup"} {
		out += fmt.Sprintf("| `%s` | `perago_%s` | the first %d |\n", strings.Join(phases(t, use), "`, `"), use, len(every))
	}
	return out
}

// phases are the names of the phases that a use case times, sorted.
func phases(t *testing.T, use string) []string {
	var all []string
	for name, file := range sources(t) {
		if path.Dir(name) != "pkg/"+use {
			continue
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if call, ok := node.(*ast.CallExpr); ok && selectorName(call.Fun) == "Phase" && len(call.Args) == 1 {
				all = append(all, text(t, call.Args[0]))
			}
			return true
		})
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestLogKeysAreConstants: no line of the log has a key that is not in package
// telemetry's list, so that they can be searched for and do not differ by a letter.
func TestLogKeysAreConstants(t *testing.T) {
	t.Parallel()
	attributes := []string{"String", "Int", "Int64", "Uint64", "Float64", "Bool", "Duration", "Time", "Any", "Group"}
	found := 0
	for name, file := range sources(t) {
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			function, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch of, method := strings.ToLower(selector(function.X)), function.Sel.Name; {
			case of == "slog" && slices.Contains(attributes, method):
				found++
				key := strings.TrimPrefix(selector(call.Args[0]), "telemetry.")
				if !strings.HasPrefix(key, "Key") {
					t.Errorf("%s: slog.%s has a key of its own; add it to pkg/telemetry/log.go", name, method)
				}
			case strings.HasSuffix(of, "log") && slices.Contains([]string{"Debug", "Info", "Warn", "Error", "With"}, method):
				for _, argument := range call.Args {
					if literal, ok := argument.(*ast.BasicLit); ok && literal.Kind == token.STRING && argument != call.Args[0] {
						t.Errorf("%s: %s of a log has a bare key %s; use slog.String and its like with a key of pkg/telemetry/log.go", name, method, literal.Value)
					}
				}
			}
			return true
		})
	}
	if found < 50 {
		t.Errorf("found only %d attributes", found)
	}
}
