package credential_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strings"
	"testing"

	"perago/pkg/credential"
)

// Whatever a server does to a text before it repeats it, nothing of it is left once
// the forms are taken out.
func TestForms(t *testing.T) {
	t.Parallel()
	const text = `s"e&c<r>e't\ +/%41=ö`
	asJSON := func(value string) string {
		quoted, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return string(quoted)
	}
	body := asJSON(text)
	for name, said := range map[string]string{
		"as it is": text, "JSON": body, "Go": fmt.Sprintf("%q", text), "ASCII": fmt.Sprintf("%+q", text), "a query": url.QueryEscape(text), "a path": url.PathEscape(text),
		"a page": html.EscapeString(text), "another page": strings.NewReplacer("&#34;", "&quot;", "&#39;", "&#x27;").Replace(html.EscapeString(text)),
		"JSON in JSON": asJSON(body), "JSON in Go": fmt.Sprintf("%q", body), "JSON in a page": html.EscapeString(body), "JSON in a query": url.QueryEscape(body), "a query in JSON": asJSON(url.QueryEscape(text)),
		"a query in a query": url.QueryEscape(url.QueryEscape(text)), "a page in JSON": asJSON(html.EscapeString(text)), "all at once": text + body + url.QueryEscape(text) + html.EscapeString(text),
	} {
		left := said
		for _, form := range credential.Forms(text) {
			left = strings.ReplaceAll(left, form, "")
		}
		if strings.ContainsAny(left, "secrt") {
			t.Errorf("%s: of %s there is left %s", name, said, left)
		}
	}
	forms := credential.Forms(text)
	if !slices.IsSortedFunc(forms, func(a, b string) int { return len(b) - len(a) }) || !slices.Contains(forms, text) {
		t.Errorf("%q", forms)
	}
	if plain := credential.Forms("plain-text"); len(plain) != 1 || len(credential.Forms("")) != 0 {
		t.Errorf("%q, %q", plain, credential.Forms(""))
	}
}
