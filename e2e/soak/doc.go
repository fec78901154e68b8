// Command soak lets a fleet publish for as long as it is told, while a nemesis
// breaks whatever it can, and then judges every branch:
//
//	go run ./e2e/soak [-duration D] [-seed N] [-store PostgreSQL|Redis] [-memory conductor|both] [-soft] [-blind]
//
// It starts a Conductor with its database, and a lakeFS. Workflows of
// one and of two steps run on branches of their own and, several at once, on one
// branch; their user tasks fail, are slow, and are retried, and no two of their
// attempts make the same files. Somebody else commits in between. Meanwhile the
// nemesis kills workers and starts them again, suspends them past their leases,
// stops them in order, restarts both servers and the database, and arms faults on
// the connections between them; an operator pauses, terminates, retries, reruns and restarts.
//
// At the end every branch is held to the invariants of package lakefstest, and the
// two servers to each other: each publish task that Conductor has shown as
// completed names a commit of its branch with the tree that was staged and the
// files that the user's task had written; and each confirm commit belongs to a task
// that Conductor shows, or that a worker was seen to poll.
//
// It ends with
//
//	soak: N publications, 0 lost, 0 duplicated, 0 foreign overwritten, 0 orphans
//
// and exit code 1 for anything else, when nothing was published, and when a fault
// never met a request: then nothing was tested.
//
// -soft leaves the hard fence out, and all that the nemesis does then is to have
// merges land late, which is what the fence is for: there must be violations. -blind
// shows the publish workers every confirm commit as standing on the head that it
// expected, so that their parent check sees nothing.
package main
