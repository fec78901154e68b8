package documents

import (
	"strings"
	"testing"
)

// What is said of a version has a test, which is there, is built, and is not
// skipped. A case that is named without its version runs in all of them.
func TestVersions(t *testing.T) {
	t.Parallel()
	const document = "docs/versions.md"
	packages := map[string]*testPackage{}
	rows, tests := 0, 0
	for _, table := range tables(read(t, document), "table: versions") {
		for _, row := range table {
			rows++
			before := tests
			var p *testPackage
			for _, name := range names(row[len(row)-1]) {
				if !strings.HasPrefix(name, "Test") {
					if packages[name] == nil {
						packages[name] = parseTests(t, name)
					}
					p = packages[name]
					continue
				}
				tests++
				if p == nil {
					t.Errorf("%s: %q names %s before the package it is in", document, row[0], name)
					continue
				}
				if fault := p.fault(name); fault != "" {
					t.Errorf("%s: %q names %s of %s: %s", document, row[0], name, p.folder, fault)
				}
			}
			if tests == before {
				t.Errorf("%s: nothing tests %q", document, row[0])
			}
		}
	}
	if rows < 30 || tests < 60 {
		t.Errorf("%s has %d rows and %d tests; its tables are not read", document, rows, tests)
	}
}
