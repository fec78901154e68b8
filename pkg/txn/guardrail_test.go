package txn

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

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

// A pattern that stands for too many others is refused when it is read, in the time
// that reading takes, by its field.
func TestParseGuardrails_RefusesCostlyPatterns(t *testing.T) {
	t.Parallel()
	repeat := strings.Repeat
	costly := []string{
		repeat("{a,a}", 40) + "b",
		repeat("{a,b}", 7),
		repeat("{a,a}", 200),
		repeat("*{a,*}", 40) + "b",
		repeat("{,a}", 40) + "b",
		repeat("{a,{a,a}}", 30) + "b",
		repeat("{a,aa,aaa}", 20) + "b",
		repeat("{**/,*}", 30) + "b",
		repeat("{[ab],?}", 30) + "b",
		repeat("{a,", 100) + "b" + repeat("}", 100),
		repeat("{", 100) + "a" + repeat("}", 100),
		"x/" + repeat("{a,a}/", 40) + "**/b",
		"{" + repeat("a,", 64) + "b}",
		`\\` + repeat("{a,a}", 40),
	}
	for _, pattern := range costly {
		for name, guardrail := range map[string]any{"forbid_glob": pattern, "require_glob.pattern": map[string]any{"pattern": pattern}} {
			key, _, _ := strings.Cut(name, ".")
			raw, err := json.Marshal([]any{map[string]any{"require_file": "a"}, map[string]any{key: guardrail}})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, err = ParseGuardrails(raw)
			var terminal *TerminalError
			if !errors.As(err, &terminal) || terminal.Field != "guardrails[1]."+name || !strings.Contains(err.Error(), "more than 64 patterns") {
				t.Errorf("%.40s: %v", pattern, err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("%.40s took %s to refuse", pattern, took)
			}
		}
	}
	for _, pattern := range []string{
		"**/*.{csv,parquet}", repeat("{a,b}", 6), "{" + repeat("a,", 63) + "b}", `\{a,a}` + repeat(`\{a,a\}`, 50), "a,b,c" + repeat(",", 100),
		"{a,{b,c},d}{e,f}", repeat("[{,}]", 1),
	} {
		raw, err := json.Marshal([]any{map[string]any{"forbid_glob": pattern}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseGuardrails(raw); err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
	}
	for pattern, want := range map[string]int{"a": 1, "{a,b}": 2, "{a,b}{c,d,e}": 6, "{a,{b,c},d}": 4, "{a,{b,c}{d,e}}x": 5, "{a": 1, "a}": 1, "{,}": 2, "{}{}": 2} {
		if got := alternatives(pattern); got != want {
			t.Errorf("%s stands for %d patterns, want %d", pattern, got, want)
		}
	}
}
