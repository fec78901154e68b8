// Package lakefs is the adapter to a lakeFS server and the only importer of its
// generated client. It speaks in the words of package txn and decides nothing.
//
// What is authoritative: the server. Nothing is remembered between two calls,
// except, for minutes, which way uploads go.
//
// # Errors
//
// One place (errors.go) turns an answer, or its absence, into a
// *txn.ServerError with one of three classes. Callers ask errors.Is:
//
//   - txn.ErrRefused: lakeFS itself said no and did nothing. A refusal is
//     believed only in lakeFS's own words (a JSON body with a message), because
//     a 404 page of a proxy says nothing about a commit.
//   - txn.ErrRetryable: the call did nothing, or may be repeated without harm.
//     Every failure of a call that is idempotent, and every call that was never
//     sent (connection refused, the context ended before).
//   - txn.ErrUnknownOutcome: a call that is not idempotent (create a branch, a
//     commit, a merge, a repository) was sent, and the answer is missing or does
//     not say what happened. It is settled by reading, never by repeating.
//
// # Repeats
//
// The client repeats by itself only the operations that the policy in operation.go
// names. For the others exactly one HTTP request leaves the process, whatever
// happens: no retry, no redirect, no replay by net/http.
//
// # The object store
//
// With a Presigned client uploads go to the object store, by URLs that lakeFS
// signs. The store decides nothing: what it holds is compared with what was sent,
// and where it cannot be used the upload goes through lakeFS.
//
// # Clocks
//
// Every call is bounded by its context, from before it is sent until its body
// is read, waits between tries included. There is no timeout of the client's
// own: how long a merge may take is the caller's budget.
package lakefs
