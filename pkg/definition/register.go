package definition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"perago/pkg/txn"
)

// Server is what registering needs of a Conductor server. A definition that is
// not there is txn.ErrNotFound; both puts may be sent again.
type Server interface {
	// RawTaskDefinition reads a task definition as the server has it.
	RawTaskDefinition(ctx context.Context, name txn.TaskType) (json.RawMessage, error)
	// RawWorkflowDefinition reads one version of a workflow definition as the
	// server has it; version 0 is the latest.
	RawWorkflowDefinition(ctx context.Context, name string, version int) (json.RawMessage, error)
	// PutTaskDefinition creates or replaces a task definition.
	PutTaskDefinition(ctx context.Context, raw json.RawMessage) error
	// PutWorkflowDefinition creates or replaces one version of a workflow
	// definition.
	PutWorkflowDefinition(ctx context.Context, raw json.RawMessage) error
}

// Action is what registering does with one definition.
type Action string

// The actions of a change.
const (
	Created   Action = "created"
	Updated   Action = "updated"
	Unchanged Action = "unchanged"
)

// Change is a definition and what registering it does.
type Change struct {
	Definition Definition
	Action     Action
	// Differences are the fields that change; none for a definition that is
	// created.
	Differences []Difference
	// Warning says why a worker would not poll a task definition of its own;
	// empty when it would. The definition is registered all the same: the worker
	// says so too, and looks again.
	Warning string
	// Ignored are fields the server did not keep when it was sent the definition.
	// Only Apply knows them.
	Ignored []Difference
}

// Order sorts definitions so that each comes after what it names: task
// definitions first, then failure workflows and sub-workflows, then the workflows
// that name them. What is not tied to an order stays in the given one.
func Order(definitions []Definition) []Definition {
	var ordered, workflows []Definition
	for _, d := range definitions {
		if d.Kind == Workflow {
			workflows = append(workflows, d)
		} else {
			ordered = append(ordered, d)
		}
	}
	done := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		if done[name] {
			return
		}
		// Before the definition itself, so that workflows that name each other
		// come to an end; Conductor does not ask for their order.
		done[name] = true
		for _, d := range workflows {
			if d.Name != name {
				continue
			}
			for _, needed := range d.workflowsNamed() {
				add(needed)
			}
		}
		for _, d := range workflows {
			if d.Name == name {
				ordered = append(ordered, d)
			}
		}
	}
	for _, d := range workflows {
		add(d.Name)
	}
	return ordered
}

// Plan reads what the server has and says, in the order of Order, what Apply
// would do. It writes nothing. It refuses, before anything is written, a workflow
// that names one of perago's task types, or a failure workflow, which is neither
// among the definitions nor registered. Conductor takes both without a word: it
// runs the first with defaults of its own, which hold no publish budget and end
// the workflow at a timeout, and the second leaves its staging branches behind.
func Plan(ctx context.Context, server Server, definitions []Definition) ([]Change, error) {
	if err := distinct(definitions); err != nil {
		return nil, err
	}
	ordered := Order(definitions)
	known := map[reference]bool{}
	for _, d := range ordered {
		known[reference{d.Kind, d.Name}] = true
	}
	var changes []Change
	for _, d := range ordered {
		if err := checkReferences(ctx, server, d, known); err != nil {
			return nil, err
		}
		change := Change{Definition: d, Action: Created}
		if err := d.Check(); err != nil {
			change.Warning = err.Error()
		}
		have, err := read(ctx, server, d)
		switch {
		case errors.Is(err, txn.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			if change.Differences, err = compare(d, have); err != nil {
				return nil, err
			}
			change.Action = Updated
			if len(change.Differences) == 0 {
				change.Action = Unchanged
			}
		}
		changes = append(changes, change)
	}
	return changes, nil
}

// Apply carries out a plan in its order and reads back what it wrote. It returns
// the changes that were carried out: all of them, or those before the error. A
// change whose differences the server kept none of is Unchanged.
func Apply(ctx context.Context, server Server, plan []Change) ([]Change, error) {
	var done []Change
	for _, change := range plan {
		if change.Action != Unchanged {
			var err error
			if change, err = apply(ctx, server, change); err != nil {
				return done, fmt.Errorf("register %s from %s: %w", change.Definition, change.Definition.Source, err)
			}
		}
		done = append(done, change)
	}
	return done, nil
}

func apply(ctx context.Context, server Server, change Change) (Change, error) {
	put := server.PutTaskDefinition
	if change.Definition.Kind == Workflow {
		put = server.PutWorkflowDefinition
	}
	if err := put(ctx, change.Definition.Raw); err != nil {
		return change, err
	}
	// A server answers with success also for fields it does not know.
	have, err := read(ctx, server, change.Definition)
	if err != nil {
		return change, err
	}
	if change.Ignored, err = compare(change.Definition, have); err != nil {
		return change, err
	}
	if change.Action == Updated {
		change.Differences = slices.DeleteFunc(slices.Clone(change.Differences), func(d Difference) bool {
			return slices.ContainsFunc(change.Ignored, func(i Difference) bool { return i.Path == d.Path })
		})
		if len(change.Differences) == 0 {
			change.Action = Unchanged
		}
	}
	return change, nil
}

// Register is Plan and Apply.
func Register(ctx context.Context, server Server, definitions []Definition) ([]Change, error) {
	plan, err := Plan(ctx, server, definitions)
	if err != nil {
		return nil, err
	}
	return Apply(ctx, server, plan)
}

func read(ctx context.Context, server Server, d Definition) (json.RawMessage, error) {
	if d.Kind == Workflow {
		return server.RawWorkflowDefinition(ctx, d.Name, d.Version)
	}
	return server.RawTaskDefinition(ctx, txn.TaskType(d.Name))
}

// reference is a definition that a workflow names, of any version.
type reference struct {
	kind Kind
	name string
}

// checkReferences keeps in known what it has learned.
func checkReferences(ctx context.Context, server Server, d Definition, known map[reference]bool) error {
	var named []reference
	for _, name := range d.taskTypesNamed() {
		if ours(name) {
			named = append(named, reference{Task, string(name)})
		}
	}
	if name := d.failureWorkflow(); name != "" {
		named = append(named, reference{Workflow, name})
	}
	for _, r := range named {
		if known[r] {
			continue
		}
		err, what := error(nil), ""
		if r.kind == Task {
			_, err = server.RawTaskDefinition(ctx, txn.TaskType(r.name))
			what = "has tasks of type " + r.name
		} else {
			_, err = server.RawWorkflowDefinition(ctx, r.name, 0)
			what = "names the failure workflow " + r.name
		}
		switch {
		case errors.Is(err, txn.ErrNotFound):
			return fmt.Errorf("%s: %s %s, which is not registered; register it first, or give its file as well", d.Source, d, what)
		case err != nil:
			return err
		}
		known[r] = true
	}
	return nil
}

// taskTypesNamed are the types of the workflow's tasks that workers poll and
// that bring no definition of their own.
func (d Definition) taskTypesNamed() []txn.TaskType {
	var names []txn.TaskType
	d.tasks(func(task map[string]any) {
		name, _ := task["name"].(string)
		kind, ok := task["type"].(string)
		if (!ok || kind == "SIMPLE") && task["taskDefinition"] == nil && !slices.Contains(names, txn.TaskType(name)) {
			names = append(names, txn.TaskType(name))
		}
	})
	return names
}

// workflowsNamed are the workflows this one names as its failure workflow or
// runs as sub-workflows.
func (d Definition) workflowsNamed() []string {
	var names []string
	if name := d.failureWorkflow(); name != "" {
		names = append(names, name)
	}
	d.tasks(func(task map[string]any) {
		if sub, ok := task["subWorkflowParam"].(map[string]any); ok {
			if name, ok := sub["name"].(string); ok {
				names = append(names, name)
			}
		}
	})
	return names
}

func (d Definition) failureWorkflow() string {
	name, _ := d.value["failureWorkflow"].(string)
	return name
}

// tasks visits every task of a workflow, those inside forks, loops and switches
// too.
func (d Definition) tasks(visit func(task map[string]any)) {
	if d.Kind == Workflow {
		visitTasks(d.value["tasks"], visit)
	}
}

func visitTasks(value any, visit func(task map[string]any)) {
	switch v := value.(type) {
	case []any:
		for _, one := range v {
			visitTasks(one, visit)
		}
	case map[string]any:
		visit(v)
		for _, field := range []string{"loopOver", "forkTasks", "defaultCase"} {
			visitTasks(v[field], visit)
		}
		if cases, ok := v["decisionCases"].(map[string]any); ok {
			for _, one := range cases {
				visitTasks(one, visit)
			}
		}
	}
}
