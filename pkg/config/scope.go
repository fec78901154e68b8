package config

import (
	"fmt"

	"perago/pkg/txn"
)

// ConductorName is what branch names call a Conductor. Workers and the command line
// read it, and have to agree.
type ConductorName struct {
	ConductorID string `env:"PERAGO_CONDUCTOR_ID" desc:"Name of this Conductor in branch names: the same in all processes of one Conductor, another one for each Conductor that shares the lake. Default: the server's URL"`
}

// Identity is PERAGO_CONDUCTOR_ID, or the server's address.
func (n ConductorName) Identity(serverURL string) txn.ConductorIdentity {
	if n.ConductorID != "" {
		return txn.ConductorIdentity(n.ConductorID)
	}
	return txn.DefaultConductorIdentity(serverURL)
}

// Scope is which branches a process may touch and which of them are its own: the
// part of the configuration that workers and the command line share.
type Scope struct {
	AllowedRepositories []string `env:"PERAGO_ALLOWED_REPOSITORIES,required" desc:"Repositories and branches a task may touch, separated by commas: repo or repo/branch-glob; * allows all"`
	ConductorName
}

// Validate reports every fault at once; each begins with its variable.
func (s Scope) Validate() []error {
	if _, err := txn.ParseAllowList(s.AllowedRepositories); err != nil {
		return []error{fmt.Errorf("PERAGO_ALLOWED_REPOSITORIES is not usable: %w", err)}
	}
	return nil
}

// Allowed is the list of repositories and branches that may be touched. An
// invalid configuration allows none.
func (s Scope) Allowed() txn.AllowList {
	allowed, err := txn.ParseAllowList(s.AllowedRepositories)
	if err != nil {
		return nil
	}
	return allowed
}
