package model

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"perago/pkg/conductor/conductortest"
	"perago/pkg/fence"
	"perago/pkg/txn"
)

// scenario is who acts, and on what.
type scenario struct {
	name string
	// stageRetries, publishRetries are the TaskDefs'.
	stageRetries, publishRetries int
	// cleanup says that the workflow ends with a cleanup, cancel that it has a
	// failure workflow.
	cleanup, cancel bool
	// before is what happened before: its actors run one after the other.
	before func(*cast)
	cast   func(*cast)
	// opening is how every schedule begins: each entry lets one actor go on until
	// it stands before a call. It takes a scenario into a window that no schedule
	// reaches within the bounds.
	opening []opening

	// version is in whose manner Conductor is; empty is that of 3.15.0.
	version conductortest.Version
	// mirror, when it is there, has every call too.
	mirror *mirror

	mode     mode
	without  string
	roles    []*role
	programs *automaton
	base     *world
}

// opening lets an actor go on, without a fault, until it stands before a call;
// with an empty call, until it has ended.
type opening struct{ actor, call string }

// mode is which publish fence holds.
type mode string

const (
	soft mode = "soft"
	hard mode = "hard"
)

// prepared is the scenario with its roles, and with the state that every schedule
// begins with.
func (s scenario) prepared(on *stand, m mode, without *protection) *scenario {
	s.mode = m
	weak := weakness{}
	if without != nil {
		s.without, weak = without.name, without.weakness
	}
	files := maps.Clone(inputTree)
	if m == hard {
		files[txn.FenceFile] = string(fence.File())
	}
	w := newWorld(newLake(files), &conductorModel{version: s.conductor()})
	w.conductor.start(theOne, chain(w.input, s.stageRetries, s.publishRetries, s.cleanup))
	if s.cancel {
		flow(w).failure = cancel()
	}
	if s.mirror != nil {
		w.mirror = s.mirror
		s.mirror.attach(w)
	}
	if s.before != nil {
		c := newCast(on, weakness{})
		s.before(c)
		past := &scenario{roles: c.roles, programs: &automaton{}, base: w}
		first := past.begin(bounds{})
		for choices := first.choices(); len(choices) > 0; choices = first.choices() {
			first.take(choices[0])
		}
		past.end()
		w = first.world
	}
	c := newCast(on, weak)
	s.cast(c)
	s.roles, s.programs, s.base = c.roles, &automaton{}, w
	return &s
}

// begin is the beginning of every schedule.
func (s *scenario) begin(b bounds) *state {
	w := s.base
	if w.mirror == nil {
		w = w.clone()
	}
	first := &state{
		scenario: s, world: w, at: make([]*node, len(s.roles)), done: make([]int, len(s.roles)),
		last: -1, preemptionsLeft: b.preemptions, faultsLeft: b.faults,
	}
	for i, r := range s.roles {
		if r.program == nil {
			continue
		}
		if r.first == nil {
			s.programs.start(r)
		}
		first.at[i] = r.first
	}
	for _, o := range s.opening {
		first.open(o)
	}
	// The opening is the scenario's, so it is no part of a schedule.
	first.last, first.preemptionsLeft, first.faultsLeft, first.events = -1, b.preemptions, b.faults, nil
	return first
}

func (s *state) open(o opening) {
	actor := s.find(o.actor, "")
	for {
		c := s.standing(actor)
		if c == nil && o.call == "" {
			return
		}
		if c == nil || !s.able(actor) {
			panic(fmt.Sprintf("%s never stands before %q", o.actor, o.call))
		}
		if c.name == o.call {
			return
		}
		s.take(choice{actor: actor, fate: through})
	}
}

// end lets every program go.
func (s *scenario) end() {
	for _, r := range s.roles {
		r.end()
	}
}

// conductor is the version in whose manner Conductor is.
func (s scenario) conductor() conductortest.Version { return cmp.Or(s.version, conductortest.V3_15_0) }

// onNewer ends the names of the scenarios on a newer Conductor.
const onNewer = ", newer Conductor"

// newer is the scenario on a newer Conductor.
func (s scenario) newer() scenario {
	s.name, s.version = s.name+onNewer, conductortest.Newest
	return s
}

// reruns says whether a task is rerun in it: there newer Conductors differ.
func (s scenario) reruns(on *stand) bool {
	c := newCast(on, weakness{})
	if s.before != nil {
		s.before(c)
	}
	s.cast(c)
	return slices.ContainsFunc(c.roles, func(r *role) bool {
		return slices.ContainsFunc(r.steps, func(a action) bool { return strings.HasPrefix(a.name, "rerun ") })
	})
}

// every is every scenario, where it makes a difference also on a newer Conductor.
func every(on *stand) []scenario {
	all := slices.Clone(scenarios)
	for _, s := range scenarios {
		if s.reruns(on) {
			all = append(all, s.newer())
		}
	}
	return all
}

// scenarios are all of them, on both fences.
var scenarios = []scenario{
	{name: "retry", publishRetries: 1, cleanup: true, cast: func(c *cast) {
		c.stage("stage", "first")
		c.publish("attempt")
		c.timeOut(publishRef)
		c.publish("retry")
		c.cleanup("cleanup")
	}},
	{name: "retry of the stage", stageRetries: 1, cleanup: true, cast: func(c *cast) {
		c.stage("attempt", "first")
		c.timeOut(stageRef)
		c.stage("retry", "second")
		c.publish("publish")
		c.cleanup("cleanup")
	}},
	{name: "rerun from stage", cast: func(c *cast) {
		c.stage("zombie", "first")
		c.operator(terminated(), rerun(stageRef))
		c.stage("attempt", "second")
		c.publish("publish")
	}},
	{name: "publish zombie, rerun from stage", publishRetries: 1, cast: func(c *cast) {
		c.stage("stage", "adds-p")
		c.publish("zombie")
		c.operator(terminated(), rerun(stageRef))
		c.stage("stage-again", "adds-q")
		c.publish("attempt")
		c.publish("retry")
	}},
	{name: "publish zombie of files that conflict, rerun from stage", cast: func(c *cast) {
		c.stage("stage", "first")
		c.publish("zombie")
		c.operator(terminated(), rerun(stageRef))
		c.stage("stage-again", "second")
		c.publish("attempt")
	}},
	{name: "publish zombie, rerun from publish", publishRetries: 1, cleanup: true, cast: func(c *cast) {
		c.stage("stage", "first")
		c.publish("zombie")
		c.operator(terminated(), rerun(publishRef))
		c.publish("attempt")
		c.publish("retry")
		c.cleanup("cleanup")
	}},
	{name: "publish zombie, a no-op at a rerun", cast: func(c *cast) {
		c.stage("stage", "first")
		c.publish("zombie")
		c.operator(terminated(), rerun(stageRef))
		c.stage("no-op", "same")
		c.publish("attempt")
	}},
	{name: "publish zombie, sweep, a no-op at a restart", cast: restartUnderASweep},
	// Cleanup has read the tasks before the restart, and the target after it.
	{name: "publish zombie, cleanup under way, a no-op at a restart", cancel: true, cast: func(c *cast) {
		c.stage("stage", "first")
		c.publish("zombie")
		c.timeOut(publishRef)
		c.cleanup("cleanup")
		c.operator(restarted())
		c.stage("no-op", "same")
		c.publish("attempt")
	}, opening: []opening{{"stage", ""}, {"zombie", "merge"}, {"clock", ""}, {"cleanup", "read head"}}},
	{name: "publish zombie, sweep under way, a no-op at a restart", cast: restartUnderASweep, opening: []opening{{"stage", ""}, {"zombie", "merge"}, {"operator", "restart"}, {"sweep", "read head"}}},
	{name: "zombie with an empty confirm, a no-op at a restart", stageRetries: 1, before: func(c *cast) {
		timedOutStage(c)
		c.stage("no-op", "same")
	}, cast: func(c *cast) {
		c.publish("zombie")
		c.operator(terminated(), restarted())
		c.stage("no-op-again", "same")
		c.publish("attempt")
	}},
	{name: "zombie armed on a no-op's confirm, the no-op again", stageRetries: 1, before: func(c *cast) {
		timedOutStage(c)
		c.stage("no-op", "same")
		c.publish("no-op-publish")
		c.operator(rerun(stageRef))
		c.stage("other", "first")
	}, cast: func(c *cast) {
		c.publish("zombie")
		c.operator(terminated(), rerun(stageRef))
		c.stage("no-op-again", "same")
		c.publish("attempt")
	}},
	{name: "foreign commit under the prefix", publishRetries: 1, cancel: true, cast: func(c *cast) {
		c.stage("stage", "first")
		c.publish("attempt")
		c.foreign("data/foreign")
		c.publish("retry")
		c.cleanup("cleanup")
	}},
	{name: "foreign commit of nothing", publishRetries: 1, cast: func(c *cast) {
		c.stage("stage", "first")
		c.publish("attempt")
		c.foreign("")
		c.publish("retry")
	}},
	{name: "failure workflow, an operator's retry", cancel: true, cast: func(c *cast) {
		c.stage("stage", "first")
		c.publish("attempt")
		c.timeOut(publishRef)
		c.cleanup("cleanup")
		c.operator(retried())
		c.publish("retry")
	}},
	{name: "terminated, sweep at the TTL, an operator's retry", cast: func(c *cast) {
		c.stage("stage", "first")
		c.publish("attempt")
		c.operator(terminated(), retried())
		c.sweep(ttl)
		c.publish("retry")
	}},
}

// restartUnderASweep is a zombie's merge, a sweep, and a no-op at a restart.
func restartUnderASweep(c *cast) {
	c.stage("stage", "first")
	c.publish("zombie")
	c.operator(terminated(), restarted())
	c.sweep(0)
	c.stage("no-op", "same")
	c.publish("attempt")
}

// timedOutStage is a stage that was polled and never heard of again.
func timedOutStage(c *cast) {
	c.other("dead", action{call{name: "poll"}, func(w *world) {
		_, _ = w.server.Poll(context.Background(), txn.PollRequest{Type: txn.TypeStage, Worker: "dead"})
		w.timeOut(flow(w).last(stageRef).ID)
	}})
}

// find is a scenario by its name.
func find(name string) scenario {
	plain, newer := strings.CutSuffix(name, onNewer)
	for _, s := range scenarios {
		switch {
		case s.name == plain && newer:
			return s.newer()
		case s.name == plain:
			return s
		}
	}
	panic("no scenario " + name)
}
