package conductortest

import (
	"net/http"
	"slices"
)

// Version is a version of Conductor. Where versions differ in what the contract
// looks at, its methods say how. All of it was measured.
type Version string

// The versions that the contract runs on.
const (
	V3_32_3  Version = "3.32.3"
	V3_21_14 Version = "3.21.14"
	V3_15_0  Version = "3.15.0"
)

// Newest is the version whose manner [New] has.
const Newest = V3_32_3

// Versions are all of them, the newest first.
func Versions() []Version { return []Version{V3_32_3, V3_21_14, V3_15_0} }

// InTheMannerOf is the version in whose manner a server is, which says that it is of
// this version: the newest, where it is none that the contract runs on.
func InTheMannerOf(said string) Version {
	if version := Version(said); slices.Contains(Versions(), version) {
		return version
	}
	return Newest
}

// oss says that it is a release of conductor-oss, which goes on from Netflix's 3.15.
func (v Version) oss() bool { return v != V3_15_0 }

// missingTask is the status of a read of a task that does not exist.
func (v Version) missingTask() int {
	if v == V3_32_3 {
		return http.StatusNotFound
	}
	return http.StatusNoContent
}

// RerunResetsPolls says that a task that is rerun counts its polls from zero again.
// Otherwise the count goes on.
func (v Version) RerunResetsPolls() bool { return v == V3_32_3 }

// updateV2 says that POST /tasks/update-v2 updates a task and answers with the next
// one of its type.
func (v Version) updateV2() bool { return v.oss() }

// ownerEmailRequired says that a definition without the address of its owner is
// refused.
func (v Version) ownerEmailRequired() bool { return v != V3_32_3 }

// ownNotFound says that a path which it does not have is answered in Conductor's own
// form. Otherwise the web framework answers.
func (v Version) ownNotFound() bool { return v.oss() }

// pollIsWoken says that a poll that waits returns a task which comes meanwhile.
func (v Version) pollIsWoken() bool { return v.oss() }

// keepsLogs says that the lines of a task's log can be read.
func (v Version) keepsLogs() bool { return v.oss() }

// dropsIterations says that keepLastN of a loop takes the tasks of earlier iterations
// out of the workflow.
func (v Version) dropsIterations() bool { return v == V3_32_3 }

// permissive says that a workflow goes on behind a permissive task that failed.
func (v Version) permissive() bool { return v.oss() }

// totalTimeout says that totalTimeoutSeconds bounds all attempts of a task together.
func (v Version) totalTimeout() bool { return v == V3_32_3 }
