package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"perago/pkg/txn"
)

// Explanation is what happened to the data of one workflow.
type Explanation struct {
	Workflow txn.WorkflowID     `json:"workflow_id"`
	Name     string             `json:"name"`
	Status   txn.WorkflowStatus `json:"status"`
	Reason   string             `json:"reason,omitempty"`
	Steps    []Step             `json:"steps"`
	// Others are perago's tasks that are of no one step.
	Others []Attempt `json:"others"`
	// Users are the tasks that are neither perago's nor Conductor's own.
	Users   []Attempt `json:"user_tasks"`
	Targets []History `json:"targets"`
	// Subs are the workflow's sub-workflows.
	Subs []Explanation `json:"sub_workflows"`
	// Next is what to do, one sentence each, also in sub-workflows; Rest says
	// something where it is empty.
	Next     []string `json:"next"`
	Problems []string `json:"problems"`

	now time.Time
}

// Step is one step: a stage task with its retries, and what became of its result.
type Step struct {
	Step       txn.ReferenceName  `json:"step"`
	Key        txn.LogicalTaskKey `json:"logical_task_key"`
	Repository txn.Repository     `json:"repository"`
	Branch     txn.Branch         `json:"branch"`
	Prefix     string             `json:"prefix"`
	InputRef   txn.CommitID       `json:"input_ref"`
	State      State              `json:"state"`
	// Summary is what the state means here, Next what to do about it.
	Summary string `json:"summary"`
	Next    string `json:"next,omitempty"`
	// Commit is the step's publication on the branch; empty when there is none.
	Commit   txn.CommitID `json:"commit,omitempty"`
	Attempts []Attempt    `json:"attempts"`
	Open     []Open       `json:"open"`
}

// Attempt is one try of one of perago's tasks, as Conductor has it.
type Attempt struct {
	Task    txn.TaskID        `json:"task_id"`
	Name    txn.ReferenceName `json:"task"`
	Type    txn.TaskType      `json:"type"`
	Retry   int               `json:"retry_count"`
	Poll    int               `json:"poll_count"`
	Started *time.Time        `json:"started,omitempty"`
	Ended   *time.Time        `json:"ended,omitempty"`
	Worker  txn.WorkerID      `json:"worker,omitempty"`
	Status  txn.TaskStatus    `json:"status"`
	// Result is what it did, and what its fences saw.
	Result string `json:"result"`
	// Outcome, ExpectedHead and Fence are a publish's.
	Outcome      txn.Outcome  `json:"outcome,omitempty"`
	ExpectedHead txn.CommitID `json:"expected_head,omitempty"`
	Fence        txn.Fence    `json:"fence,omitempty"`
}

// Open is a hidden branch that is still there.
type Open struct {
	Branch txn.Branch   `json:"branch"`
	Commit txn.CommitID `json:"commit"`
	Why    string       `json:"why"`
}

// History is a target's commits above the oldest input ref of the workflow.
type History struct {
	Repository txn.Repository `json:"repository"`
	Branch     txn.Branch     `json:"branch"`
	Head       txn.CommitID   `json:"head"`
	Commits    []Entry        `json:"commits"`
}

// State is where a step's data is.
type State string

// The states of a step.
const (
	StateRunning    State = "running"
	StateNotStaged  State = "not_staged"
	StateStaged     State = "staged"
	StatePublished  State = "published"
	StateUnchanged  State = "unchanged"
	StateUnreported State = "published_unreported"
	StateMissing    State = "published_missing"
	StateRefused    State = "refused"
	StateTakenBack  State = "taken_back"
	StateRaced      State = "raced"
	StateInDoubt    State = "in_doubt"
	StateFailed     State = "failed"
)

// States are all states, in the order of the documents.
func States() []State {
	return []State{
		StateRunning, StateNotStaged, StateStaged, StatePublished, StateUnchanged, StateUnreported, StateMissing,
		StateTakenBack, StateRefused, StateRaced, StateInDoubt, StateFailed,
	}
}

// Workflow explains a workflow from what was read of it.
func Workflow(f Facts) Explanation {
	e := Explanation{
		Workflow: f.Workflow.ID, Name: f.Workflow.Name, Status: f.Workflow.Status, Reason: f.Workflow.Reason, now: f.Now,
		Steps: []Step{}, Others: []Attempt{}, Users: f.users(), Targets: []History{}, Subs: []Explanation{}, Next: []string{}, Problems: append([]string{}, f.Problems...),
	}
	next := func(sentence string) {
		if sentence != "" && !slices.Contains(e.Next, sentence) {
			e.Next = append(e.Next, sentence)
		}
	}
	for _, tries := range stepsOf(f, &e.Others) {
		step := explainStep(f, tries)
		e.Steps = append(e.Steps, step)
		next(step.Next)
	}
	for _, sentence := range f.failed() {
		next(sentence)
	}
	for _, task := range f.Workflow.Tasks {
		_, sentence := f.late(task)
		next(sentence)
	}
	if forgotten(f.Workflow) {
		next(fmt.Sprintf("all tasks of the workflow have ended and Conductor calls it %s; if that stays so for a minute, have Conductor look again: PUT /api/workflow/decide/%s", e.Status, e.Workflow))
	}
	for _, sub := range f.Subs {
		explanation := Workflow(sub)
		e.Subs = append(e.Subs, explanation)
		e.Problems = append(e.Problems, explanation.Problems...)
		// A failed try of a sub-workflow that was tried again is history.
		if replaced(f.Workflow, sub.Workflow.ID) {
			continue
		}
		for _, sentence := range explanation.Next {
			next(forSub(sub.Workflow.ID, sentence))
		}
	}
	if e.Status == txn.WorkflowPaused {
		next("the workflow is paused: resume it in Conductor")
	}
	if e.Status.Terminal() && e.Status != txn.WorkflowCompleted && len(e.Next) == 0 {
		next(fmt.Sprintf("the workflow is %s: retry it in Conductor, or start a new one from the head", e.Status))
	}
	for _, target := range f.Targets {
		e.Targets = append(e.Targets, history(target))
	}
	return e
}

// replaced reports whether a later task of the parent took the place of the one that
// started a sub-workflow.
func replaced(parent txn.Workflow, sub txn.WorkflowID) bool {
	for i, task := range parent.Tasks {
		if task.SubWorkflow == sub {
			return slices.ContainsFunc(parent.Tasks[i+1:], func(later txn.Task) bool { return later.ReferenceName == task.ReferenceName })
		}
	}
	return false
}

// forgotten reports whether Conductor may have missed the end of the workflow's last
// task, as it does when it is killed at that moment: it does not notice later.
func forgotten(workflow txn.Workflow) bool {
	return workflow.Status == txn.WorkflowRunning && len(workflow.Tasks) > 0 &&
		!slices.ContainsFunc(workflow.Tasks, func(t txn.Task) bool { return t.Status.Open() })
}

// history is a target's longest range, whole: the others are part of it.
func history(target Target) History {
	var longest []txn.Commit
	for _, r := range target.Ranges {
		if r.Reached && len(r.Commits) > len(longest) {
			longest = r.Commits
		}
	}
	return History{Repository: target.Repository, Branch: target.Branch, Head: target.Head, Commits: Log(target.Branch, longest)}
}

// tries are the tasks of one step, in the order in which they were scheduled.
type tries struct {
	key   txn.LogicalTaskKey
	name  txn.ReferenceName
	tasks []txn.Task
}

// stepsOf puts the tasks together by their step: a stage's own key, and the one in
// what a publish or cleanup was given. What is of no step goes to others.
func stepsOf(f Facts, others *[]Attempt) []*tries {
	workflow := f.Workflow
	var all []*tries
	of := func(key txn.LogicalTaskKey) *tries {
		for _, one := range all {
			if one.key == key {
				return one
			}
		}
		one := &tries{key: key, name: txn.StepName(key, workflow.ID)}
		all = append(all, one)
		return one
	}
	for _, task := range workflow.Tasks {
		switch {
		case task.Type.IsStage():
			one := of(txn.NewLogicalTaskKey(workflow.ID, task.ReferenceName, task.Iteration))
			one.tasks = append(one.tasks, task)
		case task.Type.IsPublish(), task.Type.IsCleanup():
			staged, err := txn.StagedOf(task)
			if err != nil {
				*others = append(*others, f.attempt(task))
				continue
			}
			one := of(staged.Key)
			one.tasks = append(one.tasks, task)
		case task.Type.IsCheckout():
			*others = append(*others, f.attempt(task))
		}
	}
	return all
}

// found is one step's facts, put together.
type found struct {
	tries    *tries
	step     txn.Step
	prefix   string
	stage    txn.Task
	publish  txn.Task
	staged   *txn.Staged
	reported txn.Publication
	target   Target
	// over is the commits above the step's input ref; read says that they were read.
	over Range
	read bool
	// own are the step's publications, newest first.
	own []txn.Commit
}

// find puts the facts of one step together.
func find(f Facts, t *tries) found {
	s := found{tries: t, step: txn.Step{Workflow: f.Workflow.ID, Key: t.key}}
	for _, task := range t.tasks {
		switch {
		case task.Type.IsStage():
			s.stage, s.staged, s.prefix = task, stagedBy(task), prefixOf(task)
			w, _ := txn.WorkspaceOf(task) // what cannot be read is empty
			s.step.Repository, s.step.Branch, s.step.InputRef = w.Repository, w.Branch, w.Ref
		case task.Type.IsPublish():
			s.publish = task
		}
	}
	if s.staged == nil && s.publish.ID != "" {
		// The stage's record is gone, or is under way again; what the publish was
		// given still says what it was about.
		if given, err := txn.StagedOf(s.publish); err == nil {
			s.staged, s.prefix = &given, given.Prefix.String()
		}
	}
	if s.staged != nil {
		s.step = txn.StepOf(*s.staged, f.Workflow.ID, t.key)
	}
	s.reported, _ = txn.PublicationOf(s.publish) // what cannot be read is empty
	s.target, s.read = f.target(s.step.Repository, s.step.Branch)
	known := false
	s.over, known = s.target.Ranges[s.step.InputRef]
	s.read = s.read && known
	for _, commit := range s.over.Commits {
		if s.step.Owns(commit) {
			s.own = append(s.own, commit)
		}
	}
	return s
}

// explainStep says where one step's data is.
func explainStep(f Facts, t *tries) Step {
	at := find(f, t)
	s := Step{
		Step: t.name, Key: t.key, Repository: at.step.Repository, Branch: at.step.Branch, Prefix: at.prefix, InputRef: at.step.InputRef,
		Attempts: []Attempt{}, Open: []Open{},
	}
	for _, task := range t.tasks {
		s.Attempts = append(s.Attempts, f.attempt(task))
	}
	if len(at.own) > 0 {
		s.Commit = at.own[0].ID
	}
	s.openBranches(f, at.own)
	s.explain(f, at)
	return s
}

// explain gives the step its state, its summary and what to do.
func (s *Step) explain(f Facts, found found) {
	stage, publish, own, p := found.stage, found.publish, found.own, found.reported
	at := fmt.Sprintf("lakefs://%s/%s", s.Repository, s.Branch)
	retry := func() { s.retryAdvice(f, found) }

	switch {
	case publish.Status == txn.TaskCompleted && (p.Outcome == txn.OutcomeNoOp || p.Outcome == txn.OutcomeReadOnly):
		s.State, s.Summary = StateUnchanged, "there was nothing to publish: its files are those of the input ref"
		if p.Outcome == txn.OutcomeReadOnly {
			s.Summary = "it is read-only and publishes nothing"
		}
	case publish.Status == txn.TaskCompleted:
		s.published(f, found, at)
	case p.Outcome == txn.OutcomeTakenBack:
		s.wasTakenBack(f, found)
	case p.Outcome == txn.OutcomeRaced:
		s.State, s.Summary = StateRaced, fmt.Sprintf("its publication landed on %s where it should not have: %s", at, publish.Reason)
		s.Next = fmt.Sprintf("look at %s (perago log %s), and revert what is not wanted; then start a new workflow from the head", at, at)
	case len(own) > 0 && (publish.Status.Open() || stage.Status.Open()) && !f.Workflow.Status.Terminal():
		s.State, s.Summary = StateRunning, fmt.Sprintf("it is under way again: %s holds %s, which this step published before it was retried or rerun", at, own[0].ID)
	case len(own) > 0:
		s.State, s.Summary = StateUnreported, fmt.Sprintf("%s holds %s of this step, and no publish task in Conductor's record reports it: %s", at, own[0].ID, found.whyUnreported())
		retry()
	case publish.Status.Open() || stage.Status.Open():
		s.State, s.Summary = StateRunning, "it is under way: nothing of it is published"
		if f.Workflow.Status.Terminal() {
			s.Summary += fmt.Sprintf(", and its workflow is %s", f.Workflow.Status)
		}
	case p.Outcome == txn.OutcomeInDoubt:
		s.State, s.Summary = StateInDoubt, "a merge was sent, and the branch does not hold it: it may still land"
		retry()
		if f.Workflow.Status.Terminal() {
			s.Next += fmt.Sprintf("; where nobody retries, perago settle %s rules it out", at)
		}
	case p.Outcome == txn.OutcomeRefused:
		s.State, s.Summary = StateRefused, "it is not published: "+publish.Reason
		retry()
	case publish.ID != "":
		s.State, s.Summary = StateFailed, fmt.Sprintf("it is not published: the publish is %s%s", publish.Status, because(publish.Reason))
		retry()
	case stage.Status == txn.TaskCompleted:
		s.State, s.Summary = StateStaged, "it is staged and not published yet"
		if f.Workflow.Status.Terminal() {
			s.Summary = "it is staged and was never published"
			retry()
		}
	default:
		s.State, s.Summary = StateNotStaged, fmt.Sprintf("nothing is staged: the stage is %s%s", stage.Status, because(stage.Reason))
		if f.Workflow.Status.Terminal() {
			s.Next = fmt.Sprintf("mend the cause at %s and retry the workflow in Conductor, or start a new one from the head", s.Step)
		}
	}
}

// takenBack reports whether the branch does not hold a publication of the step any
// more, and says so.
func (s *Step) takenBack(f Facts, found found, commit txn.CommitID) bool {
	err, _ := f.taken(found.step, commit)
	var taken *txn.TakenBackError
	if !errors.As(err, &taken) {
		return false
	}
	s.State, s.Commit, s.Summary, s.Next = StateTakenBack, commit, taken.Sentence(), taken.Advice()
	return true
}

// wasTakenBack is a step whose publish found that its publication was taken back.
func (s *Step) wasTakenBack(f Facts, found found) {
	if s.takenBack(f, found, found.reported.Commit) {
		return
	}
	s.State, s.Commit, s.Summary = StateTakenBack, found.reported.Commit, found.publish.Reason
	s.Next = "start a new workflow from the head"
	if _, known := f.taken(found.step, s.Commit); known {
		s.Next = fmt.Sprintf("the branch holds %s again: retry the workflow in Conductor, and its publish adopts it", s.Commit)
	}
}

// published is a step whose publish has completed.
func (s *Step) published(f Facts, found found, at string) {
	p, over := found.reported, found.over
	s.State, s.Commit = StatePublished, p.Commit
	s.Summary = fmt.Sprintf("it is published: %s holds it as %s, on the %s fence", at, p.Commit, p.Fence)
	if !found.read {
		s.Summary = fmt.Sprintf("it was published to %s as %s; the branch could not be read", at, p.Commit)
		return
	}
	i := slices.IndexFunc(over.Commits, func(c txn.Commit) bool { return c.ID == p.Commit })
	switch {
	case i < 0 && over.Reached:
		s.State = StateMissing
		s.Summary = fmt.Sprintf("it was published as %s, which is not in the history of %s any more: the branch was reset", p.Commit, at)
		s.Next = fmt.Sprintf("find out who reset %s; start a new workflow from the head", at)
	case i < 0:
		s.Summary = fmt.Sprintf("it was published to %s as %s; the input ref is not in the branch's history, or more than %d commits down", at, p.Commit, txn.HistoryLimit)
	case s.takenBack(f, found, p.Commit):
	default:
		late := txn.LateLandings(s.Key, over.Commits[:i])
		if len(late) > 0 {
			s.Next = fmt.Sprintf("%s of an older attempt landed late above it; inspect it, and revert it if it is not wanted", late[0])
		}
		if i > len(late) {
			s.Summary += fmt.Sprintf("; the newest of %d above it is %s", i, over.Commits[0].ID)
		}
	}
}

// whyUnreported is what is known about why no task reports the step's newest
// publication.
func (f found) whyUnreported() string {
	record, err := txn.PublicationOn(f.step.Branch, f.own[0])
	switch {
	case err == nil && (f.staged == nil || record.StagingExecution != f.staged.Execution):
		return "an earlier run of the step published it, and was replaced by a retry, rerun or restart"
	case err == nil && f.publish.ID != record.Task && f.publish.ID != "":
		return "an earlier attempt published it, and its answer or completion was lost"
	case f.publish.ID == "" || f.publish.Status == txn.TaskCanceled:
		return "its task was cancelled, or replaced by a rerun or restart"
	}
	return "the answer or the completion was lost"
}

// retryAdvice says what to do about a step that is not published as far as its
// tasks tell. It asks the decision that a retry's publish would ask.
func (s *Step) retryAdvice(f Facts, found found) {
	staged, over := found.staged, found.over
	if !f.Workflow.Status.Terminal() {
		return // Conductor retries by itself
	}
	var wanted *txn.MetaRangeID
	if staged != nil {
		if slices.Contains(f.Gone, staged.Commit) {
			s.Next = fmt.Sprintf("the staged commit %s is gone: rerun from %s, or start a new workflow from the head", staged.Commit, s.Step)
			return
		}
		for _, commit := range f.Staged {
			if commit.ID == staged.Commit {
				wanted = &commit.MetaRange
			}
		}
	}
	if !found.read || wanted == nil {
		s.Next = "retry the workflow in Conductor, or start a new one from the head"
		return
	}
	decision, err := txn.DecidePublish(txn.PublishFacts{
		Step: found.step, Staged: *staged, Wanted: *wanted, Head: found.target.Head, Range: over.Commits, Reached: over.Reached,
		OtherBranches: len(s.Open) > 1,
	})
	var raced *txn.PublishRacedError
	var fenced *txn.PublishFenceError
	switch {
	case errors.As(err, &fenced):
		s.Next = fenced.Advice
	case errors.As(err, &raced):
		s.Next = raced.Error()
	case decision.Action == txn.PublishAdopt && s.takenBack(f, found, decision.Adopt):
	case decision.Action == txn.PublishAdopt:
		s.Next = fmt.Sprintf("retry the workflow in Conductor: its publish adopts %s; or accept it as it is, and start the next workflow from the head", decision.Adopt)
	case decision.Action == txn.PublishSuperseding:
		s.Next = fmt.Sprintf("retry the workflow in Conductor: its publish supersedes %s; or accept that one, and start the next workflow from the head", decision.Supersedes)
	default:
		s.Next = "retry the workflow in Conductor: its publish may land; or start a new one from the head"
	}
}

// openBranches are the step's hidden branches.
func (s *Step) openBranches(f Facts, own []txn.Commit) {
	for _, branch := range f.Branches {
		name, err := txn.ParseStagingName(branch.Name)
		if err != nil || branch.Repository != s.Repository || !name.OfStep(f.Identity, f.Workflow.ID, s.Key) {
			continue
		}
		why := "what it holds is not published"
		for _, commit := range own {
			record, err := txn.PublicationOn(s.Branch, commit)
			if err == nil && (record.StagingExecution == name.Execution || record.Execution == name.Execution) {
				why = "it is published as " + string(commit.ID)
			}
		}
		record, err := txn.ParseRecord(branch.Head.Metadata)
		if err != nil || record.Execution != name.Execution {
			why = "nothing was committed on it"
		}
		s.Open = append(s.Open, Open{Branch: branch.Name, Commit: branch.Head.ID, Why: why + "; cleanup or a sweep takes it"})
	}
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + plain(reason)
}

// attempt is one task for people.
func (f Facts) attempt(task txn.Task) Attempt {
	a := Attempt{
		Task: task.ID, Name: task.ReferenceName, Type: task.Type, Retry: task.RetryCount, Poll: task.PollCount,
		Worker: task.Worker, Status: task.Status, Result: task.Reason,
	}
	if task.StartTime > 0 {
		started := time.UnixMilli(task.StartTime).UTC()
		a.Started = &started
	}
	if !task.Times.Ended.IsZero() && !task.Status.Open() {
		a.Ended = &task.Times.Ended
	}
	switch {
	case task.Status == txn.TaskScheduled:
		a.Result = "waits for a worker" + because(task.Reason)
	case task.Status == txn.TaskInProgress && isSystem(task):
		a.Result = "is under way in Conductor"
	case task.Status == txn.TaskInProgress && task.Times.ResponseTimeout <= 0:
		a.Result = fmt.Sprintf("worker %s took it; it has no response timeout, so nothing tells whether that worker lives", task.Worker)
	case task.Status == txn.TaskInProgress:
		a.Result = fmt.Sprintf("worker %s is at it", task.Worker)
	case task.Status == txn.TaskTimedOut, task.Status == txn.TaskCanceled:
		a.Result = strings.TrimPrefix(because(task.Reason)+"; what its worker still does is refused by the attempt fence", ": ")
		a.Result = strings.TrimPrefix(a.Result, "; ")
	case task.Status != txn.TaskCompleted:
	case task.Type.IsStage():
		a.Result = stageResult(task)
	case task.Type.IsCleanup():
		a.Result = cleanupResult(task)
	case task.Type.IsCheckout():
		a.Result = checkoutResult(task)
	}
	if what, _ := f.late(task); what != "" {
		a.Result = what
	}
	if task.Type.IsPublish() {
		p, _ := txn.PublicationOf(task) // what cannot be read is empty
		a.Outcome, a.ExpectedHead, a.Fence = p.Outcome, p.ExpectedHead, p.Fence
		if result := publishResult(p); result != "" {
			a.Result = strings.TrimSuffix(result+"; "+task.Reason, "; ")
		}
	}
	return a
}

func publishResult(p txn.Publication) string {
	switch p.Outcome {
	case txn.OutcomePublished:
		result := fmt.Sprintf("published %s on %s, on the %s fence", p.Commit, p.ExpectedHead, p.Fence)
		if p.Supersedes != "" {
			result += fmt.Sprintf(", superseding %s", p.Supersedes)
		}
		return result
	case txn.OutcomeAlreadyPublished:
		return fmt.Sprintf("adopted %s, which an earlier attempt had published, on the %s fence", p.Commit, p.Fence)
	case txn.OutcomeNoOp:
		return "nothing to publish"
	case txn.OutcomeReadOnly:
		return "read-only"
	case txn.OutcomeRefused:
		return "refused"
	case txn.OutcomeRaced:
		return "raced"
	case txn.OutcomeTakenBack:
		return fmt.Sprintf("did not adopt %s, which was taken back", p.Commit)
	case txn.OutcomeInDoubt:
		return fmt.Sprintf("in doubt, expecting the head %s", p.ExpectedHead)
	}
	return ""
}

func stageResult(task txn.Task) string {
	staged := stagedBy(task)
	switch {
	case staged == nil:
		return "its output is not a stage's"
	case staged.ReadOnly:
		return "read-only"
	case staged.NoOp:
		return fmt.Sprintf("nothing changed: %d files as at the input ref", staged.Unchanged)
	}
	return fmt.Sprintf("staged %s on %s: %d added, %d changed, %d removed, %d unchanged",
		staged.Commit, staged.StagingBranch, staged.Added, staged.Changed, staged.Removed, staged.Unchanged)
}

func cleanupResult(task txn.Task) string {
	var output struct {
		Deleted []txn.Branch `json:"deleted"`
		Kept    []struct {
			Branch txn.Branch `json:"branch"`
			Reason string     `json:"reason"`
		} `json:"kept"`
		Errors []string `json:"errors"`
	}
	_ = json.Unmarshal(task.Output, &output) // what cannot be read is empty
	result := fmt.Sprintf("branches deleted: %d, kept: %d", len(output.Deleted), len(output.Kept))
	for _, kept := range output.Kept {
		result += fmt.Sprintf("; kept %s: %s", kept.Branch, kept.Reason)
	}
	for _, problem := range output.Errors {
		result += "; " + problem
	}
	return result
}

func checkoutResult(task txn.Task) string {
	var output struct {
		Checkout struct {
			Directory string `json:"directory"`
			Objects   int    `json:"objects"`
		} `json:"checkout"`
	}
	_ = json.Unmarshal(task.Output, &output) // what cannot be read is empty
	workspace, _ := txn.WorkspaceOf(task)    // what cannot be read is empty
	return fmt.Sprintf("%d files of %s in %s", output.Checkout.Objects, workspace.Ref, output.Checkout.Directory)
}

// stagedBy is what a completed stage put out.
func stagedBy(task txn.Task) *txn.Staged {
	if task.Status != txn.TaskCompleted {
		return nil
	}
	// A stage's output has staged where a publish's input has it.
	staged, err := txn.StagedOf(txn.Task{Input: task.Output})
	if err != nil {
		return nil
	}
	return &staged
}

func prefixOf(task txn.Task) string {
	var input struct {
		Prefix string `json:"prefix"`
	}
	_ = json.Unmarshal(task.Input, &input) // what cannot be read is empty
	return input.Prefix
}
