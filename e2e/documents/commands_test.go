package documents

import (
	"testing"

	"perago/pkg/definition"
	"perago/pkg/explain"
)

// The rules of perago lint are documented in their order, in their own words.
func TestLintRules(t *testing.T) {
	t.Parallel()
	rows := table(t, "docs/commands.md", "rules")
	rules := definition.Rules()
	for i := range max(len(rows), len(rules)) {
		switch {
		case i >= len(rows):
			t.Errorf("docs/commands.md has no row for %s", rules[i].Rule)
		case i >= len(rules):
			t.Errorf("docs/commands.md has the rule %v, which perago lint has not", rows[i])
		case rows[i][0] != "`"+string(rules[i].Rule)+"`" || rows[i][1] != rules[i].About:
			t.Errorf("docs/commands.md has %v, the program has %s: %s", rows[i], rules[i].Rule, rules[i].About)
		}
	}
}

// The states of perago explain are documented, each once.
func TestExplainStates(t *testing.T) {
	t.Parallel()
	var documented []string
	for _, row := range table(t, "docs/commands.md", "states") {
		documented = append(documented, names(row[0])...)
	}
	var real []string
	for _, state := range explain.States() {
		real = append(real, string(state))
	}
	same(t, "docs/commands.md, states", documented, real)
}
