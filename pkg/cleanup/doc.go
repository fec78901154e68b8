// Package cleanup is Cancel: it deletes the staging branches that nothing can
// need any more. Only cleanup deletes branches; stage and publish never do.
//
// Whether a branch is settled is read from the target branch, never from task
// records, which Conductor's rerun overwrites and its restart removes. Deleting a
// branch neither undoes a publication nor revokes a merge by commit id that is
// under way: a branch is evidence, and a list of what is open.
//
// Cleanup never fails a workflow: what it could not do is in its output, and it
// completes. The one exception is an attempt that is stale or interrupted, which
// says nothing.
package cleanup
