package model

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"perago/pkg/txn"
)

// object is one object of a tree. Two uploads of the same bytes are the same to a
// merge, and not to a tree's id, which knows where each is stored.
type object struct {
	content  []byte
	checksum string
	address  string
}

// tree is immutable: path to object.
type tree map[string]object

func (t tree) id() txn.MetaRangeID {
	hash := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(t)) {
		fmt.Fprintf(hash, "%s %s %s\n", path, t[path].checksum, t[path].address)
	}
	return txn.MetaRangeID(hex.EncodeToString(hash.Sum(nil)))
}

// commit is immutable.
type commit struct {
	txn.Commit
	tree       tree
	generation int
}

// branch is a value, so that a copied lake shares nothing that changes.
type branch struct {
	head txn.CommitID
	// staged are the uncommitted changes; an object without an address removes its
	// path. It is replaced and never written to.
	staged tree
}

// lake is a lakeFS with one repository, small enough to be copied and hashed for
// every schedule. A commit's id is the hash of what it says, so that two schedules
// that do the same come to the same ids. TestTheModelIsTheMemoryServer holds it to
// the memory server, which the contract suite holds to the real one.
type lake struct {
	branches map[txn.Branch]branch
	commits  map[txn.CommitID]*commit
	runs     map[txn.CommitID][]txn.HookRun
}

func newLake(files map[string]string) *lake {
	l := &lake{branches: map[txn.Branch]branch{}, commits: map[txn.CommitID]*commit{}, runs: map[txn.CommitID][]txn.HookRun{}}
	content := tree{}
	for path, text := range files {
		content[path] = newObject([]byte(text), "input "+path)
	}
	l.branches[target] = branch{head: l.add(nil, content, "input", nil).ID}
	return l
}

func (l *lake) clone() *lake {
	return &lake{branches: maps.Clone(l.branches), commits: maps.Clone(l.commits), runs: maps.Clone(l.runs)}
}

// digest is the hash of what anybody can read and what may still change: where
// the branches are. Commits are named by their content.
func (l *lake) digest() uint64 {
	var sum uint64
	for name, b := range l.branches {
		sum += hashOf(string(name), string(b.head))
	}
	return sum
}

func newObject(content []byte, address string) object {
	sum := md5.Sum(content)
	return object{content: content, checksum: hex.EncodeToString(sum[:]), address: address}
}

func (l *lake) add(parent *commit, content tree, message string, metadata map[string]string) *commit {
	c := &commit{tree: content, generation: 1}
	c.MetaRange, c.Message, c.Metadata = content.id(), message, metadata
	hash := sha256.New()
	if parent != nil {
		c.Parents, c.generation = []txn.CommitID{parent.ID}, parent.generation+1
		fmt.Fprintf(hash, "%s\n", parent.ID)
	}
	fmt.Fprintf(hash, "%s\n%q\n", c.MetaRange, message)
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		fmt.Fprintf(hash, "%s %q\n", key, metadata[key])
	}
	c.ID = txn.CommitID(hex.EncodeToString(hash.Sum(nil)))
	l.commits[c.ID] = c
	return c
}

func refused(kind error, message string) error {
	return &txn.ServerError{Server: "lakeFS", Method: "model", Status: 400, Class: txn.ErrRefused, Kind: kind, Message: message}
}

// Commit reads a commit.
func (l *lake) Commit(_ context.Context, _ txn.Repository, id txn.CommitID) (txn.Commit, error) {
	if c := l.commits[id]; c != nil {
		return c.Commit, nil
	}
	return txn.Commit{}, refused(txn.ErrNotFound, "commit not found")
}

// Head reads where a branch is.
func (l *lake) Head(_ context.Context, _ txn.Repository, name txn.Branch) (txn.CommitID, error) {
	if b, ok := l.branches[name]; ok {
		return b.head, nil
	}
	return "", refused(txn.ErrNotFound, "branch not found")
}

// History walks the first parents.
func (l *lake) History(_ context.Context, _ txn.Repository, from, stopAt txn.CommitID, limit int) ([]txn.Commit, bool, error) {
	if l.commits[from] == nil || l.commits[stopAt] == nil {
		return nil, false, refused(txn.ErrNotFound, "commit not found")
	}
	var commits []txn.Commit
	for at := from; at != stopAt; {
		if len(commits) == limit {
			return commits, false, nil
		}
		c := l.commits[at]
		commits = append(commits, c.Commit)
		if len(c.Parents) == 0 {
			return commits, false, nil
		}
		at = c.Parents[0]
	}
	return commits, true, nil
}

// Differ compares two trees by content.
func (l *lake) Differ(_ context.Context, _ txn.Repository, left, right txn.CommitID, prefix txn.Prefix) (bool, error) {
	a, b := l.commits[left], l.commits[right]
	if a == nil || b == nil {
		return false, refused(txn.ErrNotFound, "commit not found")
	}
	for _, side := range []tree{a.tree, b.tree} {
		for path := range side {
			if prefix.Contains(path) && a.tree[path].checksum != b.tree[path].checksum {
				return true, nil
			}
		}
	}
	return false, nil
}

// Branches lists branches by prefix.
func (l *lake) Branches(_ context.Context, _ txn.Repository, prefix string) ([]txn.BranchHead, error) {
	var all []txn.BranchHead
	for name, b := range l.branches {
		if strings.HasPrefix(string(name), prefix) {
			all = append(all, txn.BranchHead{Name: name, Head: b.head})
		}
	}
	slices.SortFunc(all, func(a, b txn.BranchHead) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return all, nil
}

// CreateBranch makes a branch.
func (l *lake) CreateBranch(_ context.Context, _ txn.Repository, name txn.Branch, source txn.CommitID) error {
	if _, ok := l.branches[name]; ok {
		return refused(txn.ErrExists, "branch exists")
	}
	if l.commits[source] == nil {
		return refused(txn.ErrNotFound, "source not found")
	}
	l.branches[name] = branch{head: source}
	return nil
}

// DeleteBranch removes a branch.
func (l *lake) DeleteBranch(_ context.Context, _ txn.Repository, name txn.Branch) error {
	if _, ok := l.branches[name]; !ok {
		return refused(txn.ErrNotFound, "branch not found")
	}
	delete(l.branches, name)
	return nil
}

// Objects lists objects by prefix.
func (l *lake) Objects(_ context.Context, _ txn.Repository, ref txn.CommitID, prefix txn.Prefix) iter.Seq2[txn.Object, error] {
	return func(yield func(txn.Object, error) bool) {
		c := l.commits[ref]
		if c == nil {
			yield(txn.Object{}, refused(txn.ErrNotFound, "commit not found"))
			return
		}
		for _, path := range slices.Sorted(maps.Keys(c.tree)) {
			if !strings.HasPrefix(path, prefix.Key("")) {
				continue
			}
			if !yield(txn.Object{Path: path, Size: int64(len(c.tree[path].content)), Checksum: c.tree[path].checksum}, nil) {
				return
			}
		}
	}
}

// ReadObject reads an object.
func (l *lake) ReadObject(_ context.Context, _ txn.Repository, ref txn.CommitID, path string) (io.ReadCloser, error) {
	if c := l.commits[ref]; c != nil {
		if o, ok := c.tree[path]; ok {
			return io.NopCloser(bytes.NewReader(o.content)), nil
		}
	}
	return nil, refused(txn.ErrNotFound, "object not found")
}

// Upload puts an object on a branch.
func (l *lake) Upload(_ context.Context, _ txn.Repository, name txn.Branch, path string, content txn.Content) (txn.Object, error) {
	b, ok := l.branches[name]
	if !ok {
		return txn.Object{}, refused(txn.ErrNotFound, "branch not found")
	}
	reader, err := content.Open()
	if err != nil {
		return txn.Object{}, err
	}
	defer reader.Close()
	data, err := io.ReadAll(reader)
	if err != nil {
		return txn.Object{}, err
	}
	// A branch of ours is written by one execution once, so its name and the path
	// name the upload.
	o := newObject(data, string(name)+" "+path)
	l.stage(name, b, path, o)
	return txn.Object{Path: path, Size: int64(len(data)), Checksum: o.checksum}, nil
}

// DeleteObjects removes objects from a branch.
func (l *lake) DeleteObjects(_ context.Context, _ txn.Repository, name txn.Branch, paths []string) error {
	for _, path := range paths {
		b, ok := l.branches[name]
		if !ok {
			return refused(txn.ErrNotFound, "branch not found")
		}
		l.stage(name, b, path, object{})
	}
	return nil
}

func (l *lake) stage(name txn.Branch, b branch, path string, o object) {
	staged := maps.Clone(b.staged)
	if staged == nil {
		staged = tree{}
	}
	staged[path] = o
	b.staged = staged
	l.branches[name] = b
}

// CreateCommit commits what is staged.
func (l *lake) CreateCommit(_ context.Context, _ txn.Repository, name txn.Branch, message string, metadata map[string]string) (txn.Commit, error) {
	b, ok := l.branches[name]
	switch {
	case !ok:
		return txn.Commit{}, refused(txn.ErrNotFound, "branch not found")
	case len(b.staged) == 0:
		return txn.Commit{}, refused(txn.ErrNoChanges, "no changes")
	}
	head := l.commits[b.head]
	content := maps.Clone(head.tree)
	for path, o := range b.staged {
		if o.address == "" {
			delete(content, path)
		} else {
			content[path] = o
		}
	}
	return l.move(name, l.add(head, content, message, metadata)), nil
}

// CommitTree commits a tree whole.
func (l *lake) CommitTree(_ context.Context, _ txn.Repository, name txn.Branch, id txn.MetaRangeID, message string, metadata map[string]string) (txn.Commit, error) {
	b, ok := l.branches[name]
	if !ok {
		return txn.Commit{}, refused(txn.ErrNotFound, "branch not found")
	}
	for _, c := range l.commits {
		if c.MetaRange == id {
			return l.move(name, l.add(l.commits[b.head], c.tree, message, metadata)), nil
		}
	}
	return txn.Commit{}, fmt.Errorf("the model has no tree %s", id)
}

// foreign is somebody's commit on the target; without a path it is empty.
func (l *lake) foreign(path string) {
	head := l.commits[l.branches[target].head]
	content := head.tree
	if path != "" {
		content = maps.Clone(content)
		content[path] = newObject([]byte("foreign"), "foreign "+path)
	}
	l.move(target, l.add(head, content, "foreign", nil))
}

func (l *lake) move(name txn.Branch, to *commit) txn.Commit {
	l.branches[name] = branch{head: to.ID}
	return to.Commit
}

// HookRuns reads which hooks ran for a commit.
func (l *lake) HookRuns(_ context.Context, _ txn.Repository, id txn.CommitID) ([]txn.HookRun, error) {
	return l.runs[id], nil
}

// Merge is a squash merge, wherever the branch is by now: that is the race which
// the hard fence is for. A conflict comes before the hook.
func (l *lake) Merge(_ context.Context, m txn.Merge) (txn.CommitID, error) {
	source, b := l.commits[m.Source], l.branches[m.Destination]
	destination := l.commits[b.head]
	if source == nil || destination == nil {
		return "", refused(txn.ErrNotFound, "not found")
	}
	base := l.mergeBase(source, destination)
	content := source.tree
	if destination.MetaRange != base.MetaRange {
		var ok bool
		if content, ok = mergeTrees(source.tree, destination.tree, base.tree); !ok {
			return "", refused(txn.ErrConflict, "conflict")
		}
	}
	made := l.add(destination, content, m.Message, m.Metadata)
	if _, fenced := source.tree[txn.FenceFile]; fenced {
		run := txn.HookRun{Event: "pre-merge", Action: txn.FenceAction, Hook: txn.FenceHook, Status: "completed"}
		err := fenceHook(made.Commit, m.Destination)
		if err != nil {
			run.Status = "failed"
		}
		l.runs[made.ID] = []txn.HookRun{run}
		if err != nil {
			return "", err
		}
	}
	l.branches[m.Destination] = branch{head: made.ID}
	return made.ID, nil
}

// fenceHook is what the hard fence's script says, in Go.
func fenceHook(made txn.Commit, destination txn.Branch) error {
	switch {
	case made.Metadata["perago.phase"] != "confirm":
	case len(made.Parents) != 1 || made.Metadata["perago.expected_head"] != string(made.Parents[0]),
		made.Metadata["perago.target_branch"] != string(destination):
		return refused(txn.ErrFenceRefused, txn.FenceRefusal+" the branch moved")
	}
	return nil
}

// mergeBase is the latest commit of both histories, which are linear.
func (l *lake) mergeBase(a, b *commit) *commit {
	for a != b {
		if a.generation < b.generation {
			a, b = b, a
		}
		a = l.commits[a.Parents[0]]
	}
	return a
}

// mergeTrees is the three-way merge, path by path; false is a conflict.
func mergeTrees(source, destination, base tree) (tree, bool) {
	merged := tree{}
	for _, side := range []tree{source, destination, base} {
		for path := range side {
			theirs, ours, before := source[path], destination[path], base[path]
			take := theirs
			switch {
			case theirs.checksum == before.checksum:
				take = ours
			case ours.checksum == before.checksum, theirs.checksum == ours.checksum:
			default:
				return nil, false
			}
			if take.checksum != "" {
				merged[path] = take
			}
		}
	}
	return merged, true
}

var hashSeed = maphash.MakeSeed()

// hashOf tells lists of texts apart.
func hashOf(parts ...string) uint64 {
	var hash maphash.Hash
	hash.SetSeed(hashSeed)
	for _, part := range parts {
		_, _ = hash.WriteString(part)
		_ = hash.WriteByte(0)
	}
	return hash.Sum64()
}
