package lakefs

// operation names a call, so that the retry policy need not guess from a
// request's method what it is for: lakeFS has harmless POSTs and one that
// publishes.
type operation string

const (
	ping             operation = "ping"
	getCommit        operation = "get commit"
	getBranch        operation = "get branch"
	logCommits       operation = "log commits"
	listObjects      operation = "list objects"
	getObject        operation = "get object"
	statObject       operation = "stat object"
	listBranches     operation = "list branches"
	listRepositories operation = "list repositories"
	listRuns         operation = "list action runs"
	listHookRuns     operation = "list hook runs"
	uploadObject     operation = "upload object"
	deleteObjects    operation = "delete objects"
	deleteBranch     operation = "delete branch"
	deleteChosen     operation = "delete branch of a chosen name"
	createBranch     operation = "create branch"
	createCommit     operation = "create commit"
	mergeCommit      operation = "merge"
	createRepository operation = "create repository"
	getProtection    operation = "get branch protection"
	startImport      operation = "start import"
	importStatus     operation = "import status"
	setProtection    operation = "set branch protection"
	getRepository    operation = "get repository"
	diffBranch       operation = "diff branch"
	diffCommits      operation = "diff commits"
	getRetention     operation = "get retention rules"
	askPermission    operation = "ask for a permission"
	getConfig        operation = "get configuration"
	signAddress      operation = "sign address"
	linkAddress      operation = "link address"
)

// once holds the operations that are not idempotent: done twice is not done
// once, so a missing answer is an unknown outcome.
var once = map[operation]bool{
	createBranch: true,
	// Another person may have made a branch of the same name in between.
	deleteChosen:     true,
	createCommit:     true,
	mergeCommit:      true,
	createRepository: true,
	startImport:      true,
	// Against a version: done again, it is refused.
	setProtection: true,
}

// repeated is the retry policy: what the client may send again by itself.
//
// An upload may be repeated because a staging branch is written by one
// execution only, and the second upload of a path replaces the first. Ping is
// not here: it asks how things are now.
var repeated = map[operation]bool{
	getCommit:        true,
	getBranch:        true,
	logCommits:       true,
	listObjects:      true,
	getObject:        true,
	statObject:       true,
	listBranches:     true,
	listRepositories: true,
	listRuns:         true,
	listHookRuns:     true,
	getProtection:    true,
	getRepository:    true,
	diffBranch:       true,
	diffCommits:      true,
	getRetention:     true,
	importStatus:     true,
	uploadObject:     true,
	getConfig:        true,
	signAddress:      true,
	linkAddress:      true,
	deleteObjects:    true,
	deleteBranch:     true,
}
