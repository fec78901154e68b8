package conductor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/credential"
	"perago/pkg/txn"
)

// guarded is a server that asks for a token. Tokens are token-1, token-2, ...;
// each is good until revoke.
type guarded struct {
	// inside answers requests that carry a good token.
	inside http.HandlerFunc
	// mint answers a request for a token instead of giving one, unless nil.
	mint http.HandlerFunc
	// reflect is how long the next refusals take; the last one holds for all that
	// follow.
	reflect []time.Duration
	// wait is how long a request for a token takes.
	wait time.Duration

	mutex  sync.Mutex
	valid  string
	minted int
	// secrets are the secrets that tokens were asked with.
	secrets []string
	// tokens are the tokens of all other requests, "" for none.
	tokens []string
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && r.URL.Path == "/api/token" {
		g.serveToken(w, r)
		return
	}
	g.mutex.Lock()
	token := r.Header.Get("X-Authorization")
	g.tokens = append(g.tokens, token)
	good := token != "" && token == g.valid
	var pause time.Duration
	if !good && len(g.reflect) > 0 {
		pause = g.reflect[0]
		if len(g.reflect) > 1 {
			g.reflect = g.reflect[1:]
		}
	}
	g.mutex.Unlock()
	if !good {
		time.Sleep(pause) // virtual where it is set
		respond(401, "application/json", `{"status":401,"message":"token `+token+` has expired"}`)(w, r)
		return
	}
	g.inside(w, r)
}

func (g *guarded) serveToken(w http.ResponseWriter, r *http.Request) {
	var asked map[string]string
	err := json.NewDecoder(r.Body).Decode(&asked)
	if g.wait > 0 {
		select {
		case <-time.After(g.wait):
		case <-r.Context().Done():
			return
		}
	}
	g.mutex.Lock()
	g.minted++
	g.secrets = append(g.secrets, asked["keySecret"])
	token := fmt.Sprintf("token-%d", g.minted)
	if g.mint == nil {
		g.valid = token
	}
	g.mutex.Unlock()
	switch {
	case err != nil || asked["keyId"] != key:
		respond(400, "application/json", own(400, "bad request for a token"))(w, r)
	case g.mint != nil:
		g.mint(w, r)
	default:
		respond(200, "application/json", `{"token":"`+token+`"}`)(w, r)
	}
}

func (g *guarded) revoke() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.valid = ""
}

func (g *guarded) client(t testing.TB) *conductor.Client {
	return newClientOn(t, conductor.Config{ServerURL: address, AuthKey: credential.New(key), AuthSecret: credential.New(secret)}, conductortest.Transport(g))
}

// in calls from many goroutines at once.
func in(goroutines int, call func(int) error) []error {
	errs := make([]error, goroutines)
	var group sync.WaitGroup
	for i := range goroutines {
		group.Go(func() { errs[i] = call(i) })
	}
	group.Wait()
	return errs
}

// sizes answers Ping and remembers nothing.
func sizes(w http.ResponseWriter, r *http.Request) { respond(200, "application/json", "{}")(w, r) }

func TestTokenSingleFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &guarded{inside: sizes, wait: time.Second, reflect: []time.Duration{time.Second}}
		client := server.client(t)
		for i, err := range in(20, func(int) error { return client.Ping(t.Context()) }) {
			if err != nil {
				t.Errorf("caller %d: %v", i, err)
			}
		}
		if server.minted != 1 {
			t.Errorf("%d tokens were asked for, want 1", server.minted)
		}
		// All at once find it refused: one new token, and one replay each.
		server.revoke()
		server.tokens = nil
		for i, err := range in(20, func(int) error { return client.Ping(t.Context()) }) {
			if err != nil {
				t.Errorf("caller %d after the 401: %v", i, err)
			}
		}
		if server.minted != 2 {
			t.Errorf("%d tokens were asked for, want 2", server.minted)
		}
		if len(server.tokens) != 40 {
			t.Errorf("%d requests, want 20 refused and 20 replayed", len(server.tokens))
		}
	})
}

// TestLateRefusal: the refusal of an old token that arrives when there is already
// a new one does not cost the new one.
func TestLateRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &guarded{inside: sizes, wait: time.Second, reflect: []time.Duration{time.Second, 10 * time.Second}}
		client := server.client(t)
		if err := client.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		server.revoke()
		// Both send the old token at once; one is refused after a second, the other
		// when the first has long had a new one.
		for i, err := range in(2, func(int) error { return client.Ping(t.Context()) }) {
			if err != nil {
				t.Errorf("caller %d: %v", i, err)
			}
		}
		if server.minted != 2 {
			t.Errorf("%d tokens were asked for, want 2", server.minted)
		}
	})
}

// TestReplay: a request that was refused with 401 goes out again whole, whichever
// client built it.
func TestReplay(t *testing.T) {
	t.Parallel()
	for _, call := range calls {
		t.Run(call.name, func(t *testing.T) {
			t.Parallel()
			var bodies []string
			server := &guarded{}
			server.inside = func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				bodies = append(bodies, string(body))
				respond(409, "application/json", own(409, "enough"))(w, r)
			}
			client := server.client(t)
			if err := call.call(t.Context(), client); !errors.Is(err, txn.ErrConflict) {
				t.Fatalf("got %v", err)
			}
			server.revoke()
			if err := call.call(t.Context(), client); !errors.Is(err, txn.ErrConflict) {
				t.Fatalf("after the 401: got %v", err)
			}
			if diff := cmp.Diff([]string{"token-1", "token-1", "token-2"}, server.tokens); diff != "" {
				t.Errorf("tokens (-want +got):\n%s", diff)
			}
			if len(bodies) != 2 || bodies[0] != bodies[1] {
				t.Errorf("bodies %q, want the same twice", bodies)
			}
		})
	}
}

// TestRefusedForGood: a new token is tried once.
func TestRefusedForGood(t *testing.T) {
	t.Parallel()
	server := &guarded{mint: respond(200, "application/json", `{"token":"of-no-use"}`)}
	client := server.client(t)
	err := client.Ping(t.Context())
	if !errors.Is(err, txn.ErrUnauthorized) || !errors.Is(err, txn.ErrRefused) {
		t.Errorf("got %v, want ErrUnauthorized", err)
	}
	if diff := cmp.Diff([]string{"of-no-use", "of-no-use"}, server.tokens); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
	if server.minted != 2 {
		t.Errorf("%d tokens were asked for, want 2", server.minted)
	}
	// The server echoes the token it refuses.
	if text := fmt.Sprintf("%v %+v", err, err); strings.Contains(text, "of-no-use") {
		t.Errorf("the token is in %q", text)
	}
}

// TestTokenRefused: what the token's endpoint says is the error of every call,
// and none of them was sent.
func TestTokenRefused(t *testing.T) {
	t.Parallel()
	const echoed = key + " with " + secret + " is not known here"
	for _, row := range []struct {
		name  string
		mint  http.HandlerFunc
		class error
		kind  error
		text  string
	}{
		{"401", respond(401, "application/json", own(401, echoed)), txn.ErrRefused, txn.ErrUnauthorized, "check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET"},
		{"403", respond(403, "application/json", own(403, echoed)), txn.ErrRefused, txn.ErrForbidden, "check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET"},
		{"400", respond(400, "application/json", own(400, echoed)), txn.ErrRefused, nil, "check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET"},
		{"404", respond(404, "application/json", `{"status":404,"error":"Not Found","path":"/api/token"}`), txn.ErrRetryable, nil, "unset CONDUCTOR_AUTH_KEY"},
		{"403 of a gateway", respond(403, "text/html", "<html>"+echoed), txn.ErrRetryable, nil, "check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET"},
		{"500", respond(500, "application/json", own(500, echoed)), txn.ErrRetryable, nil, "500"},
		{"no token", respond(200, "application/json", `{"expires":7}`), txn.ErrRetryable, nil, "no token in the answer"},
		{"HTML", respond(200, "text/html", `<html>`+secret), txn.ErrRetryable, nil, "HTML"},
	} {
		t.Run(strings.ReplaceAll(row.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			for _, call := range calls {
				server := &guarded{mint: row.mint}
				err := call.call(t.Context(), server.client(t))
				if !errors.Is(err, row.class) || (row.kind != nil && !errors.Is(err, row.kind)) {
					t.Errorf("%s: got %v, want %v, %v", call.name, err, row.class, row.kind)
				}
				if !strings.Contains(err.Error(), row.text) || !strings.Contains(err.Error(), "POST /token") {
					t.Errorf("%s: %q does not hold %q and the token's request", call.name, err, row.text)
				}
				if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, secret) {
					t.Errorf("%s: the secret is in %q", call.name, text)
				}
				if len(server.tokens) != 0 || server.minted != 1 {
					t.Errorf("%s: %d requests and %d for a token, want none and 1", call.name, len(server.tokens), server.minted)
				}
			}
		})
	}
}

// TestTokenFailureIsShared: a slow and failing token endpoint is asked once for
// all who wait.
func TestTokenFailureIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &guarded{wait: time.Second, mint: respond(503, "", "")}
		client := server.client(t)
		for i, err := range in(20, func(int) error { return client.Ping(t.Context()) }) {
			if !errors.Is(err, txn.ErrRetryable) {
				t.Errorf("caller %d: got %v", i, err)
			}
		}
		if server.minted != 1 {
			t.Errorf("%d tokens were asked for, want 1", server.minted)
		}
		// The failure is not kept.
		server.mint, server.inside = nil, sizes
		if err := client.Ping(t.Context()); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// TestCallerLeavesWhileTokenIsAsked: its end is its own.
func TestCallerLeavesWhileTokenIsAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &guarded{inside: sizes, wait: 10 * time.Second}
		client := server.client(t)
		errs := in(2, func(i int) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i*60)*time.Second)
			defer cancel()
			if i == 1 {
				time.Sleep(time.Millisecond) // virtual: the other one asks first
			}
			_, err := client.StartWorkflow(ctx, conductor.StartRequest{Name: "w"})
			return err
		})
		// Nothing was sent, so its outcome is known.
		if !errors.Is(errs[0], context.DeadlineExceeded) || !errors.Is(errs[0], txn.ErrRetryable) || errors.Is(errs[0], txn.ErrUnknownOutcome) {
			t.Errorf("the one that left: %v", errs[0])
		}
		if errors.Is(errs[1], context.DeadlineExceeded) || len(server.tokens) != 1 {
			t.Errorf("the one that stayed: %v, %d requests", errs[1], len(server.tokens))
		}
		if server.minted != 1 {
			t.Errorf("%d tokens were asked for, want 1", server.minted)
		}
	})
}

// TestTokenEndpointThatHangs is given up by itself.
func TestTokenEndpointThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &guarded{wait: time.Hour}
		begun := time.Now()
		if err := server.client(t).Ping(t.Context()); !errors.Is(err, txn.ErrRetryable) {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(begun); waited != 30*time.Second {
			t.Errorf("gave up after %v, want 30 s", waited)
		}
	})
}

// A server repeats what it refuses in whichever way it writes texts: the token, and
// the key and the secret that a token is asked with. None of it is in an error.
func TestRefusalsRepeatNoKeyInAnyForm(t *testing.T) {
	t.Parallel()
	const odd = `"&<>'\/+%41 =ö`
	cfg := conductor.Config{ServerURL: address, AuthKey: credential.New("key-of-test " + odd), AuthSecret: credential.New("secret-of-test " + odd)}
	token := "token-of-test" + strings.TrimSuffix(odd, "ö")
	for _, refusesToken := range []bool{true, false} {
		repeat := func(w http.ResponseWriter, text string) {
			quoted, err := json.Marshal(text)
			if err != nil {
				t.Error(err)
			}
			http.Error(w, strings.Join([]string{text, string(quoted), fmt.Sprintf("%q", text), url.QueryEscape(text), url.PathEscape(text), html.EscapeString(text)}, "\n"), http.StatusBadRequest)
		}
		client := newClientOn(t, cfg, conductortest.Transport(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case !strings.HasSuffix(r.URL.Path, "/token"):
				repeat(w, r.Header.Get("X-Authorization"))
			case refusesToken:
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				repeat(w, string(body))
			default:
				w.Header().Set("Content-Type", "application/json")
				if err := json.NewEncoder(w).Encode(map[string]string{"token": token}); err != nil {
					t.Error(err)
				}
			}
		})))
		for _, call := range calls {
			err := call.call(t.Context(), client)
			if err == nil {
				t.Fatalf("%s was not refused", call.name)
			}
			text := fmt.Sprintf("%v %+v", err, err)
			for _, sent := range []string{"key-of-test", "secret-of-test", "token-of-test"} {
				if strings.Contains(text, sent) {
					t.Errorf("%s: %s is in %q", call.name, sent, text)
				}
			}
			if !strings.Contains(text, credential.Redacted) {
				t.Errorf("%s: nothing was repeated: %q", call.name, text)
			}
		}
	}
}
