// Package fault stands between a worker and a server and does to their requests
// what a test says: it holds the n-th request of a kind until told, and then
// passes, drops or answers it. It keeps a log of what went through.
//
// A test stops a worker at a point by holding the request that the worker sends
// there: no sleeps, and no hooks in the product.
package fault
