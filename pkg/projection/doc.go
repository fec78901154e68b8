// Package projection is a tree of files as a sorted list of entries: the scan of
// a directory, the content of its files, and the difference between such a tree
// and the objects of a lakeFS tree.
//
// A tree is a list, never file contents: a million files cost a million entries,
// whatever their sizes. The order is that of lakeFS's listings, by the bytes of
// the object key, so that two trees are compared in one pass.
//
// The directory belongs to somebody else's process, so nothing about it is
// believed twice. A path is looked at without following links, opened without
// blocking, and what was opened must be what was looked at; a file that is no
// longer the one that was scanned is refused, not read. What a directory holds
// that lakeFS cannot (links, devices, names that are not UTF-8) refuses the
// whole tree: a tree with holes would be published as if it were complete.
//
// What is not promised: that nobody writes a file between the scan and the
// upload. A change of size, modification time or identity is seen and refused; a
// writer who restores all three is not.
package projection
