package txn

import "encoding/json"

// Staged is a stage's result: what publish confirms and cleanup cancels. Only
// our workers write it, so a newer worker may add a field.
type Staged struct {
	Repository Repository `json:"repository"`
	// Branch is the target.
	Branch Branch `json:"branch"`
	// StagingBranch is empty when none was made.
	StagingBranch Branch `json:"staging_branch"`
	// Commit is S; for a no-op and a read-only step the input ref.
	Commit     CommitID       `json:"commit"`
	Key        LogicalTaskKey `json:"logical_task_key"`
	InputRef   CommitID       `json:"input_ref"`
	Prefix     Prefix         `json:"prefix"`
	Task       TaskID         `json:"task_id"`
	RetryCount int            `json:"retry_count"`
	PollCount  int            `json:"poll_count"`
	// StartTime is in Unix milliseconds, of Conductor's clock.
	StartTime int64       `json:"start_time"`
	Execution ExecutionID `json:"execution_id"`
	NoOp      bool        `json:"no_op"`
	ReadOnly  bool        `json:"read_only"`

	// Objects of the plan, by what it did with them.
	Added     int `json:"added"`
	Changed   int `json:"changed"`
	Removed   int `json:"removed"`
	Unchanged int `json:"unchanged"`
	// Bytes is what was uploaded.
	Bytes int64 `json:"bytes"`
}

// parseStaged reads a staged reference and checks every field: a null or an
// unresolved expression inside it is named, and it agrees with itself.
func parseStaged(path string, raw json.RawMessage) (Staged, error) {
	d, err := parseDocument(path, raw, nil)
	if err != nil {
		return Staged{}, err
	}
	for _, name := range []string{
		"repository", "branch", "commit", "logical_task_key", "input_ref", "prefix", "task_id", "execution_id",
	} {
		if _, err := d.text(name); err != nil {
			return Staged{}, err
		}
	}
	if _, err := d.anyText("staging_branch"); err != nil {
		return Staged{}, err
	}
	for _, name := range []string{
		"retry_count", "poll_count", "start_time", "no_op", "read_only", "added", "changed", "removed", "unchanged", "bytes",
	} {
		if !d.has(name) {
			return Staged{}, missing(join(path, name))
		}
	}
	var staged Staged
	if err := json.Unmarshal(raw, &staged); err != nil {
		return Staged{}, Terminalf(path, "is not what perago_stage writes: %v", err)
	}
	return staged, staged.check(path)
}

func (s Staged) check(path string) error {
	if err := checkRepository(join(path, "repository"), s.Repository); err != nil {
		return err
	}
	if err := checkTarget(join(path, "branch"), s.Branch); err != nil {
		return err
	}
	if _, err := ParseCommitID(string(s.Commit)); err != nil {
		return Terminalf(join(path, "commit"), "%v", err)
	}
	if _, err := ParseCommitID(string(s.InputRef)); err != nil {
		return Terminalf(join(path, "input_ref"), "%v", err)
	}
	if _, err := ParseExecutionID(string(s.Execution)); err != nil {
		return Terminalf(join(path, "execution_id"), "%v", err)
	}
	if s.StagingBranch != "" {
		name, err := ParseStagingName(s.StagingBranch)
		if err != nil {
			return Terminalf(join(path, "staging_branch"), "%v", err)
		}
		if name.Execution != s.Execution || name.Retry != s.RetryCount || name.Source != 0 {
			return Terminalf(join(path, "staging_branch"), "%s is not a branch of the execution in staged", s.StagingBranch)
		}
	}
	published := !s.NoOp && !s.ReadOnly
	switch {
	case s.NoOp && s.ReadOnly:
		return Terminalf(join(path, "no_op"), "goes not with read_only")
	case published && s.StagingBranch == "":
		return Terminalf(join(path, "staging_branch"), "is empty although something was staged")
	case published && s.Commit == s.InputRef:
		return Terminalf(join(path, "commit"), "is the input ref although something was staged")
	case !published && s.Commit != s.InputRef:
		return Terminalf(join(path, "commit"), "is not the input ref although nothing was staged")
	}
	return nil
}

func (s Staged) sameWorkspace(w Workspace) error {
	switch {
	case s.Repository != w.Repository:
		return Terminalf("workspace.repository", "is %s, but staged.repository is %s; chain both from the same stage task", quote(string(w.Repository)), quote(string(s.Repository)))
	case s.Branch != w.Branch:
		return Terminalf("workspace.branch", "is %s, but staged.branch is %s; chain both from the same stage task", quote(string(w.Branch)), quote(string(s.Branch)))
	case s.InputRef != w.Ref:
		return Terminalf("workspace.ref", "is %s, but staged.input_ref is %s; chain both from the same stage task", w.Ref.Short(), s.InputRef.Short())
	}
	return nil
}

// CheckUpstream holds the staged reference of a publish against the record of
// the stage task that it names. A zombie's late COMPLETED is accepted by
// Conductor but leaves the newer poll's count and start time, which is how its
// old content is told from the current one. It returns the step's key, built
// from the record and never from the input.
func CheckUpstream(staged Staged, stage Task, workflow WorkflowID) (LogicalTaskKey, error) {
	replaced := func(what string) error {
		return Terminalf("staged", "the staged result comes from an execution that had been replaced (%s); rerun from %s", what, stage.ReferenceName)
	}
	switch {
	case stage.ID != staged.Task:
		return "", Terminalf("staged.task_id", "names task %s, which cannot be read", staged.Task)
	case stage.Workflow != workflow:
		return "", Terminalf("staged.task_id", "names a task of workflow %s, not of this one; chain staged from a stage task of this workflow", stage.Workflow)
	case stage.Status != TaskCompleted:
		return "", replaced("its task is " + string(stage.Status))
	case stage.ExternalOutput:
		return "", Terminalf("staged.task_id", "names task %s, whose output Conductor keeps in its external payload storage, which Perago's tasks do not support; raise conductor.app.taskOutputPayloadSizeThreshold on the server", stage.ReferenceName)
	}
	var output struct {
		Staged json.RawMessage `json:"staged"`
	}
	if err := json.Unmarshal(stage.Output, &output); err != nil {
		return "", Terminalf("staged.task_id", "names task %s, whose output is not a stage's", stage.ReferenceName)
	}
	recorded, err := parseStaged("staged", output.Staged)
	if err != nil {
		return "", Terminalf("staged.task_id", "names task %s, whose output is not a stage's", stage.ReferenceName)
	}
	switch {
	case recorded.Execution != staged.Execution, recorded.Commit != staged.Commit:
		return "", replaced("another execution's output is recorded")
	case recorded != staged:
		return "", Terminalf("staged", "differs from the output of %s; pass it on as it is", stage.ReferenceName)
	case stage.RetryCount != staged.RetryCount, stage.PollCount != staged.PollCount, stage.StartTime != staged.StartTime:
		return "", replaced("its task was handed out again")
	}
	key := NewLogicalTaskKey(workflow, stage.ReferenceName, stage.Iteration)
	if key != staged.Key {
		return "", Terminalf("staged.logical_task_key", "is %s, but the stage task's is %s", quote(string(staged.Key)), quote(string(key)))
	}
	return key, nil
}
