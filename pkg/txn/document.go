package txn

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// document is a JSON object that came from outside, read field by field so that
// each fault is one sentence that names the field.
type document struct {
	path   string
	fields map[string]json.RawMessage
}

// parseDocument reads an object. known lists the fields it may have; nil allows
// any.
func parseDocument(path string, raw json.RawMessage, known []string) (document, error) {
	if absent(raw) {
		return document{}, missing(path)
	}
	var text string
	if json.Unmarshal(raw, &text) == nil && unresolved(text) {
		return document{}, unresolvedExpression(path, text)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return document{}, Terminalf(path, "must be a JSON object")
	}
	if known != nil {
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if !slices.Contains(known, name) {
				return document{}, Terminalf(join(path, plain(name)), "is not a field of this task; the fields are %s", strings.Join(known, ", "))
			}
		}
	}
	return document{path: path, fields: fields}, nil
}

func (d document) has(name string) bool { return !absent(d.fields[name]) }

// text is a string that must be there and not be empty.
func (d document) text(name string) (string, error) {
	s, err := d.anyText(name)
	if err == nil && s == "" {
		return "", Terminalf(join(d.path, name), "is empty")
	}
	return s, err
}

// anyText is a string that must be there and may be empty.
func (d document) anyText(name string) (string, error) {
	path := join(d.path, name)
	raw := d.fields[name]
	if absent(raw) {
		return "", missing(path)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", Terminalf(path, "must be a string")
	}
	if unresolved(s) {
		return "", unresolvedExpression(path, s)
	}
	return s, nil
}

// flag is a boolean that is false when it is not there.
func (d document) flag(name string) (bool, error) {
	raw := d.fields[name]
	if _, ok := d.fields[name]; !ok {
		return false, nil
	}
	var b bool
	if absent(raw) || json.Unmarshal(raw, &b) != nil {
		return false, Terminalf(join(d.path, name), "must be true or false")
	}
	return b, nil
}

func absent(raw json.RawMessage) bool {
	trimmed := bytes.TrimSpace(raw)
	return len(trimmed) == 0 || bytes.Equal(trimmed, []byte("null"))
}

// unresolved reports whether Conductor left an expression as it was written.
func unresolved(s string) bool { return strings.Contains(s, "${") }

func missing(path string) error {
	return Terminalf(path, "is missing or null; the workflow was started without it, or its expression names a task or an output that is not there")
}

func unresolvedExpression(path, s string) error {
	return Terminalf(path, "is the unresolved expression %s; check the reference name in the workflow definition", quote(s))
}

// plain is the name of a field that somebody made up, quoted where it would break a
// line, a terminal or a sentence.
func plain(name string) string {
	if quoted := quote(name); quoted != `"`+name+`"` || name == "" {
		return quoted
	}
	return name
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
