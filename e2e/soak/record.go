package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"

	"perago/e2e/fleet"
	"perago/pkg/fault"
	"perago/pkg/txn"
)

// record is what the run has seen, by which the servers are judged.
type record struct {
	mu sync.Mutex
	// polled are the tasks that a worker was handed, or that Conductor has shown.
	polled map[txn.TaskID]bool
	// claims are the publish tasks that Conductor has shown as completed.
	claims map[claim]bool
	// files are what users' tasks have written, by directory: content by path.
	files map[string]map[string]string
	// workflows are all that were started.
	workflows []txn.WorkflowID
}

// claim is what a completed publish task says.
type claim struct {
	workflow txn.WorkflowID
	task     txn.TaskID
	target   target
	commit   txn.CommitID
	outcome  txn.Outcome
	staged   txn.CommitID
	input    txn.CommitID
	prefix   txn.Prefix
	// directory is what was staged.
	directory string
	// unread is why the task's record does not say all of this.
	unread string
}

func newRecord() *record {
	return &record{polled: map[txn.TaskID]bool{}, claims: map[claim]bool{}, files: map[string]map[string]string{}}
}

func (r *record) started(id txn.WorkflowID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workflows = append(r.workflows, id)
}

func (r *record) wrote(directory string, files map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files[directory] = files
}

// handed is a task that Conductor shows, or that a worker got.
func (r *record) handed(id txn.TaskID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.polled[id] = true
}

func (r *record) claimed(c claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claims[c] = true
}

// polls is how many polls of a worker got through.
func (r *record) polls(m *fleet.Member) int {
	return len(m.Conductor.Matching(fault.Match{Method: http.MethodGet, Path: "/tasks/poll/"}))
}

// wrap sees what the workers are handed, and with -blind what they are shown.
func (s *soak) wrap(w fleet.Worker, toLakeFS bool, proxy http.Handler) http.Handler {
	if toLakeFS {
		if s.blind && w == fleet.Publish {
			return blind{proxy}
		}
		return proxy
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/tasks/poll/") {
			proxy.ServeHTTP(w, r)
			return
		}
		var body bytes.Buffer
		proxy.ServeHTTP(copying{w, &body}, r)
		var tasks []struct {
			ID txn.TaskID `json:"taskId"`
		}
		if json.Unmarshal(body.Bytes(), &tasks) != nil {
			return // nothing was queued, or a fault
		}
		for _, task := range tasks {
			s.record.handed(task.ID)
		}
	})
}

// copying keeps what is written.
type copying struct {
	http.ResponseWriter
	kept *bytes.Buffer
}

func (c copying) Write(b []byte) (int, error) {
	c.kept.Write(b)
	return c.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (c copying) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// blind shows every confirm commit as standing on the head that it expected.
type blind struct{ proxy http.Handler }

func (b blind) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/commits") && !strings.Contains(r.URL.Path, "/refs/") {
		b.proxy.ServeHTTP(w, r)
		return
	}
	answer := &held{header: http.Header{}, status: http.StatusOK}
	b.proxy.ServeHTTP(answer, r)
	body := answer.body.Bytes()
	var decoded any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if decoder.Decode(&decoded) == nil {
		blinded(decoded)
		if raw, err := json.Marshal(decoded); err == nil {
			body = raw
		}
	}
	for name, values := range answer.header {
		w.Header()[name] = values
	}
	w.Header().Del("Content-Length")
	w.WriteHeader(answer.status)
	_, _ = io.Copy(w, bytes.NewReader(body)) // the worker may have gone
}

// blinded changes every commit in an answer.
func blinded(value any) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			blinded(element)
		}
	case object:
		if metadata, ok := value["metadata"].(object); ok && value["parents"] != nil && metadata["perago.phase"] == "confirm" {
			value["parents"] = []any{metadata["perago.expected_head"]}
		}
		for _, element := range value {
			blinded(element)
		}
	}
}

// held is an answer that is not sent yet.
type held struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (h *held) Header() http.Header         { return h.header }
func (h *held) WriteHeader(status int)      { h.status = status }
func (h *held) Write(b []byte) (int, error) { return h.body.Write(b) }
