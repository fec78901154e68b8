package lakefs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"regexp"
	"slices"
	"unicode/utf8"

	"github.com/treeverse/lakefs/pkg/api/apigen"

	"perago/pkg/txn"
)

// objectRecord is an object as lakeFS writes it.
type objectRecord struct {
	Path      string `json:"path"`
	PathType  string `json:"path_type"`
	SizeBytes *int64 `json:"size_bytes"`
	Checksum  string `json:"checksum"`
}

// largestObject is above what any object store holds as one object, in bytes, and
// leaves room to count with.
const largestObject = 1 << 50

func (r objectRecord) object() (txn.Object, error) {
	if r.PathType != "object" || r.SizeBytes == nil || *r.SizeBytes < 0 || *r.SizeBytes > largestObject {
		return txn.Object{}, fmt.Errorf("%q is not an object with a size", r.Path)
	}
	return txn.Object{Path: r.Path, Size: *r.SizeBytes, Checksum: r.Checksum}, nil
}

// Objects lists every object of a commit under a prefix, in the order of the
// bytes of their paths, page by page as the loop goes on. An error ends the
// listing: it is the last pair, and what came before is then not the whole.
// Errors: txn.ErrNotFound for the commit.
func (c *Client) Objects(ctx context.Context, repo txn.Repository, ref txn.CommitID, prefix txn.Prefix) iter.Seq2[txn.Object, error] {
	return func(yield func(txn.Object, error) bool) {
		if err := errors.Join(checkRepository(repo), checkCommit(ref)); err != nil {
			yield(txn.Object{}, err)
			return
		}
		last := ""
		for more := true; more; {
			var page []txn.Object
			var err error
			page, more, err = c.objects(ctx, repo, ref, prefix, last)
			if err != nil {
				yield(txn.Object{}, err)
				return
			}
			for _, object := range page {
				if !yield(object, nil) {
					return
				}
				last = object.Path
			}
		}
	}
}

// objects is the page of the listing that begins behind last.
func (c *Client) objects(ctx context.Context, repo txn.Repository, ref txn.CommitID, prefix txn.Prefix, last string) (page []txn.Object, more bool, err error) {
	var (
		amount     = apigen.PaginationAmount(pageSize)
		begins     = apigen.PaginationPrefix(prefix)
		after      = apigen.PaginationAfter(last)
		noMetadata = false
	)
	request, err := apigen.NewListObjectsRequest(c.api, string(repo), string(ref), &apigen.ListObjectsParams{
		Amount: &amount, Prefix: &begins, After: &after, UserMetadata: &noMetadata,
	})
	err = c.do(ctx, request, err, &call{operation: listObjects, want: http.StatusOK, decode: asPage(func(a listing[objectRecord]) error {
		objects, _, hasMore, err := entriesOf(a, last, string(prefix), func(record objectRecord) (txn.Object, string, error) {
			object, err := record.object()
			return object, object.Path, err
		})
		if err == nil {
			page, more = objects, hasMore
		}
		return err
	})})
	return page, more, err
}

// MarkMD5 is the key of the user metadata that says which MD5 an object's bytes have.
// Presigned sets it on what it links, after it compared the bytes with the store.
// User metadata is copied together with the bytes, so the mark stays true.
const MarkMD5 = "perago-md5"

// leastPart is the smallest part of an S3 multipart upload, except for the last, in
// bytes.
const leastPart = 5 << 20

// lakeFSAddress is an address that lakeFS chose for bytes that it wrote itself. The
// address of an object that was linked has a signature behind it, and an imported
// object keeps the store's own.
var lakeFSAddress = regexp.MustCompile(`/data/[0-9a-v]{20}/[0-9a-v]{20}$`)

// MD5Known reports whether the checksum of an object is known to be the MD5 of its
// bytes. A checksum of 32 hex digits alone does not say so: an imported object has
// the store's ETag, which is no MD5 where the store encrypts with keys, and a linked
// object has the checksum that its uploader named. lakeFS hashes what it writes
// itself, but its S3 gateway keeps the ETag of a multipart upload without the number
// of parts behind it. So a large object is not known either.
//
// It fails when the object has another checksum now than it was listed with.
// Errors: txn.ErrNotFound, txn.ErrGone when its data was removed by retention.
func (c *Client) MD5Known(ctx context.Context, repo txn.Repository, ref txn.CommitID, object txn.Object) (bool, error) {
	if err := errors.Join(checkRepository(repo), checkCommit(ref)); err != nil {
		return false, err
	}
	type answer struct {
		objectRecord
		Address  string            `json:"physical_address"`
		Metadata map[string]string `json:"metadata"`
	}
	known := false
	request, err := apigen.NewStatObjectRequest(c.api, string(repo), string(ref), &apigen.StatObjectParams{Path: object.Path})
	err = c.do(ctx, request, err, &call{operation: statObject, want: http.StatusOK, decode: asJSON(func(a answer) error {
		now, err := a.object()
		switch {
		case err != nil:
			return err
		case now != object:
			return fmt.Errorf("%q has %d bytes and the checksum %s, and was listed with %d and %s", now.Path, now.Size, now.Checksum, object.Size, object.Checksum)
		}
		known = a.Metadata[MarkMD5] == object.Checksum || object.Size < leastPart && lakeFSAddress.MatchString(a.Address)
		return nil
	})})
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", object.Path, err)
	}
	return known, nil
}

// ReadObject opens an object of a commit. The caller closes it; a read that
// fails later is txn.ErrRetryable. The context bounds the reading as well.
// Errors: txn.ErrNotFound, txn.ErrGone when its data was removed by retention.
func (c *Client) ReadObject(ctx context.Context, repo txn.Repository, ref txn.CommitID, path string) (io.ReadCloser, error) {
	if err := errors.Join(checkRepository(repo), checkCommit(ref)); err != nil {
		return nil, err
	}
	one := &call{operation: getObject, want: http.StatusOK, stream: true}
	request, err := apigen.NewGetObjectRequest(c.api, string(repo), string(ref), &apigen.GetObjectParams{Path: path})
	if err := c.do(ctx, request, err, one); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &answerReader{ReadCloser: one.body, call: one}, nil
}

// Upload writes one object to the branch's staging area, replacing what is there
// under the path. The content is streamed, and opened anew for each try. What it
// returns is what lakeFS says it stored: size in bytes and checksum are for the
// caller to compare. Idempotent on a branch that nobody else writes.
// Errors: txn.ErrNotFound for the branch, txn.ErrForbidden on a protected one;
// a content that cannot be read, or is not of its size, is an error without a
// class.
func (c *Client) Upload(ctx context.Context, repo txn.Repository, branch txn.Branch, path string, from txn.Content) (txn.Object, error) {
	if err := checkUpload(repo, branch, path); err != nil {
		return txn.Object{}, err
	}
	var object txn.Object
	body, contentType := &content{Content: from}, octets
	if from.Size > c.largestPut {
		body.form = newForm()
		contentType = body.form.contentType
	}
	request, err := apigen.NewUploadObjectRequestWithBody(c.api, string(repo), string(branch),
		&apigen.UploadObjectParams{Path: path}, contentType, nil)
	err = c.do(ctx, request, err, &call{
		operation: uploadObject, want: http.StatusCreated, content: body, decode: uploaded(path, &object),
	})
	if err != nil {
		return txn.Object{}, fmt.Errorf("upload %s: %w", path, err)
	}
	return object, nil
}

// octets is the content type of everything that is uploaded.
const octets = "application/octet-stream"

func checkUpload(repo txn.Repository, branch txn.Branch, path string) error {
	if err := errors.Join(checkRepository(repo), checkBranch(branch)); err != nil {
		return err
	}
	if !utf8.ValidString(path) {
		// lakeFS would take it and show another name for it.
		return fmt.Errorf("upload %q: a path that is not valid UTF-8: %w", path, txn.ErrRefused)
	}
	return nil
}

// uploaded reads what lakeFS says it stored under path.
func uploaded(path string, object *txn.Object) func([]byte) error {
	return asJSON(func(r objectRecord) (err error) {
		if r.Path != path {
			return fmt.Errorf("uploaded %q, the answer names %q", path, r.Path)
		}
		*object, err = r.object()
		return err
	})
}

// mostDeletes is lakeFS's bound on the paths of one bulk delete.
const mostDeletes = 1000

// DeleteObjects removes paths from the branch's staging area, as many calls as
// it takes. A path that is not there is no error. Idempotent; when it fails, some
// of the paths may be gone. An entry that lakeFS reports inside its 200 is an
// error that names the path: txn.ErrForbidden, txn.ErrRetryable.
func (c *Client) DeleteObjects(ctx context.Context, repo txn.Repository, branch txn.Branch, paths []string) error {
	if err := errors.Join(checkRepository(repo), checkBranch(branch)); err != nil {
		return err
	}
	type failure struct {
		Path       string `json:"path"`
		StatusCode int    `json:"status_code"`
		Message    string `json:"message"`
	}
	type answer struct {
		Errors *[]failure `json:"errors"`
	}
	for chunk := range slices.Chunk(paths, mostDeletes) {
		var failures []failure
		one := &call{operation: deleteObjects, want: http.StatusOK, decode: asJSON(func(a answer) error {
			if a.Errors == nil {
				return errors.New("the answer has no list of errors")
			}
			failures = *a.Errors
			return nil
		})}
		request, err := apigen.NewDeleteObjectsRequest(c.api, string(repo), string(branch), &apigen.DeleteObjectsParams{},
			apigen.DeleteObjectsJSONRequestBody{Paths: chunk})
		if err := c.do(ctx, request, err, one); err != nil {
			return fmt.Errorf("delete %d objects: %w", len(chunk), err)
		}
		if len(failures) > 0 {
			first := failures[0]
			kind := one.kindOf(first.StatusCode, first.Message)
			class, hint := txn.ErrRetryable, ""
			if kind != nil {
				class = txn.ErrRefused
			}
			if errors.Is(kind, txn.ErrForbidden) {
				hint = forbiddenHint
			}
			return fmt.Errorf("delete %s: %w", first.Path, one.failed(http.StatusOK, class, kind,
				fmt.Sprintf("%d of %d paths not deleted, the first with %d: %s", len(failures), len(chunk), first.StatusCode, first.Message), hint, nil))
		}
	}
	return nil
}
