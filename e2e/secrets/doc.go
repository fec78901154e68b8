// Package secrets looks for secrets in what a run has written: logs, outputs,
// metrics, traces, pages, whatever lies in a directory. It finds them as they are and
// in the forms in which programs write them, and its hits do not repeat them.
//
// The tests of the package run the real binaries with secrets planted in every
// variable that takes one, on servers that refuse, fail and say again what they were
// asked with, and search everything that was said.
package secrets
