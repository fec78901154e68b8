package explain

import (
	"slices"
	"time"

	"perago/pkg/txn"
)

// Facts are what was read of one workflow and of the branches that it publishes
// to.
type Facts struct {
	Workflow txn.Workflow
	// Identity is what branch names call this Conductor.
	Identity txn.ConductorIdentity
	Targets  []Target
	// Branches are the workflow's staging and source branches.
	Branches []Branch
	// Staged are the commits that its stages put out and lakeFS still has, Gone
	// those that it has no more.
	Staged []txn.Commit
	Gone   []txn.CommitID
	// Adoptions say what the heads hold of the publications in Publications.
	Adoptions []txn.AdoptionFacts
	// Now is the time, to compare with Conductor's.
	Now time.Time
	// Queues are where the tasks of Waiting wait.
	Queues []Queue
	// Subs are the workflow's sub-workflows, in order.
	Subs []Facts
	// Problems are what could not be read: what is said is then less.
	Problems []string
}

// Target is a branch that the workflow publishes to.
type Target struct {
	Repository txn.Repository
	Branch     txn.Branch
	Head       txn.CommitID
	// Ranges are the commits above each input ref, as a publish would read them.
	Ranges map[txn.CommitID]Range
}

// Range is the first-parent commits of a target above an input ref, newest first.
type Range struct {
	Commits []txn.Commit
	// Reached says that they end at the input ref.
	Reached bool
}

// Branch is one of the workflow's hidden branches.
type Branch struct {
	Repository txn.Repository
	Name       txn.Branch
	// Head is the commit it points at.
	Head txn.Commit
}

// Input is where one of the workflow's steps starts, from a task of perago's.
type Input struct {
	Repository txn.Repository
	Branch     txn.Branch
	Ref        txn.CommitID
}

// Inputs are what has to be read for a workflow, each once.
func Inputs(workflow txn.Workflow) []Input {
	var all []Input
	for _, task := range workflow.Tasks {
		if !task.Type.IsStage() && !task.Type.IsPublish() {
			continue
		}
		workspace, _ := txn.WorkspaceOf(task) // what cannot be read is empty
		input := Input{workspace.Repository, workspace.Branch, workspace.Ref}
		if _, err := txn.ParseCommitID(string(workspace.Ref)); err != nil || workspace.Repository == "" || workspace.Branch == "" || slices.Contains(all, input) {
			continue
		}
		all = append(all, input)
	}
	return all
}

// StagedBy is what the completed stage tasks of a workflow put out, in order.
func StagedBy(workflow txn.Workflow) []txn.Staged {
	var all []txn.Staged
	for _, task := range workflow.Tasks {
		if staged := stagedBy(task); task.Type.IsStage() && staged != nil {
			all = append(all, *staged)
		}
	}
	return all
}

// Landed is a publication of a step, with the commits from the target's head down
// to it.
type Landed struct {
	Step txn.Step
	Down []txn.Commit
}

// Publications are the newest publication of each step on its target, and the one
// that its publish task reported. What the head holds of each has to be read
// (Facts.Adoptions).
func Publications(f Facts) []Landed {
	var all []Landed
	for _, tries := range stepsOf(f, new([]Attempt)) {
		s := find(f, tries)
		newest := true
		for i, commit := range s.over.Commits {
			if owns := s.step.Owns(commit); owns && newest || commit.ID == s.reported.Commit {
				all = append(all, Landed{Step: s.step, Down: s.over.Commits[:i+1]})
				newest = newest && !owns
			}
		}
	}
	return all
}

// taken says that somebody took a publication back since; known says that it was
// read.
func (f Facts) taken(step txn.Step, commit txn.CommitID) (err error, known bool) {
	for _, adoption := range f.Adoptions {
		if adoption.Published.ID == commit && adoption.Step == step {
			return txn.CheckAdoption(adoption), true
		}
	}
	return nil, false
}

func (f Facts) target(repository txn.Repository, branch txn.Branch) (Target, bool) {
	for _, target := range f.Targets {
		if target.Repository == repository && target.Branch == branch {
			return target, true
		}
	}
	return Target{}, false
}
