package txn

import (
	"io"
	"time"
)

// Commit is a lakeFS commit as it was read.
type Commit struct {
	ID        CommitID
	Parents   []CommitID
	MetaRange MetaRangeID
	Message   string
	Metadata  map[string]string
	Created   time.Time
}

// Object is one object of a lakeFS tree.
type Object struct {
	// Path is the whole object key, prefix included.
	Path string
	// Size is in bytes.
	Size int64
	// Checksum is what lakeFS says: 32 hex digits of MD5 for an object that this
	// project uploaded, what the store says of an imported one, and whatever another
	// uploader told it. In another form (with -N behind it) it cannot be compared
	// with a local file.
	Checksum string
}

// BranchHead is a branch and the commit it points at.
type BranchHead struct {
	Name Branch
	Head CommitID
}

// Content is what an upload sends. Open is called once for each try, so that a
// repeated upload starts from the first byte without the content ever being held
// in memory.
type Content struct {
	// Size is in bytes and is sent as Content-Length.
	Size int64
	Open func() (io.ReadCloser, error)
	// Sum is the MD5, in hex, of what the latest opening has given so far. It is
	// asked for after that was sent whole; nil where nobody keeps it.
	Sum func() string
}

// Merge is one squash merge of a commit, by its full id, into a branch.
type Merge struct {
	Repository  Repository
	Source      CommitID
	Destination Branch
	Message     string
	Metadata    map[string]string
}
