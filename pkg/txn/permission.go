package txn

// Permission is one action on one thing in a lakeFS, in the words of its
// policies.
type Permission struct {
	// Action is such as fs:CreateBranch.
	Action string
	// Repository is empty for what is of the whole server.
	Repository Repository
	// Branch and Path say what the action is on: a branch, or an object by its
	// path; neither is the repository itself.
	Branch Branch
	Path   string
	// Storage is the address in the object store that an import reads.
	Storage string
}
