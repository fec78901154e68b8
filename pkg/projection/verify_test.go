package projection

import (
	"errors"
	"strings"
	"testing"

	"perago/pkg/txn"
)

func TestVerify(t *testing.T) {
	t.Parallel()
	local := []Entry{{Path: "a", Size: 1}, {Path: "b.c", Size: 0}, {Path: "b/c", Size: 2}}
	listing := func(paths ...string) []txn.Object {
		var all []txn.Object
		for _, path := range paths {
			all = append(all, txn.Object{Path: path, Size: map[string]int64{"d/a": 1, "d/b/c": 2}[path]})
		}
		return all
	}
	for _, c := range []struct {
		local  []Entry
		remote []txn.Object
		want   string
	}{
		{local, listing("d/a", "d/b.c", "d/b/c"), ""},
		{nil, nil, ""},
		{nil, listing("d/a"), `"d/a" is there and should not be`},
		{local, listing("d/a", "d/b.c", "d/b/c", "d/left"), `"d/left" is there and should not be`},
		{local, listing("d/!", "d/a", "d/b.c", "d/b/c"), `"d/!" is there and should not be`},
		{local, listing("d/a", "d/b", "d/b.c", "d/b/c"), `"d/b" is there and should not be`},
		{local, listing("d/b.c", "d/b/c"), `"d/a" is not there`},
		{local, listing("d/a", "d/b/c"), `"d/b.c" is not there`},
		{local, listing("d/a", "d/b.c"), `"d/b/c" is not there`},
		{local, nil, `"d/a" is not there`},
		{local, []txn.Object{{Path: "d/a", Size: 3}}, `"d/a" has 3 bytes of 1`},
	} {
		err := Verify("d/", treeOf(c.local...), Objects(c.remote))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.remote, err, c.want)
		}
	}
	if err := Verify("", treeOf(Entry{Path: "a"}), Objects(listing("_lakefs_actions/x.yaml", "a"))); err != nil {
		t.Errorf("hooks beside a root prefix: %v", err)
	}
	broken := errors.New("broken")
	if err := Verify("d/", treeOf(local...), func(yield func(txn.Object, error) bool) { yield(txn.Object{}, broken) }); !errors.Is(err, broken) {
		t.Errorf("a broken listing: %v", err)
	}
}
