package conductortest

import "net/http"

// Version is a version of Conductor. Where versions differ in what the contract
// looks at, its methods say how.
type Version string

// The contract runs on servers of the first two. Newer is read and not measured:
// what the source of Conductor does after them (conductor-oss/conductor, August
// 2026), of which no package registry has a server.
const (
	V3_15_0 Version = "3.15.0"
	V3_13_8 Version = "3.13.8"
	Newer   Version = "newer"
)

// Versions are all of them.
func Versions() []Version { return []Version{V3_15_0, V3_13_8, Newer} }

// missingTask is the status of a read of a task that does not exist.
func (v Version) missingTask() int {
	if v == Newer {
		return http.StatusNotFound
	}
	return http.StatusNoContent
}

// RerunResetsPolls says that a task that is rerun counts its polls from zero again.
// Otherwise the count goes on.
func (v Version) RerunResetsPolls() bool { return v == Newer }

// updateV2 says that POST /tasks/update-v2 updates a task and answers with the next
// one of its type.
func (v Version) updateV2() bool { return v == Newer }
