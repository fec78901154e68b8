package secrets_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"perago/e2e/secrets"
)

// awkward needs every encoding there is.
const awkward = `s3cr et/"ö"&<%41+'\=end`

func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	to := gzip.NewWriter(&out)
	if _, err := to.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// cutOff takes away the end of a stream, with its sum.
func cutOff(stream string) string { return stream[:len(stream)-10] }

// Every form in which a program writes a text, and forms of forms.
func TestForms(t *testing.T) {
	t.Parallel()
	basic := func(key string) string { return base64.StdEncoding.EncodeToString([]byte(key + ":" + awkward)) }
	forms := map[string]string{
		"as it is":               "a line\nwith " + awkward + " in it\n",
		"JSON":                   asJSON(t, map[string]string{"error": "no " + awkward}),
		"JSON in JSON":           asJSON(t, map[string]string{"error": asJSON(t, awkward)}),
		"JSON in JSON in JSON":   asJSON(t, asJSON(t, asJSON(t, awkward))),
		"JSON without HTML":      `{"a":"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `/`, `\/`).Replace(awkward) + `"}`,
		"JSON in ASCII":          `{"a":"` + strings.Trim(strconv.QuoteToASCII(awkward), `"`) + `"}`,
		"Go":                     fmt.Sprintf("%q", awkward),
		"Go in JSON":             asJSON(t, fmt.Sprintf("%q", awkward)),
		"a query":                "GET /x?a=" + url.QueryEscape(awkward) + "&b=1",
		"a path":                 "GET /" + url.PathEscape(awkward) + "/x",
		"userinfo":               (&url.URL{Scheme: "http", User: url.UserPassword("me", awkward), Host: "h"}).String(),
		"a query in lower case":  strings.ToLower(url.QueryEscape(strings.ToLower(awkward))) + url.QueryEscape(awkward),
		"a query in JSON":        asJSON(t, "x="+url.QueryEscape(awkward)),
		"a page":                 "<td>" + html.EscapeString(awkward) + "</td>",
		"a page with JSON":       "<script>" + html.EscapeString(asJSON(t, awkward)) + "</script>",
		"hex":                    hex.EncodeToString([]byte("x" + awkward)),
		"hex in capitals":        strings.ToUpper(hex.EncodeToString([]byte(awkward))),
		"base64":                 base64.StdEncoding.EncodeToString([]byte(awkward)),
		"base64 for URLs":        base64.RawURLEncoding.EncodeToString([]byte("??>" + awkward)),
		"a header":               "Authorization: Basic " + basic("k"),
		"a header, one further":  "Authorization: Basic " + basic("ke"),
		"a header, two further":  "Authorization: Basic " + basic("key"),
		"a header in a query":    url.QueryEscape("Basic " + basic("ke")),
		"gzip":                   zipped(t, "many\nlines\n"+awkward),
		"gzip in something":      "HTTP/1.1 200 OK\r\n\r\n" + zipped(t, asJSON(t, awkward)) + "and so on",
		"gzip in gzip":           zipped(t, "x"+zipped(t, awkward)),
		"the second gzip":        zipped(t, "x") + zipped(t, awkward),
		"gzip without its end":   cutOff(zipped(t, awkward+strings.Repeat("y", 100))),
		"between two pieces":     strings.Repeat("x", 4<<20-10) + awkward,
		"between two pieces too": strings.Repeat("x\n", 2<<20-5) + asJSON(t, awkward),
		"far behind":             strings.Repeat("x\n", 6<<20) + awkward,
	}
	for name, content := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "file"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			hits, err := secrets.Search(dir, []string{"another-secret", awkward})
			if err != nil || len(hits) != 1 {
				t.Fatalf("%d hits, %v: %v", len(hits), err, hits)
			}
			hit := hits[0]
			if hit.File != "file" || hit.Line < 1 || hit.Secret != 1 || hit.Form == "" || strings.Contains(hit.String(), "s3cr") {
				t.Errorf("%+v", hit)
			}
		})
	}
}

func TestHits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a/log":                       "one\ntwo first-secret and second-secret\nthree\n{\"four\":\"first-\\u0073ecret\"}\n",
		"a/name-of-first-secret":      "nothing",
		"b/" + strings.Repeat("x", 8): strings.Repeat("second-secret\n", 100),
		"near":                        "first-secre second_secret FIRST-SECRET Zmlyc3Qtc2VjcmU= %66irst-secre \x1f\x8b\x08 first-\nsecret",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A link's own name counts, and what it leads to is in its own place.
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("first-secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	hits, err := secrets.Search(dir, []string{"first-secret", "second-secret"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, hit := range hits {
		got = append(got, fmt.Sprintf("%s:%d %d %s %s", hit.File, hit.Line, hit.Secret, hit.Form, hit.Text))
	}
	want := []string{
		"a/log:2 0 as it is two [secret] and [secret]",
		"a/log:2 1 as it is two [secret] and [secret]",
		`a/log:4 0 escaped {"four":"[secret]"}`,
		"a/name-of-first-secret:0 0 its name a/name-of-[secret]",
	}
	for i := range 10 {
		want = append(want, fmt.Sprintf("b/xxxxxxxx:%d 1 as it is [secret]", i+1))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestSearchThatCannotBeMade(t *testing.T) {
	t.Parallel()
	if _, err := secrets.Search(t.TempDir(), []string{"long-enough", "short"}); err == nil || !strings.Contains(err.Error(), "secret 1 has 5 bytes") {
		t.Errorf("a short secret: %v", err)
	}
	if _, err := secrets.Search(filepath.Join(t.TempDir(), "missing"), []string{"long-enough"}); err == nil {
		t.Error("a missing directory was searched")
	}
}
