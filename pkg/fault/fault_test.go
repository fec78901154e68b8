package fault

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// toldCaller is what a caller learns of its request, and when.
type toldCaller struct {
	Status     int
	RetryAfter string
	Kind       string
	Body       string
	// Fails says that there is no answer, Broken that it ends too early.
	Fails, Broken bool
}

const good = `{"from":"the server"}`

// wanted is what each fault does, by its name: the one list that both forms are
// held to.
var wanted = map[string]struct {
	caller toldCaller
	// reached is how often the server has had the request when the caller is told,
	// and at last.
	reached, atLast int
}{
	"refused":         {toldCaller{Fails: true}, 0, 0},
	"dropped":         {toldCaller{Fails: true}, 0, 0},
	"lost":            {toldCaller{Fails: true}, 1, 1},
	"late":            {toldCaller{Status: 504, Kind: "application/json", Body: refusal(504)}, 0, 1},
	"cut":             {toldCaller{Status: 201, Kind: "application/json", Body: good[:len(good)/2], Broken: true}, 1, 1},
	"slow":            {toldCaller{Status: 201, Kind: "application/json", Body: good}, 1, 1},
	"page":            {toldCaller{Status: 200, Kind: "text/html", Body: htmlPage}, 0, 0},
	"garbled":         {toldCaller{Status: 201, Kind: "text/html", Body: htmlPage}, 1, 1},
	"empty":           {toldCaller{Status: 201, Kind: "application/json"}, 1, 1},
	"423":             {toldCaller{Status: 423, Kind: "application/json", Body: refusal(423)}, 0, 0},
	"429":             {toldCaller{Status: 429, Kind: "application/json", Body: refusal(429)}, 0, 0},
	"500":             {toldCaller{Status: 500, Kind: "application/json", Body: refusal(500)}, 0, 0},
	"502":             {toldCaller{Status: 502, Kind: "application/json", Body: refusal(502)}, 0, 0},
	"503":             {toldCaller{Status: 503, Kind: "application/json", Body: refusal(503)}, 0, 0},
	"504":             {toldCaller{Status: 504, Kind: "application/json", Body: refusal(504)}, 0, 0},
	"423-retry-after": {toldCaller{Status: 423, Kind: "application/json", Body: refusal(423), RetryAfter: "1"}, 0, 0},
	"429-retry-after": {toldCaller{Status: 429, Kind: "application/json", Body: refusal(429), RetryAfter: "1"}, 0, 0},
	"500-retry-after": {toldCaller{Status: 500, Kind: "application/json", Body: refusal(500), RetryAfter: "1"}, 0, 0},
	"502-retry-after": {toldCaller{Status: 502, Kind: "application/json", Body: refusal(502), RetryAfter: "1"}, 0, 0},
	"503-retry-after": {toldCaller{Status: 503, Kind: "application/json", Body: refusal(503), RetryAfter: "1"}, 0, 0},
	"504-retry-after": {toldCaller{Status: 504, Kind: "application/json", Body: refusal(504), RetryAfter: "1"}, 0, 0},
}

func refusal(status int) string {
	names := map[int]string{
		423: "Locked", 429: "Too Many Requests", 500: "Internal Server Error",
		502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
	}
	return `{"status":` + strconv.Itoa(status) + `,"message":"a fault of the test: ` + names[status] + `"}`
}

func TestAllIsTheList(t *testing.T) {
	t.Parallel()
	named := map[string]bool{}
	for _, f := range All() {
		if named[f.Name] {
			t.Errorf("two faults are called %s", f.Name)
		}
		named[f.Name] = true
		want, known := wanted[f.Name]
		if !known {
			t.Errorf("%s has no row in the test", f.Name)
			continue
		}
		server := map[Reach][2]int{Never: {0, 0}, AtOnce: {1, 1}, Later: {0, 1}}[f.Server]
		if server != [2]int{want.reached, want.atLast} {
			t.Errorf("%s says %v of the server, which is to get it %d times and at last %d", f.Name, f.Server, want.reached, want.atLast)
		}
		if f.Status != 0 && f.Status != want.caller.Status {
			t.Errorf("%s says %d", f.Name, f.Status)
		}
	}
	for name := range wanted {
		if !named[name] {
			t.Errorf("there is no fault %s", name)
		}
	}
}

// request sends one request by a client and gives what it learns.
func request(ctx context.Context, t *testing.T, client *http.Client, url string) (toldCaller, error) {
	t.Helper()
	made, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("content"))
	if err != nil {
		t.Fatal(err)
	}
	// Or net/http would send it once more by itself.
	made.GetBody = nil
	response, err := client.Do(made)
	if err != nil {
		return toldCaller{Fails: true}, err
	}
	defer response.Body.Close()
	if response.Request == nil || response.Request.URL.String() != url {
		t.Error("the answer does not say to which request")
	}
	body, err := io.ReadAll(response.Body)
	return toldCaller{
		Status: response.StatusCode, RetryAfter: response.Header.Get("Retry-After"),
		Kind: response.Header.Get("Content-Type"), Body: string(body), Broken: err != nil,
	}, err
}

// inMemory is a server as the transport behind a wire.
type inMemory struct {
	mu      sync.Mutex
	reached []string
}

func (s *inMemory) saw() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.reached)
}

func (s *inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.reached = append(s.reached, r.Method+" "+string(body))
	s.mu.Unlock()
	recorder := httptest.NewRecorder()
	recorder.Header().Set("Content-Type", "application/json")
	recorder.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(recorder, good)
	return recorder.Result(), nil
}

func TestFaultsByTheWire(t *testing.T) {
	t.Parallel()
	for _, f := range All() {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := &inMemory{}
				wire := NewWire(server)
				armed := wire.Arm(Match{Method: http.MethodPost, Path: "/a", Nth: 2}, f)
				client := &http.Client{Transport: wire}
				plain := toldCaller{Status: 201, Kind: "application/json", Body: good}
				if got, _ := request(t.Context(), t, client, "http://server.test/a"); got != plain {
					t.Fatalf("before it, %+v", got)
				}
				began := time.Now()
				got, err := request(t.Context(), t, client, "http://server.test/a")
				took := time.Since(began)
				want := wanted[f.Name]
				if diff := cmp.Diff(want.caller, got); diff != "" {
					t.Errorf("the caller (-want +got):\n%s", diff)
				}
				if slow := f.Name == "slow"; slow != (took == time.Second) || !slow && took != 0 {
					t.Errorf("it took %s", took)
				}
				if refused := f.Name == "refused"; refused != errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("the caller got %v", err)
				}
				if n := len(server.saw()) - 1; n != want.reached {
					t.Errorf("the server had it %d times when the caller was told, want %d", n, want.reached)
				}
				<-armed.Arrived()
				<-armed.Over()
				if n := len(server.saw()) - 1; n != want.atLast {
					t.Errorf("the server had it %d times at last, want %d", n, want.atLast)
				}
				for _, one := range server.saw() {
					if one != "POST content" {
						t.Errorf("the server had %q", one)
					}
				}
				if late := f.Name == "late"; late && time.Since(began) != time.Second {
					t.Errorf("the server had it after %s", time.Since(began))
				}
				if got, _ := request(t.Context(), t, client, "http://server.test/a"); got != plain {
					t.Errorf("after it, %+v", got)
				}
				if n := len(wire.Log()); n != 3 {
					t.Errorf("%d requests in the log", n)
				}
			})
		})
	}
}

func TestFaultsByTheProxy(t *testing.T) {
	t.Parallel()
	for _, f := range All() {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.answer = good
			if f.Wait > 0 {
				f.Wait = 50 * time.Millisecond
			}
			armed := s.proxy.Arm(Match{Path: "/a", Nth: 2}, f)
			if got, _ := request(t.Context(), t, http.DefaultClient, s.url+"/a"); got.Body != good {
				t.Fatalf("before it, %+v", got)
			}
			got, _ := request(t.Context(), t, http.DefaultClient, s.url+"/a")
			want := wanted[f.Name]
			if diff := cmp.Diff(want.caller, got); diff != "" {
				t.Errorf("the caller (-want +got):\n%s", diff)
			}
			<-armed.Arrived()
			<-armed.Over()
			if n := len(s.saw()) - 1; n != want.atLast {
				t.Errorf("the server had it %d times, want %d", n, want.atLast)
			}
			if got, _ := request(t.Context(), t, http.DefaultClient, s.url+"/a"); got.Body != good {
				t.Errorf("after it, %+v", got)
			}
		})
	}
}

// An answer that has no body: it cannot be cut, and a page needs another status.
func TestFaultsOfAnAnswerWithoutABody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault Fault
		want  toldCaller
	}{
		{Cut(), toldCaller{Fails: true}},
		{Garbled(), toldCaller{Status: 200, Kind: "text/html", Body: htmlPage}},
		{Empty(), toldCaller{Status: 204}},
	} {
		t.Run(c.fault.Name, func(t *testing.T) {
			t.Parallel()
			wire := NewWire(roundTrip(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 204, Header: http.Header{}, Body: http.NoBody}, nil
			}))
			wire.Arm(Match{}, c.fault)
			got, _ := request(t.Context(), t, &http.Client{Transport: wire}, "http://server.test/")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A caller that does not wait: it is told that its time is over, and what it sent
// arrives.
func TestACallerLeavesASlowServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &inMemory{}
		wire := NewWire(server)
		wire.Arm(Match{}, Slow(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := request(ctx, t, &http.Client{Transport: wire}, "http://server.test/"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v, %v", got, err)
		}
		if len(server.saw()) != 1 {
			t.Errorf("the server had %q", server.saw())
		}
	})
}

// An upload is not in the log, and a fault hands it on whole.
func TestAnUploadIsLateAndWhole(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	content := bytes.Repeat([]byte("x"), 1<<20)
	armed := s.proxy.Arm(Match{}, Late(20*time.Millisecond))
	made, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/upload", bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	made.Header.Set("Content-Type", "application/octet-stream")
	response, err := http.DefaultClient.Do(made)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	<-armed.Over()
	if saw := s.saw(); response.StatusCode != http.StatusGatewayTimeout || len(saw) != 1 || saw[0] != "POST /upload "+string(content) {
		t.Errorf("answered %d, and the server had %d requests", response.StatusCode, len(saw))
	}
	if log := s.proxy.Log(); len(log) != 1 || log[0].Body != "" {
		t.Errorf("the log holds an upload")
	}
}

// What is armed and forgotten meets nothing.
func TestForget(t *testing.T) {
	t.Parallel()
	wire := NewWire(&inMemory{})
	armed := wire.Arm(Match{}, Lost())
	wire.Forget()
	if got, _ := request(t.Context(), t, &http.Client{Transport: wire}, "http://server.test/"); got.Body != good {
		t.Errorf("%+v", got)
	}
	select {
	case <-armed.Arrived():
		t.Error("a forgotten fault met a request")
	default:
	}
	if n := len(wire.Log()); n != 1 {
		t.Errorf("%d requests in the log", n)
	}
}

// A gate that is drained has nothing under way behind it.
func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answering := make(chan bool)
		wire := NewWire(roundTrip(func(*http.Request) (*http.Response, error) {
			<-answering
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
		}))
		gate := wire.Gate(Match{Path: "/poll"})
		go func() { _, _ = request(t.Context(), t, &http.Client{Transport: wire}, "http://server.test/poll") }()
		synctest.Wait()
		drained := make(chan bool)
		go func() { gate.Drain(); close(drained) }()
		synctest.Wait()
		select {
		case <-drained:
			t.Error("drained while a request is under way")
		default:
		}
		if got, _ := request(t.Context(), t, &http.Client{Transport: wire}, "http://server.test/poll"); got.Status != 204 {
			t.Errorf("while it drains, %+v", got)
		}
		close(answering)
		<-drained
	})
}
