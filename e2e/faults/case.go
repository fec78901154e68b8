package main

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/fault"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// outcome is what became of one case.
type outcome struct {
	planned planned
	// completed, or failed closed.
	completed bool
	problems  []problem
	took      time.Duration
	workflow  txn.Workflow
	// failure is the failure workflow, if there was one.
	failure txn.Workflow
	log     string
}

// problem is something that must not be.
type problem struct {
	kind trouble
	text string
}

type trouble string

const (
	lost       trouble = "lost"
	duplicated trouble = "duplicated"
	violation  trouble = "violation"
)

// patience is how long a case may take.
const patience = 2 * time.Minute

// files are what the nth case of a lane publishes: of what the one before
// published one file stays, one changes and one goes.
func files(n int) map[string]string {
	return map[string]string{"same": "always the same", "changing": fmt.Sprint(n), fmt.Sprintf("only-%d", n): "of this case"}
}

// clean runs the chain as it is and gives its requests.
func (l *lane) clean(ctx context.Context, of flow) ([]request, error) {
	got, err := l.chain(ctx, of, nil)
	if err != nil {
		return nil, err
	}
	if !got.completed || len(got.problems) > 0 {
		return nil, fmt.Errorf("the %s chain without any fault: %v\n%s\n%s", of, got.problems, describe(got.workflow), got.log)
	}
	var all []request
	for _, w := range workers {
		for _, s := range []server{toConductor, toLakeFS} {
			all = append(all, requestsOf(of, w, s, l.fleet[w].proxy(s).Log())...)
		}
	}
	return all, nil
}

// run is one case.
func (l *lane) run(ctx context.Context, p planned) (outcome, error) { return l.chain(ctx, p.flow, &p) }

// chain runs a chain once, with p's fault in it unless p is nil, and judges what
// came of it. An error is a run that says nothing about the workers.
func (l *lane) chain(ctx context.Context, of flow, p *planned) (got outcome, err error) {
	began := time.Now()
	if p != nil {
		got.planned = *p
	}
	head, err := l.lake.Head(ctx, l.repo, lakefstest.DefaultBranch)
	if err != nil {
		return got, err
	}
	var id txn.WorkflowID
	var passes []map[string]string
	if of == again {
		if got.workflow, err = l.firstPass(ctx, head); err != nil {
			return got, err
		}
		id = got.workflow.ID
		if got.workflow.Status != txn.WorkflowCompleted {
			got.report(lost, "the first pass, which no fault met, is %s", got.workflow.Status)
			got.log = l.logOf(id)
			return got, nil
		}
		passes = append(passes, files(l.cases))
	}
	l.cases++
	passes = append(passes, files(l.cases))

	for _, m := range l.fleet {
		if p != nil && m.Worker == p.worker {
			m.gate.Drain()
		}
		m.forget()
	}
	if of == again {
		err = l.rerun(ctx, id)
	} else {
		id, err = l.start(ctx, head)
	}
	if err != nil {
		return got, err
	}
	if err := l.prepare(ctx, passes[len(passes)-1]); err != nil {
		return got, fmt.Errorf("the user task of %s: %w", id, err)
	}
	var hold, second *fault.Hold
	killed := make(chan error, 1)
	if p != nil {
		target := l.fleet[p.worker]
		if err := l.scheduled(ctx, id, referenceOf(p.worker)); err != nil {
			return got, fmt.Errorf("workflow %s: no task for %s-worker: %w", id, p.worker, err)
		}
		hold = l.aim(ctx, target, *p, killed)
		if p.second != nil {
			second = l.fleet[p.second.worker].proxy(p.second.server).Arm(p.second.match(), p.second.fault)
		}
		target.gate.Open()
	}
	if err := l.end(ctx, id, &got); err != nil {
		got.report(lost, "the workflow does not end: %v", err)
		_ = l.operator.Terminate(ctx, id, "the case is over") // for the next case's sake
	}
	if p != nil && l.landed(ctx, &got, hold) && p.kill != "" {
		if err := <-killed; err != nil {
			return got, err
		}
	}
	if second != nil && met(second) {
		l.landed(ctx, &got, second)
	}
	for _, m := range l.fleet {
		if err := m.idle(ctx); err != nil {
			got.report(violation, "%s-worker does not poll any more: %v", m.Worker, err)
		}
	}
	if err := l.judge(ctx, &got, head, passes...); err != nil {
		return got, err
	}
	got.took = time.Since(began)
	if len(got.problems) > 0 {
		got.log = l.logOf(id)
	}
	return got, nil
}

// firstPass publishes a step once, before it is run again.
func (l *lane) firstPass(ctx context.Context, head txn.CommitID) (txn.Workflow, error) {
	l.cases++
	var first outcome
	id, err := l.start(ctx, head)
	if err != nil {
		return first.workflow, err
	}
	if err := l.prepare(ctx, files(l.cases)); err != nil {
		return first.workflow, err
	}
	if err := l.end(ctx, id, &first); err != nil {
		return first.workflow, err
	}
	for _, m := range l.fleet {
		if err := m.idle(ctx); err != nil {
			return first.workflow, err
		}
	}
	return first.workflow, nil
}

// rerun runs a workflow that has ended once more from its user task on.
func (l *lane) rerun(ctx context.Context, id txn.WorkflowID) error {
	workflow, err := l.conductor.Workflow(ctx, id)
	if err != nil {
		return err
	}
	user := last(workflow, "user")
	if user == nil {
		return fmt.Errorf("no user task in %s", describe(workflow))
	}
	return l.operator.RerunPolled(ctx, id, user.ID)
}

func (m *member) forget() {
	m.Conductor.Forget()
	m.LakeFS.Forget()
}

func (o *outcome) report(kind trouble, format string, arguments ...any) {
	o.problems = append(o.problems, problem{kind, fmt.Sprintf(format, arguments...)})
}

// start starts a workflow on the head of the branch.
func (l *lane) start(ctx context.Context, head txn.CommitID) (txn.WorkflowID, error) {
	input, err := json.Marshal(object{"workspace": object{
		"repository": l.repo, "branch": lakefstest.DefaultBranch, "ref_type": "commit", "ref": head,
	}})
	if err != nil {
		return "", err
	}
	return l.conductor.StartWorkflow(ctx, conductor.StartRequest{
		Name: chainOf(l.once), Version: 1, Input: input, TaskToDomain: map[string]string{"*": l.name},
	})
}

// prepare is the user's worker: it does one task.
func (l *lane) prepare(ctx context.Context, files map[string]string) error {
	return wait(ctx, patience, 20*time.Millisecond, func() (bool, error) {
		tasks, err := l.conductor.Poll(ctx, txn.PollRequest{Type: userTask, Domain: l.name, Worker: "user", Count: 1})
		if err != nil || len(tasks) == 0 {
			return false, err
		}
		directory := filepath.Join(l.root, string(tasks[0].Workflow), string(tasks[0].ID))
		if err := write(directory, files); err != nil {
			return false, err
		}
		return true, l.conductor.Update(ctx, txn.TaskResult{
			Task: tasks[0].ID, Workflow: tasks[0].Workflow, Worker: "user", Status: txn.TaskCompleted, Output: object{"directory": directory},
		})
	})
}

// scheduled waits for a task, which nobody takes while its worker's gate is
// closed.
func (l *lane) scheduled(ctx context.Context, id txn.WorkflowID, reference txn.ReferenceName) error {
	workflow, err := l.follow(ctx, id, func(workflow txn.Workflow) bool {
		return workflow.Status.Terminal() || last(workflow, reference) != nil
	})
	if err == nil && last(workflow, reference) == nil {
		err = fmt.Errorf("it has ended before: %s", describe(workflow))
	}
	return err
}

// aim puts the case's fault at its request, or a kill.
func (l *lane) aim(ctx context.Context, target *member, p planned, killed chan<- error) *fault.Hold {
	proxy := target.proxy(p.server)
	if p.kill == "" {
		return proxy.Arm(p.match(), p.fault)
	}
	hold := proxy.Hold
	if p.kill == after {
		hold = proxy.HoldAnswer
	}
	held := hold(p.match())
	go func() {
		select {
		case <-held.Arrived():
		case <-ctx.Done():
			killed <- ctx.Err()
			return
		}
		err := target.Kill()
		if p.kill != underWay {
			held.Drop()
		}
		if err == nil {
			err = target.Start()
		}
		killed <- err
		if p.kill == underWay {
			time.Sleep(p.lands)
			held.Pass()
		}
	}()
	return held
}

func met(hold *fault.Hold) bool {
	select {
	case <-hold.Arrived():
		return true
	default:
		return false
	}
}

// landed waits until the server has done with what was late; false is a fault
// that met nothing.
func (l *lane) landed(ctx context.Context, got *outcome, hold *fault.Hold) bool {
	within := time.NewTimer(l.meets)
	defer within.Stop()
	for _, come := range []<-chan struct{}{hold.Arrived(), hold.Over()} {
		select {
		case <-come:
		case <-ctx.Done():
			return false
		case <-within.C:
			got.report(violation, "the fault never met its request")
			return false
		}
	}
	return true
}

// end waits for the workflow and for the failure workflow it started, if any.
func (l *lane) end(ctx context.Context, id txn.WorkflowID, got *outcome) (err error) {
	over := func(workflow txn.Workflow) bool { return workflow.Status.Terminal() }
	if got.workflow, err = l.follow(ctx, id, over); err != nil || got.workflow.Status == txn.WorkflowCompleted {
		return err
	}
	var named struct {
		Failure txn.WorkflowID `json:"conductor.failure_workflow"`
	}
	if err := wait(ctx, patience, 50*time.Millisecond, func() (bool, error) {
		// Conductor says FAILED a moment before it names the failure workflow.
		workflow, err := l.conductor.Workflow(ctx, id)
		if err == nil && len(workflow.Output) > 0 {
			err = json.Unmarshal(workflow.Output, &named)
		}
		return named.Failure != "", err
	}); err != nil {
		return fmt.Errorf("no failure workflow: %w", err)
	}
	if got.failure, err = l.follow(ctx, named.Failure, over); err != nil {
		return fmt.Errorf("the failure workflow: %w", err)
	}
	if got.failure.Status != txn.WorkflowCompleted {
		got.report(violation, "the failure workflow: %s", describe(got.failure))
	}
	return nil
}

// follow reads a workflow until it is as wanted. Conductor's own look at timeouts
// is late by up to a minute, so it is asked to look, but only while nothing
// happens: two looks at once are one too many for it.
func (l *lane) follow(ctx context.Context, id txn.WorkflowID, until func(txn.Workflow) bool) (workflow txn.Workflow, err error) {
	seen, since := "", time.Now()
	err = wait(ctx, patience, 150*time.Millisecond, func() (bool, error) {
		var err error
		if workflow, err = l.conductor.Workflow(ctx, id); err != nil {
			return false, err
		}
		if until(workflow) {
			return true, nil
		}
		switch now := describe(workflow); {
		case now != seen:
			seen, since = now, time.Now()
		case time.Since(since) > 2*time.Second:
			since = time.Now()
			err := l.operator.Decide(ctx, id)
			if refused := (*conductortest.StatusError)(nil); errors.As(err, &refused) {
				err = nil // it has just ended
			}
			return false, err
		}
		return false, nil
	})
	return workflow, err
}

// output is what our tasks put out, as far as it is looked at.
type output struct {
	Workspace   *txn.Workspace   `json:"workspace"`
	Publication *txn.Publication `json:"publication"`
	Kept        []struct {
		Branch txn.Branch `json:"branch"`
		Reason string     `json:"reason"`
	} `json:"kept"`
	Errors []any `json:"errors"`
}

// judge compares what the lake and Conductor hold with what has to be: from the
// commit from on, a publication for each pass.
func (l *lane) judge(ctx context.Context, got *outcome, from txn.CommitID, passes ...map[string]string) error {
	head, err := l.lake.Head(ctx, l.repo, lakefstest.DefaultBranch)
	if err != nil {
		return err
	}
	found, err := lakefstest.Violations(ctx, l.lake, l.repo, lakefstest.DefaultBranch, from)
	if err != nil {
		return err
	}
	for _, v := range found {
		switch v.Rule {
		case lakefstest.RuleBranches: // below, and at the end of the lane
		case lakefstest.RuleOnce:
			got.report(duplicated, "%s", v)
		default:
			got.report(violation, "%s", v)
		}
	}
	commits, reached, err := l.lake.History(ctx, l.repo, head, from, txn.HistoryLimit)
	if err != nil {
		return err
	}
	if !reached {
		got.report(violation, "%s is not in the history of %s any more", from.Short(), head.Short())
	}
	if len(commits) > len(passes) {
		got.report(duplicated, "%d commits on the branch, want %d", len(commits), len(passes))
	}
	tree, err := l.tree(ctx, head)
	if err != nil {
		return err
	}
	published := len(commits) == len(passes) && maps.Equal(tree, l.wanted(passes[len(passes)-1]))

	got.completed = got.workflow.Status == txn.WorkflowCompleted
	switch {
	case got.completed && !published:
		got.report(lost, "COMPLETED, and the branch holds %d commits and %v", len(commits), slices.Sorted(maps.Keys(tree)))
	case got.completed:
		var o output
		task := last(got.workflow, referenceOf(publisher))
		if err := json.Unmarshal(task.Output, &o); err != nil {
			return err
		}
		if o.Workspace == nil || o.Workspace.Ref != head {
			got.report(lost, "COMPLETED, the branch stands at %s, and publish put out %s", head, task.Output)
		}
	case got.workflow.Status != txn.WorkflowFailed && !(l.once && got.workflow.Status == txn.WorkflowTimedOut):
		got.report(lost, "the workflow is %s", got.workflow.Status)
	default:
		// Unless the last pass is published, the one before is.
		whole := published || len(commits) == len(passes)-1 && (len(commits) == 0 || maps.Equal(tree, l.wanted(passes[len(commits)-1])))
		l.judgeFailed(got, whole)
	}
	return l.judgeBranches(ctx, got)
}

// judgeFailed holds a failure to the protocol. What the branch holds is what was
// staged or what was there before. One fault is no reason to fail for good, nor
// while Conductor has tries left unless something is in doubt.
func (l *lane) judgeFailed(got *outcome, whole bool) {
	if !whole {
		got.report(violation, "FAILED, and the branch holds something else than was staged")
	}
	for _, task := range got.workflow.Tasks {
		if task.Status == txn.TaskFailedWithTerminalError {
			got.report(lost, "%s failed for good: %s", task.ReferenceName, task.Reason)
			return
		}
	}
	if l.once {
		return
	}
	task := last(got.workflow, referenceOf(publisher))
	var o output
	if task == nil || json.Unmarshal(task.Output, &o) != nil || o.Publication == nil {
		got.report(lost, "failed although Conductor had tries left: %s", got.workflow.Reason)
		return
	}
	switch o.Publication.Outcome {
	case txn.OutcomeInDoubt, txn.OutcomeRaced, txn.OutcomeRefused:
	default:
		got.report(lost, "publish failed with the outcome %q: %s", o.Publication.Outcome, task.Reason)
	}
}

// judgeBranches: what is left of this workflow is what cleanup says it kept, or
// what could only come after it.
func (l *lane) judgeBranches(ctx context.Context, got *outcome) error {
	branches, err := l.lake.Branches(ctx, l.repo, "perago-staging-")
	if err != nil {
		return err
	}
	var said strings.Builder
	failed := false
	for _, task := range append(slices.Clone(got.workflow.Tasks), got.failure.Tasks...) {
		if !task.Type.IsCleanup() {
			continue
		}
		var o output
		if len(task.Output) > 0 {
			if err := json.Unmarshal(task.Output, &o); err != nil {
				return err
			}
		}
		said.Write(task.Output)
		failed = failed || len(o.Errors) > 0 || task.Status != txn.TaskCompleted
	}
	for _, branch := range branches {
		_, err := txn.ParseStagingName(branch.Name)
		switch {
		case err != nil:
			got.report(violation, "a branch that is no name of ours: %s", branch.Name)
		case !strings.Contains(string(branch.Name), string(got.workflow.ID)):
		case strings.Contains(said.String(), string(branch.Name)), failed:
		case got.planned.late():
		default:
			got.report(violation, "%s is left, and cleanup does not say why: %s", branch.Name, said.String())
		}
	}
	return nil
}

// wanted is the whole tree after a publication, path to checksum.
func (l *lane) wanted(files map[string]string) map[string]string {
	tree := map[string]string{}
	for path, content := range l.outside() {
		tree[path] = sum(content)
	}
	for path, content := range files {
		tree[prefix+path] = sum(content)
	}
	return tree
}

func sum(content string) string {
	digest := md5.Sum([]byte(content))
	return hex.EncodeToString(digest[:])
}

func (l *lane) tree(ctx context.Context, commit txn.CommitID) (map[string]string, error) {
	tree := map[string]string{}
	for object, err := range l.lake.Objects(ctx, l.repo, commit, "") {
		if err != nil {
			return nil, err
		}
		tree[object.Path] = object.Checksum
	}
	return tree, nil
}

// last is the newest try of a task, nil when there is none.
func last(workflow txn.Workflow, reference txn.ReferenceName) *txn.Task {
	for _, task := range slices.Backward(workflow.Tasks) {
		if task.ReferenceName == reference {
			return &task
		}
	}
	return nil
}

func describe(workflow txn.Workflow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s %s", workflow.Name, workflow.ID, workflow.Status, workflow.Reason)
	for _, task := range workflow.Tasks {
		fmt.Fprintf(&b, "\n    %s try %d poll %d %s %s", task.ReferenceName, task.RetryCount, task.PollCount, task.Status, task.Reason)
	}
	return b.String()
}
