package lakefs

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"perago/pkg/txn"
)

// A key without fs:DeleteObject gets two answers in one: the refusal of a path, and
// behind it the list for all of them (lakeFS 1.84.0, pkg/api/controller.go,
// DeleteObjects; no open-source server refuses). It is a refusal, and sent once.
func TestBulkDeleteThatIsNotPermitted(t *testing.T) {
	t.Parallel()
	sent := 0
	client := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
		sent++
		return reply(401, `{"message":"insufficient permissions"}`+"\n"+`{"errors":[{"path":"p","status_code":401,"message":"Unauthorized"}]}`), nil
	}))
	err := client.DeleteObjects(t.Context(), repo, main, []string{"p"})
	if !errors.Is(err, txn.ErrForbidden) || classOf(t, err) != txn.ErrRefused || sent != 1 {
		t.Errorf("%d requests, %v", sent, err)
	}
}

// What lakeFS says of a permission that it was asked for: only a refusal of what
// was asked for is a yes.
func TestPermitted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
		want   error
	}{
		"what it names is not there": {404, `{"message":"not found"}`, nil},
		"it is refused":              {400, `{"message":"no such thing"}`, nil},
		"nothing to delete":          {200, `{"errors":[]}`, nil},
		"no permission":              {401, `{"message":"insufficient permissions"}`, txn.ErrForbidden},
		"no permission, by a 403":    {403, `{"message":"no"}`, txn.ErrForbidden},
		"a wrong key":                {401, `{"message":"error authenticating request"}`, txn.ErrUnauthorized},
		"it is down":                 {503, `{"message":"later"}`, txn.ErrRetryable},
		"a gateway's page":           {404, `<html>`, txn.ErrRetryable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sent := 0
			client := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
				sent++
				return reply(c.status, c.body), nil
			}))
			err := client.Permitted(t.Context(), txn.Permission{Action: "fs:DeleteObject", Repository: repo, Path: "p"})
			if c.want == nil && err != nil || !errors.Is(err, c.want) || sent != 1 {
				t.Errorf("%d requests, %v", sent, err)
			}
		})
	}
	client := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
		t.Error("a request for nothing")
		return reply(404, `{"message":"not found"}`), nil
	}))
	for _, p := range []txn.Permission{
		{Action: "fs:Everything", Repository: repo}, {Action: "fs:ReadCommit", Repository: ".."}, {Action: "fs:ReadBranch", Repository: repo, Branch: ".."},
	} {
		if err := client.Permitted(t.Context(), p); err == nil {
			t.Errorf("%+v: asked for", p)
		}
	}
}

// No request that asks for a permission could do anything if it was granted.
func TestPermissionsAreAskedForWithNothing(t *testing.T) {
	t.Parallel()
	asked := 0
	for _, action := range []string{"fs:CreateBranch", "fs:WriteObject", "fs:DeleteObject", "fs:CreateCommit", "fs:DeleteBranch", "fs:ImportFromStorage"} {
		for _, branch := range []txn.Branch{"", "perago-staging-mine", main} {
			client := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
				asked++
				text := r.URL.Path
				if r.Body != nil {
					var body strings.Builder
					_ = r.Write(&body)
					text += body.String()
				}
				into, source := strings.Contains(text, "/merge/main"), strings.Contains(text, "/refs/"+nowhere+"/")
				if !strings.Contains(text, nobody) && !(into && source) {
					t.Errorf("%s on %q: %s", action, branch, text)
				}
				return reply(404, `{"message":"not found"}`), nil
			}))
			if err := client.Permitted(t.Context(), txn.Permission{Action: action, Repository: repo, Branch: branch, Path: "p", Storage: "s3://b/"}); err != nil {
				t.Error(err)
			}
		}
	}
	if asked != 18 {
		t.Errorf("asked %d times", asked)
	}
}
