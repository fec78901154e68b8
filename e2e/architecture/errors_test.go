package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// byText is the code that may look into the text of an error, and why.
var byText = map[string]string{
	// A fault of a configuration begins with its variable: that is the contract of
	// Validate, and nothing is redacted before.
	"pkg/config/environment.go": "Cut",
}

// comparing are the functions of package strings that answer a question.
var comparing = []string{"Contains", "ContainsAny", "ContainsFunc", "HasPrefix", "HasSuffix", "Cut", "CutPrefix", "CutSuffix", "Index", "LastIndex", "EqualFold", "Count"}

// The text of an error is for people: secrets are taken out of it and its end is
// cut off. What happens next is decided by errors.Is and errors.As.
func TestErrors_AreNotToldByTheirText(t *testing.T) {
	t.Parallel()
	exempt := map[string]bool{}
	for name, p := range list(t) {
		if !strings.HasPrefix(name, "pkg/") && !strings.HasPrefix(name, "cmd/") || strings.HasSuffix(name, "test") {
			continue
		}
		for _, file := range p.GoFiles {
			path := name + "/" + file
			for _, question := range questionsToText(t, filepath.Join(p.Dir, file)) {
				if byText[path] == question {
					exempt[path] = true
					continue
				}
				t.Errorf("%s: strings.%s looks into the text of an error; give the error a kind", path, question)
			}
		}
	}
	for path := range byText {
		if !exempt[path] {
			t.Errorf("%s does not do what it is allowed to", path)
		}
	}
}

// questionsToText is the functions of package strings that a file calls with the
// text of an error, and "==" where it compares one.
func questionsToText(t *testing.T, path string) (questions []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ofError := func(e ast.Expr) bool {
		call, ok := e.(*ast.CallExpr)
		if !ok || len(call.Args) != 0 {
			return false
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		return ok && method.Sel.Name == "Error"
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.BinaryExpr:
			if (node.Op == token.EQL || node.Op == token.NEQ) && (ofError(node.X) || ofError(node.Y)) {
				questions = append(questions, "==")
			}
		case *ast.CallExpr:
			function, ok := node.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains(comparing, function.Sel.Name) {
				return true
			}
			if of, ok := function.X.(*ast.Ident); ok && of.Name == "strings" && slices.ContainsFunc(node.Args, ofError) {
				questions = append(questions, function.Sel.Name)
			}
		}
		return true
	})
	return questions
}
