package lakefs

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/treeverse/lakefs/pkg/api/apigen"

	"perago/pkg/txn"
)

const (
	// offerHolds is for how long it is not asked again whether uploads go to the
	// object store, or tried again after they could not.
	offerHolds = 5 * time.Minute
	// mostURLs is how many further URLs are asked for when the store refuses one: it
	// may have expired.
	mostURLs = 2
	// dialTimeout is soon over: a store that is out of reach is no failure.
	dialTimeout = 5 * time.Second
)

// Presigned is a Settling client whose uploads go to the object store itself, where
// lakeFS offers that: it signs a URL for an address of its own making, the bytes are
// sent there, and lakeFS is told that they are the object.
//
// lakeFS believes what it is told about size and checksum. So the store's own
// checksum of what it holds is what it is told, for the caller to compare, and each
// try has an address of its own: a late arrival of an earlier one cannot change what
// has been compared.
//
// Where the store cannot be used (lakeFS does not sign, the store is out of reach or
// refuses, its checksum is no MD5, the file is too large for one request) an upload
// goes through lakeFS as Client.Upload does. A URL is a secret for as long as it
// holds: it is in no error and no log, and lakeFS's key goes to lakeFS alone.
type Presigned struct {
	Settling
	store   *http.Client
	changed func(direct bool, why string)

	// asking is held while the two below are looked at.
	asking chan struct{}
	direct bool
	until  time.Time
}

// NewPresigned makes one and sends nothing. A nil transport is one for many
// connections. changed is called when uploads begin to go another way, and at
// first, with what made that necessary where they go through lakeFS although lakeFS
// signs; it is called by one upload at a time.
func NewPresigned(client Settling, transport http.RoundTripper, changed func(direct bool, why string)) *Presigned {
	if transport == nil {
		t := defaultTransport()
		t.DialContext = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
		transport = t
	}
	return &Presigned{
		Settling: client,
		store:    httpClient(transport, false),
		changed:  changed,
		asking:   make(chan struct{}, 1),
	}
}

// Upload is Client.Upload by way of the object store.
func (p *Presigned) Upload(ctx context.Context, repo txn.Repository, branch txn.Branch, path string, from txn.Content) (txn.Object, error) {
	direct := false
	if from.Size <= p.largestPut {
		var err error
		if direct, err = p.offered(ctx); err != nil {
			return txn.Object{}, fmt.Errorf("upload %s: %w", path, err)
		}
	}
	if !direct {
		return p.Settling.Upload(ctx, repo, branch, path, from)
	}
	if err := checkUpload(repo, branch, path); err != nil {
		return txn.Object{}, err
	}
	object, err := p.uploadDirectly(ctx, repo, branch, path, from)
	var not *unusable
	if errors.As(err, &not) {
		if err := p.unusable(ctx, not); err != nil {
			return txn.Object{}, fmt.Errorf("upload %s: %w", path, err)
		}
		return p.Settling.Upload(ctx, repo, branch, path, from)
	}
	if err != nil {
		return txn.Object{}, fmt.Errorf("upload %s: %w", path, err)
	}
	return object, nil
}

// unusable is why the object store cannot be used, which fails no upload.
type unusable struct{ why string }

func (u *unusable) Error() string { return u.why }

// offered reports whether uploads go to the object store now.
func (p *Presigned) offered(ctx context.Context) (bool, error) {
	if err := p.lock(ctx); err != nil {
		return false, err
	}
	defer p.unlock()
	if time.Now().Before(p.until) {
		return p.direct, nil
	}
	direct, why := false, ""
	switch signs, err := p.signs(ctx); {
	case err == nil:
		direct = signs
	case errors.Is(err, txn.ErrRefused):
		why = err.Error()
	default:
		return false, err
	}
	p.set(direct, why)
	return direct, nil
}

// unusable sends the next uploads through lakeFS.
func (p *Presigned) unusable(ctx context.Context, not *unusable) error {
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer p.unlock()
	// Many uploads find it out at once.
	if p.direct {
		p.set(false, not.why)
	}
	return nil
}

func (p *Presigned) set(direct bool, why string) {
	first := p.until.IsZero()
	if first || direct != p.direct {
		p.changed(direct, why)
	}
	p.direct, p.until = direct, time.Now().Add(offerHolds)
}

func (p *Presigned) lock(ctx context.Context) error {
	select {
	case p.asking <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *Presigned) unlock() { <-p.asking }

// signs asks lakeFS whether it signs URLs of an S3 store. For those of other stores
// nobody has seen what checksum they answer with.
func (c *Client) signs(ctx context.Context) (bool, error) {
	s3, preSign, err := c.storage(ctx)
	return s3 && preSign, err
}

// storage asks lakeFS whether its store is S3, and whether it signs URLs.
func (c *Client) storage(ctx context.Context) (s3, preSign bool, err error) {
	type answer struct {
		Storage *struct {
			Type    string `json:"blockstore_type"`
			PreSign bool   `json:"pre_sign_support"`
		} `json:"storage_config"`
	}
	request, err := apigen.NewGetConfigRequest(c.api)
	err = c.do(ctx, request, err, &call{operation: getConfig, want: http.StatusOK, decode: asJSON(func(a answer) error {
		if a.Storage == nil {
			return errors.New("a configuration without storage")
		}
		s3, preSign = a.Storage.Type == "s3", a.Storage.PreSign
		return nil
	})})
	return s3, preSign, err
}

// uploadDirectly sends the content to the store, under a new URL for each try, and
// links it. Its error is an *unusable where the upload may go through lakeFS.
func (p *Presigned) uploadDirectly(ctx context.Context, repo txn.Repository, branch txn.Branch, path string, from txn.Content) (txn.Object, error) {
	body := &content{Content: from}
	if err := body.prepare(); err != nil {
		return txn.Object{}, err
	}
	refused := 0
	for try := 0; ; try++ {
		at, err := p.address(ctx, repo, branch, path)
		if err != nil {
			return txn.Object{}, err
		}
		sum, failed := p.put(ctx, at, body)
		if fault := body.fault(); fault != nil {
			return txn.Object{}, fault
		}
		if failed == nil {
			if sum == "" || from.Sum != nil && sum != from.Sum() {
				return txn.Object{}, &unusable{"the object store does not answer with the MD5 of what it was sent; does it encrypt with keys of its own?"}
			}
			var mark map[string]string
			if from.Sum != nil {
				mark = map[string]string{MarkMD5: sum}
			}
			return p.link(ctx, repo, branch, path, at, sum, from.Size, mark)
		}
		switch {
		case ctx.Err() != nil:
			return txn.Object{}, failed.ServerError
		case failed.refused:
			if refused++; refused > mostURLs {
				return txn.Object{}, &unusable{failed.Error()}
			}
		case !failed.passing:
			return txn.Object{}, &unusable{failed.Error()}
		}
		if try == mostRepeats || !worthWaiting(ctx, failed.response) || !wait(ctx, backoff(firstWait, longestWait, try, failed.response)) {
			return txn.Object{}, failed.ServerError
		}
	}
}

// address is where an object's bytes are to go.
type address struct {
	// physical is lakeFS's name for it.
	physical string
	// url is the secret.
	url *url.URL
}

// address asks for an address of its own for one try of one object.
func (c *Client) address(ctx context.Context, repo txn.Repository, branch txn.Branch, path string) (address, error) {
	type answer struct {
		Physical string  `json:"physical_address"`
		URL      *string `json:"presigned_url"`
	}
	var at address
	presign := true
	request, err := apigen.NewGetPhysicalAddressRequest(c.api, string(repo), string(branch),
		&apigen.GetPhysicalAddressParams{Path: path, Presign: &presign})
	err = c.do(ctx, request, err, &call{operation: signAddress, want: http.StatusOK, decode: asJSON(func(a answer) error {
		at = address{physical: a.Physical}
		if a.Physical == "" {
			return errors.New("no address")
		}
		if a.URL == nil || *a.URL == "" {
			return nil
		}
		// The error of url.Parse would repeat the URL.
		parsed, err := url.Parse(*a.URL)
		if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
			return errors.New("the address to upload to is no URL")
		}
		at.url = parsed
		return nil
	})})
	if err == nil && at.url == nil {
		err = &unusable{"lakeFS signs no URL although it says that it does"}
	}
	return at, err
}

// link tells lakeFS that what is at an address is the object, with this user metadata.
func (c *Client) link(ctx context.Context, repo txn.Repository, branch txn.Branch, path string, at address, sum string, size int64, mark map[string]string) (txn.Object, error) {
	var object txn.Object
	contentType := octets
	request, err := apigen.NewLinkPhysicalAddressRequest(c.api, string(repo), string(branch),
		&apigen.LinkPhysicalAddressParams{Path: path}, apigen.LinkPhysicalAddressJSONRequestBody{
			Checksum: sum, SizeBytes: size, ContentType: &contentType,
			Staging:      apigen.StagingLocation{PhysicalAddress: &at.physical},
			UserMetadata: &apigen.StagingMetadata_UserMetadata{AdditionalProperties: mark},
		})
	err = c.do(ctx, request, err, &call{operation: linkAddress, want: http.StatusOK, decode: uploaded(path, &object)})
	return object, err
}

// putFailure is a try that did not come through.
type putFailure struct {
	*txn.ServerError
	// refused: the store does not take this URL, perhaps because it expired.
	refused bool
	// passing: another moment may change it.
	passing bool
	// response is the answer, without its body; nil when there was none.
	response *http.Response
}

// put sends the content to an address and gives the MD5 that the store answers
// with; "" when it answers with something else.
func (p *Presigned) put(ctx context.Context, at address, body *content) (sum string, failed *putFailure) {
	request := (&http.Request{
		Method: http.MethodPut, URL: at.url, Host: at.url.Host, ContentLength: body.Size, Body: http.NoBody,
		Header: http.Header{"Content-Type": {octets}, "User-Agent": {"perago"}},
	}).WithContext(ctx)
	if body.Size > 0 {
		request.Body = &contentReader{content: body, left: body.Size}
	}
	response, err := p.store.Do(request)
	if err != nil {
		return "", &putFailure{
			ServerError: at.failed(0, withoutURL(err).Error(), err),
			// What could not be connected has not been sent, and lakeFS may be able to.
			passing: !notConnected(err) && !untrusted(err) && !errors.Is(err, errSilent),
		}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, largestRefusal))
	if response.StatusCode == http.StatusOK {
		if err != nil {
			return "", &putFailure{ServerError: at.failed(response.StatusCode, "the answer was cut: "+err.Error(), err), passing: true}
		}
		sum := strings.Trim(response.Header.Get("ETag"), `"`)
		if !plainMD5.MatchString(sum) {
			sum = ""
		}
		return sum, nil
	}
	// The rest of the body may repeat the URL.
	var refusal struct {
		Code    string
		Message string
	}
	message := http.StatusText(response.StatusCode)
	if xml.Unmarshal(text, &refusal) == nil && refusal.Code != "" {
		message = refusal.Code + ": " + refusal.Message
	}
	return "", &putFailure{
		ServerError: at.failed(response.StatusCode, message, nil),
		refused:     response.StatusCode == http.StatusForbidden || refusal.Code == "ExpiredToken",
		passing:     passing(response.StatusCode) || refusal.Code == "RequestTimeout",
		response:    response,
	}
}

// failed makes the error of a try. The branch is ours alone, so each may be made
// again.
func (at address) failed(status int, message string, cause error) *txn.ServerError {
	var hidden redactor
	if at.url.RawQuery != "" {
		hidden = redactor{at.url.RawQuery}
	}
	for _, values := range at.url.Query() {
		for _, value := range values {
			// Shorter ones are no secrets, and words of the message.
			if len(value) >= 16 {
				hidden = append(hidden, value, url.QueryEscape(value))
			}
		}
	}
	return &txn.ServerError{
		Server: "the object store", Method: http.MethodPut, Path: at.url.Scheme + "://" + at.url.Host, Status: status,
		Class: txn.ErrRetryable, Message: cut(hidden.text(message)), Cause: hidden.error(withoutURL(cause)),
	}
}

var plainMD5 = regexp.MustCompile(`^[0-9a-f]{32}$`)
