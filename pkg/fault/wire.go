package fault

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Request is one request that was seen.
type Request struct {
	Method string
	// Path is escaped as it was sent, without the query.
	Path string
	// Query is the raw query.
	Query string
	// Body is the beginning of the body: up to 64 KiB, and nothing of an upload.
	Body string
	// At is when it arrived.
	At time.Time
}

func (r Request) String() string {
	text := r.Method + " " + r.Path
	if r.Query != "" {
		text += "?" + r.Query
	}
	return text
}

// Match says which requests are meant. Every field that is set must fit.
type Match struct {
	Method string
	// Path is a part of the escaped path.
	Path string
	// Query is a part of the raw query.
	Query string
	// Body is a part of the body's beginning.
	Body string
	// Fits is asked as well.
	Fits func(Request) bool
	// Nth is which of the matching requests from now on: 1, the next one, when it
	// is 0. One that an earlier hold has taken does not count.
	Nth int
}

func (m Match) fits(r Request) bool {
	return (m.Method == "" || m.Method == r.Method) && strings.Contains(r.Path, m.Path) &&
		strings.Contains(r.Query, m.Query) && strings.Contains(r.Body, m.Body) && (m.Fits == nil || m.Fits(r))
}

// Wire is a RoundTripper in front of another one. It logs each request, waits
// while it is held, does the fault that is armed for it, or sends it on.
type Wire struct {
	next http.RoundTripper

	mu    sync.Mutex
	log   []Request
	holds []*Hold
	gates []*Gate
}

// NewWire makes a wire to a server.
func NewWire(next http.RoundTripper) *Wire { return &Wire{next: next} }

// RoundTrip is http.RoundTripper's. A request that is held or has a fault goes on
// although its caller leaves: what was sent is under way and arrives.
func (w *Wire) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := w.roundTrip(r)
	if answer != nil {
		answer.Request = r
	}
	return answer, err
}

func (w *Wire) roundTrip(r *http.Request) (*http.Response, error) {
	seen := Request{Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, At: time.Now()}
	// The content of a file is not looked at: its tries differ in when it is opened.
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if r.Body != nil && kind != "application/octet-stream" && kind != "multipart/form-data" {
		begin, rest, err := peek(r.Body)
		if err != nil {
			_ = r.Body.Close()
			return nil, err
		}
		r = withBody(r.Context(), r, rest)
		seen.Body = begin
	}
	hold, closed, open := w.enter(seen)
	switch {
	case closed != nil:
		closeBody(r)
		return closed.answer(), nil
	case hold != nil:
		return hold.carry(r, w.next)
	}
	defer w.leave(open)
	return w.next.RoundTrip(r)
}

func withBody(ctx context.Context, r *http.Request, body io.ReadCloser) *http.Request {
	// A RoundTripper may not change the request that it was given.
	r = r.Clone(ctx)
	r.Body = body
	return r
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// peek reads the beginning of a body and gives back the whole.
func peek(body io.ReadCloser) (string, io.ReadCloser, error) {
	const limit = 64 << 10
	head, err := io.ReadAll(io.LimitReader(body, limit))
	if err != nil {
		return "", nil, err
	}
	rest := io.Reader(bytes.NewReader(head))
	if len(head) == limit {
		// Only then: a body that was read whole must not need its caller any more.
		rest = io.MultiReader(rest, body)
	}
	return string(head), struct {
		io.Reader
		io.Closer
	}{rest, body}, nil
}

// enter gives what meets a request: the hold that takes it, or a gate that is
// closed to it, or the gates that it goes through.
func (w *Wire) enter(seen Request) (hold *Hold, closed *Gate, open []*Gate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, gate := range w.gates {
		if !gate.match.fits(seen) {
			continue
		}
		if gate.closed {
			return nil, gate, nil
		}
		open = append(open, gate)
	}
	w.log = append(w.log, seen)
	for _, hold := range w.holds {
		if hold.take(seen) {
			return hold, nil, nil
		}
	}
	for _, gate := range open {
		gate.passing++
	}
	return nil, nil, open
}

// leave is the end of a request that went through these gates.
func (w *Wire) leave(open []*Gate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, gate := range open {
		gate.passing--
		gate.left.Broadcast()
	}
}

// Log is every request so far that went to the server, was held or had a fault,
// in the order of arrival.
func (w *Wire) Log() []Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.log)
}

// Matching is the requests of the log that fit.
func (w *Wire) Matching(match Match) []Request {
	return slices.DeleteFunc(w.Log(), func(r Request) bool { return !match.fits(r) })
}

// Hold stops one request that matches, from now on.
func (w *Wire) Hold(match Match) *Hold { return w.hold(match, false) }

// HoldAnswer stops the answer to one request that matches, from now on: the
// server has done what it was asked, and the caller does not know it yet.
func (w *Wire) HoldAnswer(match Match) *Hold { return w.hold(match, true) }

// Arm does a fault to one request that matches, from now on. Arrived of the hold
// that it gives says whether the request has come.
func (w *Wire) Arm(match Match, f Fault) *Hold {
	h := newHold(match, false)
	h.decide(f)
	w.add(h)
	return h
}

func (w *Wire) hold(match Match, answered bool) *Hold {
	h := newHold(match, answered)
	w.add(h)
	return h
}

func (w *Wire) add(h *Hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds = append(w.holds, h)
}

// Release drops every request that is held or still would be: the end of a test.
func (w *Wire) Release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, hold := range w.holds {
		hold.Drop()
	}
}

// Forget ends what is armed or held and has met no request, and empties the log,
// so that one wire serves test after test.
func (w *Wire) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log, w.holds = nil, nil
}

// Hold is a request, or the answer to one, that is stopped or will be.
type Hold struct {
	match Match
	left  int
	// answered says that the server sees the request first.
	answered bool
	arrived  chan struct{}
	request  Request
	fate     chan Fault
	over     chan struct{}
}

func newHold(match Match, answered bool) *Hold {
	return &Hold{
		match: match, left: max(match.Nth, 1), answered: answered,
		arrived: make(chan struct{}), fate: make(chan Fault, 1), over: make(chan struct{}),
	}
}

// take reports whether this is the request to hold; the wire's lock is held.
func (h *Hold) take(seen Request) bool {
	if h.left == 0 || !h.match.fits(seen) {
		return false
	}
	if h.left--; h.left > 0 {
		return false
	}
	h.request = seen
	return true
}

// carry holds the request and then does its fate to it.
func (h *Hold) carry(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	body, err := whole(r)
	if err != nil {
		return nil, err // the caller went away before it had sent the request
	}
	send := sync.OnceValues(func() (*http.Response, error) { return buffered(r, body, next) })
	type outcome struct {
		answer *http.Response
		err    error
	}
	ended := make(chan outcome, 1)
	go func() {
		if h.answered {
			if _, err := send(); err != nil {
				close(h.over)
				ended <- outcome{nil, err}
				return
			}
		}
		close(h.arrived)
		answer, err := (<-h.fate).befall(r.Context(), send, h.over)
		ended <- outcome{answer, err}
	}()
	select {
	case o := <-ended:
		return o.answer, o.err
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// whole reads a request's body, which then needs its caller no more.
func whole(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	defer r.Body.Close()
	return io.ReadAll(r.Body)
}

// buffered sends a request whatever becomes of its caller, and reads the answer
// to its end.
func buffered(r *http.Request, body []byte, next http.RoundTripper) (*http.Response, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	again := io.ReadCloser(http.NoBody)
	if len(body) > 0 {
		again = io.NopCloser(bytes.NewReader(body))
	}
	answer, err := next.RoundTrip(withBody(ctx, r, again))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	read, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	answer.Body = io.NopCloser(bytes.NewReader(read))
	return answer, nil
}

// Arrived is closed when the request, or the answer, is there.
func (h *Hold) Arrived() <-chan struct{} { return h.arrived }

// Over is closed when the server has done with the request, or will never get it.
func (h *Hold) Over() <-chan struct{} { return h.over }

// Wait waits until the request, or its answer, is there and gives the request; it
// fails the test after within.
func (h *Hold) Wait(t testing.TB, within time.Duration) Request {
	t.Helper()
	select {
	case <-h.arrived:
		return h.request
	case <-time.After(within):
		t.Fatalf("no request %+v came within %s", h.match, within)
		return Request{}
	}
}

// Pass sends the request on to the server and the answer back. Only the first of
// Pass, Drop, Answer and Late counts. Of a hold that nothing has reached yet, it
// lets what comes pass.
func (h *Hold) Pass() { h.decide(Fault{}) }

// Drop cuts the connection: the server never sees the request or, where its
// answer was held, the answer is lost.
func (h *Hold) Drop() { h.decide(Dropped()) }

// Answer answers in the server's place, which never sees the request unless its
// answer was held.
func (h *Hold) Answer(status int, body string) {
	h.decide(Fault{Server: Never, Status: status, tell: func(_ context.Context, f Fault, _ *http.Response) (*http.Response, error) {
		return reply(f, "application/json", body), nil
	}})
}

// Late answers 504 now, as a gateway does whose server takes too long; the request
// reaches the server when deliver is called, which returns when the server has
// answered.
func (h *Hold) Late(t testing.TB) (deliver func()) {
	t.Helper()
	now := make(chan bool, 1)
	f := Late(0)
	f.deliver = func() bool { return <-now }
	h.decide(f)
	var once sync.Once
	t.Cleanup(func() { once.Do(func() { now <- false }) })
	return func() {
		once.Do(func() { now <- true })
		<-h.over
	}
}

func (h *Hold) decide(f Fault) {
	select {
	case h.fate <- f:
	default:
	}
}

// Gate answers every request that matches, while it is closed, with 204: how a
// test keeps a worker from taking tasks without stopping it. What a closed gate
// answers is not in the log.
func (w *Wire) Gate(match Match) *Gate {
	g := &Gate{wire: w, match: match, left: sync.NewCond(&w.mu)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gates = append(w.gates, g)
	return g
}

// Gate is open until it is closed.
type Gate struct {
	wire   *Wire
	match  Match
	closed bool
	// passing counts the requests that went through and are not answered yet.
	passing int
	left    *sync.Cond
}

// Close closes the gate.
func (g *Gate) Close() { g.set(true) }

// Open opens the gate.
func (g *Gate) Open() { g.set(false) }

// Drain closes the gate and waits until what went through it is answered.
func (g *Gate) Drain() {
	g.wire.mu.Lock()
	defer g.wire.mu.Unlock()
	g.closed = true
	for g.passing > 0 {
		g.left.Wait()
	}
}

func (g *Gate) set(closed bool) {
	g.wire.mu.Lock()
	defer g.wire.mu.Unlock()
	g.closed = closed
}

func (g *Gate) answer() *http.Response {
	return &http.Response{
		StatusCode: http.StatusNoContent, Status: "204 No Content",
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody,
	}
}
