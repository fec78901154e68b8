package txn

import (
	"fmt"
	"slices"
	"testing"
)

func TestFenceOf(t *testing.T) {
	t.Parallel()
	held := HookRun{Event: "pre-merge", Action: FenceAction, Hook: FenceHook, Status: "completed"}
	with := func(change func(*HookRun)) HookRun { run := held; change(&run); return run }
	for name, c := range map[string]struct {
		runs []HookRun
		want Fence
	}{
		"no run":         {nil, FenceSoft},
		"held":           {[]HookRun{held}, FenceHard},
		"among others":   {[]HookRun{with(func(r *HookRun) { r.Action = "theirs" }), held}, FenceHard},
		"another action": {[]HookRun{with(func(r *HookRun) { r.Action = "theirs" })}, FenceSoft},
		"another hook":   {[]HookRun{with(func(r *HookRun) { r.Hook = "theirs" })}, FenceSoft},
		"another event":  {[]HookRun{with(func(r *HookRun) { r.Event = "post-merge" })}, FenceSoft},
		"failed":         {[]HookRun{with(func(r *HookRun) { r.Status = "failed" })}, FenceSoft},
		"skipped":        {[]HookRun{with(func(r *HookRun) { r.Status = "skipped" })}, FenceSoft},
	} {
		if got := FenceOf(c.runs); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestFenceWitnesses(t *testing.T) {
	t.Parallel()
	on := []Commit{
		foreign("foreign", "p0"),
		confirm("elsewhere", "A", func(r *Record) { r.TargetBranch = "dev" }),
		confirm("try", "A", func(r *Record) { r.Phase = PhaseTry }),
	}
	var want []CommitID
	for i := range 10 {
		name := fmt.Sprintf("p%d", i)
		on = append(on, confirm(name, "A"))
		if i < 8 {
			want = append(want, id(name))
		}
	}
	if got := FenceWitnesses("main", on); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
