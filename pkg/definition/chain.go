package definition

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Which commit a step starts from, and where its branch is by then, is found by
// going through the workflow as Conductor would: every case of a switch, a loop
// once and twice, the branches of a fork each by itself. What cannot be known from
// the definition, such as a workspace that a task of the user's makes up, is
// asked nothing about.

// value is a workspace as an expression gives it.
type value struct {
	// origin names the branch: the expression or the text that it began with.
	origin string
	// commit is the publish whose commit it is, empty for the one the workflow
	// began with.
	commit string
}

// route is one way through the workflow, up to a task.
type route struct {
	// heads is where each branch is by now; a branch that is not here is where the
	// workflow found it.
	heads map[string]string
	// values are the workspaces that tasks put out and that variables hold, by
	// the expression that reads them.
	values map[string]value
}

func (r route) clone() route { return route{maps.Clone(r.heads), maps.Clone(r.values)} }

func (r route) print() string { return fmt.Sprint(r.heads, r.values) }

// mostRoutes and mostSteps bound the work; a workflow with more ways through it is
// looked at in part, and the work says so. Of loops inside loops, and of
// sub-workflows that run themselves, a few lines are more steps than anybody waits
// for.
const (
	mostRoutes = 256
	mostSteps  = 50_000
)

// work is how many of mostSteps are left, and whether something was left out.
type work struct {
	left   int
	inPart bool
}

func (w *work) distinct(routes []route) []route {
	var all []route
	seen := map[string]bool{}
	for _, r := range routes {
		print := r.print()
		if seen[print] {
			continue
		}
		if len(all) == mostRoutes {
			w.inPart = true
			break
		}
		seen[print] = true
		all = append(all, r)
	}
	return all
}

// spend takes steps from those that are left, and reports false when there are none.
func (w *work) spend(steps int) bool {
	w.left -= steps
	w.inPart = w.inPart || w.left <= 0
	return w.left > 0
}

// chain goes through one workflow.
type chain struct {
	// workflows are those that a sub-workflow task may name.
	workflows map[string]Definition
	// given are the workspaces in the workflow's input, where it is a
	// sub-workflow; else each expression is an origin of its own.
	given map[string]value
	// stale is told of a stage or a checkout that starts from another commit than its
	// branch is at, and null of one whose workspace is nothing on some route.
	stale func(t task, starts, head string)
	null  func(t task)
	// writes is told of each stage that publishes, and of the branch by its origin.
	writes func(stage task, origin string)
	// parallel is told of two branches of a fork that write one branch.
	parallel func(fork, first, second task)

	// workspaces are the tasks that put out a workspace, readers the stages that
	// publish nothing.
	workspaces, readers []string
	// depth bounds sub-workflows that name each other.
	depth int
	// work is that of the sub-workflows too.
	work *work
}

// run goes through a list of tasks from each of the routes.
func (c *chain) run(tasks []task, routes []route) []route {
	for _, t := range tasks {
		if !c.work.spend(len(routes)) {
			return routes
		}
		var next []route
		if t.kind() == typeFork {
			next = c.fork(t, routes)
		} else {
			for _, r := range routes {
				next = append(next, c.step(t, r)...)
			}
		}
		routes = c.work.distinct(next)
	}
	return routes
}

func (c *chain) step(t task, r route) []route {
	switch {
	case t.isStage():
		c.stage(t, r)
	case t.isPublish():
		c.publish(t, r)
	case t.isCheckout():
		c.reads(t, r)
	}
	switch t.kind() {
	case typeSetVariable:
		for _, name := range sortedKeys(t.input()) {
			v, known := c.eval(t.input()[name], r)
			switch {
			case !known:
				r.values["workflow.variables."+name] = value{origin: unknown}
			case v != nil:
				r.values["workflow.variables."+name] = *v
			}
		}
	case typeSubWorkflow:
		c.subWorkflow(t, r)
	case typeSwitch, typeDecision:
		var after []route
		for _, branch := range t.branches() {
			after = append(after, c.run(branch, []route{r.clone()})...)
		}
		return after
	case typeLoop:
		once := c.run(t.branches()[0], []route{r})
		var again []route
		for _, one := range once {
			again = append(again, one.clone())
		}
		return append(once, c.run(t.branches()[0], again)...)
	case typeTerminate:
		return nil
	}
	return []route{r}
}

// unknown is the origin of what the definition does not tell.
const unknown = ""

// stage follows a task that starts from a workspace and puts it out again.
func (c *chain) stage(t task, r route) {
	v := c.starts(t, r)
	if v == nil || v.origin == unknown {
		return
	}
	if head := r.heads[v.origin]; !t.readOnly() {
		c.writes(t, v.origin)
		if head != v.commit {
			c.stale(t, v.commit, head)
		}
	}
}

// reads follows a checkout: a task that is given files of an older commit computes
// from them, and nothing refuses what it makes.
func (c *chain) reads(t task, r route) {
	v := c.starts(t, r)
	if v == nil || v.origin == unknown || t.input()["as_of"] == true {
		return
	}
	if head := r.heads[v.origin]; head != v.commit {
		c.stale(t, v.commit, head)
	}
}

// starts is the workspace that a task starts from, nil where it is null or not
// known.
func (c *chain) starts(t task, r route) *value {
	key := t.reference() + ".output.workspace"
	v, known := c.eval(t.input()["workspace"], r)
	switch {
	case !known:
		r.values[key] = value{origin: unknown}
		return nil
	case v == nil:
		c.null(t)
		r.values[key] = value{origin: unknown}
		return nil
	}
	r.values[key] = *v
	return v
}

func (c *chain) publish(t task, r route) {
	stage, ok := outputOf(t.input()["staged"], "staged")
	staged, ran := r.values[stage+".output.workspace"]
	if !ok || !ran {
		return // the wiring's fault
	}
	published := value{origin: staged.origin, commit: t.reference()}
	// The second iteration of a loop publishes another commit under the same name.
	if r.heads[staged.origin] == published.commit {
		published.commit += "'"
	}
	if slices.Contains(c.readers, stage) {
		published = staged
	} else {
		r.heads[staged.origin] = published.commit
	}
	r.values[t.reference()+".output.workspace"] = published
}

// fork runs the branches of a fork one after the other, each from where the fork
// found the workspaces.
func (c *chain) fork(t task, routes []route) []route {
	var after []route
	told := map[[2]int]bool{}
	branches := t.branches()
	for _, before := range routes {
		joined := []route{before.clone()}
		writers := map[string]int{}
		for i, branch := range branches {
			ends := c.run(branch, []route{before.clone()})
			if !c.work.spend(len(ends) * len(joined)) {
				return append(after, joined...)
			}
			var next []route
			for _, end := range ends {
				for _, origin := range slices.Sorted(maps.Keys(end.heads)) {
					if origin == unknown || end.heads[origin] == before.heads[origin] {
						continue
					}
					first, written := writers[origin]
					if written && first != i && !told[[2]int{first, i}] {
						told[[2]int{first, i}] = true
						c.parallel(t, writer(branches[first]), writer(branch))
					}
					if !written {
						writers[origin] = i
					}
				}
				for _, one := range joined {
					next = append(next, merge(one, before, end))
				}
			}
			if joined = c.work.distinct(next); len(joined) == 0 {
				break // it ends the workflow
			}
		}
		after = append(after, joined...)
	}
	return after
}

// merge adds to a route what a branch of a fork changed.
func merge(into, before, end route) route {
	all := into.clone()
	for origin, head := range end.heads {
		if head != before.heads[origin] {
			all.heads[origin] = head
		}
	}
	for key, v := range end.values {
		if old, ok := before.values[key]; !ok || old != v {
			all.values[key] = v
		}
	}
	return all
}

// writer is the first task of a branch of a fork that publishes.
func writer(branch []task) task {
	for _, t := range everyTask(branch) {
		if t.isPublish() || t.kind() == typeSubWorkflow {
			return t
		}
	}
	return branch[0]
}

func (c *chain) subWorkflow(t task, r route) {
	parameters, _ := t.value["subWorkflowParam"].(map[string]any)
	inner, ok := c.workflows[text(parameters["name"])]
	if !ok || c.depth > 8 {
		return
	}
	given := map[string]value{}
	for name, input := range t.input() {
		if v, known := c.eval(input, r); known && v != nil {
			given["workflow.input."+name] = *v
		}
	}
	below := newChain(inner.taskList(), c.workflows)
	below.given, below.depth, below.work = given, c.depth+1, c.work
	ends := below.run(inner.taskList(), []route{{heads: maps.Clone(r.heads), values: map[string]value{}}})
	// One way through it is as good as another here: what matters is whether it
	// moved a branch.
	for _, end := range ends {
		for origin, head := range end.heads {
			if head != r.heads[origin] {
				r.heads[origin] = t.reference() + "/" + head
			}
		}
		outputs, _ := inner.value["outputParameters"].(map[string]any)
		for name, output := range outputs {
			if v, known := below.eval(output, end); known && v != nil {
				if v.commit != "" {
					v.commit = t.reference() + "/" + v.commit
				}
				r.values[t.reference()+".output."+name] = *v
			}
		}
	}
}

// eval is the workspace that an expression gives on a route: nil when it is null,
// not known when the definition does not tell.
func (c *chain) eval(of any, r route) (v *value, known bool) {
	if object, ok := of.(map[string]any); ok {
		return c.evalObject(object, r)
	}
	e, ok := expression(of)
	if !ok {
		return nil, false
	}
	if v, ok := r.values[e]; ok {
		if v.origin == unknown {
			return nil, false
		}
		return &v, true
	}
	reference, rest, _ := strings.Cut(e, ".")
	switch {
	case strings.HasPrefix(e, "workflow.input."):
		if v, ok := c.given[e]; ok {
			return &v, true
		}
		return &value{origin: "${" + e + "}"}, true
	case strings.HasPrefix(e, "workflow.variables."), slices.Contains(c.workspaces, reference) && rest == "output.workspace":
		return nil, true
	}
	return nil, false
}

// evalObject is a workspace that is written out.
func (c *chain) evalObject(object map[string]any, r route) (*value, bool) {
	repository, branch, ref := text(object["repository"]), text(object["branch"]), text(object["ref"])
	// Beside the ref of another workspace, the branch is taken to be that one's.
	if whole, ok := strings.CutSuffix(ref, ".ref}"); ok {
		if v, known := c.eval(whole+"}", r); known {
			return v, true
		}
	}
	if e, ok := expression(ref); ok && !strings.HasPrefix(e, "workflow.input.") {
		return nil, false
	}
	if repository == "" || branch == "" {
		return nil, false
	}
	return &value{origin: repository + "/" + branch}, true
}

// newChain is a chain that tells nobody.
func newChain(tasks []task, workflows map[string]Definition) *chain {
	c := &chain{
		workflows: workflows, work: &work{left: mostSteps},
		stale: func(task, string, string) {}, null: func(task) {}, writes: func(task, string) {}, parallel: func(task, task, task) {},
	}
	for _, t := range everyTask(tasks) {
		if t.isStage() || t.isPublish() || t.isCheckout() {
			c.workspaces = append(c.workspaces, t.reference())
		}
		if t.isStage() && t.readOnly() {
			c.readers = append(c.readers, t.reference())
		}
	}
	return c
}

// follow goes through a whole workflow.
func (c *chain) follow(d Definition) {
	c.run(d.taskList(), []route{{heads: map[string]string{}, values: map[string]value{}}})
}
