package txn

import (
	"crypto/rand"
	"testing"
)

func TestRemoval_NameHoldsTheWorkflow(t *testing.T) {
	t.Parallel()
	for _, workflow := range []WorkflowID{"0b4a7d26-7f6e-4a54-9d8d-0e1f2a3b4c5d", "w", "-", ".perago-gone-x"} {
		for _, decided := range []bool{false, true} {
			want := Removal{Token: rand.Text(), Workflow: workflow, Decided: decided}
			got, ok := ParseRemoval(want.Name())
			if !ok || got != want || !ReservedDirectory(want.Name()) {
				t.Errorf("%s is read as %+v, %t", want.Name(), got, ok)
			}
			if relative, err := SourceDirectory("/root", WorkflowID(want.Name()), "/root/"+want.Name()+"/task"); err == nil {
				t.Errorf("a stage takes files from %s", relative)
			}
			if relative, err := SourceDirectory("/root", workflow, "/root/"+want.Name()+"/task"); err == nil {
				t.Errorf("a stage of %s takes files from %s", workflow, relative)
			}
		}
	}
	for _, name := range []string{
		"", "w", ".perago-", ".perago-aside-", ".perago-gone-ABC-w", ".perago-aside-" + rand.Text() + "-", ".perago-aside-" + rand.Text(),
		".perago-other-" + rand.Text() + "-w", "x.perago-aside-" + rand.Text() + "-w",
	} {
		if got, ok := ParseRemoval(name); ok {
			t.Errorf("%q is read as %+v", name, got)
		}
	}
}
