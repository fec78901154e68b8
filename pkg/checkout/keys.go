package checkout

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"perago/pkg/txn"
)

// object is one object of the projection.
type object struct {
	txn.Object
	// local is the path of its file: the key without the prefix.
	local string
}

// paths gives the local paths, as projection.Guardrails reads them.
func paths(objects []object) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, o := range objects {
			if !yield(o.local) {
				return
			}
		}
	}
}

// size is that of all objects together, in bytes.
func size(objects []object) int64 {
	sum := int64(0)
	for _, one := range objects {
		sum += one.Size
	}
	return sum
}

// list reads the whole projection and refuses what has no form on a file system.
func (e *execution) list(ctx context.Context) ([]object, error) {
	var all []object
	var keys keyChecker
	workspace, prefix := e.input.Workspace, e.input.Prefix
	listed := e.attempt.Expect(0, 0)
	for remote, err := range e.Lake.Objects(ctx, workspace.Repository, workspace.Ref, prefix) {
		if err != nil {
			return nil, e.expired(fmt.Errorf("list %s at %s: %w", prefix, workspace.Ref.Short(), err))
		}
		if !prefix.Contains(remote.Path) {
			continue // the repository's hooks
		}
		local := strings.TrimPrefix(remote.Path, string(prefix))
		if err := keys.check(local); err != nil {
			return nil, txn.Terminalf("prefix", "the object %q cannot be a file: %v; nothing was downloaded, remove the object from the branch or choose another prefix", remote.Path, err)
		}
		listed(1, 0)
		all = append(all, object{Object: remote, local: local})
	}
	return all, nil
}

// longestName is the limit of Linux file systems, in bytes.
const longestName = 255

// keyChecker refuses keys, in byte order, that have no file: what they are called
// comes from outside, and a key that is cleaned up would be another one's file.
type keyChecker struct {
	// above are the keys before that the next one begins with.
	above []string
}

func (c *keyChecker) check(local string) error {
	if err := txn.CheckKey(local); err != nil {
		return err
	}
	for name := range strings.SplitSeq(local, "/") {
		if err := checkName(name); err != nil {
			return err
		}
	}
	for len(c.above) > 0 && !strings.HasPrefix(local, c.above[len(c.above)-1]) {
		c.above = c.above[:len(c.above)-1]
	}
	for _, file := range c.above {
		if local[len(file)] == '/' {
			return fmt.Errorf("%q is an object too, and a file cannot be a directory", file)
		}
	}
	c.above = append(c.above, local)
	return nil
}

// checkName refuses what is no single name of a file system.
func checkName(name string) error {
	switch {
	case name == "", name == ".", name == "..", strings.ContainsAny(name, "/\x00"):
		return fmt.Errorf("%q is not the name of a file", name)
	case len(name) > longestName:
		return fmt.Errorf("the name %.40q… has %d bytes, more than the %d of a file system", name, len(name), longestName)
	}
	return nil
}
