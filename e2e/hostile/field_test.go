package hostile

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// What values look like that another one of their kind can stand for.
var (
	hexes   = regexp.MustCompile(`\b[0-9a-f]{64}\b`)
	hex64   = regexp.MustCompile(`^[0-9a-f]{64}$`)
	hex32   = regexp.MustCompile(`^[0-9a-f]{32}$`)
	anyUUID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
)

// change is one wrong value in the place of a right one. It is not made where it
// gives the same value, or none.
type change struct {
	name string
	// of gives the wrong value; ok is false where this value has none.
	of func(right any, c changing) (wrong any, ok bool)
}

// changing is where a value stands.
type changing struct {
	// field is the name of the value's field, foreign the id of somebody's commit.
	field, foreign string
	// object is what the field is in.
	object object
}

// gone is a field that is not there.
type gone struct{}

func text(name string, fits *regexp.Regexp, wrong func(string, changing) string) change {
	return change{name, func(right any, c changing) (any, bool) {
		s, ok := right.(string)
		if !ok || fits != nil && !fits.MatchString(s) {
			return nil, false
		}
		return wrong(s, c), true
	}}
}

func instead(name string, wrong any, fits func(any) bool) change {
	return change{name, func(right any, _ changing) (any, bool) { return wrong, fits(right) }}
}

func is[T any](value any) bool { _, ok := value.(T); return ok }

func list(name string, wrong func([]any) []any) change {
	return change{name, func(right any, _ changing) (any, bool) {
		all, ok := right.([]any)
		if !ok || len(all) == 0 {
			return nil, false
		}
		return wrong(slices.Clone(all)), true
	}}
}

func anything(any) bool { return true }

var changes = []change{
	instead("null", nil, anything),
	instead("gone", gone{}, anything),
	instead("a number", json.Number("7"), is[string]),
	instead("a text", "text", func(v any) bool { return !is[string](v) }),
	instead("a list", []any{}, func(v any) bool { return !is[[]any](v) }),
	instead("an object", object{}, func(v any) bool { return !is[object](v) }),

	text("empty", nil, func(string, changing) string { return "" }),
	text("another", nil, func(string, changing) string { return "another" }),
	text("with a space", nil, func(s string, _ changing) string { return s + " " }),
	text("with a NUL", nil, func(s string, _ changing) string { return s + "\x00" }),
	text("long", nil, func(s string, _ changing) string { return s + strings.Repeat("x", 1<<16) }),
	text("in capitals", regexp.MustCompile(`[a-z]`), func(s string, _ changing) string { return strings.ToUpper(s) }),
	text("up and away", regexp.MustCompile(`[/.]`), func(s string, _ changing) string { return s + "/../../../../tmp/perago-hostile" }),
	text("a commit of somebody's", hex64, func(_ string, c changing) string { return c.foreign }),
	text("a commit that is not there", hex64, func(string, changing) string { return strings.Repeat("f", 64) }),
	text("short", hex64, func(s string, _ changing) string { return s[:12] }),
	text("the sum of something else", hex32, func(string, changing) string { return strings.Repeat("e", 32) }),
	text("the sum of parts", hex32, func(s string, _ changing) string { return s + "-2" }),
	text("in quotes", hex32, func(s string, _ changing) string { return `"` + s + `"` }),
	text("another id", anyUUID, func(string, changing) string { return "0a0b0c0d-0000-4000-8000-000000000002" }),
	text("its end", regexp.MustCompile(`^[A-Z_]+$`), func(s string, _ changing) string {
		if s == "COMPLETED" {
			return "TERMINATED"
		}
		return "COMPLETED"
	}),
	text("under way", regexp.MustCompile(`^[A-Z_]+$`), func(s string, _ changing) string {
		if s == "IN_PROGRESS" {
			return "RUNNING"
		}
		return "IN_PROGRESS"
	}),

	instead("0", json.Number("0"), is[json.Number]),
	instead("below zero", json.Number("-1"), is[json.Number]),
	instead("the most", json.Number("9223372036854775807"), is[json.Number]),
	instead("beyond any", json.Number("1e400"), is[json.Number]),
	instead("a fraction", json.Number("1.5"), is[json.Number]),
	{"one more", func(right any, _ changing) (any, bool) {
		n, ok := right.(json.Number)
		i, err := n.Int64()
		return json.Number(asText(i + 1)), ok && err == nil
	}},
	{"the opposite", func(right any, _ changing) (any, bool) { b, ok := right.(bool); return !b, ok }},

	list("empty", func([]any) []any { return []any{} }),
	list("backwards", func(all []any) []any { slices.Reverse(all); return all }),
	list("each twice", func(all []any) []any {
		var twice []any
		for _, one := range all {
			twice = append(twice, one, one)
		}
		return twice
	}),
	list("twice", func(all []any) []any { return append(all, all...) }),
	list("without the first", func(all []any) []any { return all[1:] }),
	list("without the last", func(all []any) []any { return all[:len(all)-1] }),
	list("with a null", func(all []any) []any { return append(all, nil) }),
	list("with one of somebody's", func(all []any) []any {
		first, ok := all[0].(object)
		if !ok {
			return append(all, "theirs")
		}
		theirs := maps.Clone(first)
		for _, name := range []string{"path", "id", "run_id", "hook_run_id"} {
			if s, ok := theirs[name].(string); ok {
				theirs[name] = s + "-theirs"
			}
		}
		return append(all, theirs)
	}),
	{"itself", func(right any, c changing) (any, bool) {
		id, ok := c.object["id"]
		return []any{id}, ok && c.field == "parents"
	}},
	{"two", func(right any, c changing) (any, bool) {
		all, ok := right.([]any)
		return append(slices.Clone(all), c.foreign), ok && c.field == "parents"
	}},
}

func asText(value any) string { return string(asJSON(value)) }

// unread are fields that no client reads, whatever is in them.
var unread = []string{"workflowTask", "workflowDefinition", "taskToDomain", "failedWorkflow"}

// fieldsOf are the paths of all fields of a value, with [] for the entries of a
// list, in order. The value itself is "".
func fieldsOf(value any) []string {
	found := map[string]bool{}
	var walk func(value any, path string)
	walk = func(value any, path string) {
		found[path] = true
		switch value := value.(type) {
		case object:
			for name, inner := range value {
				if !slices.Contains(unread, name) {
					walk(inner, strings.TrimPrefix(path+"."+name, "."))
				}
			}
		case []any:
			for _, inner := range value {
				walk(inner, path+"[]")
			}
		}
	}
	walk(value, "")
	return slices.Sorted(maps.Keys(found))
}

// changed has the values at a path changed; changes is how many there were.
func changed(value any, path string, c change, at changing) (any, int) {
	if path == "" {
		wrong, ok := c.of(value, at)
		if !ok || asText(wrong) == asText(value) {
			return value, 0
		}
		return wrong, 1
	}
	count := 0
	if rest, ok := strings.CutPrefix(path, "[]"); ok {
		all, ok := value.([]any)
		if !ok {
			return value, 0
		}
		var kept []any
		for _, inner := range all {
			now, n := changed(inner, strings.TrimPrefix(rest, "."), c, at)
			count += n
			if !is[gone](now) {
				kept = append(kept, now)
			}
		}
		return slices.Concat([]any{}, kept), count
	}
	name, rest := path, ""
	if end := strings.IndexAny(path, ".["); end >= 0 {
		name, rest = path[:end], strings.TrimPrefix(path[end:], ".")
	}
	fields, ok := value.(object)
	inner, there := fields[name]
	if !ok || !there {
		return value, 0
	}
	if rest == "" {
		at.field, at.object = name, fields
	}
	now, count := changed(inner, rest, c, at)
	copied := maps.Clone(fields)
	if is[gone](now) {
		delete(copied, name)
	} else {
		copied[name] = now
	}
	return copied, count
}

func decoded(raw []byte) (value any, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return value, decoder.Decode(&value) == nil
}

// fieldChanges are the answers that differ from a good one in one field.
func fieldChanges(like reply, foreign string) []answer {
	value, ok := decoded(like.body)
	if !ok {
		if id := strings.TrimSpace(string(like.body)); hex64.MatchString(id) {
			// The one answer that is no JSON.
			return []answer{
				body("another commit", always(foreign)), body("in capitals", bytes.ToUpper),
				body("short", func(good []byte) []byte { return good[:12] }),
			}
		}
		return nil
	}
	var all []answer
	for _, path := range fieldsOf(value) {
		for _, one := range changes {
			if _, n := changed(value, path, one, changing{foreign: foreign}); n == 0 {
				continue
			}
			at := path
			if at == "" {
				at = "all of it"
			}
			all = append(all, answer{name: at + " " + one.name, change: one.name, acted: true, say: func(s *saying) (*http.Response, error) {
				value, ok := decoded(s.good.body)
				r := s.good
				if ok {
					now, _ := changed(value, path, one, changing{foreign: s.liar.foreign})
					if is[gone](now) {
						now = nil
					}
					r.body = asJSON(now)
				}
				return r.response(s.request), nil
			}})
		}
	}
	return all
}
