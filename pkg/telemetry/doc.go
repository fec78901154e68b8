// Package telemetry is what a worker process shows of itself: structured logs
// with fixed keys, metrics on a registry of their own, and the health listener.
//
// It knows no server, no task and no decision. Nothing in it is package state:
// each process, and each test, makes its own registry and logger.
package telemetry
