package cleanup_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"perago/pkg/cleanup"
	"perago/pkg/txn"
)

const unknownTTL = 8 * 24 * time.Hour

// A Conductor that archives workflows knows none of those that left something.
func TestUnknown_GoesAfterAnAgeOfItsOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ttl, age     time.Duration
		another      bool
		goes, counts bool
	}{
		"off":                              {age: 100 * unknownTTL, counts: true},
		"off, another workflow is known":   {age: 100 * unknownTTL, another: true, counts: true},
		"young":                            {ttl: unknownTTL, age: unknownTTL - time.Hour, counts: true},
		"young, another workflow is known": {ttl: unknownTTL, age: unknownTTL - time.Hour, another: true},
		"old":                              {ttl: unknownTTL, age: unknownTTL + time.Hour, goes: true},
	} {
		t.Run("directory, "+name, func(t *testing.T) {
			t.Parallel()
			workflows := ends{}
			if c.another {
				workflows["another"] = txn.Workflow{Status: txn.WorkflowRunning}
			}
			path := t.TempDir()
			for _, one := range []string{string(workflow), "another", "lost+found"} {
				touch(t, filepath.Join(path, one, "task", "file"))
				then := time.Now().Add(-c.age)
				for _, at := range []string{filepath.Join(path, one, "task"), filepath.Join(path, one)} {
					if err := os.Chtimes(at, then, then); err != nil {
						t.Fatal(err)
					}
				}
			}
			root, err := os.OpenRoot(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = root.Close() })
			swept, err := (&cleanup.Directories{Root: root, Workflows: workflows, TTL: ttl, UnknownTTL: c.ttl, Now: time.Now}).Sweep(t.Context())
			if gone := !exists(t, filepath.Join(path, string(workflow))); err != nil || gone != c.goes || swept.Unknown != count(c.counts) {
				t.Errorf("%+v, %v; gone: %t", swept, err, gone)
			}
			if !exists(t, filepath.Join(path, "lost+found", "task", "file")) || !exists(t, filepath.Join(path, "another", "task", "file")) {
				t.Error("what is no workflow's is gone, or what is of one that runs")
			}
		})
		if c.another {
			continue // then PERAGO_SWEEP_TTL decides
		}
		t.Run("branch, "+name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			staged := b.stage(c.age, "2")
			delete(b.workflows, workflow)
			b.cleaner.UnknownTTL = c.ttl
			swept, err := b.cleaner.Sweep(t.Context(), cleanup.Sweep{Repository: b.repo})
			if gone := len(b.left()) == 0; err != nil || gone != c.goes || swept.Unknown != count(c.counts) {
				t.Errorf("%s: %+v, %v; gone: %t", staged.StagingBranch, swept, err, gone)
			}
		})
	}
}

func count(counts bool) int {
	if counts {
		return 1
	}
	return 0
}

func TestUnknown_TTLHasALeastValue(t *testing.T) {
	t.Parallel()
	for unknown, valid := range map[time.Duration]bool{0: true, 168 * time.Hour: true, time.Hour: false, -time.Hour: false} {
		if faults := (cleanup.Config{TTL: ttl, UnknownTTL: unknown}).Validate(); (len(faults) == 0) != valid {
			t.Errorf("%s: %v", unknown, errors.Join(faults...))
		}
	}
}
