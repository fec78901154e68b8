package lakefs

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"perago/pkg/txn"
)

// Each try opens the content anew, sends all of it with its length, and closes
// it.
func TestUploadIsOpenedForEachTry(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"some content", ""} {
		synctest.Test(t, func(t *testing.T) {
			var opened, closed atomic.Int32
			requests := 0
			client := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
				requests++
				if r.ContentLength != int64(len(body)) || len(r.TransferEncoding) != 0 || r.Header.Get("Content-Type") != "application/octet-stream" {
					t.Errorf("Content-Length %d, %v, %v", r.ContentLength, r.TransferEncoding, r.Header)
				}
				got := &bytes.Buffer{}
				if r.Body != nil {
					half := int64(len(body))
					if requests < 3 {
						half /= 2
					}
					_, _ = io.CopyN(got, r.Body, half)
				}
				switch requests {
				case 1:
					return nil, &net.OpError{Op: "write", Err: syscall.EPIPE}
				case 2:
					return reply(503, ""), nil
				}
				if got.String() != body {
					t.Errorf("sent %q", got)
				}
				return reply(201, `{"path":"p","path_type":"object","size_bytes":3,"checksum":"x"}`), nil
			}))
			got, err := client.Upload(t.Context(), repo, main, "p", txn.Content{Size: int64(len(body)), Open: func() (io.ReadCloser, error) {
				opened.Add(1)
				return &closing{Reader: strings.NewReader(body), closed: &closed}, nil
			}})
			if err != nil || got != (txn.Object{Path: "p", Size: 3, Checksum: "x"}) {
				t.Errorf("%+v, %v", got, err)
			}
			want := int32(3)
			if body == "" {
				// Looked at once, to see that it is empty.
				want = 1
			}
			if opened.Load() != want || closed.Load() != want || requests != 3 {
				t.Errorf("opened %d times, closed %d times, sent %d times", opened.Load(), closed.Load(), requests)
			}
		})
	}
}

type closing struct {
	io.Reader
	closed *atomic.Int32
}

func (c *closing) Close() error {
	c.closed.Add(1)
	return nil
}

// A connection that cannot be made needs no file.
func TestUploadWithoutAServerOpensNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, err := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		})).Upload(t.Context(), repo, main, "p", txn.Content{Size: 1, Open: func() (io.ReadCloser, error) {
			t.Error("opened")
			return nil, io.EOF
		}})
		if !errors.Is(err, txn.ErrRetryable) {
			t.Error(err)
		}
	})
}

// What is wrong with the content is no fault of the server's: an error without a
// class, the caller's own error inside, and no repeat.
func TestUploadOfABrokenContent(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	var closed atomic.Int32
	open := func(r io.Reader) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return &closing{Reader: r, closed: &closed}, nil }
	}
	for name, c := range map[string]struct {
		content txn.Content
		cause   error
		text    string
	}{
		"cannot be opened":       {txn.Content{Size: 5, Open: func() (io.ReadCloser, error) { return nil, broken }}, broken, "open"},
		"empty cannot be opened": {txn.Content{Size: 0, Open: func() (io.ReadCloser, error) { return nil, broken }}, broken, "open"},
		"fails in the middle":    {txn.Content{Size: 5, Open: open(io.MultiReader(strings.NewReader("ab"), failing{broken}))}, broken, "read"},
		"is shorter":             {txn.Content{Size: 5, Open: open(strings.NewReader("abc"))}, nil, "2 bytes shorter than the 5"},
		"is longer":              {txn.Content{Size: 5, Open: open(strings.NewReader("abcdefg"))}, nil, "longer than the 5"},
		"is not empty":           {txn.Content{Size: 0, Open: open(strings.NewReader("a"))}, nil, "longer than the 0"},
		"is longer, in bits":     {txn.Content{Size: 5, Open: open(&dripping{strings.NewReader("abcdefg")})}, nil, "longer than the 5"},
		"has a negative size":    {txn.Content{Size: -1, Open: open(strings.NewReader("a"))}, nil, "-1"},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(201)
				_, _ = io.WriteString(w, `{"path":"p","path_type":"object","size_bytes":5,"checksum":"x"}`)
			}))
			defer server.Close()
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			cfg := testConfig()
			cfg.Endpoint = server.URL
			client, err := New(cfg, transport)
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Upload(t.Context(), repo, main, "p", c.content)
			if err == nil || !strings.Contains(err.Error(), c.text) || c.cause != nil && !errors.Is(err, c.cause) {
				t.Errorf("%v", err)
			}
			for _, class := range []error{txn.ErrRefused, txn.ErrRetryable, txn.ErrUnknownOutcome} {
				if errors.Is(err, class) {
					t.Errorf("%v is %q", err, class)
				}
			}
			if requests.Load() > 1 {
				t.Errorf("%d requests", requests.Load())
			}
		})
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

type dripping struct{ io.Reader }

func (d *dripping) Read(p []byte) (int, error) { return d.Reader.Read(p[:min(1, len(p))]) }

// A large upload takes no memory of its size, neither held nor in passing.
func TestUploadStreams(t *testing.T) {
	const size = 64 << 20
	var received atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		received.Store(n)
		w.WriteHeader(201)
		_, _ = io.WriteString(w, `{"path":"p","path_type":"object","size_bytes":1,"checksum":"x"}`)
	}))
	defer server.Close()
	transport := defaultTransport()
	defer transport.CloseIdleConnections()
	cfg := testConfig()
	cfg.Endpoint = server.URL
	client, err := New(cfg, transport)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = client.Upload(t.Context(), repo, main, "p", txn.Content{Size: size, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.LimitReader(zeros{}, size)), nil
	}})
	runtime.ReadMemStats(&after)
	if err != nil || received.Load() != size {
		t.Fatalf("received %d bytes, %v", received.Load(), err)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 8<<20 {
		t.Errorf("%d MiB allocated for an upload of %d MiB", allocated>>20, size>>20)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// Whether uploads may go to the store is what the configuration says of it, and
// only for S3.
func TestSigns(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]bool{
		`{"storage_config":{"blockstore_type":"s3","pre_sign_support":true}}`:     true,
		`{"storage_config":{"blockstore_type":"s3","pre_sign_support":false}}`:    false,
		`{"storage_config":{"blockstore_type":"s3"}}`:                             false,
		`{"storage_config":{"blockstore_type":"gs","pre_sign_support":true}}`:     false,
		`{"storage_config":{"blockstore_type":"azure","pre_sign_support":true}}`:  false,
		`{"storage_config":{"blockstore_type":"local","pre_sign_support":false}}`: false,
	} {
		client := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) { return reply(200, config), nil }))
		if got, err := client.signs(t.Context()); err != nil || got != want {
			t.Errorf("%s: %v, %v", config, got, err)
		}
	}
}
