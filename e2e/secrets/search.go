package secrets

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	// shortest is the length of the shortest secret that can be searched for, in
	// bytes: a shorter one stands everywhere by chance.
	shortest = 8
	// window is how much of a file is looked at in one piece, and reach by how much two
	// pieces overlap: the longest form of a secret that is found.
	window = 4 << 20
	reach  = 64 << 10
	// largest bounds what is taken out of one compressed stream, in bytes.
	largest = 256 << 20
	// deepest is how many encodings may lie one in the other.
	deepest = 3
	// most bounds the hits of one secret in one file: where one is there are many.
	most = 10
)

// Hit is one place where a secret stands.
type Hit struct {
	// File is the path below the directory.
	File string
	// Line counts from 1; 0 is the file's own name.
	Line int
	// Secret is the index of the secret that was given.
	Secret int
	// Form says how it is written there.
	Form string
	// Text is what stands around it, without it.
	Text string
}

func (h Hit) String() string {
	return fmt.Sprintf("%s:%d holds secret %d (%s): %q", h.File, h.Line, h.Secret, h.Form, h.Text)
}

// Search looks for secrets in every regular file below a directory, and in the names
// of all files. Links are not followed. Each is found as it is, in base64 also inside a
// longer text, in hex, and behind up to three layers of percent-encoding, escapes of
// JSON or Go, entities of HTML, and gzip, which may begin anywhere in a file. A secret
// has at least 8 bytes.
func Search(dir string, secrets []string) ([]Hit, error) {
	s := &searcher{needles: map[[shortest]byte][]needle{}, seen: map[Hit]bool{}, count: map[[2]string]int{}}
	for i, secret := range secrets {
		if len(secret) < shortest {
			return nil, fmt.Errorf("secret %d has %d bytes; one of less than %d stands everywhere", i, len(secret), shortest)
		}
		s.add(i, secret)
	}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if s.file, err = filepath.Rel(dir, path); err != nil {
			return err
		}
		s.line(0, []byte(s.file), "its name", 0)
		if !entry.Type().IsRegular() {
			return nil
		}
		return s.open(path)
	})
	return s.hits, err
}

type searcher struct {
	// needles are by their beginning, so that thousands of them are looked for in one
	// pass; filter has a bit for each beginning, so that most places are passed at once.
	needles map[[shortest]byte][]needle
	filter  [1 << filterBits / 64]uint64
	file    string
	hits    []Hit
	seen    map[Hit]bool
	count   map[[2]string]int
}

// needle is one text that stands for a secret.
type needle struct {
	secret int
	form   string
	text   []byte
}

func (s *searcher) add(i int, secret string) {
	add := func(form, text string) {
		begin := [shortest]byte([]byte(text))
		if slices.ContainsFunc(s.needles[begin], func(known needle) bool { return string(known.text) == text }) {
			return
		}
		s.needles[begin] = append(s.needles[begin], needle{i, form, []byte(text)})
		bit := place([]byte(text))
		s.filter[bit/64] |= 1 << (bit % 64)
	}
	add("as it is", secret)
	// In the query of a URL a blank is a plus.
	add("as it is", strings.ReplaceAll(secret, " ", "+"))
	add("hex", hex.EncodeToString([]byte(secret)))
	add("hex", strings.ToUpper(hex.EncodeToString([]byte(secret))))
	// Inside a longer text a secret begins at one of three places of a group of
	// letters; those that its neighbors have a part in are left out.
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			text := encoding.EncodeToString(append(make([]byte, before), secret...))
			add("base64", text[(before*8+5)/6:(before+len(secret))*8/6])
		}
	}
}

const filterBits = 20

// place is the bit of the filter for a text that begins like this.
func place(text []byte) uint32 {
	return binary.LittleEndian.Uint32(text) * 2654435761 >> (32 - filterBits) // Knuth's multiplicative hash
}

// find gives every place of a text at which a needle stands, until found says no. It
// is most of the work and shares nothing: the race detector, which would make it many
// times slower, leaves it alone.
//
//go:norace
func (s *searcher) find(text []byte, found func(at int, one needle) bool) {
	for at := 0; at+shortest <= len(text); at++ {
		if bit := place(text[at:]); s.filter[bit/64]&(1<<(bit%64)) == 0 {
			continue
		}
		for _, one := range s.needles[[shortest]byte(text[at:])] {
			if bytes.HasPrefix(text[at:], one.text) && !found(at, one) {
				return
			}
		}
	}
}

func (s *searcher) open(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return s.scan(file, info.Size(), "", 0)
}

// scan looks at what can be read, piece by piece. form is how it came to be.
func (s *searcher) scan(from io.ReaderAt, size int64, form string, depth int) error {
	buffer := make([]byte, min(window+reach, size))
	line := 1
	for at := int64(0); at < size; at += window {
		data := buffer[:min(int64(len(buffer)), size-at)]
		// A file that is still written to may have become shorter.
		n, err := from.ReadAt(data, at)
		if data = data[:n]; err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		s.piece(line, data, form, depth)
		if err := s.compressed(from, size, at, data, form, depth); err != nil {
			return err
		}
		line += bytes.Count(data[:min(window, len(data))], []byte("\n"))
	}
	return nil
}

// piece looks at each line; one without a letter that encodings begin with is looked
// at as it is.
func (s *searcher) piece(line int, data []byte, form string, depth int) {
	plain := true
	s.find(data, func(int, needle) bool {
		plain = false
		return false
	})
	for text := range bytes.Lines(data) {
		if !plain || bytes.ContainsAny(text, `%\&`) {
			s.line(line, text, form, depth)
		}
		line++
	}
}

// line looks at a text and at what it stands for.
func (s *searcher) line(number int, text []byte, form string, depth int) {
	s.find(text, func(at int, one needle) bool {
		s.hit(number, text, at, one, form)
		return true
	})
	if depth == deepest {
		return
	}
	for _, one := range []struct {
		name   string
		decode func([]byte) []byte
	}{{"percent-encoded", percent}, {"escaped", escapes}, {"in HTML", entities}} {
		if decoded := one.decode(text); !bytes.Equal(decoded, text) {
			s.line(number, decoded, join(form, one.name), depth+1)
		}
	}
}

func join(outer, inner string) string {
	if outer == "" {
		return inner
	}
	return outer + ", " + inner
}

func (s *searcher) hit(line int, text []byte, at int, one needle, form string) {
	if s.seen[Hit{File: s.file, Line: line, Secret: one.secret}] {
		return
	}
	counted := [2]string{s.file, strconv.Itoa(one.secret)}
	if s.count[counted]++; s.count[counted] > most {
		return
	}
	s.seen[Hit{File: s.file, Line: line, Secret: one.secret}] = true
	around := slices.Concat(text[max(0, at-80):at], []byte("[secret]"), text[at+len(one.text):min(len(text), at+len(one.text)+40)])
	// Another secret may stand beside it.
	s.find(bytes.Clone(around), func(_ int, other needle) bool {
		around = bytes.ReplaceAll(around, other.text, []byte("[secret]"))
		return true
	})
	if form != "" && one.form == "as it is" {
		one.form = form
	} else {
		one.form = join(form, one.form)
	}
	s.hits = append(s.hits, Hit{File: s.file, Line: line, Secret: one.secret, Form: one.form, Text: strings.TrimSpace(string(around))})
}

// gzipped is how a gzip stream begins.
var gzipped = []byte{0x1f, 0x8b, 0x08}

// compressed looks into each gzip stream that begins in a piece.
func (s *searcher) compressed(from io.ReaderAt, size, at int64, data []byte, form string, depth int) error {
	if depth == deepest {
		return nil
	}
	for found, n := 0, 0; ; found += n + 1 {
		if n = bytes.Index(data[found:], gzipped); n < 0 || found+n >= window {
			return nil
		}
		begin := at + int64(found+n)
		reader, err := gzip.NewReader(io.NewSectionReader(from, begin, size-begin))
		if err != nil {
			continue // three bytes that mean something else
		}
		// Something else may follow, or the end may be missing: what comes out counts.
		reader.Multistream(false)
		content, _ := io.ReadAll(io.LimitReader(reader, largest))
		if err := s.scan(bytes.NewReader(content), int64(len(content)), join(form, "gzip"), depth+1); err != nil {
			return err
		}
	}
}

// percent takes out percent-encoding.
func percent(text []byte) []byte {
	if !bytes.ContainsRune(text, '%') {
		return text
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if n, err := strconv.ParseUint(string(text[i+1:i+3]), 16, 8); err == nil {
				out = append(out, byte(n))
				i += 2
				continue
			}
		}
		out = append(out, text[i])
	}
	return out
}

// escapes takes out the escapes of JSON and Go.
func escapes(text []byte) []byte {
	if !bytes.ContainsRune(text, '\\') {
		return text
	}
	out := make([]byte, 0, len(text))
	rest := string(text)
	for len(rest) > 0 {
		if rest[0] == '\\' && len(rest) > 1 {
			if rest[1] == '/' { // JSON's alone
				out, rest = append(out, '/'), rest[2:]
				continue
			}
			quote := byte('"')
			if rest[1] == '\'' {
				quote = '\''
			}
			if r, multibyte, tail, err := strconv.UnquoteChar(rest, quote); err == nil {
				if r < 0x80 || !multibyte {
					out = append(out, byte(r))
				} else {
					out = append(out, string(r)...)
				}
				rest = tail
				continue
			}
		}
		out, rest = append(out, rest[0]), rest[1:]
	}
	return out
}

// entities takes out those of HTML.
func entities(text []byte) []byte {
	if !bytes.ContainsRune(text, '&') {
		return text
	}
	return []byte(html.UnescapeString(string(text)))
}
