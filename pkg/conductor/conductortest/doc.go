// Package conductortest is Conductor for tests: a memory server as an
// http.Handler, the contract that both it and the real server are held to, and
// an operator's hand on either.
//
// The memory server does what the real one was seen to do (Conductor 3.15.0, and
// 3.13.8 on request; of newer ones what their source says, see [Version]) as far as
// a row of [Contract] holds it, and no more: SIMPLE tasks one after the
// other, retries, response timeouts, domains, optional tasks, failure workflows,
// and what operators do to workflows. It knows no other task type and no list of
// domains, and refuses a definition that asks for one, so that a test cannot rely
// on what nobody has compared. Total and poll timeouts of a TaskDef are stored,
// shown and never acted on.
//
// In one respect it is better than the real server: a timeout is never late. The
// real one looks when its sweeper gets round to it.
//
// All its time comes from one clock and the standard timers, so in a
// testing/synctest bubble it is virtual.
package conductortest
