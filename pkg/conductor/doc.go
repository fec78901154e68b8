// Package conductor is the adapter to a Conductor server: it polls, reads and
// updates tasks and reads and writes definitions, in the words of package txn.
//
// # What is authoritative
//
// Conductor alone says who may act on a task. Nothing it said is kept here from
// one call to the next, except the access token.
//
// # How calls travel
//
// The SDK's API services build the requests the SDK knows. Calls it does not
// know (extendLease), answers that must not pass through its models (definitions
// as raw JSON) and one answer that must not be held in memory (a workflow's
// status) are small requests of this package. All of them go through one
// http.RoundTripper, which adds the token, answers a 401 with one new token and
// one replay, and bounds what is read. Deadlines come from the caller's context
// and from nowhere else: a call without a deadline waits as long as the
// transport does.
//
// # Errors
//
// Every method returns a *txn.ServerError for what the server said or failed to
// say, made in one place (errors.go). The class is [txn.ErrRefused],
// [txn.ErrRetryable] or [txn.ErrUnknownOutcome]; only calls that must not be sent
// twice ever give the last one. A context that ended shows as its own error as
// well: errors.Is(err, context.Canceled).
//
// # Not promised
//
// A 200 to an update does not mean that the update counted: Conductor answers so
// for a task that is already over. Read the task back. A poll whose answer was
// lost may have handed a task to this worker; Conductor hands it out again after
// its response timeout.
package conductor
