package fence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"perago/e2e/stack"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// A lakeFS that was told to run no actions: the file is there and nothing asks
// it. The real one is a server of this test's own.
func TestActionsSwitchedOff(t *testing.T) {
	t.Parallel()
	off := func(s *suite) {
		repo, _ := lakefstest.NewRepository(s, s.client, map[string]string{"a": "1"})
		change, err := s.target(repo).Install(s.Context(), Options{})
		s.no(err)
		_, err = s.target(repo).Verify(s.Context())
		s.fault(err, "lakeFS ran no hook for a merge that the fence must refuse: its actions are switched off (LAKEFS_ACTIONS_ENABLED, or actions.enabled in its configuration); "+
			"switch them on, restart lakeFS and run `perago fence verify lakefs://"+string(repo)+"/main`")
		s.noProbe(repo)
		s.equal(s.head(repo), change.Head)
	}
	t.Run("memory", func(t *testing.T) {
		server := lakefstest.NewServer()
		server.ActionsOff = true
		off(&suite{T: t, client: server.Client(t)})
	})
	if stack.Short(t) {
		return
	}
	t.Run("real", func(t *testing.T) {
		off(&suite{T: t, client: realClient(t, stack.StartLakeFS(t, "LAKEFS_ACTIONS_ENABLED=false"))})
	})
}

// What a lakeFS could do that would make the fence worth nothing.
func TestVerifyIsNotFooled(t *testing.T) {
	t.Parallel()
	s := &suite{T: t, client: lakefstest.NewServer().Client(t)}
	repo, _ := lakefstest.NewRepository(t, s.client, map[string]string{"a": "1"})
	change, err := s.target(repo).Install(t.Context(), Options{})
	s.no(err)
	refuse := func(words string) error {
		return fmt.Errorf("412: %s: %w", words, txn.ErrHookRefused)
	}
	fenceRefuses := fmt.Errorf("412: %s no: %w", txn.FenceRefusal, txn.ErrFenceRefused)
	isRefused := func(m txn.Merge) bool { return m.Metadata["perago.expected_head"] == string(nowhere) }
	ran := func(status string) func(context.Context, txn.Repository, txn.CommitID) ([]txn.HookRun, error) {
		return func(context.Context, txn.Repository, txn.CommitID) ([]txn.HookRun, error) {
			if status == "" {
				return nil, nil
			}
			return []txn.HookRun{{Event: "pre-merge", Action: txn.FenceAction, Hook: txn.FenceHook, Status: status}}, nil
		}
	}
	pass := func(ctx context.Context, m txn.Merge) (txn.CommitID, error) {
		m.Metadata = nil
		return s.client.Merge(ctx, m)
	}
	unreadable := func(context.Context, txn.Repository, txn.CommitID) ([]txn.HookRun, error) {
		return nil, txn.ErrForbidden
	}
	for name, c := range map[string]struct {
		lake  lake
		fault bool
		said  string
	}{
		"it runs the hook and lands all the same": {lake{merge: pass, hookRuns: ran("failed")}, true,
			"though it ran hooks for it (perago-publish-fence/perago_publish_fence failed); the hard fence does not work on this lakeFS"},
		"it passes, and the runs cannot be read": {lake{merge: pass, hookRuns: unreadable}, false, "which hooks ran for it cannot be read: not permitted"},
		"it refuses everything": {lake{merge: func(context.Context, txn.Merge) (txn.CommitID, error) {
			return "", fenceRefuses
		}}, false, "probe the fence with a merge that it must accept: 412: perago publish fence: no"},
		"another hook refuses everything": {lake{merge: func(context.Context, txn.Merge) (txn.CommitID, error) {
			return "", refuse("not on my watch")
		}}, false, "a hook of another action in _lakefs_actions/ refused the probe merge"},
		"another hook refuses in its place": {lake{merge: func(ctx context.Context, m txn.Merge) (txn.CommitID, error) {
			if isRefused(m) {
				return "", refuse("not on my watch")
			}
			return s.client.Merge(ctx, m)
		}}, false, "a hook of another action in _lakefs_actions/ refused the probe merge"},
		"it conflicts": {lake{merge: func(context.Context, txn.Merge) (txn.CommitID, error) { return "", txn.ErrConflict }}, false,
			"probe the fence with a merge that it must refuse: conflict"},
		"no run for what it accepts": {lake{hookRuns: ran("")}, true, "lakeFS has no completed run of the hook perago_publish_fence for the probe merge that it accepted (runs: none)"},
		"a skipped run":              {lake{hookRuns: ran("skipped")}, true, "(runs: perago-publish-fence/perago_publish_fence skipped)"},
		"no runs to read":            {lake{hookRuns: unreadable}, false, "read which hooks ran for the probe merge: not permitted"},
		"it lands elsewhere": {lake{merge: func(ctx context.Context, m txn.Merge) (txn.CommitID, error) {
			if !isRefused(m) {
				if _, err := pass(ctx, m); err != nil {
					return "", err
				}
				// As if it had not asked the fence again for the head that moved.
				return pass(ctx, m)
			}
			return s.client.Merge(ctx, m)
		}}, false, "the probe merge landed as"},
		"no answer": {lake{merge: func(context.Context, txn.Merge) (txn.CommitID, error) { return "", txn.ErrUnknownOutcome }}, false, "outcome unknown"},
	} {
		verified, err := s.with(repo, &c.lake).Verify(t.Context())
		var fault *FaultError
		if err == nil || errors.As(err, &fault) != c.fault || !strings.Contains(err.Error(), c.said) || verified != (Verified{}) {
			t.Errorf("%s: %+v, %v", name, verified, err)
		}
		s.noProbe(repo)
		s.equal(s.head(repo), change.Head)
	}
}
