package conductor_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/conductor"
	"perago/pkg/credential"
)

func TestSecretDoesNotPrint(t *testing.T) {
	t.Parallel()
	cfg := conductor.Config{ServerURL: address, AuthKey: credential.New(key), AuthSecret: credential.New(secret)}
	client := newClientOn(t, cfg, http.DefaultTransport)
	var texts []string
	for _, value := range []any{cfg.AuthSecret, &cfg.AuthSecret, cfg, &cfg, client, *client, []any{cfg}, map[string]any{"cfg": cfg}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%08.3f"} {
			texts = append(texts, fmt.Sprintf(verb, value))
		}
	}
	raw, err := json.Marshal(map[string]any{"cfg": cfg, "secret": cfg.AuthSecret})
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&logged, nil), slog.NewTextHandler(&logged, nil)} {
		slog.New(handler).Info("test", "secret", cfg.AuthSecret, "cfg", cfg, "pointer", &cfg)
	}
	texts = append(texts, string(raw), logged.String(), fmt.Sprint(cfg.Validate()))
	for _, text := range texts {
		if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) || strings.Contains(text, fmt.Sprintf("%X", secret)) {
			t.Errorf("the secret is in %q", text)
		}
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		cfg  conductor.Config
		// want is a piece of each fault, in order.
		want []string
	}{
		{"address only", conductor.Config{ServerURL: "http://localhost:8080"}, nil},
		{"with the API's path", conductor.Config{ServerURL: "https://conductor.example/base/api/"}, nil},
		{"with credentials", conductor.Config{ServerURL: address, AuthKey: credential.New(key), AuthSecret: credential.New(secret)}, nil},
		{"nothing", conductor.Config{}, []string{"CONDUCTOR_SERVER_URL is not set"}},
		{"placeholder address", conductor.Config{ServerURL: "http://replace-me:8080"}, []string{"CONDUCTOR_SERVER_URL still holds the placeholder"}},
		{"no scheme", conductor.Config{ServerURL: "localhost:8080"}, []string{"CONDUCTOR_SERVER_URL must begin with http"}},
		{"other scheme", conductor.Config{ServerURL: "ftp://localhost"}, []string{"CONDUCTOR_SERVER_URL must begin with http"}},
		{"no host", conductor.Config{ServerURL: "http:///api"}, []string{"CONDUCTOR_SERVER_URL names no host"}},
		{"port only", conductor.Config{ServerURL: "http://:8080"}, []string{"CONDUCTOR_SERVER_URL names no host"}},
		{"not a URL", conductor.Config{ServerURL: "http://" + secret + "\x7f"}, []string{"CONDUCTOR_SERVER_URL is not a valid URL"}},
		{"password in the address", conductor.Config{ServerURL: "http://user:" + secret + "@localhost"}, []string{"CONDUCTOR_SERVER_URL must not hold a user or password"}},
		{"query", conductor.Config{ServerURL: "http://localhost/api?x=1"}, []string{"CONDUCTOR_SERVER_URL must end with the path"}},
		{"key without secret", conductor.Config{ServerURL: address, AuthKey: credential.New(key)}, []string{"CONDUCTOR_AUTH_SECRET is not set"}},
		{"secret without key", conductor.Config{ServerURL: address, AuthSecret: credential.New(secret)}, []string{"CONDUCTOR_AUTH_KEY is not set"}},
		{"placeholder credentials", conductor.Config{ServerURL: address, AuthKey: credential.New("replace-me"), AuthSecret: credential.New("REPLACE-ME")},
			[]string{"CONDUCTOR_AUTH_KEY still holds", "CONDUCTOR_AUTH_SECRET still holds"}},
		{"white space", conductor.Config{ServerURL: address, AuthKey: credential.New(" " + key), AuthSecret: credential.New(secret + "\n")},
			[]string{"CONDUCTOR_AUTH_KEY has white space", "CONDUCTOR_AUTH_SECRET has white space"}},
		{"everything at once", conductor.Config{ServerURL: "replace-me", AuthSecret: credential.New("replace-me")},
			[]string{"CONDUCTOR_SERVER_URL still", "CONDUCTOR_AUTH_KEY is not set", "CONDUCTOR_AUTH_SECRET still"}},
	} {
		t.Run(strings.ReplaceAll(row.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			faults := row.cfg.Validate()
			if len(faults) != len(row.want) {
				t.Fatalf("got %d faults %v, want %d", len(faults), faults, len(row.want))
			}
			for i, fault := range faults {
				if !strings.Contains(fault.Error(), row.want[i]) {
					t.Errorf("fault %q does not hold %q", fault, row.want[i])
				}
				if strings.Contains(fault.Error(), secret) {
					t.Errorf("fault %q holds the secret", fault)
				}
			}
			_, err := conductor.New(row.cfg, http.DefaultTransport)
			if (err == nil) != (len(row.want) == 0) {
				t.Errorf("New: %v", err)
			}
			for _, fault := range faults {
				if !strings.Contains(err.Error(), fault.Error()) {
					t.Errorf("New's error %q leaves out %q", err, fault)
				}
			}
		})
	}
}

// TestServerURL: the address may be written with or without /api and a slash.
func TestServerURL(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]string{
		"http://h:1":           "http://h:1/api/tasks/queue/sizes",
		"http://h:1/":          "http://h:1/api/tasks/queue/sizes",
		"http://h:1/api":       "http://h:1/api/tasks/queue/sizes",
		"http://h:1/api/":      "http://h:1/api/tasks/queue/sizes",
		"http://h:1/base":      "http://h:1/base/api/tasks/queue/sizes",
		"http://h:1/base/api/": "http://h:1/base/api/tasks/queue/sizes",
	} {
		var asked []string
		stop := errors.New("seen")
		client := newClientOn(t, conductor.Config{ServerURL: written}, roundTripper(func(r *http.Request) (*http.Response, error) {
			asked = append(asked, "http://"+r.URL.Host+r.URL.Path)
			return nil, stop
		}))
		if err := client.Ping(t.Context()); !errors.Is(err, stop) {
			t.Errorf("got %v", err)
		}
		if diff := cmp.Diff([]string{want}, asked); diff != "" {
			t.Errorf("%s (-want +got):\n%s", written, diff)
		}
	}
}
