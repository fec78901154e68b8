package survey_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"perago/pkg/survey"
	"perago/pkg/txn"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

var errDown = errors.New("connection refused")

// server is a Conductor whose tasks and queues a test writes.
type server struct {
	definitions []txn.WorkflowVersion
	running     map[string][]txn.WorkflowID
	workflows   map[txn.WorkflowID]txn.OpenWorkflow
	queues      []txn.Queue
	polls       map[txn.TaskType][]txn.LastPoll
	tasks       map[txn.TaskID]txn.Task
	fails       string
	reads       []string
}

func (s *server) read(what string) error {
	s.reads = append(s.reads, what)
	if s.fails == what {
		return errDown
	}
	return nil
}

func (s *server) WorkflowsWith(_ context.Context, wanted func(txn.TaskType) bool) ([]txn.WorkflowVersion, error) {
	if wanted("train") || !wanted("perago_cleanup") || !wanted("perago_checkout_large") {
		return nil, errors.New("asks for others than perago's")
	}
	return s.definitions, s.read("definitions")
}

func (s *server) Running(_ context.Context, of txn.WorkflowVersion) ([]txn.WorkflowID, error) {
	return s.running[of.Name], s.read("running")
}

func (s *server) OpenWorkflow(_ context.Context, id txn.WorkflowID) (txn.OpenWorkflow, error) {
	workflow, ok := s.workflows[id]
	if !ok {
		return workflow, txn.ErrNotFound
	}
	return workflow, s.read("workflow")
}

func (s *server) Queues(context.Context) ([]txn.Queue, error) { return s.queues, s.read("queues") }

func (s *server) LastPolls(_ context.Context, kind txn.TaskType) ([]txn.LastPoll, error) {
	return s.polls[kind], s.read("polls")
}

func (s *server) Task(_ context.Context, id txn.TaskID) (txn.Task, error) {
	task, ok := s.tasks[id]
	if !ok {
		return task, txn.ErrNotFound
	}
	return task, s.read("task")
}

// waits is a task that waits for so long, with a domain.
func waits(id txn.TaskID, long time.Duration) txn.Task {
	return txn.Task{
		ID: id, Workflow: "w", Type: "perago_stage", Domain: "gpu", Status: txn.TaskScheduled,
		Times: txn.TaskTimes{Scheduled: noon.Add(-long)},
	}
}

// withLost is a Conductor with two lost tasks and one that has just come.
func withLost() (*server, []txn.Task) {
	tasks := []txn.Task{waits("young", time.Second), waits("lost", time.Hour), waits("longest", 2*time.Hour)}
	s := &server{
		queues: []txn.Queue{{Type: "perago_stage", Waiting: 1}, {Type: "perago_publish", Domain: "gpu", Waiting: 1}},
		polls: map[txn.TaskType][]txn.LastPoll{"perago_stage": {
			{Domain: "gpu", At: noon.Add(-time.Second)}, {At: noon.Add(-time.Hour)},
		}},
		tasks: map[txn.TaskID]txn.Task{},
	}
	for _, task := range tasks {
		s.tasks[task.ID] = task
	}
	return s, tasks
}

func ids(tasks []txn.Task) (all []txn.TaskID) {
	for _, task := range tasks {
		all = append(all, task.ID)
	}
	return all
}

func TestLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change         func(*server)
		lost, unpolled []txn.TaskID
	}{
		"two of three":             {func(*server) {}, []txn.TaskID{"longest", "lost"}, nil},
		"the queue has tasks":      {func(s *server) { s.queues[0].Domain = "gpu" }, nil, nil},
		"handed out in between":    {func(s *server) { change(s, func(t *txn.Task) { t.Status = txn.TaskInProgress }) }, []txn.TaskID{"longest"}, nil},
		"put back in between":      {func(s *server) { change(s, func(t *txn.Task) { t.Times.Updated = noon }) }, []txn.TaskID{"longest"}, nil},
		"gone in between":          {func(s *server) { delete(s.tasks, "lost") }, []txn.TaskID{"longest"}, nil},
		"no worker polls any more": {func(s *server) { s.polls["perago_stage"][0].At = noon.Add(-2 * time.Minute) }, nil, []txn.TaskID{"longest", "lost"}},
		"polled in another domain": {func(s *server) { s.polls["perago_stage"][0].Domain = "cpu" }, nil, []txn.TaskID{"longest", "lost"}},
		"unpolled, and in the queue": {func(s *server) {
			s.polls, s.queues[0].Domain = nil, "gpu"
		}, nil, nil},
	} {
		s, tasks := withLost()
		c.change(s)
		found, err := survey.Lost(t.Context(), s, tasks, func() time.Time { return noon })
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %+v, %v", name, found, err)
		}
		w := found[0]
		if w.Type != "perago_stage" || w.Domain != "gpu" || !w.Now.Equal(noon) || w.Err != nil {
			t.Errorf("%s: %+v", name, w)
		}
		if !slices.Equal(ids(w.Lost), c.lost) || !slices.Equal(ids(w.Unpolled), c.unpolled) {
			t.Errorf("%s: lost %v, want %v; unpolled %v, want %v", name, ids(w.Lost), c.lost, ids(w.Unpolled), c.unpolled)
		}
	}
}

func change(s *server, how func(*txn.Task)) {
	task := s.tasks["lost"]
	how(&task)
	s.tasks["lost"] = task
}

// Each queue is decided for itself.
func TestLost_TellsQueuesApart(t *testing.T) {
	t.Parallel()
	s, tasks := withLost()
	none, other := waits("no domain", time.Hour), waits("publish", time.Hour)
	none.Domain, other.Type = "", "perago_publish"
	s.tasks["no domain"], s.tasks["publish"] = none, other
	s.queues, s.polls["perago_publish"] = nil, []txn.LastPoll{{Domain: "gpu", At: noon}}
	found, err := survey.Lost(t.Context(), s, append(tasks, other, none), func() time.Time { return noon })
	var said []string
	for _, w := range found {
		said = append(said, fmt.Sprintf("%s:%s %v %v", w.Domain, w.Type, ids(w.Lost), ids(w.Unpolled)))
	}
	want := []string{"gpu:perago_publish [publish] []", ":perago_stage [] [no domain]", "gpu:perago_stage [longest lost] []"}
	if err != nil || !slices.Equal(said, want) {
		t.Errorf("%q, %v; want %q", said, err, want)
	}
}

// Nothing is read where no task waits for long, and the queues are read before the
// tasks are read again.
func TestLost_ReadsInOrder(t *testing.T) {
	t.Parallel()
	s, tasks := withLost()
	if found, err := survey.Lost(t.Context(), s, tasks[:1], func() time.Time { return noon }); len(found) > 0 || err != nil || len(s.reads) > 0 {
		t.Errorf("%+v, %v, read %v", found, err, s.reads)
	}
	if _, err := survey.Lost(t.Context(), s, tasks, func() time.Time { return noon }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"queues", "polls", "task", "task"}; !slices.Equal(s.reads, want) {
		t.Errorf("read %v, want %v", s.reads, want)
	}
}

// A read that fails is never taken for "nothing is lost".
func TestSurvey_SaysWhatItCouldNotRead(t *testing.T) {
	t.Parallel()
	for _, fails := range []string{"queues", "polls", "task"} {
		s, tasks := withLost()
		s.fails = fails
		found, err := survey.Lost(t.Context(), s, tasks, func() time.Time { return noon })
		if err == nil && len(found) == 1 {
			err = found[0].Err
		}
		if !errors.Is(err, errDown) {
			t.Errorf("%s: %+v, %v", fails, found, err)
		}
	}
	for _, fails := range []string{"definitions", "running", "workflow"} {
		s := &server{
			definitions: []txn.WorkflowVersion{{Name: "a"}}, running: map[string][]txn.WorkflowID{"a": {"1"}},
			workflows: map[txn.WorkflowID]txn.OpenWorkflow{"1": {}}, fails: fails,
		}
		if _, err := survey.Open(t.Context(), s, func(txn.OpenWorkflow) {}); !errors.Is(err, errDown) {
			t.Errorf("%s: %v", fails, err)
		}
	}
}

// A search that could not read something finds nothing, and says so.
func TestSearch(t *testing.T) {
	t.Parallel()
	search := func(fails string, change ...func(*server)) (survey.Found, error) {
		s, tasks := withLost()
		s.fails = fails
		for _, c := range change {
			c(s)
		}
		s.definitions, s.running = []txn.WorkflowVersion{{Name: "a"}}, map[string][]txn.WorkflowID{"a": {"w"}}
		s.workflows = map[txn.WorkflowID]txn.OpenWorkflow{"w": {Workflow: txn.Workflow{ID: "w", Tasks: tasks}}}
		for i := range survey.Most {
			id := txn.WorkflowID(fmt.Sprintf("x-%d", i))
			s.running["a"], s.workflows[id] = append(s.running["a"], id), txn.OpenWorkflow{}
		}
		return survey.Search(t.Context(), s, func() time.Time { return noon })
	}
	found, err := search("")
	if err != nil || !slices.Equal(ids(found.Lost), []txn.TaskID{"longest", "lost"}) || found.Unread != 1 {
		t.Errorf("%+v, %v", found, err)
	}
	found, err = search("", func(s *server) { s.polls = nil })
	if err != nil || len(found.Lost) > 0 || !slices.Equal(ids(found.Unpolled), []txn.TaskID{"longest", "lost"}) {
		t.Errorf("no worker polls: %+v, %v", found, err)
	}
	for _, fails := range []string{"definitions", "running", "workflow", "queues", "polls", "task"} {
		if found, err := search(fails); !errors.Is(err, errDown) || len(found.Lost) > 0 {
			t.Errorf("%s: %+v, %v", fails, found, err)
		}
	}
}

// Each open workflow is visited once; those beyond the bound are counted.
func TestOpen(t *testing.T) {
	t.Parallel()
	s := &server{
		definitions: []txn.WorkflowVersion{{Name: "a", Version: 1}, {Name: "a", Version: 2}, {Name: "b"}},
		running:     map[string][]txn.WorkflowID{"b": {"ended", "gone"}}, workflows: map[txn.WorkflowID]txn.OpenWorkflow{},
	}
	add := func(name string, id txn.WorkflowID, status txn.WorkflowStatus) {
		s.running[name] = append(s.running[name], id)
		s.workflows[id] = txn.OpenWorkflow{Workflow: txn.Workflow{ID: id, Status: status}}
	}
	add("b", "ended", txn.WorkflowCompleted)
	add("a", "paused", txn.WorkflowPaused)
	add("a", "running", txn.WorkflowRunning)
	var visited []txn.WorkflowID
	visit := func(w txn.OpenWorkflow) { visited = append(visited, w.ID) }
	more, err := survey.Open(t.Context(), s, visit)
	if err != nil || more != 0 || !slices.Equal(visited, []txn.WorkflowID{"paused", "running"}) {
		t.Errorf("visited %v, %d more, %v", visited, more, err)
	}
	for i := range survey.Most {
		add("a", txn.WorkflowID(fmt.Sprintf("many-%d", i)), txn.WorkflowRunning)
	}
	visited = nil
	if more, err := survey.Open(t.Context(), s, visit); err != nil || more != 4 || len(visited) > survey.Most {
		t.Errorf("visited %d, %d more, %v", len(visited), more, err)
	}
}

// Only perago's scheduled tasks are kept, without what is large in them.
func TestScheduled(t *testing.T) {
	t.Parallel()
	task := waits("t", time.Hour)
	task.Input = []byte(`{}`)
	running, other := task, task
	running.Status, other.Type = txn.TaskInProgress, "train"
	all := survey.Scheduled(txn.Workflow{ID: "w", Tasks: []txn.Task{running, other, task}})
	if len(all) != 1 || all[0].ID != "t" || all[0].Workflow != "w" || all[0].Domain != "gpu" || all[0].Input != nil || all[0].Times != task.Times {
		t.Errorf("%+v", all)
	}
}
