package conductor

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"
)

// redacted stands wherever a secret would have been printed.
const redacted = "[redacted]"

// placeholder is what the shipped example configuration holds where a person has
// to write a value.
const placeholder = "replace-me"

// Secret is a value that does not print: not with any fmt verb, not in JSON, not
// in a log. string(s) is the value.
type Secret string

// String is "[redacted]", or "" for no secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString is what %#v shows.
func (s Secret) GoString() string { return `"` + s.String() + `"` }

// Format answers every verb: without it %d, which is wrong for a string, would
// print the value in its complaint.
func (s Secret) Format(state fmt.State, verb rune) {
	if verb == 'v' && state.Flag('#') {
		_, _ = io.WriteString(state, s.GoString())
		return
	}
	_, _ = io.WriteString(state, s.String())
}

// LogValue is what slog writes.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is what encoding/json and its relatives write.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Config says where Conductor is and how to be let in.
type Config struct {
	// ServerURL is the server's address, http or https, with or without /api and
	// a final slash.
	ServerURL string `env:"CONDUCTOR_SERVER_URL, required" desc:"Address of the Conductor server, with or without /api"`
	// AuthKey and AuthSecret are an application's access key, for servers that
	// ask for one. Both or neither.
	AuthKey    string `env:"CONDUCTOR_AUTH_KEY" desc:"Key id of the application access key; empty for a server without authentication"`
	AuthSecret Secret `env:"CONDUCTOR_AUTH_SECRET" desc:"Secret of the application access key"`
	// AuthSecretFile is read for every new token, so that a rotated secret is
	// taken up after the first 401.
	AuthSecretFile string `env:"CONDUCTOR_AUTH_SECRET_FILE" desc:"File that holds the secret instead of CONDUCTOR_AUTH_SECRET; read again after a 401"`
}

// Validate reports every fault of the configuration at once. Each names the
// variable and what is wrong with it, and none holds a secret's value.
func (c Config) Validate() []error {
	var faults []error
	fault := func(variable, format string, arguments ...any) {
		faults = append(faults, fmt.Errorf("%s %s", variable, fmt.Sprintf(format, arguments...)))
	}
	if err := checkServerURL(c.ServerURL); err != nil {
		fault("CONDUCTOR_SERVER_URL", "%v", err)
	}
	secret := c.AuthSecret != "" || c.AuthSecretFile != ""
	switch {
	case c.AuthKey == "" && secret:
		fault("CONDUCTOR_AUTH_KEY", "is not set, but a secret is; set both or neither")
	case c.AuthKey != "" && !secret:
		fault("CONDUCTOR_AUTH_SECRET", "is not set, but CONDUCTOR_AUTH_KEY is; set both or neither")
	}
	if err := checkCredential(c.AuthKey); err != nil {
		fault("CONDUCTOR_AUTH_KEY", "%v", err)
	}
	if err := checkCredential(string(c.AuthSecret)); err != nil {
		fault("CONDUCTOR_AUTH_SECRET", "%v", err)
	}
	if c.AuthSecretFile != "" {
		if c.AuthSecret != "" {
			fault("CONDUCTOR_AUTH_SECRET_FILE", "is set and so is CONDUCTOR_AUTH_SECRET; set one of them")
		}
		if _, err := c.readSecret(); err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

// readSecret is the secret now: from its file when there is one.
func (c Config) readSecret() (string, error) {
	if c.AuthSecretFile == "" {
		return string(c.AuthSecret), nil
	}
	raw, err := os.ReadFile(c.AuthSecretFile)
	if err != nil {
		return "", fmt.Errorf("CONDUCTOR_AUTH_SECRET_FILE cannot be read: %w", err)
	}
	// Editors and `echo` end a file with a newline; it is no part of the secret.
	secret := strings.TrimRight(string(raw), "\r\n")
	if secret == "" {
		return "", errors.New("CONDUCTOR_AUTH_SECRET_FILE names an empty file")
	}
	if err := checkCredential(secret); err != nil {
		return "", fmt.Errorf("CONDUCTOR_AUTH_SECRET_FILE holds a value that %w", err)
	}
	return secret, nil
}

func checkServerURL(raw string) error {
	switch {
	case raw == "":
		return errors.New("is not set; it is the address of the Conductor server, such as http://localhost:8080")
	case strings.Contains(strings.ToLower(raw), placeholder):
		return errors.New("still holds the placeholder " + placeholder)
	}
	address, err := url.Parse(raw)
	if err != nil {
		// The parser's error quotes the address, which may hold a password.
		return errors.New("is not a valid URL")
	}
	switch {
	case address.Scheme != "http" && address.Scheme != "https":
		return errors.New("must begin with http:// or https://")
	case address.Host == "" || address.Hostname() == "":
		return errors.New("names no host")
	case address.User != nil:
		return errors.New("must not hold a user or password; use CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET")
	case address.RawQuery != "" || address.Fragment != "" || address.ForceQuery:
		return errors.New("must end with the path: no ? and no #")
	}
	return nil
}

func checkCredential(value string) error {
	switch {
	case strings.Contains(strings.ToLower(value), placeholder):
		return errors.New("still holds the placeholder " + placeholder)
	case strings.TrimSpace(value) != value:
		return errors.New("has white space at its beginning or end")
	}
	return nil
}

// baseURL is the address of the API without a final slash: people write the
// server's address, the API's address, and both with a slash.
func (c Config) baseURL() string {
	base := strings.TrimRight(c.ServerURL, "/")
	if !strings.HasSuffix(base, "/api") {
		base += "/api"
	}
	return base
}
