package lakefs

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
)

// The variables a Config is read from: lakectl's own, so that one environment
// serves both.
const (
	endpointVariable = "LAKECTL_SERVER_ENDPOINT_URL"
	keyVariable      = "LAKECTL_CREDENTIALS_ACCESS_KEY_ID"
	secretVariable   = "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
)

// placeholder stands in shipped configuration where a person must write a value.
const placeholder = "replace-me"

// apiPath is where lakeFS serves its API, below the endpoint.
const apiPath = "/api/v1"

// Config says where lakeFS is and who asks. Its tags are those of go-envconfig.
type Config struct {
	Endpoint        string `env:"LAKECTL_SERVER_ENDPOINT_URL, required" desc:"URL of the lakeFS server, with or without /api/v1"`
	AccessKeyID     string `env:"LAKECTL_CREDENTIALS_ACCESS_KEY_ID, required" desc:"lakeFS access key id"`
	SecretAccessKey Secret `env:"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY, required" desc:"lakeFS secret access key"`
}

// Validate lists every fault at once, each naming its variable. It repeats no
// value: an endpoint may hold a password.
func (c Config) Validate() []error {
	var faults []error
	fault := func(variable, format string, arguments ...any) {
		faults = append(faults, fmt.Errorf("%s "+format, append([]any{variable}, arguments...)...))
	}
	for _, field := range []struct{ variable, value string }{
		{endpointVariable, c.Endpoint},
		{keyVariable, c.AccessKeyID},
		{secretVariable, c.SecretAccessKey.Reveal()},
	} {
		switch strings.TrimSpace(field.value) {
		case "":
			fault(field.variable, "is not set")
		case placeholder:
			fault(field.variable, "still has the value %s", placeholder)
		default:
			if field.variable == endpointVariable {
				if _, err := c.apiURL(); err != nil {
					fault(field.variable, "%w", err)
				}
			}
		}
	}
	return faults
}

// apiURL is the base of every request, without a final slash. Its errors hold
// no part of the value.
func (c Config) apiURL() (string, error) {
	parsed, err := url.Parse(strings.TrimSpace(c.Endpoint))
	switch {
	case err != nil:
		// The text of url.Parse quotes the whole value.
		return "", errors.New("is not a URL (write it as http://host:port)")
	case parsed.Scheme != "http" && parsed.Scheme != "https":
		return "", errors.New("does not begin with http:// or https://")
	case parsed.Hostname() == "":
		return "", errors.New("names no host")
	case parsed.User != nil:
		return "", fmt.Errorf("holds credentials; put them into %s and %s", keyVariable, secretVariable)
	case parsed.RawQuery != "" || parsed.ForceQuery || parsed.Fragment != "":
		return "", errors.New("has a query or a fragment; leave only scheme, host and path")
	}
	path := strings.TrimRight(parsed.Path, "/")
	if !strings.HasSuffix(path, apiPath) {
		path += apiPath
	}
	parsed.Path, parsed.RawPath = path, ""
	return parsed.String(), nil
}

// redacted is what stands in the place of a secret.
const redacted = "[redacted]"

// Secret is a text that does not print: not with any verb of fmt, not in a log,
// not in JSON, not as a field of something else that is printed.
type Secret struct {
	// A pointer, because fmt prints the plain value of an unexported field and
	// asks no method of it.
	value *string
}

// NewSecret hides a text.
func NewSecret(text string) Secret { return Secret{value: &text} }

// Reveal is the hidden text; "" for the zero Secret.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// UnmarshalText takes the text, which is how go-envconfig fills the field.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = NewSecret(string(text))
	return nil
}

func (s Secret) String() string               { return redacted }
func (s Secret) GoString() string             { return redacted }
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
