package definition

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A node is where its value stands in the text: cutting it out gives the value.
func TestTreeIsTheText(t *testing.T) {
	t.Parallel()
	texts := []string{
		`{}`, ` [ ] `, "\n{\"a\" :\t[1 ,2.50,-3e+7, {\"b\": null}, [[]], \"x,:]}\\\"\"],\"a\": true, \"\": \"\\u00e9é\" }\r\n",
		`[[[{"a":[{"b":[]}]}]],"",0]`, `"text"`, `17`, `null`,
	}
	for _, pattern := range []string{"../../taskdefs/*.json", "../../workflows/*.json"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
	}
	for _, text := range texts {
		root, err := parseTree([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		whole, err := decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var walk func(n *node, want any)
		walk = func(n *node, want any) {
			got, err := decode([]byte(text[n.start:n.end]))
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%q of %q: %v, (-want +got):\n%s", text[n.start:n.end], text, err, diff)
			}
			object, _ := want.(map[string]any)
			for _, m := range n.members {
				if text[m.start] != '"' {
					t.Errorf("the name %q of %q does not begin at %d", m.name, text, m.start)
				}
				// Of a name that stands there twice the last one counts.
				if n.member(m.name) == m.value {
					walk(m.value, object[m.name])
				}
			}
			list, _ := want.([]any)
			if len(list) != len(n.elements) {
				t.Errorf("%q has %d elements, want %d", text[n.start:n.end], len(n.elements), len(list))
				return
			}
			for i, element := range n.elements {
				walk(element, list[i])
			}
		}
		walk(root, whole)
	}
}
