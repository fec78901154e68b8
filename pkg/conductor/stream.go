package conductor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

var (
	// errNoField is a JSON object without the string field that was looked for.
	errNoField = errors.New("no such field")
	// errNotJSON is something else than a JSON object.
	errNotJSON = errors.New("not a JSON object")
)

// maxField bounds the keys of the object, and the value that is looked for, in
// bytes. encoding/json's decoder would hold each value whole before passing it
// by, and a workflow's input can be one string of many megabytes.
const maxField = 4096

// topLevelString reads a JSON object as far as the named field and gives its
// string value. What comes before it is passed by in constant memory; nesting
// and strings are followed, the rest of the grammar is not checked. A field of
// that name further down is another field.
func topLevelString(from io.Reader, name string) (string, error) {
	s := scanner{bufio.NewReader(from)}
	if b, err := s.next(); err != nil {
		return "", err
	} else if b != '{' {
		return "", errNotJSON
	}
	for {
		b, err := s.next()
		if err != nil {
			return "", err
		}
		switch b {
		case ',':
			continue
		case '}':
			return "", errNoField
		case '"':
		default:
			return "", errNotJSON
		}
		key, err := s.text()
		if err != nil {
			return "", err
		}
		if b, err = s.next(); err != nil {
			return "", err
		} else if b != ':' {
			return "", errNotJSON
		}
		if b, err = s.next(); err != nil {
			return "", err
		}
		if key != name {
			if err := s.skip(b); err != nil {
				return "", err
			}
			continue
		}
		if b != '"' {
			return "", errNoField
		}
		value, err := s.text()
		if err == nil && value == "" {
			return "", errNoField
		}
		return value, err
	}
}

type scanner struct{ *bufio.Reader }

// next is the next byte that is not white space. An answer that ends early was
// cut.
func (s scanner) next() (byte, error) {
	for {
		b, err := s.byte()
		if err != nil {
			return 0, err
		}
		switch b {
		case ' ', '\t', '\r', '\n':
		default:
			return b, nil
		}
	}
}

func (s scanner) byte() (byte, error) {
	b, err := s.ReadByte()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// text is a string whose opening quote has been read.
func (s scanner) text() (string, error) {
	quoted := []byte{'"'}
	for escaped := false; ; {
		b, err := s.byte()
		if err != nil {
			return "", err
		}
		quoted = append(quoted, b)
		switch {
		case escaped:
			escaped = false
		case b == '\\':
			escaped = true
		case b == '"':
			var value string
			if err := json.Unmarshal(quoted, &value); err != nil {
				return "", fmt.Errorf("%w: %w", errNotJSON, err)
			}
			return value, nil
		}
		if len(quoted) > maxField {
			return "", fmt.Errorf("%w: a name of more than %d bytes", errNotJSON, maxField)
		}
	}
}

// skip passes by a value whose first byte has been read. A number or a word ends
// before the comma or brace that follows it, which is left unread.
func (s scanner) skip(first byte) error {
	depth, quoted, escaped := 0, false, false
	for b := first; ; {
		switch {
		case escaped:
			escaped = false
		case quoted && b == '\\':
			escaped = true
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '{', b == '[':
			depth++
		case b == '}', b == ']':
			depth--
		}
		if depth == 0 && !quoted {
			after, err := s.Peek(1)
			if err != nil {
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				return err
			}
			if after[0] == ',' || after[0] == '}' {
				return nil
			}
			// A composite or a string that has just closed may be followed by
			// white space, a number by more of itself.
		}
		var err error
		if b, err = s.byte(); err != nil {
			return err
		}
	}
}
