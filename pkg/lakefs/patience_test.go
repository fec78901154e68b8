package lakefs

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"perago/pkg/txn"
)

// silentBody begins like an answer and does not go on.
type silentBody struct {
	io.Reader
	ctx context.Context
}

func (b silentBody) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if n, err := b.Reader.Read(p); err == nil {
		return n, nil
	}
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

func (silentBody) Close() error { return nil }

// A server that takes a request and does not answer, or not to the end, holds no
// call for ever, also where the caller has all the time there is. It had its time,
// so it is not asked again.
func TestASilentServerIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(r *http.Request, status int) (*http.Response, error){
		"no answer": func(r *http.Request, _ int) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
		"half an answer": func(r *http.Request, status int) (*http.Response, error) {
			response := reply(status, "")
			response.Body = silentBody{strings.NewReader(`{"id":`), r.Context()}
			return response, nil
		},
		"a trickle": func(r *http.Request, status int) (*http.Response, error) {
			response := reply(status, "")
			response.Body = silentBody{trickle{}, r.Context()}
			return response, nil
		},
		"a trickle of a refusal": func(r *http.Request, _ int) (*http.Response, error) {
			response := reply(404, "")
			response.Body = silentBody{trickle{}, r.Context()}
			return response, nil
		},
		"half a refusal": func(r *http.Request, status int) (*http.Response, error) {
			response := reply(404, "")
			response.Body = silentBody{strings.NewReader(`{"message":`), r.Context()}
			return response, nil
		},
	} {
		for _, c := range calls {
			if c.operation == getObject && name == "a trickle" {
				continue // an object may come slowly, and ends at its size
			}
			synctest.Test(t, func(t *testing.T) {
				began, sent := time.Now(), 0
				err := c.call(t.Context(), testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
					if r.Body != nil {
						_, _ = io.Copy(io.Discard, r.Body)
					}
					sent++
					return answer(r, c.status)
				})))
				if took := time.Since(began); err == nil || sent != 1 || took < patience || took > patience+time.Second {
					t.Errorf("%s, %s: %v after %s and %d requests", c.operation, name, err, took, sent)
				}
				if want := doubtOf(c.operation); !errors.Is(err, want) && !strings.HasSuffix(name, "a refusal") {
					t.Errorf("%s, %s: %v is not %v", c.operation, name, err, want)
				}
			})
		}
	}
}

// A call whose caller gives it a deadline has that one limit: an answer that comes
// long after the transport's own patience is an answer, and a silent server is given
// up at the deadline.
func TestPatience_LeavesACallItsOwnDeadline(t *testing.T) {
	t.Parallel()
	const deadline = 3 * patience
	for _, c := range calls {
		for name, answers := range map[string]time.Duration{"late": 2 * patience, "never": 0} {
			t.Run(string(c.operation)+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), deadline)
					defer cancel()
					began, sent := time.Now(), 0
					err := c.call(ctx, testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
						if r.Body != nil {
							_, _ = io.Copy(io.Discard, r.Body)
						}
						sent++
						if answers == 0 {
							<-r.Context().Done()
							return nil, r.Context().Err()
						}
						select {
						case <-time.After(answers):
							return reply(c.status, c.good), nil
						case <-r.Context().Done():
							return nil, r.Context().Err()
						}
					})))
					took := time.Since(began)
					switch {
					case sent != 1:
						t.Errorf("%d requests", sent)
					case answers > 0 && (err != nil || took != answers):
						t.Errorf("%v after %s; the answer came after %s", err, took, answers)
					case answers == 0 && (!errors.Is(err, context.DeadlineExceeded) || took != deadline):
						t.Errorf("%v after %s; the deadline is %s", err, took, deadline)
					}
				})
			})
		}
	}
}

func doubtOf(op operation) error {
	if once[op] {
		return txn.ErrUnknownOutcome
	}
	return txn.ErrRetryable
}

// trickle is a byte every second.
type trickle struct{}

func (trickle) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	p[0] = ' '
	return 1, nil
}

// slowly gives a byte whenever less than patience has passed.
type slowly struct{ left int }

func (s *slowly) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(patience - time.Second)
	s.left--
	p[0] = 'x'
	return 1, nil
}

// What goes on, however slowly, is not silent: an upload while it is taken, and an
// object while it comes. Nor is the time counted that a reader takes.
func TestSlowIsNotSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return nil, err
			}
			time.Sleep(patience - time.Second)
			if err := r.Context().Err(); err != nil {
				return nil, err
			}
			return reply(201, `{"path":"p","path_type":"object","size_bytes":5,"checksum":"x"}`), nil
		}))
		content := txn.Content{Size: 5, Open: func() (io.ReadCloser, error) { return io.NopCloser(&slowly{5}), nil }}
		if _, err := client.Upload(t.Context(), repo, main, "p", content); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		client := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			response := reply(200, "")
			response.Body = io.NopCloser(readerOf(func(p []byte) (int, error) {
				if err := r.Context().Err(); err != nil {
					return 0, err
				}
				return (&slowly{1}).Read(p)
			}))
			return response, nil
		}))
		object, err := client.ReadObject(t.Context(), repo, id("a"), "p")
		if err != nil {
			t.Fatal(err)
		}
		defer object.Close()
		for range 5 {
			time.Sleep(2 * patience)
			if _, err := object.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

type readerOf func([]byte) (int, error)

func (f readerOf) Read(p []byte) (int, error) { return f(p) }
