// Package lakefstest is what tests need of lakeFS: a server in memory
// (Server), the contract that it and the real server are both held to
// (Contract), repositories for one test (NewRepository), and the invariant
// checker in which every test on a repository ends (Check).
//
// The memory server does what the real one was seen to do and nothing else:
// what no test and no use case needs, it answers with 501. Whoever needs more of
// it adds a line to the contract first, sees it pass on the real server, and
// lets the memory server follow.
package lakefstest
