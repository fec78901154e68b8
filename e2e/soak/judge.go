package main

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"perago/e2e/fleet"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// verdict is what became of a run.
type verdict struct {
	seed         uint64
	operations   *counter
	injected     *counter
	publications int
	counts       map[string]int
	notes        []string
	problems     []string
}

// The kinds of problem. A violation is what no other says.
const (
	lost        = "lost"
	duplicated  = "duplicated"
	overwritten = "foreign overwritten"
	orphan      = "orphan"
	violation   = "violation"
)

func (v *verdict) report(kind, format string, arguments ...any) {
	if v.counts == nil {
		v.counts = map[string]int{}
	}
	v.counts[kind]++
	v.problems = append(v.problems, kind+": "+fmt.Sprintf(format, arguments...))
}

func (v *verdict) note(format string, arguments ...any) {
	v.notes = append(v.notes, fmt.Sprintf(format, arguments...))
}

func (v *verdict) clean() bool { return len(v.problems) == 0 }

func (v *verdict) print(out io.Writer) {
	for _, problem := range v.problems {
		fmt.Fprintln(out, "soak:", problem)
	}
	for _, note := range v.notes {
		fmt.Fprintln(out, "soak:", note)
	}
	fmt.Fprintln(out, "soak: done:", v.operations)
	fmt.Fprintln(out, "soak: injected:", v.injected)
	fmt.Fprintln(out, "soak: seed", v.seed)
	other := ""
	if n := v.counts[violation]; n > 0 {
		other = fmt.Sprintf(", %d other violations", n)
	}
	fmt.Fprintf(out, "soak: %d publications, %d lost, %d duplicated, %d foreign overwritten, %d orphans%s\n",
		v.publications, v.counts[lost], v.counts[duplicated], v.counts[overwritten], v.counts[orphan], other)
}

// sweep lets the sweeps remove what is left: branches by the command, directories by
// a stage worker that has no patience.
func (s *soak) sweep(ctx context.Context, v *verdict) error {
	for _, m := range s.members {
		if err := m.Stop(40 * time.Second); err != nil {
			v.report(violation, "%v", err)
		}
	}
	for _, repository := range s.repositories() {
		before, err := s.lake.Branches(ctx, repository, txn.BranchNamespace)
		if err != nil {
			return err
		}
		v.note("%s: %d branches were left to the sweep", repository, len(before))
		command := exec.CommandContext(ctx, filepath.Join(s.binaries, "perago"), "sweep", "--repository", string(repository))
		command.Env = append(append(fleet.Env(s.servers.Servers), s.env()...), "PERAGO_SWEEP_TTL=0s")
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("perago sweep: %w\n%s", err, out)
		}
		left, err := s.lake.Branches(ctx, repository, txn.BranchNamespace)
		if err != nil {
			return err
		}
		for _, branch := range left {
			v.report(orphan, "%s of %s", branch.Name, repository)
		}
	}
	stage := s.members[0]
	if stage.Worker != fleet.Stage {
		return fmt.Errorf("the first member is a %s-worker", stage.Worker)
	}
	if err := stage.Start("PERAGO_SWEEP_TTL=0s", "PERAGO_SWEEP_INTERVAL=1s"); err != nil {
		return err
	}
	var names []os.DirEntry
	var looked time.Time
	_ = wait(ctx, time.Minute, 200*time.Millisecond, func() (done bool, err error) {
		if names, err = os.ReadDir(s.root); err != nil || len(names) == 0 {
			return true, err
		}
		// A workflow whose start was not answered has no driver, and Conductor, killed
		// between the end of its last task and its own, does not see that it is over.
		if time.Since(looked) > 5*time.Second {
			looked = time.Now()
			for _, name := range names {
				_ = s.operator.Decide(ctx, txn.WorkflowID(name.Name())) // it may be over
			}
		}
		return false, nil
	}) // what is left is reported
	for _, name := range names {
		v.report(orphan, "the directory %s", filepath.Join(s.root, name.Name()))
	}
	return stage.Stop(40 * time.Second)
}

// kinds are the rules of the checker as the closing line has them.
var kinds = map[lakefstest.Rule]string{
	lakefstest.RuleOnce:     duplicated,
	lakefstest.RuleForeign:  overwritten,
	lakefstest.RuleParent:   overwritten,
	lakefstest.RuleBranches: orphan,
}

// judge holds every branch to the rules, and the two servers to each other.
func (s *soak) judge(ctx context.Context, v *verdict) error {
	histories := map[target]map[txn.CommitID]txn.Commit{}
	for _, t := range s.targets {
		found, err := lakefstest.Violations(ctx, s.lake, t.repository, t.branch, t.first)
		if err != nil {
			return err
		}
		for _, one := range found {
			kind, ok := kinds[one.Rule]
			if !ok {
				kind = violation
			}
			if one.Rule != lakefstest.RuleBranches { // those are reported once
				v.report(kind, "%s: %s", t, one)
			}
		}
		head, err := s.lake.Head(ctx, t.repository, t.branch)
		if err != nil {
			return err
		}
		// The checker has said so where it does not reach the first one.
		commits, _, err := s.lake.History(ctx, t.repository, head, t.first, 20_000)
		if err != nil {
			return err
		}
		known := map[txn.CommitID]txn.Commit{t.first: {ID: t.first}}
		for _, commit := range commits {
			known[commit.ID] = commit
			if commit.Metadata["perago.phase"] != "confirm" {
				continue
			}
			v.publications++
			if task := txn.TaskID(commit.Metadata["perago.task_id"]); !s.record.polled[task] {
				v.report(violation, "%s: %s is of task %s, which no worker was seen to get", t, commit.ID.Short(), task)
			}
		}
		histories[t] = known
	}
	for _, c := range slices.SortedFunc(maps.Keys(s.record.claims), func(a, b claim) int { return strings.Compare(string(a.task), string(b.task)) }) {
		if err := s.hold(ctx, v, c, histories[c.target]); err != nil {
			return err
		}
	}
	v.note("%d completed publish tasks were held to their branch and to the files of their user's task", len(s.record.claims))
	if v.publications == 0 || len(s.record.claims) == 0 {
		v.report(violation, "nothing was published")
	}
	return nil
}

// hold compares what a completed publish task says with its branch.
func (s *soak) hold(ctx context.Context, v *verdict, c claim, history map[txn.CommitID]txn.Commit) error {
	report := func(format string, arguments ...any) {
		v.report(lost, "publish task %s of workflow %s (%s): %s", c.task, c.workflow, c.target, fmt.Sprintf(format, arguments...))
	}
	if c.unread != "" {
		report("%s", c.unread)
		return nil
	}
	if _, there := history[c.commit]; !there {
		report("it names %s, which is not on its branch", c.commit)
		return nil
	}
	wanted := map[string]string{}
	files, ok := s.record.files[c.directory]
	if !ok {
		report("it published %s, which no user's task was seen to write", c.directory)
		return nil
	}
	for path, content := range files {
		sum := md5.Sum([]byte(content))
		wanted[string(c.prefix)+path] = hex.EncodeToString(sum[:])
	}
	got := map[string]string{}
	for entry, err := range s.lake.Objects(ctx, c.target.repository, c.commit, c.prefix) {
		if err != nil {
			return err
		}
		got[entry.Path] = entry.Checksum
	}
	if !maps.Equal(got, wanted) {
		report("%s holds %v below %s, and the user's task wrote %v", c.commit, got, c.prefix, wanted)
	}
	commit, err := s.lake.Commit(ctx, c.target.repository, c.commit)
	if err != nil {
		return err
	}
	staged, err := s.lake.Commit(ctx, c.target.repository, c.staged)
	if err != nil {
		return err
	}
	if commit.MetaRange != staged.MetaRange {
		report("%s has another tree than %s, which was staged", c.commit, c.staged)
	}
	return nil
}
