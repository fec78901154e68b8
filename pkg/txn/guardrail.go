package txn

import (
	"encoding/json"
	"fmt"
)

// Guardrail is one demand on a projection. Exactly one field is set.
type Guardrail struct {
	// RequireFile is the path of a file that must be there.
	RequireFile string
	// RequireDir is the path of a directory that must hold a file.
	RequireDir string
	// RequireGlob is how many files must match a pattern.
	RequireGlob *RequireGlob
	// ForbidGlob is a pattern that no file, and no directory that holds one, may
	// match.
	ForbidGlob string
	// MaxRemoved bounds what a step may remove.
	MaxRemoved *MaxRemoved
}

// RequireGlob demands a number of files that match a pattern.
type RequireGlob struct {
	Pattern string
	Min     int
	// Max is nil where there is no bound.
	Max *int
}

// MaxRemoved bounds the objects of the input ref that a step removes: by their
// number, by their part of all that are under the prefix there, or by both. At
// least one is set.
type MaxRemoved struct {
	Count    *int
	Fraction *float64
}

// mostGuardrails bounds the work that a workflow's input can ask for.
const mostGuardrails = 100

var guardrailFields = []string{"require_file", "require_dir", "require_glob", "forbid_glob", "max_removed"}

// parseGuardrails reads the list of a task's guardrails; one that is not there
// is empty. Whether a pattern is well formed is asked where patterns are
// matched.
func parseGuardrails(d document) ([]Guardrail, error) {
	const field = "guardrails"
	raw, ok := d.fields[field]
	if !ok {
		return nil, nil
	}
	// A null is what becomes of an expression that names nothing: not checking
	// what was meant to be checked is the worst that a guardrail can do.
	if absent(raw) {
		return nil, missing(field)
	}
	var text string
	if json.Unmarshal(raw, &text) == nil && unresolved(text) {
		return nil, unresolvedExpression(field, text)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, Terminalf(field, "must be a list")
	}
	if len(list) > mostGuardrails {
		return nil, Terminalf(field, "has %d entries; at most %d are allowed", len(list), mostGuardrails)
	}
	var all []Guardrail
	for i, raw := range list {
		guardrail, err := parseGuardrail(fmt.Sprintf("%s[%d]", field, i), raw)
		if err != nil {
			return nil, err
		}
		all = append(all, guardrail)
	}
	return all, nil
}

// ParseGuardrails reads a list of guardrails that stands by itself, as a task's
// input has it.
func ParseGuardrails(raw json.RawMessage) ([]Guardrail, error) {
	return parseGuardrails(document{fields: map[string]json.RawMessage{"guardrails": raw}})
}

// CheckCheckoutGuardrails refuses those that are about what a step removes.
func CheckCheckoutGuardrails(guardrails []Guardrail) error {
	for i, guardrail := range guardrails {
		if guardrail.MaxRemoved != nil {
			return Terminalf(fmt.Sprintf("guardrails[%d].max_removed", i), "is for perago_stage: a checkout removes nothing")
		}
	}
	return nil
}

func parseGuardrail(path string, raw json.RawMessage) (Guardrail, error) {
	d, err := parseDocument(path, raw, guardrailFields)
	if err != nil {
		return Guardrail{}, err
	}
	if len(d.fields) != 1 {
		return Guardrail{}, Terminalf(path, "has %d fields; a guardrail is one of require_file, require_dir, require_glob, forbid_glob and max_removed", len(d.fields))
	}
	var g Guardrail
	switch {
	case d.names("require_file"):
		g.RequireFile, err = d.relative("require_file")
	case d.names("require_dir"):
		g.RequireDir, err = d.relative("require_dir")
	case d.names("forbid_glob"):
		g.ForbidGlob, err = d.pattern("forbid_glob")
	case d.names("require_glob"):
		g.RequireGlob, err = parseRequireGlob(join(path, "require_glob"), d.fields["require_glob"])
	default:
		g.MaxRemoved, err = parseMaxRemoved(join(path, "max_removed"), d.fields["max_removed"])
	}
	return g, err
}

func parseRequireGlob(path string, raw json.RawMessage) (*RequireGlob, error) {
	d, err := parseDocument(path, raw, []string{"pattern", "min", "max"})
	if err != nil {
		return nil, err
	}
	glob := &RequireGlob{Min: 1}
	if glob.Pattern, err = d.pattern("pattern"); err != nil {
		return nil, err
	}
	least, err := d.count("min")
	if err != nil {
		return nil, err
	}
	if least != nil {
		glob.Min = *least
	}
	if glob.Max, err = d.count("max"); err != nil {
		return nil, err
	}
	switch {
	case glob.Max != nil && *glob.Max < glob.Min:
		return nil, Terminalf(join(path, "max"), "is %d, less than min, which is %d (1 where it is not given)", *glob.Max, glob.Min)
	case glob.Min == 0 && glob.Max == nil:
		return nil, Terminalf(join(path, "min"), "is 0 and there is no max, so nothing is required; give one of the two")
	}
	return glob, nil
}

func parseMaxRemoved(path string, raw json.RawMessage) (*MaxRemoved, error) {
	d, err := parseDocument(path, raw, []string{"count", "fraction"})
	if err != nil {
		return nil, err
	}
	var bound MaxRemoved
	if bound.Count, err = d.count("count"); err != nil {
		return nil, err
	}
	if raw, ok := d.fields["fraction"]; ok {
		var fraction float64
		if absent(raw) || json.Unmarshal(raw, &fraction) != nil || fraction < 0 || fraction > 1 {
			return nil, Terminalf(join(path, "fraction"), "must be a number from 0 to 1")
		}
		bound.Fraction = &fraction
	}
	if bound.Count == nil && bound.Fraction == nil {
		return nil, Terminalf(path, "bounds nothing; give count, fraction or both")
	}
	return &bound, nil
}

// names reports whether the object has the field, be it null.
func (d document) names(name string) bool {
	_, ok := d.fields[name]
	return ok
}

// relative is a path below the prefix, or a pattern for such paths, in the only
// form in which it can match: one that begins with a slash, or has empty or dot
// segments, would match nothing and so forbid nothing.
func (d document) relative(name string) (string, error) {
	text, err := d.text(name)
	if err != nil {
		return "", err
	}
	if err := CheckKey(text); err != nil {
		return "", Terminalf(join(d.path, name), "%v; write it relative to the prefix, with plain slashes and none at the end", err)
	}
	return text, nil
}

// mostAlternatives bounds the plain patterns that a pattern with braces stands for. A
// matcher tries each of them on each path, and forty times {a,a} stands for 2^40.
const mostAlternatives = 64

// pattern is a relative path with wildcards that costs little to match. Whether it is
// well formed is asked where patterns are matched.
func (d document) pattern(name string) (string, error) {
	text, err := d.relative(name)
	if err != nil {
		return "", err
	}
	if alternatives(text) > mostAlternatives {
		return "", Terminalf(join(d.path, name), "%s stands for more than %d patterns, because of its braces; write fewer alternatives, or several guardrails", quote(text), mostAlternatives)
	}
	return text, nil
}

// alternatives is how many patterns without braces a pattern stands for; of more than
// mostAlternatives, some number above it. A group counts as well, because a matcher
// takes each apart. Braces that do not match are counted as if they did.
func alternatives(pattern string) int {
	type group struct{ earlier, current int }
	bounded := func(n int) int { return min(n, mostAlternatives+1) }
	open, groups := []group{{current: 1}}, 0
	closed := func() {
		last := open[len(open)-1]
		open = open[:len(open)-1]
		outer := &open[len(open)-1]
		outer.current = bounded(outer.current * (last.earlier + last.current))
	}
	for i := 0; i < len(pattern); i++ {
		inner := &open[len(open)-1]
		switch c := pattern[i]; {
		case c == '\\':
			i++
		case c == '{':
			groups++
			open = append(open, group{current: 1})
		case c == ',' && len(open) > 1:
			inner.earlier, inner.current = bounded(inner.earlier+inner.current), 1
		case c == '}' && len(open) > 1:
			closed()
		}
	}
	for len(open) > 1 {
		closed()
	}
	return max(open[0].current, groups)
}

// count is a whole number from 0; nil when it is not there.
func (d document) count(name string) (*int, error) {
	raw, ok := d.fields[name]
	if !ok {
		return nil, nil
	}
	var n int
	if absent(raw) || json.Unmarshal(raw, &n) != nil || n < 0 {
		return nil, Terminalf(join(d.path, name), "must be a whole number from 0")
	}
	return &n, nil
}
