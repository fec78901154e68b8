package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/txn"
)

// driver starts one workflow after the other on a branch, and is the operator who
// meddles with them.
type driver struct {
	*soak
	target target
	random *rand.Rand
}

// workflow runs one to its end, and again if the operator wants it. An operator
// meddles only while meddling is true.
func (d *driver) workflow(ctx context.Context, meddling func() bool) {
	id, err := d.start(ctx)
	if err != nil {
		// A server restarts. Whether a workflow was started is not known; if so, it
		// runs like another, and what it publishes is judged like the rest.
		pause(ctx, time.Second)
		return
	}
	d.counts.add("workflow")
	d.record.started(id)
	if meddling() && d.chance(20) {
		d.meddle(ctx, id)
	}
	for again := 0; ; again++ {
		workflow, err := d.end(ctx, id)
		if err != nil {
			return // the run is over
		}
		d.claims(workflow)
		d.counts.add("workflow " + string(workflow.Status))
		if again == 3 || !meddling() || !d.again(ctx, workflow) {
			return
		}
	}
}

func (d *driver) chance(percent int) bool { return d.random.IntN(100) < percent }

func (d *driver) start(ctx context.Context) (txn.WorkflowID, error) {
	head, err := d.lake.Head(ctx, d.target.repository, d.target.branch)
	if err != nil {
		return "", err
	}
	input, err := json.Marshal(object{"workspace": txn.Workspace{Repository: d.target.repository, Branch: d.target.branch}.At(head)})
	if err != nil {
		return "", err
	}
	name := oneStep
	if d.chance(35) {
		name = twoSteps
	}
	return d.conductor.StartWorkflow(ctx, conductor.StartRequest{Name: name, Version: 1, Input: input, TaskToDomain: map[string]string{"*": d.name}})
}

// meddle does something to a workflow that runs.
func (d *driver) meddle(ctx context.Context, id txn.WorkflowID) {
	if !pause(ctx, time.Duration(d.random.IntN(3000))*time.Millisecond) {
		return
	}
	if d.chance(50) {
		d.did("pause", d.operator.Pause(ctx, id))
		pause(ctx, time.Duration(d.random.IntN(4000))*time.Millisecond)
		// It has to go on, or it never ends.
		_ = wait(ctx, patience, time.Second, func() (bool, error) { return d.answered(d.operator.Resume(ctx, id)), nil })
		return
	}
	d.did("terminate", d.operator.Terminate(ctx, id, "the operator wants it"))
}

// again runs a workflow that has ended once more; false is that it is left alone.
func (d *driver) again(ctx context.Context, workflow txn.Workflow) bool {
	switch fate := d.random.IntN(100); {
	case workflow.Status != txn.WorkflowCompleted && fate < 45:
		return d.did("retry", d.operator.RetryTaken(ctx, workflow.ID))
	case fate >= 45 && fate < 62 && len(workflow.Tasks) > 0:
		from := workflow.Tasks[d.random.IntN(len(workflow.Tasks))]
		return d.did("rerun", d.operator.RerunPolled(ctx, workflow.ID, from.ID))
	case fate >= 62 && fate < 68:
		return d.did("restart", d.operator.Restart(ctx, workflow.ID))
	}
	return false
}

// did counts what the operator has done. What a server has not answered may have
// happened as well: the workflow is looked after in either case.
func (d *driver) did(what string, err error) bool {
	if err == nil {
		d.counts.add(what)
	}
	return err == nil || !d.answered(err)
}

// answered reports whether the server has said anything at all.
func (d *driver) answered(err error) bool {
	var refused *conductortest.StatusError
	// A workflow that is not paused, or has ended, is refused with 500.
	return err == nil || errors.As(err, &refused)
}

// end waits for the end of a workflow. Conductor is asked to look at it now and
// then, as its own sweeper may be late; one that does not end is terminated, for
// others want their turn. An error is the end of the run.
func (d *driver) end(ctx context.Context, id txn.WorkflowID) (workflow txn.Workflow, err error) {
	began, looked := time.Now(), time.Now()
	limit := patience
	for {
		status, err := d.conductor.WorkflowStatus(ctx, id)
		if err == nil && status.Terminal() {
			if workflow, err = d.conductor.Workflow(ctx, id); err == nil && workflow.Status.Terminal() {
				return workflow, nil
			}
		}
		if time.Since(looked) > 3*time.Second {
			looked = time.Now()
			_ = d.operator.Decide(ctx, id) // it looks by itself, later
		}
		if time.Since(began) > limit {
			d.counts.add("workflow stuck")
			fmt.Fprintf(d.log, "soak: workflow %s is %s after %s and is terminated\n", id, status, limit)
			_ = d.operator.Terminate(ctx, id, "it does not end")
			limit += 30 * time.Second // that may be lost as well
		}
		if !pause(ctx, 150*time.Millisecond) {
			return workflow, ctx.Err()
		}
	}
}

// claims writes down what the workflow's publish tasks say.
func (d *driver) claims(workflow txn.Workflow) {
	stages := map[txn.TaskID]txn.Task{}
	for _, task := range workflow.Tasks {
		stages[task.ID] = task
	}
	for _, task := range workflow.Tasks {
		d.record.handed(task.ID)
		if string(task.Type) != taskType("publish") || task.Status != txn.TaskCompleted {
			continue
		}
		c, err := read(task, stages)
		if err != nil {
			c = claim{unread: err.Error()}
		}
		c.workflow, c.task, c.target = workflow.ID, task.ID, d.target
		d.record.claimed(c)
		d.counts.add("outcome " + string(c.outcome))
	}
}

// read takes the claim from a publish task, and from the stage task what it staged.
func read(task txn.Task, stages map[txn.TaskID]txn.Task) (claim, error) {
	var input struct {
		Staged txn.Staged `json:"staged"`
	}
	var output struct {
		Publication txn.Publication `json:"publication"`
	}
	if err := json.Unmarshal(task.Input, &input); err != nil {
		return claim{}, fmt.Errorf("its input: %w", err)
	}
	if err := json.Unmarshal(task.Output, &output); err != nil {
		return claim{}, fmt.Errorf("its output: %w", err)
	}
	c := claim{
		commit: output.Publication.Commit, outcome: output.Publication.Outcome,
		staged: input.Staged.Commit, input: input.Staged.InputRef, prefix: input.Staged.Prefix,
	}
	stage, ok := stages[input.Staged.Task]
	if !ok {
		return c, fmt.Errorf("its stage task %s is not in the workflow", input.Staged.Task)
	}
	var source struct {
		Source struct {
			Directory string `json:"directory"`
		} `json:"source"`
	}
	if err := json.Unmarshal(stage.Input, &source); err != nil {
		return c, fmt.Errorf("the input of its stage task: %w", err)
	}
	c.directory = source.Source.Directory
	return c, nil
}
