package txn

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// FuzzRecord: the metadata of a record is the record again, and what is not whole
// is no record.
func FuzzRecord(f *testing.F) {
	for _, commit := range []Commit{
		confirm("P", "A"), confirm("P", "A", func(r *Record) { r.Supersedes = id("P0") }), confirm("P", "A", func(r *Record) { r.StagingCommit, r.StagingBranch = r.InputRef, "" }),
		confirm("P", "A", func(r *Record) { r.Phase = PhaseTry }), confirm("P", "A", func(r *Record) { r.Phase = PhaseSource; r.Prefix = "" }),
	} {
		raw, err := json.Marshal(commit.Metadata)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	// One that this code has not written.
	const commit = `"0000000000000000000000000000000000000000000000000000000000000001"`
	f.Add([]byte(`{"perago.version":"1","perago.phase":"confirm","perago.logical_task_key":"w:train_stage:0","perago.workflow_id":"w","perago.task_id":"t","perago.retry_count":"7",
		"perago.execution_id":"01890a5d-ac96-774b-bcce-b302099a8057","perago.input_ref":` + commit + `,"perago.target_branch":"main","perago.prefix":"/","perago.staging_branch":"",
		"perago.staging_commit":` + commit + `,"perago.staging_execution_id":"01890a5d-ac96-774b-bcce-b302099a8058","perago.source_commit":` + commit + `,
		"perago.expected_head":` + commit + `,"perago.supersedes":""}`))
	f.Add([]byte(`{"perago.version": "2", "perago.phase": "confirm"}`))
	f.Add([]byte(`{"perago.version": "1.9", "perago.phase": "con\nfirm"}`))
	f.Add([]byte(`{"perago.version": "1", "perago.execution_id": "` + strings.Repeat("long", 2000) + `"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var metadata map[string]string
		if json.Unmarshal(raw, &metadata) != nil {
			return
		}
		record, err := ParseRecord(metadata)
		if err != nil {
			wantSentence(t, err)
			return
		}
		written := record.Metadata("http://ui/execution/1")
		if back, err := ParseRecord(written); err != nil || back != record {
			t.Fatalf("%+v comes back as %+v, %v", record, back, err)
		}
		// Without one of its keys it is none, and every key that stays says the same.
		for key, value := range record.Metadata("") {
			less := record.Metadata("")
			delete(less, key)
			if _, err := ParseRecord(less); err == nil {
				t.Fatalf("a record without %s", key)
			}
			if key != keyVersion && key != keyRetryCount && key != keyPrefix && metadata[key] != value {
				t.Fatalf("%s was %q and is %q", key, metadata[key], value)
			}
		}
		wantPrefix(t, record.Prefix)
	})
}

// FuzzDecidePublish: the decision over any history is that of the table, said here
// in another way: by what each commit was made to be.
func FuzzDecidePublish(f *testing.F) {
	f.Add([]byte{0}, byte(0), []byte(`{}`))
	f.Add([]byte{1}, byte(0), []byte(`{}`))
	f.Add([]byte{1, 4}, byte(0), []byte(`{}`))
	f.Add([]byte{2, 1}, byte(1), []byte(`{}`))
	f.Add([]byte{1, 2}, byte(0), []byte(`{}`))
	f.Add([]byte{1, 0}, byte(0), []byte(`{}`))
	f.Add([]byte{9, 3, 12}, byte(4), []byte(`{"perago.phase": "confirm"}`))
	f.Add([]byte{7, 5, 6, 8, 10, 11}, byte(8), []byte(`{"perago.version": "2"}`))
	f.Fuzz(func(t *testing.T, history []byte, flags byte, metadata []byte) {
		if len(history) > 40 {
			return
		}
		var arbitrary map[string]string
		_ = json.Unmarshal(metadata, &arbitrary)
		staged := Staged{Commit: id("S"), Execution: execution1, InputRef: testStep.InputRef}
		facts := PublishFacts{Step: testStep, Wanted: "tree-S", Head: testStep.InputRef, Reached: flags&2 == 0, FirstTry: flags&4 != 0, OtherBranches: flags&8 != 0}
		if flags&1 != 0 {
			staged.NoOp, staged.Commit = true, staged.InputRef
		}
		staged.ReadOnly = flags&16 != 0
		facts.Staged = staged

		// Oldest first: of each commit whether it is ours, and whether of this staging
		// with this tree.
		type made struct{ ours, mine bool }
		var kinds []made
		below := "A"
		for i, kind := range history {
			name := fmt.Sprintf("c%d", i)
			commit := confirm(name, below)
			one := made{ours: true, mine: true}
			switch kind % 13 {
			case 0:
				commit.MetaRange, one.mine = "tree-T", false
			case 1:
			case 2:
				commit, one.mine = confirm(name, below, otherStaging), false
			case 3:
				commit = confirm(name, below, func(r *Record) { r.ExpectedHead = id("elsewhere") })
			case 4:
				commit = foreign(name, below)
			case 5:
				delete(commit.Metadata, keySourceCommit)
			case 6:
				commit.Parents = append(commit.Parents, id("merged"))
			case 7:
				commit.Metadata[keyCherryPick] = string(id("x"))
			case 8:
				commit = confirm(name, below, func(r *Record) { r.Key = "other:step:0" })
			case 9:
				commit = confirm(name, below, func(r *Record) { r.TargetBranch = "dev" })
			case 10:
				commit = confirm(name, below, func(r *Record) { r.Phase = PhaseTry })
			case 11:
				commit.Metadata[keyVersion] = "2"
			case 12:
				commit.Metadata = arbitrary
				one.ours = testStep.Owns(commit)
				one.mine = one.ours && arbitrary[keyStagingExecution] == string(execution1)
			}
			if kind%13 >= 4 && kind%13 < 12 {
				one = made{}
			}
			kinds = append(kinds, one)
			facts.Range = slices.Insert(facts.Range, 0, commit)
			facts.Head, below = commit.ID, name
		}
		slices.Reverse(kinds)

		got, err := DecidePublish(facts)
		newest := slices.IndexFunc(kinds, func(m made) bool { return m.ours })
		clean := newest >= 0 && !slices.ContainsFunc(kinds[newest:], func(m made) bool { return !m.ours })
		var fence *PublishFenceError
		var raced *PublishRacedError
		want := func(what string, holds bool) {
			if !holds {
				t.Fatalf("want %s of %v, flags %d; got %+v, %v", what, history, flags, got, err)
			}
		}
		switch {
		case staged.ReadOnly:
			want("nothing", err == nil && got == PublishDecision{Action: PublishNothing})
		case len(kinds) == 0 && staged.NoOp && facts.FirstTry && !facts.OtherBranches:
			want("nothing", err == nil && got == PublishDecision{Action: PublishNothing})
		case len(kinds) == 0 && staged.NoOp:
			want("an empty commit", err == nil && got == PublishDecision{Action: PublishEmpty, ExpectedHead: facts.Head})
		case len(kinds) == 0:
			want("a publication", err == nil && got == PublishDecision{Action: PublishFirst, ExpectedHead: facts.Head})
		case !facts.Reached || newest < 0:
			want("the fence", errors.As(err, &fence) && fence.Head == facts.Head)
		case !clean:
			want("a race", errors.As(err, &raced) && raced.Published == facts.Range[newest].ID)
		case kinds[newest].mine:
			want("adoption", err == nil && got.Action == PublishAdopt && got.Adopt == facts.Range[newest].ID)
		case newest == 0:
			want("to supersede", err == nil && got == PublishDecision{Action: PublishSuperseding, ExpectedHead: facts.Head, Supersedes: facts.Head})
		default:
			want("the fence", errors.As(err, &fence))
		}
		if err != nil {
			wantSentence(t, err)
		}

		// The readings that look for what landed late, and for the fence's runs.
		published, late := testStep.LandedLate(execution1, facts.Range)
		if slices.Contains(late, published) || len(late) > len(facts.Range) {
			t.Fatalf("published %s, late %v", published, late)
		}
		for _, commit := range slices.Concat(late, LateLandings(testStep.Key, facts.Range)) {
			if !slices.ContainsFunc(facts.Range, func(c Commit) bool { return c.ID == commit }) {
				t.Fatalf("%s landed late and is nowhere", commit)
			}
		}
		if witnesses := FenceWitnesses(testStep.Branch, facts.Range); len(witnesses) > fenceWitnesses {
			t.Fatalf("%d witnesses", len(witnesses))
		}
		for i, commit := range facts.Range {
			if _, err := PublicationOn(testStep.Branch, commit); (err == nil) != kinds[i].ours && history[len(history)-1-i]%13 != 8 && history[len(history)-1-i]%13 != 12 {
				t.Fatalf("commit %d of %v: %v", i, history, err)
			}
		}
	})
}
