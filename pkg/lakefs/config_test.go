package lakefs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sethvargo/go-envconfig"
)

func TestConfigFromTheEnvironment(t *testing.T) {
	t.Parallel()
	var cfg struct{ LakeFS Config }
	err := envconfig.ProcessWith(t.Context(), &envconfig.Config{Target: &cfg, Lookuper: envconfig.MapLookuper(map[string]string{
		"LAKECTL_SERVER_ENDPOINT_URL":           "http://lakefs.test/api/v1",
		"LAKECTL_CREDENTIALS_ACCESS_KEY_ID":     testKey,
		"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": testSecret,
	})})
	if err != nil {
		t.Fatal(err)
	}
	got := []string{cfg.LakeFS.Endpoint, cfg.LakeFS.AccessKeyID, cfg.LakeFS.SecretAccessKey.Reveal()}
	if diff := cmp.Diff([]string{"http://lakefs.test/api/v1", testKey, testSecret}, got); diff != "" {
		t.Error(diff)
	}
	if faults := cfg.LakeFS.Validate(); len(faults) != 0 {
		t.Errorf("%v", faults)
	}
}

// Every fault at once, the variable named, no value repeated.
func TestValidate(t *testing.T) {
	t.Parallel()
	const url, key, secret = "LAKECTL_SERVER_ENDPOINT_URL", "LAKECTL_CREDENTIALS_ACCESS_KEY_ID", "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
	good := testConfig()
	with := func(change func(*Config)) Config {
		cfg := good
		change(&cfg)
		return cfg
	}
	endpoint := func(text string) Config { return with(func(c *Config) { c.Endpoint = text }) }
	for name, c := range map[string]struct {
		cfg    Config
		faults []string
	}{
		"good":         {good, nil},
		"nothing":      {Config{}, []string{url + " is not set", key + " is not set", secret + " is not set"}},
		"spaces":       {Config{Endpoint: " ", AccessKeyID: "\t", SecretAccessKey: NewSecret("\n")}, []string{url + " is not set", key + " is not set", secret + " is not set"}},
		"placeholders": {Config{Endpoint: "replace-me", AccessKeyID: "replace-me", SecretAccessKey: NewSecret("replace-me")}, []string{url + " still has the value replace-me", key + " still has the value replace-me", secret + " still has the value replace-me"}},
		"no scheme":    {endpoint("canary.test:8000"), []string{url + " does not begin with http"}},
		"no URL":       {endpoint("http://canary test"), []string{url + " is not a URL"}},
		"bad escape":   {endpoint("http://canary/%zz"), []string{url + " is not a URL"}},
		"other scheme": {endpoint("ftp://canary.test"), []string{url + " does not begin with http"}},
		"no host":      {endpoint("http:///canary"), []string{url + " names no host"}},
		"password":     {endpoint("http://user:canary@lakefs.test"), []string{url + " holds credentials"}},
		"query":        {endpoint("http://lakefs.test/?token=canary"), []string{url + " has a query"}},
		"fragment":     {endpoint("http://lakefs.test/#canary"), []string{url + " has a query"}},
		"two of them": {with(func(c *Config) { c.Endpoint, c.AccessKeyID = "canary", "" }), []string{
			url + " does not begin with http", key + " is not set"}},
	} {
		t.Run(name, func(t *testing.T) {
			faults := c.cfg.Validate()
			if len(faults) != len(c.faults) {
				t.Fatalf("%v", faults)
			}
			for i, fault := range faults {
				if !strings.HasPrefix(fault.Error(), c.faults[i]) {
					t.Errorf("%q, want %q", fault, c.faults[i])
				}
				if text := fault.Error(); strings.Contains(text, "canary") || strings.Contains(text, testSecret) || strings.Contains(text, testKey) {
					t.Errorf("%q repeats a value", text)
				}
			}
			if _, err := New(c.cfg, nil); (err == nil) != (len(faults) == 0) {
				t.Errorf("New: %v", err)
			}
		})
	}
}

func TestEndpointForms(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]string{
		"http://lakefs.test":                      "http://lakefs.test/api/v1/user",
		"http://lakefs.test/":                     "http://lakefs.test/api/v1/user",
		" http://lakefs.test// ":                  "http://lakefs.test/api/v1/user",
		"http://lakefs.test:8000/api/v1":          "http://lakefs.test:8000/api/v1/user",
		"https://lakefs.test/api/v1/":             "https://lakefs.test/api/v1/user",
		"https://lakefs.test/behind/proxy":        "https://lakefs.test/behind/proxy/api/v1/user",
		"https://lakefs.test/behind/proxy/api/v1": "https://lakefs.test/behind/proxy/api/v1/user",
		"http://[::1]:8000":                       "http://[::1]:8000/api/v1/user",
	} {
		cfg := testConfig()
		cfg.Endpoint = endpoint
		client, err := New(cfg, roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.URL.String() != want {
				t.Errorf("%q: sent to %s, want %s", endpoint, r.URL, want)
			}
			return reply(200, `{"user":{"id":"me"}}`), nil
		}))
		if err != nil {
			t.Fatalf("%q: %v", endpoint, err)
		}
		if err := client.Ping(t.Context()); err != nil {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
}

func TestSecretDoesNotPrint(t *testing.T) {
	t.Parallel()
	const canary = "canary-canary"
	secret := NewSecret(canary)
	cfg := Config{Endpoint: "http://x", AccessKeyID: "k", SecretAccessKey: secret}
	hidden := struct{ cfg Config }{cfg}
	var out bytes.Buffer
	for _, verb := range "vsqxXdtTpgeoOUcb" {
		for _, flag := range []string{"", "+", "#", " ", "-20", "08.3"} {
			for _, value := range []any{secret, &secret, cfg, &cfg, hidden, &hidden, []Secret{secret}, map[string]Secret{"a": secret}} {
				fmt.Fprintf(&out, "%"+flag+string(verb)+"\n", value)
			}
		}
	}
	fmt.Fprintln(&out, secret, cfg, hidden, secret.String(), secret.GoString())
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
	if !strings.Contains(out.String(), redacted) {
		t.Errorf("nothing stands in its place")
	}
	if secret.Reveal() != canary || (Secret{}).Reveal() != "" {
		t.Errorf("it does not reveal")
	}
}
