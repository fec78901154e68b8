// Package txn holds the words of the publication protocol and every decision in
// it, as pure functions: values in, values out. It reads no clock, opens no
// file, sends nothing and logs nothing, so each decision can be held by a table
// test whose rows are those of docs/protocol.md.
//
// What is authoritative: Conductor says who may act, lakeFS says what is
// published. Nothing in this package is remembered from one decision to the
// next; a caller reads the facts anew and asks again.
package txn
