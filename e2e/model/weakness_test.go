package model

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"time"

	"perago/pkg/cleanup"
	"perago/pkg/publish"
	"perago/pkg/txn"
	"perago/pkg/worker"
)

// weakness is one protection removed, by something put around a port that makes
// the code read what it would have to read to do without. The zero value removes
// none.
type weakness struct {
	ofConductor   func(*conductorPort) worker.Conductor
	ofAttempt     func(*conductorPort, *worker.Attempt) attempt
	ofTask        func(txn.Task) txn.Task
	ofPublishLake func(lakePort, txn.Task) publish.Lake
	ofTasks       func(*conductorPort) publish.Tasks
	ofCleanupLake func(lakePort) cleanup.Lake
}

// attempt is what all three use cases need of the worker.
type attempt interface {
	publish.Attempt
	Expect(objects int, bytes int64) (done func(objects int, bytes int64))
}

func (w weakness) conductor(p *conductorPort) worker.Conductor {
	if w.ofConductor == nil {
		return p
	}
	return w.ofConductor(p)
}

func (w weakness) attempt(p *conductorPort, a *worker.Attempt) attempt {
	if w.ofAttempt == nil {
		return a
	}
	return w.ofAttempt(p, a)
}

func (w weakness) task(t txn.Task) txn.Task {
	if w.ofTask == nil {
		return t
	}
	return w.ofTask(t)
}

func (w weakness) publishLake(p lakePort, t txn.Task) publish.Lake {
	if w.ofPublishLake == nil {
		return p
	}
	return w.ofPublishLake(p, t)
}

func (w weakness) tasks(p *conductorPort) publish.Tasks {
	if w.ofTasks == nil {
		return p
	}
	return w.ofTasks(p)
}

func (w weakness) cleanupLake(p lakePort) cleanup.Lake {
	if w.ofCleanupLake == nil {
		return p
	}
	return w.ofCleanupLake(p)
}

// lyingLake tells something else about commits than what they are.
type lyingLake struct {
	lakePort
	// of is what it tells of one commit, above what it tells of some.
	of    func(txn.Commit) txn.Commit
	above func([]txn.Commit) []txn.Commit
}

func (l lyingLake) Commit(ctx context.Context, repo txn.Repository, id txn.CommitID) (txn.Commit, error) {
	c, err := l.lakePort.Commit(ctx, repo, id)
	if err == nil && l.of != nil {
		c = l.of(c)
	}
	return c, err
}

func (l lyingLake) History(ctx context.Context, repo txn.Repository, from, stopAt txn.CommitID, limit int) ([]txn.Commit, bool, error) {
	commits, reached, err := l.lakePort.History(ctx, repo, from, stopAt, limit)
	if err == nil && l.above != nil {
		commits = l.above(commits)
	}
	return commits, reached, err
}

func isConfirm(c txn.Commit) bool { return c.Metadata["perago.phase"] == "confirm" }

// each makes of a function of one commit one of several.
func each(of func(txn.Commit) txn.Commit) func([]txn.Commit) []txn.Commit {
	return func(commits []txn.Commit) []txn.Commit {
		var all []txn.Commit
		for _, c := range commits {
			all = append(all, of(c))
		}
		return all
	}
}

// withoutParentCheck: every confirm commit stands where it was meant to.
var withoutParentCheck = weakness{ofPublishLake: func(p lakePort, _ txn.Task) publish.Lake {
	return lyingLake{lakePort: p, of: func(c txn.Commit) txn.Commit {
		if isConfirm(c) {
			c.Parents = []txn.CommitID{txn.CommitID(c.Metadata["perago.expected_head"])}
		}
		return c
	}}
}}

// withoutCleanRange: nobody else has committed.
var withoutCleanRange = weakness{ofPublishLake: func(p lakePort, _ txn.Task) publish.Lake {
	return lyingLake{lakePort: p, above: func(commits []txn.Commit) []txn.Commit {
		var ours []txn.Commit
		for _, c := range commits {
			if isConfirm(c) {
				ours = append(ours, c)
			}
		}
		return ours
	}}
}}

func (p lakePort) treeOf(id txn.CommitID) txn.MetaRangeID {
	c, _ := p.Commit(context.Background(), repository, id)
	return c.MetaRange
}

// withoutTreeComparison: every confirm commit has the tree that was staged for it.
var withoutTreeComparison = weakness{ofPublishLake: func(p lakePort, _ txn.Task) publish.Lake {
	of := func(c txn.Commit) txn.Commit {
		if isConfirm(c) {
			c.MetaRange = p.treeOf(txn.CommitID(c.Metadata["perago.staging_commit"]))
		}
		return c
	}
	return lyingLake{lakePort: p, of: of, above: each(of)}
}}

// withoutStagingIdentity: whatever has the wanted tree is of this staging.
var withoutStagingIdentity = weakness{ofPublishLake: func(p lakePort, t txn.Task) publish.Lake {
	staged, err := txn.StagedOf(t)
	if err != nil {
		panic(err)
	}
	return lyingLake{lakePort: p, above: each(func(c txn.Commit) txn.Commit {
		if isConfirm(c) && c.MetaRange == p.treeOf(staged.Commit) {
			changed := maps.Clone(c.Metadata)
			changed["perago.staging_execution_id"] = string(staged.Execution)
			c.Metadata = changed
		}
		return c
	})}
}}

// lyingConductor makes a worker's own task look like the one that it polled.
type lyingConductor struct {
	*conductorPort
	when func(*conductorPort) bool
	// status is that of a task in progress, whatever it is.
	status bool
}

func (l lyingConductor) Task(ctx context.Context, id txn.TaskID) (txn.Task, error) {
	t, err := l.conductorPort.Task(ctx, id)
	if id != l.attempt.Task || !l.when(l.conductorPort) {
		return t, err
	}
	if l.status {
		t.ID, t.Workflow, t.RetryCount, t.Status, err = id, l.attempt.Workflow, l.attempt.RetryCount, txn.TaskInProgress, nil
	}
	t.Worker, t.PollCount, t.StartTime = l.attempt.Worker, l.attempt.PollCount, l.attempt.StartTime
	return t, err
}

// withoutPollIdentity: worker, poll count and start time are always those polled.
var withoutPollIdentity = weakness{ofConductor: func(p *conductorPort) worker.Conductor {
	return lyingConductor{conductorPort: p, when: func(*conductorPort) bool { return true }}
}}

// withoutSilence: an attempt that turns out stale fails as with any other error,
// and its failure is reported.
var withoutSilence = weakness{
	ofAttempt: func(p *conductorPort, a *worker.Attempt) attempt { return loudAttempt{a, p} },
	ofConductor: func(p *conductorPort) worker.Conductor {
		return lyingConductor{conductorPort: p, status: true, when: func(p *conductorPort) bool { return p.loud }}
	},
}

type loudAttempt struct {
	*worker.Attempt
	port *conductorPort
}

func (l loudAttempt) Cover(ctx context.Context, _ time.Duration) error { return l.Current(ctx) }

func (l loudAttempt) Current(ctx context.Context) error {
	err := func() error {
		now, err := l.port.Task(ctx, l.port.attempt.Task)
		if err != nil {
			return err
		}
		status, err := l.port.WorkflowStatus(ctx, l.port.attempt.Workflow)
		if err != nil {
			return err
		}
		return l.port.attempt.Current(now, status)
	}()
	if err != nil {
		l.port.loud = true
		return errors.New("no longer current: " + err.Error())
	}
	return nil
}

// withoutUpstreamCheck: whoever completed the stage task, it is the one that was
// polled last.
var withoutUpstreamCheck = weakness{ofTasks: func(p *conductorPort) publish.Tasks {
	return lyingTasks{p, func(t txn.Task) txn.Task {
		staged := stagedBy(t)
		t.RetryCount, t.PollCount, t.StartTime = staged.RetryCount, staged.PollCount, staged.StartTime
		return t
	}}
}}

// withoutStartTime: the upstream check knows a poll by the retry count and the poll
// count alone.
var withoutStartTime = weakness{ofTasks: func(p *conductorPort) publish.Tasks {
	return lyingTasks{p, func(t txn.Task) txn.Task {
		t.StartTime = stagedBy(t).StartTime
		return t
	}}
}}

// stagedBy is what the output of a stage task says; of another one, nothing.
func stagedBy(t txn.Task) txn.Staged {
	var output struct {
		Staged txn.Staged `json:"staged"`
	}
	_ = json.Unmarshal(t.Output, &output)
	return output.Staged
}

type lyingTasks struct {
	*conductorPort
	of func(txn.Task) txn.Task
}

func (l lyingTasks) Task(ctx context.Context, id txn.TaskID) (txn.Task, error) {
	t, err := l.conductorPort.Task(ctx, id)
	if err == nil {
		t = l.of(t)
	}
	return t, err
}

// withoutEmptyConfirm: stage and publish are always at their first try, and no
// execution has left a branch; so a no-op never commits anything.
var withoutEmptyConfirm = weakness{
	ofTask:  atFirstTry,
	ofTasks: func(p *conductorPort) publish.Tasks { return lyingTasks{p, atFirstTry} },
	ofPublishLake: func(p lakePort, _ txn.Task) publish.Lake {
		return blindLake{p}
	},
}

func atFirstTry(t txn.Task) txn.Task {
	t.RetryCount, t.PollCount = 0, 1
	for _, document := range []*json.RawMessage{&t.Input, &t.Output} {
		var fields map[string]any
		if json.Unmarshal(*document, &fields) != nil {
			continue
		}
		if staged, ok := fields["staged"].(map[string]any); ok && staged["staging_branch"] == "" {
			staged["retry_count"], staged["poll_count"] = 0, 1
			*document, _ = json.Marshal(fields)
		}
	}
	return t
}

type blindLake struct{ lakePort }

func (blindLake) Branches(context.Context, txn.Repository, string) ([]txn.BranchHead, error) {
	return nil, nil
}

// withoutListFirst: publish reads the head before it lists the branches.
var withoutListFirst = weakness{ofPublishLake: func(p lakePort, _ txn.Task) publish.Lake { return &headFirstLake{lakePort: p} }}

// headFirstLake reads the head at the listing, and answers the next question for
// the head with it.
type headFirstLake struct {
	lakePort
	head txn.CommitID
}

func (l *headFirstLake) Branches(ctx context.Context, repo txn.Repository, prefix string) ([]txn.BranchHead, error) {
	head, err := l.lakePort.Head(ctx, repo, target)
	if err != nil {
		return nil, err
	}
	l.head = head
	return l.lakePort.Branches(ctx, repo, prefix)
}

func (l *headFirstLake) Head(ctx context.Context, repo txn.Repository, branch txn.Branch) (txn.CommitID, error) {
	if head := l.head; head != "" {
		l.head = ""
		return head, nil
	}
	return l.lakePort.Head(ctx, repo, branch)
}

// withoutMark: a source branch is only made for a commit on it.
var withoutMark = weakness{ofPublishLake: func(p lakePort, _ txn.Task) publish.Lake { return &unmarkedLake{lakePort: p} }}

type unmarkedLake struct {
	lakePort
	at map[txn.Branch]txn.CommitID
}

func (l *unmarkedLake) CreateBranch(_ context.Context, _ txn.Repository, name txn.Branch, source txn.CommitID) error {
	if l.at == nil {
		l.at = map[txn.Branch]txn.CommitID{}
	}
	l.at[name] = source
	return nil
}

func (l *unmarkedLake) CommitTree(ctx context.Context, repo txn.Repository, branch txn.Branch, tree txn.MetaRangeID, message string, metadata map[string]string) (txn.Commit, error) {
	if err := l.lakePort.CreateBranch(ctx, repo, branch, l.at[branch]); err != nil {
		return txn.Commit{}, err
	}
	return l.lakePort.CommitTree(ctx, repo, branch, tree, message, metadata)
}

// withoutSettled: cleanup asks the tasks alone. Whatever a branch holds, the
// target shows it published.
var withoutSettled = weakness{ofCleanupLake: func(p lakePort) cleanup.Lake { return &credulousLake{lakePort: p} }}

// credulousLake answers for the target with a publication of the commit that was
// read last.
type credulousLake struct {
	lakePort
	staged txn.Commit
}

var credulous = txn.CommitID(strings.Repeat("c", 64))

func (l *credulousLake) Commit(ctx context.Context, repo txn.Repository, id txn.CommitID) (txn.Commit, error) {
	c, err := l.lakePort.Commit(ctx, repo, id)
	l.staged = c
	return c, err
}

func (l *credulousLake) Head(context.Context, txn.Repository, txn.Branch) (txn.CommitID, error) {
	return credulous, nil
}

func (l *credulousLake) History(_ context.Context, _ txn.Repository, _, below txn.CommitID, _ int) ([]txn.Commit, bool, error) {
	record, err := txn.ParseRecord(l.staged.Metadata)
	if err != nil {
		return nil, true, nil
	}
	record.Phase = txn.PhaseConfirm
	record.StagingCommit, record.StagingExecution, record.SourceCommit, record.ExpectedHead = l.staged.ID, record.Execution, l.staged.ID, below
	return []txn.Commit{{ID: credulous, Parents: []txn.CommitID{below}, MetaRange: l.staged.MetaRange, Metadata: record.Metadata("")}}, true, nil
}
