package fault

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// Request is one request that a proxy saw.
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
	// Nth is which of the matching requests from now on: 1, the next one, when it
	// is 0.
	Nth int
}

func (m Match) fits(r Request) bool {
	return (m.Method == "" || m.Method == r.Method) && strings.Contains(r.Path, m.Path) &&
		strings.Contains(r.Query, m.Query) && strings.Contains(r.Body, m.Body)
}

// Proxy forwards every request to a server. It is an http.Handler.
type Proxy struct {
	forward *httputil.ReverseProxy

	mu    sync.Mutex
	log   []Request
	holds []*Hold
	gates []*Gate
}

// NewProxy makes a proxy in front of a server.
func NewProxy(target string) (*Proxy, error) {
	address, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	if address.Host == "" {
		return nil, fmt.Errorf("%q is not the address of a server", target)
	}
	return &Proxy{forward: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(address) },
		// A server that cannot be reached is a cut connection for the caller too,
		// not a 502 that the server never sent.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		Transport:    &http.Transport{MaxIdleConnsPerHost: 64},
	}}, nil
}

// ServeHTTP logs the request, waits while it is held, and forwards it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seen := Request{Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, At: time.Now()}
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/octet-stream") && r.Body != nil {
		body, rest, err := peek(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // the caller went away
		}
		seen.Body, r.Body = body, rest
	}
	hold, gate := p.enter(seen)
	if gate != nil {
		gate.answer(w)
		return
	}
	if hold == nil {
		p.forward.ServeHTTP(w, r)
		return
	}
	// A caller that goes away meanwhile changes nothing: what was sent is under way
	// and arrives.
	// (Cancellable all the same, for without that ReverseProxy asks the connection
	// itself.)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	r = r.WithContext(ctx)
	var answer *httptest.ResponseRecorder
	if hold.answered {
		answer = httptest.NewRecorder()
		p.forward.ServeHTTP(answer, r)
		close(hold.arrived)
	}
	switch fate := <-hold.fate; {
	case fate.kind == fateDrop:
		panic(http.ErrAbortHandler)
	case fate.kind == fateAnswer:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(fate.status)
		_, _ = io.WriteString(w, fate.body) // the caller may have gone away
	case fate.kind == fateLate:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusGatewayTimeout)
		late := r.WithContext(context.WithoutCancel(r.Context()))
		go func() {
			defer close(fate.delivered)
			if <-fate.deliver {
				ctx, cancel := context.WithCancel(late.Context())
				defer cancel()
				p.forward.ServeHTTP(httptest.NewRecorder(), late.WithContext(ctx))
			}
		}()
	case answer != nil:
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = answer.Body.WriteTo(w)
	default:
		p.forward.ServeHTTP(w, r)
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

func (p *Proxy) enter(seen Request) (*Hold, *Gate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, gate := range p.gates {
		if gate.closed && gate.match.fits(seen) {
			return nil, gate
		}
	}
	p.log = append(p.log, seen)
	for _, hold := range p.holds {
		if hold.take(seen) {
			return hold, nil
		}
	}
	return nil, nil
}

// Log is every request so far that went to the server or was held, in the order
// of arrival.
func (p *Proxy) Log() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Request(nil), p.log...)
}

// Matching is the requests of the log that fit.
func (p *Proxy) Matching(match Match) []Request {
	var all []Request
	for _, request := range p.Log() {
		if match.fits(request) {
			all = append(all, request)
		}
	}
	return all
}

// Hold stops one request that matches, from now on.
func (p *Proxy) Hold(match Match) *Hold { return p.hold(match, false) }

// HoldAnswer stops the answer to one request that matches, from now on: the
// server has done what it was asked, and the caller does not know it yet.
func (p *Proxy) HoldAnswer(match Match) *Hold { return p.hold(match, true) }

func (p *Proxy) hold(match Match, answered bool) *Hold {
	h := &Hold{match: match, left: max(match.Nth, 1), answered: answered, arrived: make(chan struct{}), fate: make(chan fate, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, h)
	return h
}

// Hold is a request, or the answer to one, that is stopped or will be.
type Hold struct {
	match Match
	left  int
	// answered says that the server sees the request first.
	answered bool
	arrived  chan struct{}
	request  Request
	fate     chan fate
}

type fate struct {
	kind   fateKind
	status int
	body   string
	// deliver is sent to once, true to send the request on; delivered is closed
	// when that is done.
	deliver, delivered chan bool
}

type fateKind int

const (
	fatePass fateKind = iota
	fateDrop
	fateAnswer
	fateLate
)

// take reports whether this is the request to hold; the proxy's lock is held.
func (h *Hold) take(seen Request) bool {
	if h.left == 0 || !h.match.fits(seen) {
		return false
	}
	if h.left--; h.left > 0 {
		return false
	}
	h.request = seen
	if !h.answered {
		close(h.arrived)
	}
	return true
}

// Arrived is closed when the request, or the answer, is there.
func (h *Hold) Arrived() <-chan struct{} { return h.arrived }

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
// Pass, Drop and Answer counts. Of a hold that nothing has reached yet, it lets
// what comes pass.
func (h *Hold) Pass() { h.decide(fate{kind: fatePass}) }

// Drop cuts the connection: the server never sees the request or, where its
// answer was held, the answer is lost.
func (h *Hold) Drop() { h.decide(fate{kind: fateDrop}) }

// Answer answers in the server's place, which never sees the request unless its
// answer was held.
func (h *Hold) Answer(status int, body string) {
	h.decide(fate{kind: fateAnswer, status: status, body: body})
}

// Late answers 504 now, as a gateway does whose server takes too long; the request
// reaches the server when deliver is called, which returns when the server has
// answered. Its body must be one that the log holds whole.
func (h *Hold) Late(t testing.TB) (deliver func()) {
	t.Helper()
	f := fate{kind: fateLate, deliver: make(chan bool, 1), delivered: make(chan bool)}
	h.decide(f)
	var once sync.Once
	t.Cleanup(func() { once.Do(func() { f.deliver <- false }) })
	return func() {
		once.Do(func() { f.deliver <- true })
		<-f.delivered
	}
}

func (h *Hold) decide(f fate) {
	select {
	case h.fate <- f:
	default:
	}
}

// Release drops every request that is held or still would be: the end of a test.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, hold := range p.holds {
		hold.Drop()
	}
}

// Gate answers every request that matches, while it is closed, with 204: how a
// test keeps a worker from taking tasks without stopping it. What a closed gate
// answers is not in the log.
func (p *Proxy) Gate(match Match) *Gate {
	g := &Gate{proxy: p, match: match}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gates = append(p.gates, g)
	return g
}

// Gate is open until it is closed.
type Gate struct {
	proxy  *Proxy
	match  Match
	closed bool
}

// Close closes the gate.
func (g *Gate) Close() { g.set(true) }

// Open opens the gate.
func (g *Gate) Open() { g.set(false) }

func (g *Gate) set(closed bool) {
	g.proxy.mu.Lock()
	defer g.proxy.mu.Unlock()
	g.closed = closed
}

func (g *Gate) answer(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }
