// Package model explores schedules: it runs the use cases and the worker's runtime
// as several actors at once and goes every order of their calls within bounds,
// with faults, on a model of both servers. docs/reliability.md says what it holds
// them to; `make model` is its full form.
//
// A scenario has roles. A role is a program, which is the real code in a goroutine
// (player), or a list of steps, such as an operator's. A program stands still
// before each call to a server. What it does next depends only on what it was
// answered so far, so each series of answers is a node that is found by running the
// code once; from then on the explorer goes through nodes and never runs that code
// again. A state is both servers (world) and a node for each program; it is copied
// where more than one thing may come next, and not gone on from when it was come to
// before with as much left of the bounds.
//
// A call is shared, when its order among the others' matters; local, when nobody
// else can notice, so that only a fault is worth trying; or instant. A crash is a
// fate of calls that write, because anywhere in between it is the same.
//
// Time is that of a testing/synctest bubble: a program's pauses cost nothing. No
// deadline of a program comes near; one that would is noticed, because a program
// that does another thing the second time ends the exploration.
package model
