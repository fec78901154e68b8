package conductor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/conductor-sdk/conductor-go/sdk/settings"
)

const (
	// maxBody is the most that is read of one answer, in bytes after
	// decompression. Conductor's own payload limit is 10 MiB for one task; a
	// workflow with all its tasks is the largest answer there is.
	maxBody = 64 << 20
	// maxErrorBody is the most that is read of a refusal.
	maxErrorBody = 64 << 10
	// maxDrain is how much of an answer that is no longer wanted is read so that
	// the connection can be used again; beyond it a new connection is cheaper.
	maxDrain = 1 << 20
)

// errTooLarge is an answer beyond the bound.
var errTooLarge = errors.New("the answer is larger than Perago reads")

// errNoToken tells the SDK to add no header: authentication is this package's
// RoundTripper's work, which has the request's context.
var errNoToken = errors.New("the token is added by the transport")

// installer is the SDK's TokenManager. The SDK builds its own http.Client, which
// cannot be given, but hands it to RefreshToken before each request: this is the
// one place to put our transport into it and to take out its timeout, so that
// deadlines come from the context, CONDUCTOR_CLIENT_HTTP_TIMEOUT has no say and
// faults injected at the transport act on the SDK's calls too.
type installer struct {
	once      sync.Once
	transport http.RoundTripper
}

// RefreshToken installs the transport; it never gives a token.
func (i *installer) RefreshToken(_ *settings.HttpSettings, sdk *http.Client) (string, error) {
	i.once.Do(func() {
		sdk.Transport = i.transport
		sdk.Timeout = 0
		sdk.CheckRedirect = keepRedirect
	})
	return "", errNoToken
}

// keepRedirect makes a redirect an answer like any other: followed, a POST would
// turn into a GET and a login page into a success.
func keepRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// transport is the one way to the server for the SDK's requests and ours.
type transport struct {
	base   http.RoundTripper
	tokens *tokens
	// limit is maxBody, less in tests.
	limit int64
}

type streamKey struct{}

// withStream marks a request whose answer is to be read as it comes, with no
// bound: only for a reader that keeps nothing of it.
func withStream(ctx context.Context) context.Context {
	return context.WithValue(ctx, streamKey{}, true)
}

// heldBody is an answer that has been read whole and is decoded by this package
// alone. To the SDK it reads as empty, which its decoder passes by: that decoder
// rounds integers above 2^53, and panics when something in between answers
// text/plain where a model is expected.
type heldBody struct{ raw []byte }

func (heldBody) Read([]byte) (int, error) { return 0, io.EOF }
func (heldBody) Close() error             { return nil }

// unsentError is a request that ended before it was sent.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// RoundTrip sends the request with the token. A 401 is a definite refusal, so
// the request is sent once more with a new token, whatever its method.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.authorised(request)
	if err != nil {
		return nil, err
	}
	streamed, _ := request.Context().Value(streamKey{}).(bool)
	if streamed && response.StatusCode == http.StatusOK {
		return response, nil
	}
	raw, err := readBounded(response, t.limit)
	if err != nil {
		return nil, err
	}
	response.Body = heldBody{raw}
	return response, nil
}

func (t *transport) authorised(request *http.Request) (*http.Response, error) {
	if t.tokens == nil {
		return t.base.RoundTrip(tidy(request, request.Body))
	}
	token, err := t.tokens.get(request.Context())
	if err != nil {
		closeBody(request)
		return nil, unsentError{err}
	}
	first := tidy(request, request.Body)
	first.Header.Set("X-Authorization", token)
	response, err := t.base.RoundTrip(first)
	if err != nil || response.StatusCode != http.StatusUnauthorized {
		return response, err
	}
	t.tokens.forget(token)
	body, err := bodyAgain(request)
	if err != nil {
		// It cannot be sent again; the refusal stands.
		return response, nil
	}
	discard(response)
	token, err = t.tokens.get(request.Context())
	if err != nil {
		if body != nil {
			_ = body.Close()
		}
		return nil, unsentError{err}
	}
	second := tidy(request, body)
	second.Header.Set("X-Authorization", token)
	return t.base.RoundTrip(second)
}

// tidy is a copy of the request that may be changed. The SDK sends each of its
// standing headers a second time and asks for gzip itself, which would switch
// the transport's own decompression off and leave the size of the decompressed
// answer without a bound.
func tidy(request *http.Request, body io.ReadCloser) *http.Request {
	copied := request.Clone(request.Context())
	copied.Body = body
	copied.Header.Del("Accept-Encoding")
	if values := copied.Header["Content-Type"]; len(values) > 1 {
		copied.Header["Content-Type"] = values[:1]
	}
	return copied
}

func bodyAgain(request *http.Request) (io.ReadCloser, error) {
	if request.Body == nil || request.Body == http.NoBody {
		return request.Body, nil
	}
	if request.GetBody == nil {
		return nil, errors.New("the body can be read once only")
	}
	return request.GetBody()
}

func closeBody(request *http.Request) {
	if request.Body != nil {
		_ = request.Body.Close()
	}
}

// readBounded reads and closes the body: of a success at most limit bytes, more
// is errTooLarge; of anything else the first maxErrorBody bytes.
func readBounded(response *http.Response, limit int64) ([]byte, error) {
	defer discard(response)
	if response.StatusCode >= 300 {
		// What matters is the status; a body that is cut short changes nothing.
		raw, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
		return raw, nil
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case int64(len(raw)) > limit:
		return nil, fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)
	}
	return raw, nil
}

func discard(response *http.Response) {
	_, _ = io.CopyN(io.Discard, response.Body, maxDrain)
	_ = response.Body.Close()
}
