package lakefs

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"perago/pkg/txn"
)

// The policy names what it repeats. Everything else, and above all what it does
// not know, is refused.
func TestPolicyRefusesWhatItDoesNotName(t *testing.T) {
	t.Parallel()
	ask := func(op operation) bool {
		ctx := t.Context()
		if op != "" {
			ctx = context.WithValue(ctx, callKey{}, &call{operation: op, sender: &sender{}})
		}
		again, err := mayRepeat(ctx, nil, errors.New("cut"))
		if err != nil {
			t.Errorf("%q: %v", op, err)
		}
		after, _ := mayRepeat(ctx, reply(503, ""), nil)
		if again != after {
			t.Errorf("%q: %v after an error, %v after a 503", op, again, after)
		}
		return again
	}
	want := map[operation]bool{
		getCommit: true, getBranch: true, logCommits: true, listObjects: true, getObject: true, listBranches: true,
		listRepositories: true, listRuns: true, listHookRuns: true, getProtection: true, setProtection: false,
		uploadObject: true, deleteObjects: true, deleteBranch: true,
		ping: false, createBranch: false, createCommit: false, mergeCommit: false, createRepository: false,
		"an operation of tomorrow": false, "": false,
	}
	for op, again := range want {
		if ask(op) != again {
			t.Errorf("%q: repeated is %v", op, !again)
		}
	}
}

// A repeated call gets through what passes, and its body is whole each time.
func TestRepeats(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"503", "423", "reset", "refused", "cut", "half a body", "a page"} {
		for _, c := range calls {
			t.Run(name+"/"+string(c.operation), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var bodies []string
					client := testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
						body := ""
						if r.Body != nil {
							data, err := io.ReadAll(r.Body)
							if err != nil {
								t.Error(err)
							}
							body = string(data)
						}
						bodies = append(bodies, body)
						if len(bodies) <= 3 {
							switch name {
							case "503":
								return reply(503, `{"message":"slow down"}`), nil
							case "423":
								return reply(423, ""), nil
							case "reset":
								return nil, &net.OpError{Op: "read", Err: syscall.ECONNRESET}
							case "refused":
								return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
							case "cut":
								return nil, io.ErrUnexpectedEOF
							case "half a body":
								response := reply(c.status, c.good)
								response.Body = &cutBody{strings.NewReader(c.good[:len(c.good)/2])}
								return response, nil
							case "a page":
								return reply(c.status, "<html>"), nil
							}
						}
						return reply(c.status, c.good), nil
					}))
					began := time.Now()
					err := c.call(t.Context(), client)
					if !repeated[c.operation] {
						if len(bodies) != 1 {
							t.Fatalf("%d requests", len(bodies))
						}
						if c.operation == setProtection && name == "a page" {
							// 204 has no body to look at.
							return
						}
						if err == nil {
							t.Fatal("no error")
						}
						return
					}
					if c.operation == getObject && (name == "half a body" || name == "a page") {
						// A stream is the reader's from its first byte on.
						return
					}
					if c.operation == deleteBranch && name == "a page" {
						// 204 has no body to look at.
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					if len(bodies) != 4 {
						t.Fatalf("%d requests", len(bodies))
					}
					for _, body := range bodies {
						if body != bodies[0] {
							t.Errorf("bodies %q", bodies)
						}
					}
					if spent := time.Since(began); spent < firstWait || spent > 3*longestWait {
						t.Errorf("three repeats took %v", spent)
					}
				})
			})
		}
	}
}

// What does not pass is not repeated: a wrong key makes no storm.
func TestRefusalsAreNotRepeated(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 403, 404, 409, 410, 412, 422, 501} {
		for _, c := range calls {
			requests := 0
			err := c.call(t.Context(), testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
				requests++
				return reply(status, `{"message":"no"}`), nil
			})))
			if err == nil || requests != 1 {
				t.Errorf("%s answered %d: %d requests, %v", c.operation, status, requests, err)
			}
		}
	}
}

// One request and no more for what is not idempotent, whatever comes back.
func TestExactlyOneRequest(t *testing.T) {
	t.Parallel()
	for _, c := range calls {
		if !once[c.operation] {
			continue
		}
		for name, answer := range map[string]func(*http.Request) (*http.Response, error){
			"lost": func(*http.Request) (*http.Response, error) { return nil, io.EOF },
			"refused": func(*http.Request) (*http.Response, error) {
				return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
			},
			"503":      func(*http.Request) (*http.Response, error) { return reply(503, "", "Retry-After", "0"), nil },
			"429":      func(*http.Request) (*http.Response, error) { return reply(429, "", "Retry-After", "0"), nil },
			"502 page": func(*http.Request) (*http.Response, error) { return reply(502, "<html>"), nil },
			"307": func(r *http.Request) (*http.Response, error) {
				return reply(307, "", "Location", r.URL.String()), nil
			},
			"303": func(r *http.Request) (*http.Response, error) {
				return reply(303, "", "Location", r.URL.String()), nil
			},
			"cut": func(*http.Request) (*http.Response, error) {
				response := reply(c.status, c.good)
				response.Body = &cutBody{strings.NewReader("{")}
				return response, nil
			},
		} {
			t.Run(string(c.operation)+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					requests := 0
					err := c.call(t.Context(), testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
						requests++
						if r.GetBody != nil {
							t.Error("net/http could send the body again")
						}
						if r.Header.Get("Idempotency-Key") != "" || r.Header.Get("X-Idempotency-Key") != "" {
							t.Error("net/http would take it for idempotent")
						}
						return answer(r)
					})))
					if err == nil || requests != 1 {
						t.Errorf("%d requests, %v", requests, err)
					}
				})
			})
		}
	}
}

// net/http itself sends a request again when a kept connection fails before its
// first byte is out, if it can have the body again. For a merge it must not: the
// server may have read what the failed write seemed not to send.
func TestNoReplayOnAStaleConnection(t *testing.T) {
	t.Parallel()
	for _, c := range calls {
		if !once[c.operation] {
			continue
		}
		t.Run(string(c.operation), func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if strings.HasSuffix(r.URL.Path, "/user") {
					_, _ = io.WriteString(w, `{"user":{"id":"me"}}`)
					return
				}
				requests.Add(1)
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.good)
			}))
			defer server.Close()
			var dials atomic.Int32
			var stale atomic.Bool
			transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				dials.Add(1)
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				return &staleConn{Conn: conn, stale: &stale, first: dials.Load() == 1}, err
			}}
			defer transport.CloseIdleConnections()
			cfg := testConfig()
			cfg.Endpoint = server.URL
			client, err := New(cfg, transport)
			if err != nil {
				t.Fatal(err)
			}
			if err := client.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			stale.Store(true)
			err = c.call(t.Context(), client)
			if !errors.Is(err, txn.ErrUnknownOutcome) || requests.Load() != 0 || dials.Load() != 1 {
				t.Errorf("%d requests on %d connections: %v", requests.Load(), dials.Load(), err)
			}
		})
	}
}

// staleConn fails every write of the first connection once it is stale.
type staleConn struct {
	net.Conn
	stale *atomic.Bool
	first bool
}

func (c *staleConn) Write(p []byte) (int, error) {
	if c.first && c.stale.Load() {
		return 0, &net.OpError{Op: "write", Err: syscall.EPIPE}
	}
	return c.Conn.Write(p)
}

// A server that reads the whole request and closes the kept connection without
// a word.
func TestNoReplayAfterAClosedConnection(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int32
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				reader := bufio.NewReader(conn)
				for {
					request, err := http.ReadRequest(reader)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, request.Body)
					if !strings.HasSuffix(request.URL.Path, "/user") {
						requests.Add(1)
						return
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n"+`{"user":{"id":"me"}}`)
				}
			})
		}
	})
	defer serving.Wait()
	defer listener.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	cfg := testConfig()
	cfg.Endpoint = "http://" + listener.Addr().String()
	client, err := New(cfg, transport)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		if !once[c.operation] {
			continue
		}
		if err := client.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := requests.Load()
		err := c.call(t.Context(), client)
		if !errors.Is(err, txn.ErrUnknownOutcome) || requests.Load() != before+1 {
			t.Errorf("%s: %d requests, %v", c.operation, requests.Load()-before, err)
		}
	}
}

// Retry-After is waited for, in both of its forms; one that is longer than the
// context, or than is sensible, ends the call at once instead.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, header string
		deadline     time.Duration
		want         int
		least, most  time.Duration
	}{
		{"seconds", "7", time.Hour, 2, 7 * time.Second, 7 * time.Second},
		{"a date", "date", time.Hour, 2, 7 * time.Second, 8 * time.Second},
		{"zero is no reason to hurry", "0", time.Hour, 2, firstWait / 2, firstWait},
		{"longer than the context", "20", 10 * time.Second, 1, 0, 0},
		{"longer than is sensible", "3600", 24 * time.Hour, 1, 0, 0},
		{"nonsense", "soon", time.Hour, 2, firstWait / 2, firstWait},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
				defer cancel()
				header := c.header
				if header == "date" {
					header = time.Now().Add(7500 * time.Millisecond).UTC().Format(http.TimeFormat)
				}
				began, requests := time.Now(), 0
				_, err := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
					if requests++; requests == 1 {
						return reply(429, `{"message":"too many"}`, "Retry-After", header), nil
					}
					return reply(200, commitJSON("a", "b")), nil
				})).Commit(ctx, repo, id("a"))
				if (err == nil) != (c.want == 2) || requests != c.want {
					t.Errorf("%d requests, %v", requests, err)
				}
				if spent := time.Since(began); spent < c.least || spent > c.most {
					t.Errorf("waited %v", spent)
				}
			})
		})
	}
}

// The number of tries is bounded, the waits grow, and two clients do not wait
// alike.
func TestBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		waits := func() (all []time.Duration) {
			last := time.Now()
			_, err := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
				all = append(all, time.Since(last))
				last = time.Now()
				return reply(500, `{"message":"broken"}`), nil
			})).Head(t.Context(), repo, main)
			if !errors.Is(err, txn.ErrRetryable) {
				t.Error(err)
			}
			return all[1:]
		}
		one, two := waits(), waits()
		if len(one) != mostRepeats {
			t.Fatalf("%d repeats", len(one))
		}
		alike := true
		for i, wait := range one {
			whole := min(longestWait, firstWait<<i)
			if wait < whole/2 || wait > whole {
				t.Errorf("wait %d is %v, of %v", i, wait, whole)
			}
			alike = alike && wait == two[i]
		}
		if alike {
			t.Errorf("two clients wait alike: %v", one)
		}
	})
}

// The end of the context ends the waiting, and the error says what was waited
// for.
func TestRepeatsEndWithTheContext(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func() (*http.Response, error){
		"503": func() (*http.Response, error) { return reply(503, `{"message":"slow down"}`), nil },
		"refused": func() (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				began := time.Now()
				_, err := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) { return answer() })).Head(ctx, repo, main)
				if time.Since(began) > 500*time.Millisecond {
					t.Errorf("took %v", time.Since(began))
				}
				if classOf(t, err) != txn.ErrRetryable || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
				reason := map[string]string{"503": "503", "refused": "connection refused"}[name]
				if !strings.Contains(err.Error(), reason) || !strings.Contains(err.Error(), "given up") {
					t.Errorf("%v does not say why", err)
				}
			})
		})
	}
}
