package credential_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sethvargo/go-envconfig"

	"perago/pkg/credential"
)

func TestValueDoesNotPrint(t *testing.T) {
	t.Parallel()
	const canary = "canary-canary"
	secret := credential.New(canary)
	type config struct {
		Key, Secret credential.Value
	}
	cfg := config{credential.New("k"), secret}
	hidden := struct{ cfg config }{cfg}
	var out bytes.Buffer
	for _, verb := range "vsqxXdtTpgeoOUcb" {
		for _, flag := range []string{"", "+", "#", " ", "-20", "08.3"} {
			for _, value := range []any{secret, &secret, cfg, &cfg, hidden, &hidden, []credential.Value{secret}, map[string]credential.Value{"a": secret}} {
				fmt.Fprintf(&out, "%"+flag+string(verb)+"\n", value)
			}
		}
	}
	fmt.Fprintln(&out, secret, cfg, hidden, secret.String())
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("event", "secret", secret, "config", cfg, "hidden", hidden, "pointer", &cfg)
	}
	encoded, err := json.Marshal(map[string]any{"secret": secret, "config": cfg})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(encoded)
	if strings.Contains(out.String(), canary) || strings.Contains(out.String(), fmt.Sprintf("%x", canary)) {
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, canary) || strings.Contains(line, fmt.Sprintf("%x", canary)) {
				t.Errorf("%q", line)
			}
		}
	}
	if !strings.Contains(out.String(), credential.Redacted) {
		t.Errorf("nothing stands in its place")
	}
	if secret.Reveal() != canary || (credential.Value{}).Reveal() != "" {
		t.Errorf("it does not reveal")
	}
	// What a handler that resolves values itself gets to see.
	if got := slog.AnyValue(secret).Resolve(); got.Kind() != slog.KindString || got.String() != credential.Redacted {
		t.Errorf("slog resolves it to %v", got)
	}
	if got := fmt.Sprint(credential.Value{}); got != "" {
		t.Errorf("no value prints as %q", got)
	}
}

func TestValueFromTheEnvironment(t *testing.T) {
	t.Parallel()
	var config struct {
		Secret credential.Value `env:"SECRET, required"`
	}
	if err := envconfig.ProcessWith(t.Context(), &envconfig.Config{Target: &config, Lookuper: envconfig.MapLookuper(map[string]string{"SECRET": "text"})}); err != nil {
		t.Fatal(err)
	}
	if got := config.Secret.Reveal(); got != "text" {
		t.Errorf("got %q", got)
	}
}

// TestRead: what a file may hold, and that no error repeats it.
func TestRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ content, value, fault string }{
		"plain":                    {"canary", "canary", ""},
		"a newline at its end":     {"canary\n", "canary", ""},
		"an editor's end":          {"canary\r\n", "canary", ""},
		"several newlines":         {"canary\n\n", "canary", ""},
		"white space in it":        {"canary canary\n", "canary canary", ""},
		"empty":                    {"", "", "X_FILE names an empty file"},
		"a newline":                {"\n", "", "X_FILE names an empty file"},
		"white space":              {" \t\n", "", "X_FILE names a file whose content is not set"},
		"white space at its end":   {"canary \n", "", "X_FILE names a file whose content has white space at its beginning or end"},
		"a newline at its begin":   {"\ncanary", "", "X_FILE names a file whose content has white space at its beginning or end"},
		"the placeholder":          {"Replace-Me", "", "X_FILE names a file whose content still holds the placeholder replace-me"},
		"something else than that": {strings.Repeat("canary", 20000), "", "X_FILE names a file of more than 65536 bytes, which is no key and no secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			value, err := credential.Read("X_FILE", path)
			if value.Reveal() != c.value {
				t.Errorf("read %q", value.Reveal())
			}
			if (err != nil || c.fault != "") && fmt.Sprint(err) != c.fault {
				t.Errorf("%v, want %s", err, c.fault)
			}
		})
	}
	if _, err := credential.Read("X_FILE", filepath.Join(t.TempDir(), "none")); err == nil || !strings.HasPrefix(err.Error(), "X_FILE cannot be read: open ") {
		t.Errorf("no file: %v", err)
	}
	if _, err := credential.Read("X_FILE", t.TempDir()); err == nil || !strings.HasPrefix(err.Error(), "X_FILE cannot be read: ") {
		t.Errorf("a folder: %v", err)
	}
}
