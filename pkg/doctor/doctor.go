package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"perago/pkg/txn"
)

// Check is one thing that is looked at.
type Check string

// The checks.
const (
	CheckConductor     Check = "conductor"
	CheckLakeFS        Check = "lakefs"
	CheckPermissions   Check = "permissions"
	CheckRegistered    Check = "registered"
	CheckDrift         Check = "drift"
	CheckBudget        Check = "budget"
	CheckPolled        Check = "polled"
	CheckLost          Check = "lost"
	CheckRepository    Check = "repository"
	CheckFence         Check = "fence"
	CheckFenceHeld     Check = "fence-held"
	CheckFenceRequired Check = "fence-required"
	CheckProtected     Check = "protected"
	CheckStagingOpen   Check = "staging-open"
	CheckClean         Check = "clean"
	CheckOneWriter     Check = "one-writer"
	CheckOrphans       Check = "orphans"
	CheckRetention     Check = "retention"
	CheckClocks        Check = "clocks"
	CheckConductorID   Check = "conductor-id"
)

// State is how a check came out.
type State string

// The states.
const (
	// OK holds.
	OK State = "ok"
	// Warning is worth doing something about; nothing is lost by it now.
	Warning State = "warning"
	// Error makes publications fail, or lets one be lost.
	Error State = "error"
	// Unknown could not be looked at. It is not healthy.
	Unknown State = "unknown"
	// LeftOut was not to be looked at.
	LeftOut State = "left out"
)

// Info is what there is to know of a check.
type Info struct {
	Check Check
	// Levels are the states that it has when it does not hold.
	Levels []State
	// About says when it holds.
	About string
	// conductor and lake say whose answers it needs, target that it needs a branch.
	conductor, lake, target bool
	look                    func(Facts) []Finding
}

// Checks are all checks, in the order that they are reported in.
func Checks() []Info {
	return []Info{
		{CheckConductor, []State{Error}, "Conductor answers at its address and takes the credentials", false, false, false, conductor},
		{CheckLakeFS, []State{Error}, "lakeFS answers at its address and takes the credentials", false, false, false, lake},
		{CheckPermissions, []State{Error}, "the key may do each action of the workers' policies", false, true, true, permissions},
		{CheckRegistered, []State{Error, Warning}, "perago's TaskDefs and perago_cancel are registered; a warning for perago_checkout, which not every workflow needs", true, false, false, registered},
		{CheckDrift, []State{Warning}, "they are as shipped, but for the numbers of the publish budget", true, false, false, drift},
		{CheckBudget, []State{Error}, "the publish budgets cover a merge, and the timeouts of perago's TaskDefs delay a workflow and do not end it", true, false, false, budget},
		{CheckPolled, []State{Error, Warning}, "somebody polls where perago's tasks wait; a warning when the last poll was over a minute ago", true, false, false, polled},
		{CheckLost, []State{Error}, "Conductor has lost no task of perago's from its queue, in the first 500 open workflows whose definitions hold perago's tasks", true, false, false, lost},
		{CheckRepository, []State{Error}, "the repository and the branch are there, and lakeFS takes changes of it", false, true, true, repository},
		{CheckFence, []State{Error}, "the head of the branch carries the hard fence's action file", false, true, true, fence},
		{CheckFenceHeld, []State{Error, Warning}, "lakeFS has asked the hard fence for a publication of the branch; an error when --verify-fence shows that it does not hold", false, true, true, fenceHeld},
		{CheckFenceRequired, []State{Warning}, "the publish workers require the hard fence (PERAGO_REQUIRE_HARD_FENCE)", false, false, false, fenceRequired},
		{CheckProtected, []State{Warning}, "a branch protection rule matches the branch", false, true, true, protected},
		{CheckStagingOpen, []State{Error}, "no branch protection rule matches staging branches", false, true, true, stagingOpen},
		{CheckClean, []State{Error}, "the branch has no uncommitted changes", false, true, true, clean},
		{CheckOneWriter, []State{Error}, "no two open workflows publish to one branch", true, false, false, oneWriter},
		{CheckOrphans, []State{Warning}, "no hidden branch is older than PERAGO_SWEEP_TTL when its workflow has ended", true, true, true, orphans},
		{CheckRetention, []State{Error}, "garbage collection keeps data for longer than PERAGO_SWEEP_TTL and the longest publish", true, true, true, retention},
		{CheckClocks, []State{Error, Warning}, "the servers' clocks are within 30 seconds of the one here; an error from 15 minutes", false, false, false, clocks},
		{CheckConductorID, []State{Warning}, "PERAGO_CONDUCTOR_ID is set, so that branches keep their owner when an address changes", false, false, false, conductorID},
	}
}

// Finding is one line: how a check came out for one subject.
type Finding struct {
	State   State  `json:"state"`
	Check   Check  `json:"check"`
	Subject string `json:"subject"`
	// What is so, and Do what to do about it; nothing when it is as it should be.
	What string `json:"what"`
	Do   string `json:"do"`
}

// Diagnose says how each check came out, in their order. Each has a finding,
// those that were left out too.
func Diagnose(f Facts, leftOut []Check) []Finding {
	var all []Finding
	for _, check := range Checks() {
		var found []Finding
		switch {
		case slices.Contains(leftOut, check.Check):
			found = []Finding{{State: LeftOut, What: "not to be looked at"}}
		case check.target && len(f.Targets) == 0:
			found = []Finding{{State: LeftOut, What: "no branch was given", Do: "name the branches that workflows publish to"}}
		case check.conductor && f.Conductor.Err != nil:
			found = []Finding{unread("", errors.New("Conductor does not answer as it should"))}
		case check.lake && f.LakeFS.Err != nil:
			found = []Finding{unread("", errors.New("lakeFS does not answer as it should"))}
		default:
			found = check.look(f)
		}
		for _, one := range found {
			one.Check = check.Check
			all = append(all, one)
		}
	}
	return all
}

func holds(subject, format string, arguments ...any) Finding {
	return Finding{State: OK, Subject: subject, What: fmt.Sprintf(format, arguments...)}
}

// unread is a check that could not be made.
func unread(subject string, err error) Finding {
	do := "run perago doctor again when that is mended"
	if errors.Is(err, txn.ErrForbidden) {
		do = "run perago doctor with a key that may read this"
	}
	return Finding{State: Unknown, Subject: subject, What: "could not be looked at: " + err.Error(), Do: do}
}

func conductor(f Facts) []Finding {
	return []Finding{server("Conductor", f.Conductor, "CONDUCTOR_SERVER_URL", "CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET")}
}

func lake(f Facts) []Finding {
	return []Finding{server("lakeFS", f.LakeFS, "LAKECTL_SERVER_ENDPOINT_URL", "LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY")}
}

// server says why a server does not do, the ways apart in which it may not.
func server(name string, s Server, address, credentials string) Finding {
	if s.Err == nil {
		return holds(s.Address, "%s answers and takes the credentials", name)
	}
	bad := func(do, format string, arguments ...any) Finding {
		return Finding{State: Error, Subject: s.Address, What: name + " " + fmt.Sprintf(format, arguments...), Do: do}
	}
	var answer *txn.ServerError
	switch {
	case !errors.As(s.Err, &answer):
		return bad("check "+address, "cannot be asked: %v", s.Err)
	case errors.Is(s.Err, txn.ErrUnauthorized):
		return bad("check "+credentials, "refuses the credentials (%d): %s", answer.Status, answer.Message)
	case errors.Is(s.Err, txn.ErrForbidden):
		return bad("give the key of "+credentials+" the permission", "knows the key, which may not even ask (%d): %s", answer.Status, answer.Message)
	case answer.Status == 0:
		return bad("is it up, and is "+address+" its address?", "gives no answer: %s", answer.Message)
	case answer.Status >= 500, answer.Status == 423, answer.Status == 429:
		return bad("look at its log; is there a gateway before it?", "answers %d: %s", answer.Status, answer.Message)
	}
	return bad("check the path of "+address+": it is the address of the server, or of its API", "is not what answers there (%d): %s", answer.Status, answer.Message)
}

func permissions(f Facts) []Finding {
	var all []Finding
	for _, worker := range Workers() {
		asked, good := 0, 0
		for _, one := range f.Permissions {
			if one.Worker != worker {
				continue
			}
			asked++
			subject := string(worker) + ": " + resource(one.Permission)
			switch {
			case one.Err == nil:
				good++
			case errors.Is(one.Err, txn.ErrForbidden), errors.Is(one.Err, txn.ErrUnauthorized):
				all = append(all, Finding{
					State: Error, Subject: subject, What: "the key may not: " + answerOf(one.Err),
					Do: fmt.Sprintf("attach the policy that perago doctor --policy %s prints, or say with --for which worker's key this is", worker),
				})
			default:
				all = append(all, unread(subject, one.Err))
			}
		}
		if good > 0 && good == asked {
			all = append(all, holds(string(worker), "the key may do what the worker's policy allows: %d actions were asked for", good))
		}
	}
	return all
}

// answerOf is a server's answer without what a caller has said already.
func answerOf(err error) string {
	var answer *txn.ServerError
	if !errors.As(err, &answer) {
		return err.Error()
	}
	return fmt.Sprintf("lakeFS answered %d: %s", answer.Status, answer.Message)
}

// resource is a permission in words.
func resource(p txn.Permission) string {
	text := p.Action
	switch {
	case p.Storage != "":
		text += " on " + p.Storage
	case strings.HasPrefix(string(p.Branch), txn.BranchNamespace):
		text += fmt.Sprintf(" on %s/branch/%s*", p.Repository, p.Branch)
	case p.Branch == anyBranch:
		text += fmt.Sprintf(" on %s/branch/*", p.Repository)
	case p.Branch != "":
		text += fmt.Sprintf(" on %s/branch/%s", p.Repository, p.Branch)
	case p.Path != "":
		text += fmt.Sprintf(" on %s/object/%s", p.Repository, p.Path)
	case p.Repository != "":
		text += " on " + string(p.Repository)
	}
	return text
}

func registered(f Facts) []Finding {
	if f.Definitions.Err != nil {
		return []Finding{unread("", f.Definitions.Err)}
	}
	var all []Finding
	for _, d := range f.Definitions.Value {
		switch {
		case d.Missing && d.Optional:
			all = append(all, Finding{State: Warning, Subject: d.Name, What: "is not registered, and workflows that check out need it", Do: "run perago register"})
		case d.Missing:
			all = append(all, Finding{State: Error, Subject: d.Name, What: "is not registered", Do: "run perago register"})
		}
	}
	if len(all) == 0 {
		return []Finding{holds("", "%d definitions are registered", len(f.Definitions.Value))}
	}
	return all
}

// mostDifferences bounds how many differing fields a line names.
const mostDifferences = 4

func drift(f Facts) []Finding {
	if f.Definitions.Err != nil {
		return []Finding{unread("", f.Definitions.Err)}
	}
	var all []Finding
	for _, d := range f.Definitions.Value {
		if len(d.Differences) == 0 {
			continue
		}
		named := d.Differences
		rest := ""
		if len(named) > mostDifferences {
			named, rest = named[:mostDifferences], fmt.Sprintf(" and %d more", len(d.Differences)-mostDifferences)
		}
		all = append(all, Finding{
			State: Warning, Subject: d.Name, What: "is not as shipped: " + strings.Join(named, ", ") + rest,
			Do: "look with perago register --dry-run; register the shipped one, or leave out drift if that is meant",
		})
	}
	if len(all) == 0 {
		return []Finding{holds("", "what is registered is as shipped")}
	}
	return all
}

func budget(f Facts) []Finding {
	if f.Rules.Err != nil {
		return []Finding{unread("", f.Rules.Err)}
	}
	var all []Finding
	for _, broken := range f.Rules.Value {
		all = append(all, Finding{State: Error, Subject: broken.Name, What: broken.What, Do: broken.Do})
	}
	if len(all) == 0 {
		return []Finding{holds("", "the rules hold for every TaskDef of perago's that is registered")}
	}
	return all
}

// pollRecent is how old the last poll of a queue may be. An idle worker polls each
// second.
const pollRecent = time.Minute

func polled(f Facts) []Finding {
	if f.Queues.Err != nil {
		return []Finding{unread("", f.Queues.Err)}
	}
	var all []Finding
	for _, q := range f.Queues.Value {
		subject, domain := string(q.Type), "without a domain"
		start := "start a worker that polls without a domain (PERAGO_DOMAINS unset, or with NO_DOMAIN)"
		if q.Domain != "" {
			subject, domain = q.Domain+":"+subject, "in the domain "+q.Domain
			start = "start a worker with " + q.Domain + " among PERAGO_DOMAINS, or mend the taskToDomain of the workflows"
		}
		wait := counted(q.Waiting, "task waits", "tasks wait")
		if q.Polls.Err != nil {
			all = append(all, unread(subject, q.Polls.Err))
			continue
		}
		at := slices.IndexFunc(q.Polls.Value, func(p txn.LastPoll) bool { return p.Domain == q.Domain })
		if at < 0 {
			all = append(all, Finding{State: Error, Subject: subject, What: wait + " " + domain + ", where nobody has ever polled", Do: start})
			continue
		}
		if ago := q.Now.Sub(q.Polls.Value[at].At); ago > pollRecent {
			all = append(all, Finding{
				State: Warning, Subject: subject,
				What: fmt.Sprintf("%s %s, and the last poll was %s ago, by %s", wait, domain, ago.Round(time.Second), q.Polls.Value[at].Worker),
				Do:   "look at the workers: a worker with all its slots at work does not poll either; else start one",
			})
		}
	}
	if len(all) == 0 {
		return []Finding{holds("", "no task of perago's waits where nobody polls")}
	}
	return all
}

// lost tells of tasks that polled cannot see: their queue is empty, so Conductor does
// not list it.
func lost(f Facts) []Finding {
	for _, err := range []error{f.Open.Err, f.Waiting.Err} {
		if err != nil {
			return []Finding{unread("", err)}
		}
	}
	var all []Finding
	for _, w := range f.Waiting.Value {
		subject := string(w.Type)
		if w.Domain != "" {
			subject = w.Domain + ":" + subject
		}
		longest := func(tasks []txn.Task) string {
			return fmt.Sprintf("the longest for %s, in workflow %s", w.Now.Sub(tasks[0].WaitsSince()).Round(time.Second), tasks[0].Workflow)
		}
		if n := len(w.Lost); n > 0 {
			all = append(all, Finding{
				State: Error, Subject: subject,
				What: fmt.Sprintf("%s, %s; workers poll, and the queue is empty: Conductor lost %s", counted(n, "task waits", "tasks wait"), longest(w.Lost), choose(n, "it", "them")),
				Do:   fmt.Sprintf("put %s back: POST /api/tasks/queue/requeue/%s (%s)", choose(n, "it", "them"), w.Type, txn.RequeueTwice),
			})
		}
		if n := len(w.Unpolled); n > 0 {
			all = append(all, Finding{
				State: Unknown, Subject: subject,
				What: fmt.Sprintf("%s, %s; the queue is empty, and no worker has polled it within a minute", counted(n, "task waits", "tasks wait"), longest(w.Unpolled)),
				Do:   "start a worker that polls there, and run perago doctor again a minute later",
			})
		}
		if w.Err != nil {
			all = append(all, unread(subject, w.Err))
		}
	}
	if more := f.Open.Value.More; more > 0 {
		all = append(all, unread("", fmt.Errorf("%s not looked at", counted(more, "open workflow was", "open workflows were"))))
	}
	if len(all) == 0 {
		return []Finding{holds("", "Conductor has lost no task of %s", counted(len(f.Open.Value.Workflows), "open workflow", "open workflows"))}
	}
	return all
}

func choose(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

func repository(f Facts) []Finding {
	var all []Finding
	for _, r := range f.Repositories {
		switch {
		case errors.Is(r.ReadOnly.Err, txn.ErrNotFound):
			all = append(all, Finding{State: Error, Subject: string(r.Name), What: "lakeFS has no repository " + string(r.Name), Do: "check the address"})
		case r.ReadOnly.Err != nil:
			all = append(all, unread(string(r.Name), r.ReadOnly.Err))
		case r.ReadOnly.Value:
			all = append(all, Finding{State: Error, Subject: string(r.Name), What: "the repository is read-only, so nothing can be staged or published", Do: "take another repository, or lift that in lakeFS"})
		}
	}
	for _, t := range f.Targets {
		if errors.Is(t.Head.Err, txn.ErrNotFound) && !f.lacks(t.Repository) {
			all = append(all, Finding{State: Error, Subject: t.String(), What: fmt.Sprintf("the repository %s has no branch %s", t.Repository, t.Branch), Do: "check the address"})
		} else if t.Head.Err != nil && !errors.Is(t.Head.Err, txn.ErrNotFound) {
			all = append(all, unread(t.String(), t.Head.Err))
		}
	}
	if len(all) == 0 {
		for _, t := range f.Targets {
			all = append(all, holds(t.String(), "the branch is there, at %s", t.Head.Value.Short()))
		}
	}
	return all
}

// lacks reports that lakeFS has no such repository.
func (f Facts) lacks(name txn.Repository) bool {
	return slices.ContainsFunc(f.Repositories, func(r Repository) bool {
		return r.Name == name && errors.Is(r.ReadOnly.Err, txn.ErrNotFound)
	})
}

// perTarget looks at each branch; one that is not there could not be looked at.
func perTarget(f Facts, look func(Target) Finding) []Finding {
	var all []Finding
	for _, t := range f.Targets {
		finding := Finding{}
		if t.Head.Err != nil {
			finding = unread("", errors.New("the branch cannot be read"))
		} else {
			finding = look(t)
		}
		finding.Subject = t.String()
		all = append(all, finding)
	}
	return all
}

func fence(f Facts) []Finding {
	return perTarget(f, func(t Target) Finding {
		switch {
		case t.Fence.Err != nil:
			return unread("", t.Fence.Err)
		case t.Fence.Value.Found != "":
			return Finding{State: Error, What: t.Fence.Value.Found, Do: t.Fence.Value.Mend}
		}
		return holds("", "the head carries the hard fence's action file")
	})
}

func fenceHeld(f Facts) []Finding {
	return perTarget(f, func(t Target) Finding {
		verify := "run perago fence verify " + t.String()
		switch {
		case t.Fence.Err != nil:
			return unread("", t.Fence.Err)
		case t.Fence.Value.Found != "":
			return Finding{State: Unknown, What: "could not be looked at: the branch has not the action file that is known", Do: t.Fence.Value.Mend}
		case t.Fence.Value.Fault != nil:
			return Finding{State: Error, What: t.Fence.Value.Fault.Error(), Do: verify + " when that is mended"}
		case t.Fence.Value.Verified:
			return holds("", "lakeFS refused the probe merge that it must refuse, and took the one it must take")
		case t.Fence.Value.Held:
			return holds("", "lakeFS ran the hard fence for a publication of the branch")
		}
		return Finding{State: Warning, What: "no publication of the branch shows that lakeFS asks the hard fence", Do: verify + ", or perago doctor with --verify-fence"}
	})
}

func fenceRequired(f Facts) []Finding {
	if f.Settings.RequireHardFence {
		return []Finding{holds("", "PERAGO_REQUIRE_HARD_FENCE is true here")}
	}
	return []Finding{{
		State: Warning, What: "PERAGO_REQUIRE_HARD_FENCE is not true here: where the publish workers do not require the hard fence, they publish without it as well",
		Do: "set it for the publish workers, and here",
	}}
}

func protected(f Facts) []Finding {
	return perTarget(f, func(t Target) Finding {
		switch {
		case t.Protecting.Err != nil:
			return unread("", t.Protecting.Err)
		case len(t.Protecting.Value) > 0:
			return holds("", "protected by the rule %s", strings.Join(t.Protecting.Value, ", "))
		}
		return Finding{
			State: Warning, What: "no branch protection rule matches the branch: whoever may write can commit past every publication",
			Do: fmt.Sprintf("run lakectl branch-protect add lakefs://%s %s, or perago fence install with --protect", t.Repository, t.Branch),
		}
	})
}

func stagingOpen(f Facts) []Finding {
	var all []Finding
	for _, r := range f.Repositories {
		subject := string(r.Name)
		switch {
		case r.Protecting.Err != nil:
			all = append(all, unread(subject, r.Protecting.Err))
		case len(r.Protecting.Value) > 0:
			all = append(all, Finding{
				State: Error, Subject: subject,
				What: fmt.Sprintf("the branch protection rule %s matches perago-staging-*, so the uploads of the stage worker are refused", strings.Join(r.Protecting.Value, ", ")),
				Do:   "name the branches that are to be protected",
			})
		default:
			all = append(all, holds(subject, "no branch protection rule matches staging branches"))
		}
	}
	return all
}

func clean(f Facts) []Finding {
	return perTarget(f, func(t Target) Finding {
		switch {
		case t.Uncommitted.Err != nil:
			return unread("", t.Uncommitted.Err)
		case t.Uncommitted.Value == "":
			return holds("", "the branch has no uncommitted changes")
		}
		do := "commit or reset them: lakectl branch reset " + t.String()
		if len(t.Protecting.Value) > 0 {
			do = "lift the protection of the branch, which refuses a reset, then lakectl branch reset " + t.String() + ", and protect it again"
		}
		return Finding{State: Error, What: fmt.Sprintf("the branch has uncommitted changes, such as %q, and lakeFS refuses every merge into it", t.Uncommitted.Value), Do: do}
	})
}

func oneWriter(f Facts) []Finding {
	if f.Open.Err != nil {
		return []Finding{unread("", f.Open.Err)}
	}
	writers := map[Address][]string{}
	var order []Address
	for _, w := range f.Open.Value.Workflows {
		for _, address := range w.Writes {
			if !slices.Contains(order, address) {
				order = append(order, address)
			}
			if !slices.Contains(writers[address], string(w.Root)) {
				writers[address] = append(writers[address], string(w.Root))
			}
		}
	}
	var all []Finding
	for _, address := range order {
		if ids := writers[address]; len(ids) > 1 {
			slices.Sort(ids)
			rest := ""
			if len(ids) > mostDifferences {
				ids, rest = ids[:mostDifferences], fmt.Sprintf(" and %d more", len(ids)-mostDifferences)
			}
			all = append(all, Finding{
				State: Error, Subject: address.String(),
				What: fmt.Sprintf("the open workflows %s publish to it; of those that started from one head all but the first are refused", strings.Join(ids, ", ")+rest),
				Do:   "let them run one after the other: terminate all but one, and start the others again from the head that it leaves",
			})
		}
	}
	if more := f.Open.Value.More; more > 0 {
		all = append(all, unread("", fmt.Errorf("%s not looked at", counted(more, "open workflow was", "open workflows were"))))
	}
	if len(all) == 0 {
		publishing := 0
		for _, w := range f.Open.Value.Workflows {
			if len(w.Writes) > 0 {
				publishing++
			}
		}
		return []Finding{holds("", "%s, no two on one branch", counted(publishing, "open workflow publishes", "open workflows publish"))}
	}
	return all
}

// sweepLate is how long a branch may outlive its time before somebody should have
// noticed: a sweep comes at intervals.
const sweepLate = time.Hour

func orphans(f Facts) []Finding {
	var all []Finding
	for _, r := range f.Repositories {
		subject := string(r.Name)
		if r.Branches.Err != nil {
			all = append(all, unread(subject, r.Branches.Err))
			continue
		}
		var own, others, probes, nameless []txn.Branch
		var failed error
		failures := 0
		for _, b := range r.Branches.Value {
			late := b.Age >= f.Settings.TTL+sweepLate
			_, err := txn.ParseStagingName(b.Name)
			switch {
			case strings.HasPrefix(string(b.Name), txn.ProbeBranches):
				if b.Age >= sweepLate {
					probes = append(probes, b.Name)
				}
			case err != nil:
				nameless = append(nameless, b.Name)
			case !late:
			case !b.Own:
				others = append(others, b.Name)
			case b.Status.Err != nil:
				failed, failures = b.Status.Err, failures+1
			case b.Status.Value == "", b.Status.Value.Terminal():
				own = append(own, b.Name)
			}
		}
		for _, group := range []struct {
			branches []txn.Branch
			what, do string
		}{
			{own, "of ended workflows older than PERAGO_SWEEP_TTL", "is a cleanup worker up, with a sweep interval and this repository allowed? perago sweep takes them by hand"},
			{others, "of another Conductor, or of another PERAGO_CONDUCTOR_ID than the one here, older than PERAGO_SWEEP_TTL", "let a cleanup worker of that Conductor sweep, or delete them one by one: perago sweep --branch NAME --force"},
			{probes, "left by perago fence or settle", "delete them: lakectl branch delete"},
			{nameless, "whose name is not one that perago gives, so that no sweep takes them", "find out who made them"},
		} {
			if n := len(group.branches); n > 0 {
				all = append(all, Finding{State: Warning, Subject: subject, What: fmt.Sprintf("%s %s, such as %s", counted(n, "hidden branch", "hidden branches"), group.what, group.branches[0]), Do: group.do})
			}
		}
		if failed != nil {
			all = append(all, unread(subject, fmt.Errorf("the workflows of %s: %w", counted(failures, "branch", "branches"), failed)))
		}
	}
	if len(all) == 0 {
		return []Finding{holds("", "no hidden branch has outlived its workflow")}
	}
	return all
}

func retention(f Facts) []Finding {
	return perTarget(f, func(t Target) Finding {
		switch {
		case t.Retention.Err != nil:
			return unread("", t.Retention.Err)
		case t.Retention.Value == Retention{}:
			return holds("", "the repository has no garbage collection rules: everything is kept")
		case f.LongestPublish.Err != nil:
			return unread("", f.LongestPublish.Err)
		}
		needed := f.Settings.TTL + f.LongestPublish.Value
		days := int((needed + 24*time.Hour - 1) / (24 * time.Hour))
		short := func(what string, kept time.Duration, rule string) Finding {
			return Finding{
				State: Error,
				What:  fmt.Sprintf("%s is kept for %s, and a publication may still need it for %s: PERAGO_SWEEP_TTL %s and the longest publish %s", what, kept, needed, f.Settings.TTL, f.LongestPublish.Value),
				Do:    fmt.Sprintf("set %s to at least %d in the repository's garbage collection rules", rule, days),
			}
		}
		switch kept := t.Retention.Value; {
		case kept.Deleted != 0 && kept.Deleted < needed:
			return short("the data of a deleted staging branch", kept.Deleted, "default_retention_days")
		case kept.OnBranch != 0 && kept.OnBranch < needed:
			return short("what the branch held before", kept.OnBranch, "the branch's retention_days")
		}
		return holds("", "data is kept for longer than %s", needed)
	})
}

// From what difference clocks are worth a word, and from what they do harm: the
// age of branches and of directories is a difference of two clocks, and what is
// signed with a time is refused when they are too far apart.
const (
	clockApart = 30 * time.Second
	clockWrong = 15 * time.Minute
)

func clocks(f Facts) []Finding {
	var all []Finding
	for _, s := range []struct {
		name string
		Server
	}{{"Conductor", f.Conductor}, {"lakeFS", f.LakeFS}} {
		ahead := s.Clock.Ahead
		apart := ahead.Abs() - s.Clock.Within
		way := "ahead of"
		if ahead < 0 {
			way = "behind"
		}
		state := Warning
		if apart >= clockWrong {
			state = Error
		}
		switch {
		case !s.Clock.Seen:
			all = append(all, unread(s.name, errors.New("no answer of the server says its time")))
		case apart < clockApart:
			all = append(all, holds(s.name, "the clock is within %s of the one here", clockApart))
		default:
			all = append(all, Finding{
				State: state, Subject: s.name,
				What: fmt.Sprintf("the clock is %s %s the one here, and the ages of branches and directories are reckoned with both", ahead.Abs().Round(time.Second), way),
				Do:   "let NTP set the clocks of the servers and of the workers' hosts",
			})
		}
	}
	return all
}

func conductorID(f Facts) []Finding {
	if f.Settings.ConductorID != "" {
		return []Finding{holds("", "branches are named for %s", f.Settings.ConductorID)}
	}
	return []Finding{{
		State: Warning, Subject: string(f.Settings.Identity),
		What: "PERAGO_CONDUCTOR_ID is not set, so branches are named for the address of Conductor: a worker that has another way to write it, or a move, makes the branches a stranger's, whom no sweep takes",
		Do:   "set the same PERAGO_CONDUCTOR_ID for all workers of this Conductor, between runs",
	}}
}

// counted is a number of things in words.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
