// Package config reads a process's configuration from its environment, says which
// branches that process may touch, and names its version and its executions. The
// workers and the command line share it.
//
// A configuration is a struct with the tags env and desc. It stands in the package
// that it configures.
package config
