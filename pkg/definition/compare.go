package definition

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Difference is one field in which two definitions differ.
type Difference struct {
	// Path is the field's, such as tasks[2].inputParameters.prefix.
	Path string `json:"path"`
	// From is what the server has, To what the file has: JSON values, nil for
	// nothing, which is not the same as null.
	From json.RawMessage `json:"from,omitempty"`
	To   json.RawMessage `json:"to,omitempty"`
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: %s -> %s", d.Path, brief(d.From), brief(d.To))
}

// compare lists the differences between a definition and what a server has in
// its place, in the order of their paths.
func compare(want Definition, have json.RawMessage) ([]Difference, error) {
	decoded, err := decode(have)
	if err != nil {
		return nil, fmt.Errorf("%s as the server has it: %w", want, err)
	}
	value, ok := decoded.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s as the server has it is no JSON object", want)
	}
	shape := taskShape
	if want.Kind == Workflow {
		shape = workflowShape
	}
	return shape.objects(nil, "", value, want.value), nil
}

// shape is what is known of an object's fields in Conductor.
type shape struct {
	// defaults are the fields with what the server takes when they are left out.
	// A field that is not here and not sent is the server's own business.
	defaults map[string]any
	// below are the fields whose values have a shape themselves, alone or in lists
	// of any depth.
	below map[string]*shape
	// each is set when the object is no structure but maps the user's names to
	// values of that shape.
	each *shape
	// ignored are fields the server writes.
	ignored []string
}

// empty as a default stands for every value that says nothing: null, false, "",
// [] and {}.
type empty struct{}

const (
	defaultRetryCount      = 3
	defaultRetryDelay      = 60
	defaultResponseTimeout = 3600
	defaultTimeoutPolicy   = "TIME_OUT_WF"
)

// The defaults are those of Conductor, as it gives back a definition that holds only
// what it must.
var (
	stamps    = []string{"createTime", "updateTime", "createdBy", "updatedBy", "accessPolicy"}
	taskShape = &shape{
		ignored: stamps,
		defaults: map[string]any{
			"description": empty{}, "ownerEmail": empty{}, "ownerApp": empty{},
			"inputKeys": empty{}, "outputKeys": empty{}, "inputTemplate": empty{},
			"retryCount": number(defaultRetryCount), "retryLogic": "FIXED", "retryDelaySeconds": number(defaultRetryDelay), "backoffScaleFactor": number(1),
			"timeoutPolicy": defaultTimeoutPolicy, "timeoutSeconds": number(0),
			"responseTimeoutSeconds": number(defaultResponseTimeout), "pollTimeoutSeconds": number(0),
			"concurrentExecLimit": number(0), "rateLimitPerFrequency": number(0), "rateLimitFrequencyInSeconds": number(1),
			"isolationGroupId": empty{}, "executionNameSpace": empty{},
		},
	}
	workflowShape = &shape{
		ignored: stamps,
		defaults: map[string]any{
			"description": empty{}, "ownerEmail": empty{}, "ownerApp": empty{},
			"version": number(1), "schemaVersion": number(2), "restartable": true,
			"tasks": empty{}, "inputParameters": empty{}, "outputParameters": empty{}, "inputTemplate": empty{}, "variables": empty{},
			"failureWorkflow": empty{}, "timeoutPolicy": "ALERT_ONLY", "timeoutSeconds": number(0),
			"workflowStatusListenerEnabled": empty{}, "workflowStatusListenerSink": empty{},
		},
		below: map[string]*shape{"tasks": workflowTaskShape},
	}
	workflowTaskShape = func() *shape {
		s := &shape{
			defaults: map[string]any{
				"type": "SIMPLE", "description": empty{}, "inputParameters": empty{}, "startDelay": number(0),
				"optional": empty{}, "asyncComplete": empty{}, "rateLimited": empty{}, "sink": empty{}, "retryCount": nil,
				"dynamicTaskNameParam": empty{}, "caseValueParam": empty{}, "caseExpression": empty{}, "scriptExpression": empty{},
				"evaluatorType": empty{}, "expression": empty{}, "decisionCases": empty{}, "defaultCase": empty{},
				"dynamicForkJoinTasksParam": empty{}, "dynamicForkTasksParam": empty{}, "dynamicForkTasksInputParamName": empty{},
				"forkTasks": empty{}, "joinOn": empty{}, "defaultExclusiveJoinTask": empty{},
				"loopCondition": empty{}, "loopOver": empty{}, "subWorkflowParam": empty{}, "taskDefinition": empty{},
			},
		}
		s.below = map[string]*shape{
			"decisionCases": {each: s}, "defaultCase": s, "forkTasks": s, "loopOver": s,
			"taskDefinition":   taskShape,
			"subWorkflowParam": {defaults: map[string]any{"name": empty{}, "version": nil, "taskToDomain": empty{}}},
		}
		return s
	}()
)

// objects compares two objects of a shape field by field.
func (s *shape) objects(all []Difference, path string, have, want map[string]any) []Difference {
	keys := maps.Clone(have)
	maps.Copy(keys, want)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if slices.Contains(s.ignored, key) {
			continue
		}
		h, inHave := have[key]
		w, inWant := want[key]
		standard, known := s.defaults[key]
		switch {
		case inHave && inWant:
			if !known {
				standard = empty{}
			}
			if isDefault(h, standard) && isDefault(w, standard) {
				continue
			}
			all = s.below[key].values(all, join(path, key), h, w)
		case inWant:
			if !known {
				standard = empty{}
			}
			if !isDefault(w, standard) {
				all = append(all, Difference{Path: join(path, key), To: encode(w)})
			}
		case known && !isDefault(h, standard):
			all = append(all, Difference{Path: join(path, key), From: encode(h)})
		}
	}
	return all
}

// values compares two values: by the shape where there is one, else exactly.
func (s *shape) values(all []Difference, path string, have, want any) []Difference {
	if h, ok := have.([]any); ok {
		if w, ok := want.([]any); ok {
			return s.lists(all, path, h, w)
		}
	}
	h, hok := have.(map[string]any)
	w, wok := want.(map[string]any)
	switch {
	case !hok || !wok:
		if !same(have, want) {
			all = append(all, Difference{Path: path, From: encode(have), To: encode(want)})
		}
		return all
	case s == nil:
		return s.maps(all, path, h, w)
	case s.each != nil:
		return s.each.maps(all, path, h, w)
	}
	return s.objects(all, path, h, w)
}

// maps compares objects whose keys are the user's: the server keeps them as they
// are, nulls included. Without a shape the values are the user's too.
func (s *shape) maps(all []Difference, path string, have, want map[string]any) []Difference {
	keys := maps.Clone(have)
	maps.Copy(keys, want)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		h, inHave := have[key]
		w, inWant := want[key]
		switch {
		case !inHave:
			all = append(all, Difference{Path: join(path, key), To: encode(w)})
		case !inWant:
			all = append(all, Difference{Path: join(path, key), From: encode(h)})
		default:
			all = s.values(all, join(path, key), h, w)
		}
	}
	return all
}

func (s *shape) lists(all []Difference, path string, have, want []any) []Difference {
	for i := range max(len(have), len(want)) {
		at := path + "[" + strconv.Itoa(i) + "]"
		switch {
		case i >= len(want):
			all = append(all, Difference{Path: at, From: encode(have[i])})
		case i >= len(have):
			all = append(all, Difference{Path: at, To: encode(want[i])})
		default:
			all = s.values(all, at, have[i], want[i])
		}
	}
	return all
}

func isDefault(value, standard any) bool {
	if value == nil {
		return true
	}
	if _, ok := standard.(empty); !ok {
		return standard != nil && same(value, standard)
	}
	switch v := value.(type) {
	case bool:
		return !v
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// same compares two values that are not both objects or both lists; 1 and 1.0
// are the same number.
func same(a, b any) bool {
	x, xok := a.(json.Number)
	y, yok := b.(json.Number)
	if !xok || !yok {
		switch a.(type) {
		case map[string]any, []any:
			return false
		}
		switch b.(type) {
		case map[string]any, []any:
			return false
		}
		return a == b
	}
	if x == y {
		return true
	}
	if !strings.ContainsAny(string(x)+string(y), ".eE") {
		return false
	}
	f, ferr := x.Float64()
	g, gerr := y.Float64()
	return ferr == nil && gerr == nil && f == g
}

func number(n int) json.Number { return json.Number(strconv.Itoa(n)) }

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// encode is a decoded value as JSON again.
func encode(value any) json.RawMessage {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // for people, not for a page
	if err := encoder.Encode(value); err != nil {
		// A decoded value can always be encoded.
		panic(err)
	}
	return bytes.TrimSpace(text.Bytes())
}

// brief is a value for one line of a table.
func brief(value json.RawMessage) string {
	if value == nil {
		return "(none)"
	}
	if runes := []rune(string(value)); len(runes) > maxBrief {
		return string(runes[:maxBrief-1]) + "…"
	}
	return string(value)
}

// maxBrief is in characters.
const maxBrief = 60
