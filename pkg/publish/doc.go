// Package publish is Confirm: it makes what a step staged appear in the target
// branch, all at once, by one squash merge of the staged commit by its full id.
//
// What is published is decided anew for each attempt, by txn.DecidePublish, from
// what Conductor and lakeFS say now. A merge is sent at most once for each
// decision, and what landed is read back and compared with what was decided: a
// merge that landed elsewhere is reported as a race and never rolled back. Publish
// deletes no branch; that is cleanup's.
//
// The clocks: the merge has the budget's merge timeout from when it is sent. The
// lease is the worker's.
package publish
