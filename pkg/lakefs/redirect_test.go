package lakefs

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// A redirect is not followed, whatever is asked for: the key, or an object's
// bytes, would go to another host.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, c := range calls {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var hosts []string
				err := c.call(t.Context(), testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
					mu.Lock()
					defer mu.Unlock()
					hosts = append(hosts, r.URL.Host)
					return reply(status, "", "Location", "http://elsewhere.test/"+r.URL.Path), nil
				})))
				if err == nil || !slices.Equal(hosts, []string{"lakefs.test"}) {
					t.Errorf("%s, %d: %v, asked %q", c.operation, status, err, hosts)
				}
			})
		}
	}
}
