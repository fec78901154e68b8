package documents

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Conductor's own clients append the path of a call to CONDUCTOR_SERVER_URL, so it ends
// with /api wherever somebody copies it from, and the documents' commands append no
// second one.
func TestConductorAddress_EndsWithAPI(t *testing.T) {
	t.Parallel()
	texts := map[string]string{}
	for _, name := range documents(t) {
		texts[name] = read(t, name)
	}
	err := filepath.WalkDir(filepath.Join(root, "deploy"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		texts[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`(?:CONDUCTOR_SERVER_URL=|conductor:\n  url: )(https?://\S+)`)
	called := regexp.MustCompile(`\$\{?CONDUCTOR_SERVER_URL\}?(/[\w$?/=-]*)`)
	addresses, calls := 0, 0
	for name, text := range texts {
		for _, found := range address.FindAllStringSubmatch(text, -1) {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			addresses++
			if !strings.HasSuffix(found[1], "/api") {
				t.Errorf("%s gives %s as the address, which Conductor's own clients cannot use; it has to end with /api", name, found[1])
			}
		}
		for _, found := range called.FindAllStringSubmatch(text, -1) {
			calls++
			if strings.HasPrefix(found[1], "/api/") || found[1] == "/api" {
				t.Errorf("%s calls %s, but CONDUCTOR_SERVER_URL ends with /api already", name, found[0])
			}
		}
	}
	if addresses == 0 || calls == 0 {
		t.Errorf("found %d addresses and %d calls: nothing was tested", addresses, calls)
	}
}
