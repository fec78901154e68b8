// Package stack runs the two real servers of the project, Conductor and
// lakeFS, as child processes on free ports of 127.0.0.1 in a temporary folder.
// The demo, the tests and the benchmarks all use it.
//
// Both servers come from package registries and are kept in the user's cache
// directory: lakeFS is built from its Go module (a module of its own, in
// servers/lakefs, so that its dependencies stay out of the product's go.mod),
// Conductor is the boot jar from Maven Central. For tests of what needs an object
// store there is a third one, versitygw, an S3 server, built in the same way
// (servers/s3); RequireOnS3 starts it with a lakeFS of its own.
//
// Test suites do not start servers themselves: the command with-stack starts
// them once, puts their addresses into the environment, and runs the command
// it is given; a test asks for them with Require. RequireOnS3 and StartLakeFS, for
// servers with other settings, are the exceptions.
//
// Conductor keeps what it has in a PostgreSQL of the stack's own, or in a file where
// that is asked for: what it has survives its restart. 3.15.0 has neither; it keeps
// everything in memory, and a restart of it forgets all workflows and definitions.
// lakeFS keeps its data over a restart.
package stack
