package fault

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"
)

// Reach says whether and when the server gets a request.
type Reach int

const (
	// AtOnce: the server has done what it was asked before the caller learns
	// anything.
	AtOnce Reach = iota
	// Never: the server does not hear of it.
	Never
	// Later: the caller has its answer, and the server acts after that.
	Later
)

// Fault is what becomes of one request. The zero value is no fault at all.
type Fault struct {
	// Name is unique in All and fits the name of a test.
	Name   string
	Server Reach
	// Status is what the caller is told, 0 when that is nothing, or the status of
	// the server's own answer.
	Status int
	// RetryAfter is the header of an answer with a Status, in seconds; 0 is none.
	RetryAfter int
	// Wait is how long a Later server has to wait for the request, and how long a
	// Slow answer takes.
	Wait time.Duration

	// tell makes the caller's answer of the server's, which is nil unless the
	// server was reached AtOnce. Nil hands the server's answer on.
	tell func(ctx context.Context, f Fault, answer *http.Response) (*http.Response, error)
	// deliver, when set, decides in place of Wait when a Later server gets the
	// request; false is never.
	deliver func() bool
}

// The statuses that another moment may change.
var passing = []int{
	http.StatusLocked, http.StatusTooManyRequests, http.StatusInternalServerError,
	http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// All is every fault there is, each under its own name.
func All() []Fault {
	all := []Fault{Refused(), Dropped(), Lost(), Late(time.Second), Cut(), Slow(time.Second)}
	for _, status := range passing {
		all = append(all, Status(status, 0), Status(status, 1))
	}
	return append(all, Page(), Garbled(), Empty())
}

// Refused is a connection that is not accepted: the server is not there, and the
// caller knows that nothing was sent.
func Refused() Fault {
	return Fault{Name: "refused", Server: Never, tell: noAnswer("dial", syscall.ECONNREFUSED)}
}

// Dropped is a connection that is cut before the server has the request, which
// the caller cannot know.
func Dropped() Fault {
	return Fault{Name: "dropped", Server: Never, tell: noAnswer("read", syscall.ECONNRESET)}
}

// Lost is an answer that does not arrive: the server has acted.
func Lost() Fault {
	return Fault{Name: "lost", tell: noAnswer("read", syscall.ECONNRESET)}
}

// Late is a gateway that gives up on a request, with 504, which its server gets
// after wait.
func Late(wait time.Duration) Fault {
	return Fault{Name: "late", Server: Later, Status: http.StatusGatewayTimeout, Wait: wait, tell: told}
}

// Cut is an answer that ends in the middle of its body. One that has none is lost.
func Cut() Fault {
	return Fault{Name: "cut", tell: func(ctx context.Context, f Fault, answer *http.Response) (*http.Response, error) {
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return nil, err
		}
		if len(body) == 0 {
			return noAnswer("read", syscall.ECONNRESET)(ctx, f, answer)
		}
		answer.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body[:len(body)/2]), broken{}))
		return answer, nil
	}}
}

// broken is where the rest of a body should be.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// Slow is an answer that takes wait longer than the server does.
func Slow(wait time.Duration) Fault {
	return Fault{Name: "slow", Wait: wait, tell: func(ctx context.Context, f Fault, answer *http.Response) (*http.Response, error) {
		if !pause(ctx, f.Wait) {
			return nil, ctx.Err()
		}
		return answer, nil
	}}
}

// Status answers in the server's place, in JSON, with a Retry-After of so many
// seconds unless that is 0.
func Status(status, retryAfter int) Fault {
	f := Fault{Name: strconv.Itoa(status), Server: Never, Status: status, RetryAfter: retryAfter, tell: told}
	if retryAfter > 0 {
		f.Name += "-retry-after"
	}
	return f
}

const htmlPage = "<!DOCTYPE html>\n<html><body><h1>Please sign in</h1></body></html>\n"

// Page is a success with a page of HTML, from something that stands in front of
// the server and does not let the request through.
func Page() Fault {
	return Fault{Name: "page", Server: Never, Status: http.StatusOK, tell: func(_ context.Context, f Fault, _ *http.Response) (*http.Response, error) {
		return reply(f, "text/html", htmlPage), nil
	}}
}

// Garbled is a page of HTML in the place of the body of an answer: the server
// has acted.
func Garbled() Fault {
	return Fault{Name: "garbled", tell: func(_ context.Context, f Fault, answer *http.Response) (*http.Response, error) {
		f.Status = answer.StatusCode
		if f.Status == http.StatusNoContent {
			f.Status = http.StatusOK // the other has no body
		}
		return reply(f, "text/html", htmlPage), nil
	}}
}

// Empty is an answer without its body: the server has acted.
func Empty() Fault {
	return Fault{Name: "empty", tell: func(_ context.Context, _ Fault, answer *http.Response) (*http.Response, error) {
		answer.Header.Del("Content-Length")
		answer.Body, answer.ContentLength = http.NoBody, 0
		return answer, nil
	}}
}

// noAnswer is a connection that fails.
func noAnswer(operation string, why syscall.Errno) func(context.Context, Fault, *http.Response) (*http.Response, error) {
	return func(context.Context, Fault, *http.Response) (*http.Response, error) {
		return nil, &net.OpError{Op: operation, Net: "tcp", Err: why}
	}
}

// told answers with the fault's status, in the shape that both servers give their
// refusals.
func told(_ context.Context, f Fault, _ *http.Response) (*http.Response, error) {
	body := fmt.Sprintf(`{"status":%d,"message":"a fault of the test: %s"}`, f.Status, http.StatusText(f.Status))
	return reply(f, "application/json", body), nil
}

func reply(f Fault, kind, body string) *http.Response {
	header := http.Header{"Content-Type": {kind}, "Content-Length": {strconv.Itoa(len(body))}}
	if f.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	return &http.Response{
		StatusCode: f.Status, Status: fmt.Sprintf("%d %s", f.Status, http.StatusText(f.Status)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header,
		Body: io.NopCloser(bytes.NewReader([]byte(body))), ContentLength: int64(len(body)),
	}
}

// befall does the fault to a request. send gives it to the server; over is closed
// when the server has done with it.
func (f Fault) befall(ctx context.Context, send func() (*http.Response, error), over chan<- struct{}) (*http.Response, error) {
	var answer *http.Response
	switch f.Server {
	case AtOnce:
		var err error
		answer, err = send()
		close(over)
		if err != nil {
			return nil, err
		}
	case Never:
		close(over)
	case Later:
		go func() {
			defer close(over)
			if f.deliver != nil && f.deliver() || f.deliver == nil && pause(context.WithoutCancel(ctx), f.Wait) {
				_, _ = send() // nobody is there to hear of it
			}
		}()
	}
	if f.tell == nil {
		return answer, nil
	}
	return f.tell(ctx, f, answer)
}

// pause reports false when ctx ended first.
func pause(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
