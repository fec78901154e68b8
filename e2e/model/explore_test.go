package model

import "slices"

// bounds are what the explorer stays within.
type bounds struct {
	// preemptions is how often a schedule may leave an actor that could go on.
	preemptions int
	// faults is how many calls may have another fate than through.
	faults int
}

// exploration is what came of exploring one scenario.
type exploration struct {
	// schedules counts the ways from the beginning to an end, or to a state that
	// had been come to before.
	schedules, states int
	// published and slips count the states in which a publication has succeeded,
	// and in which a task update has slipped between a passed fence and Conductor:
	// that is not promised, and is no violation.
	published, slips int
	// found holds, for each rule, the shortest schedule that broke it.
	found map[rule]failure

	// refused is how the latest merge was refused, refusedBy the schedule that came
	// to that.
	refused   error
	refusedBy []event

	visited map[uint64][]visit
	// enough ends the exploration early; nil never does.
	enough func(*exploration) bool
	over   bool
}

// failure is a schedule that broke a rule.
type failure struct {
	violation violation
	schedule  schedule
}

func (f failure) String() string { return f.violation.Text + "\n" + f.schedule.String() }

// visit is with what left of the bounds a state was come to, and by whose step;
// nobody's when that one cannot go on.
type visit struct{ preemptions, faults, last int8 }

// covers reports whether all that can come after other can come after v, too:
// with as much left, or with one preemption more to leave another actor for it.
func (v visit) covers(other visit) bool {
	need := other.preemptions
	if v.last != other.last {
		need++
	}
	return v.preemptions >= need && v.faults >= other.faults
}

// explore goes every way of a scenario within the bounds, depth first. From a
// state that was come to before, with as much left of the bounds, it does not go
// on.
func explore(s *scenario, b bounds, enough func(*exploration) bool) *exploration {
	e := &exploration{found: map[rule]failure{}, visited: map[uint64][]visit{}, enough: enough}
	e.from(s.begin(b))
	s.end()
	e.states = len(e.visited)
	e.visited = nil
	return e
}

func (e *exploration) from(s *state) {
	for _, v := range s.broken() {
		if before, known := e.found[v.Rule]; !known || s.events.length() < len(before.schedule.events) {
			e.found[v.Rule] = failure{v, s.schedule(v.Rule)}
		}
	}
	if s.world.refused != nil && e.enough != nil {
		e.refused, e.refusedBy = s.world.refused, s.events.list()
	}
	if e.over = e.over || e.enough != nil && e.enough(e); e.over {
		return
	}
	if e.seen(s) {
		e.schedules++
		return
	}
	if s.world.published {
		e.published++
	}
	if s.world.slipped {
		e.slips++
	}
	choices := s.choices()
	if len(choices) == 0 {
		e.schedules++
	}
	for i, c := range choices {
		next := s
		if i < len(choices)-1 {
			next = s.fork()
		}
		next.take(c)
		e.from(next)
		if e.over {
			return
		}
	}
}

func (e *exploration) seen(s *state) bool {
	key, now := s.digest(), visit{int8(s.preemptionsLeft), int8(s.faultsLeft), int8(s.last)}
	visits := e.visited[key]
	if slices.ContainsFunc(visits, func(before visit) bool { return before.covers(now) }) {
		return true
	}
	kept := slices.DeleteFunc(visits, now.covers)
	e.visited[key] = append(kept, now)
	return false
}

func (h *history) length() int {
	length := 0
	for ; h != nil; h = h.before {
		length++
	}
	return length
}
