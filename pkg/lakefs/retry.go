package lakefs

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"perago/pkg/txn"
)

// Waits between the tries of one call: doubling from firstWait to longestWait,
// each shortened at random by up to a half so that many workers do not come
// back together. Seven repeats span about ten seconds, which outlasts a restart
// of lakeFS.
const (
	firstWait   = 100 * time.Millisecond
	longestWait = 4 * time.Second
	mostRepeats = 7
	// longestRetryAfter bounds what a server may ask for. Above it the call
	// fails now, and the caller's own retry comes later.
	longestRetryAfter = 30 * time.Second
)

// again sends a call until it has its answer, or a repeat would be of no use.
func (c *call) again(client *http.Client, request *http.Request) (*http.Response, error) {
	repeater := &retryablehttp.Client{
		HTTPClient:   client,
		RetryWaitMin: firstWait,
		RetryWaitMax: longestWait,
		RetryMax:     c.client.repeats,
		CheckRetry:   c.mayRepeat,
		Backoff:      backoff,
		// The last answer is ours to read and classify.
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	again, err := retryablehttp.FromRequest(request)
	if err == nil && c.content != nil {
		if err = c.content.prepare(); err == nil && c.content.Size > 0 {
			err = again.SetBody(retryablehttp.ReaderFunc(c.content.reader))
		}
	}
	if err != nil {
		return nil, err
	}
	// Inside the loop, so that an answer cut in its body is asked for again.
	again.SetResponseHandler(c.accept)
	return repeater.Do(again)
}

// mayRepeat is the policy. It refuses everything whose operation is not named
// in it, an operation that is not known at all included.
func (c *call) mayRepeat(ctx context.Context, response *http.Response, err error) (bool, error) {
	if !repeated[c.operation] || ctx.Err() != nil {
		return false, nil
	}
	if err != nil {
		var failed *txn.ServerError
		switch {
		case errors.As(err, &failed):
			// A success whose body was cut or was not lakeFS's. A refusal comes
			// here as well and stands.
			return errors.Is(failed, txn.ErrRetryable) && failed.Status < 300 && !errors.Is(failed, errTooLarge) && !errors.Is(failed, errSilent), nil
		case c.localFault() != nil, untrusted(err), errors.Is(err, errSilent):
			return false, nil
		}
		c.last = c.noAnswer(err)
		return true, nil
	}
	if !passing(response.StatusCode) {
		return false, nil
	}
	if !worthWaiting(ctx, response) {
		return false, nil
	}
	c.last = c.answered(response, nil)
	return true, nil
}

// worthWaiting reports whether the time that an answer asks for can be given.
func worthWaiting(ctx context.Context, response *http.Response) bool {
	if response == nil {
		return true
	}
	wait, asked := retryAfter(response)
	deadline, bounded := ctx.Deadline()
	return !asked || wait <= longestRetryAfter && (!bounded || time.Until(deadline) >= wait)
}

// passing are the statuses that another moment may change.
func passing(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false
	}
	return status >= 500
}

func backoff(first, longest time.Duration, attempt int, response *http.Response) time.Duration {
	wait := longest
	if attempt < 16 {
		wait = min(longest, first<<attempt)
	}
	wait = wait/2 + rand.N(wait/2+1)
	if response != nil {
		// Never sooner than the server asks, and an answer of 0 does not make
		// all the tries happen at once.
		if asked, ok := retryAfter(response); ok {
			return max(wait, asked)
		}
	}
	return wait
}

// retryAfter reads the header in both of its forms (RFC 9110, section 10.2.3).
func retryAfter(response *http.Response) (time.Duration, bool) {
	text := response.Header.Get("Retry-After")
	if text == "" {
		return 0, false
	}
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at)), true
	}
	return 0, false
}
