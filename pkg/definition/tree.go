package definition

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// node is one JSON value with its place in the text, so that a text can be
// changed in one place and stay as it is in every other.
type node struct {
	start, end int
	// members are an object's, elements a list's.
	members  []member
	elements []*node
}

type member struct {
	name string
	// start is where the quoted name begins.
	start int
	value *node
}

// parseTree reads one JSON value, which was checked before.
func parseTree(text []byte) (*node, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	begin := func() int {
		at := int(decoder.InputOffset())
		for at < len(text) && bytes.IndexByte([]byte(" \t\r\n,:"), text[at]) >= 0 {
			at++
		}
		return at
	}
	var read func() (*node, error)
	read = func() (*node, error) {
		n := &node{start: begin()}
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		switch token {
		case json.Delim('{'):
			for decoder.More() {
				m := member{start: begin()}
				key, err := decoder.Token()
				if err != nil {
					return nil, err
				}
				m.name, _ = key.(string)
				if m.value, err = read(); err != nil {
					return nil, err
				}
				n.members = append(n.members, m)
			}
			_, err = decoder.Token()
		case json.Delim('['):
			for decoder.More() {
				element, err := read()
				if err != nil {
					return nil, err
				}
				n.elements = append(n.elements, element)
			}
			_, err = decoder.Token()
		}
		n.end = int(decoder.InputOffset())
		return n, err
	}
	return read()
}

// member is the value of an object's field, nil when it has none. Of a name that
// stands there twice the last one counts, as for every reader.
func (n *node) member(name string) *node {
	if n == nil {
		return nil
	}
	for _, m := range slices.Backward(n.members) {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// edit puts a text in the place of a part of another one.
type edit struct {
	start, end int
	text       string
}

// applyEdits makes the edits, none of which overlap. Those at one place come one after
// the other.
func applyEdits(text []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.start - b.start })
	var out bytes.Buffer
	at := 0
	for _, e := range edits {
		out.Write(text[at:e.start])
		out.WriteString(e.text)
		at = e.end
	}
	out.Write(text[at:])
	return out.Bytes()
}

// gap is the white space before a place, from the comma or bracket before it.
func gap(text []byte, at int) string {
	begin := at
	for begin > 0 && strings.IndexByte(" \t\r\n", text[begin-1]) >= 0 {
		begin--
	}
	return string(text[begin:at])
}

// field is one field of an object that is written, in the order given.
type field struct {
	name  string
	value any // a string, a bool, or fields
}

// layout is how an object is written: as those beside it are.
type layout struct {
	// newline begins a line, with its indentation; empty to write on one line.
	newline string
	// unit is one step of indentation.
	unit string
	// space stands after a colon or a comma on one line.
	space string
}

// layoutOf is the layout of an object of a text.
func layoutOf(text []byte, n *node) layout {
	l := layout{}
	body := text[n.start:n.end]
	if bytes.Contains(body, []byte(`": `)) || bytes.Contains(body, []byte(`, `)) {
		l.space = " "
	}
	if len(n.members) == 0 {
		return l
	}
	inner, outer := gap(text, n.members[0].start), gap(text, n.start)
	if i := strings.LastIndexByte(inner, '\n'); i >= 0 {
		l.newline = "\n"
		if strings.HasSuffix(inner[:i], "\r") {
			l.newline = "\r\n"
		}
		indent := ""
		if j := strings.LastIndexByte(outer, '\n'); j >= 0 {
			indent = outer[j+1:]
		}
		l.newline += indent
		l.unit = strings.TrimPrefix(inner[i+1:], indent)
	}
	return l
}

// write is an object in a layout; an inner object of one field is on one line.
func (l layout) write(fields []field) string {
	var out strings.Builder
	out.WriteByte('{')
	for i, f := range fields {
		if i > 0 {
			out.WriteByte(',')
			if l.newline == "" {
				out.WriteString(l.space)
			}
		}
		if l.newline != "" {
			out.WriteString(l.newline + l.unit)
		}
		out.Write(encode(f.name))
		out.WriteString(":" + l.space)
		switch v := f.value.(type) {
		case []field:
			inner := l
			if inner.newline != "" {
				inner.newline += l.unit
			}
			if len(v) == 1 && i > 0 && f.name != "inputParameters" {
				inner.newline = ""
			}
			out.WriteString(inner.write(v))
		default:
			out.Write(encode(v))
		}
	}
	out.WriteString(l.newline + "}")
	return out.String()
}
