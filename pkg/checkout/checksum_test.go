//go:build unix

package checkout_test

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// noMD5 is the ETag of a store that encrypts with keys: 32 hex digits, and no MD5.
func noMD5(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

func md5Of(text string) string {
	sum := md5.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// onStore is a bench whose lakeFS has an S3 store with these ETags.
func onStore(t *testing.T, etag func([]byte) string) (*bench, *lakefs.Presigned) {
	t.Helper()
	b := newBench(t, nil)
	b.server.PreSign, b.server.ETag = true, etag
	client, err := lakefs.New(b.server.Config(), b.server.Transport())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.lake.CreateBranch(t.Context(), b.repo, "b", b.first); err != nil {
		t.Fatal(err)
	}
	return b, lakefs.NewPresigned(lakefs.Settling{Client: client}, b.server.Transport(), func(bool, string) {})
}

// commit makes what is on branch b the input.
func (b *bench) commit() {
	b.t.Helper()
	commit, err := b.lake.CreateCommit(b.t.Context(), b.repo, "b", "m", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.first = commit.ID
}

// damaged answers reads of one object in the server's place, with the bytes of each
// reading in turn; the last ones again and again.
func (b *bench) damaged(path string, readings ...string) {
	var mu sync.Mutex
	b.intercept = func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil || !strings.HasSuffix(r.URL.Path, "/objects") || r.URL.Query().Get("path") != path {
			return response, err
		}
		mu.Lock()
		defer mu.Unlock()
		response.Body = io.NopCloser(strings.NewReader(readings[0]))
		if len(readings) > 1 {
			readings = readings[1:]
		}
		return response, nil
	}
}

// A checksum in the form of an MD5 that is none, of whatever origin, is no damage.
// The checkout says how many objects it compared by size alone.
func TestCheckout_AChecksumThatIsNoMD5IsNoDamage(t *testing.T) {
	t.Parallel()
	b, presigned := onStore(t, func(data []byte) string {
		if string(data) == "of two parts" {
			return noMD5(data) + "-2"
		}
		return noMD5(data)
	})
	// An import has the store's checksums.
	source := t.TempDir()
	for name, content := range map[string]string{"imported": "from the store", "parts": "of two parts"} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.lake.Import(t.Context(), b.repo, "b", txn.ImportSource("local://"+source+"/"), "data/", "m", nil); err != nil {
		t.Fatal(err)
	}
	// Other tools name the store's ETag, whatever it is.
	if _, err := presigned.Upload(t.Context(), b.repo, "b", "data/linked", lakefstest.Text("past lakeFS")); err != nil {
		t.Fatal(err)
	}
	lakefstest.Put(t, b.lake, b.repo, "b", map[string]string{"data/uploaded": "through lakeFS"})
	b.commit()

	a := &attempt{}
	result, err := b.downloader.Run(t.Context(), b.task(nil), a)
	if err != nil {
		t.Fatal(err)
	}
	if c := result.Checkout; c.Objects != 4 || c.ComparedBySize != 3 {
		t.Errorf("%+v, want 3 of 4 objects compared by size", c)
	}
	a.check(t, 4, result.Checkout.Bytes)
	if got := tree(t, result.Checkout.Directory); got["imported"] != "from the store" || got["linked"] != "past lakeFS" || got["parts"] != "of two parts" {
		t.Errorf("%q", got)
	}
}

// Damage is found wherever lakeFS knows the MD5, and on the way also elsewhere.
func TestCheckout_DamageIsFound(t *testing.T) {
	t.Parallel()
	const content = "what was uploaded"
	own := txn.Content{
		Size: int64(len(content)),
		Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil },
		Sum:  func() string { return md5Of(content) },
	}
	for _, c := range []struct {
		name     string
		etag     func([]byte) string
		upload   func(b *bench, presigned *lakefs.Presigned) error
		readings []string
		sentence string
		bySize   int64
	}{
		{name: "in what lakeFS wrote", upload: throughLakeFS(content), readings: []string{"WHAT WAS UPLOADED"}, sentence: "MD5 " + md5Of("WHAT WAS UPLOADED") + " arrived, lakeFS holds " + md5Of(content)},
		{name: "in what perago uploaded to the store", upload: toTheStore(own), readings: []string{"WHAT WAS UPLOADED"}, sentence: "lakeFS holds " + md5Of(content)},
		{name: "on the way, once", upload: throughLakeFS(content), readings: []string{"WHAT WAS UPLOADED", content}},
		{name: "on the way, twice", upload: throughLakeFS(content), readings: []string{"WHAT WAS UPLOADED", "what was UPLOADED", content}},
		{name: "on the way, of what has no MD5", etag: noMD5, upload: toTheStore(lakefstest.Text(content)), readings: []string{"WHAT WAS UPLOADED", content, content}, bySize: 1},
		{name: "on the way each time, of what has no MD5", etag: noMD5, upload: toTheStore(lakefstest.Text(content)), readings: []string{"1HAT WAS UPLOADED", "2HAT WAS UPLOADED", "3HAT WAS UPLOADED"}, sentence: "lakeFS holds " + noMD5([]byte(content))},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b, presigned := onStore(t, c.etag)
			if err := c.upload(b, presigned); err != nil {
				t.Fatal(err)
			}
			b.commit()
			b.damaged("data/a", c.readings...)
			result, err := b.downloader.Run(t.Context(), b.task(nil), &attempt{})
			if c.sentence == "" {
				if err != nil || tree(t, result.Checkout.Directory)["a"] != content || result.Checkout.ComparedBySize != c.bySize {
					t.Errorf("%+v, %v", result.Checkout, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.sentence) || errors.As(err, new(*txn.TerminalError)) {
				t.Errorf("%+v, %v; want %q", result.Checkout, err, c.sentence)
			}
		})
	}
}

func throughLakeFS(content string) func(*bench, *lakefs.Presigned) error {
	return func(b *bench, _ *lakefs.Presigned) error {
		_, err := b.lake.Upload(b.t.Context(), b.repo, "b", "data/a", lakefstest.Text(content))
		return err
	}
}

func toTheStore(content txn.Content) func(*bench, *lakefs.Presigned) error {
	return func(b *bench, presigned *lakefs.Presigned) error {
		_, err := presigned.Upload(b.t.Context(), b.repo, "b", "data/a", content)
		return err
	}
}
