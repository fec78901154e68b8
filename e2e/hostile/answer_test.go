package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// answer is one wrong answer of the list.
type answer struct {
	// name is unique in the list.
	name string
	// fits reports whether the answer is one to this call, which an honest server
	// answers like this; nil is every call.
	fits func(c call, like reply) bool
	// acted says that it is made of the server's own answer, so that the server has
	// acted.
	acted bool
	// unending says that each answer is as it should be, and there is always one more:
	// nothing but an operator, or the task's total time, ends the work on it.
	unending bool
	// large says that reading it takes real time: it is told once.
	large bool
	// change names what is done to a field, of an answer that differs in one field.
	change string
	say    func(*saying) (*http.Response, error)
}

// saying is one request that is answered wrongly.
type saying struct {
	request *http.Request
	body    []byte
	// good is the server's answer to it, or one to another request of its kind.
	good reply
	liar *liar
	lie  lie
}

func (s *saying) reply(status int, body string, header ...string) *http.Response {
	r := reply{status: status, header: http.Header{"Content-Type": {"application/json"}}, body: []byte(body)}
	for i := 0; i < len(header); i += 2 {
		r.header.Set(header[i], header[i+1])
	}
	return r.response(s.request)
}

// statuses are all that a server, or something in front of it, may say.
var statuses = []int{
	101, 199, 200, 201, 202, 203, 204, 205, 206, 207, 226, 299,
	300, 304, 305, 399,
	400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418, 421, 422, 423, 424, 425, 426, 428, 429, 431, 451, 498, 499,
	500, 501, 502, 503, 504, 505, 506, 507, 508, 510, 511, 520, 521, 522, 523, 524, 525, 530, 598, 599,
}

var redirects = []int{301, 302, 303, 307, 308}

// inOwnWords is a status in the words of the server that is asked.
func inOwnWords(status int) answer {
	return answer{
		name: fmt.Sprintf("status %d", status),
		fits: func(_ call, like reply) bool { return like.status != status },
		say: func(s *saying) (*http.Response, error) {
			if status < 200 || status == 204 || status == 205 || status == 304 {
				return s.reply(status, ""), nil
			}
			return s.reply(status, fmt.Sprintf(`{"status":%d,"message":"a lie of the test","instance":"hostile"}`, status)), nil
		},
	}
}

const htmlPage = "<!DOCTYPE html>\n<html><body><h1>Please sign in</h1></body></html>\n"

func page(status int) answer {
	return answer{
		name: fmt.Sprintf("page %d", status),
		say: func(s *saying) (*http.Response, error) {
			return s.reply(status, htmlPage, "Content-Type", "text/html"), nil
		},
	}
}

func redirect(status int, itself bool) answer {
	name, to := fmt.Sprintf("redirect %d elsewhere", status), func(s *saying) string { return "http://" + elsewhere + s.request.URL.RequestURI() }
	if itself {
		name, to = fmt.Sprintf("redirect %d to itself", status), func(s *saying) string { return s.request.URL.String() }
	}
	return answer{name: name, say: func(s *saying) (*http.Response, error) {
		return s.reply(status, "", "Location", to(s)), nil
	}}
}

func waiting(status int, name, header string) answer {
	return answer{name: fmt.Sprintf("status %d, Retry-After %s", status, name), say: func(s *saying) (*http.Response, error) {
		return s.reply(status, `{"message":"a lie of the test"}`, "Retry-After", header), nil
	}}
}

// body is the right status with another body.
func body(name string, make func(good []byte) []byte) answer {
	return answer{
		name: name,
		fits: func(_ call, like reply) bool { return like.status != http.StatusNoContent },
		say: func(s *saying) (*http.Response, error) {
			r := s.good
			r.status = s.lie.like.status
			r.body = make(s.good.body)
			return r.response(s.request), nil
		},
	}
}

func always(text string) func([]byte) []byte { return func([]byte) []byte { return []byte(text) } }

// ofJSON are answers whose like is a JSON object.
func ofObject(_ call, like reply) bool { return bytes.HasPrefix(like.body, []byte("{")) }

var bodies = []answer{
	body("no body", always("")),
	body("HTML", always(htmlPage)),
	body("null", always("null")),
	body("an empty object", always("{}")),
	body("an empty list", always("[]")),
	body("a list of nulls", always("[null,null]")),
	body("a list of empty objects", always("[{},{}]")),
	body("results of nulls", always(`{"pagination":{"has_more":false},"results":[null]}`)),
	body("results of empty objects", always(`{"pagination":{"has_more":true},"results":[{},{}]}`)),
	body("text", always("ok")),
	body("a JSON string", always(`"ok"`)),
	body("a number", always("0")),
	body("true", always("true")),
	body("zeros", always("\x00\x00\x00\x00")),
	body("half of it", func(good []byte) []byte { return good[:len(good)/2] }),
	body("all but the last byte", func(good []byte) []byte { return good[:max(len(good)-1, 0)] }),
	body("twice", func(good []byte) []byte { return append(slices.Clone(good), good...) }),
	body("with more behind it", func(good []byte) []byte { return append(slices.Clone(good), "}]"...) }),
	body("with a mark of byte order", func(good []byte) []byte { return append([]byte("\xef\xbb\xbf"), good...) }),
	body("in UTF-16", func(good []byte) []byte {
		var wide []byte
		for _, b := range good {
			wide = append(wide, b, 0)
		}
		return wide
	}),
	body("in a list", func(good []byte) []byte { return slices.Concat([]byte("["), good, []byte("]")) }),
	body("in an object", func(good []byte) []byte { return slices.Concat([]byte(`{"data":`), good, []byte("}")) }),
	body("deep lists", always(strings.Repeat("[", 1<<20))),
	body("deep objects", always(strings.Repeat(`{"a":`, 1<<18))),
	body("deep in a field", func(good []byte) []byte {
		return slices.Concat([]byte(`{"deep":`), bytes.Repeat([]byte("["), 1<<18), bytes.Repeat([]byte("]"), 1<<18), []byte(","), bytes.TrimPrefix(good, []byte("{")))
	}),
	fitting(ofObject, body("each key twice, null behind it", func(good []byte) []byte { return doubled(good, true) })),
	fitting(ofObject, body("each key twice, null before it", func(good []byte) []byte { return doubled(good, false) })),
	fitting(ofObject, body("each key in capitals", capitals)),
	body("bytes that are no UTF-8", func(good []byte) []byte { return bytes.ReplaceAll(good, []byte(`":"`), []byte("\":\"\xff\xfe")) }),
}

func fitting(fits func(call, reply) bool, a answer) answer {
	under := a.fits
	a.fits = func(c call, like reply) bool { return fits(c, like) && (under == nil || under(c, like)) }
	return a
}

// doubled has each field of an object twice, once as null.
func doubled(good []byte, behind bool) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(good, &fields) != nil {
		return good
	}
	var b bytes.Buffer
	b.WriteString("{")
	for i, name := range slices.Sorted(keys(fields)) {
		if i > 0 {
			b.WriteString(",")
		}
		first, second := []byte("null"), []byte(fields[name])
		if behind {
			first, second = second, first
		}
		fmt.Fprintf(&b, "%q:%s,%q:%s", name, first, name, second)
	}
	b.WriteString("}")
	return b.Bytes()
}

func capitals(good []byte) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(good, &fields) != nil {
		return good
	}
	upper := map[string]json.RawMessage{}
	for name, value := range fields {
		upper[strings.ToUpper(name)] = value
	}
	return asJSON(upper)
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range m {
			if !yield(key) {
				return
			}
		}
	}
}

// flowing is an answer that comes as it is read: begins, then more of again, for
// ever. It takes no memory to send and it may take none to read.
func flowing(name string, status int, begins, again string, pause time.Duration) answer {
	return answer{name: name, say: func(s *saying) (*http.Response, error) {
		response := s.reply(status, "")
		if status == 0 {
			response.StatusCode = s.lie.like.status
		}
		response.ContentLength = -1
		stream := &stream{ctx: s.request.Context(), liar: s.liar, rest: []byte(begins), again: []byte(again), pause: pause}
		if pause < time.Second {
			// As much at once as there is room for.
			stream.again = bytes.Repeat(stream.again, max(1, 1<<16/len(stream.again)))
		}
		response.Body = io.NopCloser(stream)
		return response, nil
	}}
}

type stream struct {
	ctx         context.Context
	liar        *liar
	rest, again []byte
	pause       time.Duration
	read        int64
}

func (s *stream) Read(p []byte) (int, error) {
	timer := time.NewTimer(s.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
	n := 0
	for n < len(p) {
		if len(s.rest) == 0 {
			s.rest = s.again
		}
		copied := copy(p[n:], s.rest)
		n, s.rest = n+copied, s.rest[copied:]
		if s.pause >= time.Second && n >= len(s.again) {
			break
		}
	}
	s.read += int64(n)
	s.liar.mu.Lock()
	defer s.liar.mu.Unlock()
	s.liar.mostRead = max(s.liar.mostRead, s.read)
	return n, nil
}

// without is an answer that does not come.
var never = answer{name: "never", say: func(s *saying) (*http.Response, error) {
	<-s.request.Context().Done()
	return nil, s.request.Context().Err()
}}

// stalls is an answer whose second half does not come.
var stalls = answer{name: "half of it, and then nothing", say: func(s *saying) (*http.Response, error) {
	response := s.reply(s.lie.like.status, "")
	half := s.good.body[:len(s.good.body)/2]
	response.ContentLength = int64(len(s.good.body))
	response.Body = io.NopCloser(io.MultiReader(bytes.NewReader(half), silence{s.request.Context()}))
	return response, nil
}}

type silence struct{ ctx context.Context }

func (s silence) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// slow are answers that do not end. Those that go on as fast as they are read are
// bounded by what is read, the others by time.
var slow = []answer{
	never,
	stalls,
	flowing("a trickle of spaces", 0, "", " ", time.Second),
	flowing("a trickle of a string", 0, `{"id":"`, "a", time.Second),
	flowing("a trickle of a refusal", 503, "", " ", time.Second),
	flowing("a trickle of a 404", 404, `{"message":"`, "a", time.Second),
}

var endless = []answer{
	flowing("endless spaces", 0, "", " ", time.Millisecond),
	flowing("an endless string", 0, `{"id":"`, "a", time.Millisecond),
	flowing("an endless string in a list", 0, `[{"id":"`, "a", time.Millisecond),
	flowing("an endless list of empty objects", 0, `[{}`, ",{}", time.Millisecond),
	flowing("endless results of empty objects", 0, `{"pagination":{"has_more":true},"results":[{}`, ",{}", time.Millisecond),
	flowing("endless depth", 0, `{"status":`, `{"status":`, time.Millisecond),
	flowing("an endless field before the others", 0, `{"input":"`, `a`, time.Millisecond),
	flowing("endless zeros", 0, "", "\x00", time.Millisecond),
	flowing("an endless refusal", 500, "", "no ", time.Millisecond),
	flowing("an endless 404", 404, `{"message":"`, "a", time.Millisecond),
	flowing("an endless redirect", 302, "", " ", time.Millisecond),
}

// answers is the list, apart from those that are made of what an honest server
// answers.
func answers() []answer {
	var all []answer
	for _, status := range statuses {
		all = append(all, inOwnWords(status))
	}
	for _, status := range []int{200, 201, 202, 401, 403, 404, 409, 410, 412, 500, 503} {
		all = append(all, page(status))
	}
	for _, status := range redirects {
		all = append(all, redirect(status, false), redirect(status, true))
	}
	all = append(all,
		waiting(503, "in a million years", "31556952000000"), waiting(429, "of the year 9999", "Fri, 31 Dec 9999 23:59:59 GMT"),
		waiting(503, "below zero", "-5"), waiting(429, "of nonsense", "soon"), waiting(503, "of an hour", "3600"))
	all = append(all, bodies...)
	all = append(all, slow...)
	for _, a := range endless {
		a.large = true
		all = append(all, a)
	}
	return append(all, special...)
}
