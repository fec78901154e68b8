package stack

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
)

// PutLimit is a proxy in front of an S3 server. It refuses a PUT request of more than
// limit bytes with the answer of AWS, which the S3 server of the tests does not do.
type PutLimit struct {
	*httptest.Server
	// Refused counts the requests that were refused, and Parts the parts of multipart
	// uploads that were forwarded.
	Refused, Parts atomic.Int64

	target atomic.Pointer[url.URL]
}

// NewPutLimit starts the proxy. lakeFS needs its address before the S3 server has one,
// so Forward says later where the S3 server is.
func NewPutLimit(limit int64) *PutLimit {
	p := &PutLimit{}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(p.target.Load())
		r.Out.Host = r.In.Host // requests are signed for it
	}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && r.ContentLength > limit {
			p.Refused.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprint(w, `<Error><Code>EntityTooLarge</Code><Message>Your proposed upload exceeds the maximum allowed size</Message></Error>`)
			return
		}
		if r.URL.Query().Get("partNumber") != "" {
			p.Parts.Add(1)
		}
		forward.ServeHTTP(w, r)
	}))
	return p
}

// Forward sends the requests that are not refused to this S3 server.
func (p *PutLimit) Forward(to *Server) error {
	target, err := url.Parse(to.URL())
	if err != nil {
		return err
	}
	p.target.Store(target)
	return nil
}

// Setting is the setting of a lakeFS that reaches its store through the proxy.
func (p *PutLimit) Setting() string { return "LAKEFS_BLOCKSTORE_S3_ENDPOINT=" + p.URL }
