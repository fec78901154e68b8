package checkout

import (
	"reflect"
	"testing"

	"perago/pkg/txn"
)

// A listing gives back the whole object. A new field of an object has to be written to
// the list as well.
func TestListing_KeepsTheWholeObject(t *testing.T) {
	t.Parallel()
	whole := txn.Object{Path: "data/a/b", Size: 1 << 40, Checksum: "c4ca4238a0b923820dcc509a6f75849b-7"}
	if fields := reflect.ValueOf(whole); fields.NumField() != 3 {
		t.Errorf("an object has %d fields, and the list knows of 3", fields.NumField())
	}
	list := listing{prefix: "data/"}
	for _, one := range []txn.Object{{Path: "data/a"}, whole} {
		if err := list.add(object{Object: one, local: one.Path[len("data/"):]}); err != nil {
			t.Fatal(err)
		}
	}
	var last object
	for one, err := range list.all() {
		if err != nil {
			t.Fatal(err)
		}
		last = one
	}
	if last != (object{Object: whole, local: "a/b"}) || list.bytes != whole.Size || list.objects.Len() != 2 {
		t.Errorf("got %+v of %d", last, list.bytes)
	}
}
