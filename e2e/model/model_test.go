package model

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"perago/pkg/lakefs/lakefstest"
)

var (
	full       = flag.Bool("full", false, "explore within the bounds of `make model`, not those of `make test`")
	replayFile = flag.String("replay", "", "a file with the one schedule to go")
	update     = flag.Bool("update", false, "write the kept schedules anew")
)

// The bounds of the two forms, and how many schedules each has to come to: a
// scenario that falls silent must not pass for one that holds.
var (
	fullBounds  = []bounds{{preemptions: 3, faults: 1}}
	shortBounds = []bounds{{preemptions: 3, faults: 0}, {preemptions: 0, faults: 1}}
)

const (
	fullExpected  = 3_000_000
	shortExpected = 90_000
)

// total is what all explorations came to.
type total struct {
	mu sync.Mutex
	// explored counts the explorations.
	explored, expected                              int
	schedules, states, published, slips, violations int
	// anomalies holds, for each rule that the soft fence was seen not to hold, the
	// shortest schedule.
	anomalies map[rule]schedule
}

var all = total{anomalies: map[rule]schedule{}}

func TestMain(m *testing.M) {
	flag.Parse()
	// What is explored lives as long as the exploration.
	debug.SetGCPercent(400)
	code := m.Run()
	if all.explored > 0 && !all.summary() {
		code = 1
	}
	os.Exit(code)
}

// summary prints what all explorations came to, and reports whether that is enough
// and sound.
func (a *total) summary() bool {
	expected := shortExpected
	if *full {
		expected = fullExpected
	}
	sound := a.violations == 0
	switch {
	case a.explored < a.expected:
		fmt.Printf("%d of %d explorations\n", a.explored, a.expected)
	case a.schedules < expected:
		fmt.Printf("fewer schedules than %d: a scenario has fallen silent, or the protocol has become shorter\n", expected)
		sound = false
	}
	if a.published == 0 {
		fmt.Println("no publication succeeded")
		sound = false
	}
	for _, b := range boundsOf() {
		fmt.Printf("within %d preemptions and %d faults\n", b.preemptions, b.faults)
	}
	fmt.Printf("in %d states an update had slipped between a passed fence and Conductor, which is not promised\n", a.slips)
	fmt.Printf("model: %d schedules, %d states, %d violations\n", a.schedules, a.states, a.violations)
	return sound
}

func boundsOf() []bounds {
	if *full {
		return fullBounds
	}
	return shortBounds
}

// anomalies are what the soft fence does not keep, and the documents say so: it
// finds a race after it has happened, and a merge of an older attempt may land
// after the publication of a newer one. Everything else it keeps.
var anomalies = []rule{lakefstest.RuleParent, lakefstest.RuleTree, lakefstest.RuleOnce, ruleNewest}

// mustFind are the anomalies that the explorer must come upon on the soft fence:
// it is known to be able to fail.
var mustFind = []rule{lakefstest.RuleParent, lakefstest.RuleTree, ruleNewest}

// TestModel goes through every scenario on both fences. On the hard one nothing
// may be broken.
func TestModel(t *testing.T) {
	on := newStand(t)
	scenarios := every(on)
	all.expected = 2 * len(scenarios)
	t.Run("scenarios", func(t *testing.T) {
		for _, s := range scenarios {
			for _, m := range []mode{hard, soft} {
				t.Run(s.name+" "+string(m), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						for _, b := range boundsOf() {
							e := explore(s.prepared(on, m, nil), b, nil)
							t.Logf("%+v: %d schedules, %d states", b, e.schedules, e.states)
							all.add(t, m, e)
						}
						all.ended()
					})
				})
			}
		}
	})
	if all.explored < all.expected {
		return // -run left some out
	}
	for _, r := range mustFind {
		switch s, found := all.anomalies[r]; {
		case !found && !t.Failed():
			t.Errorf("on the soft fence no schedule breaks %q: the explorer does not see what it is known to see", r)
		case found && *update:
			keep(t, "soft fence, "+string(r), s)
		}
	}
}

func (a *total) ended() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.explored++
}

func (a *total) add(t *testing.T, m mode, e *exploration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.schedules += e.schedules
	a.states += e.states
	a.published += e.published
	a.slips += e.slips
	for of, f := range e.found {
		if m == soft && slices.Contains(anomalies, of) {
			if before, known := a.anomalies[of]; !known || len(f.schedule.events) < len(before.events) {
				a.anomalies[of] = f.schedule
			}
			continue
		}
		a.violations++
		t.Errorf("%s", f)
	}
}

func TestReplay(t *testing.T) {
	if *replayFile == "" {
		t.Log("-replay FILE goes the one schedule in it")
		return
	}
	s, err := readSchedule(*replayFile)
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.replayed(t, newStand(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Errorf("%s", v)
	}
}

func (s schedule) replayed(t *testing.T, on *stand) (found []violation, err error) {
	var without *protection
	for i := range protections {
		if protections[i].name == s.without {
			without = &protections[i]
		}
	}
	if s.without != "" && without == nil {
		return nil, fmt.Errorf("no protection is called %q", s.without)
	}
	synctest.Test(t, func(*testing.T) { found, err = find(s.scenario).prepared(on, s.mode, without).replay(s.events) })
	return found, err
}
