package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/survey"
	"perago/pkg/txn"
)

var (
	main    = Address{"lake", "main"}
	started = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	down    = &txn.ServerError{Server: "lakeFS", Method: "GET", Path: "/x", Class: txn.ErrRetryable, Message: "connection refused"}
)

const commit = txn.CommitID("5f0cd4ab7b1c2d4e8f9a0b1c2d3e4f5061728394a5b6c7d8e9f0a1b2c3d4e5f6")

// own and foreign are staging branches, of this Conductor and of another one.
var (
	own     = txn.NewStagingName("here", "0c1b3c6e-7f1e-4d0e-9a53-2f5d8f0a8c11", "k", 0, "0195a8f0-0000-7000-8000-000000000001").Branch()
	foreign = txn.NewStagingName("elsewhere", "0c1b3c6e-7f1e-4d0e-9a53-2f5d8f0a8c11", "k", 0, "0195a8f0-0000-7000-8000-000000000001").Branch()
)

// healthy are the facts of an installation with which all is well.
func healthy() Facts {
	clock := Clock{Seen: true, Ahead: 400 * time.Millisecond, Within: time.Second}
	return Facts{
		Settings:  Settings{ConductorID: "here", Identity: "here", TTL: 24 * time.Hour, RequireHardFence: true},
		Conductor: Server{Address: "http://conductor:8080", Clock: clock}, LakeFS: Server{Address: "http://lakefs:8000", Clock: clock},
		Permissions: []Asked{
			{Worker: StageWorker, Permission: txn.Permission{Action: "fs:ReadCommit", Repository: "lake"}},
			{Worker: PublishWorker, Permission: txn.Permission{Action: "fs:CreateCommit", Repository: "lake", Branch: "main"}},
			{Worker: CleanupWorker, Permission: txn.Permission{Action: "fs:DeleteBranch", Repository: "lake", Branch: "perago-staging-"}},
		},
		Definitions:    Read[[]Definition]{Value: []Definition{{Name: "perago_stage"}, {Name: "perago_checkout", Optional: true}, {Name: "perago_cancel"}}},
		LongestPublish: Read[time.Duration]{Value: 4 * time.Minute},
		Queues: Read[[]Queue]{Value: []Queue{{
			Queue: txn.Queue{Type: "perago_stage", Domain: "gpu", Waiting: 3}, Now: started,
			Polls: Read[[]txn.LastPoll]{Value: []txn.LastPoll{{Domain: "gpu", Worker: "w-1", At: started.Add(-time.Second)}}},
		}}},
		Waiting: Read[[]survey.Waiting]{Value: []survey.Waiting{{Type: "perago_stage", Domain: "gpu", Now: started}}},
		Open: Read[Open]{Value: Open{Workflows: []OpenWorkflow{
			{ID: "a", Root: "a", Writes: []Address{main}},
			{ID: "a-sub", Root: "a", Writes: []Address{main}},
			{ID: "b", Root: "b", Writes: []Address{{"lake", "other"}}},
		}}},
		Targets: []Target{{
			Address: main, Head: Read[txn.CommitID]{Value: commit}, Fence: Read[Fence]{Value: Fence{Held: true}},
			Protecting: Read[[]string]{Value: []string{"main"}}, Retention: Read[Retention]{Value: Retention{48 * time.Hour, 48 * time.Hour}},
		}},
		Repositories: []Repository{{
			Name: "lake",
			Branches: Read[[]Branch]{Value: []Branch{
				{Name: own, Age: 30 * time.Hour, Own: true, Status: Read[txn.WorkflowStatus]{Value: txn.WorkflowRunning}},
				{Name: foreign, Age: time.Hour},
			}},
		}},
	}
}

// waits are tasks that wait, each for so long, of the workflows w-0, w-1 and so on.
func waits(long ...time.Duration) []txn.Task {
	var all []txn.Task
	for i, d := range long {
		all = append(all, txn.Task{Workflow: txn.WorkflowID(fmt.Sprintf("w-%d", i)), Times: txn.TaskTimes{Scheduled: started.Add(-d)}})
	}
	return all
}

func answered(status int, kind error, message string) error {
	class := txn.ErrRefused
	if status >= 500 {
		class = txn.ErrRetryable
	}
	return &txn.ServerError{Server: "lakeFS", Method: "GET", Path: "/api/v1/user", Status: status, Class: class, Kind: kind, Message: message}
}

// broken is one thing that is wrong, and the line that says so: its state, its
// subject, and parts of what is wrong and of what to do. Taken back it is healthy.
var broken = []struct {
	check   Check
	state   State
	spoil   func(*Facts)
	subject string
	what    string
	do      string
}{
	{CheckConductor, Error, func(f *Facts) { f.Conductor.Err = down }, "http://conductor:8080", "Conductor gives no answer: connection refused", "CONDUCTOR_SERVER_URL"},
	{CheckConductor, Error, func(f *Facts) { f.Conductor.Err = answered(401, txn.ErrUnauthorized, "who?") }, "http://conductor:8080", "Conductor refuses the credentials (401): who?", "CONDUCTOR_AUTH_KEY"},
	{CheckConductor, Error, func(f *Facts) { f.Conductor.Err = answered(403, txn.ErrForbidden, "no") }, "http://conductor:8080", "Conductor knows the key, which may not even ask (403): no", "permission"},
	{CheckConductor, Error, func(f *Facts) { f.Conductor.Err = answered(404, nil, "Not Found") }, "http://conductor:8080", "Conductor is not what answers there (404)", "the path of CONDUCTOR_SERVER_URL"},
	{CheckConductor, Error, func(f *Facts) { f.Conductor.Err = answered(503, nil, "busy") }, "http://conductor:8080", "Conductor answers 503: busy", "log"},
	{CheckConductor, Error, func(f *Facts) { f.Conductor.Err = errors.New("bad address") }, "http://conductor:8080", "Conductor cannot be asked: bad address", "CONDUCTOR_SERVER_URL"},
	{CheckLakeFS, Error, func(f *Facts) { f.LakeFS.Err = answered(401, txn.ErrUnauthorized, "who?") }, "http://lakefs:8000", "lakeFS refuses the credentials (401): who?", "LAKECTL_CREDENTIALS_ACCESS_KEY_ID"},
	{CheckLakeFS, Error, func(f *Facts) { f.LakeFS.Err = answered(200, nil, "a page of HTML") }, "http://lakefs:8000", "lakeFS is not what answers there (200)", "the path of LAKECTL_SERVER_ENDPOINT_URL"},
	{CheckPermissions, Error, func(f *Facts) {
		f.Permissions[1].Err = answered(401, txn.ErrForbidden, "insufficient permissions")
	}, "publish: fs:CreateCommit on lake/branch/main", "the key may not: lakeFS answered 401: insufficient permissions", "--policy publish"},
	{CheckPermissions, Error, func(f *Facts) { f.Permissions[2].Err = answered(403, txn.ErrForbidden, "no") }, "cleanup: fs:DeleteBranch on lake/branch/perago-staging-*", "lakeFS answered 403: no", "--policy cleanup"},
	{CheckPermissions, Unknown, func(f *Facts) { f.Permissions[0].Err = down }, "stage: fs:ReadCommit on lake", "could not be looked at: lakeFS gave no answer", "again"},
	{CheckRegistered, Error, func(f *Facts) { f.Definitions.Value[2].Missing = true }, "perago_cancel", "is not registered", "perago register"},
	{CheckRegistered, Warning, func(f *Facts) { f.Definitions.Value[1].Missing = true }, "perago_checkout", "is not registered, and workflows that check out need it", "perago register"},
	{CheckRegistered, Unknown, func(f *Facts) { f.Definitions.Err = down }, "", "could not be looked at", "again"},
	{CheckDrift, Warning, func(f *Facts) { f.Definitions.Value[0].Differences = []string{"retryCount: 0 -> 3"} }, "perago_stage", "is not as shipped: retryCount: 0 -> 3", "perago register --dry-run"},
	{CheckDrift, Warning, func(f *Facts) { f.Definitions.Value[0].Differences = []string{"a", "b", "c", "d", "e", "f"} }, "perago_stage", "is not as shipped: a, b, c, d and 2 more", "perago register"},
	{CheckBudget, Error, func(f *Facts) { f.Rules.Value = []Broken{{"perago_publish", "the lease is short", "raise it"}} }, "perago_publish", "the lease is short", "raise it"},
	{CheckBudget, Unknown, func(f *Facts) { f.Rules.Err = down }, "", "could not be looked at", "again"},
	{CheckPolled, Error, func(f *Facts) { f.Queues.Value[0].Polls.Value[0].Domain = "" }, "gpu:perago_stage", "3 tasks wait in the domain gpu, where nobody has ever polled", "a worker with gpu among PERAGO_DOMAINS"},
	{CheckPolled, Error, func(f *Facts) { f.Queues.Value[0].Domain, f.Queues.Value[0].Waiting = "", 1 }, "perago_stage", "1 task waits without a domain, where nobody has ever polled", "NO_DOMAIN"},
	{CheckPolled, Warning, func(f *Facts) { f.Queues.Value[0].Polls.Value[0].At = started.Add(-10 * time.Minute) }, "gpu:perago_stage", "the last poll was 10m0s ago, by w-1", "slots"},
	{CheckPolled, Unknown, func(f *Facts) { f.Queues.Value[0].Polls.Err = down }, "gpu:perago_stage", "could not be looked at", "again"},
	{CheckPolled, Unknown, func(f *Facts) { f.Queues.Err = down }, "", "could not be looked at", "again"},
	{CheckLost, Error, func(f *Facts) { f.Waiting.Value[0].Lost = waits(time.Hour) }, "gpu:perago_stage", "1 task waits, the longest for 1h0m0s, in workflow w-0; workers poll, and the queue is empty: Conductor lost it", "put it back: POST /api/tasks/queue/requeue/perago_stage (this also hands out again"},
	{CheckLost, Error, func(f *Facts) {
		f.Waiting.Value[0].Domain, f.Waiting.Value[0].Lost = "", waits(2*time.Hour, time.Hour)
	}, "perago_stage", "2 tasks wait, the longest for 2h0m0s, in workflow w-0; workers poll, and the queue is empty: Conductor lost them", "put them back: POST /api/tasks/queue/requeue/perago_stage"},
	{CheckLost, Unknown, func(f *Facts) { f.Waiting.Value[0].Unpolled = waits(time.Hour) }, "gpu:perago_stage", "1 task waits, the longest for 1h0m0s, in workflow w-0; the queue is empty, and no worker has polled it within a minute", "start a worker"},
	{CheckLost, Unknown, func(f *Facts) { f.Waiting.Value[0].Err = down }, "gpu:perago_stage", "could not be looked at", "again"},
	{CheckLost, Unknown, func(f *Facts) { f.Waiting.Err = down }, "", "could not be looked at", "again"},
	{CheckLost, Unknown, func(f *Facts) { f.Open.Err = down }, "", "could not be looked at", "again"},
	{CheckLost, Unknown, func(f *Facts) { f.Open.Value.More = 7 }, "", "7 open workflows were not looked at", "again"},
	{CheckRepository, Error, func(f *Facts) { f.Repositories[0].ReadOnly.Value = true }, "lake", "read-only", "another repository"},
	{CheckRepository, Error, func(f *Facts) {
		f.Repositories[0].ReadOnly.Err, f.Targets[0].Head.Err = answered(404, txn.ErrNotFound, ""), answered(404, txn.ErrNotFound, "")
	}, "lake", "lakeFS has no repository lake", "address"},
	{CheckRepository, Error, func(f *Facts) { f.Targets[0].Head.Err = answered(404, txn.ErrNotFound, "") }, "lakefs://lake/main", "the repository lake has no branch main", "address"},
	{CheckRepository, Unknown, func(f *Facts) { f.Targets[0].Head.Err = down }, "lakefs://lake/main", "could not be looked at", "again"},
	{CheckRepository, Unknown, func(f *Facts) { f.Repositories[0].ReadOnly.Err = answered(401, txn.ErrForbidden, "no") }, "lake", "could not be looked at", "a key that may read this"},
	{CheckFence, Error, func(f *Facts) { f.Targets[0].Fence.Value = Fence{Found: "there is none", Mend: "install it"} }, "lakefs://lake/main", "there is none", "install it"},
	{CheckFence, Unknown, func(f *Facts) { f.Targets[0].Fence.Err = down }, "lakefs://lake/main", "could not be looked at", "again"},
	{CheckFence, Unknown, func(f *Facts) { f.Targets[0].Head.Err = down }, "lakefs://lake/main", "the branch cannot be read", "again"},
	{CheckFenceHeld, Warning, func(f *Facts) { f.Targets[0].Fence.Value = Fence{} }, "lakefs://lake/main", "no publication of the branch shows that lakeFS asks the hard fence", "perago fence verify lakefs://lake/main"},
	{CheckFenceHeld, Error, func(f *Facts) { f.Targets[0].Fence.Value = Fence{Fault: errors.New("it let one pass")} }, "lakefs://lake/main", "it let one pass", "perago fence verify lakefs://lake/main"},
	{CheckFenceHeld, Unknown, func(f *Facts) { f.Targets[0].Fence.Value = Fence{Found: "there is none", Mend: "install it"} }, "lakefs://lake/main", "could not be looked at", "install it"},
	{CheckFenceHeld, Unknown, func(f *Facts) { f.Targets[0].Fence.Err = down }, "lakefs://lake/main", "could not be looked at", "again"},
	{CheckFenceRequired, Warning, func(f *Facts) { f.Settings.RequireHardFence = false }, "", "PERAGO_REQUIRE_HARD_FENCE is not true here", "set it for the publish workers"},
	{CheckProtected, Warning, func(f *Facts) { f.Targets[0].Protecting.Value = nil }, "lakefs://lake/main", "no branch protection rule matches the branch", "lakectl branch-protect add lakefs://lake main"},
	{CheckProtected, Unknown, func(f *Facts) { f.Targets[0].Protecting.Err = down }, "lakefs://lake/main", "could not be looked at", "again"},
	{CheckStagingOpen, Error, func(f *Facts) { f.Repositories[0].Protecting.Value = []string{"*"} }, "lake", "the branch protection rule * matches perago-staging-*", "name the branches"},
	{CheckStagingOpen, Unknown, func(f *Facts) { f.Repositories[0].Protecting.Err = down }, "lake", "could not be looked at", "again"},
	{CheckClean, Error, func(f *Facts) {
		f.Targets[0].Uncommitted.Value, f.Targets[0].Protecting.Value = "a/b", nil
	}, "lakefs://lake/main", `uncommitted changes, such as "a/b"`, "commit or reset them"},
	{CheckClean, Error, func(f *Facts) { f.Targets[0].Uncommitted.Value = "a/b" }, "lakefs://lake/main", `uncommitted changes, such as "a/b"`, "lift the protection"},
	{CheckClean, Unknown, func(f *Facts) { f.Targets[0].Uncommitted.Err = down }, "lakefs://lake/main", "could not be looked at", "again"},
	{CheckOneWriter, Error, func(f *Facts) { f.Open.Value.Workflows[2].Writes = []Address{main} }, "lakefs://lake/main", "the open workflows a, b publish to it", "one after the other"},
	{CheckOneWriter, Error, func(f *Facts) {
		for _, id := range []txn.WorkflowID{"c", "d", "e", "f"} {
			f.Open.Value.Workflows = append(f.Open.Value.Workflows, OpenWorkflow{id, id, []Address{main}})
		}
	}, "lakefs://lake/main", "the open workflows a, c, d, e and 1 more publish to it", "one after the other"},
	{CheckOneWriter, Unknown, func(f *Facts) { f.Open.Value.More = 7 }, "", "7 open workflows were not looked at", "again"},
	{CheckOneWriter, Unknown, func(f *Facts) { f.Open.Err = down }, "", "could not be looked at", "again"},
	{CheckOrphans, Warning, func(f *Facts) { f.Repositories[0].Branches.Value[0].Status.Value = txn.WorkflowFailed }, "lake", "1 hidden branch of ended workflows older than PERAGO_SWEEP_TTL, such as " + string(own), "perago sweep"},
	{CheckOrphans, Warning, func(f *Facts) { f.Repositories[0].Branches.Value[0].Status.Value = "" }, "lake", "1 hidden branch of ended workflows", "perago sweep"},
	{CheckOrphans, Warning, func(f *Facts) { f.Repositories[0].Branches.Value[1].Age = 30 * time.Hour }, "lake", "1 hidden branch of another Conductor", "--force"},
	{CheckOrphans, Warning, func(f *Facts) {
		f.Repositories[0].Branches.Value[0] = Branch{Name: txn.ProbeBranches + "1", Age: 2 * time.Hour}
	}, "lake", "1 hidden branch left by perago fence or settle", "delete"},
	{CheckOrphans, Warning, func(f *Facts) { f.Repositories[0].Branches.Value[0] = Branch{Name: "perago-staging-mine"} }, "lake", "whose name is not one that perago gives", "find out"},
	{CheckOrphans, Unknown, func(f *Facts) { f.Repositories[0].Branches.Value[0].Status.Err = down }, "lake", "the workflows of 1 branch", "again"},
	{CheckOrphans, Unknown, func(f *Facts) { f.Repositories[0].Branches.Err = down }, "lake", "could not be looked at", "again"},
	{CheckRetention, Error, func(f *Facts) { f.Targets[0].Retention.Value.Deleted = 24 * time.Hour }, "lakefs://lake/main", "the data of a deleted staging branch is kept for 24h0m0s, and a publication may still need it for 24h4m0s", "set default_retention_days to at least 2"},
	{CheckRetention, Error, func(f *Facts) { f.Targets[0].Retention.Value.OnBranch = 24 * time.Hour }, "lakefs://lake/main", "what the branch held before is kept for 24h0m0s", "set the branch's retention_days to at least 2"},
	{CheckRetention, Unknown, func(f *Facts) { f.LongestPublish.Err = errors.New("no publish TaskDef is registered") }, "lakefs://lake/main", "no publish TaskDef is registered", "again"},
	{CheckRetention, Unknown, func(f *Facts) { f.Targets[0].Retention.Err = down }, "lakefs://lake/main", "could not be looked at", "again"},
	{CheckClocks, Warning, func(f *Facts) { f.Conductor.Clock.Ahead = -2 * time.Minute }, "Conductor", "the clock is 2m0s behind the one here", "NTP"},
	{CheckClocks, Error, func(f *Facts) { f.LakeFS.Clock.Ahead = time.Hour }, "lakeFS", "the clock is 1h0m0s ahead of the one here", "NTP"},
	{CheckClocks, Unknown, func(f *Facts) { f.LakeFS.Clock.Seen = false }, "lakeFS", "no answer of the server says its time", "again"},
	{CheckConductorID, Warning, func(f *Facts) { f.Settings.ConductorID = "" }, "here", "PERAGO_CONDUCTOR_ID is not set", "set the same PERAGO_CONDUCTOR_ID"},
}

// Every finding: broken it is said, with what to do; repaired the check holds.
func TestFindings(t *testing.T) {
	t.Parallel()
	good := Diagnose(healthy(), nil)
	for _, c := range broken {
		t.Run(string(c.check)+"/"+c.what, func(t *testing.T) {
			f := healthy()
			c.spoil(&f)
			var same []Finding
			for _, found := range Diagnose(f, nil) {
				if found.Check != c.check {
					continue
				}
				same = append(same, found)
				if found.State == c.state && found.Subject == c.subject && strings.Contains(found.What, c.what) && strings.Contains(found.Do, c.do) {
					return
				}
			}
			t.Errorf("want %s of %q: %q, %q; got %+v", c.state, c.subject, c.what, c.do, same)
		})
		for _, found := range good {
			if found.Check == c.check && (found.State != OK || found.Do != "") {
				t.Errorf("repaired: %+v", found)
			}
		}
	}
}

// No level of a check is without a case above, and each check has one.
func TestEveryLevelHasACase(t *testing.T) {
	t.Parallel()
	for _, check := range Checks() {
		if len(check.Levels) == 0 || check.About == "" {
			t.Errorf("%s says nothing of itself", check.Check)
		}
		var cases []State
		for _, c := range broken {
			if c.check == check.Check && c.state != Unknown && !slices.Contains(cases, c.state) {
				cases = append(cases, c.state)
			}
		}
		slices.Sort(cases)
		if diff := cmp.Diff(slices.Sorted(slices.Values(check.Levels)), cases); diff != "" {
			t.Errorf("%s: levels and cases (-levels +cases):\n%s", check.Check, diff)
		}
	}
}

// What a server was needed for is unknown when it does not answer, and never ok.
func TestSilentServers(t *testing.T) {
	t.Parallel()
	f := Facts{Settings: healthy().Settings, Targets: []Target{{Address: main}}}
	f.Conductor.Err, f.LakeFS.Err = down, down
	states := map[Check]State{}
	for _, found := range Diagnose(f, nil) {
		states[found.Check] = found.State
		if found.State == Unknown && (found.What == "" || found.Do == "") {
			t.Errorf("%s does not say why", found.Check)
		}
	}
	for _, check := range Checks() {
		want := Unknown
		switch check.Check {
		case CheckConductor, CheckLakeFS:
			want = Error
		case CheckFenceRequired, CheckConductorID:
			want = OK
		}
		if states[check.Check] != want {
			t.Errorf("%s is %q, want %q", check.Check, states[check.Check], want)
		}
	}
}

// A check that was not to be made says so, and one that needs a branch where none
// was given.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	f := healthy()
	f.Targets = nil
	f.Settings.ConductorID = ""
	for _, found := range Diagnose(f, []Check{CheckConductorID}) {
		switch found.Check {
		case CheckConductorID, CheckPermissions, CheckRepository, CheckFence, CheckFenceHeld, CheckProtected, CheckStagingOpen, CheckClean, CheckOrphans, CheckRetention:
			if found.State != LeftOut {
				t.Errorf("%+v", found)
			}
		default:
			if found.State != OK {
				t.Errorf("%+v", found)
			}
		}
	}
}

// Without rules nothing is collected.
func TestNoRetentionRules(t *testing.T) {
	t.Parallel()
	f := healthy()
	f.Targets[0].Retention.Value = Retention{}
	f.LongestPublish.Err = errors.New("unknown")
	for _, found := range retention(f) {
		if found.State != OK {
			t.Errorf("%+v", found)
		}
	}
}
