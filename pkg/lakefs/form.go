package lakefs

import (
	"bytes"
	"context"
	"io"
	"mime/multipart"
	"strings"
)

const (
	// largestPut is the most bytes that S3 takes in one PUT request.
	largestPut = 5 << 30
	// largestUpload is the most bytes that lakeFS can upload to S3 as one object. It
	// uploads in at most 10,000 parts, and each part has 5 MiB.
	largestUpload = 10_000 * (5 << 20)
)

// UploadLimit returns 0 if the store of lakeFS takes an object of size bytes, and the
// store's limit if it does not. Only S3 has a limit here. lakeFS is asked for its kind
// of store only if the limit of S3 does not hold.
func (c *Client) UploadLimit(ctx context.Context, size int64) (limit int64, err error) {
	if size <= c.largestUpload {
		return 0, nil
	}
	s3, _, err := c.storage(ctx)
	if err != nil || !s3 {
		return 0, err
	}
	return c.largestUpload, nil
}

// form frames the content of an upload as a multipart form. lakeFS sends a plain body
// to S3 in one PUT, because it knows the body's length. It does not know the length of
// a file in a form, so it uploads that file to S3 in parts.
type form struct {
	contentType string
	head, tail  string
}

func newForm() *form {
	var text bytes.Buffer
	w := multipart.NewWriter(&text)
	// Writing to a buffer cannot fail.
	_, _ = w.CreateFormFile("content", "content")
	head := text.String()
	_ = w.Close()
	return &form{contentType: w.FormDataContentType(), head: head, tail: text.String()[len(head):]}
}

// around returns the body of one try.
func (f *form) around(plain *contentReader) io.Reader {
	return &formReader{
		Reader:  io.MultiReader(strings.NewReader(f.head), plain, strings.NewReader(f.tail)),
		content: plain, length: len(f.head) + plain.Len() + len(f.tail),
	}
}

type formReader struct {
	io.Reader
	content *contentReader
	length  int
}

// Len is what the retrying client sends as Content-Length.
func (r *formReader) Len() int { return r.length }

// Close ends the try.
func (r *formReader) Close() error { return r.content.Close() }
