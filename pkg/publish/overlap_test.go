package publish_test

import (
	"strings"
	"testing"

	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// A fence error says what the branch holds under the step's prefix, and which way
// out keeps the step's files.
func testFenceSaysWhatIsThere(t *testing.T, on subject) {
	for name, c := range map[string]struct {
		above func(b *bench)
		says  string
	}{
		"elsewhere":               {func(b *bench) { b.by("somebody", map[string]string{"other": "2"}) }, ", or rerun prepare_stage with that workspace.ref, which keeps this step's files"},
		"under the prefix":        {func(b *bench) { b.by("somebody", map[string]string{"data/b": "2"}) }, ", or rerun prepare_stage with that workspace.ref; data/ itself changed since, and a rerun replaces that change"},
		"the same, by somebody":   {func(b *bench) { b.by("somebody", map[string]string{"data/a": "2"}) }, "; it already holds exactly these files under data/: there is nothing to publish"},
		"the same, by a workflow": {func(b *bench) { b.later("data/", map[string]string{"data/a": "2"}) }, " by workflow later: there is nothing to publish"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, on, map[string]string{"data/a": "1", "other": "1"}, lakefstest.Allow(lakefstest.RuleMetadata))
			staged := b.stage(map[string]string{"data/a": "2"})
			c.above(b)
			_, err := b.run(staged, 0, &attempt{})
			if err == nil || !strings.HasSuffix(err.Error(), c.says) || len(err.Error()) > txn.DefaultReasonLength {
				t.Errorf("%v\nwant …%s", err, c.says)
			}
		})
	}
}
