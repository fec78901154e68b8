package model

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// event is one step of a schedule.
type event struct {
	actor, call string
	fate        fate
}

func (e event) String() string { return fmt.Sprintf("%s %s %s", e.actor, e.call, e.fate) }

// schedule is a way through a scenario, and the rule that it breaks.
type schedule struct {
	scenario string
	mode     mode
	// without is the protection that was removed; empty when none was.
	without string
	breaks  rule
	events  []event
}

func (s *state) schedule(breaks rule) schedule {
	return schedule{s.name, s.mode, s.without, breaks, s.events.list()}
}

// The heads of a schedule's text form, before its lines `actor call fate`.
const (
	headScenario = "scenario: "
	headMode     = "mode: "
	headWithout  = "without: "
	headBreaks   = "breaks: "
)

func (s schedule) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s%s\n%s%s\n", headScenario, s.scenario, headMode, s.mode)
	if s.without != "" {
		fmt.Fprintf(&text, "%s%s\n", headWithout, s.without)
	}
	fmt.Fprintf(&text, "%s%s\n", headBreaks, s.breaks)
	for _, e := range s.events {
		fmt.Fprintf(&text, "%s\n", e)
	}
	return text.String()
}

// parseSchedule reads the text form. Lines that begin with # are for people.
func parseSchedule(text string) (schedule, error) {
	var s schedule
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, headScenario):
			s.scenario = strings.TrimPrefix(line, headScenario)
		case strings.HasPrefix(line, headMode):
			s.mode = mode(strings.TrimPrefix(line, headMode))
		case strings.HasPrefix(line, headWithout):
			s.without = strings.TrimPrefix(line, headWithout)
		case strings.HasPrefix(line, headBreaks):
			s.breaks = rule(strings.TrimPrefix(line, headBreaks))
		case len(words) < 3:
			return schedule{}, fmt.Errorf("%q is not `actor call fate`", line)
		default:
			last := len(words) - 1
			s.events = append(s.events, event{words[0], strings.Join(words[1:last], " "), fate(words[last])})
		}
	}
	return s, nil
}

func readSchedule(file string) (schedule, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return schedule{}, err
	}
	return parseSchedule(string(text))
}

// replay goes the way of a schedule and returns what it breaks. Calls that the
// product has got since, and that the schedule does not name, go through.
func (s *scenario) replay(events []event) ([]violation, error) {
	defer s.end()
	at := s.begin(bounds{preemptions: len(events), faults: len(events)})
	found := at.broken()
	for i, e := range events {
		for {
			actor := at.find(e.actor, e.call)
			if actor < 0 {
				return found, fmt.Errorf("step %d, %q: no such actor is there", i+1, e)
			}
			c := at.standing(actor)
			if c == nil || !at.able(actor) {
				return found, fmt.Errorf("step %d, %q: the actor has nothing to do", i+1, e)
			}
			if c.name == e.call {
				if e.fate != through && !slices.Contains(c.faults, e.fate) {
					return found, fmt.Errorf("step %d, %q: no such fate", i+1, e)
				}
				at.take(choice{actor: actor, fate: e.fate})
				found = append(found, at.broken()...)
				break
			}
			at.take(choice{actor: actor, fate: through})
			found = append(found, at.broken()...)
		}
	}
	return found, nil
}

// find is the actor of a name; of what is under way, the one of that call.
func (s *state) find(name, call string) int {
	for actor, r := range s.roles {
		if r.name == name {
			return actor
		}
	}
	for i, p := range s.later {
		if name == "late" && p.name == call {
			return len(s.roles) + i
		}
	}
	return -1
}
