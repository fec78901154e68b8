package documents

import (
	"encoding/json"
	"slices"
	"testing"

	"perago/pkg/doctor"
)

// The checks of perago doctor are documented in their order, in their own words.
func TestDoctorChecks(t *testing.T) {
	t.Parallel()
	rows := table(t, "docs/commands.md", "checks")
	checks := doctor.Checks()
	for i := range max(len(rows), len(checks)) {
		if i >= len(checks) {
			t.Errorf("docs/commands.md has the check %v, which perago doctor has not", rows[i])
			continue
		}
		levels := ""
		for n, level := range checks[i].Levels {
			if n > 0 {
				levels += " or "
			}
			levels += string(level)
		}
		want := []string{"`" + string(checks[i].Check) + "`", levels, checks[i].About}
		if i >= len(rows) || !slices.Equal(rows[i], want) {
			t.Errorf("docs/commands.md, row %d of the checks: the program has %q", i+1, want)
		}
	}
}

// The shipped policies allow the actions that the documents have for each worker,
// which TestActions holds to the calls of the code.
func TestPolicies(t *testing.T) {
	t.Parallel()
	documented := map[string][]string{}
	for _, row := range table(t, "docs/security.md", "actions") {
		documented[row[0]] = append(documented[row[0]], names(row[1])...)
	}
	for _, worker := range doctor.Workers() {
		text, err := doctor.Policy(worker, doctor.Scope{Repository: "lake", Branch: "main", Storage: "s3://bucket/"})
		if err != nil {
			t.Fatal(err)
		}
		var policy struct {
			Statement []struct {
				Effect string
				Action []string
			}
		}
		if err := json.Unmarshal(text, &policy); err != nil {
			t.Fatal(err)
		}
		var allowed []string
		for _, statement := range policy.Statement {
			if statement.Effect == "allow" {
				allowed = append(allowed, statement.Action...)
			}
		}
		same(t, "the policy of the "+string(worker)+" worker", slices.Compact(slices.Sorted(slices.Values(documented[string(worker)]))), slices.Compact(slices.Sorted(slices.Values(allowed))))
	}
}
