package definition

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"perago/pkg/txn"
)

// What workflows are made of, as far as perago's rules read them.
const (
	typeSimple      = "SIMPLE"
	typeFork        = "FORK_JOIN"
	typeDynamicFork = "FORK_JOIN_DYNAMIC"
	typeLoop        = "DO_WHILE"
	typeSwitch      = "SWITCH"
	typeDecision    = "DECISION"
	typeSetVariable = "SET_VARIABLE"
	typeSubWorkflow = "SUB_WORKFLOW"
	typeTerminate   = "TERMINATE"
)

// task is one task of a workflow, where it stands.
type task struct {
	// path is its place, such as tasks[2].loopOver[0].
	path  string
	value map[string]any
}

func (t task) kind() string {
	if kind, ok := t.value["type"].(string); ok && kind != "" {
		return kind
	}
	return typeSimple // as Conductor has it
}

// name is the type that workers poll; reference is unique in the workflow.
func (t task) name() txn.TaskType { return txn.TaskType(text(t.value["name"])) }
func (t task) reference() string  { return text(t.value["taskReferenceName"]) }

func (t task) polled() bool     { return t.kind() == typeSimple }
func (t task) isStage() bool    { return t.polled() && t.name().IsStage() }
func (t task) isPublish() bool  { return t.polled() && t.name().IsPublish() }
func (t task) isCleanup() bool  { return t.polled() && t.name().IsCleanup() }
func (t task) isCheckout() bool { return t.polled() && t.name().IsCheckout() }

// readOnly stages publish nothing.
func (t task) readOnly() bool { return t.input()["read_only"] == true }

func (t task) input() map[string]any {
	input, _ := t.value["inputParameters"].(map[string]any)
	return input
}

// list is the tasks of a field, such as loopOver.
func list(path string, value any) []task {
	elements, _ := value.([]any)
	var all []task
	for i, element := range elements {
		if value, ok := element.(map[string]any); ok {
			all = append(all, task{path: index(path, i), value: value})
		}
	}
	return all
}

// branches are the lists of tasks inside a task, each of which may run; a switch
// has its default last, also where it is empty.
func (t task) branches() [][]task {
	var all [][]task
	switch t.kind() {
	case typeFork:
		lists, _ := t.value["forkTasks"].([]any)
		for i, one := range lists {
			all = append(all, list(index(join(t.path, "forkTasks"), i), one))
		}
	case typeLoop:
		all = append(all, list(join(t.path, "loopOver"), t.value["loopOver"]))
	case typeSwitch, typeDecision:
		cases, _ := t.value["decisionCases"].(map[string]any)
		for _, name := range sortedKeys(cases) {
			all = append(all, list(join(join(t.path, "decisionCases"), name), cases[name]))
		}
		all = append(all, list(join(t.path, "defaultCase"), t.value["defaultCase"]))
	}
	return all
}

// everyTask is the tasks of a list and those inside them, in the order in which
// they stand.
func everyTask(tasks []task) []task {
	var all []task
	for _, t := range tasks {
		all = append(all, t)
		for _, branch := range t.branches() {
			all = append(all, everyTask(branch)...)
		}
	}
	return all
}

func (d Definition) taskList() []task {
	if d.Kind != Workflow {
		return nil
	}
	return list(join(d.at, "tasks"), d.value["tasks"])
}

// wholeExpression is a value that is one expression and nothing else.
var wholeExpression = regexp.MustCompile(`^\$\{([^${}]+)\}$`)

// anyExpression finds the expressions inside a text.
var anyExpression = regexp.MustCompile(`\$\{([^${}]+)\}`)

// expression is the inside of ${...}, when the value is that alone.
func expression(value any) (string, bool) {
	m := wholeExpression.FindStringSubmatch(text(value))
	if m == nil {
		return "", false
	}
	return strings.TrimSpace(m[1]), true
}

// outputOf is the reference name in ${reference.output.field}.
func outputOf(value any, field string) (string, bool) {
	e, ok := expression(value)
	if !ok {
		return "", false
	}
	reference, rest, _ := strings.Cut(e, ".")
	return reference, rest == "output."+field
}

func text(value any) string {
	s, _ := value.(string)
	return s
}

// show is a value as it stands in the file, for one sentence.
func show(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	return brief(json.RawMessage(encode(value)))
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
