package lakefstest

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Shopify/go-lua"
	"github.com/treeverse/lakefs/pkg/actions/lua/hook"
	"github.com/treeverse/lakefs/pkg/actions/lua/util"
	"gopkg.in/yaml.v3"
)

// actionsFolder is where a tree holds its action files.
const actionsFolder = "_lakefs_actions/"

const preMerge = "pre-merge"

// action is an action file. The memory server runs the Lua hooks of the event
// pre-merge, in lakeFS's own interpreter; a file with another event or another
// kind of hook is not run and not passed over either.
type action struct {
	Name  string `yaml:"name"`
	On    map[string]*actionOn
	Hooks []actionHook

	file []byte
}

type actionOn struct{ Branches []string }

type actionHook struct {
	ID         string `yaml:"id"`
	Type       string
	If         string
	Properties map[string]any
}

var (
	actionName = regexp.MustCompile(`^\w[\w\-. ]+$`)
	hookID     = regexp.MustCompile(`^[_a-zA-Z][\-_a-zA-Z0-9]{1,255}$`)
)

// actionsOf reads the action files of a tree. One that is no action fails
// whatever would have looked at it.
func actionsOf(t *tree) ([]action, *refuse) {
	var all []action
	for _, p := range t.paths {
		if !strings.HasPrefix(p, actionsFolder) {
			continue
		}
		var a action
		if err := yaml.Unmarshal(t.entries[p].data, &a); err != nil {
			return nil, refusef(http.StatusInternalServerError, "1 error occurred:\n\t* parsing file %s: %v\n\n", p, err)
		}
		bad := func(what string) ([]action, *refuse) {
			return nil, refusef(http.StatusInternalServerError, "1 error occurred:\n\t* parsing file %s: %s: invalid action\n\n", p, what)
		}
		switch {
		case !actionName.MatchString(a.Name):
			return bad("'name' is invalid")
		case len(a.On) == 0:
			return bad("'on' is required")
		case slices.ContainsFunc(all, func(other action) bool { return other.Name == a.Name }):
			return nil, refusef(http.StatusInternalServerError, "action name '%s' already loaded: invalid action", a.Name)
		}
		for i, h := range a.Hooks {
			if !hookID.MatchString(h.ID) {
				return bad(fmt.Sprintf("hook[%d] missing ID", i))
			}
			if h.Type != "lua" || h.If != "" {
				return nil, refusef(http.StatusNotImplemented, "the memory server has nothing to run %s with", p)
			}
		}
		for event := range a.On {
			if event != preMerge {
				return nil, refusef(http.StatusNotImplemented, "the memory server runs no hook of the event %s, which is in %s", event, p)
			}
		}
		a.file = t.entries[p].data
		all = append(all, a)
	}
	return all, nil
}

func (a action) matches(branch string) bool {
	on := a.On[preMerge]
	return on == nil || len(on.Branches) == 0 || slices.ContainsFunc(on.Branches, func(pattern string) bool {
		ok, _ := path.Match(pattern, branch)
		return ok
	})
}

// actionRun is what lakeFS keeps of the hooks that ran for one event.
type actionRun struct {
	id, branch, commit string
	hooks              []hookRun
}

// hookRun is also its JSON form, but for its times.
type hookRun struct {
	ID     string `json:"hook_run_id"`
	Action string `json:"action"`
	Hook   string `json:"hook_id"`
	Status string `json:"status"`
}

// runHooks runs the pre-merge hooks of a merge's source commit. What they said
// is kept under the commit that would land, also when that refuses it.
func (s *Server) runHooks(r *repository, branch string, source, c *commit) *refuse {
	t := r.trees[source.MetaRangeID]
	if t == nil || s.ActionsOff {
		return nil
	}
	actions, refused := actionsOf(t)
	if refused != nil {
		return refused
	}
	actions = slices.DeleteFunc(actions, func(a action) bool { return !a.matches(branch) })
	if len(actions) == 0 {
		return nil
	}
	// Newer runs come first in a listing, so their ids are smaller.
	s.runs++
	run := &actionRun{id: fmt.Sprintf("%019d", math.MaxInt64-s.runs), branch: branch, commit: c.ID}
	r.runs = append(r.runs, run)
	var failures []string
	for i, a := range actions {
		failed := false
		for j, h := range a.Hooks {
			result := hookRun{ID: fmt.Sprintf("%04d_%04d", i, j), Action: a.Name, Hook: h.ID, Status: "completed"}
			if failed {
				result.Status = "skipped"
			} else if err := s.runHook(a, h, run.id, r, PreMerge{
				Repository: r.id, Branch: branch, Source: source.ID, Commit: c.ID, Parents: c.Parents, Metadata: c.Metadata,
			}, c); err != nil {
				failed, result.Status = true, "failed"
				failures = append(failures, fmt.Sprintf("\t* hook run id '%s' failed on action '%s' hook '%s': action failed: %v\n", result.ID, a.Name, h.ID, err))
			}
			run.hooks = append(run.hooks, result)
		}
	}
	if len(failures) > 0 {
		noun := "error"
		if len(failures) > 1 {
			noun = "errors"
		}
		return refusef(http.StatusPreconditionFailed, "update branch %s: pre-merge hook aborted, run id '%s': %d %s occurred:\n%s\n",
			branch, run.id, len(failures), noun, strings.Join(failures, ""))
	}
	return nil
}

func (s *Server) runHook(a action, h actionHook, run string, r *repository, merge PreMerge, c *commit) error {
	if s.Hook != nil {
		return s.Hook(a.file, merge)
	}
	script, _ := h.Properties["script"].(string)
	return RunLua(script, map[string]any{
		"action_name": a.Name, "hook_id": h.ID, "run_id": run, "pre_run_id": "", "event_type": preMerge,
		"commit_id": c.ID, "branch_id": merge.Branch, "source_ref": merge.Source, "tag_id": "", "merge_source": merge.Source,
		"repository_id": r.id, "storage_namespace": r.namespace,
		"commit": map[string]any{
			"message": c.Message, "meta_range_id": c.MetaRangeID, "creation_date": unixText(c.CreationDate), "version": 1,
			"metadata": maps.Clone(c.Metadata), "parents": c.Parents,
		},
	})
}

// RunLua runs a hook's script as lakeFS does: in its interpreter, with the
// libraries that reach nothing outside, and with what a hook sees in the global
// variable action. The error is the hook's refusal.
func RunLua(script string, action map[string]any) error {
	l := lua.NewState()
	for _, library := range []lua.RegistryFunction{
		{Name: "_G", Function: lua.BaseOpen},
		{Name: "package", Function: lua.PackageOpen},
		{Name: "table", Function: lua.TableOpen},
		{Name: "string", Function: lua.StringOpen},
		{Name: "bit32", Function: lua.Bit32Open},
		{Name: "math", Function: lua.MathOpen},
		{Name: "debug", Function: lua.DebugOpen},
	} {
		lua.Require(l, library.Name, library.Function, true)
		l.Pop(1)
	}
	// What lakeFS's own base library leaves out.
	for _, name := range []string{"dofile", "loadfile"} {
		l.PushNil()
		l.SetGlobal(name)
	}
	// lakeFS keeps what a hook prints; no test looks at it.
	l.Register("print", func(*lua.State) int { return 0 })
	util.Open(l)
	hook.Open(l)
	util.DeepPush(l, action)
	l.SetGlobal("action")

	l.Global("debug")
	l.Field(-1, "traceback")
	traceback := l.Top()
	if err := lua.LoadBuffer(l, script, "lua", ""); err != nil {
		if text, ok := l.ToString(l.Top()); ok {
			err = fmt.Errorf("%w: %s", err, text)
		}
		return err
	}
	if err := l.ProtectedCall(0, lua.MultipleReturns, traceback); err != nil {
		return hook.Unwrap(err)
	}
	return nil
}

func (s *Server) listRuns(request *http.Request, _ []byte) (answer, *refuse) {
	r, refused := s.repository(request)
	if refused != nil {
		return answer{}, refused
	}
	query := request.URL.Query()
	if query.Get("branch") != "" || query.Get("commit") == "" {
		return answer{}, refusef(http.StatusNotImplemented, "the memory server lists the runs of one commit only")
	}
	runs := map[string]*actionRun{}
	for _, run := range r.runs {
		if run.commit == query.Get("commit") {
			runs[run.id] = run
		}
	}
	p := pageOf(slices.Sorted(maps.Keys(runs)), query)
	var items []any
	for _, id := range p.names {
		run, status := runs[id], "completed"
		if slices.ContainsFunc(run.hooks, func(h hookRun) bool { return h.Status == "failed" }) {
			status = "failed"
		}
		items = append(items, map[string]any{
			"run_id": id, "branch": run.branch, "commit_id": run.commit, "event_type": preMerge, "status": status, "start_time": unixText(0),
		})
	}
	return results(items, p.more, p.last()), nil
}

func (s *Server) listHookRuns(request *http.Request, _ []byte) (answer, *refuse) {
	r, refused := s.repository(request)
	if refused != nil {
		return answer{}, refused
	}
	hooks := map[string]hookRun{}
	for _, run := range r.runs {
		if run.id == request.PathValue("run") {
			for _, h := range run.hooks {
				hooks[h.ID] = h
			}
		}
	}
	p := pageOf(slices.Sorted(maps.Keys(hooks)), request.URL.Query())
	var items []hookRun
	for _, id := range p.names {
		items = append(items, hooks[id])
	}
	return results(items, p.more, p.last()), nil
}

func unixText(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }
