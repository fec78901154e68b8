package lakefs

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sethvargo/go-envconfig"

	"perago/pkg/credential"
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
	got := []string{cfg.LakeFS.Endpoint, cfg.LakeFS.AccessKeyID.Reveal(), cfg.LakeFS.SecretAccessKey.Reveal()}
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
		"spaces":       {Config{Endpoint: " ", AccessKeyID: credential.New("\t"), SecretAccessKey: credential.New("\n")}, []string{url + " is not set", key + " is not set", secret + " is not set"}},
		"placeholders": {Config{Endpoint: "replace-me", AccessKeyID: credential.New("replace-me"), SecretAccessKey: credential.New("replace-me")}, []string{url + " still holds the placeholder replace-me", key + " still holds the placeholder replace-me", secret + " still holds the placeholder replace-me"}},
		"no scheme":    {endpoint("canary.test:8000"), []string{url + " does not begin with http"}},
		"no URL":       {endpoint("http://canary test"), []string{url + " is not a URL"}},
		"bad escape":   {endpoint("http://canary/%zz"), []string{url + " is not a URL"}},
		"other scheme": {endpoint("ftp://canary.test"), []string{url + " does not begin with http"}},
		"no host":      {endpoint("http:///canary"), []string{url + " names no host"}},
		"password":     {endpoint("http://user:canary@lakefs.test"), []string{url + " holds credentials"}},
		"query":        {endpoint("http://lakefs.test/?token=canary"), []string{url + " has a query"}},
		"fragment":     {endpoint("http://lakefs.test/#canary"), []string{url + " has a query"}},
		"two of them": {with(func(c *Config) { c.Endpoint, c.AccessKeyID = "canary", credential.Value{} }), []string{
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
