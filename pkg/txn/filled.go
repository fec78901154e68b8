package txn

import "strings"

// An input may hold a path that an expression of the workflow filled in part.
// Conductor puts nothing, or the word null, in the place of an expression that has
// no value (which of the two depends on its version). The path that is left then
// names more than the workflow meant, or something else: data/${workflow.input.day}
// becomes data/, which is every day. The checks below refuse each such path that
// can be told from one that was meant. They are for inputs alone: the records of
// earlier publications stay readable, whatever prefix they have.

// checkFilled refuses a path with a segment that an expression without a value
// leaves behind: an empty one, null, or a partition (day=) without a value. One
// slash at the end is no segment.
func checkFilled(field, text, path string) error {
	for segment := range strings.SplitSeq(strings.TrimSuffix(path, "/"), "/") {
		switch _, value, partition := strings.Cut(segment, "="); {
		case segment == "":
			return Terminalf(field, "%s has an empty segment; an expression or a variable in it was probably empty, give it a value", quote(text))
		case segment == "null":
			return Terminalf(field, "%s has the segment null; an expression or a variable in it was probably empty, give it a value", quote(text))
		case partition && (value == "" || value == "null" || strings.HasSuffix(value, "=")):
			return Terminalf(field, "%s has the segment %s without a value; an expression or a variable in it was probably empty, give it a value", quote(text), quote(segment))
		}
	}
	return nil
}

// checkName refuses a name that is the word null.
func (d document) checkName(name string) error {
	if s, err := d.text(name); err != nil || s != "null" {
		return err
	}
	return Terminalf(join(d.path, name), "is the word null; an expression or a variable was probably empty, give it a value")
}

// IsRoot reports whether the text of a prefix names the root.
func IsRoot(text string) bool { return text == "" || text == "/" }

// ParseInputPrefix reads the prefix that somebody gives to a task or a command.
// It is ParsePrefix, but the root has to be asked for with root, and a segment that
// an expression without a value leaves behind is refused.
func ParseInputPrefix(text string, root bool) (Prefix, error) {
	const field = "prefix"
	switch {
	case IsRoot(text) && root:
		return "", nil
	case IsRoot(text):
		return "", Terminalf(field, `%s is the root, which holds every file of the repository; write "root": true beside it if that is meant, else give the expression in it a value`, quote(text))
	case root:
		return "", Terminalf("root", "is true, but the prefix is %s; remove root, or write the prefix /", quote(text))
	}
	// A slash at the beginning has a sentence of its own.
	if below := strings.TrimPrefix(text, "/"); !strings.HasPrefix(text, "/") || strings.HasPrefix(below, "/") {
		if err := checkFilled(field, text, text); err != nil {
			return "", err
		}
	}
	return ParsePrefix(text)
}
