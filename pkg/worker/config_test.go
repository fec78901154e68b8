package worker

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"perago/pkg/config"
)

// gpu and a comma would poll the queue without a domain as well.
func TestACommaTooMany(t *testing.T) {
	t.Parallel()
	for _, variable := range []string{"PERAGO_DOMAINS", "PERAGO_TASK_TYPES"} {
		for _, list := range []string{"gpu,", ",gpu", "gpu, ,cpu", ","} {
			var common Config
			_, err := config.Read(environment(map[string]string{"PERAGO_ALLOWED_REPOSITORIES": "r", "PERAGO_HTTP_ADDR": ":0", variable: list}), &common)
			if want := variable + " has a comma too many"; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s=%q: got %v, want %s", variable, list, err, want)
			}
		}
	}
}

// A worker without a domain polls the queue without one. When domains are set
// only these are polled, and NO_DOMAIN stands for that queue: it is never a
// domain's name.
func TestDomainsThatArePolled(t *testing.T) {
	for name, row := range map[string]struct{ set, want []string }{
		"unset":                     {nil, []string{""}},
		"one":                       {[]string{"gpu"}, []string{"gpu"}},
		"one and the queue without": {[]string{"NO_DOMAIN", "gpu"}, []string{"", "gpu"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				h.stage(done, func(o *Options) { o.Domains = Config{Domains: row.set}.domains() })
				time.Sleep(time.Second)
				synctest.Wait()
				var polled []string
				for _, call := range h.conductor.made("Poll") {
					polled = append(polled, call.Poll.Domain)
				}
				slices.Sort(polled)
				if polled = slices.Compact(polled); !slices.Equal(polled, row.want) {
					t.Errorf("polled the domains %q, want %q", polled, row.want)
				}
			})
		})
	}
}
