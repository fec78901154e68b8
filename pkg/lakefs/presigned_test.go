package lakefs_test

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/fault"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// presignedBench is a memory server that signs, and a client with a wire to lakeFS
// and one to the store.
type presignedBench struct {
	server      *lakefstest.Server
	client      *lakefs.Presigned
	plain       *lakefs.Client
	lake, store *fault.Wire
	repo        txn.Repository
	// ways is how uploads went, as the client says it.
	ways []string
	// urls are the secrets that lakeFS gave out.
	mu   sync.Mutex
	urls []string
}

// newPresignedBench makes one whose store answers through answer, unless that is
// nil.
func newPresignedBench(t *testing.T, answer func(next http.RoundTripper, r *http.Request) (*http.Response, error)) *presignedBench {
	t.Helper()
	server := lakefstest.NewServer()
	server.PreSign = true
	b := &presignedBench{server: server, plain: server.Client(t), lake: fault.NewWire(server.Transport())}
	store := server.Transport()
	b.store = fault.NewWire(carry(func(r *http.Request) (*http.Response, error) {
		b.mu.Lock()
		b.urls = append(b.urls, r.URL.RawQuery, r.URL.Query().Get("X-Amz-Signature"))
		b.mu.Unlock()
		if r.URL.Host != "store.memory" {
			t.Errorf("asked %s", r.URL.Host)
		}
		for _, header := range []string{"Authorization", "Cookie", "Referer"} {
			if r.Header.Get(header) != "" {
				t.Errorf("the store was sent %s", header)
			}
		}
		if answer == nil {
			return store.RoundTrip(r)
		}
		return answer(store, r)
	}))
	var first txn.CommitID
	b.repo, first = lakefstest.NewRepository(t, b.plain, map[string]string{"a": "1"}, lakefstest.Allow(lakefstest.RuleBranches))
	if err := b.plain.CreateBranch(t.Context(), b.repo, staging, first); err != nil {
		t.Fatal(err)
	}
	client, err := lakefs.New(server.Config(), b.lake)
	if err != nil {
		t.Fatal(err)
	}
	b.client = lakefs.NewPresigned(lakefs.Settling{Client: client}, b.store, func(direct bool, why string) {
		b.ways = append(b.ways, strings.TrimSpace(fmt.Sprint(direct, " ", why)))
	})
	return b
}

type carry func(*http.Request) (*http.Response, error)

func (f carry) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// summed is a text that keeps the sum of what was read of it, as staging does.
func summed(text string) txn.Content {
	var mu sync.Mutex
	var sum hash.Hash
	return txn.Content{
		Size: int64(len(text)),
		Open: func() (io.ReadCloser, error) {
			mu.Lock()
			defer mu.Unlock()
			sum = md5.New()
			return io.NopCloser(io.TeeReader(strings.NewReader(text), sum)), nil
		},
		Sum: func() string {
			mu.Lock()
			defer mu.Unlock()
			return hex.EncodeToString(sum.Sum(nil))
		},
	}
}

func (b *presignedBench) upload(t *testing.T, path, text string) (txn.Object, error) {
	t.Helper()
	object, err := b.client.Upload(t.Context(), b.repo, staging, path, summed(text))
	b.keepsSecrets(t, err)
	sum := md5.Sum([]byte(text))
	if want := (txn.Object{Path: path, Size: int64(len(text)), Checksum: hex.EncodeToString(sum[:])}); err == nil && object != want {
		t.Errorf("uploaded %+v, told of %+v", want, object)
	}
	return object, err
}

// keepsSecrets holds everything that was said to hold no URL.
func (b *presignedBench) keepsSecrets(t *testing.T, err error) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, said := range append(slices.Clone(b.ways), fmt.Sprintf("%v %+v %#v", err, err, err)) {
		for _, secret := range b.urls {
			if secret != "" && strings.Contains(said, secret) {
				t.Errorf("%q is told in %s", secret, said)
			}
		}
	}
}

// tree commits what is staged and reads it.
func (b *presignedBench) tree(t *testing.T) map[string]string {
	t.Helper()
	commit, err := b.plain.CommitUnchanged(t.Context(), b.repo, staging, "to look at", nil)
	if err != nil {
		t.Fatal(err)
	}
	return lakefstest.Tree(t, b.plain, b.repo, commit.ID)
}

var (
	throughLakeFS = fault.Match{Method: http.MethodPost, Query: "path="}
	toSign        = fault.Match{Method: http.MethodGet, Path: "/staging/backing"}
	toLink        = fault.Match{Method: http.MethodPut, Path: "/staging/backing"}
	toStore       = fault.Match{Method: http.MethodPut}
)

// sent is how many of each kind of request were sent.
func (b *presignedBench) sent() [4]int {
	return [4]int{len(b.lake.Matching(toSign)), len(b.store.Matching(toStore)), len(b.lake.Matching(toLink)), len(b.lake.Matching(throughLakeFS))}
}

// The bytes go to the store and not through lakeFS, in one request with their
// length and without lakeFS's key.
func TestPresignedUpload(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"hello", "", strings.Repeat("x", 1<<20)} {
		b := newPresignedBench(t, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			if r.ContentLength != int64(len(text)) || len(r.TransferEncoding) != 0 || r.Header.Get("Content-Type") != "application/octet-stream" {
				t.Errorf("Content-Length %d, %v, %v", r.ContentLength, r.TransferEncoding, r.Header)
			}
			return next.RoundTrip(r)
		})
		for _, path := range []string{"data/x", "data/y z+%41"} {
			if _, err := b.upload(t, path, text); err != nil {
				t.Fatal(err)
			}
		}
		if sent := b.sent(); sent != [4]int{2, 2, 2, 0} {
			t.Errorf("sent %v", sent)
		}
		if asked := len(b.lake.Matching(fault.Match{Path: "/config"})); asked != 1 {
			t.Errorf("asked %d times whether lakeFS signs", asked)
		}
		if diff := cmp.Diff([]string{"true"}, b.ways); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[string]string{"a": "1", "data/x": text, "data/y z+%41": text}, b.tree(t)); diff != "" {
			t.Error(diff)
		}
	}
}

// Each of the three requests of an upload meets every fault: the object is there
// whole, and every try of the store has an address of its own.
func TestPresignedUploadUnderEveryFault(t *testing.T) {
	t.Parallel()
	for at, wire := range map[string]func(*presignedBench) (*fault.Wire, fault.Match){
		"sign":  func(b *presignedBench) (*fault.Wire, fault.Match) { return b.lake, toSign },
		"store": func(b *presignedBench) (*fault.Wire, fault.Match) { return b.store, toStore },
		"link":  func(b *presignedBench) (*fault.Wire, fault.Match) { return b.lake, toLink },
	} {
		for _, f := range fault.All() {
			t.Run(at+"/"+f.Name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := newPresignedBench(t, nil)
					target, match := wire(b)
					armed := target.Arm(match, f)
					if _, err := b.upload(t, "x", "hello"); err != nil {
						t.Fatal(err)
					}
					<-armed.Over()
					if f.Server == fault.Later {
						time.Sleep(f.Wait) // and what was sent instead has landed too
					}
					want := [4]int{1, 1, 1, 0}
					repeat := f.Name != "slow" && f.Name != "empty"
					switch {
					case at == "store" && (f.Name == "refused" || f.Name == "page" || f.Name == "garbled"):
						// Out of reach, or something else answers there.
						want = [4]int{1, 1, 0, 1}
					case at == "store" && f.Name == "empty":
						// An empty body is what the store answers with.
					case at == "store" && repeat:
						want = [4]int{2, 2, 1, 0}
					case at == "sign" && (repeat || f.Name == "empty"):
						want[0]++
					case at == "link" && (repeat || f.Name == "empty"):
						want[2]++
					}
					if sent := b.sent(); sent != want {
						t.Errorf("sent %v, want %v", sent, want)
					}
					paths := map[string]bool{}
					for _, request := range b.store.Matching(toStore) {
						paths[request.Path] = true
					}
					if len(paths) != want[1] {
						t.Errorf("%d tries of the store had %d addresses", want[1], len(paths))
					}
					if diff := cmp.Diff(map[string]string{"a": "1", "x": "hello"}, b.tree(t)); diff != "" {
						t.Error(diff)
					}
				})
			})
		}
	}
}

// What arrives late at the store is at an address that nothing is linked to: it
// changes no object that was compared.
func TestLatePutChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPresignedBench(t, nil)
		late := b.store.Arm(toStore, fault.Late(10*time.Minute)) // its URL holds for longer
		opened := 0
		content := func(text func() string) txn.Content {
			return txn.Content{Size: 3, Open: func() (io.ReadCloser, error) {
				opened++
				return io.NopCloser(strings.NewReader(text())), nil
			}}
		}
		// The file changes between two tries, which staging sees by the sum.
		if _, err := b.client.Upload(t.Context(), b.repo, staging, "x", content(func() string { return fmt.Sprintf("no%d", opened) })); err != nil {
			t.Fatal(err)
		}
		<-late.Over()
		time.Sleep(20 * time.Minute)
		if diff := cmp.Diff(map[string]string{"a": "1", "x": "no2"}, b.tree(t)); diff != "" || opened != 2 {
			t.Errorf("opened %d times; %s", opened, diff)
		}
	})
}

// A URL that has expired is replaced by a new one.
func TestExpiredURLIsReplaced(t *testing.T) {
	t.Parallel()
	for expired := range 5 {
		synctest.Test(t, func(t *testing.T) {
			var b *presignedBench
			left := expired
			b = newPresignedBench(t, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				if left--; left >= 0 {
					// On its way for longer than the URL holds.
					time.Sleep(b.server.PreSignExpiry + time.Second)
				}
				return next.RoundTrip(r)
			})
			b.server.PreSignExpiry = 5 * time.Minute // less than a silent store has
			if _, err := b.upload(t, "x", "hello"); err != nil {
				t.Fatal(err)
			}
			want, ways := [4]int{expired + 1, expired + 1, 1, 0}, []string{"true"}
			if expired > 2 {
				// Then it is not the time.
				want = [4]int{3, 3, 0, 1}
				ways = append(ways, "false the object store answered 403 to PUT http://store.memory: AccessDenied: Request has expired")
			}
			if sent := b.sent(); sent != want {
				t.Errorf("sent %v, want %v", sent, want)
			}
			if diff := cmp.Diff(ways, b.ways); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(map[string]string{"a": "1", "x": "hello"}, b.tree(t)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func storeAnswers(status int, body string, header ...string) func(http.RoundTripper, *http.Request) (*http.Response, error) {
	return func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
		if r.Body != nil {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		h := http.Header{"Content-Type": {"application/xml"}}
		for i := 0; i+1 < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		body := strings.ReplaceAll(body, "URL", strings.ReplaceAll(r.URL.String(), "&", "&amp;"))
		return &http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}, nil
	}
}

// Where the store cannot be used uploads go through lakeFS, for some minutes, and
// it is said why.
func TestUploadsGoThroughLakeFSWhereTheStoreCannotBeUsed(t *testing.T) {
	t.Parallel()
	const xml = `<Error><Code>%s</Code><Message>%s URL</Message><StringToSign>URL</StringToSign></Error>`
	for name, c := range map[string]struct {
		answer func(http.RoundTripper, *http.Request) (*http.Response, error)
		lake   func(b *presignedBench)
		why    string
	}{
		"lakeFS does not sign": {lake: func(b *presignedBench) { b.server.PreSign = false }, why: ""},
		"lakeFS says no to the question": {lake: func(b *presignedBench) {
			b.lake.Arm(fault.Match{Path: "/config"}, fault.Status(http.StatusForbidden, 0))
		}, why: "lakeFS answered 403"},
		"nobody is there": {answer: func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}, why: "the object store gave no answer to PUT http://store.memory: dial tcp: connection refused"},
		"its name is unknown": {answer: func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
			return nil, &net.DNSError{Err: "no such host", Name: r.URL.Host}
		}, why: "no such host"},
		"its sum is another":        {answer: storeAnswers(200, "", "ETag", `"0123456789abcdef0123456789abcdef"`), why: "the MD5 of what it was sent"},
		"its sum is of parts":       {answer: storeAnswers(200, "", "ETag", `"0123456789abcdef0123456789abcdef-2"`), why: "the MD5 of what it was sent"},
		"it says no sum":            {answer: storeAnswers(200, ""), why: "the MD5 of what it was sent"},
		"it leads elsewhere":        {answer: storeAnswers(303, "", "Location", "http://elsewhere.test/"), why: "answered 303"},
		"it does not take this":     {answer: storeAnswers(400, fmt.Sprintf(xml, "InvalidRequest", "no")), why: "answered 400 to PUT http://store.memory: InvalidRequest: no"},
		"it cannot do this":         {answer: storeAnswers(501, fmt.Sprintf(xml, "NotImplemented", "")), why: "answered 501"},
		"it refuses":                {answer: storeAnswers(403, fmt.Sprintf(xml, "SignatureDoesNotMatch", "no")), why: "SignatureDoesNotMatch: no"},
		"a page refuses":            {answer: storeAnswers(403, "<html>URL</html>"), why: "answered 403 to PUT http://store.memory: Forbidden"},
		"lakeFS's own have expired": {answer: storeAnswers(400, fmt.Sprintf(xml, "ExpiredToken", "no")), why: "ExpiredToken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newPresignedBench(t, c.answer)
				if c.lake != nil {
					c.lake(b)
				}
				for _, path := range []string{"x", "y"} {
					if _, err := b.upload(t, path, "hello"); err != nil {
						t.Fatal(err)
					}
				}
				if sent := b.sent(); sent[2] != 0 || sent[3] != 2 || c.lake != nil && sent[1] != 0 {
					t.Errorf("sent %v", sent)
				}
				last := b.ways[len(b.ways)-1]
				if way, why, _ := strings.Cut(last, " "); way != "false" || !strings.Contains(why, c.why) || c.why == "" && why != "" || len(b.ways) > 2 {
					t.Errorf("the ways were %q", b.ways)
				}
				tries := len(b.store.Matching(toStore))
				time.Sleep(6 * time.Minute)
				if _, err := b.upload(t, "z", "hello"); err != nil {
					t.Fatal(err)
				}
				if again := len(b.store.Matching(toStore)) - tries; (again > 0) != (c.answer != nil || strings.Contains(name, "question")) {
					t.Errorf("%d tries of the store some minutes later", again)
				}
				if diff := cmp.Diff(map[string]string{"a": "1", "x": "hello", "y": "hello", "z": "hello"}, b.tree(t)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// What is too large for one request to the store goes through lakeFS, alone.
func TestTooLargeForTheStore(t *testing.T) {
	t.Parallel()
	b := newPresignedBench(t, nil)
	broken := errors.New("opened")
	for _, size := range []int64{5 << 30, 5<<30 + 1} {
		_, err := b.client.Upload(t.Context(), b.repo, staging, "x", txn.Content{Size: size, Open: func() (io.ReadCloser, error) { return nil, broken }})
		if !errors.Is(err, broken) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if sent := b.sent(); sent != [4]int{1, 1, 0, 1} {
		t.Errorf("sent %v", sent)
	}
}

// A store that fails for good fails the upload, after as many tries as lakeFS is
// given, and says no URL.
func TestStoreThatFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(http.RoundTripper, *http.Request) (*http.Response, error)
		tries  int
		text   string
	}{
		"503":             {storeAnswers(503, `<Error><Code>SlowDown</Code><Message>Please reduce your request rate. URL</Message></Error>`), 8, "upload x: the object store answered 503 to PUT http://store.memory: SlowDown: Please reduce your request rate."},
		"503 for an hour": {storeAnswers(503, "", "Retry-After", "3600"), 1, "the object store answered 503"},
		"cut": {func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "write", Net: "tcp", Err: fmt.Errorf("to %s: %w", r.URL, syscall.EPIPE)}
		}, 8, "the object store gave no answer to PUT http://store.memory: write tcp: to http"},
		"408":                      {storeAnswers(408, ""), 8, "answered 408"},
		"400 for the time it took": {storeAnswers(400, `<Error><Code>RequestTimeout</Code><Message>idle</Message></Error>`), 8, "RequestTimeout: idle"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newPresignedBench(t, c.answer)
				_, err := b.upload(t, "x", "hello")
				if !errors.Is(err, txn.ErrRetryable) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%v", err)
				}
				if sent := b.sent(); sent != [4]int{c.tries, c.tries, 0, 0} {
					t.Errorf("sent %v", sent)
				}
				if diff := cmp.Diff(map[string]string{"a": "1"}, b.tree(t)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// A refusal of lakeFS's is one, whichever of its requests it answers.
func TestPresignedUploadThatLakeFSRefuses(t *testing.T) {
	t.Parallel()
	b := newPresignedBench(t, nil)
	_, err := b.client.Upload(t.Context(), b.repo, "no-such-branch", "x", summed("hello"))
	if !errors.Is(err, txn.ErrNotFound) || !strings.Contains(err.Error(), "upload x: ") {
		t.Errorf("%v", err)
	}
	for _, c := range []struct {
		branch txn.Branch
		path   string
	}{{staging, "not \xff UTF-8"}, {"..", "x"}} {
		if _, err := b.client.Upload(t.Context(), b.repo, c.branch, c.path, summed("hello")); !errors.Is(err, txn.ErrRefused) {
			t.Errorf("%q on %s: %v", c.path, c.branch, err)
		}
	}
	if sent := b.sent(); sent != [4]int{1, 1, 1, 0} {
		t.Errorf("sent %v", sent)
	}
}

// A content that is at fault fails the upload, is not sent again, and is never
// linked.
func TestPresignedContentThatIsAtFault(t *testing.T) {
	t.Parallel()
	for text, size := range map[string]int64{"short": 6, "longer": 5, "none": -1, "some": 0} {
		b := newPresignedBench(t, nil)
		content := summed(text)
		content.Size = size
		_, err := b.client.Upload(t.Context(), b.repo, staging, "x", content)
		if err == nil || errors.Is(err, txn.ErrRetryable) || errors.Is(err, txn.ErrRefused) {
			t.Errorf("%q as %d bytes: %v", text, size, err)
		}
		if sent := b.sent(); sent[1] > 1 || sent[2] != 0 || sent[3] != 0 {
			t.Errorf("%q as %d bytes: sent %v", text, size, sent)
		}
	}
}

// Many uploads at once ask once and are told once.
func TestManyPresignedUploadsFindOutOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPresignedBench(t, func(http.RoundTripper, *http.Request) (*http.Response, error) {
			time.Sleep(5 * time.Second)
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("i/o timeout")}
		})
		began := time.Now()
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				if _, err := b.client.Upload(t.Context(), b.repo, staging, fmt.Sprint("x", i), summed("hello")); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if sent := b.sent(); sent[3] != 50 || len(b.ways) != 2 || time.Since(began) > 10*time.Second {
			t.Errorf("sent %v, %q, after %s", sent, b.ways, time.Since(began))
		}
		if asked := len(b.lake.Matching(fault.Match{Path: "/config"})); asked != 1 {
			t.Errorf("asked %d times", asked)
		}
	})
}

// A cancelled upload ends at once, is not linked, does not begin again through
// lakeFS, and says nothing about the store.
func TestCancelledPresignedUpload(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(*http.Request) (*http.Response, error){
		"while it is sent":   func(*http.Request) (*http.Response, error) { return nil, context.Canceled },
		"as it is refused":   func(r *http.Request) (*http.Response, error) { return storeAnswers(403, "")(nil, r) },
		"as it is not taken": func(r *http.Request) (*http.Response, error) { return storeAnswers(400, "")(nil, r) },
		"while it is connected": func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.Canceled}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			var read atomic.Int64
			b := newPresignedBench(t, func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
				n, _ := io.CopyN(io.Discard, r.Body, 2)
				read.Add(n)
				cancel()
				return answer(r)
			})
			_, err := b.client.Upload(ctx, b.repo, staging, "x", summed("hello"))
			b.keepsSecrets(t, err)
			if err == nil || read.Load() != 2 {
				t.Errorf("%v after %d bytes", err, read.Load())
			}
			if sent := b.sent(); sent != [4]int{1, 1, 0, 0} {
				t.Errorf("sent %v", sent)
			}
			if diff := cmp.Diff([]string{"true"}, b.ways); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// lakeFS's answer with the URL is a secret too: it is in no error, whatever is
// wrong with it.
func TestAnswersWithAURLAreNotRepeated(t *testing.T) {
	t.Parallel()
	const secret = "X-Amz-Signature=0123456789abcdef"
	for name, body := range map[string]string{
		"no address":     `{"presigned_url":"http://store.memory/x?` + secret + `"}`,
		"no URL":         `{"physical_address":"s3://b/x","presigned_url":"http://[/?` + secret + `"}`,
		"another URL":    `{"physical_address":"s3://b/x","presigned_url":"file:///x?` + secret + `"}`,
		"a list":         `["http://store.memory/x?` + secret + `"]`,
		"no JSON":        `http://store.memory/x?` + secret,
		"a number":       `{"physical_address":"s3://b/x","presigned_url":1,"x":"` + secret + `"}`,
		"a refusal":      `400 {"physical_address":"s3://b/x","presigned_url":"http://store.memory/x?` + secret + `"}`,
		"a page":         `502 <html>http://store.memory/x?` + secret + `</html>`,
		"another status": `203 {"physical_address":"s3://b/x","presigned_url":"http://store.memory/x?` + secret + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := lakefstest.NewServer()
				server.PreSign = true
				next := server.Transport()
				client, err := lakefs.New(server.Config(), carry(func(r *http.Request) (*http.Response, error) {
					if !strings.HasSuffix(r.URL.Path, "/staging/backing") {
						return next.RoundTrip(r)
					}
					status, text := 200, body
					if code, rest, ok := strings.Cut(body, " "); ok && len(code) == 3 {
						status, _ = strconv.Atoi(code)
						text = rest
					}
					return storeAnswers(status, text)(nil, r)
				}))
				if err != nil {
					t.Fatal(err)
				}
				presigned := lakefs.NewPresigned(lakefs.Settling{Client: client}, next, func(bool, string) {})
				_, err = presigned.Upload(t.Context(), "repo", staging, "x", summed("hello"))
				if err == nil || strings.Contains(fmt.Sprintf("%v %+v", err, err), "0123456789abcdef") {
					t.Errorf("%v", err)
				}
			})
		})
	}
}
