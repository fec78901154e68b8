package lakefs

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"perago/pkg/credential"
	"perago/pkg/txn"
)

// counted is a body that knows how much of it was read.
type counted struct {
	io.Reader
	read int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read += n
	return n, err
}

func (c *counted) Close() error { return nil }

// mostRead is what may be read of one answer where the bound is lowered, in bytes.
// Of one after which it sends again, go-retryablehttp reads 4 KiB more, to have the
// connection back.
const mostRead = largestRefusal + 1 + 4<<10

// answers is a transport that gives one answer, then another one for ever. Each
// body holds the text so many times, and what a server could echo stands in it
// where it says so.
type answers struct {
	statuses [2]int
	bodies   [2]string
	header   http.Header
	requests int
	longest  int
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	n := min(a.requests, 1)
	if a.requests++; a.requests > 10_000 {
		panic("it does not end")
	}
	body := &counted{Reader: strings.NewReader(a.bodies[n])}
	response := &http.Response{StatusCode: a.statuses[n], Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: a.header.Clone(), ContentLength: -1, Request: r}
	response.Body = watched{body, func() { a.longest = max(a.longest, body.read) }}
	return response, nil
}

type watched struct {
	*counted
	closed func()
}

func (w watched) Close() error { w.closed(); return nil }

var echoed = strings.NewReplacer("KEY", testKey, "SECRET", testSecret, "BASIC", base64.StdEncoding.EncodeToString([]byte(testKey+":"+testSecret)))

// wantServerError fails unless an error is one of lakeFS's, of one class, one line
// of a bounded length, and holds nothing of the key.
func wantServerError(t *testing.T, err error) *txn.ServerError {
	t.Helper()
	var failed *txn.ServerError
	if !errors.As(err, &failed) {
		t.Fatalf("%T: %v", err, err)
	}
	classes := 0
	for _, class := range []error{txn.ErrRefused, txn.ErrRetryable, txn.ErrUnknownOutcome} {
		if errors.Is(err, class) {
			classes++
		}
	}
	text := err.Error()
	if classes != 1 || failed.Method == "" || failed.Path == "" || len(text) > 2*longestMessage || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		t.Fatalf("%d classes, %d bytes: %.1000q", classes, len(text), text)
	}
	for _, secret := range []string{testSecret, testKey, base64.StdEncoding.EncodeToString([]byte(testKey + ":" + testSecret))} {
		if strings.Contains(text, secret) {
			t.Fatalf("the key is in %.1000q", text)
		}
	}
	return failed
}

// FuzzAnswers: whatever answers a call, the call ends; what it read is bounded; it
// succeeds only on the status of success; and its error has the one class that the
// call allows.
func FuzzAnswers(f *testing.F) {
	for i, c := range calls {
		f.Add(byte(i), uint16(c.status), c.good, uint16(503), "<html>", byte(0), "")
		f.Add(byte(i), uint16(503), "", uint16(c.status), c.good, byte(0), "1")
		f.Add(byte(i), uint16(400+i), `{"message": "SECRET KEY BASIC"}`, uint16(200), `{}`, byte(0), "")
	}
	f.Add(byte(0), uint16(200), strings.Repeat(" ", 1000), uint16(200), "null", byte(200), "Fri, 31 Dec 9999 23:59:59 GMT")
	f.Add(byte(3), uint16(200), `{"pagination":{"has_more":true},"results":[`+commitJSON("a", "b")+`]}`, uint16(200), `{"pagination":{"has_more":true},"results":[]}`, byte(0), "-1")
	f.Add(byte(17), uint16(409), `{"reference":""}`, uint16(412), "perago publish fence: \x00\n\x1b[31m", byte(0), "")
	f.Fuzz(func(t *testing.T, which byte, status uint16, body string, later uint16, laterBody string, times byte, retryAfter string) {
		c := calls[int(which)%len(calls)]
		a := &answers{statuses: [2]int{100 + int(status)%500, 100 + int(later)%500}, header: http.Header{"Retry-After": {retryAfter}, "Location": {body}, "Etag": {laterBody}}}
		a.bodies = [2]string{strings.Repeat(echoed.Replace(body), 1+int(times)), echoed.Replace(laterBody)}
		synctest.Test(t, func(t *testing.T) {
			client := testClient(t, a)
			client.largest = 4 << 10
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			err := c.call(ctx, client)
			if err == nil {
				if a.statuses[0] != c.status && a.statuses[1] != c.status {
					t.Fatalf("%s succeeded on %v", c.operation, a.statuses)
				}
				return
			}
			wantServerError(t, err)
			if once[c.operation] && (errors.Is(err, txn.ErrRetryable) || a.requests != 1) || !once[c.operation] && errors.Is(err, txn.ErrUnknownOutcome) {
				t.Fatalf("%s after %d requests: %v", c.operation, a.requests, err)
			}
		})
		if a.longest > mostRead && c.operation != getObject {
			t.Fatalf("%s read %d bytes of an answer", c.operation, a.longest)
		}
	})
}

// FuzzListings: what two pages of any content list is in order, below the prefix,
// and the whole of what was sent; else it is an error.
func FuzzListings(f *testing.F) {
	object := func(path string) string {
		return `{"path":"` + path + `","path_type":"object","size_bytes":1,"checksum":"x","id":"` + path + `","commit_id":"` + string(id("a")) + `"}`
	}
	f.Add(`{"pagination":{"has_more":true},"results":[`+object("w/a")+`,`+object("w/b")+`]}`, `{"pagination":{"has_more":false},"results":[`+object("w/c")+`]}`, "w/")
	f.Add(`{"pagination":{"has_more":true},"results":[`+object("w/b")+`]}`, `{"pagination":{"has_more":false},"results":[`+object("w/a")+`]}`, "w/")
	f.Add(`{"pagination":{"has_more":false},"results":[`+object("w2/b")+`]}`, `{}`, "w")
	f.Add(`{"pagination":{"has_more":false},"results":[`+object(`w/`+"\xff")+`,`+object(`w/\udfff`)+`]}`, `{}`, "")
	f.Add(`{"pagination":{"has_more":true},"results":[`+commitJSON("a", "c")+`]}`, `{"pagination":{"has_more":false},"results":[`+commitJSON("c", "b")+`]}`, "")
	f.Add(`{"pagination":{"has_more":true},"results":[`+commitJSON("a", "c")+`]}`, `{"pagination":{"has_more":true},"results":[`+commitJSON("c", "a")+`]}`, "")
	f.Fuzz(func(t *testing.T, first, second, prefix string) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			client := func() *Client {
				c := testClient(t, &answers{statuses: [2]int{200, 200}, bodies: [2]string{first, second}})
				c.repeats = 0
				return c
			}
			last := ""
			for object, err := range client().Objects(ctx, repo, id("a"), txn.Prefix(prefix)) {
				if err != nil {
					wantServerError(t, err)
					break
				}
				if object.Path <= last || !strings.HasPrefix(object.Path, prefix) {
					t.Fatalf("%q after %q below %q", object.Path, last, prefix)
				}
				last = object.Path
			}
			branches, err := client().Branches(ctx, repo, prefix)
			if err != nil {
				wantServerError(t, err)
			}
			for i, branch := range branches {
				if !strings.HasPrefix(string(branch.Name), prefix) || i > 0 && branch.Name <= branches[i-1].Name || checkCommit(branch.Head) != nil {
					t.Fatalf("%+v below %q", branches, prefix)
				}
			}
			commits, reached, err := client().History(ctx, repo, id("a"), id("b"), 50)
			if err != nil {
				wantServerError(t, err)
			}
			want := id("a")
			for i, commit := range commits {
				if commit.ID != want || commit.ID == id("b") || i >= 50 {
					t.Fatalf("no chain of first parents down to b: %+v", commits)
				}
				if want = ""; len(commit.Parents) > 0 {
					want = commit.Parents[0]
				}
			}
			if reached && want != id("b") {
				t.Fatalf("reached %q", want)
			}
			differ, err := client().Differ(ctx, repo, id("a"), id("b"), txn.Prefix(prefix))
			if err != nil {
				wantServerError(t, err)
			}
			if differ && !strings.Contains(strings.ToLower(first+second), "path") {
				t.Fatalf("a difference without a path in %q, %q", first, second)
			}
		})
	})
}

// FuzzStore: whatever an object store answers, the URL that was signed is in no
// error, and a checksum is a plain MD5 or none.
func FuzzStore(f *testing.F) {
	const signed = "https://store.test/bucket/x?X-Amz-Signature=0123456789abcdef0123456789abcdef&X-Amz-Credential=AKIA%2F20261130%2Fus-east-1"
	f.Add(signed, uint16(200), `"d41d8cd98f00b204e9800998ecf8427e"`, "")
	f.Add(signed, uint16(403), "", "<Error><Code>SignatureDoesNotMatch</Code><Message>QUERY</Message></Error>")
	f.Add(signed, uint16(403), "", "<Error><Code>AccessDenied</Code><Message>0123456789abcdef0123456789abcdef, AKIA/20261130/us-east-1</Message></Error>")
	f.Add(signed, uint16(301), "", "QUERY")
	f.Add("http://store.test/x", uint16(503), "", "<Error><Code>SlowDown</Code><Message>slow\x00 down</Message></Error>")
	f.Fuzz(func(t *testing.T, signed string, status uint16, etag, body string) {
		at, err := url.Parse(signed)
		if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
			return
		}
		body = strings.ReplaceAll(body, "QUERY", at.RawQuery)
		p := NewPresigned(Settling{}, roundTrip(func(r *http.Request) (*http.Response, error) {
			return reply(100+int(status)%500, body, "ETag", etag, "Location", signed), nil
		}), nil)
		sum, failed := p.put(t.Context(), address{url: at}, &content{Content: text("")})
		if failed == nil {
			if sum != "" && (!plainMD5.MatchString(sum) || strings.Trim(etag, `"`) != sum) {
				t.Fatalf("the checksum %q from %q", sum, etag)
			}
			return
		}
		said := failed.Error()
		if !errors.Is(failed, txn.ErrRetryable) || len(said) > 2*longestMessage+len(at.Host) {
			t.Fatalf("%d bytes: %.1000q", len(said), said)
		}
		if at.RawQuery == "" && strings.Count(said, credential.Redacted) > strings.Count(body+at.Host, credential.Redacted) {
			t.Fatalf("nothing was secret in %q", said)
		}
		secrets := []string{at.RawQuery}
		for _, values := range at.Query() {
			secrets = append(secrets, values...)
		}
		for _, secret := range secrets {
			if len(secret) >= 16 && !strings.Contains(credential.Redacted+at.Host+http.MethodPut+"the object store answered", secret) && strings.Contains(said, secret) {
				t.Fatalf("%q is in %q", secret, said)
			}
		}
	})
}

// FuzzEndpoint: an accepted endpoint is one base address, the same when it is given
// again, and what is refused is repeated in no error.
func FuzzEndpoint(f *testing.F) {
	for _, endpoint := range []string{
		"http://localhost:8000", "https://lake.example.com/api/v1/", " http://h/x/ ", "http://user:password@h", "http://h?x", "http://h#x", "://", "h", "http://", "replace-me",
		"http://[::1]:8000/%61pi/v1", "http://h/%zz", "http://h\x7f/", "HTTP://H",
	} {
		f.Add(endpoint)
	}
	f.Fuzz(func(t *testing.T, endpoint string) {
		cfg := testConfig()
		cfg.Endpoint = endpoint
		faults := cfg.Validate()
		for _, fault := range faults {
			if !strings.HasPrefix(fault.Error(), endpointVariable+" ") || len(fault.Error()) > 300 {
				t.Fatalf("%q names no variable", fault)
			}
		}
		base, err := cfg.apiURL()
		if len(faults) > 0 {
			return
		}
		parsed, parseErr := url.Parse(base)
		if err != nil || parseErr != nil || parsed.User != nil || parsed.Hostname() == "" || parsed.RawQuery != "" || parsed.Fragment != "" || !strings.HasSuffix(base, "/api/v1") {
			t.Fatalf("%q is taken for %q: %v, %v", endpoint, base, err, parseErr)
		}
		if again, err := (Config{Endpoint: base}).apiURL(); err != nil || again != base {
			t.Fatalf("%q is taken for %q, and that for %q, %v", endpoint, base, again, err)
		}
		if _, err := New(cfg, roundTrip(nil)); err != nil {
			t.Fatal(err)
		}
	})
}
