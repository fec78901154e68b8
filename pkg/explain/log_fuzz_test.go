package explain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"perago/pkg/txn"
)

// FuzzLog: any history is read, commit by commit; a publication in it is one that the
// protocol takes for a publication on this branch, and each supersedes one below it.
func FuzzLog(f *testing.F) {
	settled, err := json.Marshal(txn.SettleRecord("01890a5d-ac96-774b-bcce-b302099a8057", "main", txn.CommitID(strings.Repeat("a", 64))).Metadata(""))
	if err != nil {
		f.Fatal(err)
	}
	const record = `{"perago.version":"1","perago.phase":"confirm","perago.logical_task_key":"w:train_stage:0","perago.workflow_id":"w","perago.task_id":"t","perago.retry_count":"0",
		"perago.execution_id":"01890a5d-ac96-774b-bcce-b302099a8057","perago.input_ref":"ID","perago.target_branch":"main","perago.prefix":"/","perago.staging_branch":"s","perago.staging_commit":"ID",
		"perago.staging_execution_id":"01890a5d-ac96-774b-bcce-b302099a8057","perago.source_commit":"ID","perago.expected_head":"ID","perago.supersedes":""}`
	for _, one := range []string{string(settled), record, strings.Replace(record, `"perago.supersedes":""`, `"perago.supersedes":"ID"`, 1), `{"perago.phase":"confirm","perago.version":"2"}`, `{}`} {
		f.Add(strings.ReplaceAll(one, "ID", strings.Repeat("0", 63)+"1"), `{}`, byte(2), byte(1))
		f.Add(strings.ReplaceAll(one, "ID", strings.Repeat("0", 63)+"1"), `{}`, byte(1), byte(3))
	}
	f.Fuzz(func(t *testing.T, first, second string, parents, times byte) {
		commits := make([]txn.Commit, 2+int(times)%4)
		id := func(i int) txn.CommitID { return txn.CommitID(fmt.Sprintf("%064x", i)) }
		for i := range commits {
			commits[i].ID = id(i)
			for p := range int(parents) % 3 {
				commits[i].Parents = append(commits[i].Parents, id(i+1+p))
			}
			_ = json.Unmarshal([]byte([]string{first, second}[i%2]), &commits[i].Metadata)
		}
		entries := Log("main", commits)
		if len(entries) != len(commits) {
			t.Fatalf("%d entries of %d commits", len(entries), len(commits))
		}
		for i, entry := range entries {
			_, err := txn.PublicationOn("main", commits[i])
			if entry.Commit != commits[i].ID || (entry.Kind == Foreign) != (err != nil) || entry.Kind == Foreign && entry.Why == "" {
				t.Fatalf("%+v of %+v: %v", entry, commits[i], err)
			}
			if entry.Kind == Publication && (len(commits[i].Parents) != 1 || entry.Step == "" || entry.Workflow == "") {
				t.Fatalf("%+v of %+v", entry, commits[i])
			}
			if entry.SupersededBy != "" && entry.SupersededBy >= entry.Commit {
				t.Fatalf("%s is superseded by %s, which is below it", entry.Commit, entry.SupersededBy)
			}
		}
		if _, err := json.Marshal(entries); err != nil {
			t.Fatal(err)
		}
	})
}
