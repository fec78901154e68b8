package lakefstest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"perago/pkg/lakefs"
	"perago/pkg/txn"
)

// Revert undoes a commit of a branch, as an operator does: the product never does.
// A nil transport is a connection.
func Revert(t testing.TB, config lakefs.Config, transport http.RoundTripper, repo txn.Repository, branch txn.Branch, undone txn.CommitID) {
	t.Helper()
	address := fmt.Sprintf("%s/api/v1/repositories/%s/branches/%s/revert", strings.TrimSuffix(config.Endpoint, "/"), repo, branch)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(fmt.Sprintf(`{"ref":%q,"parent_number":1}`, undone)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.SetBasicAuth(config.AccessKeyID.Reveal(), config.SecretAccessKey.Reveal())
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if answer, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusNoContent {
		t.Fatalf("revert %s on %s: %d %s, %v", undone, branch, response.StatusCode, answer, err)
	}
}
