package lakefs

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"perago/pkg/credential"
)

// The variables a Config is read from: lakectl's own, so that one environment
// serves both.
const (
	endpointVariable = "LAKECTL_SERVER_ENDPOINT_URL"
	keyVariable      = "LAKECTL_CREDENTIALS_ACCESS_KEY_ID"
	secretVariable   = "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
)

// apiPath is where lakeFS serves its API, below the endpoint.
const apiPath = "/api/v1"

// Config says where lakeFS is and who asks. Its tags are those of go-envconfig.
type Config struct {
	Endpoint        string           `env:"LAKECTL_SERVER_ENDPOINT_URL, required" desc:"URL of the lakeFS server, with or without /api/v1"`
	AccessKeyID     credential.Value `env:"LAKECTL_CREDENTIALS_ACCESS_KEY_ID, required" desc:"lakeFS access key id" secret:"false"`
	SecretAccessKey credential.Value `env:"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY, required" desc:"lakeFS secret access key"`
	// Renewed is told of each key that is read from its files after a refusal; may
	// be nil.
	Renewed func(credential.Shown) `json:"-"`
	// LargestPut and LargestUpload are the limits of an S3 store in bytes: for one PUT
	// request, and for one upload through lakeFS. 0 is the store's own limit. Tests
	// lower them.
	LargestPut    int64 `json:"-"`
	LargestUpload int64 `json:"-"`
}

// Validate lists every fault at once, each naming its variable. It repeats no
// value: an endpoint may hold a password.
func (c Config) Validate() []error {
	var faults []error
	fault := func(variable, format string, arguments ...any) {
		faults = append(faults, fmt.Errorf("%s "+format, append([]any{variable}, arguments...)...))
	}
	switch strings.TrimSpace(c.Endpoint) {
	case "":
		fault(endpointVariable, "is not set")
	case credential.Placeholder:
		fault(endpointVariable, "still holds the placeholder %s", credential.Placeholder)
	default:
		if _, err := c.apiURL(); err != nil {
			fault(endpointVariable, "%w", err)
		}
	}
	if err := c.AccessKeyID.Check(); err != nil {
		fault(keyVariable, "%w", err)
	}
	if err := c.SecretAccessKey.Check(); err != nil {
		fault(secretVariable, "%w", err)
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
