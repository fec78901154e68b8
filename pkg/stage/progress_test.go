package stage_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// wants is what a phase should have counted.
type wants struct {
	objects, objectsTotal int
	bytes, bytesTotal     int64
}

func (a *attempt) check(t *testing.T, want map[string]wants) {
	t.Helper()
	for name, want := range want {
		c := a.counts[name]
		if c == nil {
			t.Errorf("the phase %s was not entered", name)
			continue
		}
		if got := (wants{c.objects, c.objectsTotal, c.bytes, c.bytesTotal}); got != want {
			t.Errorf("%s counted %+v, want %+v", name, got, want)
		}
		if c.bytesTotal > 0 && c.most > c.bytesTotal {
			t.Errorf("%s counted up to %d bytes of %d", name, c.most, c.bytesTotal)
		}
	}
}

// Each phase that may take long counts what it does, and how much there is to do
// where that is known.
func TestProgress(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300_000)
	held := map[string]string{"data/same": "same", "data/other": "1234", "data/gone/1": "x", "data/gone/2": "x"}
	b := newBench(t, held)
	directory := b.write(map[string]string{"same": "same", "other": "5678", "new": long, "empty": ""})
	a := &attempt{}
	if _, err := b.stager.Run(t.Context(), b.task(directory, nil), a); err != nil {
		t.Fatal(err)
	}
	a.check(t, map[string]wants{
		"compare": {objects: 2, bytes: 8}, // those of the same size
		"upload":  {3, 3, 300_004, 300_004},
		"remove":  {objects: 2, objectsTotal: 2},
		"verify":  {objects: 4, objectsTotal: 4},
	})
}

// A try that is repeated takes back what it sent, however far it came.
func TestProgressOfRepeatedUploads(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	var uploads atomic.Int32
	next := b.wire.next
	b.wire.next = roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/objects") || uploads.Add(1)%2 == 0 {
			return next.RoundTrip(r)
		}
		// Half of it is read, and the server is gone.
		_, _ = io.CopyN(io.Discard, r.Body, r.ContentLength/2)
		_ = r.Body.Close()
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
	})
	directory := b.write(map[string]string{"a": strings.Repeat("a", 100_000), "b": strings.Repeat("b", 50_000)})
	a := &attempt{}
	if _, err := b.stager.Run(t.Context(), b.task(directory, nil), a); err != nil {
		t.Fatal(err)
	}
	a.check(t, map[string]wants{"upload": {2, 2, 150_000, 150_000}})
}

// What failed is not done.
func TestProgressOfAFailedUpload(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.wire.answered = func(r *http.Request, response *http.Response) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/objects") && r.Method == http.MethodPost {
			response.StatusCode, response.Body = http.StatusForbidden, io.NopCloser(strings.NewReader(`{"message": "no"}`))
		}
		return response, nil
	}
	a := &attempt{}
	if _, err := b.stager.Run(t.Context(), b.task(b.write(map[string]string{"a": "12345"}), nil), a); err == nil {
		t.Fatal("it did not fail")
	}
	a.check(t, map[string]wants{"upload": {0, 1, 0, 5}})
}

// Removing is counted a request at a time, and makes no more requests than before.
func TestProgressOfManyRemoves(t *testing.T) {
	t.Parallel()
	held := map[string]string{}
	for i := range 1001 {
		held["data/"+strings.Repeat("x", 1+i%20)+string(rune('a'+i/20))] = ""
	}
	b := newBench(t, held)
	a := &attempt{}
	if _, err := b.stager.Run(t.Context(), b.task(b.write(map[string]string{"one": "1"}), nil), a); err != nil {
		t.Fatal(err)
	}
	a.check(t, map[string]wants{"remove": {objects: 1001, objectsTotal: 1001}})
	if n := b.wire.count(http.MethodPost, "/objects/delete"); n != 2 {
		t.Errorf("%d requests to remove 1001 objects, want 2", n)
	}
}
