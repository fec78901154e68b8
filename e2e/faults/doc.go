// Command faults proves by trying that no fault and no crash makes the lake wrong.
// It runs a chain of stage, publish and cleanup on the real servers, with the
// workers' binaries behind fault proxies:
//
//	go run ./e2e/stack/with-stack -- go run ./e2e/faults [-crash] [-seed N] [-sample N] [-only REGEXP]
//
// First the chain runs once as it is, and each request of each worker to each
// server is written down. Then it runs once for each of these requests and each
// fault of package fault, aimed at just that request. With -crash it runs twice for
// each request instead: the worker is killed when it has sent the request and the
// server has not got it, and when the server has answered and the worker does not
// know; then it is started again.
//
// A workflow must end COMPLETED, if need be after Conductor's own retry, with the
// tree that was staged on the branch and published once; or FAILED with what was
// published before on the branch, or in doubt. Whatever happens, the invariants of
// the repository hold, and no branch is left that a sweep does not remove.
//
// The cases are spread over lanes. A lane has a domain, a repository, a Conductor
// identity and three workers of its own, which go on from case to case.
//
// The exit code is 1 on a violation, but also when there were fewer cases than
// there have to be, when a fault never met its request, and when nothing was
// published: then nothing was tested.
package main
