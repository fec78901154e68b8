package credential

import (
	"bytes"
	"cmp"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Forms are the ways in which a text that was sent to a server comes back in what it
// says: as it is, and as JSON, URLs, HTML and programs write it, each of them also
// inside another. The longest come first, so that taking out one leaves no remainder
// of another. An empty text has none.
func Forms(text string) []string {
	var all []string
	for _, once := range spellings(text) {
		for _, twice := range spellings(once) {
			if twice != "" && !slices.Contains(all, twice) {
				all = append(all, twice)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return all
}

// quotes is another way of writing HTML's.
var quotes = strings.NewReplacer("&#34;", "&quot;", "&#39;", "&#x27;")

func spellings(text string) []string {
	quoted, _ := json.Marshal(text)
	// The same with <, > and & as they are.
	var plain bytes.Buffer
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a text is JSON
	all := []string{text, url.QueryEscape(text), url.PathEscape(text), html.EscapeString(text), quotes.Replace(html.EscapeString(text))}
	for _, one := range []string{string(quoted), strings.TrimSuffix(plain.String(), "\n"), strconv.Quote(text), strconv.QuoteToASCII(text)} {
		all = append(all, one[1:len(one)-1])
	}
	return all
}
