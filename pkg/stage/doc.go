// Package stage is Try: it makes a step's files into one commit on a staging
// branch of their own, cut from the step's input ref. Readers of the target see
// nothing of it.
//
// Conductor says who may act: the attempt fence is asked before anything is
// created, again after the scan and hashing, which may take minutes, and again
// after the commit. A stale attempt stops without a word to either server. The
// branch is execution-scoped: two executions never write the same one, so an
// upload may be repeated and a leftover is never reused. Stage deletes no branch,
// not even its own; that is cleanup's.
//
// The result is exact: the tree of the staged commit is the input ref's tree with
// the prefix replaced by the directory's files, and nothing else touched.
package stage
