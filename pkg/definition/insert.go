package definition

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"perago/pkg/txn"
)

// Insertion is what Insert puts into a workflow.
type Insertion struct {
	// After is the reference name of the task behind which the step goes in, and whose
	// files are published.
	After string
	// Name begins the reference names of the step's tasks; empty for After.
	Name string
	// Source is an expression or the text of the directory, or the URI of an import;
	// empty for the directory that the task puts out.
	Source string
	// Checkout is the prefix that is downloaded for the task before it runs; empty for
	// none.
	Checkout string
	// Prefix is what the step owns, and Root says that the root is meant.
	Prefix string
	Root   bool
	// Workspace is the expression of the commit that the step starts from; empty to
	// find it: what the step before published, or the workspace of the workflow's
	// input.
	Workspace string
	// Guardrails are what the files must be: a list as a task's input has it; nil for
	// none.
	Guardrails json.RawMessage
}

// Insert puts the tasks of a step behind a task of a workflow, wherever it
// stands, and chains the steps after it to the new one. All the rest of the text
// stays as it is, byte for byte. The notes say what was changed beside the tasks
// that were put in. An edit that would break one of Lint's rules is refused.
func Insert(source string, text []byte, what Insertion) (edited []byte, notes []string, err error) {
	before, err := Parse(source, text)
	if err != nil {
		return nil, nil, err
	}
	for _, given := range []struct{ field, value string }{
		{"name of the task", what.After}, {"name", what.Name}, {"source", what.Source}, {"prefix of the checkout", what.Checkout}, {"workspace", what.Workspace},
	} {
		// JSON would hold other characters in their place.
		if !utf8.ValidString(given.value) {
			return nil, nil, fmt.Errorf("the %s %q is not UTF-8; write it in UTF-8", given.field, given.value)
		}
	}
	if txn.IsRoot(what.Prefix) && !what.Root {
		return nil, nil, fmt.Errorf("the prefix is %q, the root, which holds every file of the repository; name a prefix, or give --root if the root is meant", what.Prefix)
	}
	if _, err := txn.ParseInputPrefix(what.Prefix, what.Root); err != nil {
		return nil, nil, err
	}
	if what.Checkout != "" {
		if _, err := txn.ParseInputPrefix(what.Checkout, false); err != nil {
			return nil, nil, fmt.Errorf("checkout: %w", err)
		}
	}
	if what.Name == "" {
		what.Name = what.After
	}
	root, err := parseTree(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", source, err)
	}
	i, err := newInserter(source, text, before, root, what)
	if err != nil {
		return nil, nil, err
	}
	i.plan()
	edited = applyEdits(text, i.edits)
	after, err := Parse(source, edited)
	if err != nil {
		return nil, nil, fmt.Errorf("the edited workflow is broken: %w", err)
	}
	had := Lint(before, nil)
	for _, finding := range Lint(after, nil) {
		if !slices.ContainsFunc(had, func(f Finding) bool { return f.Rule == finding.Rule && f.What == finding.What }) {
			return nil, nil, fmt.Errorf("the step cannot be put in behind %s like that: %s: %s; %s", what.After, finding.Path, finding.What, finding.Do)
		}
	}
	return edited, i.notes, nil
}

// place is a task in the text, and what it stands in.
type place struct {
	task
	node *node
	list []*place
	// around are the tasks it stands in, the outermost first, each with the
	// branch.
	around []surrounding
}

type surrounding struct {
	place  *place
	branch int
}

// inserter plans the edits of one workflow.
type inserter struct {
	what  Insertion
	text  []byte
	tasks []task
	// all are the places of the tasks, in the order in which they stand; the step
	// goes in behind at.
	all   []*place
	at    *place
	root  *node
	edits []edit
	notes []string
	// definition is the workflow; variableFrom the first value of a variable that was
	// put in.
	definition   Definition
	variableFrom string
}

func newInserter(source string, text []byte, definitions []Definition, root *node, what Insertion) (*inserter, error) {
	roots := []*node{root}
	if len(root.members) == 0 {
		roots = root.elements
	}
	var found *inserter
	for n, d := range definitions {
		i := &inserter{what: what, text: text, definition: d, tasks: d.taskList(), root: roots[n]}
		i.places(d.value["tasks"], roots[n].member("tasks"), nil)
		for _, p := range i.all {
			if p.reference() != what.After {
				continue
			}
			if found != nil {
				return nil, fmt.Errorf("%s has more than one task with the reference name %s", source, what.After)
			}
			i.at, found = p, i
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%s has no task with the reference name %s", source, what.After)
	}
	switch kind := found.at.kind(); {
	case kind == typeFork, kind == typeDynamicFork:
		return nil, fmt.Errorf("%s is a %s, whose branches run after it; name the join behind it, and give --source", what.After, kind)
	case kind == typeTerminate:
		return nil, fmt.Errorf("%s is a %s, which ends the workflow; name a task before it", what.After, kind)
	case !found.at.writesFiles() && what.Checkout != "":
		return nil, fmt.Errorf("%s reads no files, so a checkout before it is for nobody; leave --checkout out", what.After)
	case ours(found.at.name()) && kind == typeSimple && what.Source == "":
		return nil, fmt.Errorf("%s is a task of perago's; name the task of yours that writes the files, or give --source and --name to put the step in here", what.After)
	case !found.at.writesFiles() && what.Source == "":
		return nil, fmt.Errorf("%s is a %s, which writes no files; give --source with what the step publishes, such as ${TASK.output.directory}", what.After, kind)
	}
	for _, suffix := range []string{"_checkout", "_stage", "_publish", "_cleanup", "_remember", "_begin"} {
		if slices.ContainsFunc(found.all, func(p *place) bool { return p.reference() == what.Name+suffix }) {
			return nil, fmt.Errorf("%s has a task %s%s already; is the step in it? If it is another step, give --name", source, what.Name, suffix)
		}
	}
	return found, nil
}

// places collects the tasks of a list and those inside them.
func (i *inserter) places(value any, n *node, around []surrounding) {
	values, _ := value.([]any)
	if n == nil || len(values) != len(n.elements) {
		return
	}
	var list []*place
	for at, element := range values {
		if object, ok := element.(map[string]any); ok {
			list = append(list, &place{task: task{value: object}, node: n.elements[at], around: around})
		}
	}
	for _, p := range list {
		p.list = list
		i.all = append(i.all, p)
		inside := func(branch int) []surrounding {
			return append(slices.Clone(around), surrounding{p, branch})
		}
		switch p.kind() {
		case typeFork:
			lists, _ := p.value["forkTasks"].([]any)
			if forks := p.node.member("forkTasks"); forks != nil {
				for branch := range min(len(lists), len(forks.elements)) {
					i.places(lists[branch], forks.elements[branch], inside(branch))
				}
			}
		case typeLoop:
			i.places(p.value["loopOver"], p.node.member("loopOver"), inside(0))
		case typeSwitch, typeDecision:
			cases, _ := p.value["decisionCases"].(map[string]any)
			for branch, name := range sortedKeys(cases) {
				i.places(cases[name], p.node.member("decisionCases").member(name), inside(branch))
			}
			i.places(p.value["defaultCase"], p.node.member("defaultCase"), inside(len(cases)))
		}
	}
}

// beside reports whether two tasks stand in different branches of one fork or
// switch, so that neither is before the other.
func beside(a, b *place) bool {
	for i := range min(len(a.around), len(b.around)) {
		if a.around[i].place != b.around[i].place {
			return false
		}
		if a.around[i].branch != b.around[i].branch {
			return true
		}
	}
	return false
}

func (i *inserter) plan() {
	step := i.what.Name
	workspace, variable := i.workspace()
	i.declare(workspace)
	i.checkout(workspace)
	input := []field{{"workspace", workspace}, {"prefix", i.what.Prefix}}
	if i.what.Root {
		input = append(input, field{"root", true})
	}
	input = append(input, field{"source", i.source()})
	if i.what.Guardrails != nil {
		input = append(input, field{"guardrails", i.what.Guardrails})
	}
	newTasks := [][]field{
		{{"name", string(txn.TypeStage)}, {"taskReferenceName", step + "_stage"}, {"type", typeSimple}, {"inputParameters", input}},
		{{"name", string(txn.TypePublish)}, {"taskReferenceName", step + "_publish"}, {"type", typeSimple}, {"inputParameters", i.staged()}},
	}
	if variable != "" {
		newTasks = append(newTasks, setVariable(step+"_remember", variable, "${"+step+"_publish.output.workspace}"))
	}
	if !i.cleansUp() {
		newTasks = append(newTasks, []field{{"name", string(txn.TypeCleanup)}, {"taskReferenceName", step + "_cleanup"}, {"type", typeSimple}, {"optional", true}, {"inputParameters", i.staged()}})
	}
	layout, lead := layoutOf(i.text, i.at.node), gap(i.text, i.at.node.start)
	var text strings.Builder
	for _, fields := range newTasks {
		text.WriteString("," + lead + layout.write(fields))
	}
	i.edits = append(i.edits, edit{i.at.node.end, i.at.node.end, text.String()})
	i.join(newTasks[len(newTasks)-1][1].value.(string))
	i.failureWorkflow()
}

// source is where the step's files come from: a URI is an import.
func (i *inserter) source() []field {
	switch {
	case i.what.Source == "":
		return []field{{"directory", "${" + i.what.After + ".output.directory}"}}
	case strings.Contains(i.what.Source, "://"), strings.HasSuffix(i.what.Source, ".output.uri}"):
		return []field{{"import", i.what.Source}}
	}
	return []field{{"directory", i.what.Source}}
}

// checkout puts a checkout before the task.
func (i *inserter) checkout(workspace string) {
	if i.what.Checkout == "" {
		return
	}
	reference, at := i.what.Name+"_checkout", i.at.node.start
	fields := []field{{"name", string(txn.TypeCheckout)}, {"taskReferenceName", reference}, {"type", typeSimple}, {"inputParameters", []field{
		{"workspace", workspace}, {"prefix", i.what.Checkout}}}}
	i.edits = append(i.edits, edit{at, at, layoutOf(i.text, i.at.node).write(fields) + "," + gap(i.text, at)})
	i.notes = append(i.notes, fmt.Sprintf("give %s the input ${%s.output.checkout.directory}, which is where the files are", i.what.After, reference))
}

// declare adds the input that the step starts from to the inputs that the workflow
// declares, where it declares some.
func (i *inserter) declare(workspace string) {
	e, _ := expression(workspace)
	input, ok := strings.CutPrefix(e, "workflow.input.")
	if i.variableFrom != "" {
		e, _ = expression(i.variableFrom)
		input, ok = strings.CutPrefix(e, "workflow.input.")
	}
	input = name.FindString(input)
	have, declared := i.definition.declaredInputs()
	if !ok || input == "" || !declared || slices.Contains(have, input) {
		return
	}
	list := i.root.member("inputParameters")
	last := list.elements[len(list.elements)-1]
	i.edits = append(i.edits, edit{last.end, last.end, "," + cmp.Or(gap(i.text, last.start), " ") + string(encode(input))})
	i.notes = append(i.notes, fmt.Sprintf("the workflow now declares the input %s", input))
}

func (i *inserter) staged() []field {
	stage := i.what.Name + "_stage"
	return []field{{"workspace", "${" + stage + ".output.workspace}"}, {"staged", "${" + stage + ".output.staged}"}}
}

func setVariable(reference, variable, expression string) []field {
	return []field{{"name", reference}, {"taskReferenceName", reference}, {"type", typeSetVariable}, {"inputParameters", []field{{variable, expression}}}}
}

// workspace is the expression that the new step starts from, and the workflow
// variable that carries it on, where one does. It plans what else that changes:
// the steps after the new one that started where it does now, and the variable's
// first value.
func (i *inserter) workspace() (expression, variable string) {
	position := i.end()
	from := i.what.Workspace
	var unsure, later bool
	for _, p := range i.all[:position+1] {
		switch {
		case beside(p, i.at):
		case p.isStage() && !p.readOnly() && i.what.Workspace == "":
			if name, ok := strings.CutPrefix(text(p.input()["workspace"]), "${workflow.variables."); ok {
				variable = strings.TrimSuffix(name, "}")
			} else if from == "" {
				from = text(p.input()["workspace"])
			}
		case p.isPublish() && !i.reads(p):
			if p == i.at || i.before(p) {
				if i.what.Workspace == "" {
					from = "${" + p.reference() + ".output.workspace}"
				}
			} else {
				unsure = true
			}
		}
	}
	if variable != "" {
		return "${workflow.variables." + variable + "}", variable
	}
	if from == "" {
		from = "${workflow.input.workspace}"
		// A workflow whose other steps begin elsewhere.
		for _, p := range i.all[position+1:] {
			if w := text(p.input()["workspace"]); p.isStage() && strings.HasPrefix(w, "${workflow.input.") {
				from = w
				break
			}
		}
	}
	var next []*place
	for _, p := range i.all[position+1:] {
		if (p.isStage() && !p.readOnly() || p.followsHead()) && !beside(p, i.at) && text(p.input()["workspace"]) == from {
			next = append(next, p)
		}
	}
	outer := i.outermost()
	if outer != nil {
		later = slices.ContainsFunc(next, func(p *place) bool {
			return len(p.around) < len(i.at.around) || p.around[len(i.at.around)-1] != i.at.around[len(i.at.around)-1]
		})
	}
	inLoop := slices.ContainsFunc(i.at.around, func(s surrounding) bool { return s.place.kind() == typeLoop })
	if outer != nil && (inLoop || later || unsure) {
		variable = i.freeVariable()
		i.variableFrom = from
		begin := setVariable(i.what.Name+"_begin", variable, from)
		i.edits = append(i.edits, edit{outer.node.start, outer.node.start, layoutOf(i.text, outer.node).write(begin) + "," + gap(i.text, outer.node.start)})
		i.notes = append(i.notes, fmt.Sprintf("the workspace goes through the workflow variable %s, because %s stands in %s", variable, i.what.After, outer.reference()))
		// A checkout before the task reads, in the next iteration, what this one published.
		for _, p := range i.all[:position] {
			if p.followsHead() && i.inLoopWith(p) && text(p.input()["workspace"]) == from {
				i.rewire(p, "${workflow.variables."+variable+"}")
			}
		}
		for _, p := range next {
			i.rewire(p, "${workflow.variables."+variable+"}")
		}
		return "${workflow.variables." + variable + "}", variable
	}
	for n, p := range next {
		// Those after the first are chained to it already, or not at all.
		if !slices.ContainsFunc(next[:n], func(q *place) bool { return q.isStage() && !beside(p, q) }) {
			i.rewire(p, "${"+i.what.Name+"_publish.output.workspace}")
		}
	}
	return from, ""
}

// followsHead reports whether a task is a checkout that has to read what was
// published last.
func (p *place) followsHead() bool { return p.isCheckout() && p.input()["as_of"] != true }

// inLoopWith reports whether a task stands in a loop in which the new step stands.
func (i *inserter) inLoopWith(p *place) bool {
	return slices.ContainsFunc(i.at.around, func(s surrounding) bool {
		return s.place.kind() == typeLoop && slices.ContainsFunc(p.around, func(other surrounding) bool { return other.place == s.place })
	})
}

// end is the position of the task behind which the step goes in, or of the last task
// inside it.
func (i *inserter) end() int {
	position := slices.Index(i.all, i.at)
	for at, p := range i.all {
		if slices.ContainsFunc(p.around, func(s surrounding) bool { return s.place == i.at }) {
			position = max(position, at)
		}
	}
	return position
}

// outermost is the outermost loop or switch around the step.
func (i *inserter) outermost() *place {
	for _, s := range i.at.around {
		if kind := s.place.kind(); kind != typeFork {
			return s.place
		}
	}
	return nil
}

// before reports whether a task has run whenever the new step does.
func (i *inserter) before(p *place) bool {
	return always(i.tasks, p.reference(), i.what.After)
}

// reads reports whether a publish is of a read-only stage.
func (i *inserter) reads(publish *place) bool {
	stage, _ := outputOf(publish.input()["staged"], "staged")
	return slices.ContainsFunc(i.all, func(p *place) bool { return p.reference() == stage && p.readOnly() })
}

func (i *inserter) freeVariable() string {
	name := "workspace"
	for slices.ContainsFunc(i.all, func(p *place) bool { _, set := p.input()[name]; return set && p.kind() == typeSetVariable }) {
		name = "perago_" + name
	}
	return name
}

func (i *inserter) rewire(p *place, expression string) {
	value := p.node.member("inputParameters").member("workspace")
	i.edits = append(i.edits, edit{value.start, value.end, string(encode(expression))})
	i.notes = append(i.notes, fmt.Sprintf("%s now starts from %s", p.reference(), expression))
}

// cleansUp reports whether a cleanup of the whole workflow stands behind the step.
func (i *inserter) cleansUp() bool {
	for _, p := range i.all[i.end()+1:] {
		if p.isCleanup() && len(p.around) == 0 && p.input()["workflow_id"] == "${workflow.workflowId}" {
			return true
		}
	}
	return false
}

// join makes the join of a fork wait for the end of the branch, where the step's
// task was the end of it.
func (i *inserter) join(last string) {
	if len(i.at.around) == 0 || i.at.list[len(i.at.list)-1] != i.at {
		return
	}
	fork := i.at.around[len(i.at.around)-1].place
	if fork.kind() != typeFork {
		return
	}
	at := slices.Index(fork.list, fork)
	for _, p := range fork.list[at+1:] {
		on := p.node.member("joinOn")
		if on == nil {
			continue
		}
		references, _ := p.value["joinOn"].([]any)
		for n, reference := range references {
			if reference == i.what.After && n < len(on.elements) {
				i.edits = append(i.edits, edit{on.elements[n].start, on.elements[n].end, string(encode(last))})
				i.notes = append(i.notes, fmt.Sprintf("%s now waits for %s instead of %s", p.reference(), last, i.what.After))
			}
		}
		return
	}
}

// failureWorkflow names perago_cancel where the workflow has no failure workflow.
func (i *inserter) failureWorkflow() {
	const name = "perago_cancel"
	if have := i.root.member("failureWorkflow"); have != nil {
		if given := string(i.text[have.start:have.end]); given != `""` && given != "null" {
			return
		}
		i.edits = append(i.edits, edit{have.start, have.end, `"` + name + `"`})
	} else {
		at := slices.IndexFunc(i.root.members, func(m member) bool { return m.name == "tasks" })
		start := i.root.members[at].start
		l := layoutOf(i.text, i.root)
		between := gap(i.text, start)
		if at == 0 && l.newline == "" {
			between = l.space
		}
		i.edits = append(i.edits, edit{start, start, `"failureWorkflow":` + l.space + `"` + name + `",` + between})
	}
	i.notes = append(i.notes, "the workflow's failure workflow now is "+name)
}
