// Package taskdefs holds the Conductor task definitions that ship with perago,
// so that one binary can register them.
package taskdefs

import "embed"

// Files are the task definitions, one in each JSON file.
//
//go:embed *.json
var Files embed.FS
