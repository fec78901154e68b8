package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"perago/e2e/fleet"
	"perago/pkg/fault"
)

// worker is one of the three programs.
type worker = fleet.Worker

const (
	stager    = fleet.Stage
	publisher = fleet.Publish
	cleaner   = fleet.Cleanup
)

var workers = fleet.Workers()

// server is one of the two servers.
type server string

const (
	toConductor server = "conductor"
	toLakeFS    server = "lakefs"
)

// flow is what the chain goes through.
type flow string

const (
	// plain is a step that is published.
	plain flow = "plain"
	// again is a step that has been published and is run once more with other
	// files, which supersede the first ones.
	again flow = "again"
)

var flows = []flow{plain, again}

// request is one request of a chain: the nth of its kind that a worker sends to a
// server.
type request struct {
	flow   flow
	worker worker
	server server
	kind   string
	nth    int
}

func (r request) String() string {
	return fmt.Sprintf("%s %s %s %s #%d", r.flow, r.worker, r.server, r.kind, r.nth)
}

// writes reports whether the request changes the lake.
func (r request) writes() bool {
	return r.server == toLakeFS && !strings.HasPrefix(r.kind, http.MethodGet)
}

// planned is one case.
type planned struct {
	request
	fault fault.Fault
	// kill, when set, is a crash in place of a fault.
	kill moment
	// lands is how long after the kill a request lands that was under way.
	lands time.Duration
	// second is another fault in the same run; what the first one changes may leave
	// it without its request.
	second *planned
	// once says that Conductor does not try again: then the step may fail, and must
	// fail closed.
	once bool
}

func (p planned) match() fault.Match {
	kind := p.kind
	if p.polls() {
		kind = pollOf(taskType(p.worker, p.once))
	}
	return fault.Match{Fits: func(seen fault.Request) bool { return kindOf(seen) == kind }, Nth: p.nth}
}

// moment is when a worker is killed.
type moment string

const (
	// before: the worker has sent the request, and the server never gets it.
	before moment = "killed before"
	// after: the server has answered, and the worker never gets the answer.
	after moment = "killed after"
	// underWay: the request reaches the server when the worker has long been dead,
	// about when the next attempt is at work.
	underWay moment = "killed under way"
)

func (p planned) String() string {
	text := fmt.Sprintf("%s %s", p.request, p.fault.Name)
	switch {
	case p.kill != "":
		text = fmt.Sprintf("%s %s", p.request, p.kill)
	case p.once:
		text += " once"
	}
	if p.second != nil {
		text += " and " + p.second.String()
	}
	return text
}

// late reports whether something may land after all else has ended.
func (p planned) late() bool {
	return p.fault.Server == fault.Later || p.kill == underWay || p.second != nil && p.second.late()
}

// veryLate lands when all that waits for it has given up.
func veryLate() fault.Fault {
	f := fault.Late(6 * time.Second)
	f.Name = "very-late"
	return f
}

// polls reports whether the request is the poll that takes the task.
func (r request) polls() bool { return r.kind == pollOf(taskType(r.worker, false)) }

// faultsOf are the faults that a request can meet.
func (r request) faults() []fault.Fault {
	all := fault.All()
	if r.writes() {
		all = append(all, veryLate())
	}
	return all
}

// plan is every case for the requests of a chain, and some pairs of faults.
func plan(requests []request, pairs int, random *rand.Rand) []planned {
	var all []planned
	for _, r := range requests {
		for _, f := range r.faults() {
			all = append(all, planned{request: r, fault: f})
		}
		// Most faults are got over within the attempt, so that Conductor's retries
		// make no difference. What may need one is tried without.
		if r.writes() || r.polls() {
			for _, f := range []fault.Fault{fault.Dropped(), fault.Lost(), fault.Late(time.Second), fault.Garbled(), veryLate()} {
				all = append(all, planned{request: r, fault: f, once: true})
			}
		}
	}
	pick := func(fits func(request) bool) planned {
		for {
			if r := requests[random.IntN(len(requests))]; fits(r) {
				return planned{request: r, fault: r.faults()[random.IntN(len(r.faults()))]}
			}
		}
	}
	for range pairs {
		first := pick(func(request) bool { return true })
		// Which poll takes the task is known of the first one only.
		second := pick(func(r request) bool { return !r.polls() })
		if second.flow == again {
			first.flow = again // it has all requests of the other
		}
		second.flow = first.flow
		first.second = &second
		all = append(all, first)
	}
	return all
}

// kills is every moment at which a worker can be killed.
func kills(requests []request, random *rand.Rand) []planned {
	var all []planned
	for _, r := range requests {
		// The lease is 8 s, and the next attempt waits a second.
		lands := 8500*time.Millisecond + time.Duration(random.Int64N(int64(2*time.Second)))
		all = append(all, planned{request: r, kill: before}, planned{request: r, kill: after}, planned{request: r, kill: underWay, lands: lands})
	}
	return all
}

// without leaves out what another flow has as well, but not the merge: what it is
// merged onto is another matter.
func without(requests, known []request) []request {
	had := map[request]bool{}
	for _, r := range known {
		r.flow = ""
		had[r] = true
	}
	return slices.DeleteFunc(slices.Clone(requests), func(r request) bool {
		merges := r.worker == publisher && r.writes()
		r.flow = ""
		return had[r] && !merges
	})
}

// What stands in a path in the place of a name.
var (
	hash   = regexp.MustCompile(`/[0-9a-f]{64}`)
	uuid   = regexp.MustCompile(`/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	ours   = regexp.MustCompile(`/perago-[a-z0-9-]+`)
	runs   = regexp.MustCompile(`/runs/[^/]+`)
	lake   = regexp.MustCompile(`/repositories/[^/]+`)
	status = regexp.MustCompile(`"status":"([A-Z_]+)"`)
)

const polling = "GET /api/tasks/poll/batch/"

func pollOf(taskType string) string { return "poll " + taskType }

// background is what a worker sends by itself whether it has a task or not.
var background = []string{"GET /api/v1/user", "GET /api/metadata/", "GET /api/tasks/queue/sizes"}

// kindOf is what requests have in common that do the same in each run of the
// chain; "" is a request that is not of the chain.
func kindOf(r fault.Request) string {
	kind := r.Method + " " + r.Path
	for _, other := range background {
		if strings.HasPrefix(kind, other) {
			return ""
		}
	}
	if polled, ok := strings.CutPrefix(kind, polling); ok {
		return pollOf(polled)
	}
	for _, name := range []*regexp.Regexp{hash, uuid, ours} {
		kind = name.ReplaceAllString(kind, "/*")
	}
	kind = lake.ReplaceAllString(kind, "/repositories/*")
	kind = runs.ReplaceAllString(kind, "/runs/*")
	if r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/api/tasks") {
		if strings.Contains(r.Body, `"extendLease":true`) {
			return "" // a heartbeat comes when it has taken long
		}
		if said := status.FindStringSubmatch(r.Body); said != nil {
			kind += " " + said[1]
		}
	}
	return strings.ReplaceAll(kind, "/api/v1", "")
}

// requestsOf numbers the requests of a log by their kinds. Of the polls there is
// one: that which gives the task.
func requestsOf(of flow, w worker, s server, log []fault.Request) []request {
	var all []request
	count := map[string]int{}
	for _, seen := range log {
		kind := kindOf(seen)
		if kind == "" || kind == pollOf(taskType(w, false)) && count[kind] > 0 {
			continue
		}
		count[kind]++
		all = append(all, request{of, w, s, kind, count[kind]})
	}
	return all
}
