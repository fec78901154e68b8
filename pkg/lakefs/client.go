package lakefs

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"perago/pkg/credential"
	"perago/pkg/txn"
)

// Client calls one lakeFS server with one key. It is safe for concurrent use.
type Client struct {
	// api is the base of every request, with a final slash; endpoint is for people.
	api, endpoint string
	transport     http.RoundTripper
	key           *credential.Pair
	redact        redaction
	// largest is how much of a success is read, in bytes, and repeats how often a
	// call that may be repeated is. Tests lower them.
	largest int64
	repeats int
	// The limits of Config.
	largestPut, largestUpload int64
}

// New makes a client and sends nothing. A nil transport is one that keeps many
// idle connections to the one host, because staging uploads many small files at
// once.
func New(cfg Config, transport http.RoundTripper) (*Client, error) {
	if err := errors.Join(cfg.Validate()...); err != nil {
		return nil, err
	}
	base, err := cfg.apiURL()
	if err != nil {
		return nil, err
	}
	if transport == nil {
		transport = defaultTransport()
	}
	c := &Client{
		api: base + "/", endpoint: strings.TrimSuffix(base, apiPath), transport: transport,
		largest: largestAnswer, repeats: mostRepeats,
		largestPut: cmp.Or(cfg.LargestPut, largestPut), largestUpload: cmp.Or(cfg.LargestUpload, largestUpload),
	}
	c.redact.add(credential.Shown{Key: cfg.AccessKeyID, Secret: cfg.SecretAccessKey})
	c.key = credential.NewPair(cfg.AccessKeyID, cfg.SecretAccessKey, func(now credential.Shown) {
		c.redact.add(now)
		if cfg.Renewed != nil {
			cfg.Renewed(now)
		}
	})
	return c, nil
}

func defaultTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns = 0
	t.MaxIdleConnsPerHost = 1024
	// The bytes and the length of an object are those that were published.
	t.DisableCompression = true
	t.WriteBufferSize = 64 << 10
	t.ReadBufferSize = 64 << 10
	return t
}

// Bounds of what is read of an answer, in bytes. The largest good one is a page
// of 1000 objects or commits with long names and much metadata.
const (
	largestAnswer  = 32 << 20
	largestRefusal = 1 << 20
)

// errTooLarge is not asked for again: it would be as large again.
var errTooLarge = errors.New("the answer is larger than Perago reads")

// call is one call of the API: what it is, how its answer is read, and what
// became of it. Each is for one do.
type call struct {
	operation operation
	// subject says in a conflict what conflicted with what.
	subject string
	// want is the status of success.
	want int
	// decode reads the body of a success; nil for an answer without a body. Its
	// error means that the answer does not say what it should.
	decode func(body []byte) error
	// stream hands the body of a success on unread, in body.
	stream bool
	// content is sent as the body of an upload.
	content *content

	client *Client
	// request is what every try sends a copy of.
	request *http.Request
	// header and body are those of a success, body of one that is streamed.
	header http.Header
	body   io.ReadCloser
	// accepted is set once a success has been read.
	accepted bool
	// last is the failure that led to the latest repeat, kept because the end of
	// the context may be all that the last try has to say.
	last *txn.ServerError
}

func (c *call) localFault() error {
	if c.content == nil {
		return nil
	}
	return c.content.fault()
}

// do makes a call with the request that one of the generated builders made, or
// could not make. After a 401 the key is read again from its files, and the call
// made once more if they hold another one: lakeFS refuses before it acts, so this
// is right for a merge as well.
func (c *Client) do(ctx context.Context, request *http.Request, err error, one *call) error {
	if err != nil {
		return c.redact.error(err)
	}
	one.client, one.request = c, request
	key := c.key.Current()
	err = one.result(one.send(ctx, key))
	var failed *txn.ServerError
	if !errors.As(err, &failed) || failed.Status != http.StatusUnauthorized {
		return err
	}
	key, other, unread := c.key.Renew(ctx, key)
	switch {
	case ctx.Err() != nil:
		return err
	case !other && unread != nil:
		failed.Hint = c.redact.text(unread.Error()) + "; " + failed.Hint
		return err
	case !other:
		return err
	}
	one.last = nil
	if one.content != nil {
		one.content = &content{Content: one.content.Content, form: one.content.form}
	}
	return one.result(one.send(ctx, key))
}

// send sends the call's request with a key, and again as its operation allows.
func (c *call) send(ctx context.Context, key credential.Shown) (*http.Response, error) {
	request := c.request.Clone(ctx)
	if request.GetBody != nil {
		// It is in memory, so this cannot fail.
		request.Body, _ = request.GetBody()
	}
	request.SetBasicAuth(key.Key.Reveal(), key.Secret.Reveal())
	request.Header.Set("User-Agent", "perago")
	client := httpClient(c.client.transport, c.stream)
	if repeated[c.operation] {
		return c.again(client, request)
	}
	// With GetBody set, net/http may send the request again by itself when a
	// kept connection turns out to be closed.
	request.GetBody = nil
	if err := ctx.Err(); err != nil {
		return nil, &neverSent{cause: err}
	}
	return client.Do(request)
}

// httpClient makes a client of net/http's. streams is as in patient.
func httpClient(transport http.RoundTripper, streams bool) *http.Client {
	return &http.Client{
		Transport: patient{transport, streams},
		// A redirect would send a second request, and the key to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// neverSent is a context that had ended before the call.
type neverSent struct{ cause error }

func (e *neverSent) Error() string { return "not sent: " + e.cause.Error() }
func (e *neverSent) Unwrap() error { return e.cause }

// result makes of what send returned nil, a *txn.ServerError, or the fault of the
// content.
func (c *call) result(response *http.Response, err error) error {
	var failed *txn.ServerError
	switch {
	case errors.As(err, &failed):
		return failed
	case err != nil:
		if fault := c.localFault(); fault != nil {
			return fault
		}
		return c.noAnswer(err)
	case c.accepted:
		// A content that grew after its announced size had been sent.
		return c.localFault()
	}
	return c.accept(response)
}

// accept reads an answer: nil when it is the success that was wanted, else a
// *txn.ServerError.
func (c *call) accept(response *http.Response) error {
	if response.StatusCode == c.want && c.stream {
		c.header, c.body, c.accepted = response.Header, response.Body, true
		return nil
	}
	limit := int64(largestRefusal)
	if response.StatusCode == c.want {
		limit = c.client.largest
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	_ = response.Body.Close()
	switch {
	case response.StatusCode != c.want:
		// A refusal that was cut short is read for what it holds.
		return c.answered(response, body[:min(int64(len(body)), limit)])
	case err != nil:
		return c.unreadable(response, body, fmt.Errorf("the answer was cut: %w", withoutURL(err)))
	case int64(len(body)) > limit:
		return c.unreadable(response, nil, fmt.Errorf("%w: more than %d bytes", errTooLarge, limit))
	case c.decode != nil:
		if err := c.decode(body); err != nil {
			return c.unreadable(response, body, err)
		}
	}
	c.header, c.accepted = response.Header, true
	return nil
}

// asJSON makes a decode function: the body is one JSON value, which check then
// looks at.
func asJSON[T any](check func(T) error) func([]byte) error {
	return func(body []byte) error {
		var value T
		if err := json.Unmarshal(body, &value); err != nil {
			return fmt.Errorf("not the JSON that lakeFS sends: %w", err)
		}
		return check(value)
	}
}

// redaction takes every key that a client has shown out of a text. It is safe for
// concurrent use.
type redaction struct {
	mutex sync.RWMutex
	// known are the forms of the keys, those of the newest first.
	known []redactor
}

// add makes a key known. The last few are kept: more than are in use while one
// replaces another.
func (r *redaction) add(key credential.Shown) {
	const keep = 4
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.known = slices.Insert(r.known, 0, newRedactor(key.Key.Reveal(), key.Secret.Reveal()))
	r.known = r.known[:min(len(r.known), keep)]
}

func (r *redaction) all() redactor {
	r.mutex.RLock()
	defer r.mutex.RUnlock()
	return slices.Concat(r.known...)
}

func (r *redaction) text(text string) string { return r.all().text(text) }
func (r *redaction) error(err error) error   { return r.all().error(err) }

// redactor takes credentials out of a text in every form they are sent or
// likely to be echoed in.
type redactor []string

func newRedactor(key, secret string) redactor {
	var all redactor
	for _, value := range []string{base64.StdEncoding.EncodeToString([]byte(key + ":" + secret)), secret, key} {
		all = append(all, credential.Forms(value)...)
	}
	return all
}

func (r redactor) text(text string) string {
	for _, secret := range r {
		text = strings.ReplaceAll(text, secret, credential.Redacted)
	}
	return text
}

// error hides the credentials in an error's text and leaves what errors.Is and
// errors.As find in it.
func (r redactor) error(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if clean := r.text(text); clean != text {
		return &redactedError{err: err, text: clean}
	}
	return err
}

type redactedError struct {
	err  error
	text string
}

// Not Unwrap: it would hand out the text that is hidden here.
func (e *redactedError) Error() string        { return e.text }
func (e *redactedError) Is(target error) bool { return errors.Is(e.err, target) }
func (e *redactedError) As(target any) bool   { return errors.As(e.err, target) }

// lakeFS's own rules for names. They are asked before a request is built: a
// branch named ".." would turn "delete the branch" into "delete the
// repository". Source: lakeFS 1.84.0, pkg/validator/validate.go.
var (
	repositoryName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{2,62}$`)
	branchName     = regexp.MustCompile(`^\w[-\w]*$`)
)

func checkRepository(name txn.Repository) error {
	if !repositoryName.MatchString(string(name)) {
		return fmt.Errorf("%q is not the name of a lakeFS repository (3 to 63 of a-z, 0-9 and -): %w", name, txn.ErrRefused)
	}
	return nil
}

func checkBranch(name txn.Branch) error {
	if !branchName.MatchString(string(name)) {
		return fmt.Errorf("%q is not the name of a lakeFS branch (letters, digits, - and _): %w", name, txn.ErrRefused)
	}
	return nil
}

func checkCommit(id txn.CommitID) error {
	if _, err := txn.ParseCommitID(string(id)); err != nil {
		return fmt.Errorf("%w: %w", err, txn.ErrRefused)
	}
	return nil
}

func unixTime(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }
