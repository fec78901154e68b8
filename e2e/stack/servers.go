package stack

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Names of the variables that carry the addresses of running servers from
// with-stack to the tests.
const (
	EnvConductorURL    = "PERAGO_TEST_CONDUCTOR_URL"
	EnvLakeFSURL       = "PERAGO_TEST_LAKEFS_URL"
	EnvAccessKeyID     = "PERAGO_TEST_LAKEFS_ACCESS_KEY_ID"
	EnvSecretAccessKey = "PERAGO_TEST_LAKEFS_SECRET_ACCESS_KEY"
	EnvImportDir       = "PERAGO_TEST_IMPORT_DIR"
	EnvBlocksDir       = "PERAGO_TEST_LAKEFS_BLOCKS_DIR"
)

// Servers are the addresses of both running servers and the keys to lakeFS.
// The URLs have no path: Conductor's API is below /api, lakeFS's below /api/v1.
type Servers struct {
	ConductorURL string
	// ConductorVersion is for example 3.15.0.
	ConductorVersion string
	LakeFSURL        string
	AccessKeyID      string
	SecretAccessKey  string
	// ImportDir is the one local folder that lakeFS may import from, as
	// local://<ImportDir>/...
	ImportDir string
	// BlocksDir is where lakeFS keeps the objects' data.
	BlocksDir string
}

// Env is the environment that FromEnv reads.
func (s Servers) Env() []string {
	return []string{
		EnvConductorURL + "=" + s.ConductorURL,
		EnvConductorVersion + "=" + s.ConductorVersion,
		EnvLakeFSURL + "=" + s.LakeFSURL,
		EnvAccessKeyID + "=" + s.AccessKeyID,
		EnvSecretAccessKey + "=" + s.SecretAccessKey,
		EnvImportDir + "=" + s.ImportDir,
		EnvBlocksDir + "=" + s.BlocksDir,
	}
}

// FromEnv reads the addresses that with-stack set.
func FromEnv() (Servers, error) { return fromEnv(os.Getenv) }

func fromEnv(getenv func(string) string) (Servers, error) {
	var missing []string
	get := func(name string) string {
		v := getenv(name)
		if v == "" {
			missing = append(missing, name)
		}
		return v
	}
	s := Servers{
		ConductorURL:     get(EnvConductorURL),
		ConductorVersion: get(EnvConductorVersion),
		LakeFSURL:        get(EnvLakeFSURL),
		AccessKeyID:      get(EnvAccessKeyID),
		SecretAccessKey:  get(EnvSecretAccessKey),
		ImportDir:        get(EnvImportDir),
		BlocksDir:        get(EnvBlocksDir),
	}
	if len(missing) > 0 {
		return Servers{}, fmt.Errorf("needs the real servers: run `make test` (not set: %s)", strings.Join(missing, ", "))
	}
	return s, nil
}

// Require returns the running servers, or fails the test: a suite that finds
// no servers has tested nothing and must not look green.
func Require(t testing.TB) Servers {
	t.Helper()
	s, err := FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Short reports whether the real servers are to be left out (go test -short),
// and says so in the test's log.
func Short(t testing.TB) bool {
	t.Helper()
	if testing.Short() {
		t.Log("the real servers are left out (-short)")
		return true
	}
	return false
}
