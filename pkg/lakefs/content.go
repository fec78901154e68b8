package lakefs

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"perago/pkg/txn"
)

// content sends a txn.Content as the body of one upload, which may take several
// tries. What goes wrong in it is the caller's file, not the server, so its
// first error is kept apart from what the transport makes of it.
type content struct {
	txn.Content
	// form frames the content as a file of a form; nil sends the bytes alone.
	form *form

	mu    sync.Mutex
	first error
}

func (c *content) fault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first
}

func (c *content) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == nil {
		c.first = err
	}
	return err
}

// prepare looks at an empty content, which is sent as no body at all: the only
// form in which Content-Length: 0 reaches every server.
func (c *content) prepare() error {
	switch {
	case c.Size < 0:
		return c.fail(fmt.Errorf("a size of %d bytes", c.Size))
	case c.Size > 0:
		return nil
	}
	r := &contentReader{content: c}
	_, err := r.Read(make([]byte, 1))
	_ = r.Close()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// reader is the body of one try. It opens the content when the first byte is
// asked for: the retrying client asks for a body it only measures, and a
// connection that cannot be made needs no file.
func (c *content) reader() (io.Reader, error) {
	plain := &contentReader{content: c, left: c.Size}
	if c.form == nil {
		return plain, nil
	}
	return c.form.around(plain), nil
}

type contentReader struct {
	content *content
	left    int64

	// The transport may close a body while another goroutine still reads it.
	mu     sync.Mutex
	open   io.ReadCloser
	closed bool
}

var errBodyClosed = errors.New("the request's body is closed")

// Len is what the retrying client sends as Content-Length.
func (r *contentReader) Len() int { return int(r.left) }

func (r *contentReader) source() (io.Reader, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errBodyClosed
	}
	if r.open == nil {
		open, err := r.content.Open()
		if err != nil {
			return nil, r.content.fail(fmt.Errorf("open the content: %w", err))
		}
		r.open = open
	}
	return r.open, nil
}

// Read gives exactly Size bytes. A content that turns out longer or shorter is
// an error and not a truncated object: it changed while it was read.
func (r *contentReader) Read(p []byte) (int, error) {
	source, err := r.source()
	if err != nil {
		return 0, err
	}
	n, err := source.Read(p)
	r.left -= int64(n)
	switch {
	case r.left < 0:
		return 0, r.content.fail(fmt.Errorf("the content is longer than the %d bytes it was announced with; it changed while it was read", r.content.Size))
	case errors.Is(err, io.EOF) && r.left > 0:
		return 0, r.content.fail(fmt.Errorf("the content is %d bytes shorter than the %d it was announced with; it changed while it was read", r.left, r.content.Size))
	case err != nil && !errors.Is(err, io.EOF):
		if r.isClosed() {
			return n, errBodyClosed
		}
		return n, r.content.fail(fmt.Errorf("read the content: %w", err))
	}
	return n, err
}

func (r *contentReader) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// Close ends the try.
func (r *contentReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.open == nil {
		r.closed = true
		return nil
	}
	r.closed = true
	return r.open.Close()
}
