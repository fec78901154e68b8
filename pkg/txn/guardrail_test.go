package txn

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseGuardrails(t *testing.T) {
	t.Parallel()
	parse := func(guardrails string) ([]Guardrail, error) {
		input, err := ParseStageInput(json.RawMessage(`{"workspace": {"repository": "lake", "branch": "main", "ref_type": "commit", "ref": "`+someCommit+`"},
			"prefix": "models", "source": {"directory": "/data/w/t"}, "guardrails": `+guardrails+`}`), everything)
		return input.Guardrails, err
	}
	zero, three, half := 0, 3, 0.5
	for text, want := range map[string][]Guardrail{
		`[]`: nil,
		`[{"require_file": "a/metrics.json"}, {"require_dir": "weights"}]`:                 {{RequireFile: "a/metrics.json"}, {RequireDir: "weights"}},
		`[{"require_glob": {"pattern": "**/*.parquet"}}]`:                                  {{RequireGlob: &RequireGlob{Pattern: "**/*.parquet", Min: 1}}},
		`[{"require_glob": {"pattern": "*", "min": 0, "max": 3}}]`:                         {{RequireGlob: &RequireGlob{Pattern: "*", Max: &three}}},
		`[{"require_glob": {"pattern": "*", "min": 3, "max": 3}}]`:                         {{RequireGlob: &RequireGlob{Pattern: "*", Min: 3, Max: &three}}},
		`[{"forbid_glob": "**/{tmp,.git}"}]`:                                               {{ForbidGlob: "**/{tmp,.git}"}},
		`[{"max_removed": {"count": 0}}, {"max_removed": {"fraction": 0.5}}]`:              {{MaxRemoved: &MaxRemoved{Count: &zero}}, {MaxRemoved: &MaxRemoved{Fraction: &half}}},
		`[{"max_removed": {"count": 3, "fraction": 0.5}}]`:                                 {{MaxRemoved: &MaxRemoved{Count: &three, Fraction: &half}}},
		`[{"require_file": "..double"}, {"require_file": "a b"}, {"forbid_glob": "[.]x"}]`: {{RequireFile: "..double"}, {RequireFile: "a b"}, {ForbidGlob: "[.]x"}},
	} {
		got, err := parse(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, diff)
		}
	}
	for text, want := range map[string]struct{ field, sentence string }{
		`null`:                           {"guardrails", "missing or null"},
		`"${workflow.input.guardrails}"`: {"guardrails", "unresolved expression"},
		`{"require_file": "x"}`:          {"guardrails", "must be a list"},
		`[null]`:                         {"guardrails[0]", "missing or null"},
		`["require_file"]`:               {"guardrails[0]", "must be a JSON object"},
		`[{}]`:                           {"guardrails[0]", "has 0 fields"},
		`[{"require_file": "a"}, {"require_file": "a", "forbid_glob": "b"}]`: {"guardrails[1]", "has 2 fields"},
		`[{"require": "a"}]`:                                                              {"guardrails[0].require", "is not a field"},
		`[{"require_file": null}]`:                                                        {"guardrails[0].require_file", "missing or null"},
		`[{"require_file": "${a.b}"}]`:                                                    {"guardrails[0].require_file", "unresolved expression"},
		`[{"require_file": 7}]`:                                                           {"guardrails[0].require_file", "must be a string"},
		`[{"require_file": ""}]`:                                                          {"guardrails[0].require_file", "is empty"},
		`[{"require_file": "/a"}]`:                                                        {"guardrails[0].require_file", "relative to the prefix"},
		`[{"require_dir": "a/"}]`:                                                         {"guardrails[0].require_dir", "none at the end"},
		`[{"require_dir": "a/../b"}]`:                                                     {"guardrails[0].require_dir", "segment .."},
		`[{"forbid_glob": "./**"}]`:                                                       {"guardrails[0].forbid_glob", "segment ."},
		`[{"forbid_glob": "a//b"}]`:                                                       {"guardrails[0].forbid_glob", "empty segment"},
		`[{"require_glob": "**"}]`:                                                        {"guardrails[0].require_glob", "must be a JSON object"},
		`[{"require_glob": {"min": 1}}]`:                                                  {"guardrails[0].require_glob.pattern", "missing or null"},
		`[{"require_glob": {"pattern": "*", "least": 1}}]`:                                {"guardrails[0].require_glob.least", "is not a field"},
		`[{"require_glob": {"pattern": "*", "min": -1}}]`:                                 {"guardrails[0].require_glob.min", "whole number"},
		`[{"require_glob": {"pattern": "*", "min": 1.5}}]`:                                {"guardrails[0].require_glob.min", "whole number"},
		`[{"require_glob": {"pattern": "*", "min": "1"}}]`:                                {"guardrails[0].require_glob.min", "whole number"},
		`[{"require_glob": {"pattern": "*", "max": null}}]`:                               {"guardrails[0].require_glob.max", "whole number"},
		`[{"require_glob": {"pattern": "*", "min": 2, "max": 1}}]`:                        {"guardrails[0].require_glob.max", "less than min"},
		`[{"require_glob": {"pattern": "*", "max": 0}}]`:                                  {"guardrails[0].require_glob.max", "less than min"},
		`[{"require_glob": {"pattern": "*", "min": 0}}]`:                                  {"guardrails[0].require_glob.min", "nothing is required"},
		`[{"max_removed": {}}]`:                                                           {"guardrails[0].max_removed", "bounds nothing"},
		`[{"max_removed": {"count": -1}}]`:                                                {"guardrails[0].max_removed.count", "whole number"},
		`[{"max_removed": {"fraction": 1.1}}]`:                                            {"guardrails[0].max_removed.fraction", "from 0 to 1"},
		`[{"max_removed": {"fraction": -0.1}}]`:                                           {"guardrails[0].max_removed.fraction", "from 0 to 1"},
		`[{"max_removed": {"fraction": "half"}}]`:                                         {"guardrails[0].max_removed.fraction", "from 0 to 1"},
		`[{"max_removed": {"fraction": null}}]`:                                           {"guardrails[0].max_removed.fraction", "from 0 to 1"},
		"[" + strings.TrimSuffix(strings.Repeat(`{"forbid_glob": "x"},`, 101), ",") + "]": {"guardrails", "at most 100"},
	} {
		_, err := parse(text)
		wantTerminal(t, text, err, want.field, want.sentence)
	}
}
