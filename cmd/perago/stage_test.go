package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"perago/pkg/fault"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// listBranches is the scripts' command "branches": it prints the branches of lake
// that people see in a listing.
func listBranches(ts *testscript.TestScript, negated bool, arguments []string) {
	if negated || len(arguments) != 0 {
		ts.Fatalf("usage: branches")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, ts.Getenv("LAKEFS")+"/api/v1/repositories/lake/branches?amount=1000", nil)
	ts.Check(err)
	request.SetBasicAuth(ts.Getenv("KEY"), ts.Getenv("SECRET"))
	response, err := http.DefaultClient.Do(request)
	ts.Check(err)
	defer response.Body.Close()
	var listing struct {
		Results []struct {
			ID string `json:"id"`
		} `json:"results"`
	}
	ts.Check(json.NewDecoder(response.Body).Decode(&listing))
	for _, branch := range listing.Results {
		fmt.Fprintln(ts.Stdout(), branch.ID)
	}
}

// protectBranch is the scripts' command "protect BRANCH": uploads to a branch of that
// name are refused.
func protectBranch(ts *testscript.TestScript, negated bool, arguments []string) {
	if negated || len(arguments) != 1 {
		ts.Fatalf("usage: protect BRANCH")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := lakeOf(ts).Protect(ctx, "lake", txn.Branch(arguments[0]))
	ts.Check(err)
}

// A colleague's branch has the name that was given, or gets it meanwhile. Whatever
// answer is lost, nothing is written to it and it is not deleted.
func TestStage_LeavesAColleaguesBranchAlone(t *testing.T) {
	t.Parallel()
	creation := fault.Match{Method: http.MethodPost, Path: "/branches"}
	deletion := fault.Match{Method: http.MethodDelete, Path: "/branches/mine"}
	for name, c := range map[string]struct {
		// there says that the colleague's branch is there before.
		there bool
		lost  map[*fault.Match]fault.Fault
		// refused says that the uploads are.
		refused bool
		says    string
		deletes int
	}{
		"the 409 is lost":             {there: true, lost: map[*fault.Match]fault.Fault{&creation: fault.Lost()}, says: "it is not known whether lakeFS made it"},
		"the request is lost":         {there: true, lost: map[*fault.Match]fault.Fault{&creation: fault.Dropped()}, says: "it is not known whether lakeFS made it"},
		"the delete's answer is lost": {lost: map[*fault.Match]fault.Fault{&deletion: fault.Lost()}, refused: true, says: "it is not known whether the branch mine is deleted", deletes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := lakefstest.NewServer()
			plain := server.Client(t)
			repo, first := lakefstest.NewRepository(t, plain, map[string]string{"data/a": "1"}, lakefstest.Allow(lakefstest.RuleBranches))
			behind := httptest.NewServer(server)
			t.Cleanup(behind.Close)
			proxy, err := fault.NewProxy(behind.URL)
			if err != nil {
				t.Fatal(err)
			}
			for at, fate := range c.lost {
				proxy.Arm(*at, fate)
			}
			front := httptest.NewServer(proxy)
			t.Cleanup(front.Close)
			if c.there {
				if err := plain.CreateVisibleBranch(t.Context(), repo, "mine", first); err != nil {
					t.Fatal(err)
				}
			}
			if c.refused {
				if _, err := plain.Protect(t.Context(), repo, "mine"); err != nil {
					t.Fatal(err)
				}
			}
			directory := t.TempDir()
			if err := os.WriteFile(filepath.Join(directory, "a"), []byte("2"), 0o600); err != nil {
				t.Fatal(err)
			}
			config := server.Config()
			variables := map[string]string{
				"LAKECTL_SERVER_ENDPOINT_URL": front.URL, "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": config.AccessKeyID.Reveal(),
				"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": config.SecretAccessKey.Reveal(),
			}
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), []string{"stage", directory, fmt.Sprintf("lakefs://%s/main/data/", repo), "--branch", "mine"},
				func(name string) (string, bool) { value, ok := variables[name]; return value, ok }, &stdout, &stderr)
			if code != exitFailed || !strings.Contains(stderr.String(), c.says) {
				t.Errorf("exit code %d, said %q; want %q", code, stderr.String(), c.says)
			}
			if deletes := len(proxy.Matching(deletion)); deletes != c.deletes {
				t.Errorf("%d deletes, want %d", deletes, c.deletes)
			}
			if !c.there {
				return
			}
			if uploads := proxy.Matching(fault.Match{Method: http.MethodPost, Path: "/objects"}); len(uploads) != 0 {
				t.Errorf("%d uploads to the colleague's branch", len(uploads))
			}
			if head, err := plain.Head(t.Context(), repo, "mine"); err != nil || head != first {
				t.Errorf("the colleague's branch is at %s, %v", head, err)
			}
		})
	}
}
