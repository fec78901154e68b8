package model

import (
	"context"
	"slices"
)

// pending is something that was sent and has not arrived.
type pending struct {
	name string
	do   func(*world)
}

// state is one moment of a schedule: both servers, where each actor stands, and
// what is left of the bounds.
type state struct {
	*scenario
	world *world
	// at is where each program stands; one that crashed or ended stands nowhere.
	at []*node
	// done is how many steps each role without a program has taken.
	done  []int
	later []pending
	// last is the actor of the latest step; -1 when that is nobody who could go on.
	last                        int
	preemptionsLeft, faultsLeft int
	events                      *history
}

// history is the steps of a schedule, newest first.
type history struct {
	event
	before *history
}

func (h *history) list() []event {
	var all []event
	for ; h != nil; h = h.before {
		all = append(all, h.event)
	}
	slices.Reverse(all)
	return all
}

// fork is a copy that can go another way.
func (s *state) fork() *state {
	copied := *s
	copied.world = s.world.clone()
	copied.at = slices.Clone(s.at)
	copied.done = slices.Clone(s.done)
	copied.later = slices.Clone(s.later)
	return &copied
}

// digest is the hash of everything that decides what comes next, and of what the
// rules will be judged by.
func (s *state) digest() uint64 {
	sum := s.world.digest()
	for i, n := range s.at {
		id := s.done[i]
		if n != nil {
			id = n.id
		}
		sum = sum*0x100000001B3 + uint64(id)
	}
	for _, p := range s.later {
		sum += hashOf("late", p.name)
	}
	return sum
}

// standing is the call that an actor stands before; nil when it is done. The
// actors after the roles are what is still under way.
func (s *state) standing(actor int) *call {
	if actor >= len(s.roles) {
		return &call{name: s.later[actor-len(s.roles)].name}
	}
	r := s.roles[actor]
	if r.program == nil {
		if s.done[actor] == len(r.steps) {
			return nil
		}
		return &r.steps[s.done[actor]].call
	}
	if n := s.at[actor]; n != nil && n.request != nil {
		return &n.request.call
	}
	return nil
}

func (s *state) able(actor int) bool {
	c := s.standing(actor)
	return c != nil && (c.ready == nil || c.ready(s))
}

// choice is what may come next in a schedule.
type choice struct {
	actor int
	fate  fate
	// preempts says that it leaves an actor which could go on.
	preempts bool
}

// choices are what may come next within the bounds, the one without a switch and
// without a fault first.
func (s *state) choices() []choice {
	var all []choice
	add := func(actor int, preempts bool) {
		all = append(all, choice{actor, through, preempts})
		if s.faultsLeft > 0 {
			for _, f := range s.standing(actor).faults {
				all = append(all, choice{actor, f, preempts})
			}
		}
	}
	goesOn := s.last >= 0
	if goesOn {
		add(s.last, false)
		if s.standing(s.last).reach == local || s.preemptionsLeft == 0 {
			return all
		}
	}
	for actor := range len(s.roles) + len(s.later) {
		if actor != s.last && s.able(actor) {
			add(actor, goesOn)
		}
	}
	return all
}

// quiet reports whether the schedule may end here: nobody who has to go on can.
func (s *state) quiet() bool {
	for actor, r := range s.roles {
		if !r.optional && s.able(actor) {
			return false
		}
	}
	return true
}

// take carries out one choice.
func (s *state) take(c choice) {
	name := "late"
	if c.actor < len(s.roles) {
		name = s.roles[c.actor].name
	}
	s.world.refused = nil
	s.events = &history{event{name, s.standing(c.actor).name, c.fate}, s.events}
	if c.preempts {
		s.preemptionsLeft--
	}
	if c.fate != through {
		s.faultsLeft--
	}
	switch {
	case c.actor >= len(s.roles):
		i := c.actor - len(s.roles)
		do := s.later[i].do
		s.later = slices.Delete(s.later, i, i+1)
		do(s.world)
		s.last = -1
		return
	case s.roles[c.actor].program == nil:
		step := s.roles[c.actor].steps[s.done[c.actor]]
		s.done[c.actor]++
		step.do(s.world)
	default:
		s.play(c)
	}
	s.last = c.actor
	if !s.able(c.actor) {
		s.last = -1
	}
}

// play lets a program go on to its next call that matters.
func (s *state) play(c choice) {
	at := s.at[c.actor]
	r := at.request
	a := r.silent
	switch c.fate {
	case through:
		a = r.do(s.world)
		if r.name == "merge" {
			s.world.refused = a.err
		}
	case lost:
		r.do(s.world)
	case late:
		s.later = append(s.later, pending{r.name, func(w *world) { r.do(w) }})
	case crash:
		s.at[c.actor] = nil
		return
	}
	for {
		at = s.programs.after(s.roles[c.actor], at, a)
		if at.request == nil || at.request.reach == shared || at.request.reach == local && s.faultsLeft > 0 {
			break
		}
		a = at.request.do(s.world)
	}
	s.at[c.actor] = at
}

// broken is what the rules say of this moment, and of the step that led to it.
func (s *state) broken() []violation {
	found := s.world.broken
	s.world.broken = nil
	if s.quiet() {
		found = append(found, s.world.check(context.Background())...)
		found = append(found, s.world.checkRepository()...)
	}
	return found
}
