package conductor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

var (
	// errNoField is a JSON object without the string field that was looked for.
	errNoField = errors.New("no such field")
	// errNotJSON is something else than a JSON object.
	errNotJSON = errors.New("not a JSON object")
)

// maxField bounds the keys of the object, and the values that are looked for, in
// bytes. encoding/json's decoder would hold each value whole before passing it
// by, and a workflow's input can be one string of many megabytes.
const maxField = 4096

// topLevelStrings reads a JSON object until it has found each of the named fields,
// and gives their string values in the order of the names. What stands between them
// is passed by in constant memory; nesting and strings are followed, the rest of the
// grammar is not checked. A field of such a name further down is another field, and
// of two the first counts.
func topLevelStrings(from *bufio.Reader, names ...string) ([]string, error) {
	s := scanner{from}
	if b, err := s.next(); err != nil {
		return nil, err
	} else if b != '{' {
		return nil, errNotJSON
	}
	values, left := make([]string, len(names)), len(names)
	for left > 0 {
		b, err := s.next()
		if err != nil {
			return nil, err
		}
		switch b {
		case ',':
			continue
		case '}':
			return nil, errNoField
		case '"':
		default:
			return nil, errNotJSON
		}
		key, err := s.text()
		if err != nil {
			return nil, err
		}
		if b, err = s.next(); err != nil {
			return nil, err
		} else if b != ':' {
			return nil, errNotJSON
		}
		at := slices.Index(names, key)
		if at < 0 || values[at] != "" {
			if err := s.skip(); err != nil {
				return nil, err
			}
			continue
		}
		if b, err = s.next(); err != nil {
			return nil, err
		} else if b != '"' {
			return nil, errNoField
		}
		switch values[at], err = s.text(); {
		case err != nil:
			return nil, err
		case values[at] == "":
			return nil, errNoField
		}
		left--
	}
	return values, nil
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
	return b, cut(err)
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

// skip passes by a value: up to the comma or brace that ends it, which is left
// unread.
func (s scanner) skip() error { return s.pass(func([]byte) error { return nil }) }

// value is a value as it is written, of at most limit bytes: more is errTooLarge, with
// what as the name of it.
func (s scanner) value(what string, limit int64) (json.RawMessage, error) {
	var raw json.RawMessage
	err := s.pass(func(more []byte) error {
		if int64(len(raw)+len(more)) > limit {
			return fmt.Errorf("%w: %s has more than %d bytes", errTooLarge, what, limit)
		}
		raw = append(raw, more...)
		return nil
	})
	return raw, err
}

// pass gives a value piece by piece, up to the comma or brace that ends it, which is
// left unread. It looks at what the buffer holds at once, since this is where all the
// bytes are.
func (s scanner) pass(take func([]byte) error) error {
	depth, quoted, escaped := 0, false, false
	for {
		if _, err := s.Peek(1); err != nil {
			return cut(err)
		}
		held, err := s.Peek(s.Buffered())
		if err != nil {
			return err
		}
		for i, b := range held {
			switch {
			case escaped:
				escaped = false
			case quoted:
				escaped = b == '\\'
				quoted = b != '"'
			case b == '"':
				quoted = true
			case b == '{', b == '[':
				depth++
			case depth == 0 && (b == ',' || b == '}' || b == ']'):
				if err := take(held[:i]); err != nil {
					return err
				}
				_, err := s.Discard(i)
				return err
			case b == '}', b == ']':
				depth--
			}
		}
		if err := take(held); err != nil {
			return err
		}
		if _, err := s.Discard(len(held)); err != nil {
			return err
		}
	}
}

// cut turns the end of the input in the middle of a value into an error that
// says so.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
