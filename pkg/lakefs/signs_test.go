package lakefs

import (
	"net/http"
	"testing"
)

// Whether uploads may go to the store is what the configuration says of it, and
// only for S3.
func TestSigns(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]bool{
		`{"storage_config":{"blockstore_type":"s3","pre_sign_support":true}}`:     true,
		`{"storage_config":{"blockstore_type":"s3","pre_sign_support":false}}`:    false,
		`{"storage_config":{"blockstore_type":"s3"}}`:                             false,
		`{"storage_config":{"blockstore_type":"gs","pre_sign_support":true}}`:     false,
		`{"storage_config":{"blockstore_type":"azure","pre_sign_support":true}}`:  false,
		`{"storage_config":{"blockstore_type":"local","pre_sign_support":false}}`: false,
	} {
		client := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) { return reply(200, config), nil }))
		if got, err := client.signs(t.Context()); err != nil || got != want {
			t.Errorf("%s: %v, %v", config, got, err)
		}
	}
}
