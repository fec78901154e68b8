package conductor

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"perago/pkg/txn"
)

// effect is what it means for a call to have been sent without a usable answer.
type effect int

const (
	// effectNone: the call only reads.
	effectNone effect = iota
	// effectRepeatable: the call may be sent again. Conductor ignores an update
	// of a task that is over, and putting the same definition twice is putting it
	// once.
	effectRepeatable
	// effectOnce: sent twice the call acts twice.
	effectOnce
)

// maxMessage bounds the server's own words in an error, in bytes.
const maxMessage = 500

// call is one request as its errors name it.
type call struct {
	method string
	// path is below the API's base address, without the query.
	path   string
	effect effect
	base   string
	redact func(string) string
}

func (c call) fault(status int, class, kind error, message, hint string) *txn.ServerError {
	return &txn.ServerError{
		Server: "Conductor", Method: c.method, Path: c.path, Status: status,
		Class: class, Kind: kind, Message: clip(c.redact(message)), Hint: hint,
	}
}

// unclear is the class of a call that was sent and whose answer does not say
// what it did.
func (c call) unclear() error { return c.sentTwice().Doubt() }

// sentTwice is what the call does when it is sent twice.
func (c call) sentTwice() txn.Effect {
	if c.effect == effectOnce {
		return txn.EffectOnce
	}
	return txn.EffectRepeatable
}

// notSent is a call that never left: its arguments cannot be sent.
func (c call) notSent(cause, kind error, hint string) *txn.ServerError {
	fault := c.fault(0, txn.ErrRefused, kind, cause.Error(), hint)
	fault.Cause = &redactedError{cause, c.redact}
	return fault
}

// noAnswer is a call that ended without an answer: class by whether it was sent
// and by what it would have done.
func (c call) noAnswer(err error) *txn.ServerError {
	// The token request is a call of its own: it failed, and this one was never
	// sent.
	if token, ok := errors.AsType[*txn.ServerError](err); ok {
		return token
	}
	class, hint := c.unclear(), ""
	switch {
	case errors.Is(err, errTooLarge):
		// Reading it again would find it as large.
		if c.effect == effectNone {
			class = txn.ErrRefused
		}
		// There was an answer, and it is this client that did not take it.
		fault := c.fault(http.StatusOK, class, nil, innermost(err).Error(), "")
		fault.Cause = &redactedError{err, c.redact}
		return fault
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// The caller's own doing: no hint.
		if _, unsent := errors.AsType[unsentError](err); unsent {
			class = txn.ErrRetryable
		}
	case neverConnected(err):
		class, hint = txn.ErrRetryable, "is the server at "+c.base+" up, and is CONDUCTOR_SERVER_URL its address?"
	}
	fault := c.fault(0, class, nil, innermost(err).Error(), hint)
	fault.Cause = &redactedError{err, c.redact}
	return fault
}

// answered is an answer that is not a success. Only Conductor's own refusal is one:
// a gateway's 404, 403 or 413 says nothing about the task or the workflow.
func (c call) answered(status int, header http.Header, body []byte) *txn.ServerError {
	if status < 300 {
		return c.malformed(status, header, body, "an answer that was not expected here")
	}
	word, own := serverMessage(status, body)
	kind := txn.KindOf(status)
	class := txn.ClassOf(c.sentTwice(), txn.Answer{Status: status, Own: own, Kind: kind})
	if class != txn.ErrRefused {
		kind = nil
	}
	fault := c.fault(status, class, kind, word, "")
	switch {
	case status < 400:
		fault.Message = clip(c.redact("redirect to " + header.Get("Location")))
		fault.Hint = "CONDUCTOR_SERVER_URL must be the address of the API itself"
	case status == http.StatusUnauthorized:
		fault.Hint = "check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET"
	case !own && status < 500:
		// Somebody else answers at this address. Taken for "no such workflow" it would
		// let a wrong address clean up.
		fault.Hint = "is CONDUCTOR_SERVER_URL (" + c.base + ") the address of a Conductor API?"
	case status == http.StatusForbidden:
		fault.Hint = "the application of CONDUCTOR_AUTH_KEY may not do this"
	}
	return fault
}

// malformed is a success in status only: a page of HTML from something in
// between, or JSON that is not what this call answers. What the server did, if
// the server was reached at all, is not known.
func (c call) malformed(status int, header http.Header, body []byte, why string) *txn.ServerError {
	hint := ""
	if looksLikeHTML(header, body) {
		why = "a page of HTML instead of JSON"
		hint = "is CONDUCTOR_SERVER_URL (" + c.base + ") the address of the API, and is a proxy in between?"
	}
	return c.fault(status, c.unclear(), nil, why, hint)
}

// neverConnected reports whether the request cannot have reached the server.
func neverConnected(err error) bool {
	if operation, ok := errors.AsType[*net.OpError](err); ok && operation.Op == "dial" {
		return true
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	return false
}

// innermost leaves out what url.Error adds: the method and address are in the
// error already.
func innermost(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}

// redactedError keeps errors.Is and errors.As on a cause without its text.
type redactedError struct {
	cause  error
	redact func(string) string
}

func (e *redactedError) Error() string { return e.redact(e.cause.Error()) }
func (e *redactedError) Unwrap() error { return e.cause }

// serverMessage is the server's word for a refusal, and whether it is in the form
// that Conductor gives its errors: {"status":404,"message":"...","instance":...}
// with the answer's own status. The web framework's error for an unknown path has
// "path" and "error" as well, or, on conductor-oss, that form and a message of the
// framework's. A gateway's has no status. What asks for
// credentials stands before Conductor's own error handler, so for 401 a message is
// enough.
func serverMessage(status int, body []byte) (word string, own bool) {
	var answer struct {
		Status  json.Number `json:"status"`
		Message string      `json:"message"`
		Error   string      `json:"error"`
		Path    *string     `json:"path"`
		Invalid []struct {
			Path    string `json:"path"`
			Message string `json:"message"`
		} `json:"validationErrors"`
	}
	if err := json.Unmarshal(body, &answer); err == nil {
		own := answer.Path == nil && answer.Message != "" && !strings.HasPrefix(answer.Message, unknownPath) &&
			(answer.Status.String() == strconv.Itoa(status) || status == http.StatusUnauthorized)
		switch {
		case len(answer.Invalid) > 0:
			// The message itself only says that there are some.
			var all []string
			for _, one := range answer.Invalid {
				all = append(all, one.Path+": "+one.Message)
			}
			return strings.Join(all, "; "), own
		case answer.Message != "":
			return answer.Message, own
		case answer.Error != "":
			return answer.Error, false
		}
	}
	if looksLikeHTML(nil, body) {
		return "a page of HTML", false
	}
	return string(body), false
}

// unknownPath begins what the web framework says of a path that Conductor does not have.
// Conductor's own messages name what they did not find.
const unknownPath = "No static resource "

func looksLikeHTML(header http.Header, body []byte) bool {
	return strings.HasPrefix(header.Get("Content-Type"), "text/html") ||
		bytes.HasPrefix(bytes.TrimSpace(body), []byte("<"))
}

// clip makes one line of a text and bounds it, cut at a rune boundary.
func clip(text string) string {
	text = txn.OneLine(text)
	if len(text) <= maxMessage {
		return text
	}
	cut := maxMessage
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:cut], len(text))
}
