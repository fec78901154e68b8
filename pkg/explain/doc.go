// Package explain says in words what happened to published data, from facts that
// others have read: the history of a branch (Log), and one workflow (Workflow). It
// decides nothing that anybody acts on by itself; where it says what a retry would
// do, it asks the decision that the retry would ask.
package explain
