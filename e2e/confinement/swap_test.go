//go:build unix

package confinement

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"perago/pkg/lakefs/lakefstest"
)

// How many rounds each use case goes through while its files are swapped.
const rounds = 15

// swapper puts links in the place of files and directories, and back, as fast as it
// can. It does one at a time: its own paths must not lead through its own links.
type swapper struct {
	random *rand.Rand
	// below is the directory whose content, and which itself, is swapped. like are
	// directories with the same paths in them, which the links lead to.
	below string
	like  []string
	// aside is where it keeps what it has put a link in the place of.
	aside string
	there []there
	swaps int
}

type there struct {
	name      string
	directory bool
}

// run swaps until stop is closed, and closes begun once it has.
func (s *swapper) run(begun chan<- struct{}, stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		// What is there changes meanwhile, and looking takes longer than swapping.
		if n%16 == 0 {
			s.look()
		}
		one := s.there[s.random.IntN(len(s.there))]
		path := filepath.Join(s.below, one.name)
		target := filepath.Join(s.like[s.random.IntN(len(s.like))], one.name)
		if s.random.IntN(2) == 0 {
			target, _ = filepath.Rel(filepath.Dir(path), target) // both are absolute
		}
		s.swap(path, target, one.directory)
		if n == 0 {
			close(begun)
		}
		s.pause(20)
	}
}

// look finds what there is to swap.
func (s *swapper) look() {
	s.there = s.there[:0]
	// What disappears meanwhile is not there.
	_ = filepath.WalkDir(s.below, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type()&fs.ModeSymlink == 0 {
			name, _ := filepath.Rel(s.below, path)
			s.there = append(s.there, there{name, entry.IsDir()})
		}
		return nil
	})
	if len(s.there) == 0 {
		s.there = append(s.there, there{".", true})
	}
}

// pause lets the others go on for a while that differs.
func (s *swapper) pause(most int) {
	for range s.random.IntN(most) {
		runtime.Gosched()
	}
}

// swap puts a link in the place of something for a moment. Of a file the name is never
// without one or the other. Whoever sweeps or discards may be faster, so nothing here
// has to work out.
func (s *swapper) swap(path, target string, directory bool) {
	kept, link := filepath.Join(s.aside, "kept"), filepath.Join(s.aside, "link")
	keep := os.Link
	if directory {
		keep = os.Rename
	}
	if os.Symlink(target, link) != nil || keep(path, kept) != nil {
		_ = os.Remove(link)
		return
	}
	if os.Rename(link, path) == nil {
		s.swaps++
		s.pause(20)
		if directory {
			_ = os.Remove(path)
		}
	}
	if os.Rename(kept, path) != nil {
		_ = os.RemoveAll(kept)
	}
	_ = os.Remove(link)
}

// whileSwapping runs a round with a swapper beside it.
func whileSwapping(s *swapper, round func()) {
	begun, stop, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		s.run(begun, stop)
	}()
	<-begun
	round()
	close(stop)
	<-done
}

// While everything of theirs is swapped for links as fast as that goes, none of the
// use cases reads or writes where a link leads: each ends well, with its own files, or
// says that something has changed.
func TestNothingIsFollowedWhileItIsSwapped(t *testing.T) {
	// Not in parallel: the swapper has a processor to itself.
	seed, rounds := number(t, "PERAGO_TEST_SEED", rand.Uint64N(1<<32)), number(t, "PERAGO_TEST_ROUNDS", rounds)
	many := slices.Clone(files)
	for n := range 50 {
		many = append(many, fmt.Sprintf("many/%d/%02d", n%10, n))
	}
	each := func(t *testing.T, prepare func(w *world), below func(w *world) (own string, like []string), round func(w *world) error) {
		t.Logf("PERAGO_TEST_SEED=%d PERAGO_TEST_ROUNDS=%d", seed, rounds)
		objects := map[string]string{}
		for _, name := range many {
			objects["data/"+name] = marker("lake")
		}
		w := newWorldOf(t, many, objects)
		w.guard()
		random := rand.New(rand.NewPCG(seed, uint64(len(t.Name()))))
		swaps, ended, failed := 0, 0, 0
		for n := range rounds {
			w.clear()
			prepare(w)
			own, like := below(w)
			s := &swapper{random: random, below: own, like: like, aside: w.in("aside")}
			var err error
			if n == 0 {
				// Nothing is in its way.
				if err = round(w); err != nil {
					t.Fatal(err)
				}
			} else {
				whileSwapping(s, func() { err = round(w) })
			}
			swaps += s.swaps
			if err == nil {
				ended++
			} else {
				failed++
			}
			w.intact(t.Name())
			w.fresh()
			if t.Failed() {
				t.Fatalf("round %d", n)
			}
		}
		t.Logf("%d swaps in %d rounds, of which %d ended well and %d did not", swaps, rounds, ended, failed)
		if swaps == 0 {
			t.Error("nothing was swapped")
		}
	}
	own := func(w *world) {
		for _, name := range many {
			w.write(w.own("task", name), w.inside)
			w.write(w.own("other", name), w.elsewhere)
		}
	}
	// Directories like the workflow's.
	workflows := func(w *world) (string, []string) {
		return w.own(), []string{w.beside("outside"), w.in(string(neighbor)), w.beside(string(workflow)), w.in(string(workflow) + "2"), w.beside("nothing")}
	}
	stage := func(w *world) error {
		result, err := w.stage(w.own("task"), nil)
		if err != nil {
			return err
		}
		for path, content := range lakefstest.Tree(w.t, w.lake, w.repo, result.Staged.Commit) {
			if content != w.inside {
				w.t.Errorf("%s holds %q", path, content)
			}
		}
		return nil
	}
	t.Run("stage, its files", func(t *testing.T) {
		each(t, own, func(w *world) (string, []string) {
			return w.own("task"), []string{w.beside("outside", "task"), w.in(string(neighbor), "task"), w.own("other"), w.beside("nothing")}
		}, stage)
	})
	t.Run("stage, the workflow's directory", func(t *testing.T) {
		each(t, own, workflows, stage)
	})
	t.Run("checkout", func(t *testing.T) {
		each(t, func(w *world) {
			if err := os.Mkdir(w.own(), 0o755); err != nil {
				t.Fatal(err)
			}
		}, func(w *world) (string, []string) {
			own, like := workflows(w)
			// Whatever is made, in whichever directory of the checkout, may be made there.
			return own, append(like, w.beside("outside", "task"), w.in(string(neighbor), "task"))
		}, func(w *world) error {
			_, err := w.checkout()
			return err
		})
	})
	t.Run("sweep", func(t *testing.T) {
		each(t, func(w *world) {
			for _, name := range many {
				w.write(w.in(string(ended), "task", name), w.inside)
			}
		}, func(w *world) (string, []string) {
			_, like := workflows(w)
			return w.in(string(ended)), like
		}, func(w *world) error {
			if swept := w.sweep(); swept.Failed > 0 {
				return errors.New("something was not deleted")
			}
			return nil
		})
	})
}

// clear takes away what a round left of the step's and of the ended workflow's.
func (w *world) clear() {
	w.t.Helper()
	var err error
	for _, name := range []string{string(workflow), string(ended), "aside"} {
		err = errors.Join(err, os.RemoveAll(w.in(name)))
	}
	if err = errors.Join(err, os.Mkdir(w.in("aside"), 0o755)); err != nil {
		w.t.Fatal(err)
	}
}

// fresh forgets what was sent, said and staged.
func (w *world) fresh() {
	w.t.Helper()
	w.wire.mu.Lock()
	w.wire.sent = nil
	w.wire.mu.Unlock()
	w.said.reset()
	branches, err := w.lake.Branches(w.t.Context(), w.repo, "perago-")
	for _, branch := range branches {
		err = errors.Join(err, w.lake.DeleteBranch(w.t.Context(), w.repo, branch.Name))
	}
	if err != nil {
		w.t.Fatal(err)
	}
}
