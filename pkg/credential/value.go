package credential

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
)

// Redacted stands wherever a value would have been printed.
const Redacted = "[redacted]"

// Placeholder is what example configurations hold where a person has to write a
// value, of whatever kind.
const Placeholder = "replace-me"

// largestFile bounds what is read of a file, in bytes: a path to something else
// must not fill the memory.
const largestFile = 64 << 10

// Value is a key id or a secret: a text that does not print, not with any verb of
// fmt, not in a log, not in JSON, not as a field of something else that is
// printed. Its zero is no value.
type Value struct {
	// A pointer to the bare text, because fmt prints what an unexported field
	// holds, and what a pointer to a struct holds, and asks no method of it.
	text *string
	// origin is where the text is read again; nil for one that was given.
	origin *origin
}

type origin struct{ variable, path string }

// New is a value that was given.
func New(text string) Value { return Value{text: &text} }

// Read is a value that stands in the file at path, and that is read again when a
// server refuses it. Its errors begin with variable, which named the file, and
// hold nothing of the content.
func Read(variable, path string) (Value, error) {
	file, err := os.Open(path)
	if err != nil {
		return Value{}, fmt.Errorf("%s cannot be read: %w", variable, err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, largestFile+1))
	// Editors and echo end a file with a newline; it is no part of the value.
	text := strings.TrimRight(string(content), "\r\n")
	switch {
	case err != nil:
		return Value{}, fmt.Errorf("%s cannot be read: %w", variable, err)
	case len(content) > largestFile:
		return Value{}, fmt.Errorf("%s names a file of more than %d bytes, which is no key and no secret", variable, largestFile)
	case text == "":
		return Value{}, fmt.Errorf("%s names an empty file", variable)
	}
	value := Value{text: &text, origin: &origin{variable, path}}
	if err := value.Check(); err != nil {
		return Value{}, fmt.Errorf("%s names a file whose content %w", variable, err)
	}
	return value, nil
}

// Reveal is the text; "" for no value.
func (v Value) Reveal() string {
	if v.text == nil {
		return ""
	}
	return *v.text
}

// IsZero reports whether there is no value.
func (v Value) IsZero() bool { return v.Reveal() == "" }

// Check says what is wrong with a value, to be put behind its name; nil for a
// sound one. It repeats nothing of the value.
func (v Value) Check() error {
	text := v.Reveal()
	switch {
	case strings.TrimSpace(text) == "":
		return errors.New("is not set")
	case strings.Contains(strings.ToLower(text), Placeholder):
		return errors.New("still holds the placeholder " + Placeholder)
	case strings.TrimSpace(text) != text:
		return errors.New("has white space at its beginning or end")
	}
	return nil
}

// again is the value as its file holds it now; the same one if it was given.
func (v Value) again() (Value, error) {
	if v.origin == nil {
		return v, nil
	}
	return Read(v.origin.variable, v.origin.path)
}

// UnmarshalText takes the text, which is how go-envconfig fills a field.
func (v *Value) UnmarshalText(text []byte) error {
	*v = New(string(text))
	return nil
}

// String is "[redacted]", or "" for no value.
func (v Value) String() string {
	if v.IsZero() {
		return ""
	}
	return Redacted
}

// Format answers every verb: without it %d, which is wrong for a text, would
// print what is held in its complaint.
func (v Value) Format(state fmt.State, verb rune) {
	if verb == 'v' && state.Flag('#') {
		_, _ = io.WriteString(state, `"`+v.String()+`"`)
		return
	}
	_, _ = io.WriteString(state, v.String())
}

// LogValue is what slog writes.
func (v Value) LogValue() slog.Value { return slog.StringValue(v.String()) }

// MarshalText is what encoding/json and its relatives write.
func (v Value) MarshalText() ([]byte, error) { return []byte(v.String()), nil }
