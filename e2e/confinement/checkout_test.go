//go:build unix

package confinement

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"perago/pkg/checkout"
	"perago/pkg/lakefs"
	"perago/pkg/txn"
)

// Keys of a branch are whatever somebody wrote there. One without a file of its own
// writes none, not even what comes before it.
func TestKeysWithoutAFileOfTheirOwn(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"..", "../../../outside/new", "../../" + string(neighbor) + "/task/a", "a/../../x", "a/..", ".", "./x", "a/./x", "/etc/passwd", "//x", "a//x", "x/", "", "nul\x00x",
		strings.Repeat("n", 256), "0/below",
	} {
		t.Run(strings.ReplaceAll(fmt.Sprintf("%.20q", key), "/", "|"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{"data/0": "1", "data/" + key: "hostile"})
			w.guard()
			result, err := w.checkout()
			byHand := w.beside("root", "by-hand")
			other, failed := w.downloader.ByHand(t.Context(), checkout.Hand{Workspace: w.workspace(), Prefix: "data/", Directory: byHand}, attempt{})
			w.tell(other.Output(), failed)
			w.intact(key)
			for what, err := range map[string]error{"a task": err, "by hand": failed} {
				if !errors.As(err, new(*txn.TerminalError)) {
					t.Errorf("%s: got %v, want it refused for good", what, err)
				}
			}
			if result.Output() != nil || other.Output() != nil {
				t.Errorf("outputs %v, %v", result.Output(), other.Output())
			}
			if made, err := filepath.Glob(w.own("checkout-*")); err != nil || len(made) > 0 {
				t.Errorf("made %q, %v", made, err)
			}
			if _, err := os.Lstat(byHand); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("made by hand: %v", err)
			}
		})
	}
}

// Names that look dangerous and are names all the same are files in the directory.
func TestKeysThatAreNames(t *testing.T) {
	t.Parallel()
	names := []string{`..\..\outside\new`, "%2e%2e%2fx", "...", "..x", "~", "-rf", "c:", "a\nb", "$HOME", "*", "nul", "\u202egpj", "\u2025"}
	objects := map[string]string{}
	for _, name := range names {
		objects["data/"+name] = name
	}
	w := newWorld(t, objects)
	w.guard()
	result, err := w.checkout()
	w.intact("names")
	if err != nil || result.Checkout.Objects != len(names) {
		t.Fatalf("%+v, %v", result, err)
	}
	for _, name := range names {
		if got, err := os.ReadFile(filepath.Join(result.Checkout.Directory, name)); err != nil || string(got) != name {
			t.Errorf("%q holds %q, %v", name, got, err)
		}
	}
}

// A listing that holds what was not asked for has no way out either, neither to a
// file nor to an object outside the prefix.
func TestListingThatLies(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"../outside/new", "/etc/x", "root2/x", "dat", "data", "data2/x", "other/../data/x", "data/../../../../outside/new", "DATA/x", "", "/data/x", "data/\x00", "_lakefs_actions/x"} {
		t.Run(strings.ReplaceAll(fmt.Sprintf("%q", key), "/", "|"), func(t *testing.T) {
			t.Parallel()
			// It is there to be read, were it believed.
			objects := map[string]string{"data/a": "1", "_lakefs_actions/x": "1"}
			if key != "" {
				objects[key] = "1"
			}
			w := newWorld(t, objects)
			w.guard()
			lying := lying{w.downloader.Lake.(*lakefs.Client), txn.Object{Path: key, Size: 1, Checksum: "c4ca4238a0b923820dcc509a6f75849b"}}
			w.downloader.Lake, w.stager.Lake = lying, lying
			result, err := w.checkout()
			if result.Checkout.Objects != 0 {
				t.Errorf("%d objects were downloaded, %v", result.Checkout.Objects, err)
			}
			if made, err := filepath.Glob(w.own("checkout-*", "*")); err != nil || len(made) > 0 {
				t.Errorf("made %q, %v", made, err)
			}
			_, err = w.stage(w.own("task"), nil)
			w.intact(key)
			for _, request := range w.wire.sent {
				// An object is removed by its key, which leads nowhere.
				if strings.Contains(request, "/objects/delete") && !strings.HasPrefix(key, "data/") {
					t.Errorf("%v, but sent %s", err, request)
				}
			}
		})
	}
}

// lying lists one object, whatever is asked for.
type lying struct {
	*lakefs.Client
	object txn.Object
}

func (l lying) Objects(context.Context, txn.Repository, txn.CommitID, txn.Prefix) iter.Seq2[txn.Object, error] {
	return func(yield func(txn.Object, error) bool) { yield(l.object, nil) }
}

func answer(r *http.Request, body string) *http.Response {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
		ContentLength: int64(len(body)), Request: r,
	}
}

// What stands in the way of a checkout, or comes to stand there.
func TestCheckoutStaysInItsDirectory(t *testing.T) {
	t.Parallel()
	const last = "data/z/last"
	for _, c := range []struct {
		name string
		// plant acts before, meanwhile when the first object of the directory z is asked
		// for and the last one is not there yet. It gets the path of the directory that
		// is filled.
		plant     func(w *world)
		meanwhile func(w *world, directory string)
		// refused makes lakeFS refuse the last object, so that the checkout takes its
		// directory away again.
		refused bool
		// done says that it ends well.
		done bool
	}{
		{name: "the workflow's directory is a link to outside", plant: func(w *world) { w.link(w.beside("outside"), string(workflow)) }},
		{name: "the workflow's directory is a link to another workflow's", plant: func(w *world) { w.link(string(neighbor), string(workflow)) }},
		{name: "the workflow's directory is a dangling link to outside", plant: func(w *world) { w.link(w.beside("outside", "new"), string(workflow)) }},
		{name: "the workflow's directory is a dangling link below the root", plant: func(w *world) { w.link("new", string(workflow)) }},
		{name: "the workflow's directory is a loop", plant: func(w *world) { w.link(string(workflow), string(workflow)) }},
		{name: "a directory becomes a link to outside", meanwhile: func(w *world, directory string) { w.swap(directory+"/z", w.beside("outside", "task")) }},
		{name: "a directory becomes a link up to another workflow's", meanwhile: func(w *world, directory string) { w.swap(directory+"/z", "../../"+string(neighbor)+"/task") }},
		{name: "a directory becomes a link to one beside it", meanwhile: func(w *world, directory string) { w.swap(directory+"/z", "y") }, done: true},
		{name: "a file is a link to one outside", meanwhile: func(w *world, directory string) { w.plant(w.beside("outside", "task", "a"), directory+"/z/last") }},
		{name: "a file is a link to nothing outside", meanwhile: func(w *world, directory string) { w.plant(w.beside("outside", "new"), directory+"/z/last") }},
		{name: "the directory itself becomes a link to outside", meanwhile: func(w *world, directory string) { w.swap(directory, w.beside("outside", "task")) }},
		{name: "the directory itself becomes a link to outside, and is taken away", meanwhile: func(w *world, directory string) { w.swap(directory, w.beside("outside", "task")) }, refused: true},
		{name: "the workflow's directory becomes a link to outside, and is taken away", meanwhile: func(w *world, _ string) { w.swap(w.own(), w.beside("outside")) }, refused: true},
		{name: "the workflow's directory becomes a link to another workflow's, and is taken away", meanwhile: func(w *world, _ string) { w.swap(w.own(), string(neighbor)) }, refused: true},
		{name: "links appear, and all is taken away", meanwhile: func(w *world, directory string) {
			w.plant(w.beside("outside"), directory+"/y/out")
			w.plant("../../../"+string(neighbor), directory+"/y/near")
			w.plant("..", directory+"/y/up")
			w.plant("/", directory+"/y/top")
		}, refused: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{"data/a": "1", "data/y/first": "1", "data/z/first": "1", last: "1"})
			w.downloader.Concurrency = 1
			if c.plant != nil {
				c.plant(w)
			}
			w.guard()
			began := once(func(r *http.Request) bool {
				if c.meanwhile == nil || r.URL.Query().Get("path") != "data/z/first" {
					return false
				}
				filled, err := filepath.Glob(w.own("checkout-*"))
				if err != nil || len(filled) != 1 {
					t.Errorf("%q, %v", filled, err)
					return true
				}
				c.meanwhile(w, filled[0])
				return true
			})
			w.wire.meets = func(r *http.Request) *http.Response {
				if c.refused && r.URL.Query().Get("path") == last {
					refusal := answer(r, `{"message": "no"}`)
					refusal.StatusCode = http.StatusForbidden
					return refusal
				}
				return began(r)
			}
			result, err := w.checkout()
			w.intact(c.name)
			if (err == nil) != c.done || (result.Output() != nil) != c.done {
				t.Errorf("%v, output %v; want it done: %v", err, result.Output(), c.done)
			}
		})
	}
}

// swap puts a link in the place of a directory, which is kept beside it.
func (w *world) swap(path, target string) {
	if err := errors.Join(os.Rename(path, path+"-kept"), os.Symlink(target, path)); err != nil {
		w.t.Error(err)
	}
}

// plant puts a link where nothing is.
func (w *world) plant(target, path string) {
	if err := os.Symlink(target, path); err != nil {
		w.t.Error(err)
	}
}
