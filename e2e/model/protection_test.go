package model

import (
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
	{"settled judged from the target alone", withoutSettled, hard, ruleNewest, "publish zombie, sweep, a no-op at a restart"},
	{"upstream check", withoutUpstreamCheck, hard, ruleOutput, "rerun from stage"},
}

func TestProtections(t *testing.T) {
	on := newStand(t)
	for _, p := range protections {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := explore(find(p.scenario).prepared(on, p.mode == hard, p.weakness), bounds{preemptions: 3}, func(e *exploration) bool {
					_, found := e.found[p.breaks]
					return found
				})
				f, found := e.found[p.breaks]
				if !found {
					t.Errorf("without it, %d schedules and no violation of %q", e.schedules, p.breaks)
					for _, f := range e.found {
						t.Log(f)
					}
				}
				t.Logf("without it, after %d schedules:\n%s", e.schedules, f)
			})
		})
	}
}
