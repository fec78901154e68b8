// Package fault stands between a caller and a server and does to their requests
// what a test says. It is one vocabulary, [All], for every kind of test: a [Wire]
// is the RoundTripper of a client in the test's own process, a [Proxy] stands in
// front of a server for a worker in a process of its own, and behind both is the
// same code.
//
// A fault is aimed at the n-th request of a kind ([Wire.Arm]). Where a test wants
// to do something meanwhile, it holds the request, or the answer to it, and says
// later what becomes of it ([Wire.Hold], [Wire.HoldAnswer]): that stops a worker
// at a point without sleeps and without hooks in the product. A log is kept of
// what went through.
//
// One thing a proxy cannot do: refuse a connection, because it has to accept it
// to see what is asked. There [Refused] is a connection that ends without a word,
// like [Dropped].
package fault
