package txn

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckAdoption(t *testing.T) {
	t.Parallel()
	const (
		held       = "the head holds under the prefix what P put there, whatever is above"
		superseded = "a publication above P replaced the prefix before anything else changed it"
		parts      = "only publications above P changed it, each a part of it"
		restored   = "otherwise, and the head holds under the prefix what P's parent held"
		changed    = "otherwise"
	)
	of := func(commit, parent string, prefix Prefix, change ...func(*Record)) Commit {
		return confirm(commit, parent, append([]func(*Record){func(r *Record) { r.Key, r.Prefix = "other", prefix }}, change...)...)
	}
	picked := of("C", "P", "models/")
	picked.Metadata[keyCherryPick] = string(id("X"))
	for _, c := range []struct {
		row, name string
		held      bool
		restored  bool
		changes   []Commit // newest first
		by        string
		sentence  string
	}{
		{row: held, held: true},
		{row: held, name: "a revert was itself reverted", held: true, changes: []Commit{foreign("R2", "R1"), foreign("R1", "P")}},
		{row: superseded, name: "a later step of this workflow", changes: []Commit{of("Q", "P", "models/")}},
		{row: superseded, name: "with what was there before", restored: true, changes: []Commit{of("Q", "P", "models/")}},
		{row: superseded, name: "a larger prefix", changes: []Commit{of("Q", "P", "")}},
		{row: superseded, name: "and then somebody changed that", changes: []Commit{foreign("F", "Q"), of("Q", "P", "models/")}},
		{row: parts, changes: []Commit{of("Q", "P", "models/part/")}},
		{row: restored, restored: true, changes: []Commit{foreign("R", "P")}, by: "R", sentence: "models/ of main was published as " + string(id("P")) + " and taken back by " + string(id("R")) + "; revert " + id("R").Short() + " and retry to have it back, or start a new workflow with ref=" + string(id("H"))},
		{row: restored, name: "in two commits", restored: true, changes: []Commit{foreign("R2", "R1"), foreign("R1", "P")}, by: "R2", sentence: "taken back by"},
		{row: changed, name: "a part is gone", changes: []Commit{foreign("R", "P")}, by: "R", sentence: "and " + id("R").Short() + " changed it since; "},
		{row: changed, name: "a publication above a revert", changes: []Commit{of("Q", "R", "models/"), foreign("R", "P")}, by: "R", sentence: "changed it since"},
		{row: changed, name: "a part published above a change", changes: []Commit{of("Q", "R", "models/part/"), foreign("R", "P")}, by: "R", sentence: "changed it since"},
		{row: changed, name: "a change above a part that was published", changes: []Commit{foreign("R", "Q"), of("Q", "P", "models/part/")}, by: "R", sentence: "changed it since"},
		{row: changed, name: "a publication that raced", changes: []Commit{of("Q", "P", "models/", func(r *Record) { r.ExpectedHead = id("A") })}, by: "Q", sentence: "changed it since"},
		{row: changed, name: "a copy of a publication that was picked", changes: []Commit{picked}, by: "C", sentence: "changed it since"},
		{row: changed, name: "a publication to another branch", changes: []Commit{of("Q", "P", "models/", func(r *Record) { r.TargetBranch = "dev" })}, by: "Q", sentence: "changed it since"},
	} {
		t.Run(c.row+"/"+c.name, func(t *testing.T) {
			err := CheckAdoption(AdoptionFacts{Step: testStep, Published: confirm("P", "A"), Head: id("H"), Held: c.held, Restored: c.restored, Changes: c.changes})
			var taken *TakenBackError
			switch {
			case c.by == "" && err != nil:
				t.Errorf("%v; want it adopted", err)
			case c.by != "" && (!errors.As(err, &taken) || taken.By != id(c.by) || taken.Restored != c.restored || !strings.Contains(err.Error(), c.sentence)):
				t.Errorf("%v; want it taken back by %s, and %q", err, id(c.by), c.sentence)
			}
		})
	}
	sameRows(t, "adoption", []string{held, superseded, parts, restored, changed})
}
