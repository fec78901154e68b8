package definition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"perago/pkg/txn"
)

// Rule names one of the rules that Lint holds definitions to.
type Rule string

// The rules.
const (
	RuleStepPublish     Rule = "step-publish"
	RuleStepCleanup     Rule = "step-cleanup"
	RuleWiring          Rule = "wiring"
	RuleInput           Rule = "input"
	RuleNames           Rule = "names"
	RuleChain           Rule = "workspace-chain"
	RuleParallelWriters Rule = "parallel-writers"
	RuleEveryWay        Rule = "every-way"
	RuleOptional        Rule = "optional"
	RuleWideningPrefix  Rule = "widening-prefix"
	RuleNestedPrefixes  Rule = "nested-prefixes"
	RuleSharedDirectory Rule = "shared-directory"
	RuleFailureWorkflow Rule = "failure-workflow"
	RuleDomain          Rule = "domain"
	RuleNestedLoops     Rule = "nested-loops"
	RuleBudget          Rule = "budget"
	RuleTimeout         Rule = "timeout"
	RuleRegistered      Rule = "registered"
	RuleHardFence       Rule = "hard-fence"
)

// RuleInfo is a rule for people.
type RuleInfo struct {
	Rule  Rule
	About string
	// Surroundings says that the rule is about more than the files: what Conductor
	// has registered and how the workers are configured.
	Surroundings bool
}

// Rules are all rules, in the order of the documents.
func Rules() []RuleInfo {
	return []RuleInfo{
		{Rule: RuleStepPublish, About: "what a stage task stages is published"},
		{Rule: RuleStepCleanup, About: "each step is cleaned up, after it or once for the workflow"},
		{Rule: RuleWiring, About: "publish and cleanup take workspace and staged from one stage task, which stands before them"},
		{Rule: RuleInput, About: "the inputs of perago's tasks have the fields that they must and may have"},
		{Rule: RuleNames, About: "an expression names a declared input, a variable that is set, or a task that stands before"},
		{Rule: RuleChain, About: "a step, and a checkout without as_of, starts from what the step before it published to the same branch"},
		{Rule: RuleParallelWriters, About: "no two branches of a fork publish to one branch"},
		{Rule: RuleEveryWay, About: "there are not more ways through the workflow than the two rules before this one look at"},
		{Rule: RuleOptional, About: "checkout, stage, publish and the task whose files they publish are not optional or permissive, cleanup is optional"},
		{Rule: RuleWideningPrefix, About: "a prefix or a source that an empty expression would widen has the guardrail max_removed"},
		{Rule: RuleNestedPrefixes, About: "no step owns a part of what another step of the workflow owns"},
		{Rule: RuleSharedDirectory, About: "source is of one attempt of the task that writes it"},
		{Rule: RuleFailureWorkflow, About: "the workflow has a failure workflow, and that one cleans up"},
		{Rule: RuleDomain, About: "taskToDomain with * does not take perago's tasks along, and gives stage and checkout one domain"},
		{Rule: RuleNestedLoops, About: "no loop stands inside a loop"},
		{Rule: RuleBudget, About: "the publish budget is whole and covers a merge, and stands in the TaskDef alone"},
		{Rule: RuleTimeout, About: "the timeouts of perago's TaskDefs delay a workflow and do not end it"},
		{Rule: RuleRegistered, About: "task types and failure workflows are registered, or among the files", Surroundings: true},
		{Rule: RuleHardFence, About: "the publish workers require the hard fence (PERAGO_REQUIRE_HARD_FENCE)", Surroundings: true},
	}
}

// Finding is one thing that is wrong in a definition.
type Finding struct {
	File string `json:"file"`
	// Path is the place in the file, such as tasks[2].inputParameters.workspace.
	Path string `json:"path"`
	Rule Rule   `json:"rule"`
	// What is wrong, and what is to be done: each one sentence without a full stop.
	What string `json:"what"`
	Do   string `json:"do"`
}

func (f Finding) String() string {
	return fmt.Sprintf("%s: %s: %s: %s; %s", f.File, f.Path, f.Rule, f.What, f.Do)
}

// Surroundings are what definitions are used in.
type Surroundings struct {
	// Registered are the definitions that a Conductor has of those that are named.
	Registered []Definition
	// RequireHardFence is how the publish workers are configured.
	RequireHardFence bool
}

// Survey reads from a server what the definitions name and do not hold
// themselves.
func Survey(ctx context.Context, server Server, definitions []Definition) ([]Definition, error) {
	seen := map[reference]bool{}
	for _, d := range definitions {
		seen[reference{d.Kind, d.Name}] = true
	}
	var all []Definition
	// What is read may be a workflow that names more.
	for open := slices.Clone(definitions); len(open) > 0; open = open[1:] {
		for _, r := range open[0].named() {
			if seen[r] {
				continue
			}
			seen[r] = true
			raw, err := read(ctx, server, Definition{Kind: r.kind, Name: r.name})
			switch {
			case errors.Is(err, txn.ErrNotFound):
				continue
			case err != nil:
				return nil, err
			}
			d, err := parseOne("Conductor", raw)
			if err != nil {
				return nil, fmt.Errorf("%s %s as the server has it: %w", r.kind, r.name, err)
			}
			all = append(all, d)
			open = append(open, d)
		}
	}
	return all, nil
}

// named are the definitions that a workflow names.
func (d Definition) named() []reference {
	var all []reference
	for _, name := range d.taskTypesNamed() {
		all = append(all, reference{Task, string(name)})
	}
	for _, name := range d.workflowsNamed() {
		if !strings.Contains(name, "${") {
			all = append(all, reference{Workflow, name})
		}
	}
	return all
}

// Lint holds definitions to the rules and gives the findings in the order of the
// definitions. Without surroundings it looks at the files alone, and the rules
// that need more are left out. It reads nothing but its arguments.
func Lint(definitions []Definition, around *Surroundings) []Finding {
	l := &linter{around: around, known: map[reference]Definition{}}
	named := slices.Clone(definitions)
	if around != nil {
		named = append(named, around.Registered...)
	}
	for _, d := range named {
		r := reference{d.Kind, d.Name}
		if have, ok := l.known[r]; !ok || have.Version < d.Version {
			l.known[r] = d
		}
	}
	for _, d := range definitions {
		l.lint(d)
	}
	if around != nil {
		// A worker goes by the TaskDefs that are registered, whoever wrote them.
		for _, d := range around.Registered {
			if d.Kind == Task {
				l.lint(d)
			}
		}
	}
	return l.findings
}

type linter struct {
	around   *Surroundings
	known    map[reference]Definition
	findings []Finding
	// on is the definition that is looked at.
	on Definition
}

func (l *linter) found(rule Rule, path, what, do string) {
	finding := Finding{File: l.on.Source, Path: path, Rule: rule, What: what, Do: do}
	if !slices.Contains(l.findings, finding) {
		l.findings = append(l.findings, finding)
	}
}

func (l *linter) lint(d Definition) {
	l.on = d
	if d.Kind == Task {
		if ours(txn.TaskType(d.Name)) {
			l.taskDefinition(d, d.at)
		}
		return
	}
	tasks := everyTask(d.taskList())
	l.steps(tasks)
	for i, t := range tasks {
		l.input(t)
		l.optional(t)
		l.widening(t)
		l.directory(t, tasks[:i])
		l.inlineDefinition(t)
	}
	l.names(d)
	l.chain(d)
	l.dynamicForks(tasks)
	l.failureWorkflow(d, tasks)
	l.domains(d.at, d.value)
	l.loops(d.taskList(), false)
	l.registered(d, tasks)
	l.hardFence(tasks)
}

// steps holds publish and cleanup to their stages.
func (l *linter) steps(tasks []task) {
	stages := map[string]int{}
	lastPublish := -1
	for i, t := range tasks {
		if t.isStage() {
			stages[t.reference()] = i
		}
		if t.isPublish() {
			lastPublish = i
		}
	}
	published, cleaned := map[string]bool{}, map[string]bool{}
	for i, t := range tasks {
		if !t.isPublish() && !t.isCleanup() {
			continue
		}
		at := join(t.path, "inputParameters")
		if id, ok := t.input()["workflow_id"]; ok && t.isCleanup() {
			switch id {
			case "${workflow.workflowId}":
				if i < lastPublish {
					l.found(RuleWiring, join(at, "workflow_id"), fmt.Sprintf("%s cleans up for the whole workflow, but %s stands after it", t.reference(), tasks[lastPublish].reference()),
						"move it to the end of the workflow, or give it workspace and staged of one stage task")
				}
				for stage := range stages {
					cleaned[stage] = true
				}
			case "${workflow.input.workflowId}":
			default:
				l.found(RuleWiring, join(at, "workflow_id"), fmt.Sprintf("is %s", show(id)),
					"write ${workflow.workflowId}; in a failure workflow ${workflow.input.workflowId}, which Conductor gives it")
			}
			continue
		}
		stage, ok := outputOf(t.input()["staged"], "staged")
		position, exists := stages[stage]
		switch {
		case !ok:
			l.found(RuleWiring, join(at, "staged"), fmt.Sprintf("is %s, not the output of a stage task", l.given(t, "staged")),
				"write ${STAGE.output.staged} with the reference name of the step's stage task")
			continue
		case !exists:
			l.found(RuleWiring, join(at, "staged"), fmt.Sprintf("names %s, which is no stage task of this workflow", stage),
				"write ${STAGE.output.staged} with the reference name of the step's stage task")
			continue
		case position > i:
			l.found(RuleWiring, t.path, fmt.Sprintf("%s stands before %s, whose result it takes", t.reference(), stage),
				"move it behind the stage task")
		}
		if other, ok := outputOf(t.input()["workspace"], "workspace"); !ok || other != stage {
			l.found(RuleWiring, join(at, "workspace"), fmt.Sprintf("is %s, but staged is of %s", l.given(t, "workspace"), stage),
				fmt.Sprintf("write ${%s.output.workspace}", stage))
		}
		if t.isPublish() {
			published[stage] = true
		} else {
			cleaned[stage] = true
		}
	}
	for _, t := range tasks {
		if !t.isStage() {
			continue
		}
		if !published[t.reference()] && !t.readOnly() {
			l.found(RuleStepPublish, t.path, fmt.Sprintf("no publish task takes what %s stages", t.reference()),
				fmt.Sprintf("add a perago_publish task with workspace ${%s.output.workspace} and staged ${%s.output.staged}", t.reference(), t.reference()))
		}
		if !cleaned[t.reference()] {
			l.found(RuleStepCleanup, t.path, fmt.Sprintf("no cleanup task removes what %s leaves", t.reference()),
				"add an optional perago_cleanup task: after the step with the same workspace and staged as its publish, or at the end of the workflow with workflow_id ${workflow.workflowId}")
		}
	}
}

func (l *linter) given(t task, field string) string {
	v, ok := t.input()[field]
	if !ok {
		return "missing"
	}
	return show(v)
}

// input checks what users write into perago's tasks, with something sound in the
// place of each expression.
func (l *linter) input(t task) {
	at := join(t.path, "inputParameters")
	var err error
	switch {
	case t.isStage():
		raw := l.resolved(t)
		_, err = txn.ParseStageInput(raw, txn.AllowList{"*"})
	case t.isCheckout():
		_, err = txn.ParseCheckoutInput(l.resolved(t), txn.AllowList{"*"})
	case t.isPublish():
		if _, ok := t.input()["budget"]; ok {
			l.found(RuleBudget, join(at, "budget"), "a budget in the input takes the place of the TaskDef's, and the task is refused",
				"remove it; the budget belongs in the TaskDef, and another one in a TaskDef of its own, such as perago_publish_large")
		}
		l.fields(t, "workspace", "staged", "budget")
	case t.isCleanup():
		l.fields(t, "workspace", "staged", "workflow_id")
	}
	var terminal *txn.TerminalError
	if errors.As(err, &terminal) {
		path := at
		if terminal.Field != "" {
			path = join(at, terminal.Field)
		}
		what, do, ok := strings.Cut(terminal.Sentence, "; ")
		switch {
		case what == "is missing or null":
			what, do = "is missing", "add it; docs/tasks.md has the fields"
		case !ok:
			do = "see docs/tasks.md for the fields"
		}
		l.found(RuleInput, path, what, do)
	}
}

func (l *linter) fields(t task, known ...string) {
	for _, name := range sortedKeys(t.input()) {
		if !slices.Contains(known, name) {
			l.found(RuleInput, join(join(t.path, "inputParameters"), name), "is not a field of this task",
				"remove it; the fields are "+strings.Join(known, ", "))
		}
	}
}

// resolved is a task's input in which each expression has become something
// sound.
func (l *linter) resolved(t task) json.RawMessage {
	stand := map[string]string{
		"workspace.repository": "repository", "workspace.branch": "branch", "workspace.ref_type": "commit", "workspace.ref": strings.Repeat("0", 64),
		"source.directory": "/workspace/workflow/task",
	}
	input := map[string]any{}
	var resolve func(path string, v any) any
	resolve = func(path string, v any) any {
		switch v := v.(type) {
		case string:
			if !anyExpression.MatchString(v) {
				return v
			}
			if sound, ok := stand[path]; ok {
				return sound
			}
			// The scheme and the bucket may come out of the expression.
			if path == "source.import" && strings.HasPrefix(v, "${") {
				return "s3://bucket/prefix/"
			}
			return anyExpression.ReplaceAllString(v, "expression")
		case map[string]any:
			object := map[string]any{}
			for name, one := range v {
				object[name] = resolve(join(path, name), one)
			}
			return object
		}
		return v
	}
	for name, v := range t.input() {
		_, whole := expression(v)
		switch {
		case whole && name == "workspace":
			v = map[string]any{"repository": "${r}", "branch": "${b}", "ref_type": "commit", "ref": "${c}"}
		case whole && name == "source":
			v = map[string]any{"directory": "${d}"}
		case whole && name == "root":
			v = txn.IsRoot(text(t.input()["prefix"]))
		case whole && name != "prefix":
			continue // whatever it gives
		case name == "guardrails":
			if entries, ok := v.([]any); ok {
				v = slices.DeleteFunc(slices.Clone(entries), func(entry any) bool {
					return anyExpression.Match(encode(entry))
				})
			}
		}
		input[name] = resolve(name, v)
	}
	return json.RawMessage(encode(input))
}

func (l *linter) optional(t task) {
	optional, at := t.value["optional"] == true, join(t.path, "optional")
	// Conductor 3.16 and newer go on behind a permissive task that failed, too.
	for _, field := range []string{"optional", "permissive"} {
		if t.value[field] != true {
			continue
		}
		switch {
		case t.isStage(), t.isPublish():
			l.found(RuleOptional, join(t.path, field), fmt.Sprintf("%s is %s: when it fails the workflow goes on as if its files were published", t.reference(), field),
				"remove "+field)
		case t.isCheckout():
			l.found(RuleOptional, join(t.path, field), fmt.Sprintf("%s is %s: when it fails the next task runs without its files", t.reference(), field),
				"remove "+field)
		}
	}
	switch {
	case !optional && t.isCleanup():
		l.found(RuleOptional, at, fmt.Sprintf("%s is not optional: when no worker takes it in time the workflow fails", t.reference()),
			`add "optional": true`)
	}
}

// widening looks for a prefix or a source that names more when an expression in it
// has no value: Conductor leaves data/${workflow.input.day} as data/. The worker
// cannot tell that from a prefix that was meant. A bound on removals can stop it.
func (l *linter) widening(t task) {
	if !t.isStage() || t.readOnly() || boundsRemovals(t) {
		return
	}
	source, _ := t.input()["source"].(map[string]any)
	for _, c := range []struct{ field, text string }{
		{"prefix", text(t.input()["prefix"])},
		{"source.import", text(source["import"])},
		{"source.directory", text(source["directory"])},
	} {
		// A task of the user's gives its own directory whole. A missing one is refused.
		if _, whole := expression(c.text); whole && c.field == "source.directory" {
			continue
		}
		if e := wideningExpression(c.text); e != "" {
			l.found(RuleWideningPrefix, join(t.path, "inputParameters."+c.field),
				fmt.Sprintf("an empty or wrong %s makes the step remove files that are not its own", e),
				`add a guardrail max_removed, such as "guardrails": [{"max_removed": {"fraction": 0.5}}]`)
		}
	}
}

// boundsRemovals reports whether a stage has a guardrail max_removed in the
// definition. Guardrails that come from an expression may lack it.
func boundsRemovals(t task) bool {
	guardrails, _ := t.input()["guardrails"].([]any)
	return slices.ContainsFunc(guardrails, func(one any) bool {
		guardrail, _ := one.(map[string]any)
		return guardrail["max_removed"] != nil
	})
}

// wideningExpression is an expression that a text ends in, or that is a whole
// segment of it; empty where there is none. The ids that Conductor makes itself
// are never empty.
func wideningExpression(text string) string {
	// A slash inside an expression separates nothing.
	var inside []string
	marked := anyExpression.ReplaceAllStringFunc(text, func(e string) string {
		inside = append(inside, e)
		return fmt.Sprintf("\x00%d\x00", len(inside)-1)
	})
	segments := strings.Split(strings.TrimSuffix(marked, "/"), "/")
	for i, segment := range segments {
		parts := strings.Split(segment, "\x00") // text, number, text, number, text
		for n := 1; n < len(parts); n += 2 {
			number, err := strconv.Atoi(parts[n])
			if err != nil || number >= len(inside) || neverEmpty(inside[number]) {
				continue
			}
			whole := len(parts) == 3 && parts[0] == "" && parts[2] == ""
			ends := i == len(segments)-1 && n == len(parts)-2 && parts[n+1] == ""
			if whole || ends {
				return inside[number]
			}
		}
	}
	return ""
}

func neverEmpty(e string) bool {
	inner := strings.TrimSpace(anyExpression.FindStringSubmatch(e)[1])
	reference, field, _ := strings.Cut(inner, ".")
	return inner == "workflow.workflowId" || reference != "workflow" && field == "taskId"
}

// directory wants a source that only one attempt of a task wrote into. An import of
// what no task of the workflow writes has no attempts.
func (l *linter) directory(t task, before []task) {
	if !t.isStage() {
		return
	}
	source, _ := t.input()["source"].(map[string]any)
	field, from := "directory", text(source["directory"])
	do := "let the task put out a directory of its own for each attempt, <root>/<workflow id>/<task id>/, and write ${TASK.output.directory}"
	if uri := text(source["import"]); uri != "" && slices.ContainsFunc(before, task.writesFiles) {
		field, from = "import", uri
		do = "let the task write below a prefix of its own for each attempt, such as s3://bucket/<workflow id>/<task id>/, return the URI, and write ${TASK.output.uri}"
	}
	if from == "" {
		return
	}
	at := join(t.path, "inputParameters.source."+field)
	for _, m := range anyExpression.FindAllStringSubmatch(from, -1) {
		reference, rest, _ := strings.Cut(strings.TrimSpace(m[1]), ".")
		switch {
		case reference == "workflow":
			continue
		case strings.HasPrefix(rest, "output.checkout."):
			l.found(RuleSharedDirectory, at, "is a checkout's directory: a second attempt of the task after it finds there what the first one left", do)
			return
		case rest == "taskId" || strings.HasPrefix(rest, "output"):
			l.optionalWriter(before, reference)
			return
		}
	}
	l.found(RuleSharedDirectory, at, fmt.Sprintf("%s is the same for every attempt: a second one finds what the first one left, and it is published", from), do)
}

// optionalWriter wants a step's files to be of a task that must succeed. Conductor
// goes on behind another one that failed, and what it had put out by then is in the
// record.
func (l *linter) optionalWriter(before []task, reference string) {
	for _, t := range before {
		for _, field := range []string{"optional", "permissive"} {
			if t.reference() == reference && t.value[field] == true {
				l.found(RuleOptional, join(t.path, field), fmt.Sprintf("%s is %s: when it fails, the files that it has written until then may be published", reference, field), "remove "+field)
			}
		}
	}
}

// writesFiles reports whether a task may write what a step publishes.
func (t task) writesFiles() bool {
	return !slices.Contains(writesNothing, t.kind()) && !(t.polled() && ours(t.name()))
}

// writesNothing are the types of tasks that only steer.
var writesNothing = []string{typeFork, typeDynamicFork, "JOIN", "EXCLUSIVE_JOIN", typeLoop, typeSwitch, typeDecision, typeSetVariable, typeTerminate, "WAIT"}

func (l *linter) inlineDefinition(t task) {
	inline, ok := t.value["taskDefinition"].(map[string]any)
	if !ok || !t.polled() || !ours(t.name()) {
		return
	}
	named := map[string]any{"name": string(t.name())}
	for key, v := range inline {
		named[key] = v
	}
	l.taskDefinition(Definition{Kind: Task, Name: string(t.name()), Raw: encode(named), value: named}, join(t.path, "taskDefinition"))
}

func (l *linter) chain(d Definition) {
	workflows := map[string]Definition{}
	for r, one := range l.known {
		if r.kind == Workflow {
			workflows[r.name] = one
		}
	}
	c := newChain(d.taskList(), workflows)
	at := func(t task) string { return join(t.path, "inputParameters.workspace") }
	told := map[string]bool{}
	c.stale = func(t task, starts, head string) {
		if told[t.path] {
			return
		}
		told[t.path] = true
		from := "where the workflow began"
		if starts != "" {
			from = "what " + plainCommit(starts) + " published"
		}
		publisher, below, sub := strings.Cut(plainCommit(head), "/")
		do := fmt.Sprintf("write ${%s.output.workspace}", publisher)
		switch {
		case sub:
			do = fmt.Sprintf("let %s put out ${%s.output.workspace}, and take it from there", publisher, below)
		case !always(d.taskList(), publisher, t.reference()):
			do = "carry the workspace in a workflow variable: a SET_VARIABLE task before, and one after each publish; perago insert writes it like that"
		}
		if t.isCheckout() {
			l.found(RuleChain, at(t), fmt.Sprintf("%s downloads files from %s, but by then %s has published to the same branch, so the next task reads older files", t.reference(), from, publisher),
				do+`; if the older files are meant, add "as_of": true`)
			return
		}
		l.found(RuleChain, at(t), fmt.Sprintf("%s starts from %s, but by then %s has published to the same branch, so its publication is refused", t.reference(), from, publisher), do)
	}
	var all []written
	c.writes = func(t task, origin string) {
		if txn.IsRoot(text(t.input()["prefix"])) && t.input()["root"] != true {
			return // the input's fault
		}
		if w := writtenBy(t, origin); !slices.ContainsFunc(all, func(have written) bool { return have.task.path == w.task.path && have.origin == w.origin }) {
			all = append(all, w)
		}
	}
	c.null = func(t task) {
		if told[t.path] {
			return
		}
		told[t.path] = true
		l.found(RuleChain, at(t), fmt.Sprintf("%s is null where what it names has not run", l.given(t, "workspace")),
			"name a task that always runs before it, or a workflow variable that a SET_VARIABLE task has set")
	}
	c.parallel = func(fork, first, second task) {
		l.found(RuleParallelWriters, fork.path, fmt.Sprintf("%s and %s publish to one branch side by side, and the second is refused", first.reference(), second.reference()),
			"publish in one branch of the fork alone, or after the join, one step after the other")
	}
	c.follow(d)
	l.nested(all)
	if c.work.inPart {
		l.found(RuleEveryWay, "tasks", fmt.Sprintf("there are more ways through the workflow than %s and %s look at, so they may have missed something", RuleChain, RuleParallelWriters),
			fmt.Sprintf("put parts of it into sub-workflows, or read it by those two rules yourself and leave this one out (--without %s)", RuleEveryWay))
	}
}

// plainCommit is the publish task of a commit.
func plainCommit(commit string) string {
	return strings.TrimRight(commit, "'")
}

// always reports whether a task has run whenever another one does, which stands
// behind it.
func always(tasks []task, first, then string) bool {
	for i, t := range tasks {
		for _, branch := range t.branches() {
			if always(branch, first, then) {
				return true
			}
		}
		if slices.Contains(runsWith(t), first) && slices.ContainsFunc(everyTask(tasks[i+1:]), func(t task) bool { return t.reference() == then }) {
			return true
		}
	}
	return false
}

// runsWith are the tasks that have run when a task has: itself and what is in it,
// but for the cases of a switch.
func runsWith(t task) []string {
	all := []string{t.reference()}
	if t.kind() == typeFork || t.kind() == typeLoop {
		for _, branch := range t.branches() {
			for _, inside := range branch {
				all = append(all, runsWith(inside)...)
			}
		}
	}
	return all
}

// dynamicForks looks for what can be seen of forks whose branches are made when
// they run.
func (l *linter) dynamicForks(tasks []task) {
	for _, t := range tasks {
		if t.kind() != typeDynamicFork {
			continue
		}
		if name := publisherIn(t.input()); name != "" {
			l.found(RuleParallelWriters, t.path, fmt.Sprintf("the branches of %s run %s side by side; of those that publish to one branch all but the first are refused", t.reference(), name),
				"let the branches write into one directory, or import prefix, and publish it once after the join")
		}
	}
}

// publisherIn is a type of perago's that writes, anywhere in a value.
func publisherIn(v any) string {
	switch v := v.(type) {
	case string:
		if name := txn.TaskType(v); name.IsStage() || name.IsPublish() {
			return v
		}
	case []any:
		for _, one := range v {
			if name := publisherIn(one); name != "" {
				return name
			}
		}
	case map[string]any:
		for _, key := range sortedKeys(v) {
			if name := publisherIn(v[key]); name != "" {
				return name
			}
		}
	}
	return ""
}

func (l *linter) failureWorkflow(d Definition, tasks []task) {
	if !slices.ContainsFunc(tasks, task.isStage) {
		return
	}
	at, name := join(d.at, "failureWorkflow"), d.failureWorkflow()
	if name == "" {
		l.found(RuleFailureWorkflow, at, "is not set: what a failed workflow staged stays until a sweep takes it", `add "failureWorkflow": "perago_cancel"`)
		return
	}
	cancel, ok := l.known[reference{Workflow, name}]
	if !ok {
		if l.around != nil && !strings.Contains(name, "${") {
			l.found(RuleRegistered, at, fmt.Sprintf("%s is not registered; Conductor says so only in the failed workflow's output", name), "register it; perago register brings perago_cancel")
		}
		return
	}
	for _, t := range everyTask(cancel.taskList()) {
		if t.isCleanup() && t.input()["workflow_id"] == "${workflow.input.workflowId}" {
			return
		}
	}
	l.found(RuleFailureWorkflow, at, fmt.Sprintf("%s has no cleanup task for the workflow that failed", name),
		"name perago_cancel, or add to it a perago_cleanup task with workflow_id ${workflow.input.workflowId}")
}

// domains looks for taskToDomain, wherever a definition may hold it.
func (l *linter) domains(path string, v any) {
	switch v := v.(type) {
	case []any:
		for i, one := range v {
			l.domains(index(path, i), one)
		}
	case map[string]any:
		for _, key := range sortedKeys(v) {
			domains, ok := v[key].(map[string]any)
			if key != "taskToDomain" || !ok {
				l.domains(join(path, key), v[key])
				continue
			}
			l.domainLists(join(path, key), domains)
			if _, all := domains["*"]; !all {
				continue
			}
			var taken []string
			for _, own := range []txn.TaskType{txn.TypeStage, txn.TypePublish, txn.TypeCleanup} {
				if _, ok := domains[string(own)]; !ok {
					taken = append(taken, string(own))
				}
			}
			if len(taken) > 0 {
				l.found(RuleDomain, join(path, key), fmt.Sprintf("* sends %s to that domain as well, also in the failure workflow, where perago's workers may not poll", strings.Join(taken, ", ")),
					"name your own task types one by one, or name perago's too")
			}
		}
	}
}

// domainLists looks for a list of domains for a task that needs the files of one
// host: Conductor gives the task to the next domain when the first one is busy.
func (l *linter) domainLists(path string, domains map[string]any) {
	for _, own := range sortedKeys(domains) {
		list := text(domains[own])
		name := txn.TaskType(own)
		if !strings.Contains(list, ",") || !name.IsStage() && !name.IsCheckout() && own != "*" {
			continue
		}
		if own == "*" {
			_, stage := domains[string(txn.TypeStage)]
			_, checkout := domains[string(txn.TypeCheckout)]
			if stage && checkout {
				continue
			}
		}
		l.found(RuleDomain, join(path, own), fmt.Sprintf("%s lists several domains, so a stage or a checkout can run on a host that does not have the files", list),
			"give it the one domain of the host that has the files")
	}
}

func (l *linter) loops(tasks []task, inside bool) {
	for _, t := range tasks {
		loop := t.kind() == typeLoop
		if loop && inside {
			l.found(RuleNestedLoops, t.path, fmt.Sprintf("the loop %s stands inside a loop; Conductor 3.15.0 fails such a workflow in the inner loop", t.reference()),
				"put the inner loop into a sub-workflow")
		}
		for _, branch := range t.branches() {
			l.loops(branch, inside || loop)
		}
	}
}

func (l *linter) registered(d Definition, tasks []task) {
	if l.around == nil {
		return
	}
	for _, t := range tasks {
		name := string(t.name())
		if _, ok := l.known[reference{Task, name}]; ok || !t.polled() || t.value["taskDefinition"] != nil || strings.Contains(name, "${") {
			continue
		}
		do := "register a TaskDef for it"
		if ours(t.name()) {
			do = "register it; perago register brings the shipped ones"
		}
		l.found(RuleRegistered, join(t.path, "name"), fmt.Sprintf("the task type %s is not registered", show(name)), do)
	}
}

func (l *linter) hardFence(tasks []task) {
	if l.around == nil || l.around.RequireHardFence {
		return
	}
	for _, t := range tasks {
		if t.isPublish() {
			l.found(RuleHardFence, t.path, "PERAGO_REQUIRE_HARD_FENCE is not true here: where the publish workers do not require the hard fence, publications that race can both land",
				"run perago fence install for the target branch, and set it for the publish workers and here")
			return
		}
	}
}

// taskDefinition holds a TaskDef of perago's to the rules of its timeouts.
func (l *linter) taskDefinition(d Definition, at string) {
	read, err := d.TaskDefinition()
	if err != nil {
		l.found(RuleTimeout, orRoot(at), err.Error(), "see taskdefs/ for the shipped one")
		return
	}
	if err := txn.CheckTaskDefinition(read); err != nil {
		field := "responseTimeoutSeconds"
		if read.TimeoutSeconds < 0 {
			field = "timeoutSeconds"
		}
		l.sentence(RuleTimeout, join(at, field), err)
	}
	if read.Name.IsPublish() {
		l.budget(read, at)
	}
	policy := join(at, "timeoutPolicy")
	const retry = `write "timeoutPolicy": "RETRY"`
	ends := map[string]string{"TIME_OUT_WF": "ends the workflow", "ALERT_ONLY": "leaves the workflow hanging"}[read.TimeoutPolicy]
	switch {
	case ends == "":
	case read.Name.IsCleanup():
		l.found(RuleTimeout, policy, fmt.Sprintf("%s (Conductor's default is TIME_OUT_WF) %s when no cleanup worker is up, optional or not", read.TimeoutPolicy, ends), retry)
	case read.TimeoutSeconds > 0 || read.PollTimeoutSeconds > 0:
		l.found(RuleTimeout, policy, fmt.Sprintf("%s %s when no worker takes the task in time", read.TimeoutPolicy, ends), retry)
	}
	// A worker that dies costs its attempt the response timeout. What its merge did, the
	// next attempt finds out; so there has to be time for a next one.
	if second := 2*read.ResponseTimeoutSeconds + read.RetryDelaySeconds; read.TotalTimeoutSeconds > 0 && read.TotalTimeoutSeconds < second {
		l.found(RuleTimeout, join(at, "totalTimeoutSeconds"), fmt.Sprintf("%d leaves no second attempt when a worker dies", read.TotalTimeoutSeconds),
			fmt.Sprintf("write 0, or at least %d (twice responseTimeoutSeconds, and retryDelaySeconds)", second))
	}
	if read.Name.IsCleanup() && read.PollTimeoutSeconds <= 0 {
		l.found(RuleTimeout, join(at, "pollTimeoutSeconds"), "is 0: a cleanup that no worker takes holds the workflow for ever", `write "pollTimeoutSeconds": 600`)
	}
}

func (l *linter) budget(read txn.TaskDefinition, at string) {
	budget, err := txn.BudgetOf(read)
	if err != nil {
		l.sentence(RuleBudget, join(at, "inputTemplate.budget"), err)
		return
	}
	for _, err := range faults(txn.CheckBudget(read, budget)) {
		field := "inputTemplate.budget"
		if broken, ok := errors.AsType[*txn.RuleError](err); ok {
			field = broken.Field
		}
		l.sentence(RuleBudget, join(at, field), err)
	}
}

// sentence is a finding from one of the worker's own sentences, which end in what
// is to be done.
func (l *linter) sentence(rule Rule, path string, err error) {
	said := strings.ReplaceAll(err.Error(), "\n", ", ")
	what, do, ok := strings.Cut(said, "; ")
	if !ok {
		what, do, ok = strings.Cut(said, ", ")
	}
	if !ok || strings.Contains(do, "budget.") {
		what, do = said, "see the shipped one, taskdefs/perago_publish.json"
	}
	l.found(rule, path, what, do)
}

func faults(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

func orRoot(path string) string {
	if path == "" {
		return "."
	}
	return path
}
