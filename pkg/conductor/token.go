package conductor

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"perago/pkg/txn"
)

// tokenTimeout bounds one request for a token. It is not the caller's deadline,
// because one request serves every caller that waits for it.
const tokenTimeout = 30 * time.Second

// tokens hands out the access token. It asks for one at a time however many
// callers wait, keeps it until the server refuses it, and shares a failure among
// those who waited for it, so that a slow or broken token endpoint is not asked
// once for each slot.
type tokens struct {
	base      string
	transport http.RoundTripper
	key       string
	secret    func() (string, error)

	mutex   sync.Mutex
	current string
	flight  *tokenFlight
	// shown are the secrets and tokens that were sent, for redaction: a server
	// may echo what it refuses.
	shown []string
}

// tokenFlight is one request for a token and what came of it.
type tokenFlight struct {
	done  chan struct{}
	token string
	err   error
}

// newTokens is nil for a server without authentication.
func newTokens(cfg Config, base string, transport http.RoundTripper) *tokens {
	if cfg.AuthKey == "" {
		return nil
	}
	return &tokens{base: base, transport: transport, key: cfg.AuthKey, secret: cfg.readSecret}
}

// get is the token to send now. Its error is a *txn.ServerError of the token
// request, or the context's.
func (t *tokens) get(ctx context.Context) (string, error) {
	t.mutex.Lock()
	if t.current != "" {
		defer t.mutex.Unlock()
		return t.current, nil
	}
	flight := t.flight
	if flight == nil {
		flight = &tokenFlight{done: make(chan struct{})}
		t.flight = flight
		// Detached from this caller, whose end must not fail the others.
		go t.fly(context.WithoutCancel(ctx), flight)
	}
	t.mutex.Unlock()
	select {
	case <-flight.done:
		return flight.token, flight.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// forget drops the token that the server refused, unless another caller has
// already put a new one in its place.
func (t *tokens) forget(refused string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.current == refused {
		t.current = ""
	}
}

// redact takes every secret and token this client has sent out of a text.
func (t *tokens) redact(text string) string {
	if t == nil {
		return text
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, secret := range t.shown {
		text = strings.ReplaceAll(text, secret, redacted)
	}
	return text
}

func (t *tokens) fly(ctx context.Context, flight *tokenFlight) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	flight.token, flight.err = t.ask(ctx)
	t.mutex.Lock()
	t.flight = nil
	t.current = flight.token
	t.mutex.Unlock()
	close(flight.done)
}

func (t *tokens) ask(ctx context.Context) (string, error) {
	call := call{method: http.MethodPost, path: "/token", effect: effectNone, redact: t.redact, base: t.base}
	const hint = "check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET"
	secret, err := t.secret()
	if err != nil {
		return "", call.notSent(err, txn.ErrUnauthorized, "")
	}
	t.remember(secret)
	body, err := json.Marshal(map[string]string{"keyId": t.key, "keySecret": secret})
	if err != nil {
		return "", call.notSent(err, nil, "")
	}
	request, err := http.NewRequestWithContext(ctx, call.method, t.base+call.path, bytes.NewReader(body))
	if err != nil {
		return "", call.notSent(err, nil, "")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	response, err := t.transport.RoundTrip(request)
	if err != nil {
		return "", call.noAnswer(err)
	}
	raw, err := readBounded(response, maxErrorBody)
	if err != nil {
		return "", call.noAnswer(err)
	}
	switch {
	case response.StatusCode == http.StatusNotFound:
		fault := call.answered(response.StatusCode, response.Header, raw)
		fault.Hint = "this server has no token endpoint; unset CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET if it asks for no credentials, else check CONDUCTOR_SERVER_URL"
		return "", fault
	case response.StatusCode >= 300:
		fault := call.answered(response.StatusCode, response.Header, raw)
		if response.StatusCode < 500 {
			fault.Hint = hint
		}
		return "", fault
	}
	var answer struct {
		Token string `json:"token"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil || answer.Token == "" {
		return "", call.malformed(response.StatusCode, response.Header, raw, "no token in the answer")
	}
	t.remember(answer.Token)
	return answer.Token, nil
}

// remember keeps the last few secrets for redaction: more than are in use while
// one replaces another.
func (t *tokens) remember(secret string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, known := range t.shown {
		if known == secret {
			return
		}
	}
	const keep = 8
	t.shown = append(t.shown, secret)
	if len(t.shown) > keep {
		t.shown = t.shown[len(t.shown)-keep:]
	}
}
