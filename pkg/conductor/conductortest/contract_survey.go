package conductortest

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"perago/pkg/conductor"
	"perago/pkg/txn"
)

// waitsForPoll: what waits is counted for each domain, and each poll is noted with
// its domain and time, whatever came of it.
func waitsForPoll(b *bench) {
	kind, domain := b.taskType("t", nil), "d"+b.suffix
	name := b.workflow("w", nil, simple(kind, "only", nil))
	waiting := func() []txn.Queue {
		queues, err := b.Client.Queues(b.ctx)
		b.must(err)
		return slices.DeleteFunc(queues, func(q txn.Queue) bool { return q.Type != kind })
	}
	polls := func() []txn.LastPoll {
		all, err := b.Client.LastPolls(b.ctx, kind)
		b.must(err)
		return all
	}
	b.equal("queues of a type without tasks", len(waiting()), 0)
	b.equal("polls of a type that nobody asked for", len(polls()), 0)
	unregistered, err := b.Client.LastPolls(b.ctx, txn.TaskType("unregistered_"+b.suffix))
	b.must(err)
	b.equal("polls of an unregistered type", len(unregistered), 0)

	b.start(name, nil)
	b.startIn(name, nil, map[string]string{string(kind): domain})
	b.equal("queues", waiting(), []txn.Queue{{Type: kind, Waiting: 1}, {Type: kind, Domain: domain, Waiting: 1}})
	b.pollNone(kind, "elsewhere"+b.suffix)
	b.poll(kind, "somebody")
	b.equal("queues", waiting(), []txn.Queue{{Type: kind, Domain: domain, Waiting: 1}})
	seen := polls()
	b.equal("domains that were polled", len(seen), 2)
	for _, poll := range seen {
		want := map[string]txn.WorkerID{"": "somebody", "elsewhere" + b.suffix: "nobody"}[poll.Domain]
		b.equal("worker in domain "+poll.Domain, poll.Worker, want)
		if age := time.Since(poll.At); age < -time.Minute || age > time.Minute {
			b.Errorf("polled %s ago", age)
		}
	}
}

// requeueOfAType: a requeue puts the open tasks of a type back into the queues of
// their domains, the tasks that a worker has too. Those are handed out a second time.
func requeueOfAType(b *bench) {
	kind, domain := b.taskType("t", nil), "d"+b.suffix
	name := b.workflow("w", nil, simple(kind, "only", nil))
	b.startIn(name, nil, map[string]string{string(kind): domain})
	first := b.pollIn(kind, "first", domain)
	b.pollNone(kind, domain)
	b.equal("requeue", b.do("POST", "/tasks/queue/requeue/"+string(kind), nil), Answer{http.StatusOK, []byte("1")})
	b.pollNone(kind, "")
	again := b.pollIn(kind, "second", domain)
	b.equal("task", again.ID, first.ID)
	b.equal("domain", again.Domain, domain)
	b.equal("polls", again.PollCount, 2)
	b.equal("worker", again.Worker, txn.WorkerID("second"))

	// A task that waits in its queue stays there, once.
	b.startIn(name, nil, map[string]string{string(kind): domain})
	b.update(again, txn.TaskCompleted, nil)
	b.equal("requeue of a task in its queue", b.do("POST", "/tasks/queue/requeue/"+string(kind), nil).Status, http.StatusOK)
	b.pollIn(kind, "third", domain)
	b.pollNone(kind, domain)
}

// surveyDefinitions: definitions are listed, and the workflows of a name that have
// not ended, paused ones too.
func surveyDefinitions(b *bench) {
	kind := b.taskType("t", nil)
	name := b.workflow("w", nil, simple(kind, "only", nil))
	other := b.workflow("w", object{"version": 2}, simple(kind, "only", nil))
	b.equal("one name", name, other)
	types, err := b.Client.TaskTypes(b.ctx)
	b.must(err)
	b.equal("type is listed", slices.Contains(types, kind), true)
	with, err := b.Client.WorkflowsWith(b.ctx, func(t txn.TaskType) bool { return t == kind })
	b.must(err)
	slices.SortFunc(with, func(a, c txn.WorkflowVersion) int { return a.Version - c.Version })
	b.equal("workflows with it", with, []txn.WorkflowVersion{{Name: name, Version: 1}, {Name: name, Version: 2}})

	running := func(version int) []txn.WorkflowID {
		ids, err := b.Client.Running(b.ctx, txn.WorkflowVersion{Name: name, Version: version})
		b.must(err)
		return ids
	}
	b.equal("before", len(running(1)), 0)
	id := b.start(name, object{"workspace": object{"repository": "lake"}})
	b.equal("running", running(1), []txn.WorkflowID{id})
	// Measured: the version is not looked at, the name alone is.
	b.equal("of the other version", running(2), []txn.WorkflowID{id})
	b.must(b.Operator.Pause(b.ctx, id))
	b.equal("paused", running(1), []txn.WorkflowID{id})
	open, err := b.Client.OpenWorkflow(b.ctx, id)
	b.must(err)
	b.equal("status", open.Status, txn.WorkflowPaused)
	b.equal("tasks", len(open.Tasks), 1)
	b.equalJSON("input", open.Input, `{"workspace":{"repository":"lake"}}`)
	b.equal("parent", open.Parent, txn.WorkflowID(""))
	if age := time.Since(open.Started); age < -time.Minute || age > time.Minute {
		b.Errorf("started %s ago", age)
	}
	b.must(b.Operator.Terminate(b.ctx, id, "enough"))
	b.equal("terminated", len(running(1)), 0)
	_, err = b.Client.OpenWorkflow(b.ctx, "00000000-0000-4000-8000-000000000000")
	if !errors.Is(err, txn.ErrNotFound) {
		b.Errorf("missing workflow: got %v, want ErrNotFound", err)
	}
	b.equal("of a name that is not registered", b.do("GET", "/workflow/running/nothing_"+b.suffix, nil), Answer{http.StatusOK, []byte("[]")})
}

// wrongBase: a 404 below a wrong base path says that there is no such path. Some
// versions give it the form of Conductor's own 404s.
func wrongBase(b *bench) {
	answer := b.do("GET", "/no-such-thing", nil)
	b.equal("status", answer.Status, http.StatusNotFound)
	want := any(nil)
	if b.Version.ownNotFound() {
		want = "No static resource api/no-such-thing."
	}
	b.equal("message of "+string(b.Version), answer.Field("message"), want)
	// Whatever its form, it is not taken for a workflow that does not exist.
	elsewhere, err := conductor.New(conductor.Config{ServerURL: strings.TrimSuffix(b.Operator.base, "/api") + "/api/elsewhere"}, b.Operator.http.Transport)
	b.must(err)
	if _, err := elsewhere.WorkflowStatus(b.ctx, "00000000-0000-4000-8000-000000000000"); !errors.Is(err, txn.ErrRetryable) || errors.Is(err, txn.ErrNotFound) {
		b.Errorf("a workflow below a wrong path: got %v, want ErrRetryable and not ErrNotFound", err)
	}
}

// surveyRows is what a look at the whole server relies on.
var surveyRows = []row{
	{"what waits and who polls", waitsForPoll},
	{"requeue of a type", requeueOfAType},
	{"definitions and running workflows", surveyDefinitions},
	{"unknown path", wrongBase},
}
