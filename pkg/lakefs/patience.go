package lakefs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// patience is how long lakeFS may be silent: from the last byte of a request that was
// taken until its answer begins, and from then until a small answer is whole, or
// until the next piece of an object comes. It is far above what anything takes, a
// commit of many millions of changes too. It is for calls without a deadline: there a
// server that takes requests and answers none would hold a task for ever, because its
// lease is Conductor's and goes on. Where the caller gives a deadline, that is the only
// limit: a budget may give a merge more than this, and a merge that is given up while
// its hook still runs is in doubt.
const patience = 10 * time.Minute

// errSilent is not asked for again: the server had its time.
var errSilent = fmt.Errorf("no sign of life for %s", patience)

// patient is a transport that gives up on a silent server, unless the request has a
// deadline.
type patient struct {
	http.RoundTripper
	// streams says that the body of a 200 is handed on as it comes.
	streams bool
}

// RoundTrip is that of the transport below. An answer's body has to be closed.
func (p patient) RoundTrip(request *http.Request) (*http.Response, error) {
	if _, own := request.Context().Deadline(); own {
		return p.RoundTripper.RoundTrip(request)
	}
	ctx, cancel := context.WithCancelCause(request.Context())
	w := &watch{ctx: ctx, cancel: cancel, timer: time.AfterFunc(patience, func() { cancel(errSilent) })}
	watched := request.WithContext(ctx)
	if request.Body != nil && request.Body != http.NoBody {
		watched.Body = &sentBody{request.Body, w}
	}
	response, err := p.RoundTripper.RoundTrip(watched)
	if err != nil {
		return nil, w.end(err)
	}
	// A refusal is a small answer, also where the object would be streamed.
	streamed := p.streams && response.StatusCode == http.StatusOK
	if streamed {
		w.timer.Stop()
	} else {
		w.timer.Reset(patience)
	}
	response.Body = &answerBody{response.Body, w, streamed}
	return response, nil
}

// CloseIdleConnections is that of the transport below.
func (p patient) CloseIdleConnections() {
	if closer, ok := p.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// watch ends a request when its timer runs out.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// end ends the watch and says why the request ended.
func (w *watch) end(err error) error {
	w.timer.Stop()
	if err != nil && errors.Is(context.Cause(w.ctx), errSilent) {
		err = errSilent
	}
	w.cancel(nil)
	return err
}

// sentBody is a request's body: while the server takes it, it is not silent.
type sentBody struct {
	io.ReadCloser
	watch *watch
}

func (b *sentBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	// Reset after the end would begin it again.
	if b.watch.timer.Stop() {
		b.watch.timer.Reset(patience)
	}
	return n, err
}

// answerBody is an answer's body. One that is streamed is watched while its reader
// waits for it, and any other from its beginning to its end.
type answerBody struct {
	io.ReadCloser
	watch    *watch
	streamed bool
}

func (b *answerBody) Read(p []byte) (int, error) {
	if b.streamed {
		b.watch.timer.Reset(patience)
		defer b.watch.timer.Stop()
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(context.Cause(b.watch.ctx), errSilent) {
		err = errSilent
	}
	return n, err
}

func (b *answerBody) Close() error {
	err := b.ReadCloser.Close()
	_ = b.watch.end(nil)
	return err
}
