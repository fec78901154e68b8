//go:build unix

package checkout_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/checkout"
	"perago/pkg/txn"
)

func (b *bench) hand(directory string) checkout.Hand {
	return checkout.Hand{
		Workspace: txn.Workspace{Repository: b.repo, Branch: "main"}.At(b.first), Prefix: "data/", Directory: directory,
	}
}

// A directory that is not there is made, with those above it; one that is there
// and empty is filled.
func TestByHand(t *testing.T) {
	t.Parallel()
	files := map[string]string{"data/a": "1", "data/d/e/f": "22", "other": "o"}
	b := newBench(t, files)
	want := map[string]string{"a": "1", "d/e/f": "22"}
	there := t.TempDir()
	for _, directory := range []string{filepath.Join(b.root, "x", "y"), there} {
		a := &attempt{}
		result, err := b.downloader.ByHand(t.Context(), b.hand(directory), a)
		if err != nil || result.Checkout != (checkout.Checkout{Directory: directory, Objects: 2, Bytes: 3}) {
			t.Fatalf("%+v, %v", result, err)
		}
		if diff := cmp.Diff(want, tree(t, directory)); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		a.check(t, 2, 3)
	}
	// Now it is used, and nothing is asked for.
	b.intercept = func(*http.Request, http.RoundTripper) (*http.Response, error) { return nil, errors.New("asked") }
	if _, err := b.downloader.ByHand(t.Context(), b.hand(there), &attempt{}); !errors.Is(err, checkout.ErrNotEmpty) || !strings.Contains(err.Error(), there) {
		t.Errorf("got %v, want that %s is not empty", err, there)
	}
	file := filepath.Join(there, "a")
	if _, err := b.downloader.ByHand(t.Context(), b.hand(file), &attempt{}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v, want that %s is no directory", err, file)
	}
	if diff := cmp.Diff(want, tree(t, there)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// One that fails takes away what it made, and nothing of anybody else's that came
// meanwhile.
func TestByHandFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		there bool
		// meanwhile is what somebody else does while the last object is asked for.
		meanwhile func(t *testing.T, directory string)
		want      map[string]string
		left      bool
		sentence  string
	}{
		"a new directory":     {sentence: "download data/d/z: "},
		"an empty directory":  {there: true, left: true, sentence: "download data/d/z: "},
		"somebody else's too": {there: true, left: true, meanwhile: put("d/mine"), want: map[string]string{"d/mine": "mine"}, sentence: "what was downloaded stays in "},
		"in a new one too":    {left: true, meanwhile: put("mine"), want: map[string]string{"mine": "mine"}, sentence: "what was downloaded stays in "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, map[string]string{"data/a": "1", "data/d/b": "2", "data/d/z": "3"})
			directory := filepath.Join(t.TempDir(), "new")
			if c.there {
				if err := os.Mkdir(directory, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			b.downloader.Concurrency = 1
			b.intercept = func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				if r.URL.Query().Get("path") != "data/d/z" {
					return next.RoundTrip(r)
				}
				if c.meanwhile != nil {
					c.meanwhile(t, directory)
				}
				return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
			}
			result, err := b.downloader.ByHand(t.Context(), b.hand(directory), &attempt{})
			if err == nil || !strings.Contains(err.Error(), c.sentence) || result.Checkout.Directory != "" {
				t.Errorf("%+v, %v; want %q", result, err, c.sentence)
			}
			want := c.want
			if want == nil {
				want = map[string]string{}
			}
			if diff := cmp.Diff(want, tree(t, directory)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if _, err := os.Stat(directory); (err == nil) != c.left {
				t.Errorf("the directory: %v, want it to be there: %v", err, c.left)
			}
		})
	}
}

func put(name string) func(*testing.T, string) {
	return func(t *testing.T, directory string) {
		if err := os.WriteFile(filepath.Join(directory, name), []byte("mine"), 0o600); err != nil {
			t.Error(err)
		}
	}
}

func TestByHandGuardrails(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data/a": "1"})
	directory := filepath.Join(t.TempDir(), "new")
	hand := b.hand(directory)
	hand.Guardrails = []txn.Guardrail{{RequireFile: "b"}}
	result, err := b.downloader.ByHand(t.Context(), hand, &attempt{})
	if err == nil || len(result.Violations) != 1 || !strings.Contains(err.Error(), `require_file "b"`) {
		t.Errorf("%+v, %v", result, err)
	}
	most := 3
	hand.Guardrails = []txn.Guardrail{{MaxRemoved: &txn.MaxRemoved{Count: &most}}}
	if _, err := b.downloader.ByHand(t.Context(), hand, &attempt{}); err == nil || !strings.Contains(err.Error(), "guardrails[0].max_removed") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(directory); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
}
