package lakefs

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"perago/pkg/fault"
	"perago/pkg/txn"
)

// The policy names what it repeats. Everything else, and above all what it does
// not know, is refused.
func TestPolicyRefusesWhatItDoesNotName(t *testing.T) {
	t.Parallel()
	ask := func(op operation) bool {
		one := &call{operation: op, client: &Client{}, request: httptest.NewRequest(http.MethodGet, "/", nil)}
		again, err := one.mayRepeat(t.Context(), nil, errors.New("cut"))
		if err != nil {
			t.Errorf("%q: %v", op, err)
		}
		after, _ := one.mayRepeat(t.Context(), reply(503, ""), nil)
		if again != after {
			t.Errorf("%q: %v after an error, %v after a 503", op, again, after)
		}
		return again
	}
	want := map[operation]bool{
		getCommit: true, getBranch: true, logCommits: true, listObjects: true, getObject: true, statObject: true, listBranches: true,
		listRepositories: true, listRuns: true, listHookRuns: true, getProtection: true, setProtection: false,
		uploadObject: true, deleteObjects: true, deleteBranch: true, deleteChosen: false, importStatus: true, startImport: false,
		getRepository: true, diffBranch: true, getRetention: true, askPermission: false,
		ping: false, createBranch: false, createCommit: false, mergeCommit: false, createRepository: false,
		"an operation of tomorrow": false, "": false,
	}
	for op, again := range want {
		if ask(op) != again {
			t.Errorf("%q: repeated is %v", op, !again)
		}
	}
}

// A repeated call gets through every fault, three times in a row, and its body is
// whole each time.
func TestRepeats(t *testing.T) {
	t.Parallel()
	for _, f := range fault.All() {
		for _, c := range calls {
			t.Run(f.Name+"/"+string(c.operation), func(t *testing.T) {
				if !repeated[c.operation] {
					return // TestExactlyOneRequest
				}
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var reached []string
					client, wire := faulty(t, c.status, c.good, func(body string) { reached = append(reached, body) })
					faults := make([]*fault.Hold, 3)
					for i := range faults {
						faults[i] = wire.Arm(fault.Match{}, f)
					}
					began := time.Now()
					err := c.call(t.Context(), client)
					took := time.Since(began)

					want := 4
					switch {
					case f.Name == "slow", f.Name == "empty" && c.good == "":
						want = 1 // a good answer
					case c.operation == getObject && (f.Name == "cut" || f.Name == "page" || f.Name == "garbled" || f.Name == "empty"):
						// A stream is the reader's from its first byte on.
						want = 1
					}
					if n := len(wire.Log()); n != want {
						t.Fatalf("%d requests, want %d: %v", n, want, err)
					}
					if want == 1 {
						if f.Name == "cut" != (err != nil) {
							t.Error(err)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					if f.Server == fault.Later {
						for _, request := range faults {
							<-request.Over()
						}
					}
					if n := map[fault.Reach]int{fault.Never: 1, fault.AtOnce: 4, fault.Later: 4}[f.Server]; len(reached) != n {
						t.Errorf("%d requests reached the server, want %d", len(reached), n)
					}
					for _, body := range reached {
						if body != reached[0] {
							t.Errorf("bodies %q", reached)
						}
					}
					least, most := firstWait, 3*longestWait
					if f.RetryAfter > 0 {
						least = 3 * time.Duration(f.RetryAfter) * time.Second
					}
					if took < least || took > most {
						t.Errorf("three repeats took %v, want between %v and %v", took, least, most)
					}
				})
			})
		}
	}
}

// faulty is a client of a server that gives one answer to everything, and the
// wire between them.
func faulty(t *testing.T, status int, good string, reached func(body string)) (*Client, *fault.Wire) {
	t.Helper()
	var mu sync.Mutex
	wire := fault.NewWire(roundTrip(func(r *http.Request) (*http.Response, error) {
		body := ""
		if r.Body != nil {
			data, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			body = string(data)
		}
		mu.Lock()
		defer mu.Unlock()
		reached(body)
		return reply(status, good), nil
	}))
	return testClient(t, wire), wire
}

// A fault that stays: a bounded number of tries, never past the context, and an
// error that another time may be tried again.
func TestFaultsThatStay(t *testing.T) {
	t.Parallel()
	for _, f := range fault.All() {
		for _, c := range calls {
			if !repeated[c.operation] || f.Name == "slow" || f.Name == "empty" && c.good == "" || c.operation == getObject && f.Status < 300 {
				continue
			}
			for name, most := range map[string]time.Duration{"unbounded": 0, "bounded": 1500 * time.Millisecond} {
				t.Run(f.Name+"/"+string(c.operation)+"/"+name, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						client, wire := faulty(t, c.status, c.good, func(string) {})
						for range 2 * mostRepeats {
							wire.Arm(fault.Match{}, f)
						}
						ctx, cancel := t.Context(), context.CancelFunc(func() {})
						if most > 0 {
							ctx, cancel = context.WithTimeout(ctx, most)
						}
						defer cancel()
						began := time.Now()
						err := c.call(ctx, client)
						took, tries := time.Since(began), len(wire.Log())
						time.Sleep(f.Wait) // what is late lands before the test's end
						synctest.Wait()
						if classOf(t, err) != txn.ErrRetryable {
							t.Errorf("%v", err)
						}
						if most > 0 {
							if took > most || tries < 2 || tries > mostRepeats {
								t.Errorf("%d tries in %v", tries, took)
							}
							return
						}
						if tries != mostRepeats+1 {
							t.Errorf("%d tries", tries)
						}
						if least := time.Duration(mostRepeats*f.RetryAfter) * time.Second; took < least {
							t.Errorf("%d repeats in %v, and the server asked for %v", mostRepeats, took, least)
						}
						if f.Status >= 400 {
							var failed *txn.ServerError
							if !errors.As(err, &failed) || failed.Status != f.Status {
								t.Errorf("%v does not say %d", err, f.Status)
							}
						}
					})
				})
			}
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

// One request and no more for what is not idempotent, whatever comes back, and a
// class that says whether it may have taken effect.
func TestExactlyOneRequest(t *testing.T) {
	t.Parallel()
	for _, c := range calls {
		if !once[c.operation] {
			continue
		}
		for _, f := range append(fault.All(), fault.Fault{Name: "307"}, fault.Fault{Name: "303"}) {
			t.Run(string(c.operation)+"/"+f.Name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					reached := 0
					client, wire := faulty(t, c.status, c.good, func(string) { reached++ })
					if f.Name == "307" || f.Name == "303" {
						status, _ := strconv.Atoi(f.Name)
						client, wire = faulty(t, status, "", func(string) { reached++ })
					}
					// A second one would find what the first met.
					for range 3 {
						wire.Arm(fault.Match{}, f)
					}
					err := c.call(t.Context(), client)
					want := txn.ErrUnknownOutcome
					switch {
					case f.Name == "refused":
						want = txn.ErrRetryable
					case f.Name == "slow", f.Name == "empty" && c.good == "":
						want = nil
					}
					if want == nil && err != nil || want != nil && (err == nil || classOf(t, err) != want) {
						t.Errorf("%v, want %v", err, want)
					}
					time.Sleep(f.Wait) // what is late lands before the test's end
					synctest.Wait()
					if n := len(wire.Log()); n != 1 {
						t.Errorf("%d requests", n)
					}
					if n := map[fault.Reach]int{fault.Never: 0, fault.AtOnce: 1, fault.Later: 1}[f.Server]; reached != n {
						t.Errorf("the server had it %d times, want %d", reached, n)
					}
				})
			})
		}
	}
}

// Nothing in the request invites net/http to send it again.
func TestNothingForNetHTTPToSendAgain(t *testing.T) {
	t.Parallel()
	for _, c := range calls {
		if !once[c.operation] {
			continue
		}
		_ = c.call(t.Context(), testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.GetBody != nil {
				t.Errorf("%s: net/http could send the body again", c.operation)
			}
			if r.Header.Get("Idempotency-Key") != "" || r.Header.Get("X-Idempotency-Key") != "" {
				t.Errorf("%s: net/http would take it for idempotent", c.operation)
			}
			return reply(c.status, c.good), nil
		})))
	}
}

// net/http itself sends a request again when a kept connection fails before its
// first byte is out, if it can have the body again. For a merge it must not: the
// server may have read what the failed write seemed not to send.
func TestNoReplayOnAStaleConnection(t *testing.T) {
	t.Parallel()
	for _, c := range calls {
		// Without a body net/http sends a request again of which it wrote nothing, and
		// cannot be told otherwise.
		if !once[c.operation] || c.operation == deleteChosen {
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
