package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

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
