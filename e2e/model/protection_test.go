package model

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// protection is something that the protocol does, and what goes wrong without it.
type protection struct {
	name     string
	weakness weakness
	mode     mode
	// breaks is the rule that does not hold without it.
	breaks rule
	// scenario is the name of the one that shows it.
	scenario string
}

var protections = []protection{
	{"parent check", withoutParentCheck, soft, ruleSilent, "foreign commit of nothing"},
	{"clean range", withoutCleanRange, soft, ruleSilent, "foreign commit of nothing"},
	{"tree comparison", withoutTreeComparison, soft, ruleOutput, "publish zombie, rerun from stage"},
	{"staging identity in adoption", withoutStagingIdentity, hard, ruleNewest, "zombie armed on a no-op's confirm, the no-op again"},
	{"poll identity", withoutPollIdentity, hard, ruleLive, "rerun from stage"},
	{"silence when stale", withoutSilence, hard, ruleLive, "rerun from stage"},
	{"empty confirm after a no-op", withoutEmptyConfirm, hard, ruleNewest, "publish zombie, a no-op at a rerun"},
	{"mark branch of an empty confirm", withoutMark, hard, ruleNewest, "zombie with an empty confirm, a no-op at a restart"},
	{"branches listed before the head is read", withoutListFirst, hard, ruleNewest, "publish zombie, cleanup under way, a no-op at a restart"},
	{"settled judged from the target alone", withoutSettled, hard, ruleNewest, "publish zombie, sweep, a no-op at a restart"},
	{"upstream check", withoutUpstreamCheck, hard, ruleOutput, "rerun from stage"},
	// Where a rerun counts polls from zero again, nothing else tells the two apart.
	{"start time in the upstream check", withoutStartTime, hard, ruleOutput, "rerun from stage" + onNewer},
}

// TestProtections removes each protection in turn: what it is for must go wrong.
// With it nothing does, says TestModel of the same scenarios.
func TestProtections(t *testing.T) {
	on := newStand(t)
	for _, p := range protections {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := explore(find(p.scenario).prepared(on, p.mode, &p), bounds{preemptions: 3}, func(e *exploration) bool {
					_, found := e.found[p.breaks]
					return found
				})
				f, found := e.found[p.breaks]
				if !found {
					t.Fatalf("without it, %d schedules break %d rules, and not %q", e.schedules, len(e.found), p.breaks)
				}
				t.Logf("without it, after %d schedules: %s", e.schedules, f)
				if *update {
					keep(t, "without "+p.name, f.schedule)
				}
			})
		})
	}
}

const keptSchedules = "testdata/schedules"

func keep(t *testing.T, name string, s schedule) {
	t.Helper()
	file := filepath.Join(keptSchedules, strings.NewReplacer("'", "", ",", "", " ", "-").Replace(name)+".txt")
	if err := os.WriteFile(file, []byte(s.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestKeptSchedules goes every schedule that was found to break a rule: it still
// does where a protection is removed, or where the soft fence is known not to hold
// it, and no longer does otherwise.
func TestKeptSchedules(t *testing.T) {
	on := newStand(t)
	files, err := filepath.Glob(filepath.Join(keptSchedules, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no schedules: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			s, err := readSchedule(file)
			if err != nil {
				t.Fatal(err)
			}
			found, err := s.replayed(t, on)
			if err != nil {
				t.Fatalf("%v; where the product asks the servers in another order now, write the schedules anew with -update", err)
			}
			known := s.without != "" || s.mode == soft && slices.Contains(anomalies, s.breaks)
			if breaks := slices.ContainsFunc(found, func(v violation) bool { return v.Rule == s.breaks }); breaks != known {
				t.Errorf("it breaks %v; of %q that is to be %t", found, s.breaks, known)
			}
		})
	}
}
