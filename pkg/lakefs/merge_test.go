package lakefs

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/txn"
)

// The body of a merge is always whole: lakeFS takes what is left out for a merge
// that is not squashed, without metadata.
func TestMergeSaysEverything(t *testing.T) {
	t.Parallel()
	for name, merge := range map[string]txn.Merge{
		"with metadata":    {Message: "m", Metadata: map[string]string{"k": "v", "empty": ""}},
		"with none":        {Message: "m"},
		"without anything": {},
	} {
		var sent []map[string]any
		client := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			var fields map[string]any
			if err := json.Unmarshal(body, &fields); err != nil || r.ContentLength != int64(len(body)) || r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %q, of length %d, %s: %v", name, body, r.ContentLength, r.Header.Get("Content-Type"), err)
			}
			sent = append(sent, fields)
			return reply(200, `{"reference":"`+string(id("c"))+`"}`), nil
		}))
		merge.Repository, merge.Source, merge.Destination = repo, id("a"), main
		if _, err := client.Merge(t.Context(), merge); err != nil {
			t.Error(err)
		}
		metadata := map[string]any{}
		for key, value := range merge.Metadata {
			metadata[key] = value
		}
		want := []map[string]any{{"squash_merge": true, "allow_empty": true, "message": merge.Message, "metadata": metadata}}
		if diff := cmp.Diff(want, sent); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
