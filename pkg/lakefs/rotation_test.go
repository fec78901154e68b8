package lakefs

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/credential"
	"perago/pkg/txn"
)

// lock is a server that lets in who has one of its keys and refuses everybody else
// as lakeFS does.
type lock struct {
	mu   sync.Mutex
	keys []string
	seen []request
	good func(*http.Request) *http.Response
}

// request is what a client sent: the key, and everything else.
type request struct{ key, rest string }

func (l *lock) RoundTrip(r *http.Request) (*http.Response, error) {
	key, secret, _ := r.BasicAuth()
	body := ""
	if r.Body != nil {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		_ = r.Body.Close()
		body = string(raw)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, request{key + ":" + secret, fmt.Sprintln(r.Method, r.URL, r.ContentLength, r.Header.Get("Content-Type"), body)})
	if !slices.Contains(l.keys, key+":"+secret) {
		return reply(401, `{"message":"error authenticating request: `+key+`:`+secret+`"}`), nil
	}
	return l.good(r), nil
}

func (l *lock) takes(keys ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys = keys
}

// onFiles is a configuration whose key stands in two files, which write writes.
func onFiles(t *testing.T) (cfg Config, write func(key, secret string)) {
	t.Helper()
	folder := t.TempDir()
	write = func(key, secret string) {
		t.Helper()
		for name, content := range map[string]string{"key": key, "secret": secret} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("key-1", "secret-1\n")
	read := func(variable, name string) credential.Value {
		value, err := credential.Read(variable+"_FILE", filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	return Config{Endpoint: "http://lakefs.test", AccessKeyID: read(keyVariable, "key"), SecretAccessKey: read(secretVariable, "secret")}, write
}

func clientOn(t *testing.T, cfg Config, transport http.RoundTripper) *Client {
	t.Helper()
	client, err := New(cfg, transport)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestRenewedKey: whatever the call, after a 401 it goes out once more as it was,
// with the key that the files hold then.
func TestRenewedKey(t *testing.T) {
	t.Parallel()
	for _, c := range calls {
		for _, largestPut := range []int64{0, 1} { // an upload is a form above 1
			t.Run(fmt.Sprint(c.operation, "/", largestPut), func(t *testing.T) {
				t.Parallel()
				cfg, write := onFiles(t)
				cfg.LargestPut = largestPut
				var told []string
				cfg.Renewed = func(now credential.Shown) { told = append(told, now.Secret.Reveal()) }
				server := &lock{keys: []string{"key-2:secret-2"}, good: func(*http.Request) *http.Response { return reply(c.status, c.good) }}
				client := clientOn(t, cfg, server)
				write("key-2", "secret-2\n")
				if err := c.call(t.Context(), client); err != nil {
					t.Fatal(err)
				}
				if len(server.seen) != 2 || server.seen[0].key != "key-1:secret-1" || server.seen[1].key != "key-2:secret-2" {
					t.Fatalf("sent %q", server.seen)
				}
				if diff := cmp.Diff(server.seen[0].rest, server.seen[1].rest); diff != "" {
					t.Errorf("not the same request (-first +second):\n%s", diff)
				}
				if diff := cmp.Diff([]string{"secret-2"}, told); diff != "" {
					t.Errorf("told (-want +got):\n%s", diff)
				}
				if err := c.call(t.Context(), client); err != nil || len(server.seen) != 3 {
					t.Errorf("and then: %v, %d requests in all", err, len(server.seen))
				}
			})
		}
	}
}

// TestRefusedKey: a 401 stands when the files hold nothing better. Nothing is sent
// a third time.
func TestRefusedKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key, secret string
		requests    int
		hint        string
	}{
		"the same":          {"key-1", "secret-1", 1, "(check " + keyVariable + " and " + secretVariable + ")"},
		"another of no use": {"key-2", "secret-2", 2, "(check " + keyVariable + " and " + secretVariable + ")"},
		"half written":      {"key-2", "", 1, "(" + secretVariable + "_FILE names an empty file; check "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, write := onFiles(t)
			server := &lock{}
			client := clientOn(t, cfg, server)
			write(c.key, c.secret)
			_, err := client.Merge(t.Context(), txn.Merge{Repository: repo, Source: id("a"), Destination: main, Message: "m"})
			if !errors.Is(err, txn.ErrUnauthorized) || !errors.Is(err, txn.ErrRefused) || !strings.Contains(err.Error(), c.hint) {
				t.Errorf("%v, want %s", err, c.hint)
			}
			for _, secret := range []string{"key-1", "secret-1", "key-2", "secret-2"} {
				if strings.Contains(fmt.Sprintf("%v %+v", err, err), secret) {
					t.Errorf("%q holds %s", err, secret)
				}
			}
			if len(server.seen) != c.requests {
				t.Errorf("%d requests, want %d", len(server.seen), c.requests)
			}
		})
	}
	t.Run("another one after each refusal", func(t *testing.T) {
		t.Parallel()
		cfg, write := onFiles(t)
		server := &lock{}
		refusals := 0
		client := clientOn(t, cfg, roundTrip(func(r *http.Request) (*http.Response, error) {
			refusals++
			write(fmt.Sprintf("key-%d", refusals+1), fmt.Sprintf("secret-%d", refusals+1))
			return server.RoundTrip(r)
		}))
		if err := client.Ping(t.Context()); !errors.Is(err, txn.ErrUnauthorized) || refusals != 2 {
			t.Errorf("%v, %d requests, want 2", err, refusals)
		}
	})
	t.Run("given", func(t *testing.T) {
		t.Parallel()
		server := &lock{}
		if err := clientOn(t, Config{Endpoint: "http://lakefs.test", AccessKeyID: credential.New("given"), SecretAccessKey: credential.New("given-secret")}, server).Ping(t.Context()); !errors.Is(err, txn.ErrUnauthorized) || len(server.seen) != 1 {
			t.Errorf("%v, %d requests", err, len(server.seen))
		}
	})
}

// TestKeysRotateUnderLoad: many callers and a key that changes again and again, in
// the order that docs/operations.md tells: no call fails.
func TestKeysRotateUnderLoad(t *testing.T) {
	t.Parallel()
	cfg, write := onFiles(t)
	var renewed atomic.Int32
	cfg.Renewed = func(credential.Shown) { renewed.Add(1) }
	server := &lock{keys: []string{"key-1:secret-1"}, good: func(r *http.Request) *http.Response {
		if r.Method == http.MethodPost {
			return reply(200, `{"reference":"`+string(id("c"))+`"}`)
		}
		return reply(200, `{"user":{"id":"me"}}`)
	}}
	client := clientOn(t, cfg, server)
	const rotations, callers, calls = 20, 20, 20
	pair := func(n int) (key, secret, both string) {
		key, secret = fmt.Sprintf("key-%d", n), fmt.Sprintf("secret-%d", n)
		return key, secret, key + ":" + secret
	}
	for n := 2; n < 2+rotations; n++ {
		// A rotation while they call, and the next one when all are through: a call
		// is made twice, not three times.
		var group sync.WaitGroup
		for i := range callers {
			group.Go(func() {
				for range calls {
					var err error
					if i%2 == 0 {
						err = client.Ping(t.Context())
					} else {
						_, err = client.Merge(t.Context(), txn.Merge{Repository: repo, Source: id("a"), Destination: main, Message: "m"})
					}
					if err != nil {
						t.Errorf("caller %d, rotation %d: %v", i, n, err)
					}
				}
			})
		}
		_, _, old := pair(n - 1)
		key, secret, made := pair(n)
		server.takes(old, made)
		write(key, secret)
		server.takes(made)
		group.Wait()
		if err := client.Ping(t.Context()); err != nil {
			t.Errorf("after rotation %d: %v", n, err)
		}
	}
	if got := renewed.Load(); got != rotations {
		t.Errorf("%d keys taken up in %d rotations", got, rotations)
	}
}
