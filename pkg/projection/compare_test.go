package projection

import (
	"errors"
	"iter"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/txn"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	object := func(path, checksum string) txn.Object {
		return txn.Object{Path: "d/" + path, Size: 1, Checksum: checksum}
	}
	for _, c := range []struct {
		before, after []txn.Object
		want          Changes
		paths         []string
	}{
		{nil, nil, Changes{}, nil},
		{[]txn.Object{object("a", "1"), object("b", "1")}, nil, Changes{Removed: 2}, nil},
		{nil, []txn.Object{object("a", "1"), object("b", "1")}, Changes{Added: 2}, []string{"a", "b"}},
		{[]txn.Object{object("a", "1"), object("b", "1"), object("c", "1"), object("e", "1"), object("f", "1")},
			[]txn.Object{object("b", "1"), object("c", "2"), object("d", "1"), object("f", "1"), object("g", "1")},
			Changes{Added: 2, Changed: 1, Removed: 2, Unchanged: 2}, []string{"b", "c", "d", "f", "g"}},
		{[]txn.Object{{Path: "d/a", Size: 1, Checksum: "x"}}, []txn.Object{{Path: "d/a", Size: 2, Checksum: "x"}}, Changes{Changed: 1}, []string{"a"}},
	} {
		var paths []string
		got, err := Compare("d/", Objects(c.before), Objects(c.after), func(path string) bool { paths = append(paths, path); return true })
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%v to %v: %v (-want +got):\n%s", c.before, c.after, err, diff)
		}
		if diff := cmp.Diff(c.paths, paths); diff != "" {
			t.Errorf("paths (-want +got):\n%s", diff)
		}
	}
}

// A listing that fails, wherever it does, is no comparison.
func TestCompareOfAListingThatFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	all := []txn.Object{{Path: "d/a"}, {Path: "d/c"}, {Path: "d/e"}}
	failing := func(n int) iter.Seq2[txn.Object, error] {
		return func(yield func(txn.Object, error) bool) {
			for _, object := range all[:n] {
				if !yield(object, nil) {
					return
				}
			}
			yield(txn.Object{}, broken)
		}
	}
	for n := range len(all) + 1 {
		for name, pair := range map[string][2]iter.Seq2[txn.Object, error]{
			"before": {failing(n), Objects(all)}, "after": {Objects(all), failing(n)}, "before, nothing after": {failing(n), Objects(nil)},
		} {
			changes, err := Compare("d/", pair[0], pair[1], func(string) bool { return true })
			if !errors.Is(err, broken) || changes != (Changes{}) && name == "after" {
				t.Errorf("%s after %d: %+v, %v", name, n, changes, err)
			}
		}
	}
	if _, err := Compare("d/", Objects(nil), Objects(all), func(string) bool { return false }); err == nil {
		t.Error("a comparison that was left has no error")
	}
}
