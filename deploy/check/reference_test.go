package check

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// root is the project's directory, deploy the one that this module checks.
const (
	root   = "../.."
	deploy = ".."
)

func read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// generated is the rows of the tables in a part of a document that is made from
// the code, each with the heading and the sentence above it.
func generated(t *testing.T, document, part string) []row {
	t.Helper()
	_, rest, ok := strings.Cut(read(t, root+"/"+document), "<!-- generated: "+part+" -->")
	text, _, okEnd := strings.Cut(rest, "<!-- end of "+part+" -->")
	if !ok || !okEnd {
		t.Fatalf("%s has no generated part %s", document, part)
	}
	var rows []row
	above := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "| `"):
			var cells []string
			for _, cell := range strings.Split(strings.Trim(line, "|"), " | ") {
				cells = append(cells, strings.TrimSpace(cell))
			}
			rows = append(rows, row{above, cells})
		case line != "" && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "#"):
			above = line
		}
	}
	if len(rows) == 0 {
		t.Fatalf("%s, %s: no rows", document, part)
	}
	return rows
}

type row struct {
	above string
	cells []string
}

var codePattern = regexp.MustCompile("`([^`]+)`")

func code(text string) []string {
	var all []string
	for _, m := range codePattern.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// variable is one of docs/configuration.md.
type variable struct {
	// workers are the only ones that read it; empty for all.
	workers          []string
	required, secret bool
}

func (v variable) of(program string) bool {
	return len(v.workers) == 0 || slices.Contains(v.workers, program)
}

func variables(t *testing.T) map[string]variable {
	t.Helper()
	all := map[string]variable{}
	for _, r := range generated(t, "docs/configuration.md", "configuration") {
		v := variable{required: r.cells[1] == "required", secret: strings.Contains(r.cells[2], ". Secret")}
		if strings.HasPrefix(r.above, "Only ") {
			v.workers = code(r.above)
		}
		name := code(r.cells[0])[0]
		// Two programs may describe one variable, each with what it means there.
		if before, ok := all[name]; ok && len(before.workers) > 0 && len(v.workers) > 0 {
			v.workers = append(before.workers, v.workers...)
		}
		all[name] = v
		if _, file, ok := strings.Cut(r.cells[2], "in a file named by "); ok {
			all[code(file)[0]] = variable{workers: v.workers}
		}
	}
	return all
}

// metrics are the names of docs/operations.md, with those that a histogram has
// when it is scraped, and the labels of each.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, r := range generated(t, "docs/operations.md", "metrics") {
		name, labels := code(r.cells[0])[0], code(r.cells[2])
		if r.cells[1] == "histogram" {
			all[name+"_bucket"] = append([]string{"le"}, labels...)
			all[name+"_sum"], all[name+"_count"] = labels, labels
			continue
		}
		all[name] = labels
	}
	return all
}

// checkGrace holds what a supervisor waits to what a worker takes for a stop:
// docs/operations.md asks for ten seconds more than the grace.
func checkGrace(t *testing.T, where, grace, supervisor string) {
	t.Helper()
	own, err := time.ParseDuration(grace)
	if err != nil {
		t.Errorf("%s: PERAGO_SHUTDOWN_GRACE: %v", where, err)
	}
	waits, err := time.ParseDuration(supervisor)
	if err != nil || waits < own+10*time.Second {
		t.Errorf("%s: it is killed after %s, and may take %s and 10s more", where, supervisor, grace)
	}
}
