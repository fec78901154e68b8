// Package e2e tests the built binaries against the real servers: what a user of
// the three workers sees, from a workflow's input to the files of a branch.
//
// The servers are shared by all tests. Each test has its own repository, task
// domain, Conductor identity and workspace root, because two fleets on one queue
// steal each other's tasks.
package e2e
