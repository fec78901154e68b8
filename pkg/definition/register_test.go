package definition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/txn"
)

func TestOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		in   []string
		want []string
	}{
		{"tasks first, else as given", []string{"w b", "t z", "w a", "t y"}, []string{"t z", "t y", "w b", "w a"}},
		{"failure workflow first", []string{"w a cancel", "w b cancel", "w cancel"}, []string{"w cancel", "w a", "w b"}},
		{"sub-workflows first, however deep", []string{"w top sub:mid", "w mid sub:low", "w low"}, []string{"w low", "w mid", "w top"}},
		{"names that are not among them", []string{"w a elsewhere", "w b"}, []string{"w a", "w b"}},
		{"a circle", []string{"w a b", "w b a"}, []string{"w b", "w a"}},
		{"itself", []string{"w a a"}, []string{"w a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var definitions []Definition
			for _, text := range c.in {
				definitions = append(definitions, short(t, text))
			}
			var got []string
			for _, d := range Order(definitions) {
				got = append(got, string(d.Kind[:1])+" "+d.Name)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// short makes a definition of "t NAME" or "w NAME [FAILURE|sub:WORKFLOW]".
func short(t *testing.T, text string) Definition {
	fields := append(strings.Fields(text), "")
	if fields[0] == "t" {
		return one(t, fmt.Sprintf(`{"name": %q, "ownerEmail": "a@b.c"}`, fields[1]))
	}
	failure, tasks := fields[2], ""
	if sub, ok := strings.CutPrefix(fields[2], "sub:"); ok {
		// Inside a fork, so that depth is tried too.
		failure, tasks = "", fmt.Sprintf(`{"name": "f", "type": "FORK_JOIN", "forkTasks": [[{"name": "s", "type": "SUB_WORKFLOW", "subWorkflowParam": {"name": %q}}]]}`, sub)
	}
	return one(t, fmt.Sprintf(`{"name": %q, "failureWorkflow": %q, "tasks": [%s]}`, fields[1], failure, tasks))
}

func TestRegisterTwice(t *testing.T) {
	t.Parallel()
	s := newServer()
	definitions := []Definition{
		one(t, `{"name":"w","version":2,"failureWorkflow":"cancel","tasks":[{"name":"u","taskReferenceName":"u"}]}`),
		one(t, `{"name":"cancel","tasks":[]}`),
		one(t, `{"name": "u", "retryCount" : 1.0, "newerField":{"kept":[null]}}`),
	}
	register := func(want ...string) []Change {
		t.Helper()
		changes, err := Register(t.Context(), s, definitions)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range changes {
			got = append(got, string(c.Action)+" "+c.Definition.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		return changes
	}
	register("created task definition u", "created workflow cancel version 1", "created workflow w version 2")
	want := []string{"task u", "workflow cancel/1", "workflow w/2"}
	if diff := cmp.Diff(want, s.puts); diff != "" {
		t.Errorf("puts (-want +got):\n%s", diff)
	}
	// Byte for byte what the file holds.
	if got := string(s.have["task u"]); got != `{"name": "u", "retryCount" : 1.0, "newerField":{"kept":[null]}}` {
		t.Errorf("the server was sent %s", got)
	}

	register("unchanged task definition u", "unchanged workflow cancel version 1", "unchanged workflow w version 2")
	if len(s.puts) != 3 {
		t.Errorf("registering again sent %q", s.puts[3:])
	}

	definitions[2] = one(t, `{"name": "u", "retryCount" : 2}`)
	changes := register("updated task definition u", "unchanged workflow cancel version 1", "unchanged workflow w version 2")
	if got := fmt.Sprint(changes[0].Differences); got != "[retryCount: 1.0 -> 2]" {
		t.Errorf("differences %s", got)
	}
	if len(s.puts) != 4 {
		t.Errorf("the update sent %q", s.puts[3:])
	}
}

func TestPlanWritesNothing(t *testing.T) {
	t.Parallel()
	s := newServer()
	plan, err := Plan(t.Context(), s, []Definition{one(t, `{"name":"u","retryCount":1}`)})
	if err != nil || len(plan) != 1 || plan[0].Action != Created || len(s.puts) != 0 {
		t.Errorf("got %v, %v, sent %q", plan, err, s.puts)
	}
}

func TestPlanWarnsOfWhatNoWorkerPolls(t *testing.T) {
	t.Parallel()
	plan, err := Plan(t.Context(), newServer(), []Definition{one(t, `{"name":"perago_stage","responseTimeoutSeconds":0}`), one(t, `{"name":"u","responseTimeoutSeconds":0}`)})
	if err != nil || len(plan) != 2 || !strings.Contains(plan[0].Warning, "TaskDef perago_stage: responseTimeoutSeconds is 0") || plan[1].Warning != "" {
		t.Errorf("got %+v, %v", plan, err)
	}
}

func TestPlanRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, words string
		texts       []string
	}{
		{"a task type of ours nobody registered", "f.json: workflow w version 1 has tasks of type perago_publish_large, which is not registered", []string{`{"name":"w","tasks":[{"name":"perago_publish_large"}]}`}},
		{"one inside a loop inside a switch", "has tasks of type perago_stage,", []string{`{"name":"w","tasks":[{"name":"s","type":"SWITCH","decisionCases":{"a":[{"name":"l","type":"DO_WHILE","loopOver":[{"name":"perago_stage","type":"SIMPLE"}]}]}}]}`}},
		{"one in a default case", "has tasks of type perago_cleanup,", []string{`{"name":"w","tasks":[{"name":"s","type":"SWITCH","defaultCase":[{"name":"perago_cleanup"}]}]}`}},
		{"a failure workflow nobody registered", "names the failure workflow cancel, which is not registered", []string{`{"name":"w","failureWorkflow":"cancel","tasks":[]}`}},
		{"two of one name", "stands in f.json and in f.json", []string{`{"name":"u","retryCount":1}`, `{"name":"u","retryCount":2}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newServer()
			definitions := []Definition{one(t, `{"name":"first","retryCount":1}`)}
			for _, text := range c.texts {
				definitions = append(definitions, one(t, text))
			}
			if _, err := Register(t.Context(), s, definitions); err == nil || !strings.Contains(err.Error(), c.words) {
				t.Errorf("got %v, want %q", err, c.words)
			}
			if len(s.puts) != 0 {
				t.Errorf("sent %q before it refused", s.puts)
			}
		})
	}
	t.Run("nothing that is there, brings its own, or is not ours", func(t *testing.T) {
		t.Parallel()
		s := newServer()
		s.have["task perago_stage"], s.have["workflow cancel/3"] = json.RawMessage(`{"name":"perago_stage"}`), json.RawMessage(`{"name":"cancel"}`)
		_, err := Register(t.Context(), s, []Definition{one(t, `{"name":"w","failureWorkflow":"cancel","tasks":[
			{"name":"perago_stage"},{"name":"perago_publish","type":"HTTP"},{"name":"perago_publish","taskDefinition":{"name":"e"}},{"name":"train"},
			{"name":"v","type":"SUB_WORKFLOW","subWorkflowParam":{"name":"v"}}]}`)})
		if err != nil {
			t.Error(err)
		}
	})
}

// A field the server takes without a word and does not keep is no change, or
// every registration would report one.
func TestApplyReportsWhatTheServerDoesNotKeep(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.drops = "cacheConfig"
	text := `{"name":"u","retryCount":1,"cacheConfig":{"ttl":3}}`
	changes, err := Register(t.Context(), s, []Definition{one(t, text)})
	if err != nil || changes[0].Action != Created || fmt.Sprint(changes[0].Ignored) != `[cacheConfig: (none) -> {"ttl":3}]` {
		t.Errorf("created: got %+v, %v", changes, err)
	}
	changes, err = Register(t.Context(), s, []Definition{one(t, text)})
	if err != nil || changes[0].Action != Unchanged || len(changes[0].Differences) != 0 || len(changes[0].Ignored) != 1 {
		t.Errorf("again: got %+v, %v", changes, err)
	}
	changes, err = Register(t.Context(), s, []Definition{one(t, strings.Replace(text, ":1", ":2", 1))})
	if err != nil || changes[0].Action != Updated || fmt.Sprint(changes[0].Differences) != "[retryCount: 1 -> 2]" || len(changes[0].Ignored) != 1 {
		t.Errorf("with a change: got %+v, %v", changes, err)
	}
}

func TestRegisterEndsAtAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken server")
	definitions := []Definition{one(t, `{"name":"a","retryCount":1}`), one(t, `{"name":"b","retryCount":1}`), one(t, `{"name":"c","retryCount":1}`)}

	s := newServer()
	s.failPut = func(name string) error {
		if name == "task b" {
			return broken
		}
		return nil
	}
	changes, err := Register(t.Context(), s, definitions)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "register task definition b from f.json") {
		t.Errorf("got %v", err)
	}
	if len(changes) != 1 || changes[0].Definition.Name != "a" || !slices.Equal(s.puts, []string{"task a"}) {
		t.Errorf("got %v, sent %q; the first was carried out", changes, s.puts)
	}

	s = newServer()
	s.failRead = func(string) error { return broken }
	if _, err := Register(t.Context(), s, definitions); !errors.Is(err, broken) || len(s.puts) != 0 {
		t.Errorf("got %v, sent %q", err, s.puts)
	}
	// A task type that cannot be read is not one that is there, and not one that is
	// missing.
	s.failRead = func(key string) error {
		if key == "task perago_stage" {
			return broken
		}
		return nil
	}
	if _, err := Register(t.Context(), s, []Definition{one(t, `{"name":"w","tasks":[{"name":"perago_stage"}]}`)}); !errors.Is(err, broken) || strings.Contains(err.Error(), "registered") {
		t.Errorf("got %v", err)
	}
}

// server keeps what it is sent. How the real one changes it is in TestCompare,
// and in the test on the real one.
type server struct {
	have     map[string]json.RawMessage
	puts     []string
	drops    string
	failPut  func(name string) error
	failRead func(key string) error
}

func newServer() *server { return &server{have: map[string]json.RawMessage{}} }

func (s *server) RawTaskDefinition(_ context.Context, name txn.TaskType) (json.RawMessage, error) {
	return s.get("task " + string(name))
}

func (s *server) RawWorkflowDefinition(_ context.Context, name string, version int) (json.RawMessage, error) {
	if version != 0 {
		return s.get(fmt.Sprintf("workflow %s/%d", name, version))
	}
	for key := range s.have {
		if strings.HasPrefix(key, "workflow "+name+"/") {
			return s.get(key)
		}
	}
	return s.get("workflow " + name)
}

func (s *server) get(key string) (json.RawMessage, error) {
	if s.failRead != nil {
		if err := s.failRead(key); err != nil {
			return nil, err
		}
	}
	raw, ok := s.have[key]
	if !ok {
		return nil, &txn.ServerError{Server: "memory", Status: 404, Class: txn.ErrRefused, Kind: txn.ErrNotFound}
	}
	return raw, nil
}

func (s *server) PutTaskDefinition(_ context.Context, raw json.RawMessage) error {
	return s.put(raw, func(name string, _ int) string { return "task " + name })
}

func (s *server) PutWorkflowDefinition(_ context.Context, raw json.RawMessage) error {
	return s.put(raw, func(name string, version int) string { return fmt.Sprintf("workflow %s/%d", name, max(version, 1)) })
}

func (s *server) put(raw json.RawMessage, key func(string, int) string) error {
	var named struct {
		Name    string `json:"name"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(raw, &named); err != nil {
		return err
	}
	k := key(named.Name, named.Version)
	if s.failPut != nil {
		if err := s.failPut(k); err != nil {
			return err
		}
	}
	if s.drops != "" {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(raw, &fields); err != nil {
			return err
		}
		delete(fields, s.drops)
		var err error
		if raw, err = json.Marshal(fields); err != nil {
			return err
		}
	}
	s.have[k] = raw
	s.puts = append(s.puts, k)
	return nil
}
