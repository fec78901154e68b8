package model

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"perago/pkg/conductor/conductortest"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

const (
	repository = txn.Repository("model")
	target     = lakefstest.DefaultBranch
	theOne     = txn.WorkflowID("0f8fad5b-d9cb-469f-a165-70867728950e")
)

// world is both servers, and what the rules need to know of the past.
type world struct {
	lake      *lake
	conductor *conductorModel
	// lakefs and server are who answers: the two above, or those together with the
	// memory servers.
	lakefs lakeServer
	server conductorServer
	// mirror are those memory servers; nil without them.
	mirror *mirror
	// input is the commit that the workflow started from.
	input txn.CommitID
	// replaced holds the tasks whose recorded end is the report of an attempt that
	// had been replaced.
	replaced map[txn.TaskID]bool
	// broken is what the latest step broke.
	broken []violation
	// refused is how the latest step's merge was refused.
	refused error
	// published says that a publication succeeded, slipped that an update slipped
	// between a passed fence and Conductor.
	published, slipped bool
}

func newWorld(l *lake, c *conductorModel) *world {
	return &world{lake: l, conductor: c, lakefs: l, server: c, input: l.branches[target].head, replaced: map[txn.TaskID]bool{}}
}

func (w *world) clone() *world {
	copied := newWorld(w.lake.clone(), w.conductor.clone())
	copied.input, copied.published, copied.slipped = w.input, w.published, w.slipped
	copied.replaced = maps.Clone(w.replaced)
	return copied
}

func (w *world) digest() uint64 {
	sum := w.lake.digest() ^ w.conductor.digest()*3
	for id, is := range w.replaced {
		if is {
			sum += hashOf("replaced", string(id))
		}
	}
	return sum
}

// rule is what the explorer holds schedules to: one of lakefstest.Check, or one
// over both servers.
type rule = lakefstest.Rule

// The rules over both servers.
const (
	// ruleOutput: what a completed publish put out has the tree that the newest
	// completed execution of the stage staged.
	ruleOutput rule = "a completed publish put out the newest staged tree"
	// ruleSilent: a race is never silent: between the input ref and what a completed
	// publish put out, nobody else has committed.
	ruleSilent rule = "a completed publish put out no raced commit"
	// ruleNewest: no later commit of the step stands above it.
	ruleNewest rule = "nothing of the step stands above its completed publication"
	// ruleLive: no attempt that is live is ended by another's update.
	ruleLive rule = "no live attempt is ended by another's update"
)

type violation = lakefstest.Violation

func broken(of rule, format string, arguments ...any) violation {
	return violation{Rule: of, Text: fmt.Sprintf(format, arguments...)}
}

// update is a worker's report on its way: fenced says that the worker's latest
// read of the task had shown its attempt current.
func (w *world) update(ctx context.Context, attempt txn.Attempt, fenced bool, result txn.TaskResult) error {
	before, err := w.conductor.Task(ctx, result.Task)
	ends := err == nil && before.Status.Open() && result.Status != txn.TaskInProgress
	if err := w.server.Update(ctx, result); err != nil || !ends {
		return err
	}
	// One that is not polled yet is the next attempt's as well.
	before.Status = txn.TaskInProgress
	another := attempt.CurrentTask(before) != nil
	w.replaced[result.Task] = another
	switch {
	case another && fenced:
		// Not promised: one update can slip in between.
		w.slipped = true
	case another:
		w.broken = append(w.broken, broken(ruleLive, "the attempt of worker %s (poll %d) ended task %s of worker %s (poll %d)",
			attempt.Worker, attempt.PollCount, before.ID, before.Worker, before.PollCount))
	}
	if result.Status == txn.TaskCompleted {
		w.broken = append(w.broken, w.check(ctx)...)
	}
	return nil
}

// foreign is somebody who commits to the target; without a path, nothing.
func (w *world) foreign(path string) {
	w.lake.foreign(path)
	if w.mirror != nil {
		w.mirror.foreign(w.lake, path)
	}
}

// timeOut and the others below are what Conductor's clock and operators do.
func (w *world) timeOut(id txn.TaskID) {
	if w.mirror != nil {
		w.mirror.timeOut(w.conductor, id)
	}
	w.conductor.timeOut(id)
	w.reflect(func(context.Context, *conductortest.Operator, txn.WorkflowID) error { return nil })
}

func (w *world) terminate() {
	w.conductor.terminate(theOne)
	w.reflect(func(ctx context.Context, o *conductortest.Operator, id txn.WorkflowID) error {
		return o.Terminate(ctx, id, "model")
	})
}

func (w *world) rerun(from txn.TaskID) {
	w.conductor.rerun(from)
	w.reflect(func(ctx context.Context, o *conductortest.Operator, id txn.WorkflowID) error {
		return o.Rerun(ctx, id, w.mirror.tasks.there[from])
	})
}

func (w *world) restart() {
	w.conductor.restart(theOne)
	w.reflect(func(ctx context.Context, o *conductortest.Operator, id txn.WorkflowID) error {
		return o.Restart(ctx, id)
	})
}

func (w *world) retry() {
	w.conductor.retry(theOne)
	w.reflect(func(ctx context.Context, o *conductortest.Operator, id txn.WorkflowID) error { return o.Retry(ctx, id) })
}

// reflect does to the mirror's workflow what was done to the model's, and compares.
func (w *world) reflect(do func(context.Context, *conductortest.Operator, txn.WorkflowID) error) {
	if w.mirror != nil {
		w.mirror.must(do(context.Background(), w.mirror.operator, w.mirror.workflows.there[theOne]))
		w.mirror.compareFlows(w.conductor)
	}
}

// checkRepository holds the repository to the rules that are its own.
func (w *world) checkRepository() []violation {
	found, err := lakefstest.Violations(context.Background(), w.lake, repository, target, w.input)
	if err != nil {
		panic(err)
	}
	// Which branches may be left is no matter of schedules.
	return slices.DeleteFunc(found, func(v violation) bool { return v.Rule == lakefstest.RuleBranches })
}

// check holds what a completed publish put out to the rules over both servers.
func (w *world) check(ctx context.Context) []violation {
	var found []violation
	for _, flow := range w.conductor.workflows {
		var stage, publish *txn.Task
		for i := range flow.tasks {
			switch t := &flow.tasks[i]; {
			case t.Status != txn.TaskCompleted:
			case t.Type.IsStage():
				stage = t
			case t.Type.IsPublish():
				publish = t
			}
		}
		switch {
		case publish == nil:
		case stage == nil:
			found = append(found, broken(ruleOutput, "publish is completed, and no stage is"))
		default:
			found = append(found, w.checkOutput(ctx, *stage, *publish)...)
		}
	}
	return found
}

func (w *world) checkOutput(ctx context.Context, stage, publish txn.Task) (found []violation) {
	report := func(of rule, format string, arguments ...any) {
		found = append(found, broken(of, format, arguments...))
	}
	var out struct {
		Staged      txn.Staged      `json:"staged"`
		Publication txn.Publication `json:"publication"`
		Workspace   txn.Workspace   `json:"workspace"`
	}
	if err := json.Unmarshal(stage.Output, &out); err != nil {
		panic(err)
	}
	if err := json.Unmarshal(publish.Output, &out); err != nil {
		panic(err)
	}
	ref := out.Workspace.Ref
	put, staged := w.lake.commits[ref], w.lake.commits[out.Staged.Commit]
	switch {
	case put == nil:
		report(ruleOutput, "publish put out %s, which is no commit", ref)
		return found
	case w.replaced[stage.ID]:
		report(ruleOutput, "publish put out what an execution of the stage had staged that had been replaced")
	case put.MetaRange != staged.MetaRange:
		report(ruleOutput, "publish put out %s with tree %s, the stage has staged %s", ref.Short(), put.MetaRange, staged.MetaRange)
	}
	head, _ := w.lake.Head(ctx, repository, target)
	above, reached, _ := w.lake.History(ctx, repository, head, ref, txn.HistoryLimit)
	if !reached {
		report(ruleOutput, "publish put out %s, which is not in the history of the target", ref.Short())
	}
	for _, c := range above {
		if c.Metadata["perago.phase"] == "confirm" && c.Metadata["perago.logical_task_key"] == string(out.Staged.Key) {
			report(ruleNewest, "%s stands above %s, which the publish put out", c.ID.Short(), ref.Short())
		}
	}
	if ref == out.Staged.InputRef {
		return found
	}
	w.published = true
	below, _, _ := w.lake.History(ctx, repository, ref, out.Staged.InputRef, txn.HistoryLimit)
	for _, c := range below {
		if c.Metadata["perago.logical_task_key"] != string(out.Staged.Key) {
			report(ruleSilent, "publish put out %s, and below it is %s, which is somebody else's", ref.Short(), c.ID.Short())
		}
	}
	return found
}
