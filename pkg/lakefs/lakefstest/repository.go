package lakefstest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"perago/pkg/lakefs"
	"perago/pkg/txn"
)

// DefaultBranch is the default branch of the repositories made here.
const DefaultBranch txn.Branch = "main"

// NewRepository makes a repository of a name of its own, commits files (path to
// content) on its default branch, and returns it with that commit: the input
// ref of what the test does next. Without files it is the repository's own first
// commit, whose tree has the id "".
//
// When the test ends, Check looks at the repository with the expectations, from
// that commit on. So the client must be one that no fault is injected into.
func NewRepository(t testing.TB, client *lakefs.Client, files map[string]string, expect ...Expectation) (txn.Repository, txn.CommitID) {
	t.Helper()
	return NewRepositoryIn(t, client, "local://", files, expect...)
}

// NewRepositoryIn is NewRepository in a store: the beginning of the repository's
// storage namespace, such as s3://bucket/.
func NewRepositoryIn(t testing.TB, client *lakefs.Client, store string, files map[string]string, expect ...Expectation) (txn.Repository, txn.CommitID) {
	t.Helper()
	ctx := t.Context()
	repo := NewName(t)
	if err := client.CreateRepository(ctx, repo, store+string(repo), DefaultBranch); err != nil {
		t.Fatal(err)
	}
	if len(files) > 0 {
		Put(t, client, repo, DefaultBranch, files)
		if _, err := client.CreateCommit(ctx, repo, DefaultBranch, "input", nil); err != nil {
			t.Fatal(err)
		}
	}
	first, err := client.Head(ctx, repo, DefaultBranch)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		Check(ctx, t, client, repo, first, expect...)
	})
	return repo, first
}

// NewName is the name of a repository that no other test has, on a server that
// many tests share.
func NewName(t testing.TB) txn.Repository {
	t.Helper()
	var unique [8]byte
	if _, err := rand.Read(unique[:]); err != nil {
		t.Fatal(err)
	}
	// lakeFS allows 63 characters of a few kinds; the start of the test's name is
	// for people who look at the server.
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, t.Name())
	return txn.Repository("t-" + name[:min(40, len(name))] + "-" + hex.EncodeToString(unique[:]))
}

// ExecutionAt is an execution id that was made so long ago.
func ExecutionAt(age time.Duration) (txn.ExecutionID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	milliseconds := uint64(time.Now().Add(-age).UnixMilli())
	for i := range 6 {
		id[i] = byte(milliseconds >> (8 * (5 - i)))
	}
	return txn.ParseExecutionID(id.String())
}

// Text is a text as the content of an upload.
func Text(s string) txn.Content {
	return txn.Content{Size: int64(len(s)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(s)), nil
	}}
}

// Put uploads files (path to content) to a branch and commits nothing.
func Put(t testing.TB, client *lakefs.Client, repo txn.Repository, branch txn.Branch, files map[string]string) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if _, err := client.Upload(t.Context(), repo, branch, path, Text(files[path])); err != nil {
			t.Fatal(err)
		}
	}
}

// Tree reads the whole tree of a commit: path to content.
func Tree(t testing.TB, client *lakefs.Client, repo txn.Repository, ref txn.CommitID) map[string]string {
	t.Helper()
	tree := map[string]string{}
	for object, err := range client.Objects(t.Context(), repo, ref, "") {
		if err != nil {
			t.Fatal(err)
		}
		reader, err := client.ReadObject(t.Context(), repo, ref, object.Path)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(reader)
		_ = reader.Close()
		if err != nil {
			t.Fatalf("read %s: %v", object.Path, err)
		}
		tree[object.Path] = string(data)
	}
	return tree
}

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
