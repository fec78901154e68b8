package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// TestTheModelIsTheMemoryServer goes random schedules of every scenario, with any
// number of switches and faults, in which each call that reaches the model's
// servers goes to the memory servers too, through the real adapters, and has to
// come back the same: the same errors, and the same answers but for the names that
// the servers give.
func TestTheModelIsTheMemoryServer(t *testing.T) {
	on := newStand(t)
	rounds := 3
	if *full {
		rounds = 30
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, s := range every(on) {
		for _, m := range []mode{hard, soft} {
			t.Run(s.name+" "+string(m), func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(seed, uint64(len(s.name))))
				synctest.Test(t, func(t *testing.T) {
					for range rounds {
						s := s
						s.mirror = newMirror(t, s.conductor())
						p := s.prepared(on, m, nil)
						at := p.begin(bounds{preemptions: 100, faults: random.IntN(3)})
						for choices := at.choices(); len(choices) > 0; choices = at.choices() {
							at.take(draw(random, at, choices))
							if t.Failed() {
								t.Fatalf("after:\n%s", at.schedule(""))
							}
						}
						p.end()
					}
				})
			})
		}
	}
}

// TestRefusedMergesAreTheMemoryServers goes the shortest schedules in which a merge
// is refused, which few random ones come to.
func TestRefusedMergesAreTheMemoryServers(t *testing.T) {
	on := newStand(t)
	for _, c := range []struct {
		scenario string
		mode     mode
		refused  error
	}{
		{"publish zombie, rerun from stage", hard, txn.ErrHookRefused},
		{"publish zombie of files that conflict, rerun from stage", soft, txn.ErrConflict},
		{"publish zombie of files that conflict, rerun from stage", hard, txn.ErrConflict},
	} {
		t.Run(fmt.Sprint(c.refused, " ", c.mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var way []event
				explore(find(c.scenario).prepared(on, c.mode, nil), bounds{preemptions: 3}, func(e *exploration) bool {
					if errors.Is(e.refused, c.refused) {
						way = e.refusedBy
					}
					return way != nil
				})
				if way == nil {
					t.Fatal("no merge is refused so")
				}
				s := find(c.scenario)
				s.mirror = newMirror(t, s.conductor())
				if _, err := s.prepared(on, c.mode, nil).replay(way); err != nil {
					t.Error(err)
				}
				if s.mirror.seen[c.refused] == 0 {
					t.Errorf("it was not refused again; errors %v", s.mirror.seen)
				}
			})
		})
	}
}

// draw goes on with who is at work, most of the time, or nobody would come far; but
// a merge is often left under way, or nothing would happen to it.
func draw(random *rand.Rand, at *state, choices []choice) choice {
	odds := 12
	if at.last >= 0 && at.standing(at.last).name == "merge" {
		odds = 2
	}
	if c := choices[0]; !c.preempts && random.IntN(odds) > 0 {
		return c
	}
	return choices[random.IntN(len(choices))]
}

// mirror is a memory server of each kind, and which of their names stand for which
// of the model's.
type mirror struct {
	t        *testing.T
	lake     lakefs.Settling
	flows    *conductor.Client
	operator *conductortest.Operator
	now      time.Time
	// seen counts the errors that both gave.
	seen map[error]int

	commits   names[txn.CommitID]
	trees     names[txn.MetaRangeID]
	tasks     names[txn.TaskID]
	workflows names[txn.WorkflowID]
}

// names pairs the model's names with the memory server's, one with one.
type names[T ~string] struct{ there, here map[T]T }

func newNames[T ~string]() names[T] { return names[T]{map[T]T{}, map[T]T{}} }

// pair reports false when either had another partner.
func (n names[T]) pair(here, there T) bool {
	before, known := n.there[here]
	back, knownBack := n.here[there]
	if known || knownBack {
		return before == there && back == here
	}
	n.there[here], n.here[there] = there, here
	return true
}

func newMirror(t *testing.T, version conductortest.Version) *mirror {
	t.Helper()
	m := &mirror{
		t: t, now: time.Now(), seen: map[error]int{}, commits: newNames[txn.CommitID](), trees: newNames[txn.MetaRangeID](),
		tasks: newNames[txn.TaskID](), workflows: newNames[txn.WorkflowID](),
	}
	m.lake = lakefs.Settling{Client: lakefstest.NewServer().Client(t)}
	const address = "http://conductor.memory"
	transport := conductortest.Transport(conductortest.NewVersion(func() time.Time { return m.now }, version))
	var err error
	if m.flows, err = conductor.New(conductor.Config{ServerURL: address}, transport); err != nil {
		t.Fatal(err)
	}
	m.operator = conductortest.NewOperator(address, transport)
	return m
}

func (m *mirror) must(err error) {
	if err != nil {
		m.t.Helper()
		m.t.Fatal(err)
	}
}

// attach makes the memory servers hold what the world holds, before anybody acts.
func (m *mirror) attach(w *world) {
	ctx := context.Background()
	m.must(m.lake.CreateRepository(ctx, repository, "local://"+string(repository), target))
	input := w.lake.commits[w.input]
	for path, o := range input.tree {
		_, err := m.lake.Upload(ctx, repository, target, path, lakefstest.Text(string(o.content)))
		m.must(err)
	}
	// Not the settling one: the commit is nobody's.
	there, err := m.lake.Client.CreateCommit(ctx, repository, target, "input", nil)
	m.must(err)
	m.commits.pair(w.input, there.ID)
	m.trees.pair(input.MetaRange, there.MetaRange)
	w.lakefs = mirrorLake{w.lake, m}

	flow := w.conductor.workflows[0]
	name := "model"
	m.define(name, flow.steps, flow.failure != nil)
	if flow.failure != nil {
		m.define(name+"-cancel", flow.failure, false)
	}
	id, err := m.flows.StartWorkflow(ctx, conductor.StartRequest{Name: name, Version: 1, Input: json.RawMessage(`{}`)})
	m.must(err)
	m.workflows.pair(theOne, id)
	w.server = mirrorConductor{w.conductor, m}
	m.compareFlows(w.conductor)
}

// define registers a workflow's definition and those of its tasks.
func (m *mirror) define(name string, steps []step, failure bool) {
	ctx := context.Background()
	var tasks []map[string]any
	for _, s := range steps {
		d := s.definition
		template := d.InputTemplate
		if template == nil {
			template = json.RawMessage(`{}`)
		}
		m.must(m.flows.PutTaskDefinition(ctx, asJSON(map[string]any{
			"name": d.Name, "ownerEmail": "model@example.com", "retryCount": d.RetryCount, "retryLogic": "FIXED", "retryDelaySeconds": 0,
			"timeoutSeconds": 0, "responseTimeoutSeconds": d.ResponseTimeoutSeconds, "timeoutPolicy": d.TimeoutPolicy, "inputTemplate": template,
		})))
		input := map[string]any{"staged": "${step_stage.output.staged}", "workspace": "${step_stage.output.workspace}"}
		switch {
		case d.Name.IsStage():
			m.must(json.Unmarshal(s.input(nil), &input))
			delete(input, "staged")
		case len(steps) == 1:
			input = map[string]any{"workflow_id": "${workflow.input.workflowId}"}
		}
		tasks = append(tasks, map[string]any{"name": d.Name, "taskReferenceName": s.reference, "type": "SIMPLE", "inputParameters": input})
	}
	definition := map[string]any{"name": name, "version": 1, "schemaVersion": 2, "ownerEmail": "model@example.com", "tasks": tasks}
	if failure {
		definition["failureWorkflow"] = name + "-cancel"
	}
	m.must(m.flows.PutWorkflowDefinition(ctx, asJSON(definition)))
}

// differ reports an answer that is another there.
func (m *mirror) differ(what string, here, there any) {
	m.t.Helper()
	m.t.Errorf("%s: the model says %v, the memory server %v", what, here, there)
}

// errorsOf is what callers ask of an error.
func errorsOf(err error) (all []error) {
	for _, kind := range []error{
		txn.ErrRefused, txn.ErrRetryable, txn.ErrUnknownOutcome, txn.ErrNotFound, txn.ErrGone, txn.ErrExists, txn.ErrConflict,
		txn.ErrForbidden, txn.ErrHookRefused, txn.ErrDirtyBranch, txn.ErrNoChanges,
	} {
		if errors.Is(err, kind) {
			all = append(all, kind)
		}
	}
	return all
}

// agree compares two errors and reports whether there is none.
func (m *mirror) agree(what string, here, there error) bool {
	m.t.Helper()
	for _, kind := range errorsOf(here) {
		m.seen[kind]++
	}
	if (here == nil) != (there == nil) || !slices.Equal(errorsOf(here), errorsOf(there)) {
		m.differ(what, here, there)
		return false
	}
	return here == nil
}

// translate gives metadata the memory server's names.
func (m *mirror) translate(metadata map[string]string) map[string]string {
	translated := map[string]string{}
	for key, value := range metadata {
		if there, known := m.commits.there[txn.CommitID(value)]; known {
			value = string(there)
		}
		translated[key] = value
	}
	return translated
}

// same compares a commit with its image, and pairs the two.
func (m *mirror) same(what string, here, there txn.Commit) {
	m.t.Helper()
	if !m.commits.pair(here.ID, there.ID) || !m.trees.pair(here.MetaRange, there.MetaRange) {
		m.differ(what, here, there)
	}
	var parents []txn.CommitID
	for _, parent := range here.Parents {
		parents = append(parents, m.commits.there[parent])
	}
	got := map[string]string{}
	for key, value := range there.Metadata {
		if key != ".lakefs.merge.strategy" {
			got[key] = value
		}
	}
	if here.Message != there.Message && here.Message != "foreign" || here.Parents != nil && !slices.Equal(parents, there.Parents) || !reflect.DeepEqual(m.translate(here.Metadata), got) {
		m.differ(what, here, there)
	}
}

func (m *mirror) sameID(what string, here, there txn.CommitID) {
	m.t.Helper()
	if m.commits.there[here] != there {
		m.differ(what, here, there)
	}
}

// mirrorLake is the model's lakeFS, with the memory server looking on.
type mirrorLake struct {
	*lake
	m *mirror
}

func (l mirrorLake) Commit(ctx context.Context, repo txn.Repository, id txn.CommitID) (txn.Commit, error) {
	here, err := l.lake.Commit(ctx, repo, id)
	there, err2 := l.m.lake.Commit(ctx, repo, l.m.commits.there[id])
	if l.m.agree("read commit", err, err2) {
		l.m.same("read commit", here, there)
	}
	return here, err
}

func (l mirrorLake) Head(ctx context.Context, repo txn.Repository, branch txn.Branch) (txn.CommitID, error) {
	here, err := l.lake.Head(ctx, repo, branch)
	there, err2 := l.m.lake.Head(ctx, repo, branch)
	if l.m.agree("read head", err, err2) {
		l.m.sameID("read head", here, there)
	}
	return here, err
}

func (l mirrorLake) History(ctx context.Context, repo txn.Repository, from, stopAt txn.CommitID, limit int) ([]txn.Commit, bool, error) {
	here, reached, err := l.lake.History(ctx, repo, from, stopAt, limit)
	there, reached2, err2 := l.m.lake.History(ctx, repo, l.m.commits.there[from], l.m.commits.there[stopAt], limit)
	switch {
	case !l.m.agree("read history", err, err2):
	case !reached && !reached2:
		// The memory server has a first commit more, below the input.
	case reached != reached2 || len(here) != len(there):
		l.m.differ("read history", here, there)
	default:
		for i := range here {
			l.m.same("read history", here[i], there[i])
		}
	}
	return here, reached, err
}

func (l mirrorLake) Differ(ctx context.Context, repo txn.Repository, left, right txn.CommitID, prefix txn.Prefix) (bool, error) {
	here, err := l.lake.Differ(ctx, repo, left, right, prefix)
	there, err2 := l.m.lake.Differ(ctx, repo, l.m.commits.there[left], l.m.commits.there[right], prefix)
	if l.m.agree("compare commits", err, err2) && here != there {
		l.m.differ("compare commits", here, there)
	}
	return here, err
}

func (l mirrorLake) Branches(ctx context.Context, repo txn.Repository, prefix string) ([]txn.BranchHead, error) {
	here, err := l.lake.Branches(ctx, repo, prefix)
	there, err2 := l.m.lake.Branches(ctx, repo, prefix)
	if l.m.agree("list branches", err, err2) {
		translated := []txn.BranchHead{}
		for _, b := range here {
			translated = append(translated, txn.BranchHead{Name: b.Name, Head: l.m.commits.there[b.Head]})
		}
		if !slices.Equal(translated, there) {
			l.m.differ("list branches", here, there)
		}
	}
	return here, err
}

func (l mirrorLake) CreateBranch(ctx context.Context, repo txn.Repository, name txn.Branch, source txn.CommitID) error {
	err := l.lake.CreateBranch(ctx, repo, name, source)
	l.m.agree("create branch", err, l.m.lake.CreateBranch(ctx, repo, name, l.m.commits.there[source]))
	return err
}

func (l mirrorLake) DeleteBranch(ctx context.Context, repo txn.Repository, branch txn.Branch) error {
	err := l.lake.DeleteBranch(ctx, repo, branch)
	l.m.agree("delete branch", err, l.m.lake.DeleteBranch(ctx, repo, branch))
	return err
}

func (l mirrorLake) Objects(ctx context.Context, repo txn.Repository, ref txn.CommitID, prefix txn.Prefix) iter.Seq2[txn.Object, error] {
	list := func(objects iter.Seq2[txn.Object, error]) (all []txn.Object) {
		for o, err := range objects {
			l.m.must(err)
			all = append(all, o)
		}
		return all
	}
	here, there := list(l.lake.Objects(ctx, repo, ref, prefix)), list(l.m.lake.Objects(ctx, repo, l.m.commits.there[ref], prefix))
	if !slices.Equal(here, there) {
		l.m.differ("list objects", here, there)
	}
	return l.lake.Objects(ctx, repo, ref, prefix)
}

func (l mirrorLake) ReadObject(ctx context.Context, repo txn.Repository, ref txn.CommitID, path string) (io.ReadCloser, error) {
	here, err := l.lake.ReadObject(ctx, repo, ref, path)
	there, err2 := l.m.lake.ReadObject(ctx, repo, l.m.commits.there[ref], path)
	if l.m.agree("read object", err, err2) {
		data, _ := io.ReadAll(here)
		image, err := io.ReadAll(there)
		l.m.must(err)
		if !bytes.Equal(data, image) {
			l.m.differ("read object", data, image)
		}
		return io.NopCloser(bytes.NewReader(data)), nil
	}
	return here, err
}

func (l mirrorLake) Upload(ctx context.Context, repo txn.Repository, branch txn.Branch, path string, content txn.Content) (txn.Object, error) {
	here, err := l.lake.Upload(ctx, repo, branch, path, content)
	there, err2 := l.m.lake.Upload(ctx, repo, branch, path, content)
	if l.m.agree("upload", err, err2) && here != there {
		l.m.differ("upload", here, there)
	}
	return here, err
}

func (l mirrorLake) DeleteObjects(ctx context.Context, repo txn.Repository, branch txn.Branch, paths []string) error {
	err := l.lake.DeleteObjects(ctx, repo, branch, paths)
	l.m.agree("delete objects", err, l.m.lake.DeleteObjects(ctx, repo, branch, paths))
	return err
}

func (l mirrorLake) CreateCommit(ctx context.Context, repo txn.Repository, branch txn.Branch, message string, metadata map[string]string) (txn.Commit, error) {
	here, err := l.lake.CreateCommit(ctx, repo, branch, message, metadata)
	there, err2 := l.m.lake.CreateCommit(ctx, repo, branch, message, l.m.translate(metadata))
	if l.m.agree("commit", err, err2) {
		l.m.same("commit", here, there)
	}
	return here, err
}

func (l mirrorLake) CommitTree(ctx context.Context, repo txn.Repository, branch txn.Branch, tree txn.MetaRangeID, message string, metadata map[string]string) (txn.Commit, error) {
	here, err := l.lake.CommitTree(ctx, repo, branch, tree, message, metadata)
	there, err2 := l.m.lake.CommitTree(ctx, repo, branch, l.m.trees.there[tree], message, l.m.translate(metadata))
	if l.m.agree("commit tree", err, err2) {
		l.m.same("commit tree", here, there)
	}
	return here, err
}

func (l mirrorLake) HookRuns(ctx context.Context, repo txn.Repository, id txn.CommitID) ([]txn.HookRun, error) {
	here, err := l.lake.HookRuns(ctx, repo, id)
	there, err2 := l.m.lake.HookRuns(ctx, repo, l.m.commits.there[id])
	if l.m.agree("read hook runs", err, err2) && !slices.Equal(here, there) {
		l.m.differ("read hook runs", here, there)
	}
	return here, err
}

func (l mirrorLake) Merge(ctx context.Context, merge txn.Merge) (txn.CommitID, error) {
	here, err := l.lake.Merge(ctx, merge)
	image := merge
	image.Source, image.Metadata = l.m.commits.there[merge.Source], l.m.translate(merge.Metadata)
	there, err2 := l.m.lake.Merge(ctx, image)
	if l.m.agree("merge", err, err2) {
		commit, err := l.m.lake.Commit(ctx, merge.Repository, there)
		l.m.must(err)
		l.m.same("merge", l.commits[here].Commit, commit)
	}
	return here, err
}

// foreign is somebody's commit, made by hand.
func (m *mirror) foreign(l *lake, path string) {
	ctx := context.Background()
	here := l.commits[l.branches[target].head].Commit
	var there txn.Commit
	var err error
	if path == "" {
		there, err = m.lake.Client.CommitUnchanged(ctx, repository, target, "foreign", nil)
	} else {
		_, err = m.lake.Upload(ctx, repository, target, path, lakefstest.Text("foreign"))
		m.must(err)
		there, err = m.lake.Client.CreateCommit(ctx, repository, target, "foreign", nil)
	}
	m.must(err)
	m.same("foreign commit", here, there)
}

// mirrorConductor is the model's Conductor, with the memory server looking on.
type mirrorConductor struct {
	*conductorModel
	m *mirror
}

func (c mirrorConductor) Poll(ctx context.Context, request txn.PollRequest) ([]txn.Task, error) {
	here, err := c.conductorModel.Poll(ctx, request)
	request.Count = 1
	there, err2 := c.m.flows.Poll(ctx, request)
	if c.m.agree("poll", err, err2) && (len(here) != len(there) || len(here) == 1 && c.m.tasks.there[here[0].ID] != there[0].ID) {
		c.m.differ("poll", here, there)
	}
	c.m.compareFlows(c.conductorModel)
	return here, err
}

func (c mirrorConductor) Task(ctx context.Context, id txn.TaskID) (txn.Task, error) {
	here, err := c.conductorModel.Task(ctx, id)
	there, err2 := c.m.flows.Task(ctx, c.m.tasks.there[id])
	if c.m.agree("read task", err, err2) {
		c.m.sameTask("read task", here, there)
	}
	return here, err
}

func (c mirrorConductor) WorkflowStatus(ctx context.Context, id txn.WorkflowID) (txn.WorkflowStatus, error) {
	here, err := c.conductorModel.WorkflowStatus(ctx, id)
	there, err2 := c.m.flows.WorkflowStatus(ctx, c.m.workflows.there[id])
	if c.m.agree("read workflow status", err, err2) && here != there {
		c.m.differ("read workflow status", here, there)
	}
	return here, err
}

func (c mirrorConductor) Update(ctx context.Context, result txn.TaskResult) error {
	image := result
	image.Task, image.Workflow = c.m.tasks.there[result.Task], c.m.workflows.there[result.Workflow]
	err := c.conductorModel.Update(ctx, result)
	c.m.agree("update", err, c.m.flows.Update(ctx, image))
	c.m.compareFlows(c.conductorModel)
	return err
}

// compareFlows compares every workflow with its image, and pairs new tasks.
func (m *mirror) compareFlows(c *conductorModel) {
	m.t.Helper()
	ctx := context.Background()
	for _, w := range c.workflows {
		id, known := m.workflows.there[w.id]
		if !known {
			// It was started by the failure of the other one, which says its id.
			failed, err := m.flows.Workflow(ctx, m.workflows.there[theOne])
			m.must(err)
			var output map[string]any
			m.must(json.Unmarshal(failed.Output, &output))
			id = txn.WorkflowID(fmt.Sprint(output["conductor.failure_workflow"]))
			m.workflows.pair(w.id, id)
		}
		there, err := m.flows.Workflow(ctx, id)
		m.must(err)
		if w.status != there.Status || len(w.tasks) != len(there.Tasks) {
			m.differ("workflow "+string(w.id), fmt.Sprint(w.status, w.tasks), fmt.Sprint(there.Status, there.Tasks))
			return
		}
		for i := range w.tasks {
			m.sameTask("task", w.tasks[i], there.Tasks[i])
		}
	}
}

// sameTask compares a task with its image and pairs the two.
func (m *mirror) sameTask(what string, here, there txn.Task) {
	m.t.Helper()
	type facts struct {
		Type             txn.TaskType
		Reference        txn.ReferenceName
		Status           txn.TaskStatus
		Retry, Poll      int
		Started          bool
		Worker           txn.WorkerID
		Input, Output    map[string]any
		PairedAsItWas    bool
		WorkflowIsPaired bool
	}
	of := func(t txn.Task, paired, workflow bool) facts {
		object := func(raw json.RawMessage) map[string]any {
			fields := map[string]any{}
			if len(raw) > 0 {
				m.must(json.Unmarshal(raw, &fields))
			}
			// The TaskDef's template adds the one, and the other has another name here.
			delete(fields, "budget")
			delete(fields, "workflow_id")
			return fields
		}
		return facts{t.Type, t.ReferenceName, t.Status, t.RetryCount, t.PollCount, t.StartTime != 0, t.Worker, object(t.Input), object(t.Output), paired, workflow}
	}
	want := of(here, true, true)
	got := of(there, m.tasks.pair(here.ID, there.ID), m.workflows.there[here.Workflow] == there.Workflow)
	if diff := cmp.Diff(want, got); diff != "" {
		m.t.Errorf("%s %s: the model (-) and the memory server (+):\n%s", what, here.ID, diff)
	}
}

// timeOut lets the response timeout of one task pass, and of no other.
func (m *mirror) timeOut(c *conductorModel, id txn.TaskID) {
	ctx := context.Background()
	timeout := time.Duration(definition(txn.TypeStage, 0).ResponseTimeoutSeconds) * time.Second
	m.now = m.now.Add(timeout - time.Second)
	for _, w := range c.workflows {
		for _, t := range w.tasks {
			if t.ID != id && t.Status == txn.TaskInProgress {
				m.must(m.flows.ExtendLease(ctx, m.workflows.there[w.id], m.tasks.there[t.ID], t.Worker))
			}
		}
	}
	m.now = m.now.Add(time.Second)
	m.must(m.operator.Decide(ctx, m.workflows.there[theOne]))
}
