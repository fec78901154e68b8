package conductor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/conductor-sdk/conductor-go/sdk/client"
	"github.com/conductor-sdk/conductor-go/sdk/settings"

	"perago/pkg/txn"
)

// Client talks to one Conductor server. It is safe for concurrent use. It
// repeats nothing by itself except a call that was refused with 401, once, with a
// new token.
type Client struct {
	base      string
	tokens    *tokens
	http      *http.Client
	through   *transport
	tasks     *client.TaskResourceApiService
	workflows *client.WorkflowResourceApiService
}

// idleConnections are kept for the next calls: a worker polls several queues while
// the fences and heartbeats of its tasks read. The standard library keeps two.
const idleConnections = 64

// New makes a client and sends nothing. Every request goes through transport;
// nil means a transport of the client's own with the standard library's
// settings and more connections. The error joins the faults of the configuration.
func New(cfg Config, transportOfCaller http.RoundTripper) (*Client, error) {
	if faults := cfg.Validate(); len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	below := transportOfCaller
	if below == nil {
		standard, ok := http.DefaultTransport.(*http.Transport)
		if !ok {
			return nil, errors.New("http.DefaultTransport has been replaced; give a transport")
		}
		own := standard.Clone()
		own.MaxIdleConnsPerHost = idleConnections
		below = own
	}
	base := cfg.baseURL()
	c := &Client{base: base, tokens: newTokens(cfg, base, below)}
	c.through = &transport{base: below, tokens: c.tokens, limit: maxBody}
	c.http = &http.Client{Transport: c.through, CheckRedirect: keepRedirect}
	sdk := client.NewAPIClientWithTokenManager(nil, settings.NewHttpSettings(base), nil, &installer{transport: c.through})
	c.tasks = &client.TaskResourceApiService{APIClient: sdk}
	c.workflows = &client.WorkflowResourceApiService{APIClient: sdk}
	return c, nil
}

// CloseIdleConnections closes connections that wait for a next request.
func (c *Client) CloseIdleConnections() {
	if closer, ok := c.through.base.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// Ping asks for something cheap that needs the API and, where the server asks
// for them, credentials: nil means that both are right now.
func (c *Client) Ping(ctx context.Context) error {
	call := c.call(http.MethodGet, "/tasks/queue/sizes", effectNone)
	raw, err := c.send(ctx, call, url.Values{"taskType": {"perago_ping"}}, nil)
	if err != nil {
		return err
	}
	var sizes map[string]json.Number
	if err := json.Unmarshal(raw, &sizes); err != nil {
		return call.malformed(http.StatusOK, nil, raw, "not a table of queue sizes")
	}
	return nil
}

// call names a request for its errors.
func (c *Client) call(method, path string, effect effect) call {
	return call{method: method, path: path, effect: effect, base: c.base, redact: c.tokens.redact}
}

// send is one small request of this package's own. The answer is the body of a
// success; nil when it was empty.
func (c *Client) send(ctx context.Context, call call, query url.Values, body []byte) ([]byte, error) {
	response, err := c.do(ctx, call, query, body)
	return call.settle(response, err)
}

// do builds and sends a request.
func (c *Client) do(ctx context.Context, call call, query url.Values, body []byte) (*http.Response, error) {
	address := c.base + call.path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, call.method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json, text/plain")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	return c.http.Do(request)
}

// settle turns what http.Client.Do, or the SDK around it, returned into the
// body of a success, nil where it has none, or a *txn.ServerError. The SDK's own
// error about an answer is not used: it is made from the same bytes.
func (c call) settle(response *http.Response, err error) ([]byte, error) {
	if response == nil {
		if _, sent := errors.AsType[*url.Error](err); !sent {
			return nil, c.notSent(err, nil, "")
		}
		return nil, c.noAnswer(err)
	}
	held, ok := response.Body.(heldBody)
	if !ok {
		// The SDK would have to send past the transport it was given.
		_ = response.Body.Close()
		return nil, c.malformed(response.StatusCode, response.Header, nil, fmt.Sprintf("an answer that came past this client's transport (%T)", response.Body))
	}
	if response.StatusCode >= 300 {
		return nil, c.answered(response.StatusCode, response.Header, held.raw)
	}
	if looksLikeHTML(response.Header, held.raw) {
		return nil, c.malformed(response.StatusCode, response.Header, held.raw, "")
	}
	if len(held.raw) == 0 {
		if c.effect == effectNone && response.StatusCode != http.StatusNoContent {
			// Only 204 says that there is nothing. Taken for "no such task", a body
			// that got lost would end a live attempt.
			return nil, c.malformed(response.StatusCode, response.Header, nil, "an answer without its body")
		}
		return nil, nil
	}
	return held.raw, nil
}

// segment escapes an identifier for one segment of a path. The SDK puts its
// arguments into the path as they are.
func segment[T ~string](id T) string { return url.PathEscape(string(id)) }

// missing is an answer without content where one was asked for by its id.
func (c call) missing(status int) *txn.ServerError {
	return c.fault(status, txn.ErrRefused, txn.ErrNotFound, "no content", "")
}
