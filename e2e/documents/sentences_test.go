package documents

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"perago/pkg/txn"
)

// sentenceDocuments hold tables of sentences that the program says.
var sentenceDocuments = []string{"docs/errors.md", "docs/operations.md"}

// toldPackages are those whose every sentence stands in such a table, with what
// to do: what a task, a worker, a cleanup and the hard fence can end with.
var toldPackages = []string{"pkg/txn", "pkg/projection", "pkg/stage", "pkg/checkout", "pkg/publish", "pkg/cleanup", "pkg/config", "pkg/worker", "pkg/fence", "pkg/credential", "pkg/telemetry"}

// listedPackages are those whose errors are listed in docs/errors.md as they are.
var listedPackages = []string{"cmd/perago", "pkg/definition", "pkg/lakefs", "pkg/conductor"}

// noSentences are strings that look like sentences and are none that anybody has
// to look up.
var noSentences = map[string]string{
	"Source of %s, superseding %s":            "a commit's message",
	"Stage %s of %s for %s":                   "a commit's message",
	"Stage %s for %s by hand":                 "a commit's message",
	"perago fence %s (version %d)":            "a commit's message",
	"perago publish fence:":                   "the begin of the hook's own message",
	"perago fence verify: a probe":            "a commit's message",
	"no queue for %s in domain %q":            "a panic of the worker's own",
	"`perago fence %s lakefs://%s/%s`":        "a command inside another sentence",
	" (secret; may stand in a file named by ": "the help of a worker",
	" (may stand in a file named by ":         "the help of a worker",

	"this also hands out again the tasks of that type that workers have": "a part of what doctor and explain advise",
}

// undertaking is what was being done when something went wrong. It stands before
// the cause and is explained once.
var undertaking = regexp.MustCompile(`^(?:read|list|merge|compare|remove|commit|create|open|delete|make|look|scan|upload|download|sweep|probe)\b[^;]*: %[wv]$`)

// Every sentence of these packages is in a document.
func TestEverySentenceIsDocumented(t *testing.T) {
	t.Parallel()
	var rows []string
	for _, name := range sentenceDocuments {
		for _, sentences := range tables(read(t, name), "sentences") {
			for _, row := range sentences {
				rows = append(rows, plain(strings.Join(row, " / ")))
			}
		}
	}
	used := map[string]bool{}
	found := 0
	files := sources(t)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		// The metrics have a table of their own.
		if !slices.Contains(toldPackages, path.Dir(name)) || name == "pkg/telemetry/metrics.go" {
			continue
		}
		for _, sentence := range sentencesOf(t, files[name]) {
			found++
			if _, ok := noSentences[sentence]; ok {
				used[sentence] = true
				continue
			}
			if undertaking.MatchString(sentence) {
				continue
			}
			if pattern := inRow(sentence); !slices.ContainsFunc(rows, pattern.MatchString) {
				t.Errorf("%s can say %q, which stands in no table of sentences in %v; say there what to do", name, sentence, sentenceDocuments)
			}
		}
	}
	for sentence := range noSentences {
		if !used[sentence] {
			t.Errorf("the code has no string %q any more; take it out of this test", sentence)
		}
	}
	if found < 250 {
		t.Errorf("found %d sentences; the packages are not read", found)
	}
}

// verbs are the places of a format where values go.
var verbs = regexp.MustCompile(`%[-+# 0-9.]*[a-zA-Z]`)

// sentencesOf are the strings of a file with three words or more, its log lines
// and struct tags aside.
func sentencesOf(t *testing.T, file *ast.File) []string {
	t.Helper()
	words := regexp.MustCompile(`[A-Za-z]{2,}`)
	var all []string
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.Field:
			return false
		case *ast.CallExpr:
			function, ok := node.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch function.Sel.Name {
			case "Debug", "Info", "Warn", "Error":
				return len(node.Args) == 0 || function.Sel.Name == "Error" && fmt.Sprint(function.X) == "http"
			case "Fprintf", "Bool": // what a worker prints for -h and its flags
				return false
			}
		case *ast.BasicLit:
			if node.Kind != token.STRING || strings.Contains(node.Value, "(?") {
				return true
			}
			sentence := text(t, node)
			if len(words.FindAllString(verbs.ReplaceAllString(sentence, " "), -1)) >= 3 && strings.Contains(sentence, " ") {
				all = append(all, sentence)
			}
		}
		return true
	})
	return all
}

// inRow is a pattern for a format: its words in their order, with anything where
// values go.
func inRow(format string) *regexp.Regexp {
	var pieces []string
	for _, piece := range verbs.Split(format, -1) {
		if piece = strings.Trim(piece, " \"():;"); piece != "" {
			pieces = append(pieces, regexp.QuoteMeta(plain(piece)))
		}
	}
	return regexp.MustCompile(strings.Join(pieces, "[^/]*?(?:/[^/ ][^/]*?)*"))
}

// values are what stands in italics in a document.
var values = regexp.MustCompile(`\*[^*]+\*`)

// plain is a cell without what only sets its type.
func plain(cell string) string {
	const star = "\x01"
	cell = values.ReplaceAllString(strings.ReplaceAll(cell, `\*`, star), "…")
	return strings.NewReplacer(star, "*", "`", "").Replace(cell)
}

// And the other way round: what a table of sentences has is in the code. Each
// piece between values and names of variables stands in a string of it.
func TestSentences(t *testing.T) {
	t.Parallel()
	strung := strings.ReplaceAll(literals(t), "`", "")
	variables := regexp.MustCompile(`…|\b[A-Z]+_[A-Z0-9_]+\b`)
	answers := regexp.MustCompile(`^(Conductor|lakeFS) (gave no answer|answered ([0-9]+)) to `)
	found := 0
	for _, name := range sentenceDocuments {
		for _, rows := range tables(read(t, name), "sentences") {
			for _, row := range rows {
				for _, sentence := range strings.Split(plain(row[len(row)-2]), " / ") {
					found++
					if m := answers.FindStringSubmatch(sentence); m != nil {
						// This begin is put together for every answer of a server.
						status, _ := strconv.Atoi(m[3])
						if real := (&txn.ServerError{Server: m[1], Status: status}).Error(); !strings.HasPrefix(real, m[0]) {
							t.Errorf("%s has the sentence %q, but the code says %q", name, sentence, real)
						}
						sentence = sentence[len(m[0]):]
					}
					for _, piece := range variables.Split(sentence, -1) {
						// What joins two strings of the code is in neither.
						if piece = strings.Trim(piece, joints); !inCode(strung, piece) {
							t.Errorf("%s has the sentence %q, but no string of the code holds %q", name, sentence, piece)
						}
					}
				}
			}
		}
	}
	if found < 200 {
		t.Errorf("found %d sentences; the marks are gone", found)
	}
}

// joints stand between two strings that the code puts together; a piece of so
// few letters could be anywhere.
const (
	joints   = " ()/:;"
	tooShort = 5
)

// inCode reports whether a piece stands in the code's strings, in one or, cut at
// a joint, in several.
func inCode(strung, piece string) bool {
	if len(piece) <= tooShort || strings.Contains(strung, piece) {
		return true
	}
	for _, joint := range []string{"; ", ": ", " ("} {
		before, after, ok := strings.Cut(piece, joint)
		if ok && inCode(strung, strings.Trim(before, joints)) && inCode(strung, strings.Trim(after, joints)) {
			return true
		}
	}
	return false
}

// sentences lists the errors of the packages that are not explained one by one.
func sentences(t *testing.T) string {
	files := sources(t)
	seen := map[[2]string]bool{}
	for name, file := range files {
		if !slices.Contains(listedPackages, path.Dir(name)) {
			continue
		}
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			if function := selector(call.Fun); function != "fmt.Errorf" && function != "errors.New" {
				return true
			}
			literal, ok := call.Args[0].(*ast.BasicLit)
			if !ok {
				return true
			}
			if sentence := text(t, literal); len(strings.Fields(verbs.ReplaceAllString(sentence, ""))) >= 3 && !undertaking.MatchString(sentence) {
				seen[[2]string{path.Dir(name), sentence}] = true
			}
			return true
		})
	}
	rows := slices.SortedFunc(maps.Keys(seen), func(a, b [2]string) int {
		return 2*strings.Compare(a[0], b[0]) + strings.Compare(a[1], b[1])
	})
	out := "| sentence | from |\n|---|---|\n"
	for _, row := range rows {
		sentence := strings.NewReplacer("*", `\*`, "_", `\_`, "%%", "%").Replace(row[1])
		out += fmt.Sprintf("| %s | `%s` |\n", cell(verbs.ReplaceAllString(sentence, "*...*")), row[0])
	}
	return out
}
