package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"perago/pkg/survey"
	"perago/pkg/txn"
)

// Conductor is what is asked of Conductor; nothing changes it.
type Conductor interface {
	survey.Conductor
	// Ping asks for something cheap that needs the API and the credentials.
	Ping(ctx context.Context) error
	// TaskTypes are the names of all registered task definitions.
	TaskTypes(ctx context.Context) ([]txn.TaskType, error)
	// TaskDefinition reads a registered task definition. txn.ErrNotFound.
	TaskDefinition(ctx context.Context, name txn.TaskType) (txn.TaskDefinition, error)
	// WorkflowStatus reads a workflow's status alone. txn.ErrNotFound.
	WorkflowStatus(ctx context.Context, id txn.WorkflowID) (txn.WorkflowStatus, error)
}

// Lake is what is asked of lakeFS; nothing changes it.
type Lake interface {
	// Ping asks who the key belongs to.
	Ping(ctx context.Context) error
	// Permitted asks whether the key may do something, without doing it:
	// txn.ErrForbidden when it may not.
	Permitted(ctx context.Context, permission txn.Permission) error
	// ReadOnly reports whether no changes of a repository are taken. txn.ErrNotFound.
	ReadOnly(ctx context.Context, repo txn.Repository) (bool, error)
	// Head is the commit a branch points at now. txn.ErrNotFound.
	Head(ctx context.Context, repo txn.Repository, branch txn.Branch) (txn.CommitID, error)
	// Uncommitted is the path of one uncommitted change of a branch; "" is none.
	Uncommitted(ctx context.Context, repo txn.Repository, branch txn.Branch) (string, error)
	// Protecting are the patterns of the branch protection rules that match a branch;
	// others is how many rules it could not be told of.
	Protecting(ctx context.Context, repo txn.Repository, branch txn.Branch) (matching []string, others int, err error)
	// Retention is how long garbage collection keeps what is on a branch and what is
	// on none any more; 0 is for ever.
	Retention(ctx context.Context, repo txn.Repository, branch txn.Branch) (onBranch, deleted time.Duration, err error)
	// Branches lists every branch, hidden ones too, whose name begins so.
	Branches(ctx context.Context, repo txn.Repository, prefix string) ([]txn.BranchHead, error)
}

// Definitions holds what is registered to what is shipped and to the rules.
type Definitions interface {
	// Compare says of each shipped definition what the server has in its place.
	Compare(ctx context.Context) ([]Definition, error)
	// Rules are the rules that the registered TaskDefs of these names break.
	Rules(ctx context.Context, names []txn.TaskType) ([]Broken, error)
}

// Fences looks at the hard fence of a branch whose head is known.
type Fences interface {
	Fence(ctx context.Context, target Address, head txn.CommitID) (Fence, error)
}

// Patient is what Gather reads from.
type Patient struct {
	Conductor   Conductor
	Lake        Lake
	Definitions Definitions
	Fences      Fences
	// ConductorClock and LakeClock say what the servers' answers so far have said of
	// their clocks.
	ConductorClock, LakeClock func() Clock
	// Now is the clock here.
	Now func() time.Time
}

// Request is what to look at.
type Request struct {
	Settings  Settings
	Conductor string
	LakeFS    string
	Targets   []Address
	// Workers are those whose policies the key is held to, and Prefix and Storage
	// what they are filled in with.
	Workers []Worker
	Prefix  string
	Storage string
	// LeftOut are checks that nothing is read for.
	LeftOut []Check
}

// Gather reads the facts. It does not fail: what cannot be read is a fact. When
// ctx ends, the rest cannot be.
func Gather(ctx context.Context, p Patient, r Request) Facts {
	f := Facts{
		Settings:  r.Settings,
		Conductor: Server{Address: r.Conductor, Err: p.Conductor.Ping(ctx)},
		LakeFS:    Server{Address: r.LakeFS, Err: p.Lake.Ping(ctx)},
	}
	f.Conductor.Clock, f.LakeFS.Clock = p.ConductorClock(), p.LakeClock()
	wanted := func(checks ...Check) bool {
		return slices.ContainsFunc(checks, func(c Check) bool { return !slices.Contains(r.LeftOut, c) })
	}
	if f.Conductor.Err == nil {
		f.gatherConductor(ctx, p, wanted)
	}
	if f.LakeFS.Err == nil {
		if wanted(CheckPermissions) && len(r.Targets) > 0 {
			f.gatherPermissions(ctx, p, r)
		}
		f.gatherTargets(ctx, p, r, wanted)
	} else {
		for _, address := range r.Targets {
			f.Targets = append(f.Targets, Target{Address: address})
		}
	}
	return f
}

func (f *Facts) gatherConductor(ctx context.Context, p Patient, wanted func(...Check) bool) {
	if wanted(CheckRegistered, CheckDrift) {
		f.Definitions = read(p.Definitions.Compare(ctx))
	}
	if wanted(CheckBudget, CheckRetention) {
		types, err := p.Conductor.TaskTypes(ctx)
		types = slices.DeleteFunc(types, func(t txn.TaskType) bool { return !survey.Ours(t) })
		if f.Rules.Err, f.LongestPublish.Err = err, err; err == nil {
			f.Rules = read(p.Definitions.Rules(ctx, types))
			f.LongestPublish = read(longestPublish(ctx, p.Conductor, types))
		}
	}
	if wanted(CheckPolled) {
		f.Queues = read(gatherQueues(ctx, p, f.Conductor.Clock))
	}
	if wanted(CheckOneWriter, CheckLost) {
		f.Open = read(gatherOpen(ctx, p.Conductor))
	}
	if wanted(CheckLost) && f.Open.Err == nil {
		clock := f.Conductor.Clock
		f.Waiting = read(survey.Lost(ctx, p.Conductor, f.Open.Value.Scheduled, func() time.Time { return p.Now().Add(clock.Ahead) }))
	}
}

func read[T any](value T, err error) Read[T] { return Read[T]{value, err} }

// longestPublish is the most that the tries of a publish task take, over its
// types. The pauses between them are seconds and are left out.
func longestPublish(ctx context.Context, server Conductor, types []txn.TaskType) (longest time.Duration, err error) {
	for _, name := range types {
		if !name.IsPublish() {
			continue
		}
		definition, err := server.TaskDefinition(ctx, name)
		if err != nil {
			return 0, err
		}
		longest = max(longest, time.Duration(definition.RetryCount+1)*txn.Timeout(definition.ResponseTimeoutSeconds))
	}
	if longest == 0 {
		return 0, errors.New("no publish TaskDef is registered")
	}
	return longest, nil
}

func gatherQueues(ctx context.Context, p Patient, clock Clock) ([]Queue, error) {
	queues, err := p.Conductor.Queues(ctx)
	var all []Queue
	for _, q := range queues {
		if survey.Ours(q.Type) {
			all = append(all, Queue{Queue: q, Polls: read(p.Conductor.LastPolls(ctx, q.Type)), Now: p.Now().Add(clock.Ahead)})
		}
	}
	return all, err
}

func gatherOpen(ctx context.Context, server Conductor) (Open, error) {
	var open Open
	parents := map[txn.WorkflowID]txn.WorkflowID{}
	more, err := survey.Open(ctx, server, func(workflow txn.OpenWorkflow) {
		parents[workflow.ID] = workflow.Parent
		open.Workflows = append(open.Workflows, OpenWorkflow{ID: workflow.ID, Writes: writes(workflow)})
		open.Scheduled = append(open.Scheduled, survey.Scheduled(workflow.Workflow)...)
	})
	if err != nil {
		return Open{}, err
	}
	open.More = more
	for i, w := range open.Workflows {
		open.Workflows[i].Root = rootOf(w.ID, parents)
	}
	return open, nil
}

// rootOf goes up from a sub-workflow. A parent without a step of its own is not
// among the workflows that were read, and is the root all the same.
func rootOf(id txn.WorkflowID, parents map[txn.WorkflowID]txn.WorkflowID) txn.WorkflowID {
	for range len(parents) + 1 {
		parent := parents[id]
		if parent == "" {
			break
		}
		id = parent
	}
	return id
}

// writes are the branches that an open workflow publishes to: those of its steps
// so far, and those of the workspaces it was started with, for the steps to come.
func writes(workflow txn.OpenWorkflow) []Address {
	var all []Address
	add := func(workspace map[string]any) {
		repository, _ := workspace["repository"].(string)
		branch, _ := workspace["branch"].(string)
		address := Address{txn.Repository(repository), txn.Branch(branch)}
		if repository != "" && branch != "" && !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	for _, task := range workflow.Tasks {
		var input struct {
			Workspace map[string]any `json:"workspace"`
			ReadOnly  bool           `json:"read_only"`
		}
		if (task.Type.IsStage() || task.Type.IsPublish()) && json.Unmarshal(task.Input, &input) == nil && !input.ReadOnly {
			add(input.Workspace)
		}
	}
	var input any
	_ = json.Unmarshal(workflow.Input, &input) // nothing, when there is none
	var look func(value any)
	look = func(value any) {
		switch v := value.(type) {
		case []any:
			for _, one := range v {
				look(one)
			}
		case map[string]any:
			if _, ok := v["ref_type"]; ok {
				add(v)
			}
			for _, one := range v {
				look(one)
			}
		}
	}
	look(input)
	slices.SortFunc(all, func(a, b Address) int { return strings.Compare(a.String(), b.String()) })
	return all
}

func (f *Facts) gatherPermissions(ctx context.Context, p Patient, r Request) {
	known := map[txn.Permission]error{}
	for _, worker := range r.Workers {
		for _, target := range r.Targets {
			permissions, err := Permissions(worker, Scope{Repository: target.Repository, Branch: target.Branch, Prefix: r.Prefix, Storage: r.Storage})
			if err != nil {
				f.Permissions = append(f.Permissions, Asked{Worker: worker, Err: err})
				continue
			}
			for _, permission := range permissions {
				asked := Asked{Worker: worker, Permission: permission}
				switch {
				case slices.ContainsFunc(f.Permissions, func(a Asked) bool { return a.Worker == worker && a.Permission == permission }):
					continue
				case permission.Action == "fs:WriteObject" && permission.Branch != "":
					continue // an import needs it, and lakeFS asks for it there
				case permission.Action == "fs:ListRepositories" && f.Settings.NamedRepositories:
					continue // nobody lists them
				}
				answer, ok := known[permission]
				if !ok {
					answer = p.Lake.Permitted(ctx, permission)
					known[permission] = answer
				}
				asked.Err = answer
				f.Permissions = append(f.Permissions, asked)
			}
		}
	}
}

// stagingExample is named as staging branches are.
const stagingExample = txn.Branch(txn.BranchNamespace + "staging-00000000")

func (f *Facts) gatherTargets(ctx context.Context, p Patient, r Request, wanted func(...Check) bool) {
	for _, address := range r.Targets {
		t := Target{Address: address}
		t.Head = read(p.Lake.Head(ctx, address.Repository, address.Branch))
		if t.Head.Err == nil {
			if wanted(CheckFence, CheckFenceHeld) {
				t.Fence = read(p.Fences.Fence(ctx, address, t.Head.Value))
			}
			if wanted(CheckProtected, CheckClean) {
				t.Protecting = protecting(ctx, p.Lake, address.Repository, address.Branch)
			}
			if wanted(CheckClean) {
				t.Uncommitted = read(p.Lake.Uncommitted(ctx, address.Repository, address.Branch))
			}
			if wanted(CheckRetention) {
				onBranch, deleted, err := p.Lake.Retention(ctx, address.Repository, address.Branch)
				t.Retention = read(Retention{onBranch, deleted}, err)
			}
		}
		f.Targets = append(f.Targets, t)
		if slices.ContainsFunc(f.Repositories, func(one Repository) bool { return one.Name == address.Repository }) {
			continue
		}
		one := Repository{Name: address.Repository}
		if wanted(CheckRepository) {
			one.ReadOnly = read(p.Lake.ReadOnly(ctx, address.Repository))
		}
		if wanted(CheckStagingOpen) {
			one.Protecting = protecting(ctx, p.Lake, address.Repository, stagingExample)
		}
		if wanted(CheckOrphans) && f.Conductor.Err == nil {
			one.Branches = read(gatherBranches(ctx, p, r.Settings, address.Repository))
		}
		f.Repositories = append(f.Repositories, one)
	}
}

func protecting(ctx context.Context, lake Lake, repository txn.Repository, branch txn.Branch) Read[[]string] {
	matching, others, err := lake.Protecting(ctx, repository, branch)
	if err == nil && len(matching) == 0 && others > 0 {
		err = errors.New(counted(others, "branch protection rule has a pattern", "branch protection rules have patterns") + " that perago does not read")
	}
	return read(matching, err)
}

// gatherBranches lists the hidden branches, and asks for the workflows of those
// that are old enough to matter.
func gatherBranches(ctx context.Context, p Patient, settings Settings, repository txn.Repository) ([]Branch, error) {
	heads, err := p.Lake.Branches(ctx, repository, txn.BranchNamespace)
	if err != nil {
		return nil, err
	}
	statuses := map[txn.WorkflowID]Read[txn.WorkflowStatus]{}
	var all []Branch
	for _, head := range heads {
		branch := Branch{Name: head.Name, Own: strings.HasPrefix(string(head.Name), txn.ConductorBranches(settings.Identity))}
		name, err := txn.ParseStagingName(head.Name)
		switch {
		case err == nil:
			branch.Age = p.Now().Sub(name.Execution.Time())
		case strings.HasPrefix(string(head.Name), txn.ProbeBranches):
			branch.Age = probeAge(head.Name, p.Now())
		}
		id, named := name.WorkflowID()
		if branch.Own && named && err == nil && branch.Age >= settings.TTL {
			status, ok := statuses[id]
			if !ok {
				status = read(p.Conductor.WorkflowStatus(ctx, id))
				if errors.Is(status.Err, txn.ErrNotFound) {
					status = Read[txn.WorkflowStatus]{}
				}
				statuses[id] = status
			}
			branch.Status = status
		}
		all = append(all, branch)
	}
	return all, nil
}

// probeAge is since a probe branch was made: its name holds an execution id.
func probeAge(name txn.Branch, now time.Time) time.Duration {
	s := strings.TrimPrefix(string(name), txn.ProbeBranches)
	if len(s) != 32 {
		return 0
	}
	id, err := txn.ParseExecutionID(s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:])
	if err != nil {
		return 0
	}
	return now.Sub(id.Time())
}
