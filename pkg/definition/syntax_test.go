package definition_test

import (
	"encoding/json"
	"strings"
	"testing"

	"perago/pkg/definition"
)

// Malformed JSON is told with its place and with what was expected there, and never
// in the words of a parser alone.
func TestCheckJSON_SaysWhereAndWhatWasExpected(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                          "w.json:1:1: the file is empty; expected a JSON object or list",
		" \n":                       "w.json:1:1: the file is empty; expected a JSON object or list",
		"\xef\xbb\xbf{}":            "w.json:1:1: the file begins with a byte order mark; save it as UTF-8 without one",
		`{"a": 1`:                   "w.json:1:8: the file ends in the middle of a value; expected a closing quote, bracket or brace",
		"{\"a\": [1,\n\n":           "w.json:1:10: the file ends in the middle of a value; expected a closing quote, bracket or brace",
		"{\n  \"a\": 1,\n}":         `w.json:3:1: found '}'; expected a field name in double quotes (is there a comma too many before it?)`,
		"{\n  \"é\": 1 \"b\": 2\n}": `w.json:2:10: found '"'; expected a comma or }`,
		`{"a" 1}`:                   "w.json:1:6: found '1'; expected a colon",
		`{"a": [1 2]}`:              "w.json:1:10: found '2'; expected a comma or ]",
		`{"a": [1, ]}`:              "w.json:1:11: found ']'; expected a value: an object, a list, a text in double quotes, a number, true, false or null",
		`{'a': 1}`:                  `w.json:1:2: found '\''; expected a field name in double quotes (is there a comma too many before it?)`,
		`{"a": prepare}`:            "w.json:1:7: found 'p'; expected a value: an object, a list, a text in double quotes, a number, true, false or null",
		`{"a": 1} {"b": 2}`:         "w.json:1:10: found '{'; expected the end of the file",
		"{\"a\": \"x\ny\"}":         `w.json:1:9: found '\n'; expected a character that may stand in a text (a line break is \n, a tab \t)`,
		`{"a": "\x"}`:               `w.json:1:9: found 'x'; expected one of the escapes \" \\ \/ \b \f \n \r \t \uXXXX`,
		`{"a": "\u12x4"}`:           "w.json:1:12: found 'x'; expected four hexadecimal digits",
		`{"a": 1.x}`:                "w.json:1:9: found 'x'; expected a digit",
		`{"a": -}`:                  "w.json:1:8: found '}'; expected a digit",
		`{"a": 1ex}`:                "w.json:1:9: found 'x'; expected a digit",
		`{"a": True}`:               "w.json:1:7: found 'T'; expected a value: an object, a list, a text in double quotes, a number, true, false or null",
		`{"a": trues}`:              "w.json:1:11: found 's'; expected a comma or }",
		`{"a": nil}`:                "w.json:1:8: found 'i'; expected the rest of null (a text needs double quotes)",
	} {
		err := definition.CheckJSON("w.json", []byte(text))
		if err == nil || err.Error() != want {
			t.Errorf("%q:\ngot  %v\nwant %s", text, err, want)
		}
		if _, parsed := definition.Parse("w.json", []byte(text)); parsed == nil || parsed.Error() != want {
			t.Errorf("%q: Parse says %v", text, parsed)
		}
	}
	for _, text := range []string{`{}`, `[]`, ` {"a": null} `} {
		if err := definition.CheckJSON("w.json", []byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzCheckJSON: what is no JSON has a place and one line, what is JSON has no error.
func FuzzCheckJSON(f *testing.F) {
	for _, text := range []string{`{"a": 1,}`, `{"a" 1}`, "[1 2", `"\u00`, "\xef\xbb\xbf1", "\xff", `{"a": 1e}`, "nul", "\x00"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		err := definition.CheckJSON("w.json", text)
		if (err == nil) != json.Valid(text) {
			t.Fatalf("%q: %v", text, err)
		}
		if err == nil {
			return
		}
		said := err.Error()
		if !strings.HasPrefix(said, "w.json:") || strings.ContainsAny(said, "\n\x00") || !strings.Contains(said, "expected") && !strings.Contains(said, "byte order mark") {
			t.Fatalf("%q: %q", text, said)
		}
	})
}
