package model

import (
	"os"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// mode is which publish fence holds.
type mode string

const (
	soft mode = "soft"
	hard mode = "hard"
)

func TestCounts(t *testing.T) {
	on := newStand(t)
	for _, s := range scenarios {
		for _, m := range []mode{hard, soft} {
			t.Run(s.name+" "+string(m), func(t *testing.T) {
				t.Parallel()
				start := time.Now()
				synctest.Test(t, func(t *testing.T) {
					for _, b := range []bounds{{2, 0}, {3, 0}, {1, 1}, {2, 1}, {3, 1}} {
						s := s.prepared(on, m == hard, weakness{})
						e := explore(s, b, nil)
						t.Logf("%+v: %d schedules, %d states, %d published, %d slips; %d nodes, %d runs", b, e.schedules, e.states, e.published, e.slips, s.programs.nodes, s.programs.runs)
						if m == hard || b.faults == 1 && b.preemptions == 1 {
							for _, f := range e.found {
								t.Log(f)
							}
						}
					}
				})
				t.Log(time.Since(start))
			})
		}
	}
}
