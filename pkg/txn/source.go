package txn

import (
	"encoding/json"
	"net/url"
	"strings"
)

// ImportSource is a prefix of an object store, as a URI that ends in a slash:
// s3://bucket/path/. The slash is what keeps path/ from including path2/.
type ImportSource string

// ParseImportSource checks and normalises what a user wrote: a missing final
// slash is added. What the scheme must be is lakeFS's to say: that of its own
// block store.
func ParseImportSource(field, text string) (ImportSource, error) {
	if unprintable(text) {
		return "", Terminalf(field, "%s holds a control character", quote(text))
	}
	// Only taken apart, never put together again: a key may hold what a URL has
	// to escape.
	scheme, rest, ok := strings.Cut(text, "://")
	switch {
	case !ok || !isScheme(scheme) || rest == "":
		return "", Terminalf(field, "%s is not the URI of an object-store prefix; write it like s3://bucket/path/", quote(text))
	case strings.ContainsAny(rest, "?#"):
		return "", Terminalf(field, "%s has a query or a fragment; lakeFS reads the object store with its own credentials", quote(text))
	}
	host, _, _ := strings.Cut(rest, "/")
	if parsed, err := url.Parse(scheme + "://" + host); err != nil || parsed.User != nil {
		return "", Terminalf(field, "holds credentials or no host; lakeFS reads the object store with its own credentials")
	}
	if !strings.HasSuffix(text, "/") {
		text += "/"
		rest += "/"
	}
	// lakeFS reads it as a URL, so what is escaped counts as what it stands for:
	// behind an allowed prefix %2e%2e would lead out of it. A malformed escape is
	// lakeFS's to refuse.
	forms := []string{rest}
	if read, err := url.PathUnescape(rest); err == nil {
		forms = append(forms, read)
	}
	for _, form := range forms {
		switch {
		case unprintable(form):
			return "", Terminalf(field, "%s holds a control character", quote(text))
		case !plainSegments(form):
			return "", Terminalf(field, "%s has empty, . or .. segments", quote(text))
		}
	}
	if host == "" && strings.Trim(rest, "/") == "" {
		return "", Terminalf(field, "%s names no bucket", quote(text))
	}
	return ImportSource(text), nil
}

// checkFilled refuses a URI with a segment that an expression without a value
// leaves behind, as it is written and as lakeFS reads it.
func (s ImportSource) checkFilled(field string) error {
	scheme, rest, _ := strings.Cut(string(s), "://")
	if scheme == "local" {
		rest = strings.TrimPrefix(rest, "/") // local:///srv/x/ has no host
	}
	forms := []string{rest}
	if read, err := url.PathUnescape(rest); err == nil {
		forms = append(forms, read)
	}
	for _, form := range forms {
		if err := checkFilled(field, string(s), form); err != nil {
			return err
		}
	}
	return nil
}

// plainSegments reports whether a path between slashes has segments that are names
// only. What begins with a slash names no host.
func plainSegments(path string) bool {
	path = strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/")
	if path == "" {
		return true
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

func isScheme(s string) bool {
	for i, r := range s {
		switch {
		case r >= 'a' && r <= 'z':
		case i > 0 && (r >= '0' && r <= '9' || strings.ContainsRune("+.-", r)):
		default:
			return false
		}
	}
	return s != ""
}

func unprintable(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f || r == 0xfffd })
}

// parseSource reads where a step's files come from: exactly one of a directory
// and an import.
func parseSource(raw json.RawMessage) (directory string, from ImportSource, err error) {
	source, err := parseDocument("source", raw, []string{"directory", "import"})
	if err != nil {
		return "", "", err
	}
	_, hasDirectory := source.fields["directory"]
	_, hasImport := source.fields["import"]
	switch {
	case hasDirectory && hasImport:
		return "", "", Terminalf("source.import", "goes not with source.directory; remove one of the two")
	case hasImport:
		text, err := source.text("import")
		if err != nil {
			return "", "", err
		}
		if from, err = ParseImportSource("source.import", text); err != nil {
			return "", "", err
		}
		return "", from, from.checkFilled("source.import")
	}
	directory, err = source.text("directory")
	return directory, "", err
}

// ImportList is the object-store prefixes that a worker may import from. * alone
// allows all that lakeFS itself can read.
type ImportList []ImportSource

// ParseImportList reads entries that are URIs, or *; none allows nothing.
func ParseImportList(entries []string) (ImportList, error) {
	var list ImportList
	for _, entry := range entries {
		entry = strings.TrimSpace(entry)
		switch entry {
		case "":
			continue
		case "none":
			continue
		case "*":
			list = append(list, "*")
			continue
		}
		source, err := ParseImportSource("", entry)
		if err != nil {
			return nil, err
		}
		list = append(list, source)
	}
	return list, nil
}

// Allows reports whether everything below the prefix may be imported.
func (l ImportList) Allows(source ImportSource) bool {
	for _, allowed := range l {
		if allowed == "*" || strings.HasPrefix(string(source), string(allowed)) {
			return true
		}
	}
	return false
}
