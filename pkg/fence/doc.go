// Package fence installs, proves and removes the hard fence: a lakeFS action
// whose pre-merge hook refuses every confirm commit whose only parent is not its
// expected head.
//
// What is authoritative: the action file in the tree of the merged source commit
// says what should hold, lakeFS's action runs say what held. This package looks
// at the file in the target's head, and proves with two merges on a branch of its
// own that the server runs it.
//
//	no file, or another one --Install--> the known file --Remove--> no file
//	                                       |  Verify: one merge refused, one accepted
//
// lakeFS reads hooks from the source commit of a merge. So the fence holds for
// what is staged from a head that carries the file, and not for what was staged
// before. Install and Remove move the head of the branch.
//
// Not promised: the fence stops nobody who may write the action file, nothing
// that reaches the branch otherwise than by a merge, and no hard reset, which makes
// the old head current again and with it every merge that expected it.
package fence
