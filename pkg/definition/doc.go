// Package definition handles Conductor's task and workflow definitions as raw
// JSON: it loads them, tells one kind from the other, compares them with what a
// server has, registers what differs, and holds them to perago's rules (Lint). To
// find which commit a step starts from, Lint goes through a workflow as Conductor
// would; what a definition does not tell is not held against it.
//
// Insert changes a workflow in its text (tree.go), for the same reason.
//
// A definition is never decoded into a model and encoded again. Conductor has
// more fields than any client knows, and one that is dropped on the way would be
// a change nobody asked for: what is sent is, byte for byte, what the file holds.
//
// What a server gives back is not what it was sent: it leaves out what is empty,
// fills in its defaults and adds fields of its own. Two definitions are the same
// when they differ in nothing else (compare.go holds the defaults, as seen on
// Conductor 3.15.0).
package definition
