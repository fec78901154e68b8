// Package worker runs tasks for a Conductor server: it polls, bounds and fences
// them, keeps their leases, reports their ends and stops in an orderly way. It
// also is the half of a worker process that all binaries share (Program, Run,
// Main). It knows no lakeFS and imports no adapter: what it needs of Conductor
// is the port Conductor in this package.
//
// What is authoritative: Conductor alone says who may act. The runtime keeps no
// task or workflow status from one decision to the next; it only remembers that
// an attempt was found stale, because that never becomes untrue.
//
//	poll ──► attempt ──► handler ──► fence ──► update ──► read back
//	 │          │           │          └ stale: silence
//	 │          │           └ heartbeat: task check, then extendLease;
//	 │          │             lost: the handler's context is cancelled
//	 │          └ unsound TaskDef: terminal
//	 └ stopping: handed back
//
// What each clock bounds. A lease starts when the poll was sent, on the
// monotonic clock, and again whenever an accepted extendLease was sent; it ends
// after the TaskDef's responseTimeoutSeconds, or when timeoutSeconds have passed
// since the poll. Deadlines save work; they are no safety. A final update is
// tried until the lease's end and the completion time beyond it. On shutdown
// running tasks have PERAGO_SHUTDOWN_GRACE, then their contexts are cancelled and
// finalTime is left for their reports.
//
// When nothing is polled. A type whose TaskDef is missing or unsound is not
// polled, and nothing is polled while a Check fails: a worker that cannot do its
// work would otherwise take tasks away from those that can and fail every one. A
// fleet that is down delays, it does not fail.
//
// What is not promised: one task update can still slip between a passed fence
// and Conductor. It costs an attempt, never data.
package worker
