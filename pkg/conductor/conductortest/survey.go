package conductortest

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"perago/pkg/txn"
)

// lastPoll is also its JSON form.
type lastPoll struct {
	Queue  string `json:"queueName"`
	Domain string `json:"domain,omitempty"`
	Worker string `json:"workerId"`
	At     int64  `json:"lastPollTime"`
}

// logLine is a line of a task's log; also its JSON form.
type logLine struct {
	Log         string     `json:"log"`
	TaskID      txn.TaskID `json:"taskId"`
	CreatedTime int64      `json:"createdTime"`
}

// surveyRoutes are those that look at the whole server.
func (s *Server) surveyRoutes(locked func(string, func(*http.Request) (answer, *refusal))) {
	locked("GET /api/tasks/queue/all", func(*http.Request) (answer, *refusal) {
		sizes := object{"_deciderQueue": 0}
		for name, tasks := range s.queues {
			sizes[name] = len(tasks)
		}
		return answer{http.StatusOK, sizes}, nil
	})
	locked("GET /api/tasks/queue/polldata", func(r *http.Request) (answer, *refusal) {
		polls := []lastPoll{}
		for _, poll := range s.polls {
			if poll.Queue == r.URL.Query().Get("taskType") {
				polls = append(polls, poll)
			}
		}
		slices.SortFunc(polls, func(a, b lastPoll) int { return cmp.Compare(a.Domain, b.Domain) })
		return answer{http.StatusOK, polls}, nil
	})
	// Every open task of the type goes back, one that a worker has too.
	locked("POST /api/tasks/queue/requeue/{type}", func(r *http.Request) (answer, *refusal) {
		requeued := 0
		for _, t := range s.tasks {
			if t.TaskDefName == r.PathValue("type") && !t.over() {
				s.enqueue(t, 0)
				requeued++
			}
		}
		return answer{http.StatusOK, strconv.Itoa(requeued)}, nil
	})
	locked("GET /api/metadata/taskdefs", func(*http.Request) (answer, *refusal) {
		return answer{http.StatusOK, slices.AppendSeq([]*taskDefinition{}, maps.Values(s.taskDefinitions))}, nil
	})
	locked("GET /api/metadata/workflow", func(*http.Request) (answer, *refusal) {
		definitions := []*workflowDefinition{}
		for _, versions := range s.workflowDefinitions {
			definitions = slices.AppendSeq(definitions, maps.Values(versions))
		}
		return answer{http.StatusOK, definitions}, nil
	})
	locked("GET /api/workflow/running/{name}", func(r *http.Request) (answer, *refusal) {
		ids := []string{}
		for id, w := range s.workflows {
			if w.WorkflowName == r.PathValue("name") && !w.Status.Terminal() {
				ids = append(ids, string(id))
			}
		}
		return answer{http.StatusOK, ids}, nil
	})
}

// polled notes a poll, whatever came of it.
func (s *Server) polled(kind, domain, worker string) {
	s.polls[kind+"\x00"+domain] = lastPoll{Queue: kind, Domain: domain, Worker: worker, At: s.milliseconds()}
}
