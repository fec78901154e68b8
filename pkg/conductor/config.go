package conductor

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"perago/pkg/credential"
)

// Config says where Conductor is and how to be let in.
type Config struct {
	// ServerURL is the server's address, http or https, with or without /api and
	// a final slash.
	ServerURL string `env:"CONDUCTOR_SERVER_URL, required" desc:"Address of the Conductor server, with or without /api"`
	// AuthKey and AuthSecret are an application's access key, for servers that
	// ask for one. Both or neither.
	AuthKey    credential.Value `env:"CONDUCTOR_AUTH_KEY" desc:"Key id of the application access key; empty for a server without authentication" secret:"false"`
	AuthSecret credential.Value `env:"CONDUCTOR_AUTH_SECRET" desc:"Secret of the application access key"`
	// Renewed is told of each access key that is read from its files after a
	// refusal; may be nil.
	Renewed func(credential.Shown) `json:"-"`
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
	for _, half := range []struct {
		variable, other string
		value, with     credential.Value
	}{
		{"CONDUCTOR_AUTH_KEY", "CONDUCTOR_AUTH_SECRET", c.AuthKey, c.AuthSecret},
		{"CONDUCTOR_AUTH_SECRET", "CONDUCTOR_AUTH_KEY", c.AuthSecret, c.AuthKey},
	} {
		switch err := half.value.Check(); {
		case half.value.IsZero() && !half.with.IsZero():
			fault(half.variable, "is not set, but %s is; set both or neither", half.other)
		case !half.value.IsZero() && err != nil:
			fault(half.variable, "%v", err)
		}
	}
	return faults
}

func checkServerURL(raw string) error {
	switch {
	case raw == "":
		return errors.New("is not set; it is the address of the Conductor server, such as http://localhost:8080/api")
	case strings.Contains(strings.ToLower(raw), credential.Placeholder):
		return errors.New("still holds the placeholder " + credential.Placeholder)
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
	case address.RawQuery != "" || address.ForceQuery || strings.Contains(raw, "#"):
		return errors.New("must end with the path: no ? and no #")
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
