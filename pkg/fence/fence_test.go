package fence

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"perago/e2e/stack"
	"perago/pkg/credential"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ Lake = (*lakefs.Client)(nil)

// suite is one test on one lakeFS.
type suite struct {
	*testing.T
	client *lakefs.Client
}

// onBoth runs each test on the lakeFS in memory and on the real one.
func onBoth(t *testing.T, tests map[string]func(*suite)) {
	run := func(t *testing.T, client *lakefs.Client) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(&suite{T: t, client: client})
			})
		}
	}
	t.Run("memory", func(t *testing.T) { run(t, lakefstest.NewServer().Client(t)) })
	if stack.Short(t) {
		return
	}
	t.Run("real", func(t *testing.T) { run(t, realClient(t, stack.Require(t))) })
}

func realClient(t *testing.T, servers stack.Servers) *lakefs.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := lakefs.New(lakefs.Config{
		Endpoint: servers.LakeFSURL, AccessKeyID: credential.New(servers.AccessKeyID), SecretAccessKey: credential.New(servers.SecretAccessKey),
	}, transport)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (s *suite) no(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) equal(got, want any) {
	s.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		s.Fatalf("-want +got\n%s", diff)
	}
}

func execution(t testing.TB) txn.ExecutionID {
	t.Helper()
	id, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	return txn.ExecutionID(id.String())
}

func (s *suite) target(repo txn.Repository) Target {
	return Target{Lake: s.client, Repository: repo, Branch: lakefstest.DefaultBranch, Execution: execution(s)}
}

func (s *suite) head(repo txn.Repository) txn.CommitID {
	s.Helper()
	head, err := s.client.Head(s.Context(), repo, lakefstest.DefaultBranch)
	s.no(err)
	return head
}

func (s *suite) tree(repo txn.Repository, commit txn.CommitID) map[string]string {
	s.Helper()
	return lakefstest.Tree(s, s.client, repo, commit)
}

// noProbe holds the repository to having no branch but its default one, hidden
// ones included.
func (s *suite) noProbe(repo txn.Repository) {
	s.Helper()
	branches, err := s.client.Branches(s.Context(), repo, "")
	s.no(err)
	for _, branch := range branches {
		if strings.HasPrefix(string(branch.Name), txn.ProbeBranches) {
			s.Errorf("%s is left behind", branch.Name)
		}
	}
}

// fault is the text of a *FaultError.
func (s *suite) fault(err error, parts ...string) {
	s.Helper()
	var fault *FaultError
	if !errors.As(err, &fault) {
		s.Fatalf("%v is no fault of the fence", err)
	}
	for _, part := range parts {
		if !strings.Contains(fault.Error(), part) {
			s.Errorf("%q is not in %q", part, fault)
		}
	}
}

// commit puts files (content "" removes) on the default branch directly, as
// somebody else would.
func (s *suite) commit(repo txn.Repository, files map[string]string) txn.CommitID {
	s.Helper()
	for path, content := range files {
		if content == "" {
			s.no(s.client.DeleteObjects(s.Context(), repo, lakefstest.DefaultBranch, []string{path}))
			continue
		}
		lakefstest.Put(s, s.client, repo, lakefstest.DefaultBranch, map[string]string{path: content})
	}
	commit, err := s.client.CreateCommit(s.Context(), repo, lakefstest.DefaultBranch, "somebody's", nil)
	s.no(err)
	return commit.ID
}

// on commits files on a branch cut from a commit.
func (s *suite) on(repo txn.Repository, name txn.Branch, at txn.CommitID, files map[string]string) txn.Commit {
	s.Helper()
	s.no(s.client.CreateBranch(s.Context(), repo, name, at))
	lakefstest.Put(s, s.client, repo, name, files)
	commit, err := s.client.CreateCommit(s.Context(), repo, name, "on "+string(name), nil)
	s.no(err)
	return commit
}

// confirm is the merge of a publication, as far as the fence is concerned.
func (s *suite) confirm(repo txn.Repository, source, expected txn.CommitID) txn.Merge {
	return txn.Merge{
		Repository: repo, Source: source, Destination: lakefstest.DefaultBranch, Message: "publish",
		Metadata: txn.ProbeRecord(execution(s), lakefstest.DefaultBranch, expected),
	}
}

// A user's own action, which must outlive ours.
const theirs = "name: theirs\non:\n  pre-merge:\n    branches: [their-*]\nhooks:\n  - id: their_hook\n    type: lua\n    properties:\n      script: print(1)\n"

func TestFence(t *testing.T) {
	t.Parallel()
	onBoth(t, map[string]func(*suite){
		"install, verify, remove": (*suite).cycle,
		"an empty repository":     (*suite).emptyRepository,
		"publications":            (*suite).publications,
		"replace":                 (*suite).replace,
		"a protected branch":      (*suite).protectedBranch,
		"protect":                 (*suite).protect,
		"a dirty branch":          (*suite).dirty,
		"a hook of theirs":        (*suite).theirHook,
		"a race":                  (*suite).race,
		"not there":               (*suite).missing,
		"interrupted":             (*suite).interrupted,
		"somebody else meanwhile": (*suite).meanwhile,
		"an unknown outcome":      (*suite).unknownOutcome,
		"what landed":             (*suite).whatLanded,
	})
}

func (s *suite) cycle() {
	data := map[string]string{"a": "1", "_lakefs_actions/theirs.yaml": theirs}
	repo, first := lakefstest.NewRepository(s, s.client, data)

	_, err := s.target(repo).Verify(s.Context())
	s.fault(err, "main (commit "+first.Short()+") holds no _lakefs_actions/perago-publish-fence.yaml; run `perago fence install lakefs://"+string(repo)+"/main`")
	s.noProbe(repo)
	s.equal(s.head(repo), first)

	change, err := s.target(repo).Install(s.Context(), Options{})
	s.no(err)
	s.equal(change, Change{Action: Installed, Head: s.head(repo), Before: first})
	with := maps.Clone(data)
	with[txn.FenceFile] = string(file)
	s.equal(s.tree(repo, change.Head), with)
	s.noProbe(repo)

	again, err := s.target(repo).Install(s.Context(), Options{})
	s.no(err)
	s.equal(again, Change{Action: Unchanged, Head: change.Head})
	s.equal(s.head(repo), change.Head)

	verified, err := s.target(repo).Verify(s.Context())
	s.no(err)
	s.equal([]any{verified.Head, verified.Version}, []any{change.Head, Version})
	if !strings.HasPrefix(verified.Refused, "perago publish fence: expected perago-probe-") || !strings.HasSuffix(verified.Refused, " at "+string(nowhere)+", found it at "+string(change.Head)) {
		s.Errorf("refused with %q", verified.Refused)
	}
	s.noProbe(repo)
	s.equal(s.head(repo), change.Head)

	removed, err := s.target(repo).Remove(s.Context())
	s.no(err)
	s.equal(removed, Change{Action: Removed, Head: s.head(repo), Before: change.Head})
	s.equal(s.tree(repo, removed.Head), data)
	s.noProbe(repo)

	again, err = s.target(repo).Remove(s.Context())
	s.no(err)
	s.equal(again, Change{Action: Unchanged, Head: removed.Head})
	_, err = s.target(repo).Verify(s.Context())
	s.fault(err, "holds no _lakefs_actions/perago-publish-fence.yaml")
}

// The empty tree has two ids, and taking the only file out leads back to it.
func (s *suite) emptyRepository() {
	repo, _ := lakefstest.NewRepository(s, s.client, nil)
	_, err := s.target(repo).Install(s.Context(), Options{})
	s.no(err)
	_, err = s.target(repo).Verify(s.Context())
	s.no(err)
	removed, err := s.target(repo).Remove(s.Context())
	s.no(err)
	s.equal(s.tree(repo, removed.Head), map[string]string{})
}

// What the installed file does to merges into the branch.
func (s *suite) publications() {
	var loose txn.CommitID
	repo, first := lakefstest.NewRepository(s, s.client, map[string]string{"a": "1"},
		lakefstest.Allow(lakefstest.RuleMetadata), lakefstest.Raced(func() []txn.CommitID { return []txn.CommitID{loose} }))
	before := s.on(repo, "before", first, map[string]string{"before": "1"})
	change, err := s.target(repo).Install(s.Context(), Options{})
	s.no(err)
	staged := s.on(repo, "staged", change.Head, map[string]string{"staged": "1"})

	_, err = s.client.Merge(s.Context(), s.confirm(repo, staged.ID, first))
	if !errors.Is(err, txn.ErrHookRefused) || !strings.Contains(err.Error(), txn.FenceRefusal+" expected main at "+string(first)+", found it at "+string(change.Head)) {
		s.Fatalf("a publication that expects another head: %v", err)
	}
	s.equal(s.head(repo), change.Head)
	wrongBranch := s.confirm(repo, staged.ID, change.Head)
	wrongBranch.Metadata["perago.target_branch"] = "release"
	if _, err = s.client.Merge(s.Context(), wrongBranch); !errors.Is(err, txn.ErrHookRefused) || !strings.Contains(err.Error(), txn.FenceRefusal+" expected a merge into release, found one into main") {
		s.Fatalf("a publication for another branch: %v", err)
	}

	landed, err := s.client.Merge(s.Context(), s.confirm(repo, staged.ID, change.Head))
	s.no(err)
	runs, err := s.client.HookRuns(s.Context(), repo, landed)
	s.no(err)
	s.equal(txn.FenceOf(runs), txn.FenceHard)

	// A merge that is no publication passes, whatever the head.
	passed, err := s.client.Merge(s.Context(), txn.Merge{Repository: repo, Source: s.on(repo, "else", change.Head, map[string]string{"else": "1"}).ID, Destination: lakefstest.DefaultBranch, Message: "somebody's"})
	s.no(err)
	// A source that was cut before the fence was installed does not carry it: the
	// merge expects a head that is gone, and lands.
	loose, err = s.client.Merge(s.Context(), s.confirm(repo, before.ID, first))
	s.no(err)
	commit, err := s.client.Commit(s.Context(), repo, loose)
	s.no(err)
	s.equal(commit.Parents, []txn.CommitID{passed})
	runs, err = s.client.HookRuns(s.Context(), repo, loose)
	s.no(err)
	s.equal(txn.FenceOf(runs), txn.FenceSoft)
}

func (s *suite) replace() {
	repo, _ := lakefstest.NewRepository(s, s.client, map[string]string{"a": "1"})
	for _, c := range []struct{ content, said string }{
		{strings.Replace(string(file), "~= 1", "~= 2", 1), "was edited; run `perago fence install"},
		{strings.Replace(string(file), "version 1", "version 0", 1), "is version 0, and this perago knows version 1; run `perago fence install"},
		{strings.Replace(string(file), "  pre-merge:\n", "  pre-merge:\n    branches: [release-*]\n", 1), "runs only for merges into branches like release-*; run `perago fence install"},
	} {
		put := s.commit(repo, map[string]string{txn.FenceFile: c.content})
		_, err := s.target(repo).Verify(s.Context())
		s.fault(err, txn.FenceFile, c.said)
		change, err := s.target(repo).Install(s.Context(), Options{})
		s.no(err)
		s.equal(change, Change{Action: Replaced, Head: s.head(repo), Before: put})
		_, err = s.target(repo).Verify(s.Context())
		s.no(err)
	}
	newer := s.commit(repo, map[string]string{txn.FenceFile: strings.Replace(string(file), "version 1", "version 2", 1)})
	_, err := s.target(repo).Verify(s.Context())
	s.fault(err, "newer than the version 1")
	_, err = s.target(repo).Install(s.Context(), Options{})
	s.fault(err, "use the perago that installed it")
	s.equal(s.head(repo), newer)
	// Taking it out is allowed: that is what it says.
	_, err = s.target(repo).Remove(s.Context())
	s.no(err)
	s.equal(s.tree(repo, s.head(repo)), map[string]string{"a": "1"})
	s.noProbe(repo)
}

func (s *suite) protectedBranch() {
	// The real server remembers the rules for some seconds, so this one is set
	// before anything is written.
	repo, first := lakefstest.NewRepository(s, s.client, nil)
	_, err := s.client.Protect(s.Context(), repo, lakefstest.DefaultBranch)
	s.no(err)
	if _, err := s.client.Upload(s.Context(), repo, lakefstest.DefaultBranch, txn.FenceFile, lakefstest.Text("x")); !errors.Is(err, txn.ErrForbidden) {
		s.Fatalf("the branch is not protected: %v", err)
	}
	change, err := s.target(repo).Install(s.Context(), Options{})
	s.no(err)
	s.equal(change.Before, first)
	_, err = s.target(repo).Verify(s.Context())
	s.no(err)
	_, err = s.target(repo).Remove(s.Context())
	s.no(err)
	s.equal(s.tree(repo, s.head(repo)), map[string]string{})
	s.noProbe(repo)
}

func (s *suite) protect() {
	repo, _ := lakefstest.NewRepository(s, s.client, nil)
	_, err := s.client.Protect(s.Context(), repo, "theirs")
	s.no(err)
	change, err := s.target(repo).Install(s.Context(), Options{Protect: true})
	s.no(err)
	s.equal([]any{change.Action, change.Protected}, []any{Installed, true})
	change, err = s.target(repo).Install(s.Context(), Options{Protect: true})
	s.no(err)
	s.equal([]any{change.Action, change.Protected}, []any{Unchanged, false})
	added, err := s.client.Protect(s.Context(), repo, "theirs")
	s.no(err)
	s.equal(added, false)
}

func (s *suite) dirty() {
	repo, first := lakefstest.NewRepository(s, s.client, map[string]string{"a": "1"})
	lakefstest.Put(s, s.client, repo, lakefstest.DefaultBranch, map[string]string{"left": "uncommitted"})
	_, err := s.target(repo).Install(s.Context(), Options{})
	if !errors.Is(err, txn.ErrDirtyBranch) {
		s.Fatal(err)
	}
	s.equal(s.head(repo), first)
	s.noProbe(repo)
}

func (s *suite) theirHook() {
	const stubborn = "name: stubborn\non:\n  pre-merge:\nhooks:\n  - id: their_hook\n    type: lua\n    properties:\n      script: if action.commit.metadata[\"perago.phase\"] == \"confirm\" then error(\"not on my watch\") end\n"
	repo, _ := lakefstest.NewRepository(s, s.client, map[string]string{"_lakefs_actions/stubborn.yaml": stubborn})
	_, err := s.target(repo).Install(s.Context(), Options{})
	s.no(err)
	// It refuses the accepted probe; the refused one has both words in its answer.
	_, err = s.target(repo).Verify(s.Context())
	var fault *FaultError
	if err == nil || errors.As(err, &fault) || !strings.Contains(err.Error(), "not on my watch") || !strings.Contains(err.Error(), "a hook of another action") {
		s.Errorf("%v", err)
	}
	s.noProbe(repo)
}

// Many publications from one head: exactly one lands.
func (s *suite) race() {
	repo, _ := lakefstest.NewRepository(s, s.client, map[string]string{"a": "1"}, lakefstest.Allow(lakefstest.RuleMetadata))
	change, err := s.target(repo).Install(s.Context(), Options{})
	s.no(err)
	const count = 8
	merges := make([]txn.Merge, count)
	for i := range merges {
		name := fmt.Sprint(i)
		merges[i] = s.confirm(repo, s.on(repo, txn.Branch("b"+name), change.Head, map[string]string{name: name}).ID, change.Head)
	}
	errs := make([]error, count)
	var wait sync.WaitGroup
	for i := range count {
		wait.Go(func() { _, errs[i] = s.client.Merge(s.Context(), merges[i]) })
	}
	wait.Wait()
	landed := 0
	for _, err := range errs {
		switch {
		case err == nil:
			landed++
		case !errors.Is(err, txn.ErrHookRefused) || !strings.Contains(err.Error(), txn.FenceRefusal):
			s.Errorf("refused otherwise: %v", err)
		}
	}
	s.equal(landed, 1)
	_, reached, err := s.client.History(s.Context(), repo, s.head(repo), change.Head, 1)
	s.no(err)
	s.equal(reached, true)
}

func (s *suite) missing() {
	repo, _ := lakefstest.NewRepository(s, s.client, nil)
	for _, target := range []Target{
		{Lake: s.client, Repository: repo, Branch: "missing", Execution: execution(s)},
		{Lake: s.client, Repository: lakefstest.NewName(s), Branch: "main", Execution: execution(s)},
	} {
		_, install := target.Install(s.Context(), Options{})
		_, verify := target.Verify(s.Context())
		_, remove := target.Remove(s.Context())
		for _, err := range []error{install, verify, remove} {
			if !errors.Is(err, txn.ErrNotFound) {
				s.Errorf("%v", err)
			}
		}
	}
}

// lake is a lakeFS on which something goes wrong.
type lake struct {
	Lake
	merge        func(context.Context, txn.Merge) (txn.CommitID, error)
	createBranch func(context.Context, txn.Repository, txn.Branch, txn.CommitID) error
	deleteBranch func(context.Context, txn.Repository, txn.Branch) error
	hookRuns     func(context.Context, txn.Repository, txn.CommitID) ([]txn.HookRun, error)
}

func (l *lake) Merge(ctx context.Context, m txn.Merge) (txn.CommitID, error) {
	if l.merge != nil {
		return l.merge(ctx, m)
	}
	return l.Lake.Merge(ctx, m)
}

func (l *lake) CreateBranch(ctx context.Context, repo txn.Repository, name txn.Branch, source txn.CommitID) error {
	if l.createBranch != nil {
		return l.createBranch(ctx, repo, name, source)
	}
	return l.Lake.CreateBranch(ctx, repo, name, source)
}

func (l *lake) DeleteBranch(ctx context.Context, repo txn.Repository, name txn.Branch) error {
	if l.deleteBranch != nil {
		return l.deleteBranch(ctx, repo, name)
	}
	return l.Lake.DeleteBranch(ctx, repo, name)
}

func (l *lake) HookRuns(ctx context.Context, repo txn.Repository, commit txn.CommitID) ([]txn.HookRun, error) {
	if l.hookRuns != nil {
		return l.hookRuns(ctx, repo, commit)
	}
	return l.Lake.HookRuns(ctx, repo, commit)
}

// with is a target on a lakeFS on which something goes wrong.
func (s *suite) with(repo txn.Repository, l *lake) Target {
	target := s.target(repo)
	l.Lake = s.client
	target.Lake = l
	return target
}

// The probe branch goes also when the command was interrupted in the middle, and
// when it cannot go it is named.
func (s *suite) interrupted() {
	repo, first := lakefstest.NewRepository(s, s.client, map[string]string{"a": "1"})
	ctx, cancel := context.WithCancel(s.Context())
	_, err := s.with(repo, &lake{merge: func(ctx context.Context, m txn.Merge) (txn.CommitID, error) {
		cancel()
		return "", ctx.Err()
	}}).Install(ctx, Options{})
	if !errors.Is(err, context.Canceled) {
		s.Errorf("%v", err)
	}
	s.noProbe(repo)
	s.equal(s.head(repo), first)

	stuck := s.with(repo, &lake{deleteBranch: func(context.Context, txn.Repository, txn.Branch) error { return txn.ErrForbidden }})
	_, err = stuck.Install(s.Context(), Options{})
	probe := txn.ProbeBranch(stuck.Execution)
	if !errors.Is(err, txn.ErrForbidden) || !strings.Contains(err.Error(), "the hidden branch "+string(probe)+" is left behind") {
		s.Errorf("%v", err)
	}
	// It is there, hidden, and noProbe would have seen it.
	branches, err := s.client.Branches(s.Context(), repo, txn.ProbeBranches)
	s.no(err)
	if len(branches) != 1 || branches[0].Name != probe {
		s.Fatalf("%v", branches)
	}
	s.no(s.client.DeleteBranch(s.Context(), repo, probe))

	// A creation whose answer was lost: the branch is there and goes, or it is not.
	for landed, create := range map[bool]func(context.Context, txn.Repository, txn.Branch, txn.CommitID) error{
		true:  s.client.CreateBranch,
		false: func(context.Context, txn.Repository, txn.Branch, txn.CommitID) error { return nil },
	} {
		_, err = s.with(repo, &lake{createBranch: func(ctx context.Context, repo txn.Repository, name txn.Branch, source txn.CommitID) error {
			return errors.Join(create(ctx, repo, name, source), txn.ErrUnknownOutcome)
		}}).Verify(s.Context())
		if !errors.Is(err, txn.ErrUnknownOutcome) || !strings.Contains(err.Error(), txn.ProbeBranches) || strings.Contains(err.Error(), "left behind") {
			s.Errorf("landed is %v: %v", landed, err)
		}
		s.noProbe(repo)
	}
	// A branch that is there already is somebody else's.
	taken := s.target(repo)
	s.no(s.client.CreateBranch(s.Context(), repo, txn.ProbeBranch(taken.Execution), first))
	if _, err := taken.Verify(s.Context()); !errors.Is(err, txn.ErrExists) {
		s.Errorf("%v", err)
	}
	s.no(s.client.DeleteBranch(s.Context(), repo, txn.ProbeBranch(taken.Execution)))
}

// A commit that comes between is kept, and so is a change to their actions in it.
func (s *suite) meanwhile() {
	repo, _ := lakefstest.NewRepository(s, s.client, map[string]string{"a": "1", "_lakefs_actions/theirs.yaml": theirs})
	var between txn.CommitID
	change, err := s.with(repo, &lake{merge: func(ctx context.Context, m txn.Merge) (txn.CommitID, error) {
		between = s.commit(repo, map[string]string{"b": "2", "_lakefs_actions/theirs.yaml": "", "_lakefs_actions/more.yaml": theirs})
		return s.client.Merge(ctx, m)
	}}).Install(s.Context(), Options{})
	s.no(err)
	s.equal(change, Change{Action: Installed, Head: s.head(repo), Before: between})
	s.equal(s.tree(repo, change.Head), map[string]string{"a": "1", "b": "2", "_lakefs_actions/more.yaml": theirs, txn.FenceFile: string(file)})
}

func (s *suite) unknownOutcome() {
	repo, _ := lakefstest.NewRepository(s, s.client, map[string]string{"a": "1"})
	_, err := s.with(repo, &lake{merge: func(ctx context.Context, m txn.Merge) (txn.CommitID, error) {
		_, err := s.client.Merge(ctx, m)
		return "", errors.Join(err, txn.ErrUnknownOutcome)
	}}).Install(s.Context(), Options{})
	if !errors.Is(err, txn.ErrUnknownOutcome) || !strings.Contains(err.Error(), "whether it landed is not known; run `perago fence verify lakefs://"+string(repo)+"/main` to see") {
		s.Errorf("%v", err)
	}
	s.noProbe(repo)
	// It had landed, and so another installation has nothing to do.
	change, err := s.target(repo).Install(s.Context(), Options{})
	s.no(err)
	s.equal(change.Action, Unchanged)
}

// A merge that landed as something else is told.
func (s *suite) whatLanded() {
	for name, c := range map[string]struct {
		// source is what is merged in the place of what was asked.
		files  map[string]string
		remove string
		said   string
	}{
		"another file":       {map[string]string{txn.FenceFile: "name: fence\non:\n  pre-merge:\n"}, "", "its tree is not the one that was merged"},
		"their action":       {map[string]string{txn.FenceFile: string(file), "_lakefs_actions/more.yaml": theirs}, "", "its tree is not the one that was merged"},
		"on another one":     {map[string]string{txn.FenceFile: string(file), "_lakefs_actions/more.yaml": theirs}, "", "it changed other files in _lakefs_actions/"},
		"no file on it":      {map[string]string{"b": "2"}, "", "_lakefs_actions/perago-publish-fence.yaml cannot be read"},
		"a wrong file on it": {map[string]string{txn.FenceFile: "name: fence\non:\n  pre-merge:\n"}, "", "_lakefs_actions/perago-publish-fence.yaml is not what was put there"},
	} {
		s.Logf("%s", name)
		repo, first := lakefstest.NewRepository(s, s.client, map[string]string{"a": "1"})
		source := s.on(repo, "wrong", first, c.files)
		_, err := s.with(repo, &lake{merge: func(ctx context.Context, m txn.Merge) (txn.CommitID, error) {
			if strings.HasSuffix(name, "on it") || strings.HasPrefix(name, "on ") {
				s.commit(repo, map[string]string{"c": "3"})
			}
			m.Source = source.ID
			return s.client.Merge(ctx, m)
		}}).Install(s.Context(), Options{})
		if err == nil || !strings.Contains(err.Error(), c.said) || !strings.Contains(err.Error(), "the merge landed on main as "+string(s.head(repo))) {
			s.Errorf("%s: %v", name, err)
		}
	}
	repo, _ := lakefstest.NewRepository(s, s.client, map[string]string{"a": "1"})
	change, err := s.target(repo).Install(s.Context(), Options{})
	s.no(err)
	source := s.on(repo, "wrong", change.Head, map[string]string{"b": "2"})
	_, err = s.with(repo, &lake{merge: func(ctx context.Context, m txn.Merge) (txn.CommitID, error) {
		s.commit(repo, map[string]string{"c": "3"})
		m.Source = source.ID
		return s.client.Merge(ctx, m)
	}}).Remove(s.Context())
	if err == nil || !strings.Contains(err.Error(), "is still there") {
		s.Errorf("%v", err)
	}
}
