package conductortest

import (
	"bytes"
	"io"
	"net/http"
)

// Transport serves each request by calling the handler in the caller's own
// goroutine: no socket, so it works in a testing/synctest bubble, and faults can
// be put before it as before the real server.
func Transport(handler http.Handler) http.RoundTripper { return inProcess{handler} }

type inProcess struct{ handler http.Handler }

// RoundTrip returns the handler's answer, or the context's error when it ended
// meanwhile: as on a socket, the server may have acted all the same.
func (t inProcess) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	served := request.Clone(request.Context())
	if served.Body == nil {
		served.Body = http.NoBody
	}
	defer func() { _ = served.Body.Close() }()
	served.RequestURI = request.URL.RequestURI()
	recorder := &recorder{header: http.Header{}, status: http.StatusOK}
	t.handler.ServeHTTP(recorder, served)
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	return &http.Response{
		Status: http.StatusText(recorder.status), StatusCode: recorder.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: recorder.header, Body: io.NopCloser(&recorder.body), ContentLength: int64(recorder.body.Len()),
		Request: request,
	}, nil
}

type recorder struct {
	header http.Header
	status int
	wrote  bool
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if !r.wrote {
		r.status, r.wrote = status, true
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}
