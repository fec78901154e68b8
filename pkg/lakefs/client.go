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

	"github.com/hashicorp/go-retryablehttp"
	"github.com/treeverse/lakefs/pkg/api/apigen"

	"perago/pkg/credential"
	"perago/pkg/txn"
)

// Client calls one lakeFS server with one key. It is safe for concurrent use.
type Client struct {
	api    *apigen.Client
	sender *sender
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
	client := &http.Client{
		Transport: patient{transport},
		// A redirect would send a second request, and the key to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s := &sender{
		plain: client, repeating: newRepeater(client),
		endpoint: strings.TrimSuffix(base, apiPath),
		largest:  largestAnswer,
	}
	s.redact.add(credential.Shown{Key: cfg.AccessKeyID, Secret: cfg.SecretAccessKey})
	s.key = credential.NewPair(cfg.AccessKeyID, cfg.SecretAccessKey, func(now credential.Shown) {
		s.redact.add(now)
		if cfg.Renewed != nil {
			cfg.Renewed(now)
		}
	})
	api, err := apigen.NewClient(base, func(c *apigen.Client) error { c.Client = s; return nil })
	if err != nil {
		return nil, s.redact.error(err)
	}
	return &Client{
		api: api, sender: s,
		largestPut: cmp.Or(cfg.LargestPut, largestPut), largestUpload: cmp.Or(cfg.LargestUpload, largestUpload),
	}, nil
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
// became of it. It travels in the request's context. Only the goroutine that
// makes the call touches it, except for the fault of a content's reader.
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

	sender *sender
	// key is the one that this try is sent with.
	key    credential.Shown
	method string
	path   string
	body   io.ReadCloser
	// accepted is set once a success has been read.
	accepted bool
	// last is the failure that led to the latest repeat, kept because the end of
	// the context may be all that the last try has to say.
	last *txn.ServerError
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

func (c *call) localFault() error {
	if c.content == nil {
		return nil
	}
	return c.content.fault()
}

// do makes a call. send is the generated client's method, bound to its
// arguments. After a 401 the key is read again from its files, and the call made
// once more if they hold another one: lakeFS refuses before it acts, so this is
// right for a merge as well.
func (c *Client) do(ctx context.Context, one *call, send func(context.Context) (*http.Response, error)) error {
	one.sender, one.key = c.sender, c.sender.key.Current()
	err := c.send(ctx, one, send)
	var failed *txn.ServerError
	if !errors.As(err, &failed) || failed.Status != http.StatusUnauthorized {
		return err
	}
	key, other, unread := c.sender.key.Renew(ctx, one.key)
	switch {
	case ctx.Err() != nil:
		return err
	case !other && unread != nil:
		failed.Hint = c.sender.redact.text(unread.Error()) + "; " + failed.Hint
		return err
	case !other:
		return err
	}
	one.key, one.last = key, nil
	if one.content != nil {
		one.content = &content{Content: one.content.Content, form: one.content.form}
	}
	return c.send(ctx, one, send)
}

// send makes a call once, with the repeats that its operation allows.
func (c *Client) send(ctx context.Context, one *call, send func(context.Context) (*http.Response, error)) error {
	response, err := send(context.WithValue(ctx, callKey{}, one))
	var failed *txn.ServerError
	switch {
	case errors.As(err, &failed):
		return failed
	case err != nil && one.method == "":
		// The generated client could not even make the request.
		return c.sender.redact.error(err)
	case err != nil:
		if fault := one.localFault(); fault != nil {
			return fault
		}
		return one.noAnswer(err)
	case one.accepted:
		// A content that grew after its announced size had been sent.
		return one.localFault()
	default:
		return one.accept(response)
	}
}

// accept reads an answer: nil when it is the success that was wanted, else a
// *txn.ServerError.
func (c *call) accept(response *http.Response) error {
	if response.StatusCode == c.want && c.stream {
		c.body, c.accepted = response.Body, true
		return nil
	}
	limit := int64(largestRefusal)
	if response.StatusCode == c.want {
		limit = c.sender.largest
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
	c.accepted = true
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

// sender is what the generated client sends its requests through.
type sender struct {
	endpoint string
	key      *credential.Pair
	redact   redaction
	// largest is how much of a success is read, in bytes.
	largest int64
	// plain sends once, repeating by the policy of mayRepeat.
	plain     *http.Client
	repeating *retryablehttp.Client
}

// Do sends one request as its operation allows.
func (s *sender) Do(request *http.Request) (*http.Response, error) {
	ctx := request.Context()
	c := callOf(ctx)
	if c == nil {
		return nil, errors.New("a request to lakeFS without an operation")
	}
	c.method, c.path = request.Method, request.URL.Path
	request.SetBasicAuth(c.key.Key.Reveal(), c.key.Secret.Reveal())
	request.Header.Set("User-Agent", "perago")

	if !repeated[c.operation] {
		// With GetBody set, net/http may send the request again by itself when a
		// kept connection turns out to be closed.
		request.GetBody = nil
		if err := ctx.Err(); err != nil {
			return nil, &neverSent{cause: err}
		}
		return s.plain.Do(request)
	}

	again := &retryablehttp.Request{Request: request}
	var err error
	if c.content != nil {
		if err := c.content.prepare(); err != nil {
			return nil, err
		}
		if c.content.Size > 0 {
			err = again.SetBody(retryablehttp.ReaderFunc(c.content.reader))
		}
	} else {
		again, err = retryablehttp.FromRequest(request)
	}
	if err != nil {
		return nil, err
	}
	// Inside the loop, so that an answer cut in its body is asked for again.
	again.SetResponseHandler(c.accept)
	return s.repeating.Do(again)
}

// neverSent is a context that had ended before the call.
type neverSent struct{ cause error }

func (e *neverSent) Error() string { return "not sent: " + e.cause.Error() }
func (e *neverSent) Unwrap() error { return e.cause }

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
