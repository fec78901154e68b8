package model

import (
	"fmt"
	"runtime"
	"time"
)

// fate is what becomes of one call.
type fate string

const (
	// through: the server does it and the caller hears so.
	through fate = "ok"
	// lost: the server does it, and the caller hears nothing.
	lost fate = "lost"
	// dropped: the server never hears of it, and the caller hears nothing.
	dropped fate = "dropped"
	// late: the caller hears nothing, and the server does it later, as a step of
	// its own in the schedule.
	late fate = "late"
	// crash: the caller's process ends instead of the call.
	crash fate = "crash"
)

// reach says who has to do with a call.
type reach int

const (
	// shared: other actors can change what it reads, or see what it writes. Who
	// comes first matters.
	shared reach = iota
	// local: nobody else can, so no other actor comes in before it. It may fail.
	local
	// instant is local, and not worth a fault: it is done with the call before it.
	instant
)

// call is one call of an actor to a server.
type call struct {
	name string
	// faults are the fates that it may have beside through.
	faults []fate
	reach  reach
	// ready says whether it can be made; nil is always.
	ready func(*state) bool
}

// answer is what a call comes back with. Equal digests are equal answers.
type answer struct {
	value  any
	err    error
	digest uint64
}

// request is a call with what it does and what its caller hears when it hears
// nothing.
type request struct {
	call
	do     func(*world) answer
	silent answer
}

// role is one actor of a scenario: a program, whose code runs, or a list of steps.
type role struct {
	name string
	// optional says that a schedule may end without it.
	optional bool

	// program is the real code of a worker.
	program func(*player)
	// first is the beginning of what is known of it.
	first *node
	// live runs the program as far as it was needed last.
	live *player

	steps []action
}

// action is a step of a role without a program.
type action struct {
	call
	do func(*world)
}

// node is a place in a program: what it was answered so far, and so the call that
// it stands before. A program is the same function of its answers in every
// schedule, so it is run once for each node and not once for each schedule; after
// that, what it does is known.
type node struct {
	id      int
	request *request
	// parent and by are the node before and the answer that led from it.
	parent *node
	by     answer
	next   map[uint64]*node
}

// player runs a program, up to some node.
type player struct {
	arrived chan *request
	answers chan answer
	killed  bool
	// stop ends what the program runs.
	stop func()
	// number is the role's.
	number int
	// executions counts the execution ids it has used.
	executions int
	// polled says that it has asked for a task.
	polled bool

	at *node
	// since is when it came there: the program's own deadlines go on meanwhile.
	since time.Time
}

// pass asks for the answer to a call. A player that is no longer needed ends here.
func (p *player) pass(r *request) answer {
	if p.killed {
		runtime.Goexit()
	}
	p.arrived <- r
	a, ok := <-p.answers
	if !ok {
		p.killed = true
		p.stop()
		runtime.Goexit()
	}
	return a
}

// automaton numbers the nodes of a scenario's programs.
type automaton struct {
	nodes int
	// runs counts how often a program was run from its beginning.
	runs int
}

func (m *automaton) node(parent *node, by answer, r *request) *node {
	m.nodes++
	return &node{id: m.nodes, request: r, parent: parent, by: by, next: map[uint64]*node{}}
}

// start runs a program up to its first call.
func (m *automaton) start(r *role) {
	m.runs++
	p := &player{arrived: make(chan *request), answers: make(chan answer), stop: func() {}}
	go func() {
		defer close(p.arrived)
		r.program(p)
	}()
	r.live, p.since = p, time.Now()
	first := <-p.arrived
	if r.first == nil {
		r.first = m.node(nil, answer{}, first)
	}
	p.at = r.first
	same(r, r.first, first)
}

// after is where a program stands after an answer; a node without a request is its
// end.
func (m *automaton) after(r *role, at *node, a answer) *node {
	if next, known := at.next[a.digest]; known {
		return next
	}
	// A player that stands there goes on, unless time has passed, which a program
	// may notice.
	if r.live == nil || r.live.at != at || time.Since(r.live.since) > 0 {
		r.end()
		m.start(r)
		var path []*node
		for n := at; n.parent != nil; n = n.parent {
			path = append(path, n)
		}
		for i := len(path) - 1; i >= 0; i-- {
			m.answer(r, path[i].by)
		}
	}
	m.answer(r, a)
	return r.live.at
}

// answer lets the live player go on to its next call.
func (m *automaton) answer(r *role, a answer) {
	p := r.live
	p.answers <- a
	request := <-p.arrived
	next, known := p.at.next[a.digest]
	if !known {
		next = m.node(p.at, a, request)
		p.at.next[a.digest] = next
	}
	same(r, next, request)
	p.at, p.since = next, time.Now()
}

// same holds a program to being the same every time.
func same(r *role, n *node, got *request) {
	if (n.request == nil) != (got == nil) || got != nil && got.name != n.request.name {
		panic(fmt.Sprintf("%s does not do the same every time: it stands before %v, and stood before %v", r.name, got, n.request))
	}
}

// end ends the live player.
func (r *role) end() {
	if r.live == nil {
		return
	}
	close(r.live.answers)
	for range r.live.arrived { //nolint:revive // It is closed when the program has ended.
	}
	r.live = nil
}
