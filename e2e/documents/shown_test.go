package documents

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"
)

// elision stands for what a document leaves out of an output: on a line of its
// own for any number of lines, at the end of a line for the rest of it.
const elision = "..."

// ids are what differs from run to run: workflow and task ids, commits in full
// and short, execution ids, the hashes in a branch's name, times, ports and sizes
// of time.
var ids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}` +
	`|\b[0-9a-f]{64}\b|\b[0-9a-f]{32}\b|\b[0-9a-f]{12}\b|\b[0-9a-f]{8}\b` +
	`|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z|127\.0\.0\.1:\d+`)

// renaming is which id of a document stands for which of this run. An output is
// the document's if it is the same text but for a renaming that gives each id one
// other, and no two the same.
type renaming struct{ shown, got map[string]string }

// id is the identity of what ids matches: a short commit is the full one, and one
// time or port is like another.
func id(text string) string {
	switch {
	case strings.HasPrefix(text, "127."):
		return "port"
	case strings.Contains(text, "T"):
		return "time"
	case len(text) == 64:
		return text[:12]
	}
	return text
}

// fault is the first shown line that is not in the output, in a sentence; empty
// when it is all there.
func (r *renaming) fault(shown, got string) string {
	if r.shown == nil {
		r.shown, r.got = map[string]string{}, map[string]string{}
	}
	want, have := strings.Split(strings.TrimSuffix(shown, "\n"), "\n"), strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	next := 0
	skip := false
	for _, line := range want {
		if line == elision {
			skip = true
			continue
		}
		found := false
		for !found && next < len(have) {
			found = r.line(line, have[next])
			next++
			if !found && !skip {
				return fmt.Sprintf("The document shows\n%s\nwhere the output has\n%s", line, have[next-1])
			}
		}
		if !found {
			return fmt.Sprintf("The output has no line\n%s", line)
		}
		skip = false
	}
	if !skip && next < len(have) {
		return fmt.Sprintf("The document does not show\n%s", have[next])
	}
	return ""
}

// line reports whether a line is the shown one, and remembers the ids if it is.
func (r *renaming) line(shown, got string) bool {
	shown, elided := strings.CutSuffix(shown, elision)
	wantIDs, haveIDs := ids.FindAllStringIndex(shown, -1), ids.FindAllStringIndex(got, -1)
	if len(haveIDs) < len(wantIDs) || !elided && len(haveIDs) > len(wantIDs) {
		return false
	}
	shownIDs, gotIDs := maps.Clone(r.shown), maps.Clone(r.got)
	wantAt, haveAt := 0, 0
	for i := range wantIDs {
		if shown[wantAt:wantIDs[i][0]] != got[haveAt:haveIDs[i][0]] {
			return false
		}
		wantText, haveText := shown[wantIDs[i][0]:wantIDs[i][1]], got[haveIDs[i][0]:haveIDs[i][1]]
		want, have := id(wantText), id(haveText)
		if len(wantText) != len(haveText) && want != "time" && want != "port" {
			return false
		}
		if known, ok := shownIDs[want]; ok && known != have {
			return false
		}
		if known, ok := gotIDs[have]; ok && known != want {
			return false
		}
		shownIDs[want], gotIDs[have] = have, want
		wantAt, haveAt = wantIDs[i][1], haveIDs[i][1]
	}
	rest := got[haveAt:]
	if elided && !strings.HasPrefix(rest, shown[wantAt:]) || !elided && rest != shown[wantAt:] {
		return false
	}
	r.shown, r.got = shownIDs, gotIDs
	return true
}

// renamed is an output with the ids that the document has for those it knows.
func (r *renaming) renamed(got string) string {
	full := map[string]string{}
	return ids.ReplaceAllStringFunc(got, func(text string) string {
		known, ok := r.got[id(text)]
		if !ok || known == "time" || known == "port" {
			return text
		}
		if len(text) == 64 {
			// Only the beginning of a commit is remembered.
			if full[known] == "" {
				full[known] = known + text[12:]
			}
			return full[known]
		}
		return known
	})
}

func TestShownOutputs(t *testing.T) {
	t.Parallel()
	const commit, other = "8b52576d495f12f55709fddfd77468b036c03ca32c07599f9ecfdafff9a90ffb", "d4e44474f33df9b9e48feecff726f3c10586ed4450cb541150683874407c659d"
	for _, c := range []struct {
		name, shown, got string
		same             bool
	}{
		{"the same", "a\nb\n", "a\nb\n", true},
		{"another line", "a\nb\n", "a\nc\n", false},
		{"a line more", "a\n", "a\nb\n", false},
		{"a line less", "a\nb\n", "a\n", false},
		{"other ids", commit + " on " + other, other + " on " + commit, true},
		{"one id for two", commit + " on " + other, commit + " on " + commit, false},
		{"two ids for one", commit + " on " + commit, commit + " on " + other, false},
		{"a short id of the full one", commit[:12] + "\n" + commit, other[:12] + "\n" + other, true},
		{"a short id of another", commit[:12] + "\n" + commit, other[:12] + "\n" + commit, false},
		{"a short id for a full one", commit, commit[:12], false},
		{"other times", "at 2026-05-01T10:00:00Z", "at 2027-06-02T11:22:33Z", true},
		{"lines left out", "a\n...\nd\n", "a\nb\nc\nd\n", true},
		{"no line left out", "a\n...\nd\n", "a\nd\n", true},
		{"lines left out at the end", "a\n...\n", "a\nb\n", true},
		{"not there after lines left out", "a\n...\ne\n", "a\nb\nc\nd\n", false},
		{"the rest of a line left out", "a " + commit + " ...\n", "a " + other + " b " + commit + "\n", true},
		{"another begin of a line", "b ...\n", "a b\n", false},
	} {
		fault := new(renaming).fault(c.shown, c.got)
		if (fault == "") != c.same {
			t.Errorf("%s: %q", c.name, fault)
		}
	}
}
