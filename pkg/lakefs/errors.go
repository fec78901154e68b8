package lakefs

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"perago/pkg/txn"
)

// longestMessage bounds the server's word in an error, in bytes.
const longestMessage = 4 << 10

const forbiddenHint = "the key lacks the permission, or a branch protection rule matches"

// failed is the one place where a *txn.ServerError is made.
func (c *call) failed(status int, class, kind error, message, hint string, cause error) *txn.ServerError {
	return &txn.ServerError{
		Server: "lakeFS", Method: c.request.Method, Path: cut(c.client.redact.text(c.request.URL.Path)), Status: status,
		Class: class, Kind: kind,
		Message: cut(c.client.redact.text(message)),
		Hint:    c.client.redact.text(hint),
		Cause:   c.client.redact.error(cause),
	}
}

// doubt is the class of a failure that does not say whether the call took
// effect.
func (c *call) doubt() error { return c.effect().Doubt() }

// effect is what the call does when it is sent twice.
func (c *call) effect() txn.Effect {
	switch {
	case c.operation == mergeCommit:
		return txn.EffectMerge
	case once[c.operation]:
		return txn.EffectOnce
	}
	return txn.EffectRepeatable
}

// noAnswer classifies a call that the transport could not carry through.
func (c *call) noAnswer(err error) *txn.ServerError {
	cause := withoutURL(err)
	class, hint := c.doubt(), ""
	var before *neverSent
	switch {
	case errors.As(err, &before):
		class = txn.ErrRetryable
	case untrusted(err):
		class, hint = txn.ErrRetryable, "check "+endpointVariable+" and the server's certificate"
	case notConnected(err):
		class, hint = txn.ErrRetryable, "is lakeFS up at "+c.client.endpoint+"? see "+endpointVariable
	}
	if c.last != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		// The time ran out while the call was being repeated: what people need
		// to know is why it had to be.
		last := *c.last
		last.Message = cut(last.Message + "; given up: " + c.client.redact.text(cause.Error()))
		last.Cause = c.client.redact.error(cause)
		return &last
	}
	return c.failed(0, class, nil, cause.Error(), hint, cause)
}

// withoutURL drops what net/http puts around an error: method and URL are kept
// in fields of their own, and the query is of no use to a reader.
func withoutURL(err error) error {
	var wrapped *url.Error
	for errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return err
}

// notConnected reports a failure from before anything could be sent.
func notConnected(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op == "dial" || op.Op == "proxyconnect"
	}
	var lookup *net.DNSError
	return errors.As(err, &lookup)
}

// untrusted reports a TLS handshake that failed for good; nothing was sent.
func untrusted(err error) bool {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	return errors.As(err, &certificate) || errors.As(err, &record) || errors.Is(err, http.ErrSchemeMismatch)
}

// unreadable classifies an answer that has the status of success and does not
// say what it should.
func (c *call) unreadable(response *http.Response, body []byte, why error) *txn.ServerError {
	hint := ""
	if len(body) > 0 && body[0] == '<' {
		hint = c.notLakeFS()
	}
	return c.failed(response.StatusCode, c.doubt(), nil, why.Error(), hint, why)
}

func (c *call) notLakeFS() string {
	return "is it lakeFS that answers at " + c.client.endpoint + ", or a proxy? see " + endpointVariable
}

// answered classifies an answer that is not the success that was wanted.
//
// lakeFS's own refusal is definite: it decides before it writes. Everything else
// says nothing about what happened behind it, such as a gateway's page.
func (c *call) answered(response *http.Response, body []byte) *txn.ServerError {
	status := response.StatusCode
	message, own := c.ownWords(body)
	kind := c.kindOf(status, message)
	switch {
	case c.operation == mergeCommit && status == http.StatusConflict && own:
		message = strings.TrimSuffix(fmt.Sprintf("conflict: %s; both changed the same paths: %s", c.subject, message), ": ")
	case own:
	case status/100 == 2, c.operation == signAddress:
		// It may hold what is asked for, such as an address that is a secret.
		message = "not the answer that was asked for"
	case status/100 == 3:
		// Where it leads to may hold a token; the host is enough.
		message = "a redirect"
		if to, err := response.Location(); err == nil && to.Host != "" {
			message += " to " + to.Scheme + "://" + to.Host
		}
	case message == "":
		message = http.StatusText(status)
	}

	class := txn.ClassOf(c.effect(), txn.Answer{Status: status, Own: own, Kind: kind})
	if class != txn.ErrRefused {
		kind = nil
	}
	hint := ""
	switch {
	case errors.Is(kind, txn.ErrUnauthorized), status == http.StatusUnauthorized && kind == nil:
		hint = "check " + keyVariable + " and " + secretVariable
	case errors.Is(kind, txn.ErrForbidden):
		hint = forbiddenHint
	case errors.Is(kind, txn.ErrGone):
		hint = "removed by retention, or the repository is being deleted"
	case errors.Is(kind, txn.ErrDirtyBranch):
		hint = "commit or reset the uncommitted changes of the branch"
	case !own && status < 500 && !passing(status):
		hint = c.notLakeFS()
	}
	if !errors.Is(kind, txn.ErrHookRefused) {
		return c.failed(status, class, kind, message, hint, nil)
	}
	refused := c.failed(status, class, kind, hookFirst(message), hint, nil)
	refused.Said = said(c.client.redact.text(message))
	return refused
}

// failedHook is how lakeFS begins what a hook said, behind a beginning of its own.
var failedHook = regexp.MustCompile(`\* hook run id '[^']*' failed on action '([^']*)' hook '([^']*)': (?:action failed: )?`)

// hookFirst puts the hook and its words at the beginning of lakeFS's message,
// because readers cut a message at its end.
func hookFirst(message string) string {
	at := failedHook.FindStringSubmatchIndex(message)
	if at == nil {
		return "a hook refused: " + message
	}
	return fmt.Sprintf("hook %s of action %s refused: %s", message[at[4]:at[5]], message[at[2]:at[3]], message[at[1]:])
}

// longestSaid bounds the whole message of hooks, in bytes. It goes into a task's
// output, for which Conductor has a limit.
const longestSaid = 32 << 10

// said is a text for people that keeps its lines. Other control characters, which
// some databases behind a Conductor refuse, become spaces.
func said(text string) string {
	text = strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return cutAt(strings.TrimSpace(text), longestSaid)
}

// ownWords gives the message of a refusal and whether it is lakeFS's: a JSON
// object with a message, or, for a merge's conflict, with an empty reference.
func (c *call) ownWords(body []byte) (message string, own bool) {
	var refusal struct {
		Message   *string `json:"message"`
		Reference *string `json:"reference"`
	}
	if json.Unmarshal(c.firstAnswer(body), &refusal) == nil {
		switch {
		case refusal.Message != nil:
			return *refusal.Message, true
		case c.operation == mergeCommit && refusal.Reference != nil:
			return "", true
		}
	}
	return string(body), false
}

// firstAnswer is a body without what lakeFS writes behind its refusal of a bulk
// delete: it goes on, and answers for all paths as if it had not refused one.
func (c *call) firstAnswer(body []byte) []byte {
	if c.operation != deleteObjects && c.operation != askPermission {
		return body
	}
	var first json.RawMessage
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(&first); err != nil {
		return body
	}
	return first
}

// kindOf says what a refusal is about. message is the server's own text, whole:
// redaction may take a word out of it, as for a key id that is a common word.
func (c *call) kindOf(status int, message string) error {
	switch status {
	case http.StatusBadRequest:
		// Two refusals that differ only by their text.
		switch {
		case strings.Contains(message, "dirty branch"), strings.Contains(message, "uncommitted changes"):
			return txn.ErrDirtyBranch
		case strings.Contains(message, "no changes"):
			return txn.ErrNoChanges
		}
	case http.StatusUnauthorized:
		// lakeFS answers 401 as well to a good key that may not do this.
		if strings.Contains(message, "insufficient permissions") {
			return txn.ErrForbidden
		}
	case http.StatusConflict:
		if c.operation == createBranch || c.operation == createRepository {
			return txn.ErrExists
		}
	case http.StatusPreconditionFailed:
		if c.operation == setProtection {
			return txn.ErrConflict
		}
		if strings.Contains(message, txn.FenceRefusal) {
			return txn.ErrFenceRefused
		}
		return txn.ErrHookRefused
	}
	return txn.KindOf(status)
}

// cut makes one line of a text, which may be anything, and bounds it at a rune's
// boundary.
func cut(text string) string {
	return cutAt(txn.OneLine(text), longestMessage)
}

// cutAt bounds a text in bytes, at a rune's boundary.
func cutAt(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// answerReader hands an object's bytes on and gives their failure a class.
type answerReader struct {
	io.ReadCloser
	call *call
}

func (r *answerReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.call.failed(http.StatusOK, txn.ErrRetryable, nil, "the answer was cut: "+err.Error(), "", err)
	}
	return n, err
}
