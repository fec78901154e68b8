package fault

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// Proxy is a Wire as an http.Handler: it stands in front of a server, and what is
// sent to it goes to that server by the wire.
type Proxy struct {
	*Wire
	forward *httputil.ReverseProxy
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
	wire := NewWire(&http.Transport{MaxIdleConnsPerHost: 64})
	return &Proxy{Wire: wire, forward: &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(address) },
		Transport: wire,
		// A server that cannot be reached is a cut connection for the caller too,
		// not a 502 that the server never sent.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		// What there is of an answer that will be cut goes out before the end.
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
	}}, nil
}

// ServeHTTP sends the request to the server by the wire.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.forward.ServeHTTP(w, r) }
