// Package workflows holds the Conductor workflow definitions that ship with
// perago: the failure workflow perago_cancel and examples of both ways to wire
// the cleanup.
package workflows

import "embed"

// Files are the workflow definitions, one in each JSON file.
//
//go:embed *.json
var Files embed.FS
