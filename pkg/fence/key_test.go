package fence

import (
	"net/http"
	"testing"

	"perago/pkg/credential"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A key id that is a word of the fence's refusal is redacted in the text. The
// commands still know whose refusal it is.
func TestFence_IsKnownWithACommonWordAsKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"perago", "publish", "fence"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			server := lakefstest.NewServer()
			config := server.Config()
			id, secret := config.AccessKeyID.Reveal(), config.SecretAccessKey.Reveal()
			config.AccessKeyID = credential.New(key)
			client, err := lakefs.New(config, roundTripper(func(r *http.Request) (*http.Response, error) {
				r = r.Clone(r.Context())
				r.SetBasicAuth(id, secret)
				return server.Transport().RoundTrip(r)
			}))
			if err != nil {
				t.Fatal(err)
			}
			s := &suite{T: t, client: client}
			repo, _ := lakefstest.NewRepository(t, client, map[string]string{"a": "1"})
			change, err := s.target(repo).Install(t.Context(), Options{})
			s.no(err)
			verified, err := s.target(repo).Verify(t.Context())
			s.no(err)
			s.equal(verified.Head, change.Head)
			s.settleMeanwhile()
		})
	}
}
