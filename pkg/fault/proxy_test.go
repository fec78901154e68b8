package fault

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// server is a server that remembers what reached it, behind a proxy.
type server struct {
	mu      sync.Mutex
	reached []string
	proxy   *Proxy
	url     string
	// answer is what it answers, when it is not the usual.
	answer string
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{}
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.reached = append(s.reached, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		s.mu.Unlock()
		if s.answer != "" {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, cmp.Or(s.answer, "from the server"))
	}))
	t.Cleanup(target.Close)
	proxy, err := NewProxy(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	t.Cleanup(proxy.Release)
	s.proxy, s.url = proxy, front.URL
	return s
}

func (s *server) saw() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.reached...)
}

type answer struct {
	status int
	body   string
	err    error
}

// send sends in the background; the answer comes on the channel.
func (s *server) send(ctx context.Context, method, path, body string) <-chan answer {
	got := make(chan answer, 1)
	go func() {
		request, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
		if err != nil {
			got <- answer{err: err}
			return
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			got <- answer{err: err}
			return
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		got <- answer{response.StatusCode, string(text), err}
	}()
	return got
}

const within = 10 * time.Second

func TestPassesAndLogs(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	got := <-s.send(t.Context(), http.MethodPost, "/a%20b?x=%2F", strings.Repeat("long ", 50_000))
	if got.err != nil || got.status != http.StatusCreated || got.body != "from the server" {
		t.Fatalf("%+v", got)
	}
	if saw := s.saw(); len(saw) != 1 || saw[0] != "POST /a%20b?x=%2F "+strings.Repeat("long ", 50_000) {
		t.Errorf("the server did not get what was sent: %.80q", saw)
	}
	log := s.proxy.Log()
	if len(log) != 1 || log[0].String() != "POST /a%20b?x=%2F" || !strings.HasPrefix(log[0].Body, "long ") {
		t.Errorf("logged %.200v", log)
	}
}

func TestHoldsTheNth(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	hold := s.proxy.Hold(Match{Method: http.MethodPost, Path: "/merge", Body: "second", Nth: 2})
	for _, other := range []string{"/merge", "/other"} {
		if got := <-s.send(t.Context(), http.MethodPost, other, "second"); got.err != nil {
			t.Fatal(got.err)
		}
	}
	if got := <-s.send(t.Context(), http.MethodPost, "/merge", "first"); got.err != nil {
		t.Fatal(got.err)
	}
	held := s.send(t.Context(), http.MethodPost, "/merge", "second")
	if request := hold.Wait(t, within); request.Path != "/merge" {
		t.Errorf("held %v", request)
	}
	if n := len(s.saw()); n != 3 {
		t.Errorf("%d requests reached the server while one is held, want 3", n)
	}
	hold.Pass()
	if got := <-held; got.err != nil || got.body != "from the server" {
		t.Errorf("%+v", got)
	}
	if got := <-s.send(t.Context(), http.MethodPost, "/merge", "second"); got.err != nil {
		t.Error("a hold stops one request only")
	}
}

// What the fields cannot say, a function does.
func TestFits(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.proxy.Arm(Match{Method: http.MethodPost, Fits: func(r Request) bool { return strings.HasSuffix(r.Path, "/b") }, Nth: 2}, Status(503, 0))
	for i, want := range []struct {
		path   string
		status int
	}{{"/b", 201}, {"/b/c", 201}, {"/b", 503}, {"/b", 201}} {
		if got := <-s.send(t.Context(), http.MethodPost, want.path, ""); got.status != want.status {
			t.Errorf("request %d got %+v, want %d", i, got, want.status)
		}
	}
}

func TestDropAndAnswer(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	drop := s.proxy.Hold(Match{Path: "/drop"})
	dropped := s.send(t.Context(), http.MethodPost, "/drop", "x")
	drop.Wait(t, within)
	drop.Drop()
	drop.Pass() // too late
	if got := <-dropped; got.err == nil {
		t.Errorf("a dropped request got %+v", got)
	}
	answered := s.proxy.Hold(Match{Path: "/answer"})
	got := s.send(t.Context(), http.MethodGet, "/answer", "")
	answered.Wait(t, within)
	answered.Answer(http.StatusGatewayTimeout, "too slow")
	if got := <-got; got.status != http.StatusGatewayTimeout || got.body != "too slow" {
		t.Errorf("%+v", got)
	}
	if saw := s.saw(); len(saw) != 0 {
		t.Errorf("the server saw %q", saw)
	}
}

func TestAHeldRequestArrivesAlthoughItsCallerLeft(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	hold := s.proxy.Hold(Match{Path: "/late"})
	ctx, cancel := context.WithCancel(t.Context())
	gone := s.send(ctx, http.MethodPost, "/late", "content")
	hold.Wait(t, within)
	cancel()
	if got := <-gone; got.err == nil {
		t.Fatalf("%+v", got)
	}
	hold.Pass()
	deadline := time.After(within)
	for len(s.saw()) == 0 {
		select {
		case <-deadline:
			t.Fatal("the request never reached the server")
		case <-time.After(time.Millisecond):
		}
	}
	if saw := s.saw(); saw[0] != "POST /late content" {
		t.Errorf("the server saw %q", saw)
	}
}

func TestHoldsTheAnswer(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for name, c := range map[string]struct {
		decide func(*Hold)
		want   answer
	}{
		"passed":   {(*Hold).Pass, answer{status: http.StatusCreated, body: "from the server"}},
		"lost":     {(*Hold).Drop, answer{}},
		"replaced": {func(h *Hold) { h.Answer(http.StatusGatewayTimeout, "too slow") }, answer{status: http.StatusGatewayTimeout, body: "too slow"}},
	} {
		t.Run(name, func(t *testing.T) {
			hold := s.proxy.HoldAnswer(Match{Path: "/" + name})
			waiting := s.send(t.Context(), http.MethodPost, "/"+name, "content")
			hold.Wait(t, within)
			if saw := s.saw(); !slices.Contains(saw, "POST /"+name+" content") {
				t.Errorf("the answer is held and the server saw %q", saw)
			}
			select {
			case got := <-waiting:
				t.Errorf("the answer is held and the caller got %+v", got)
			default:
			}
			c.decide(hold)
			got := <-waiting
			if (got.err != nil) != (c.want.status == 0) || got.status != c.want.status || got.body != c.want.body {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestGate(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	gate := s.proxy.Gate(Match{Path: "/poll"})
	gate.Close()
	if got := <-s.send(t.Context(), http.MethodGet, "/poll", ""); got.status != http.StatusNoContent {
		t.Errorf("a closed gate answered %+v", got)
	}
	if n := len(s.proxy.Log()); n != 0 {
		t.Errorf("%d requests logged", n)
	}
	gate.Open()
	if got := <-s.send(t.Context(), http.MethodGet, "/poll", ""); got.status != http.StatusCreated {
		t.Errorf("an open gate answered %+v", got)
	}
}

// A gateway gives up on a request that its server still gets.
func TestLate(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	hold := s.proxy.Hold(Match{Path: "/late"})
	got := s.send(t.Context(), http.MethodPost, "/late", "content")
	hold.Wait(t, within)
	deliver := hold.Late(t)
	if got := <-got; got.status != http.StatusGatewayTimeout {
		t.Errorf("the caller got %+v, want 504", got)
	}
	if saw := s.saw(); len(saw) != 0 {
		t.Errorf("the server saw %q before it was delivered", saw)
	}
	deliver()
	if saw := s.saw(); len(saw) != 1 || saw[0] != "POST /late content" {
		t.Errorf("the server saw %q", saw)
	}
	deliver() // once only
	if saw := s.saw(); len(saw) != 1 {
		t.Errorf("the server saw %q", saw)
	}
}
