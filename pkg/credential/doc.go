// Package credential holds the key ids and secrets that a process shows to its
// servers, and takes up new ones without a restart.
//
// # Where a value comes from
//
// A value NAME is given as it is, or stands in a file that NAME_FILE names. A
// value that was given stays for the life of the process. A file is read at the
// start, and again only after the server refused what it held: nothing watches
// it, so a file may be written at leisure, and in any way.
//
// # Rotation
//
// [Pair.Renew] is called by whoever was refused with 401. One caller reads the
// files and the others wait for it, each no longer than its own context. When
// they hold another pair, the caller sends its request once more with it, and
// never a third time. That is safe for a request that acts twice when it is sent
// twice: 401 says that the server has not acted. When the files hold what was
// refused, the 401 stands.
//
// A file that is missing, empty or cannot be read changes nothing: the pair that
// was read last stays, whole, and the error names the variable. A pair of which
// one file is new and the other is old is tried, refused, and read again by the
// next request. So whoever rotates makes the new pair, writes both files, and
// deletes the old pair last: then no request fails.
package credential
