package lakefs

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"perago/pkg/txn"
)

// The hooks are in no projection, however many pages of them come before an object.
func TestDiffer_LooksBehindTheHooks(t *testing.T) {
	t.Parallel()
	const page = `{"pagination":{"has_more":%t},"results":[%s]}`
	entry := func(path string) string {
		return fmt.Sprintf(`{"path":%q,"path_type":"object","type":"changed"}`, path)
	}
	for name, c := range map[string]struct {
		last string
		want bool
	}{
		"nothing":          {"", false},
		"an object":        {entry("a"), true},
		"one more hook":    {entry(txn.ActionsPrefix + "z.yaml"), false},
		"a name like that": {entry("_lakefs_actions2/a"), true},
	} {
		var asked []string
		client := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			after := r.URL.Query().Get("after")
			asked = append(asked, r.URL.Query().Get("type")+" "+after)
			if after != "" {
				return reply(200, fmt.Sprintf(page, false, c.last)), nil
			}
			return reply(200, fmt.Sprintf(page, true, entry(txn.ActionsPrefix+"a.yaml"))), nil
		}))
		got, err := client.Differ(t.Context(), repo, id("a"), id("b"), "")
		if err != nil || got != c.want || !strings.HasPrefix(asked[0], "two_dot") {
			t.Errorf("%s: %v, %v, asked %q", name, got, err, asked)
		}
	}
}
