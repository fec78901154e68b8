package doctor

import (
	"time"

	"perago/pkg/survey"
	"perago/pkg/txn"
)

// Facts are what was read of an installation.
type Facts struct {
	Settings Settings
	// Conductor and LakeFS are the servers; what a server that did not answer was
	// not asked for is empty below.
	Conductor, LakeFS Server
	Permissions       []Asked
	Definitions       Read[[]Definition]
	Rules             Read[[]Broken]
	// LongestPublish is what one publication takes at most with all its tries, by
	// the registered TaskDefs.
	LongestPublish Read[time.Duration]
	Queues         Read[[]Queue]
	Open           Read[Open]
	// Waiting are the queues whose tasks wait for long.
	Waiting      Read[[]survey.Waiting]
	Targets      []Target
	Repositories []Repository
}

// Read is what was read, or why it could not be.
type Read[T any] struct {
	Value T
	Err   error
}

// Settings are the parts of the environment that are looked at: the workers' as
// far as they are set where doctor runs.
type Settings struct {
	// ConductorID is PERAGO_CONDUCTOR_ID, and Identity what branches are named by.
	ConductorID string
	Identity    txn.ConductorIdentity
	// TTL is PERAGO_SWEEP_TTL.
	TTL time.Duration
	// RequireHardFence is PERAGO_REQUIRE_HARD_FENCE.
	RequireHardFence bool
	// NamedRepositories says that PERAGO_ALLOWED_REPOSITORIES is set and names
	// repositories, so that nobody lists them.
	NamedRepositories bool
}

// Server is one of the two servers.
type Server struct {
	Address string
	// Err is why it does not answer as it should; nil when it does.
	Err   error
	Clock Clock
}

// Clock is how far a server's clock is ahead of the one here (behind when it is
// negative), known but for an error. Its zero value is a clock that was not seen.
type Clock struct {
	Seen   bool
	Ahead  time.Duration
	Within time.Duration
}

// Asked is a permission that lakeFS was asked for with the key. It may do it
// when Err is nil.
type Asked struct {
	Worker     Worker
	Permission txn.Permission
	Err        error
}

// Definition is a shipped definition and what the server has in its place.
type Definition struct {
	Name    string
	Missing bool
	// Optional is one that only some workflows need.
	Optional bool
	// Differences are the fields that differ.
	Differences []string
}

// Broken is a rule that a registered TaskDef breaks.
type Broken struct {
	Name, What, Do string
}

// Queue is tasks of perago's that wait, and who polled for them.
type Queue struct {
	txn.Queue
	Polls Read[[]txn.LastPoll]
	// Now is what Conductor's clock said.
	Now time.Time
}

// Open are the workflows with perago's tasks that have not ended.
type Open struct {
	Workflows []OpenWorkflow
	// Scheduled are their tasks of perago's that wait for a worker.
	Scheduled []txn.Task
	// More is how many others there are, which were not looked at.
	More int
}

// OpenWorkflow is one of them. A sub-workflow has the root of its workflow: both
// are one writer.
type OpenWorkflow struct {
	ID, Root txn.WorkflowID
	Writes   []Address
}

// Address is a branch of a repository.
type Address struct {
	Repository txn.Repository
	Branch     txn.Branch
}

func (a Address) String() string { return "lakefs://" + string(a.Repository) + "/" + string(a.Branch) }

// Target is a branch that is published to.
type Target struct {
	Address
	Head        Read[txn.CommitID]
	Fence       Read[Fence]
	Protecting  Read[[]string]
	Uncommitted Read[string]
	Retention   Read[Retention]
}

// Fence is the hard fence of a branch.
type Fence struct {
	// Found says what is wrong with its action file, and Mend what to do; empty when
	// it is the known one.
	Found, Mend string
	// Held says that lakeFS has run it for a publication of the branch.
	Held bool
	// Verified says that it was proven with probe merges, Fault why it could not be.
	Verified bool
	Fault    error
}

// Retention is how long lakeFS's garbage collection keeps data of the branch and
// of deleted branches; 0 is for ever.
type Retention struct {
	OnBranch, Deleted time.Duration
}

// Repository is one that targets are in.
type Repository struct {
	Name     txn.Repository
	ReadOnly Read[bool]
	// Protecting are the patterns of branch protection rules that match staging
	// branches.
	Protecting Read[[]string]
	Branches   Read[[]Branch]
}

// Branch is a hidden branch of perago's.
type Branch struct {
	Name txn.Branch
	// Age is since it was made, by its name; 0 when the name does not say.
	Age time.Duration
	// Own is one of this Conductor's.
	Own bool
	// Status is its workflow's; empty for one that this Conductor does not know, or
	// that was not asked for.
	Status Read[txn.WorkflowStatus]
}
