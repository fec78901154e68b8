package checkout

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"

	"perago/pkg/projection"
	"perago/pkg/spool"
	"perago/pkg/txn"
)

// object is one object of the projection.
type object struct {
	txn.Object
	// local is the path of its file: the key without the prefix.
	local string
}

// listing is the objects of the projection, in byte order. A long one is in a
// temporary file.
type listing struct {
	prefix  txn.Prefix
	objects spool.List
	// bytes is the size of all objects together.
	bytes int64
}

func (l *listing) add(one object) error {
	l.bytes += one.Size
	return l.objects.Append(one.local, append(binary.AppendVarint(nil, one.Size), one.Checksum...))
}

// all gives the objects in order. A pair with an error is the last one.
func (l *listing) all() iter.Seq2[object, error] {
	return func(yield func(object, error) bool) {
		for record, err := range l.objects.All() {
			size, n := binary.Varint(record.Value)
			if err == nil && n <= 0 {
				err = errors.New("the list of objects holds a broken record")
			}
			if err != nil {
				yield(object{}, err)
				return
			}
			one := object{local: record.Key, Object: txn.Object{Path: l.prefix.Key(record.Key), Size: size, Checksum: string(record.Value[n:])}}
			if !yield(one, nil) {
				return
			}
		}
	}
}

// paths gives the local paths, as projection.Guardrails reads them. It ends at an
// error, which it leaves in failed.
func (l *listing) paths(failed *error) iter.Seq[string] {
	return func(yield func(string) bool) {
		for one, err := range l.all() {
			if *failed = err; err != nil || !yield(one.local) {
				return
			}
		}
	}
}

// list reads the whole projection and refuses what has no form on a file system. The
// listing is the caller's to close where there is no error.
func (e *execution) list(ctx context.Context) (_ *listing, err error) {
	var keys projection.Keys
	workspace, prefix := e.input.Workspace, e.input.Prefix
	all := &listing{prefix: prefix}
	defer func() {
		if err != nil {
			all.objects.Close()
		}
	}()
	listed := e.attempt.Expect(0, 0)
	last, first := "", true
	for remote, err := range e.Lake.Objects(ctx, workspace.Repository, workspace.Ref, prefix) {
		if err != nil {
			return nil, e.expired(fmt.Errorf("list %s at %s: %w", prefix, workspace.Ref.Short(), err))
		}
		// Out of order, a file that is a directory too would not be seen.
		if !first && remote.Path <= last {
			return nil, fmt.Errorf("the listing under %q is not in order: %q comes after %q", prefix, remote.Path, last)
		}
		first, last = false, remote.Path
		local, ok := strings.CutPrefix(remote.Path, string(prefix))
		if !ok {
			return nil, fmt.Errorf("the listing under %q holds %q", prefix, remote.Path)
		}
		if !prefix.Contains(remote.Path) {
			continue // the repository's hooks
		}
		if err := keys.Check(local); err != nil {
			return nil, txn.Terminalf("prefix", "the object %q cannot be a file: %v; nothing was downloaded, remove the object from the branch or choose another prefix", remote.Path, err)
		}
		listed(1, 0)
		if err := all.add(object{Object: remote, local: local}); err != nil {
			return nil, err
		}
	}
	return all, nil
}
