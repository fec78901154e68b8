package conductor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/credential"
	"perago/pkg/txn"
)

// issuer is a server that gives tokens to whoever has one of its keys, and takes
// those it gave for the keys it has now. A token is good for lifetime requests, or
// without end.
type issuer struct {
	lifetime int

	mutex sync.Mutex
	keys  []string
	// left is how many requests a token is still good for.
	left map[string]int
	// asked are the keys that tokens were asked with.
	asked []string
}

func (s *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if r.URL.Path == "/api/token" {
		var body struct{ KeyID, KeySecret string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		key := body.KeyID + ":" + body.KeySecret
		s.asked = append(s.asked, key)
		if !slices.Contains(s.keys, key) {
			respond(401, "application/json", `{"status":401,"message":"`+key+` is not known here"}`)(w, r)
			return
		}
		token := fmt.Sprintf("%s#%d", key, len(s.asked))
		if s.left == nil {
			s.left = map[string]int{}
		}
		s.left[token] = s.lifetime
		respond(200, "application/json", `{"token":"`+token+`"}`)(w, r)
		return
	}
	token := r.Header.Get("X-Authorization")
	key, _, _ := strings.Cut(token, "#")
	left, given := s.left[token]
	if !given || !slices.Contains(s.keys, key) || (s.lifetime > 0 && left == 0) {
		respond(401, "application/json", `{"status":401,"message":"token `+token+` has expired"}`)(w, r)
		return
	}
	s.left[token] = left - 1
	respond(200, "application/json", "{}")(w, r)
}

func (s *issuer) takes(keys ...string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.keys = keys
}

func (s *issuer) tokens() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.asked)
}

// onFiles is a configuration whose access key stands in two files, which write
// writes.
func onFiles(t testing.TB) (cfg conductor.Config, write func(key, secret string)) {
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
		value, err := credential.Read(variable, filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	return conductor.Config{ServerURL: address, AuthKey: read("CONDUCTOR_AUTH_KEY_FILE", "key"), AuthSecret: read("CONDUCTOR_AUTH_SECRET_FILE", "secret")}, write
}

// TestRenewedKey: what the files hold is taken up when a token is refused and when
// the key is, and each call that met the change succeeds.
func TestRenewedKey(t *testing.T) {
	t.Parallel()
	cfg, write := onFiles(t)
	var told []string
	cfg.Renewed = func(now credential.Shown) { told = append(told, now.Key.Reveal()+":"+now.Secret.Reveal()) }
	server := &issuer{keys: []string{"key-2:secret-2"}}
	client := newClientOn(t, cfg, conductortest.Transport(server))
	// The first token is refused, because the files changed since they were read.
	write("key-2", "secret-2\n")
	if err := client.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A token is refused, and the secret is new by then.
	write("key-2", "secret-3")
	server.takes("key-2:secret-3")
	if err := client.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"key-1:secret-1", "key-2:secret-2", "key-2:secret-3"}, server.asked); diff != "" {
		t.Errorf("asked with (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"key-2:secret-2", "key-2:secret-3"}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// TestRefusedKey: a refusal stands when the files hold nothing better, and names a
// file that cannot be read. No key is asked with twice for one call, and none of
// them is in the error.
func TestRefusedKey(t *testing.T) {
	t.Parallel()
	const check = "(check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET)"
	for name, c := range map[string]struct {
		key, secret string
		asked       int
		hint        string
	}{
		"the same":          {"key-1", "secret-1", 1, check},
		"another of no use": {"key-2", "secret-2", 2, check},
		"half written":      {"key-2", "", 1, "(CONDUCTOR_AUTH_SECRET_FILE names an empty file; check CONDUCTOR_AUTH_KEY"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, write := onFiles(t)
			server := &issuer{}
			client := newClientOn(t, cfg, conductortest.Transport(server))
			write(c.key, c.secret)
			err := client.Update(t.Context(), txn.TaskResult{Task: "t", Workflow: "w", Worker: "x", Status: txn.TaskCompleted})
			if !errors.Is(err, txn.ErrUnauthorized) || !errors.Is(err, txn.ErrRefused) || !strings.Contains(err.Error(), c.hint) {
				t.Errorf("%v, want %s", err, c.hint)
			}
			for _, secret := range []string{"secret-1", "secret-2"} {
				if strings.Contains(fmt.Sprintf("%v %+v", err, err), secret) {
					t.Errorf("%q holds %s", err, secret)
				}
			}
			if len(server.asked) != c.asked {
				t.Errorf("asked with %q, want %d", server.asked, c.asked)
			}
		})
	}
}

// TestKeysThatChangeWithEachRefusal: two of them are tried for a call, and no more.
func TestKeysThatChangeWithEachRefusal(t *testing.T) {
	t.Parallel()
	cfg, write := onFiles(t)
	server, refusals := &issuer{}, 0
	client := newClientOn(t, cfg, conductortest.Transport(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refusals++
		write(fmt.Sprintf("key-%d", refusals+1), fmt.Sprintf("secret-%d", refusals+1))
		server.ServeHTTP(w, r)
	})))
	if err := client.Ping(t.Context()); !errors.Is(err, txn.ErrUnauthorized) || refusals != 2 {
		t.Errorf("%v, %d requests, want 2", err, refusals)
	}
}

// TestFilesRemoved: a file that is gone takes nothing away from a key that is
// still good.
func TestFilesRemoved(t *testing.T) {
	t.Parallel()
	cfg, write := onFiles(t)
	server := &issuer{keys: []string{"key-1:secret-1"}, lifetime: 1}
	client := newClientOn(t, cfg, conductortest.Transport(server))
	write("", "")
	for range 3 {
		if err := client.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(server.asked) != 3 {
		t.Errorf("%d tokens, want 3", len(server.asked))
	}
}

// TestTokensThatExpire: twenty callers, and a token that is good for ten requests.
// Whoever meets its end asks once and goes on; no update is lost to it, and nobody
// asks on behalf of a token that another has replaced.
func TestTokensThatExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &issuer{keys: []string{key + ":" + secret}, lifetime: 10}
		client := newClientOn(t, conductor.Config{ServerURL: address, AuthKey: credential.New(key), AuthSecret: credential.New(secret)}, conductortest.Transport(server))
		const callers, rounds = 20, 30
		for i, err := range in(callers, func(i int) error {
			for range rounds {
				// A caller at a time: twenty at once would use up the token that
				// the one of them asked for.
				time.Sleep(time.Duration(1+i) * time.Millisecond)
				if err := client.Update(t.Context(), txn.TaskResult{Task: "t", Workflow: "w", Worker: "x", Status: txn.TaskCompleted}); err != nil {
					return err
				}
			}
			return nil
		}) {
			if err != nil {
				t.Errorf("caller %d: %v", i, err)
			}
		}
		if want := callers * rounds / 10; server.tokens() < want || server.tokens() > 2*want {
			t.Errorf("%d tokens for %d requests, want about %d", server.tokens(), callers*rounds, want)
		}
	})
}

// TestKeysRotateUnderLoad: many callers and a key that changes again and again, in
// the order that docs/operations.md tells: no call fails, and each rotation costs
// one token.
func TestKeysRotateUnderLoad(t *testing.T) {
	t.Parallel()
	cfg, write := onFiles(t)
	var renewed atomic.Int32
	cfg.Renewed = func(credential.Shown) { renewed.Add(1) }
	server := &issuer{keys: []string{"key-1:secret-1"}}
	client := newClientOn(t, cfg, conductortest.Transport(server))
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
					if err := client.Ping(t.Context()); err != nil {
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
	if got := server.tokens(); got != 1+rotations {
		t.Errorf("%d tokens in %d rotations", got, rotations)
	}
}
