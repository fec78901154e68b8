package cleanup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"perago/pkg/txn"
)

const (
	// sweepWorkflows is how many workflows a sweep decides about at once.
	sweepWorkflows = 4
	// sweepUnknown is the most branches of unknown workflows that one sweep holds
	// back until it knows whether this Conductor can be believed; the next sweep
	// goes on.
	sweepUnknown = 10_000
)

// Sweep says what one sweep goes over.
type Sweep struct {
	// Repository is the only one; empty for every one that is allowed.
	Repository txn.Repository
	// Branch is the only one; empty for every branch of this Conductor's.
	Branch txn.Branch
	// DryRun decides and deletes nothing.
	DryRun bool
}

// Swept counts what became of the branches that a sweep saw.
type Swept struct {
	Deleted, Kept, Failed int
	// WouldDelete is a dry run's.
	WouldDelete int
	// Orphaned are those of Kept and Failed that no workflow that runs needs and
	// that are older than the TTL, or whose name does not tell.
	Orphaned int
	// Unknown counts what stays because Conductor does not know its workflow, and
	// what nothing else will remove: PERAGO_UNKNOWN_TTL is off, or Conductor knew no
	// workflow at all in the sweep.
	Unknown int
}

// Sweep goes over the branches that carry this Conductor's identity and deletes
// those that cleanup would delete of workflows that have ended, with or without a
// cleanup of their own: a terminated workflow starts none. Several at once are
// harmless. The error is of listings that failed; what failed for one branch is
// counted and told.
//
// Conductor's word that it does not know a workflow counts only in a sweep in
// which it knew another one that a branch names: the wrong Conductor knows none.
func (c *Cleaner) Sweep(ctx context.Context, what Sweep) (Swept, error) {
	s := &sweep{Cleaner: c, Sweep: what}
	repositories, err := s.repositories(ctx)
	if err != nil {
		return s.swept, err
	}
	var faults []error
	for _, repository := range repositories {
		if err := s.repository(ctx, repository); err != nil {
			faults = append(faults, fmt.Errorf("sweep %s: %w", repository, err))
		}
		if ctx.Err() != nil {
			return s.swept, context.Cause(ctx)
		}
	}
	s.unknownWorkflows(ctx)
	if ctx.Err() != nil {
		return s.swept, context.Cause(ctx)
	}
	return s.swept, errors.Join(faults...)
}

type sweep struct {
	*Cleaner
	Sweep

	mu    sync.Mutex
	swept Swept
	// believed says that Conductor knew one of the workflows.
	believed bool
	// unknown are old branches whose workflow Conductor did not know.
	unknown []unknownBranch
}

type unknownBranch struct {
	repository txn.Repository
	branch     txn.BranchHead
	workflow   txn.WorkflowID
}

func (s *sweep) repositories(ctx context.Context) ([]txn.Repository, error) {
	if s.Repository != "" {
		if !s.Allowed.AllowsRepository(s.Repository) {
			return nil, fmt.Errorf("repository %s is not in PERAGO_ALLOWED_REPOSITORIES", s.Repository)
		}
		return []txn.Repository{s.Repository}, nil
	}
	named, all := s.Allowed.Repositories()
	if !all {
		return named, nil
	}
	listed, err := s.Lake.Repositories(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the repositories: %w", err)
	}
	return listed, nil
}

func (s *sweep) repository(ctx context.Context, repository txn.Repository) error {
	prefix := txn.ConductorBranches(s.Identity)
	if s.Branch != "" {
		if !strings.HasPrefix(string(s.Branch), prefix) {
			return fmt.Errorf("%s is not a staging branch of this Conductor (they begin with %s); --force deletes a branch by its name alone", s.Branch, prefix)
		}
		prefix = string(s.Branch)
	}
	for page, err := range s.Lake.BranchPages(ctx, repository, prefix) {
		if err != nil {
			return fmt.Errorf("list the staging branches: %w", err)
		}
		if s.Branch != "" {
			page = slices.DeleteFunc(page, func(b txn.BranchHead) bool { return b.Name != s.Branch })
		}
		group, within := errgroup.WithContext(ctx)
		group.SetLimit(sweepWorkflows)
		for branches := range byWorkflow(page) {
			group.Go(func() error {
				s.workflow(within, repository, branches)
				return within.Err()
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		if s.Events.Progress != nil {
			s.Events.Progress(s.swept)
		}
	}
	return nil
}

// byWorkflow cuts a page, which is in order of the names, where the workflow
// changes.
func byWorkflow(page []txn.BranchHead) iter.Seq[[]txn.BranchHead] {
	workflowOf := func(branch txn.BranchHead) string {
		if name, err := txn.ParseStagingName(branch.Name); err == nil {
			return name.Workflow
		}
		return ""
	}
	return func(yield func([]txn.BranchHead) bool) {
		for len(page) > 0 {
			n := 1
			for n < len(page) && workflowOf(page[n]) == workflowOf(page[0]) {
				n++
			}
			if !yield(page[:n]) {
				return
			}
			page = page[n:]
		}
	}
}

// workflow decides about branches of one workflow.
func (s *sweep) workflow(ctx context.Context, repository txn.Repository, branches []txn.BranchHead) {
	j := &judge{Cleaner: s.Cleaner}
	all := func(state State, reason string) {
		for _, branch := range branches {
			s.tell(ctx, j, Decided{Repository: repository, Branch: branch.Name, State: state, Reason: reason})
		}
	}
	name, err := txn.ParseStagingName(branches[0].Name)
	if err != nil {
		all(StateKept, "its name is not one that perago gives")
		return
	}
	id, ok := name.WorkflowID()
	if !ok {
		// The name holds a hash of the workflow's id; the commits hold the id.
		if id, ok = s.workflowOf(ctx, repository, name, branches); !ok {
			all(StateKept, "its workflow's id is not in its name, and no commit on it says it")
			return
		}
	}
	if err := j.read(ctx, id); err != nil {
		j.workflow.ID = id
		all(StateFailed, err.Error())
		return
	}
	if !j.known {
		s.unknownWorkflow(ctx, j, repository, branches)
		return
	}
	s.mu.Lock()
	s.believed = true
	s.mu.Unlock()
	if !j.workflow.Status.Terminal() {
		for _, branch := range branches {
			s.tell(ctx, j, Decided{Repository: repository, Branch: branch.Name, State: StateKept, Reason: "its workflow is " + string(j.workflow.Status), Running: true})
		}
		return
	}
	deleted := 0
	for _, branch := range branches {
		if s.one(ctx, j, repository, branch) {
			deleted++
		}
	}
	if deleted == 0 {
		return // the next sweep comes again
	}
	found, err := j.unreported(ctx, repository, "")
	for _, one := range found {
		j.tellUnreported(repository, one)
	}
	if err != nil {
		s.tell(ctx, j, Decided{Repository: repository, State: StateFailed, Reason: fmt.Sprintf("look for late landings: %v", err)})
	}
}

// one decides about one branch and reports whether it was deleted.
func (s *sweep) one(ctx context.Context, j *judge, repository txn.Repository, branch txn.BranchHead) bool {
	judged, err := j.decide(ctx, repository, branch)
	switch {
	case err != nil:
		s.tell(ctx, j, Decided{Repository: repository, Branch: branch.Name, State: StateFailed, Reason: err.Error()})
		return false
	case !judged.Delete:
		s.tell(ctx, j, Decided{Repository: repository, Branch: branch.Name, State: StateKept, Reason: judged.Reason})
		return false
	case s.DryRun:
		s.tell(ctx, j, Decided{Repository: repository, Branch: branch.Name, State: StateWouldDelete, Reason: judged.Reason})
		return false
	}
	if err := j.delete(ctx, repository, branch.Name, judged.Reason); err != nil {
		s.tell(ctx, j, Decided{Repository: repository, Branch: branch.Name, State: StateFailed, Reason: err.Error()})
		return false
	}
	s.count(StateDeleted)
	return true
}

// unknownWorkflow keeps branches of a workflow that Conductor does not know; the
// old ones are held back for the end of the sweep.
func (s *sweep) unknownWorkflow(ctx context.Context, j *judge, repository txn.Repository, branches []txn.BranchHead) {
	for _, branch := range branches {
		name, err := txn.ParseStagingName(branch.Name)
		reason := fmt.Sprintf("its workflow is unknown to this Conductor; kept until it is %s old", s.TTL)
		if err == nil && s.Now().Sub(name.Execution.Time()) >= s.TTL {
			s.mu.Lock()
			held := len(s.unknown) < sweepUnknown
			if held {
				s.unknown = append(s.unknown, unknownBranch{repository, branch, j.workflow.ID})
			}
			s.mu.Unlock()
			if held {
				continue
			}
			reason = fmt.Sprintf("its workflow is unknown to this Conductor, and so are those of %d branches before it; the next sweep goes on", sweepUnknown)
		}
		s.tell(ctx, j, Decided{Repository: repository, Branch: branch.Name, State: StateKept, Reason: reason})
	}
}

// unknownWorkflows decides about the branches that were held back.
func (s *sweep) unknownWorkflows(ctx context.Context) {
	var group errgroup.Group
	group.SetLimit(sweepWorkflows)
	for _, held := range s.unknown {
		j := &judge{Cleaner: s.Cleaner, workflow: txn.Workflow{ID: held.workflow}}
		name, err := txn.ParseStagingName(held.branch.Name)
		if !s.believed && (err != nil || s.UnknownTTL == 0 || s.Now().Sub(name.Execution.Time()) < s.UnknownTTL) {
			s.swept.Unknown++
			s.tell(ctx, j, Decided{Repository: held.repository, Branch: held.branch.Name, State: StateKept,
				Reason: "its workflow is unknown to this Conductor, and so are those of all other branches; check CONDUCTOR_SERVER_URL, or delete it by name (perago sweep --branch NAME --force)"})
			continue
		}
		group.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			// It was asked a while ago.
			if err := j.read(ctx, held.workflow); err != nil {
				s.tell(ctx, j, Decided{Repository: held.repository, Branch: held.branch.Name, State: StateFailed, Reason: err.Error()})
				return nil
			}
			s.one(ctx, j, held.repository, held.branch)
			return nil
		})
	}
	_ = group.Wait() // none of them fails
}

// workflowOf is the id of the workflow that a name holds only the hash of.
func (s *sweep) workflowOf(ctx context.Context, repository txn.Repository, name txn.StagingName, branches []txn.BranchHead) (txn.WorkflowID, bool) {
	for _, branch := range branches {
		commit, err := s.Lake.Commit(ctx, repository, branch.Head)
		if err != nil {
			continue
		}
		if record, err := txn.ParseRecord(commit.Metadata); err == nil && name.NamesWorkflow(record.Workflow) {
			return record.Workflow, true
		}
	}
	return "", false
}

// tell counts and tells what became of a branch. What failed because the sweep
// is being stopped did not fail.
func (s *sweep) tell(ctx context.Context, j *judge, decided Decided) {
	if ctx.Err() != nil && decided.State == StateFailed {
		return
	}
	s.count(decided.State)
	if s.orphaned(decided) {
		s.mu.Lock()
		s.swept.Orphaned++
		s.mu.Unlock()
	}
	j.tell(decided)
}

// orphaned reports whether a branch stays that should be gone.
func (s *sweep) orphaned(d Decided) bool {
	if d.Branch == "" || d.Running || (d.State != StateKept && d.State != StateFailed) {
		return false
	}
	name, err := txn.ParseStagingName(d.Branch)
	return err != nil || s.Now().Sub(name.Execution.Time()) >= s.TTL
}

func (s *sweep) count(state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case StateDeleted:
		s.swept.Deleted++
	case StateKept:
		s.swept.Kept++
	case StateFailed:
		s.swept.Failed++
	case StateWouldDelete:
		s.swept.WouldDelete++
	}
}

// Force deletes one branch by its name, without asking whether anything needs it:
// for names that a sweep keeps because it cannot read them. Only names in the
// namespace of perago's branches are taken.
func (c *Cleaner) Force(ctx context.Context, repository txn.Repository, branch txn.Branch) error {
	if !c.Allowed.AllowsRepository(repository) {
		return fmt.Errorf("repository %s is not in PERAGO_ALLOWED_REPOSITORIES", repository)
	}
	if !strings.HasPrefix(string(branch), txn.BranchNamespace) {
		return fmt.Errorf("%s is not a branch of perago's: their names begin with %s", branch, txn.BranchNamespace)
	}
	if err := c.Lake.DeleteBranch(ctx, repository, branch); err != nil {
		return fmt.Errorf("delete branch %s of %s: %w", branch, repository, err)
	}
	return nil
}
