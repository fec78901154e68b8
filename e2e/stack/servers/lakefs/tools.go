//go:build tools

// Package lakefs pins the lakeFS server and its command line that the tests and
// the demo run against. It is a module of its own so that lakeFS's dependencies
// never reach the product's go.mod.
package lakefs

import (
	_ "github.com/treeverse/lakefs/cmd/lakectl/cmd"
	_ "github.com/treeverse/lakefs/cmd/lakefs/cmd"
)
