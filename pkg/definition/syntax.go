package definition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// expected says, for the end of a sentence of encoding/json, what the text should
// have had in that place. The longer ends stand before those that they end in.
var expected = []struct{ end, what string }{
	{"looking for beginning of object key string", `a field name in double quotes (is there a comma too many before it?)`},
	{"looking for beginning of value", `a value: an object, a list, a text in double quotes, a number, true, false or null`},
	{"after object key:value pair", "a comma or }"},
	{"after object key", "a colon"},
	{"after array element", "a comma or ]"},
	{"after top-level value", "the end of the file"},
	{"in string literal", `a character that may stand in a text (a line break is \n, a tab \t)`},
	{"in string escape code", `one of the escapes \" \\ \/ \b \f \n \r \t \uXXXX`},
	{`in \u hexadecimal character escape`, "four hexadecimal digits"},
	{"in numeric literal", "a digit"},
	{"after decimal point in numeric literal", "a digit"},
	{"in exponent of numeric literal", "a digit"},
}

// CheckJSON says where a text is not JSON: the file, the line, the column, what
// stands there and what was expected. A text that is JSON is no error.
func CheckJSON(source string, text []byte) error {
	var value json.RawMessage
	err := json.Unmarshal(text, &value)
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return err
	}
	if rest, ok := bytes.CutPrefix(text, []byte("\xef\xbb\xbf")); ok && json.Valid(rest) {
		return fmt.Errorf("%s:1:1: the file begins with a byte order mark; save it as UTF-8 without one", source)
	}
	said := syntax.Error()
	at := int(min(max(syntax.Offset-1, 0), int64(len(text))))
	ended := strings.Contains(said, "unexpected end")
	if ended {
		at = len(bytes.TrimRight(text, " \t\r\n"))
	}
	before := text[:at]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	place := fmt.Sprintf("%s:%d:%d", source, line, column)
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return fmt.Errorf("%s: the file is empty; expected a JSON object or list", place)
	case ended:
		return fmt.Errorf("%s: the file ends in the middle of a value; expected a closing quote, bracket or brace", place)
	}
	found, _ := utf8.DecodeRune(text[at:])
	for _, e := range expected {
		if strings.HasSuffix(said, e.end) {
			return fmt.Errorf("%s: found %q; expected %s", place, found, e.what)
		}
	}
	if _, literal, ok := strings.Cut(said, "in literal "); ok {
		literal, _, _ = strings.Cut(literal, " ")
		return fmt.Errorf("%s: found %q; expected the rest of %s (a text needs double quotes)", place, found, literal)
	}
	return fmt.Errorf("%s: %w; expected JSON", place, err)
}
