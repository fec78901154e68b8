package credential_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"perago/pkg/credential"
)

// FuzzFile: a file gives a sound value, which nothing prints, or an error that names
// its variable and holds nothing of the file.
func FuzzFile(f *testing.F) {
	for _, content := range []string{"secret-of-the-test\n", "\r\n", "", " padded", "replace-me", "a\nb", "\x00", "\xff", strings.Repeat("x", 64<<10), strings.Repeat("x", 64<<10+1)} {
		f.Add([]byte(content))
	}
	// Each worker is a process with a folder of its own.
	file := filepath.Join(f.TempDir(), "key")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		value, err := credential.Read("KEY_FILE", file)
		shown := string(content)
		if err != nil {
			text := err.Error()
			if !strings.HasPrefix(text, "KEY_FILE ") || !value.IsZero() || len(shown) >= 24 && strings.Contains(text, shown) || strings.ContainsFunc(text, unicode.IsControl) {
				t.Fatalf("%q, %q", text, value.Reveal())
			}
			return
		}
		revealed := value.Reveal()
		if value.Check() != nil || revealed == "" || strings.TrimRight(shown, "\r\n") != revealed {
			t.Fatalf("%q is read as %q", content, revealed)
		}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			if printed := fmt.Sprintf(verb, value); strings.Trim(printed, `"`) != credential.Redacted {
				t.Fatalf("%s prints %q", verb, printed)
			}
		}
		if raw, err := json.Marshal(value); err != nil || string(raw) != `"`+credential.Redacted+`"` {
			t.Fatalf("%q, %v", raw, err)
		}
	})
}
