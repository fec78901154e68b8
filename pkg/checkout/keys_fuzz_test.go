package checkout

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"perago/pkg/projection"
)

// FuzzKeys: keys that are accepted, in the order in which lakeFS lists them, are all
// files below one directory at once, each at its own path.
func FuzzKeys(f *testing.F) {
	f.Add("a\na/b")
	f.Add("a\na.b\na/b")
	f.Add("a/b\na/b/c\nd")
	f.Add("../x\n/abs\na//b\n./x\nd/\n\\")
	f.Add("a\x00b\n\xff\n" + strings.Repeat("n", 256))
	f.Add("a\na0\na/\nb/c/d\nb/c")
	f.Fuzz(func(t *testing.T, text string) {
		keys := strings.Split(text, "\n")
		slices.Sort(keys)
		keys = slices.Compact(keys)
		var checker projection.Keys
		files, directories := map[string]bool{}, map[string]bool{}
		for _, key := range keys {
			err := checker.Check(key)
			fits := filepath.IsLocal(key) && path.Clean(key) == key && key != "." && !strings.Contains(key, "\x00")
			for above := path.Dir(key); fits && above != "."; above = path.Dir(above) {
				fits = !files[above]
			}
			if err == nil && (!fits || directories[key]) {
				t.Fatalf("%q is accepted beside %q", key, keys)
			}
			if err != nil {
				if len(err.Error()) > 2000 {
					t.Fatalf("%d bytes: %.100q", len(err.Error()), err)
				}
				return // the first one that is refused ends the checkout
			}
			files[key] = true
			for above := path.Dir(key); above != "."; above = path.Dir(above) {
				directories[above] = true
			}
		}
	})
}
