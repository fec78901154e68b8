package txn

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// documentedRows reads the first column of a table of docs/protocol.md: the one
// that follows the line <!-- table: NAME -->. The decision tables and their
// tests have the same rows, held by sameRows.
func documentedRows(t *testing.T, name string) []string {
	t.Helper()
	raw, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(raw), "<!-- table: "+name+" -->\n")
	if !ok {
		t.Fatalf("docs/protocol.md has no table %q", name)
	}
	var rows []string
	for i, line := range strings.Split(strings.TrimLeft(rest, "\n"), "\n") {
		if !strings.HasPrefix(line, "|") {
			break
		}
		if i < 2 { // heading and rule
			continue
		}
		rows = append(rows, strings.TrimSpace(strings.Split(line, "|")[1]))
	}
	return rows
}

// sameRows fails unless the test has a case for every documented row and for no
// other.
func sameRows(t *testing.T, table string, tested []string) {
	t.Helper()
	documented := documentedRows(t, table)
	if len(documented) == 0 {
		t.Fatalf("the table %q of docs/protocol.md has no rows", table)
	}
	for _, row := range documented {
		if !slices.Contains(tested, row) {
			t.Errorf("docs/protocol.md, table %q: no test case for the row %q", table, row)
		}
	}
	for _, row := range tested {
		if !slices.Contains(documented, row) {
			t.Errorf("the tests have a row %q that the table %q of docs/protocol.md has not", row, table)
		}
	}
}
