package txn

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzReason: whatever an error holds, a reason is one line within its limit, with
// nothing in it that a database refuses, and a secret that stood in it is gone.
func FuzzReason(f *testing.F) {
	f.Add("merge main: refused", "s3cr3t-of-the-test", 500)
	f.Add("a s3cr3t-of-the-test\nin\ttwo lines", "s3cr3t-of-the-test", 20)
	f.Add("\x00\x1b[31m\xff\u2028", "", 1)
	f.Add(strings.Repeat("я", 600), "яя", 500)
	f.Fuzz(func(t *testing.T, text, secret string, limit int) {
		reason := Reason(errors.New(text), limit, secret)
		if !utf8.ValidString(reason) || limit > 0 && utf8.RuneCountInString(reason) > limit {
			t.Fatalf("%d characters of %d: %q", utf8.RuneCountInString(reason), limit, reason)
		}
		if i := strings.IndexFunc(reason, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) && r != ' ' }); i >= 0 {
			t.Fatalf("%q in %q", reason[i:], reason)
		}
		if plain := strings.Trim(secret, "0123456789abcdefghijklmnopqrstuvwxyz-") == ""; len(secret) >= 12 && plain && strings.Contains(reason, secret) {
			t.Fatalf("%q in %q", secret, reason)
		}
	})
}
