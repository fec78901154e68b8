package conductortest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"perago/pkg/txn"
)

// maxPollWait is the longest wait of a poll that the server accepts.
const maxPollWait = 5 * time.Second

// Server is a Conductor in memory. Its zero value is not usable; see New.
type Server struct {
	version Version
	now     func() time.Time
	mux     *http.ServeMux

	mutex               sync.Mutex
	taskDefinitions     map[string]*taskDefinition
	workflowDefinitions map[string]map[int]*workflowDefinition
	workflows           map[txn.WorkflowID]*workflow
	tasks               map[txn.TaskID]*task
	queues              map[string][]queued
	logs                map[txn.TaskID][]logLine
	// polls are the latest ones, by type and domain.
	polls map[string]lastPoll
}

// New makes an empty server in the manner of the newest version. now is its clock;
// nil means time.Now.
func New(now func() time.Time) *Server { return NewVersion(now, Newest) }

// NewVersion is New in the manner of another version.
func NewVersion(now func() time.Time, version Version) *Server {
	if now == nil {
		now = time.Now
	}
	s := &Server{
		version: version, now: now, mux: http.NewServeMux(),
		taskDefinitions:     map[string]*taskDefinition{},
		workflowDefinitions: map[string]map[int]*workflowDefinition{},
		workflows:           map[txn.WorkflowID]*workflow{},
		tasks:               map[txn.TaskID]*task{},
		queues:              map[string][]queued{},
		logs:                map[txn.TaskID][]logLine{},
		polls:               map[string]lastPoll{},
	}
	s.routes()
	return s
}

// ServeHTTP serves the API below /api and the health check at /health.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Lose takes a task out of its queue and tells nobody: the task stays SCHEDULED, and no
// poll returns it.
func (s *Server) Lose(id txn.TaskID) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.dequeue(s.tasks[id])
}

// answer is what a handler returns: nil is an empty 200, a string is sent as
// text, everything else as JSON.
type answer struct {
	status int
	body   any
}

var (
	done    = answer{http.StatusOK, nil}
	nothing = answer{http.StatusNoContent, nil}
)

func (s *Server) routes() {
	handle := func(pattern string, handler func(*http.Request) (answer, *refusal)) {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			answer, refused := handler(r)
			if refused != nil {
				answer = refused.answer()
			}
			answer.write(w)
		})
	}
	// locked handlers see a server on which every timeout has taken effect.
	locked := func(pattern string, handler func(*http.Request) (answer, *refusal)) {
		handle(pattern, func(r *http.Request) (answer, *refusal) {
			s.mutex.Lock()
			defer s.mutex.Unlock()
			s.sweep()
			return handler(r)
		})
	}
	onWorkflow := func(pattern string, act func(*workflow, *http.Request) (answer, *refusal)) {
		locked(pattern, func(r *http.Request) (answer, *refusal) {
			w, refused := s.find(txn.WorkflowID(r.PathValue("id")))
			if refused != nil {
				return answer{}, refused
			}
			return act(w, r)
		})
	}
	handle("/", func(r *http.Request) (answer, *refusal) { return s.unknownPath(r), nil })
	handle("GET /health", func(*http.Request) (answer, *refusal) { return answer{http.StatusOK, object{"healthy": true}}, nil })

	handle("GET /api/tasks/poll/batch/{type}", s.servePoll)
	handle("GET /api/tasks/poll/{type}", s.servePollOne)
	locked("GET /api/tasks/queue/sizes", func(r *http.Request) (answer, *refusal) {
		sizes := object{}
		for _, kind := range r.URL.Query()["taskType"] {
			sizes[kind] = len(s.queues[kind])
		}
		return answer{http.StatusOK, sizes}, nil
	})
	locked("GET /api/tasks/{id}", func(r *http.Request) (answer, *refusal) {
		t, ok := s.tasks[txn.TaskID(r.PathValue("id"))]
		switch {
		case ok:
			return answer{http.StatusOK, clone(t)}, nil
		case s.version.missingTask() == http.StatusNotFound:
			return answer{}, refuse(http.StatusNotFound, "Task not found for taskId: %s", r.PathValue("id"))
		}
		return nothing, nil
	})
	locked("POST /api/tasks", func(r *http.Request) (answer, *refusal) {
		var result taskResult
		if refused := read(r, &result); refused != nil {
			return answer{}, refused
		}
		return answer{http.StatusOK, string(result.TaskID)}, s.update(result)
	})

	locked("POST /api/tasks/update-v2", func(r *http.Request) (answer, *refusal) {
		if !s.version.updateV2() {
			return answer{}, refuse(http.StatusInternalServerError, "Request method 'POST' is not supported")
		}
		var result taskResult
		if refused := read(r, &result); refused != nil {
			return answer{}, refused
		}
		return s.updateAndPoll(result)
	})

	// Without an index a line is dropped. Nobody asks whether there is a task.
	locked("POST /api/tasks/{id}/log", func(r *http.Request) (answer, *refusal) {
		line, err := io.ReadAll(r.Body)
		if err != nil || len(line) == 0 {
			return answer{}, refuse(http.StatusInternalServerError, "Required request body is missing")
		}
		if s.version.keepsLogs() {
			id := txn.TaskID(r.PathValue("id"))
			s.logs[id] = append(s.logs[id], logLine{Log: string(line), TaskID: id, CreatedTime: s.milliseconds()})
		}
		return done, nil
	})
	locked("GET /api/tasks/{id}/{what}", func(r *http.Request) (answer, *refusal) {
		if r.PathValue("what") != "log" {
			return s.unknownPath(r), nil
		}
		return answer{http.StatusOK, append([]logLine{}, s.logs[txn.TaskID(r.PathValue("id"))]...)}, nil
	})

	locked("POST /api/workflow", func(r *http.Request) (answer, *refusal) {
		var raw map[string]json.RawMessage
		var request startRequest
		body, err := io.ReadAll(r.Body)
		if err != nil || decode(body, &raw) != nil || decode(body, &request) != nil {
			return answer{}, refuse(http.StatusInternalServerError, "JSON parse error")
		}
		if string(raw["input"]) == "null" {
			return answer{}, refuse(http.StatusBadRequest, "NULL input passed when starting workflow")
		}
		id, refused := s.start(request)
		return answer{http.StatusOK, string(id)}, refused
	})
	onWorkflow("GET /api/workflow/{id}", func(w *workflow, r *http.Request) (answer, *refusal) {
		shown := clone(w)
		if r.URL.Query().Get("includeTasks") == "false" {
			shown.Tasks = []*task{}
		}
		return answer{http.StatusOK, shown}, nil
	})
	onWorkflow("DELETE /api/workflow/{id}", func(w *workflow, r *http.Request) (answer, *refusal) {
		return done, s.terminate(w, r.URL.Query().Get("reason"))
	})
	// One pattern: decide stands where the others have the id.
	locked("PUT /api/workflow/{first}/{second}", func(r *http.Request) (answer, *refusal) {
		id, action := r.PathValue("first"), r.PathValue("second")
		if id == "decide" {
			id, action = action, id
		}
		w, refused := s.find(txn.WorkflowID(id))
		if refused != nil {
			return answer{}, refused
		}
		switch action {
		case "pause":
			return done, s.pause(w)
		case "resume":
			return done, s.resume(w)
		case "decide":
			s.decide(w)
			return done, nil
		}
		return s.unknownPath(r), nil
	})
	onWorkflow("POST /api/workflow/{id}/retry", func(w *workflow, _ *http.Request) (answer, *refusal) { return nothing, s.retryWorkflow(w) })
	onWorkflow("POST /api/workflow/{id}/restart", func(w *workflow, _ *http.Request) (answer, *refusal) { return nothing, s.restart(w) })
	onWorkflow("POST /api/workflow/{id}/rerun", func(w *workflow, r *http.Request) (answer, *refusal) {
		var request struct {
			From txn.TaskID `json:"reRunFromTaskId"`
		}
		if refused := read(r, &request); refused != nil {
			return answer{}, refused
		}
		return answer{http.StatusOK, string(w.WorkflowID)}, s.rerun(w, request.From)
	})

	s.definitionRoutes(locked)
	s.surveyRoutes(locked)
}

func (s *Server) definitionRoutes(locked func(string, func(*http.Request) (answer, *refusal))) {
	locked("GET /api/metadata/taskdefs/{name}", func(r *http.Request) (answer, *refusal) {
		definition, ok := s.taskDefinitions[r.PathValue("name")]
		if !ok {
			return answer{}, refuse(http.StatusNotFound, "No such taskType found by name: %s", r.PathValue("name"))
		}
		return answer{http.StatusOK, clone(definition)}, nil
	})
	locked("POST /api/metadata/taskdefs", func(r *http.Request) (answer, *refusal) {
		var raw []json.RawMessage
		if refused := read(r, &raw); refused != nil {
			return answer{}, refused
		}
		for _, one := range raw {
			definition, refused := s.readTaskDefinition(one)
			if refused != nil {
				return answer{}, refused
			}
			definition.CreateTime = s.milliseconds()
			s.taskDefinitions[definition.Name] = definition
		}
		return done, nil
	})
	locked("PUT /api/metadata/taskdefs", func(r *http.Request) (answer, *refusal) {
		var raw json.RawMessage
		if refused := read(r, &raw); refused != nil {
			return answer{}, refused
		}
		definition, refused := s.readTaskDefinition(raw)
		if refused != nil {
			return answer{}, refused
		}
		if _, ok := s.taskDefinitions[definition.Name]; !ok {
			return answer{}, refuse(http.StatusNotFound, "No such task by name %s", definition.Name)
		}
		definition.UpdateTime = s.milliseconds()
		s.taskDefinitions[definition.Name] = definition
		return done, nil
	})
	locked("GET /api/metadata/workflow/{name}", func(r *http.Request) (answer, *refusal) {
		var version *int
		if asked := r.URL.Query().Get("version"); asked != "" {
			number, err := strconv.Atoi(asked)
			if err != nil {
				return answer{}, refuse(http.StatusBadRequest, "version: %s", asked)
			}
			version = &number
		}
		definition := s.definition(r.PathValue("name"), version)
		if definition == nil {
			return answer{}, refuse(http.StatusNotFound, "No such workflow found by name: %s, version: %s", r.PathValue("name"), r.URL.Query().Get("version"))
		}
		return answer{http.StatusOK, clone(definition)}, nil
	})
	locked("PUT /api/metadata/workflow", func(r *http.Request) (answer, *refusal) {
		var raw []json.RawMessage
		if refused := read(r, &raw); refused != nil {
			return answer{}, refused
		}
		var registered []string
		for _, one := range raw {
			definition, refused := s.readWorkflowDefinition(one)
			if refused != nil {
				return answer{}, refused
			}
			definition.UpdateTime = s.milliseconds()
			if s.workflowDefinitions[definition.Name] == nil {
				s.workflowDefinitions[definition.Name] = map[int]*workflowDefinition{}
			}
			s.workflowDefinitions[definition.Name][definition.Version] = definition
			registered = append(registered, definition.Name)
		}
		return answer{http.StatusOK, object{"bulkErrorResults": object{}, "bulkSuccessfulResults": registered}}, nil
	})
}

// unknownPath is the web framework's answer, which is not Conductor's 404 and may look
// like it.
func (s *Server) unknownPath(r *http.Request) answer {
	if s.version.ownNotFound() {
		return refuse(http.StatusNotFound, "No static resource %s.", strings.TrimPrefix(r.URL.Path, "/")).answer()
	}
	return answer{http.StatusNotFound, object{"timestamp": s.now(), "status": 404, "error": "Not Found", "path": r.URL.Path}}
}

func (s *Server) servePoll(r *http.Request) (answer, *refusal) {
	query := r.URL.Query()
	count, wait := 1, 100
	for name, value := range map[string]*int{"count": &count, "timeout": &wait} {
		if given := query.Get(name); given != "" {
			number, err := strconv.Atoi(given)
			if err != nil {
				return answer{}, refuse(http.StatusBadRequest, "%s: %s", name, given)
			}
			*value = number
		}
	}
	tasks, refused := s.longPoll(r, count, time.Duration(wait)*time.Millisecond)
	return answer{http.StatusOK, tasks}, refused
}

func (s *Server) servePollOne(r *http.Request) (answer, *refusal) {
	tasks, refused := s.longPoll(r, 1, 0)
	if refused != nil || len(tasks) == 0 {
		return nothing, refused
	}
	return answer{http.StatusOK, tasks[0]}, nil
}

// pollLook is how often a poll that waits looks again, where it does.
const pollLook = 50 * time.Millisecond

// longPoll takes what is there. If nothing is, it waits its time out: some versions
// look again meanwhile, on others a task that comes then is the next poll's.
func (s *Server) longPoll(r *http.Request, count int, wait time.Duration) ([]task, *refusal) {
	if wait > maxPollWait {
		return nil, refuse(http.StatusBadRequest, "Long Poll Timeout value cannot be more than 5 seconds")
	}
	tasks := s.take(r, count)
	pause := wait
	if s.version.pollIsWoken() {
		pause = pollLook
	}
	for left := wait; len(tasks) == 0 && left > 0; left -= pause {
		timer := time.NewTimer(min(pause, left))
		select {
		case <-timer.C:
		case <-r.Context().Done():
			timer.Stop()
			return tasks, nil
		}
		if s.version.pollIsWoken() {
			tasks = s.take(r, count)
		}
	}
	return tasks, nil
}

// take hands out what waits.
func (s *Server) take(r *http.Request, count int) []task {
	query := r.URL.Query()
	tasks := []task{}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.sweep()
	s.polled(r.PathValue("type"), query.Get("domain"), query.Get("workerid"))
	for _, t := range s.poll(r.PathValue("type"), query.Get("domain"), query.Get("workerid"), count) {
		tasks = append(tasks, clone(*t))
	}
	return tasks
}

func (s *Server) readTaskDefinition(raw json.RawMessage) (*taskDefinition, *refusal) {
	definition := newTaskDefinition("")
	if err := decode(raw, definition); err != nil {
		return nil, refuse(http.StatusInternalServerError, "JSON parse error: %v", err)
	}
	if faults := definition.faults(s.version.ownerEmailRequired()); len(faults) > 0 {
		return nil, &refusal{status: http.StatusBadRequest, invalid: faults}
	}
	return definition, nil
}

func (s *Server) readWorkflowDefinition(raw json.RawMessage) (*workflowDefinition, *refusal) {
	definition := newWorkflowDefinition()
	if err := decode(raw, definition); err != nil {
		return nil, refuse(http.StatusInternalServerError, "JSON parse error: %v", err)
	}
	var faults []validationError
	if len(definition.Tasks) == 0 {
		faults = append(faults, validationError{"tasks", "WorkflowTask list cannot be empty"})
	}
	if s.version.ownerEmailRequired() && (definition.OwnerEmail == nil || *definition.OwnerEmail == "") {
		faults = append(faults, validationError{"ownerEmail", "ownerEmail cannot be empty"})
	}
	references := map[string]bool{"workflow": true}
	for i := range definition.Tasks {
		step := &definition.Tasks[i]
		if step.Type == "" {
			step.Type = "SIMPLE"
		}
		if step.Type != "SIMPLE" {
			return nil, refuse(http.StatusNotImplemented, "the memory server knows SIMPLE tasks only, not %s (%s)", step.Type, step.TaskReferenceName)
		}
		if references[step.TaskReferenceName] {
			faults = append(faults, validationError{"tasks", fmt.Sprintf("taskReferenceName: %s should be unique across tasks", step.TaskReferenceName)})
		}
		references[step.TaskReferenceName] = true
		if step.InputParameters == nil {
			step.InputParameters = object{}
		}
	}
	for _, step := range definition.Tasks {
		for key, value := range step.InputParameters {
			written, _ := value.(string)
			for _, found := range expression.FindAllStringSubmatch(written, -1) {
				if reference := firstSegment(found[1]); !references[reference] {
					faults = append(faults, validationError{"tasks", fmt.Sprintf(
						"taskReferenceName: %s for given task: %s input value: %s of input parameter: %s is not defined in workflow definition.",
						reference, step.Name, key, written)})
				}
			}
		}
	}
	if len(faults) > 0 {
		return nil, &refusal{status: http.StatusBadRequest, invalid: faults}
	}
	return definition, nil
}

func firstSegment(path string) string {
	for i := range path {
		if path[i] == '.' {
			return path[:i]
		}
	}
	return path
}

func read(r *http.Request, into any) *refusal {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = decode(body, into)
	}
	if err != nil {
		return refuse(http.StatusInternalServerError, "JSON parse error: %v", err)
	}
	return nil
}

func (r *refusal) answer() answer {
	if len(r.invalid) > 0 {
		return answer{r.status, object{"status": r.status, "message": "Validation failed, check below errors for detail.",
			"retryable": false, "validationErrors": r.invalid}}
	}
	return answer{r.status, object{"status": r.status, "message": r.message, "instance": "memory", "retryable": false}}
}

func (a answer) write(w http.ResponseWriter) {
	body, isText := a.body.(string)
	switch {
	case a.body == nil:
		w.WriteHeader(a.status)
	case isText:
		w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, body)
	default:
		raw, err := json.Marshal(a.body)
		if err != nil {
			panic(fmt.Sprintf("an answer that is not JSON: %v", err))
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.status)
		_, _ = w.Write(raw)
	}
}
