package lakefs

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"perago/pkg/credential"
	"perago/pkg/txn"
)

func wantRefused(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, txn.ErrRefused) {
		t.Errorf("%s: %v is no refusal", what, err)
	}
}

// classOf is the one class an error has.
func classOf(t *testing.T, err error) error {
	t.Helper()
	var found []error
	for _, class := range []error{txn.ErrRefused, txn.ErrRetryable, txn.ErrUnknownOutcome} {
		if errors.Is(err, class) {
			found = append(found, class)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%v has the classes %v", err, found)
	}
	return found[0]
}

// cutBody is a body that ends in the middle.
type cutBody struct{ io.Reader }

func (b *cutBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (b *cutBody) Close() error { return nil }

// The error classes, for every operation. Each row gives the class for a call
// that is idempotent, for one that is not, and for a merge, whose list of
// definite answers is the protocol's own (section 6.3).
func TestFailureClasses(t *testing.T) {
	t.Parallel()
	const (
		page = "<html><body>502 from a gateway</body></html>"
		own  = `{"message":"lakeFS says so"}`
	)
	var (
		refused, retryable, unknown = txn.ErrRefused, txn.ErrRetryable, txn.ErrUnknownOutcome
		status                      = func(code int, body string) func(*http.Request) (*http.Response, error) {
			return func(*http.Request) (*http.Response, error) { return reply(code, body), nil }
		}
		transport = func(err error) func(*http.Request) (*http.Response, error) {
			return func(*http.Request) (*http.Response, error) { return nil, err }
		}
	)
	for _, row := range []struct {
		name                    string
		answer                  func(*http.Request) (*http.Response, error)
		idempotent, once, merge error
		kind                    error
		hint                    string
	}{
		{name: "400 of no known kind", answer: status(400, own), idempotent: refused, once: refused, merge: unknown},
		{name: "400 dirty branch", answer: status(400, `{"message":"uncommitted changes (dirty branch)"}`), idempotent: refused, once: refused, merge: refused, kind: txn.ErrDirtyBranch, hint: "reset"},
		{name: "400 no changes", answer: status(400, `{"message":"commit: no changes"}`), idempotent: refused, once: refused, merge: refused, kind: txn.ErrNoChanges},
		{name: "401", answer: status(401, own), idempotent: refused, once: refused, merge: refused, kind: txn.ErrUnauthorized, hint: "LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"},
		{name: "401 insufficient permissions", answer: status(401, `{"message":"insufficient permissions"}`), idempotent: refused, once: refused, merge: refused, kind: txn.ErrForbidden, hint: "lacks the permission"},
		{name: "403", answer: status(403, own), idempotent: refused, once: refused, merge: refused, kind: txn.ErrForbidden, hint: "branch protection"},
		{name: "404", answer: status(404, own), idempotent: refused, once: refused, merge: refused, kind: txn.ErrNotFound},
		{name: "410", answer: status(410, own), idempotent: refused, once: refused, merge: unknown, kind: txn.ErrGone},
		{name: "412", answer: status(412, own), idempotent: refused, once: refused, merge: refused, kind: txn.ErrHookRefused},
		{name: "412 of the publish fence", answer: status(412, `{"message":"hook 'perago_publish_fence': action failed: perago publish fence: expected main at a, found it at b"}`), idempotent: refused, once: refused, merge: refused, kind: txn.ErrFenceRefused},
		{name: "422", answer: status(422, own), idempotent: refused, once: unknown, merge: unknown},
		{name: "408", answer: status(408, own), idempotent: retryable, once: unknown, merge: unknown},
		{name: "423", answer: status(423, own), idempotent: retryable, once: unknown, merge: unknown},
		{name: "429", answer: status(429, own), idempotent: retryable, once: unknown, merge: unknown},
		{name: "499", answer: status(499, own), idempotent: refused, once: unknown, merge: unknown},
		{name: "500", answer: status(500, own), idempotent: retryable, once: unknown, merge: unknown},
		{name: "502 of a gateway", answer: status(502, page), idempotent: retryable, once: unknown, merge: unknown},
		{name: "503", answer: status(503, own), idempotent: retryable, once: unknown, merge: unknown},
		{name: "504 empty", answer: status(504, ""), idempotent: retryable, once: unknown, merge: unknown},
		// A refusal that is not lakeFS's says nothing about what lakeFS holds.
		{name: "404 of a proxy", answer: status(404, page), idempotent: retryable, once: unknown, merge: unknown, hint: "or a proxy"},
		{name: "404 empty", answer: status(404, ""), idempotent: retryable, once: unknown, merge: unknown},
		{name: "401 of a proxy", answer: status(401, page), idempotent: retryable, once: unknown, merge: unknown, hint: "LAKECTL_CREDENTIALS_ACCESS_KEY_ID"},
		{name: "409 of a proxy", answer: status(409, page), idempotent: retryable, once: unknown, merge: unknown},
		{name: "412 without a word", answer: status(412, "{}"), idempotent: retryable, once: unknown, merge: unknown},
		{name: "302 to a login", answer: func(*http.Request) (*http.Response, error) {
			return reply(302, page, "Location", "https://login.test/?token=abc"), nil
		}, idempotent: retryable, once: unknown, merge: unknown, hint: "or a proxy"},
		{name: "307 to itself", answer: func(r *http.Request) (*http.Response, error) {
			return reply(307, "", "Location", r.URL.String()), nil
		}, idempotent: retryable, once: unknown, merge: unknown},
		{name: "202 instead", answer: status(202, own), idempotent: retryable, once: unknown, merge: unknown},

		{name: "connection refused", answer: transport(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}), idempotent: retryable, once: retryable, merge: retryable, hint: "is lakeFS up at http://lakefs.test"},
		{name: "no such host", answer: transport(&net.DNSError{Err: "no such host", Name: "lakefs.test"}), idempotent: retryable, once: retryable, merge: retryable, hint: "is lakeFS up"},
		{name: "certificate", answer: transport(&tls.CertificateVerificationError{Err: errors.New("unknown authority")}), idempotent: retryable, once: retryable, merge: retryable, hint: "certificate"},
		{name: "plain HTTP on the other side", answer: transport(http.ErrSchemeMismatch), idempotent: retryable, once: retryable, merge: retryable, hint: "LAKECTL_SERVER_ENDPOINT_URL"},
		{name: "connection cut", answer: transport(io.ErrUnexpectedEOF), idempotent: retryable, once: unknown, merge: unknown},
		{name: "connection reset", answer: transport(&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}), idempotent: retryable, once: unknown, merge: unknown},
		{name: "reset while writing", answer: transport(&net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}), idempotent: retryable, once: unknown, merge: unknown},
	} {
		for _, c := range calls {
			t.Run(row.name+"/"+string(c.operation), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					err := c.call(t.Context(), testClient(t, roundTrip(row.answer)))
					want := row.idempotent
					switch {
					case c.operation == mergeCommit:
						want = row.merge
					case once[c.operation]:
						want = row.once
					}
					if got := classOf(t, err); got != want {
						t.Fatalf("class %q, want %q: %v", got, want, err)
					}
					kind := row.kind
					if c.operation == setProtection && errors.Is(kind, txn.ErrHookRefused) {
						// No hook: the rules are no longer those that were read.
						kind = txn.ErrConflict
					}
					if want == refused && kind != nil && !errors.Is(err, kind) {
						t.Errorf("%v is not %q", err, kind)
					}
					if want != refused && kind != nil && errors.Is(err, kind) {
						t.Errorf("%v is %q without being a refusal", err, kind)
					}
					if !strings.Contains(err.Error(), row.hint) {
						t.Errorf("%v does not say %q", err, row.hint)
					}
					if strings.Contains(err.Error(), "token=abc") {
						t.Errorf("%v holds the query of a redirect", err)
					}
					var failed *txn.ServerError
					if !errors.As(err, &failed) || failed.Server != "lakeFS" || failed.Method == "" || !strings.HasPrefix(failed.Path, "/api/v1/") {
						t.Errorf("%#v does not say what was asked", failed)
					}
				})
			})
		}
	}
}

// 409 means something else to each call.
func TestConflicts(t *testing.T) {
	t.Parallel()
	for _, c := range calls {
		t.Run(string(c.operation), func(t *testing.T) {
			err := c.call(t.Context(), testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
				return reply(409, `{"message":"already there"}`), nil
			})))
			kind := txn.ErrConflict
			if c.operation == createBranch || c.operation == createRepository {
				kind = txn.ErrExists
			}
			if !errors.Is(err, kind) || classOf(t, err) != txn.ErrRefused {
				t.Fatalf("%v", err)
			}
		})
	}
	// A merge's conflict has the shape of a success, with an empty reference.
	_, err := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
		return reply(409, "{\"reference\":\"\"}\n"), nil
	})).Merge(t.Context(), txn.Merge{Repository: repo, Source: id("a"), Destination: main})
	if !errors.Is(err, txn.ErrConflict) || classOf(t, err) != txn.ErrRefused {
		t.Fatalf("%v", err)
	}
	for _, part := range []string{string(id("a")), " main", "conflict"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not hold %q", err, part)
		}
	}
}

// What has the status of success and does not say what it should.
func TestUnreadableSuccess(t *testing.T) {
	t.Parallel()
	for _, c := range calls {
		if c.operation == getObject || c.operation == deleteBranch || c.operation == deleteChosen || c.operation == setProtection {
			// Whatever these say, it is what was asked for.
			continue
		}
		for name, body := range map[string]string{
			"a page": "<html>hello</html>", "nothing": "", "another object": `{"unexpected":true}`, "half": c.good[:len(c.good)/2],
			"two answers": c.good + c.good, "null": "null",
			"no results": `{"pagination":{"has_more":false}}`, "no pagination": `{"results":[]}`,
		} {
			t.Run(string(c.operation)+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					err := c.call(t.Context(), testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
						return reply(c.status, body), nil
					})))
					wantDoubt(t, c.operation, err)
				})
			})
		}
		t.Run(string(c.operation)+"/cut", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := c.call(t.Context(), testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
					response := reply(c.status, c.good)
					response.Body = &cutBody{strings.NewReader(c.good)}
					return response, nil
				})))
				wantDoubt(t, c.operation, err)
			})
		})
	}
	for name, reference := range map[string]string{"empty": "", "short": "abc", "a branch": "main"} {
		_, err := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
			return reply(200, `{"reference":"`+reference+`"}`), nil
		})).Merge(t.Context(), txn.Merge{Repository: repo, Source: id("a"), Destination: main})
		if err == nil || classOf(t, err) != txn.ErrUnknownOutcome {
			t.Errorf("a merge with a reference that is %s: %v", name, err)
		}
	}
}

func wantDoubt(t *testing.T, op operation, err error) {
	t.Helper()
	want := txn.ErrRetryable
	if once[op] {
		want = txn.ErrUnknownOutcome
	}
	if err == nil || classOf(t, err) != want {
		t.Fatalf("%v, want %q", err, want)
	}
}

// An object that is cut after its first bytes.
func TestReadObjectCut(t *testing.T) {
	t.Parallel()
	client := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
		response := reply(200, "")
		response.Body = &cutBody{strings.NewReader("half of it")}
		return response, nil
	}))
	body, err := client.ReadObject(t.Context(), repo, id("a"), "p")
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(body)
	if string(data) != "half of it" || classOf(t, err) != txn.ErrRetryable || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("%q, %v", data, err)
	}
}

// The context ends while the call is under way, or had ended before.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	for _, c := range calls {
		t.Run(string(c.operation)+"/under way", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := c.call(ctx, testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
					<-r.Context().Done()
					return nil, r.Context().Err()
				})))
				wantDoubt(t, c.operation, err)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v hides that the time ran out", err)
				}
			})
		})
		t.Run(string(c.operation)+"/before", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			sent := 0
			err := c.call(ctx, testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
				sent++
				return nil, r.Context().Err()
			})))
			if classOf(t, err) != txn.ErrRetryable || !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			if once[c.operation] && sent != 0 {
				t.Errorf("sent after the end")
			}
		})
	}
}

// The bounds of what is read: an endless body neither hangs the call nor fills
// the memory.
func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	for _, c := range calls {
		for name, status := range map[string]int{"success": c.status, "refusal": 400} {
			if name == "success" && c.operation == getObject {
				continue
			}
			t.Run(string(c.operation)+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					endless := &endlessBody{}
					requests := 0
					client := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
						requests++
						response := reply(status, "")
						response.Body, response.ContentLength = endless, -1
						return response, nil
					}))
					if client.largest != largestAnswer {
						t.Errorf("reads %d bytes", client.largest)
					}
					// The real bound takes long under the race detector.
					client.largest = 1 << 20
					err := c.call(t.Context(), client)
					wantDoubt(t, c.operation, err)
					if endless.read > 1<<20+64<<10 || requests != 1 {
						t.Errorf("read %d bytes in %d requests", endless.read, requests)
					}
					if len(err.Error()) > 2*longestMessage {
						t.Errorf("an error of %d bytes", len(err.Error()))
					}
					if !endless.closed {
						t.Errorf("the body was not closed")
					}
				})
			})
		}
	}
}

// What a refusal is about is read from what the server said, and not from what is
// left of it for people. A key id may be any word of it, and what matters may stand
// behind the end of what is shown.
func TestKind_IsDecidedBeforeTheTextIsRedactedOrCut(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		status int
		says   string
		kind   error
	}{
		{400, "dirty branch", txn.ErrDirtyBranch},
		{400, "uncommitted changes", txn.ErrDirtyBranch},
		{400, "no changes", txn.ErrNoChanges},
		{401, "insufficient permissions", txn.ErrForbidden},
		{412, txn.FenceRefusal, txn.ErrFenceRefused},
	} {
		before := strings.Repeat("another hook has much to say; ", longestMessage/16)
		for _, said := range []string{row.says, before + row.says} {
			for _, key := range append(strings.Fields(row.says), row.says, testKey) {
				config := testConfig()
				config.AccessKeyID = credential.New(key)
				client, err := New(config, roundTrip(func(*http.Request) (*http.Response, error) {
					return reply(row.status, `{"message":"`+said+`"}`), nil
				}))
				if err != nil {
					t.Fatal(err)
				}
				_, err = client.Merge(t.Context(), txn.Merge{Repository: repo, Source: id("a"), Destination: main})
				if !errors.Is(err, row.kind) || !errors.Is(err, txn.ErrRefused) {
					t.Errorf("%q with the key id %q: %v is not %q", row.says, key, err, row.kind)
				}
				if strings.Contains(err.Error(), key) {
					t.Errorf("the key id %q is in %v", key, err)
				}
			}
		}
	}
}

type endlessBody struct {
	read   int64
	closed bool
}

func (b *endlessBody) Read(p []byte) (int, error) {
	b.read += int64(len(p))
	return len(p), nil
}

func (b *endlessBody) Close() error {
	b.closed = true
	return nil
}

// A hook's message is kept whole as far as the bound, and cut at a rune.
func TestHookMessageIsKept(t *testing.T) {
	t.Parallel()
	// Once with the bound between two runes, once in the middle of one.
	for _, begin := range []string{"", "x"} {
		long := begin + "pre-merge hook aborted: perago publish fence: " + strings.Repeat("é", longestMessage)
		_, err := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
			return reply(412, `{"message":"`+long+`"}`), nil
		})).Merge(t.Context(), txn.Merge{Repository: repo, Source: id("a"), Destination: main})
		var failed *txn.ServerError
		if !errors.As(err, &failed) || !errors.Is(err, txn.ErrHookRefused) {
			t.Fatal(err)
		}
		kept := strings.TrimSuffix(failed.Message, "…")
		if !utf8.ValidString(kept) || !strings.HasPrefix("a hook refused: "+long, kept) || len(kept) < longestMessage-4 || len(kept) > longestMessage {
			t.Errorf("%d bytes of the message are left, and end with %q", len(kept), kept[len(kept)-4:])
		}
	}
}

// lakeFS begins a hook's refusal with words of its own, which fill a reason when the
// names are long. The hook's words come before them.
func TestHookRefusal_BeginsWithTheHooksOwnWords(t *testing.T) {
	t.Parallel()
	first, second := "table orders: row 7 has no date\n"+strings.Repeat("table orders: é\n", 1000), "too many files"
	message := "update branch main: pre-merge hook aborted, run id '5a1': 2 errors occurred:\n" +
		"\t* hook run id '0000_0000' failed on action 'data quality' hook 'dates': action failed: " + first +
		"\t* hook run id '0001_0000' failed on action 'limits' hook 'count': webhook request failed: " + second + "\x00 " + testSecret + "\n\n"
	body, err := json.Marshal(map[string]string{"message": message})
	if err != nil {
		t.Fatal(err)
	}
	call := map[string]func(*Client) error{
		"merge": func(c *Client) error {
			_, err := c.Merge(t.Context(), txn.Merge{Repository: repo, Source: id("a"), Destination: main})
			return err
		},
		"commit": func(c *Client) error {
			_, err := c.CreateCommit(t.Context(), repo, main, "m", nil)
			return err
		},
	}
	for name, send := range call {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := send(testClient(t, roundTrip(func(*http.Request) (*http.Response, error) { return reply(412, string(body)), nil })))
			if !errors.Is(err, txn.ErrHookRefused) || !strings.HasPrefix(err.Error(), "hook dates of action data quality refused: table orders: row 7 has no date table") {
				t.Fatalf("%.200v; want the hook's words first", err)
			}
			said := txn.HookMessage(err)
			if !strings.Contains(said, first+"\t* hook run id '0001_0000' failed on action 'limits' hook 'count': webhook request failed: "+second) {
				t.Errorf("the whole message is not kept: %d bytes, %.300q", len(said), said)
			}
			if strings.Contains(said, testSecret) || strings.Contains(said, "\x00") {
				t.Error("the message holds the secret or a NUL")
			}
		})
	}
}

// A merge that a hook refused with a very long message is refused and not in doubt.
func TestHookRefusal_IsDefiniteWhateverItsLength(t *testing.T) {
	t.Parallel()
	_, err := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
		return reply(412, `{"message":"`+strings.Repeat("é", 200<<10)+`"}`), nil
	})).Merge(t.Context(), txn.Merge{Repository: repo, Source: id("a"), Destination: main})
	if said := txn.HookMessage(err); !errors.Is(err, txn.ErrHookRefused) || !errors.Is(err, txn.ErrRefused) || !utf8.ValidString(said) || len(said) > longestSaid+len("…") || len(said) < longestSaid {
		t.Errorf("%.200v, with %d bytes of the message", err, len(said))
	}
}

// Credentials are in no error, whatever the server and the transport put them
// in, nor in anything that the error unwraps to.
func TestCredentialsAreInNoError(t *testing.T) {
	t.Parallel()
	forms := []string{
		testSecret, testKey, url.QueryEscape(testSecret), url.PathEscape(testSecret), strings.ReplaceAll(testSecret, `"`, `\"`),
		html.EscapeString(testSecret), url.QueryEscape(url.QueryEscape(testSecret)),
	}
	header := func(r *http.Request) string {
		_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		return token
	}
	everything := func(r *http.Request) string { return header(r) + " " + strings.Join(forms, " ") }
	for name, answer := range map[string]func(*http.Request) (*http.Response, error){
		"refusal": func(r *http.Request) (*http.Response, error) {
			quoted := strings.ReplaceAll(strings.ReplaceAll(everything(r), `\`, `\\`), `"`, `\"`)
			return reply(400, `{"message":"`+quoted+`"}`), nil
		},
		"page":    func(r *http.Request) (*http.Response, error) { return reply(502, "<html>"+everything(r)), nil },
		"success": func(r *http.Request) (*http.Response, error) { return reply(200, `{"id":"`+header(r)+`"}`), nil },
		"redirect": func(r *http.Request) (*http.Response, error) {
			return reply(302, "", "Location", "http://"+testKey+":x@"+testKey+".test/?k="+url.QueryEscape(testSecret)), nil
		},
		"transport": func(r *http.Request) (*http.Response, error) { return nil, errors.New("dial: " + everything(r)) },
		"transport with a URL": func(r *http.Request) (*http.Response, error) {
			return nil, &url.Error{Op: "Get", URL: "http://" + testKey + ":" + url.QueryEscape(testSecret) + "@x/", Err: errors.New(everything(r))}
		},
	} {
		for _, c := range calls {
			t.Run(name+"/"+string(c.operation), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					token := ""
					err := c.call(t.Context(), testClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
						token = header(r)
						return answer(r)
					})))
					if err == nil {
						if c.operation != getObject && c.operation != listObjects && c.operation != listBranches {
							t.Fatal("no error")
						}
						return
					}
					walk(err, func(e error) {
						for _, form := range append(forms, token) {
							if strings.Contains(e.Error(), form) {
								t.Errorf("%q holds %q", e, form)
							}
						}
					})
				})
			})
		}
	}
}

// walk visits an error and all it unwraps to.
func walk(err error, visit func(error)) {
	if err == nil {
		return
	}
	visit(err)
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		walk(e.Unwrap(), visit)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			walk(inner, visit)
		}
	}
}

// A commit is what was asked for, by its full id.
func TestCommitOfAnotherName(t *testing.T) {
	t.Parallel()
	_, err := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
		return reply(200, commitJSON("b", "c")), nil
	})).Commit(t.Context(), repo, id("a"))
	if !errors.Is(err, txn.ErrNotFound) || classOf(t, err) != txn.ErrRefused {
		t.Fatalf("%v", err)
	}
}

// An entry in the errors of a bulk delete's 200 is an error that names its path.
func TestBulkDeleteErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body  string
		class error
		kind  error
	}{
		{`{"errors":[{"path":"d/x","status_code":403,"message":"cannot write to protected branch"}]}`, txn.ErrRefused, txn.ErrForbidden},
		{`{"errors":[{"path":"d/x","status_code":500,"message":"failed"},{"path":"d/y","status_code":500,"message":"failed"}]}`, txn.ErrRetryable, nil},
	} {
		err := testClient(t, roundTrip(func(*http.Request) (*http.Response, error) { return reply(200, c.body), nil })).
			DeleteObjects(t.Context(), repo, main, []string{"d/x", "d/y"})
		if classOf(t, err) != c.class || c.kind != nil && !errors.Is(err, c.kind) || !strings.Contains(err.Error(), "d/x") {
			t.Errorf("%v", err)
		}
	}
}
