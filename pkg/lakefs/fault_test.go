package lakefs_test

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/fault"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// staging is a name that holds an execution id.
const staging = txn.Branch("perago-staging-0a1b2c3d-0b4a7d26-7f6e-4a54-9d8d-0e1f2a3b4c5d-deadbeef-r0-01890a5dac96774bbcceb302099a8057")

// write is one call that changes the lake.
type write struct {
	at      fault.Match
	prepare func(*testing.T, *settleBench)
	do      func(*testing.T, *settleBench) error
	// done reports whether the lake holds what was asked for; it fails the test
	// when that is there in part, or twice.
	done func(*testing.T, *settleBench) bool
	// When the server did not get it, never is how often it was sent at last and
	// unsaid what the caller is told: nil is that it is done. When it did, the same.
	never, acted       int
	unsaid, lost, late error
}

var writes = map[string]write{
	"create branch": {
		at: fault.Match{Method: http.MethodPost, Path: "/branches"},
		do: func(t *testing.T, b *settleBench) error {
			return b.client.CreateBranch(t.Context(), b.repo, staging, b.first)
		},
		done: func(t *testing.T, b *settleBench) bool {
			head, err := b.plain.Head(t.Context(), b.repo, staging)
			return err == nil && head == b.first
		},
		never: 1, acted: 1, unsaid: txn.ErrUnknownOutcome,
	},
	"upload": {
		at:      fault.Match{Method: http.MethodPost, Query: "path="},
		prepare: makeBranch,
		do: func(t *testing.T, b *settleBench) error {
			object, err := b.client.Upload(t.Context(), b.repo, staging, "data/b", lakefstest.Text("22"))
			if err == nil && object.Size != 2 {
				t.Errorf("told of %+v", object)
			}
			return err
		},
		done: func(t *testing.T, b *settleBench) bool {
			return holds(t, b, map[string]string{"a": "1", "data/b": "22"})
		},
		never: 2, acted: 2,
	},
	"bulk delete": {
		at:      fault.Match{Method: http.MethodPost, Path: "/objects/delete"},
		prepare: makeBranch,
		do: func(t *testing.T, b *settleBench) error {
			return b.client.DeleteObjects(t.Context(), b.repo, staging, []string{"a", "absent"})
		},
		done:  func(t *testing.T, b *settleBench) bool { return holds(t, b, map[string]string{}) },
		never: 2, acted: 2,
	},
	"commit": {
		at: fault.Match{Method: http.MethodPost, Path: "/commits"},
		prepare: func(t *testing.T, b *settleBench) {
			makeBranch(t, b)
			lakefstest.Put(t, b.plain, b.repo, staging, map[string]string{"b": "2"})
		},
		do: func(t *testing.T, b *settleBench) error {
			commit, err := b.client.CreateCommit(t.Context(), b.repo, staging, "try", b.tryRecord())
			if head, _ := b.plain.Head(t.Context(), b.repo, staging); err == nil && commit.ID != head {
				t.Errorf("told of %s, and the head is %s", commit.ID, head)
			}
			return err
		},
		done:  func(t *testing.T, b *settleBench) bool { return above(t, b, staging) == 1 },
		never: 2, acted: 1,
	},
	"merge": {
		at: fault.Match{Method: http.MethodPost, Path: "/merge/main"},
		prepare: func(t *testing.T, b *settleBench) {
			makeBranch(t, b)
			lakefstest.Put(t, b.plain, b.repo, staging, map[string]string{"b": "2"})
			commit, err := b.plain.CreateCommit(t.Context(), b.repo, staging, "try", nil)
			if err != nil {
				t.Fatal(err)
			}
			b.staged = commit.ID
		},
		do: func(t *testing.T, b *settleBench) error {
			_, err := b.client.Merge(t.Context(), txn.Merge{Repository: b.repo, Source: b.staged, Destination: "main"})
			return err
		},
		done:  func(t *testing.T, b *settleBench) bool { return above(t, b, "main") == 1 },
		never: 1, acted: 1, unsaid: txn.ErrUnknownOutcome, lost: txn.ErrUnknownOutcome, late: txn.ErrUnknownOutcome,
	},
	"delete branch": {
		at:      fault.Match{Method: http.MethodDelete, Path: "/branches/"},
		prepare: makeBranch,
		do:      func(t *testing.T, b *settleBench) error { return b.client.DeleteBranch(t.Context(), b.repo, staging) },
		done: func(t *testing.T, b *settleBench) bool {
			_, err := b.plain.Head(t.Context(), b.repo, staging)
			return errors.Is(err, txn.ErrNotFound)
		},
		never: 2, acted: 2, lost: txn.ErrNotFound,
	},
}

func makeBranch(t *testing.T, b *settleBench) {
	t.Helper()
	if err := b.plain.CreateBranch(t.Context(), b.repo, staging, b.first); err != nil {
		t.Fatal(err)
	}
}

// above is how many commits a branch holds above the first.
func above(t *testing.T, b *settleBench, branch txn.Branch) int {
	t.Helper()
	head, err := b.plain.Head(t.Context(), b.repo, branch)
	if err != nil {
		t.Fatal(err)
	}
	commits, reached, err := b.plain.History(t.Context(), b.repo, head, b.first, 10)
	if err != nil || !reached || len(commits) > 1 {
		t.Errorf("%s holds %d commits above the first, which is reached: %v; %v", branch, len(commits), reached, err)
	}
	return len(commits)
}

// holds commits what is staged and compares the tree.
func holds(t *testing.T, b *settleBench, want map[string]string) bool {
	t.Helper()
	commit, err := b.plain.CommitUnchanged(t.Context(), b.repo, staging, "to look at", nil)
	if err != nil {
		t.Fatal(err)
	}
	return cmp.Equal(want, lakefstest.Tree(t, b.plain, b.repo, commit.ID))
}

// What the lake holds and what the caller is told when a write meets a fault once:
// it is done once or not at all, and what is told as done is done.
func TestWritesUnderEveryFault(t *testing.T) {
	t.Parallel()
	for name, w := range writes {
		for _, f := range fault.All() {
			t.Run(name+"/"+f.Name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := newFaultBench(t, w.at)
					if w.prepare != nil {
						w.prepare(t, b)
					}
					armed := b.wire.Arm(w.at, f)
					err := w.do(t, b)
					<-armed.Over()
					if f.Server == fault.Later {
						time.Sleep(f.Wait) // and what was sent instead has landed too
					}

					sent, want := w.acted, w.lost
					switch {
					case f.Name == "slow", f.Name == "empty" && name == "delete branch":
						sent, want = 1, nil // a good answer
					case f.Name == "refused":
						// Nothing was sent: what is not idempotent is told so at once, for
						// there is nothing to settle.
						if sent, want = w.never, nil; w.acted == 1 {
							sent, want = 1, txn.ErrRetryable
						}
					case f.Server == fault.Later:
						sent, want = w.never, w.late
					case f.Server == fault.Never:
						sent, want = w.never, w.unsaid
					}
					if want == nil && err != nil || want != nil && !errors.Is(err, want) {
						t.Errorf("told %v, want %v", err, want)
					}
					if b.sent() != sent {
						t.Errorf("sent %d times, want %d", b.sent(), sent)
					}
					done := w.done(t, b)
					if err == nil && !done {
						t.Error("told as done, and it is not")
					}
					if reached := f.Server != fault.Never || sent > 1; done != reached {
						t.Errorf("done is %v, and the server had it: %v", done, reached)
					}
				})
			})
		}
	}
}

// Reads get through every fault, and give what the lake holds.
func TestReadsUnderEveryFault(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(*testing.T, *settleBench) error{
		"head": func(t *testing.T, b *settleBench) error {
			head, err := b.client.Head(t.Context(), b.repo, "main")
			return wrong(err, head != b.first)
		},
		"commit": func(t *testing.T, b *settleBench) error {
			commit, err := b.client.Commit(t.Context(), b.repo, b.first)
			return wrong(err, commit.ID != b.first)
		},
		"history": func(t *testing.T, b *settleBench) error {
			commits, reached, err := b.client.History(t.Context(), b.repo, b.first, b.first, 10)
			return wrong(err, len(commits) != 0 || !reached)
		},
		"objects": func(t *testing.T, b *settleBench) error {
			var paths []string
			for object, err := range b.client.Objects(t.Context(), b.repo, b.first, "") {
				if err != nil {
					return err
				}
				paths = append(paths, object.Path)
			}
			return wrong(nil, !cmp.Equal(paths, []string{"a"}))
		},
		"branches": func(t *testing.T, b *settleBench) error {
			branches, err := b.client.Branches(t.Context(), b.repo, "")
			return wrong(err, len(branches) != 1)
		},
		"hook runs": func(t *testing.T, b *settleBench) error {
			runs, err := b.client.HookRuns(t.Context(), b.repo, b.first)
			return wrong(err, len(runs) != 0)
		},
		"content": func(t *testing.T, b *settleBench) error {
			content, err := b.client.ReadObject(t.Context(), b.repo, b.first, "a")
			if err != nil {
				return err
			}
			defer content.Close()
			data, err := io.ReadAll(content)
			return wrong(err, string(data) != "1")
		},
	} {
		for _, f := range fault.All() {
			t.Run(name+"/"+f.Name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := newFaultBench(t, fault.Match{Method: http.MethodGet}, f)
					err := read(t, b)
					time.Sleep(f.Wait)
					synctest.Wait()
					if name == "content" {
						switch f.Name {
						case "cut":
							if !errors.Is(err, txn.ErrRetryable) {
								t.Errorf("%v", err)
							}
							return
						case "page", "garbled", "empty":
							// Bytes are bytes: whoever downloads compares size and checksum.
							if !errors.Is(err, errWrong) {
								t.Errorf("%v", err)
							}
							return
						}
					}
					if err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

var errWrong = errors.New("not what the lake holds")

func wrong(err error, is bool) error {
	if err == nil && is {
		return errWrong
	}
	return err
}
