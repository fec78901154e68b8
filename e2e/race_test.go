package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"perago/pkg/fault"
	"perago/pkg/fence"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// racers is how many publisher processes race for one head.
const racers = 16

// raceRounds is how often: a few times in the suite, as often as
// PERAGO_TEST_RACE_ROUNDS says by hand (make race).
func raceRounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("PERAGO_TEST_RACE_ROUNDS")
	if text == "" {
		return 2
	}
	rounds, err := strconv.Atoi(text)
	if err != nil || rounds < 1 {
		t.Fatalf("PERAGO_TEST_RACE_ROUNDS is %q; it must be a number of rounds", text)
	}
	return rounds
}

// Sixteen publishers decide on one head, and their merges arrive together. Under
// the hard fence one lands, and the others end as the decision table says.
// Without it lakeFS lets all of them land, one on top of the other, and each that
// did not land on its expected head is reported as raced, or as in doubt where it
// landed after its attempt had ended; none is silent.
func TestSixteenPublishersRaceForOneHead(t *testing.T) {
	for name, hard := range map[string]bool{"hard fence": true, "soft fence": false} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"README": "1"}
			var expect []lakefstest.Expectation
			// raced is every commit that landed but the first one, which alone stands on
			// its expected head.
			var raced []txn.CommitID
			if hard {
				files[txn.FenceFile] = string(fence.File())
			} else {
				expect = append(expect, lakefstest.Raced(func() []txn.CommitID { return raced }))
			}
			f := newFleetOf(t, setup{files: files, without: "publish-worker", expect: expect})
			f.user("prepare", func(task txn.Task) map[string]string { return map[string]string{"of": string(task.Workflow)} })
			publishers := make([]*fronted, racers)
			for i := range publishers {
				publishers[i] = f.behind("publish-worker", "PERAGO_TASK_TYPES=perago_publish_patient")
			}
			names := make([]string, racers)
			for i := range names {
				names[i] = f.register(fmt.Sprintf("racer_%02d", i), publishedBy("perago_publish_patient", step("prepare", fmt.Sprintf("p%02d/", i), "${workflow.input.workspace}", nil))...)
			}
			rounds := raceRounds(t)
			if !hard {
				rounds = 1
			}
			for round := range rounds {
				f.race(publishers, names, round, hard)
			}
			if !hard {
				raced = f.above(f.first)
				raced = raced[:len(raced)-1]
			}
			for _, p := range publishers {
				f.stop(p.process)
			}
		})
	}
}

func (f *fleet) race(publishers []*fronted, names []string, round int, hard bool) {
	f.t.Helper()
	head, above := f.head(), f.history()
	holds := make([]*fault.Hold, len(publishers))
	for i, p := range publishers {
		holds[i] = p.lake.Hold(merge)
	}
	ids := make([]txn.WorkflowID, len(names))
	for i, name := range names {
		ids[i] = f.start(name, map[string]any{"workspace": f.workspace(head)})
	}
	held := 0
	for _, hold := range holds {
		hold.Wait(f.t, waitTime)
		held++
	}
	if f.head() != head {
		f.t.Fatalf("round %d: the branch moved while the merges were held", round)
	}
	for _, hold := range holds {
		hold.Pass()
	}

	outcomes := map[txn.Outcome]int{}
	for _, id := range ids {
		workflow := f.end(id)
		publish := last(f.t, workflow, "prepare_publish")
		o := outputOf(f.t, publish)
		outcomes[o.Publication.Outcome]++
		switch o.Publication.Outcome {
		case txn.OutcomePublished:
			if workflow.Status != txn.WorkflowCompleted || o.Publication.ExpectedHead != head || (o.Publication.Fence == txn.FenceHard) != hard {
				f.t.Errorf("round %d: %s\nput out %s", round, describe(workflow), publish.Output)
			}
		case txn.OutcomeRefused:
			if publish.Status != txn.TaskFailed || !strings.Contains(publish.Reason, "main advanced from "+string(head)) {
				f.t.Errorf("round %d: refused with %s", round, publish.Reason)
			}
		case txn.OutcomeInDoubt:
			if publish.Status != txn.TaskFailed || o.Workspace != nil || !strings.Contains(publish.Reason, "without the hard fence it may still land") {
				f.t.Errorf("round %d: in doubt, and put out %s", round, publish.Output)
			}
		case txn.OutcomeRaced:
			if publish.Status != txn.TaskFailed || o.Workspace != nil || o.Publication.Commit == "" {
				f.t.Errorf("round %d: raced, and put out %s", round, publish.Output)
			}
		}
	}
	f.t.Logf("round %d: %d merges were held and released together; outcomes %v", round, held, outcomes)
	landed := f.history() - above
	switch {
	case held != racers:
		f.t.Errorf("round %d: %d merges were held, want %d", round, held, racers)
	case hard && (landed != 1 || outcomes[txn.OutcomePublished] != 1 || outcomes[txn.OutcomeRefused] != racers-1):
		f.t.Errorf("round %d: %d commits landed, outcomes %v; want one published and %d refused", round, landed, outcomes, racers-1)
	case !hard && (landed != racers || outcomes[txn.OutcomePublished] != 1 || outcomes[txn.OutcomeRaced] == 0 || outcomes[txn.OutcomeRaced]+outcomes[txn.OutcomeInDoubt] != racers-1):
		f.t.Errorf("round %d: %d commits landed, outcomes %v; want all to land, one published and %d raced or in doubt", round, landed, outcomes, racers-1)
	}
}

// above is the commits of main above one, newest first.
func (f *fleet) above(commit txn.CommitID) []txn.CommitID {
	f.t.Helper()
	commits, reached, err := f.lake.History(f.t.Context(), f.repo, f.head(), commit, txn.HistoryLimit)
	if err != nil || !reached {
		f.t.Fatalf("history: reached %v, %v", reached, err)
	}
	var ids []txn.CommitID
	for _, one := range commits {
		ids = append(ids, one.ID)
	}
	return ids
}
