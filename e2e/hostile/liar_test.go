package hostile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// call is what requests have in common that do the same in each run of the chain:
// which task was under way, and what was asked.
type call struct {
	phase string
	kind  string
}

func (c call) String() string { return strings.TrimSpace(c.phase + " " + c.kind) }

// reads reports whether the call changes nothing.
func (c call) reads() bool { return strings.HasPrefix(c.kind, http.MethodGet) && !c.polls() }

// polls reports whether the call hands out tasks.
func (c call) polls() bool { return strings.HasPrefix(c.kind, polling) }

// ofTheWorker reports whether the call is one that a worker makes by itself, task or
// not.
func (c call) ofTheWorker() bool {
	for _, kind := range []string{"GET lakefs /user", "POST conductor /token", "GET conductor /tasks/queue/sizes", "GET conductor /metadata/"} {
		if strings.HasPrefix(c.kind, kind) {
			return true
		}
	}
	return false
}

// background reports whether the call is none of a task's: then nothing may happen
// for as long as it is answered wrongly.
func (c call) background() bool { return c.phase == "" }

// lie is a hostile answer at a call of a chain.
type lie struct {
	flow flow
	call call
	// like is what the call was answered by an honest server.
	like   reply
	answer answer
	// nth is which of the call's requests it meets, from 1; 0 is all of them.
	nth int
	// acts says that the server has done what it was asked.
	acts bool
}

func (l lie) String() string {
	text := fmt.Sprintf("%s %s #%d: %s", l.flow, l.call, l.nth, l.answer.name)
	if l.nth == 0 {
		text = fmt.Sprintf("%s %s always: %s", l.flow, l.call, l.answer.name)
	}
	if l.acts && !l.call.reads() {
		text += " (acted)"
	}
	return text
}

// reply is a server's own answer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// liar is the transport of all clients of the workers: it carries requests to the
// memory servers, and answers those of its lie itself.
type liar struct {
	conductor, lakefs http.RoundTripper
	lakefsHost        string
	lake              *lakefstest.Server
	// foreign is the id of a commit of somebody's.
	foreign string

	mu sync.Mutex
	// phase and task are the task that was handed out last, until its update.
	phase, task string
	lie         *lie
	// began is set when calls are counted.
	began bool
	seen  map[call]int
	// honest holds the first good answer to each call.
	honest map[call]reply
	met    int
	// strays are requests to another host than the two that the workers know.
	strays []string
	// requests are all since start.
	requests int
	start    time.Time
	// mostRead is how many bytes were read of the body of which most was read.
	mostRead int64
}

func newLiar(conductor http.RoundTripper, lake *lakefstest.Server) *liar {
	endpoint := lake.Config().Endpoint
	return &liar{
		conductor: conductor, lakefs: lake.Transport(), lakefsHost: strings.TrimPrefix(endpoint, "http://"), lake: lake,
		seen: map[call]int{}, honest: map[call]reply{},
	}
}

// floods reports whether there are more requests than a worker needs that tries
// everything as often as it may, with its pauses: it goes round in circles.
func (l *liar) floods() bool {
	return l.requests > 2000+5*int(time.Since(l.start)/time.Second)
}

// arm begins to count calls, and puts a lie at one of them unless it is nil.
func (l *liar) arm(one *lie) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lie, l.began = one, true
}

// RoundTrip answers a request of the workers.
func (l *liar) RoundTrip(request *http.Request) (*http.Response, error) {
	var body []byte
	if request.Body != nil {
		var err error
		body, err = io.ReadAll(request.Body)
		_ = request.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	if request.URL.Host != conductorHost && request.URL.Host != l.lakefsHost {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.strays = append(l.strays, fmt.Sprintf("%s %s (credentials: %v)", request.Method, request.URL, request.Header["Authorization"] != nil || request.Header["X-Authorization"] != nil))
		return nil, fmt.Errorf("dial %s: there is no such host", request.URL.Host)
	}

	l.mu.Lock()
	if l.start.IsZero() {
		l.start = time.Now()
	}
	if l.requests++; l.floods() {
		// Time has to go on, or the case does not end.
		l.mu.Unlock()
		time.Sleep(time.Second)
		l.mu.Lock()
	}
	asked := call{l.phase, kindOf(request, body, l.task)}
	if asked.polls() || asked.ofTheWorker() {
		asked.phase = ""
	}
	aimed := l.lie != nil && l.lie.call == asked
	if asked.polls() && !(aimed && !l.lie.acts) {
		l.mu.Unlock()
		return l.poll(asked, aimed, request)
	}
	told := l.meets(asked)
	one := l.lie
	l.mu.Unlock()

	if told && !one.acts {
		return l.tell(*one, one.like, request, body)
	}
	good, err := l.honestly(request, body)
	switch {
	case err != nil:
		return nil, err
	case told:
		return l.tell(*one, good, request, body)
	}
	l.keep(asked, good)
	return good.response(request), nil
}

// meets counts a request, and reports whether the lie is for it.
func (l *liar) meets(asked call) bool {
	if !l.began {
		return false
	}
	l.seen[asked]++
	if l.lie == nil || l.lie.call != asked || l.lie.nth != 0 && l.lie.nth != l.seen[asked] {
		return false
	}
	l.met++
	return true
}

// keep keeps what an honest server answers.
func (l *liar) keep(asked call, good reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lie != nil || !l.began {
		return
	}
	if _, known := l.honest[asked]; !known {
		l.honest[asked] = good
	}
}

// poll hands out tasks. Only then it counts as a call: how often nothing was handed
// out is another matter each time.
func (l *liar) poll(asked call, aimed bool, request *http.Request) (*http.Response, error) {
	good, err := l.honestly(request, nil)
	if err != nil {
		return nil, err
	}
	if len(good.body) <= len("[]") {
		return good.response(request), nil
	}
	l.mu.Lock()
	told := l.meets(asked)
	one := l.lie
	l.mu.Unlock()
	if told && aimed {
		return l.tell(*one, good, request, nil)
	}
	l.keep(asked, good)
	return good.response(request), nil
}

// tell answers with a lie in the place of the good answer.
func (l *liar) tell(one lie, good reply, request *http.Request, body []byte) (*http.Response, error) {
	response, err := one.answer.say(&saying{request: request, body: body, good: good, liar: l, lie: one})
	if err != nil {
		return nil, err
	}
	response.Request = request
	response.Proto, response.ProtoMajor, response.ProtoMinor = "HTTP/1.1", 1, 1
	return response, nil
}

// honestly has the server answer, and follows which task is under way.
func (l *liar) honestly(request *http.Request, body []byte) (reply, error) {
	if body != nil {
		request = request.Clone(request.Context())
		request.Body = io.NopCloser(bytes.NewReader(body))
	}
	if strings.HasSuffix(request.URL.Path, "/api/token") {
		return reply{http.StatusOK, http.Header{"Content-Type": {"application/json"}}, []byte(`{"token":"` + theToken + `"}`)}, nil
	}
	below := l.conductor
	if request.URL.Host == l.lakefsHost {
		below = l.lakefs
	}
	response, err := below.RoundTrip(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, err
	}
	l.follow(request, body, raw)
	return reply{response.StatusCode, response.Header, raw}, nil
}

// follow keeps which task the workers have.
func (l *liar) follow(request *http.Request, sent, answer []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case strings.Contains(request.URL.Path, "/tasks/poll/batch/"):
		var tasks []struct {
			Type txn.TaskType `json:"taskDefName"`
			ID   string       `json:"taskId"`
		}
		if json.Unmarshal(answer, &tasks) == nil && len(tasks) > 0 {
			l.phase, l.task = strings.TrimPrefix(string(tasks[0].Type), "perago_"), tasks[0].ID
		}
	case strings.HasSuffix(request.URL.Path, "/api/tasks") && !bytes.Contains(sent, []byte(`"extendLease":true`)):
		l.phase = "after " + strings.TrimPrefix(l.phase, "after ")
	}
}

func (r reply) response(request *http.Request) *http.Response {
	return &http.Response{
		StatusCode: r.status, Status: fmt.Sprintf("%d %s", r.status, http.StatusText(r.status)), Header: r.header.Clone(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(bytes.NewReader(r.body)), ContentLength: int64(len(r.body)), Request: request,
	}
}

// What stands in a path in the place of a name.
var (
	hash   = regexp.MustCompile(`/[0-9a-f]{64}`)
	uuids  = regexp.MustCompile(`/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	ours   = regexp.MustCompile(`/perago-[a-z0-9-]+`)
	runs   = regexp.MustCompile(`/runs/[^/]+`)
	lake   = regexp.MustCompile(`/repositories/[^/]+`)
	status = regexp.MustCompile(`"status":"([A-Z_]+)"`)
)

// polling begins the kind of a poll; its task type follows.
const polling = "GET conductor poll "

// kindOf names what a request asks for. task is the one that is under way.
func kindOf(request *http.Request, body []byte, task string) string {
	path := strings.TrimPrefix(strings.TrimPrefix(request.URL.Path, "/api"), "/v1")
	switch {
	case request.URL.Host != conductorHost:
		for _, name := range []*regexp.Regexp{hash, ours} {
			path = name.ReplaceAllString(path, "/*")
		}
		path = lake.ReplaceAllString(path, "")
		return request.Method + " lakefs " + runs.ReplaceAllString(path, "/runs/*")
	case strings.HasPrefix(path, "/tasks/poll/"):
		return polling + strings.TrimPrefix(path, "/tasks/poll/batch/")
	case path == "/tasks" && bytes.Contains(body, []byte(`"extendLease":true`)):
		return "POST conductor extend"
	case path == "/tasks":
		said := status.FindSubmatch(body)
		if said == nil {
			return "POST conductor update"
		}
		return "POST conductor " + string(said[1])
	case path == "/tasks/"+task:
		return "GET conductor own task"
	case strings.HasPrefix(path, "/workflow/") && request.URL.Query().Get("includeTasks") == "false":
		return "GET conductor workflow status"
	}
	return request.Method + " conductor " + uuids.ReplaceAllString(path, "/*")
}
