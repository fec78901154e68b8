package definition

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// An expression that names nothing becomes null, or a part of a text that is
// missing, when the workflow runs: behind the tasks that have cost most. The names
// in it can be checked in the definition.

// name is a name in an expression; what is no name is Conductor's to read.
var name = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*`)

// systemNames are what Conductor itself puts in the place of an expression.
var systemNames = []string{"CPEWF_TASK_ID", "NETFLIX_ENV", "NETFLIX_STACK"}

// failureInput is what Conductor adds to the input of a failure workflow.
var failureInput = []string{"workflowId", "reason", "failureStatus", "failureTaskId", "failedWorkflow"}

// names holds the names in the expressions of a workflow to what the workflow has.
func (l *linter) names(d Definition) {
	n := &namer{linter: l, at: map[string]int{}, loops: map[string][]string{}, variables: map[string]bool{}}
	n.inputs, n.declared = d.declaredInputs()
	for variable := range objectOf(d.value["variables"]) {
		n.variables[variable] = true
	}
	n.collect(d.taskList(), nil)
	for i, t := range everyTask(d.taskList()) {
		n.task = &t
		n.position = i
		n.walk(join(t.path, "inputParameters"), t.value["inputParameters"])
	}
	n.task, n.position = nil, len(n.at)
	n.walk(join(d.at, "outputParameters"), d.value["outputParameters"])
}

// declaredInputs are the inputs that a workflow says it takes; nothing is declared
// where the list is missing or empty.
func (d Definition) declaredInputs() (inputs []string, declared bool) {
	list, _ := d.value["inputParameters"].([]any)
	for _, one := range list {
		// An entry may be an object that describes the input.
		inputs = append(inputs, text(one))
		inputs = append(inputs, sortedKeys(objectOf(one))...)
	}
	inputs = slices.DeleteFunc(inputs, func(s string) bool { return s == "" })
	if len(inputs) == 0 {
		return nil, false
	}
	return append(inputs, sortedKeys(objectOf(d.value["inputTemplate"]))...), true
}

func objectOf(v any) map[string]any {
	object, _ := v.(map[string]any)
	return object
}

// namer checks the names of one workflow.
type namer struct {
	*linter
	inputs   []string
	declared bool
	// at is the position of each task by its reference name, loops the loops that it
	// stands in; a loop stands in itself.
	at        map[string]int
	loops     map[string][]string
	variables map[string]bool
	// dynamic says that tasks are made when the workflow runs.
	dynamic bool
	// task is the task whose input is looked at, nil for the workflow's output.
	task     *task
	position int
}

func (n *namer) collect(tasks []task, loops []string) {
	for _, t := range tasks {
		if _, ok := n.at[t.reference()]; !ok {
			n.at[t.reference()] = len(n.at)
		}
		n.dynamic = n.dynamic || t.kind() == typeDynamicFork
		if t.kind() == typeSetVariable {
			for variable := range t.input() {
				n.variables[variable] = true
			}
		}
		inside := loops
		if t.kind() == typeLoop {
			inside = append(slices.Clone(loops), t.reference())
		}
		n.loops[t.reference()] = inside
		for _, branch := range t.branches() {
			n.collect(branch, inside)
		}
	}
}

func (n *namer) walk(path string, v any) {
	switch v := v.(type) {
	case string:
		for _, m := range anyExpression.FindAllStringSubmatchIndex(v, -1) {
			if m[0] > 0 && v[m[0]-1] == '$' {
				continue // $${...} is a text
			}
			n.expression(path, strings.TrimSpace(v[m[2]:m[3]]))
		}
	case []any:
		for i, one := range v {
			n.walk(index(path, i), one)
		}
	case map[string]any:
		for _, key := range sortedKeys(v) {
			n.walk(join(path, key), v[key])
		}
	}
}

func (n *namer) expression(path, e string) {
	first := name.FindString(e)
	rest := strings.TrimPrefix(e, first)
	if first == "" || rest != "" && rest[0] != '.' && rest[0] != '[' || slices.Contains(systemNames, first) {
		return
	}
	if first != "workflow" {
		n.reference(path, first)
		return
	}
	scope, field, _ := strings.Cut(strings.TrimPrefix(rest, "."), ".")
	field = name.FindString(field)
	switch {
	case field == "":
	case scope == "input" && n.declared && !slices.Contains(n.inputs, field) && !slices.Contains(failureInput, field):
		n.found(RuleNames, path, fmt.Sprintf("${%s} names the input %s, which is not in the workflow's inputParameters", e, field),
			fmt.Sprintf("correct the name, or add it there (%s)", strings.Join(n.inputs, ", ")))
	case scope == "variables" && !n.variables[field]:
		n.found(RuleNames, path, fmt.Sprintf("${%s} names the variable %s, which no SET_VARIABLE task sets", e, field),
			"correct the name, or set the variable before")
	}
}

// iterationSuffix is what Conductor adds to the name of a task in a loop.
var iterationSuffix = regexp.MustCompile(`__[0-9]+$`)

func (n *namer) reference(path, reference string) {
	reference = iterationSuffix.ReplaceAllString(reference, "")
	position, ok := n.at[reference]
	switch {
	case !ok && !n.dynamic:
		n.found(RuleNames, path, fmt.Sprintf("the expression names %s, and no task of the workflow has this reference name", reference),
			"write the reference name of a task that stands before")
	case !ok || n.task == nil || position < n.position || n.sameLoop(reference):
	case reference == n.task.reference():
		n.found(RuleNames, path, fmt.Sprintf("the expression names %s, which is the task itself", reference), "write the reference name of a task that stands before")
	default:
		n.found(RuleNames, path, fmt.Sprintf("the expression names %s, which stands after %s", reference, n.task.reference()),
			"name a task that stands before, or move the task")
	}
}

// sameLoop reports whether a task and the one that is looked at stand in one loop:
// then the one may read what the other put out an iteration before.
func (n *namer) sameLoop(reference string) bool {
	return slices.ContainsFunc(n.loops[reference], func(loop string) bool {
		return slices.Contains(n.loops[n.task.reference()], loop)
	})
}

// nested looks for two steps of which one owns a part of what the other owns: each
// run, the one removes what the other publishes, until it is published again.
func (l *linter) nested(written []written) {
	for i, inner := range written {
		for _, outer := range written {
			if inner.origin != outer.origin || inner.prefix == outer.prefix || !strings.HasPrefix(inner.prefix, outer.prefix) {
				continue
			}
			shown := outer.prefix
			if shown == "" {
				shown = "/"
			}
			l.found(RuleNestedPrefixes, join(written[i].task.path, "inputParameters.prefix"),
				fmt.Sprintf("%s of %s lies in %s of %s, so in each run %s removes the files of %s", inner.prefix, inner.task.reference(), shown, outer.task.reference(), outer.task.reference(), inner.task.reference()),
				"give the steps prefixes that lie side by side, such as data/raw/ and data/agg/")
		}
	}
}

// written is a stage that publishes, with its prefix as the definition has it, and
// the branch by its origin.
type written struct {
	task           task
	prefix, origin string
}

func writtenBy(t task, origin string) written {
	prefix := strings.TrimSuffix(text(t.input()["prefix"]), "/")
	if prefix != "" {
		prefix += "/"
	}
	return written{t, prefix, origin}
}
