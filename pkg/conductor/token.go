package conductor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"perago/pkg/credential"
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
	key       *credential.Pair

	mutex   sync.Mutex
	current string
	// refused is set when the server refuses a token; the next one is asked with
	// what the key's files hold then.
	refused bool
	// flight is the request for a token that is under way. It begins under the
	// mutex, and ends under it.
	flight singleflight.Group
	// shown are the keys and tokens that were sent, each in all its forms, for
	// redaction: a server may echo what it refuses.
	shown [][]string
}

// newTokens is nil for a server without authentication.
func newTokens(cfg Config, base string, transport http.RoundTripper) *tokens {
	if cfg.AuthKey.IsZero() {
		return nil
	}
	return &tokens{base: base, transport: transport, key: credential.NewPair(cfg.AuthKey, cfg.AuthSecret, cfg.Renewed)}
}

// get is the token to send now. Its error is a *txn.ServerError of the token
// request, or the context's.
func (t *tokens) get(ctx context.Context) (string, error) {
	t.mutex.Lock()
	if t.current != "" {
		defer t.mutex.Unlock()
		return t.current, nil
	}
	// Detached from this caller, whose end must not fail the others.
	flight := t.flight.DoChan("", func() (any, error) { return t.fly(context.WithoutCancel(ctx)) })
	t.mutex.Unlock()
	select {
	case landed := <-flight:
		token, _ := landed.Val.(string)
		return token, landed.Err
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
		t.current, t.refused = "", true
	}
}

// redact takes every key and token this client has sent out of a text.
func (t *tokens) redact(text string) string {
	if t == nil {
		return text
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, forms := range t.shown {
		for _, form := range forms {
			text = strings.ReplaceAll(text, form, credential.Redacted)
		}
	}
	return text
}

func (t *tokens) fly(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	token, err := t.ask(ctx)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.current = token
	t.flight.Forget("")
	return token, err
}

// ask gets a token. The key's files are read again when a token was refused, and
// when the key itself is; a key that was just read is not asked with twice.
func (t *tokens) ask(ctx context.Context) (string, error) {
	t.mutex.Lock()
	reread := t.refused
	t.refused = false
	t.mutex.Unlock()
	key := t.key.Current()
	var unread error
	if reread {
		key, _, unread = t.key.Renew(ctx, key)
	}
	token, err := t.request(ctx, key)
	if keyRefused(err) && !reread {
		var other bool
		if key, other, unread = t.key.Renew(ctx, key); other {
			token, err = t.request(ctx, key)
		}
	}
	var failed *txn.ServerError
	if unread != nil && errors.As(err, &failed) {
		failed.Hint = t.redact(unread.Error()) + "; " + failed.Hint
	}
	return token, err
}

// keyRefused reports an answer of the token's endpoint that may be about the key.
// Servers agree neither on its status nor on its form, and to read the key's files
// again harms nothing.
func keyRefused(err error) bool {
	var failed *txn.ServerError
	if !errors.As(err, &failed) || failed.Status/100 != 4 {
		return false
	}
	switch failed.Status {
	case http.StatusNotFound, http.StatusRequestTimeout, http.StatusLocked, http.StatusTooManyRequests:
		return false
	}
	return true
}

// request asks for a token once.
func (t *tokens) request(ctx context.Context, key credential.Shown) (string, error) {
	call := call{method: http.MethodPost, path: "/token", effect: effectNone, redact: t.redact, base: t.base}
	const hint = "check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET"
	t.remember(key.Key.Reveal())
	t.remember(key.Secret.Reveal())
	body, err := json.Marshal(map[string]string{"keyId": key.Key.Reveal(), "keySecret": key.Secret.Reveal()})
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

// shortestKey keeps an id such as "a" from tearing up every text.
const shortestKey = 4

// remember keeps what was sent last for redaction: more than are in use while one
// replaces another.
func (t *tokens) remember(sent string) {
	if len(sent) < shortestKey {
		return
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, known := range t.shown {
		if slices.Contains(known, sent) {
			return
		}
	}
	const keep = 12
	t.shown = append(t.shown, credential.Forms(sent))
	if len(t.shown) > keep {
		t.shown = t.shown[len(t.shown)-keep:]
	}
}
