//go:build unix

package confinement

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// The control: a step's own text is found in a request, an object and a line by the
// search that finds nothing of the others, and what touches a guarded file is seen.
func TestTheSearchFindsWhatIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"data/a": "1"})
	w.guard()
	result, err := w.stage(w.own("task"), nil)
	if err != nil {
		t.Fatal(err)
	}
	w.intact("a step of plain files")
	w.link("nowhere", string(workflow), "task", w.inside)
	if _, err := w.stage(w.own("task"), nil); err == nil {
		t.Error("a link was staged")
	}
	places := w.search(w.inside)
	for _, kind := range []string{"a request: POST", "an object: data/d/e/b", `"error":`, `"reason":`} {
		if !slices.ContainsFunc(places, func(place string) bool { return strings.Contains(place, kind) }) {
			t.Errorf("the step's own text is in none of %q: it is in %q", kind, places)
		}
	}
	if len(w.search(string(result.Staged.Commit))) == 0 || !strings.Contains(w.said.String(), `"output":`) {
		t.Errorf("no output in %s", w.said.String())
	}

	for what, touch := range map[string]func() error{
		"opened": func() error { _, err := os.ReadFile(w.beside("outside", "task", "a")); return err },
		"read":   func() error { _, err := os.ReadDir(w.in(string(neighbor))); return err },
		"written": func() error {
			return os.WriteFile(w.beside("root2", string(workflow), "task", "b"), []byte(w.outside), 0o644)
		},
		"created": func() error { return os.Symlink("x", w.in(string(neighbor), "task", "d", "new")) },
		"deleted": func() error { return os.Remove(w.beside(string(workflow), "task", "d", "e", "a")) },
	} {
		if err := touch(); err != nil {
			t.Fatal(err)
		}
		seen := false
		for _, watch := range w.watches {
			seen = slices.ContainsFunc(watch.events(), func(event string) bool { return strings.HasSuffix(event, " was "+what) }) || seen
		}
		if seen != watches {
			t.Errorf("that something was %s is reported: %v", what, seen)
		}
	}
	now, changed := w.picture(), []string{}
	for path := range w.before {
		if now[path] != w.before[path] {
			changed = append(changed, strings.TrimPrefix(path, w.base))
		}
	}
	slices.Sort(changed)
	want := []string{
		"/" + string(workflow) + "/task/d/e", "/" + string(workflow) + "/task/d/e/a",
		"/root/" + string(neighbor) + "/task/d", "/root2/" + string(workflow) + "/task/b",
	}
	if diff := cmp.Diff(want, changed); diff != "" || now[w.in(string(neighbor), "task", "d", "new")] == "" {
		t.Errorf("the pictures differ at (-want +got):\n%s", diff)
	}
}

// What a step's directory may not be made to lead to. Where want is set the step is
// staged, and holds just these files.
func TestStageStaysInItsDirectory(t *testing.T) {
	t.Parallel()
	plain := func(w *world) string { return w.own("task") }
	linked := func(target func(w *world) string, name ...string) func(w *world) {
		return func(w *world) { w.link(target(w), append([]string{string(workflow)}, name...)...) }
	}
	at := func(path ...string) func(w *world) string {
		return func(w *world) string { return w.beside(path...) }
	}
	text := func(target string) func(w *world) string { return func(*world) string { return target } }
	for _, c := range []struct {
		name string
		// plant changes the step's files.
		plant func(w *world)
		// during, when set, does so as soon as the input ref is read, or at the first
		// upload.
		during, uploading func(w *world)
		// directory is what the input says; the step's own when it is nil.
		directory func(w *world) string
		// unasked says that nothing is asked of lakeFS.
		unasked  bool
		want     map[string]bool
		sentence string
	}{
		// Planted before.
		{name: "a link to a file outside", plant: linked(at("outside", "task", "a"), "task", "a"), sentence: "symbolic link"},
		{name: "a link up to a file outside", plant: linked(text("../../../outside/task/a"), "task", "a"), sentence: "symbolic link"},
		{name: "a link to a directory outside", plant: linked(at("outside", "task", "d"), "task", "d"), sentence: "symbolic link"},
		{name: "a link to another workflow's file", plant: linked(text("../../"+string(neighbor)+"/task/a"), "task", "a"), sentence: "symbolic link"},
		{name: "a link to another workflow's directory", plant: linked(at("root", string(neighbor), "task"), "task", "z"), sentence: "symbolic link"},
		{name: "a link to another directory of the workflow", plant: linked(text("../other/d"), "task", "d"), sentence: "symbolic link"},
		{name: "a link to a link to a file outside", plant: func(w *world) {
			w.link(w.beside("outside", "task", "a"), string(workflow), "hop")
			w.link("../hop", string(workflow), "task", "a")
		}, sentence: "symbolic link"},
		{name: "a link to the file system's root", plant: linked(text("/"), "task", "z"), sentence: "symbolic link"},
		{name: "a link to the process's own directory", plant: linked(text("/proc/self/cwd"), "task", "z"), sentence: "symbolic link"},
		{name: "a link to the process's own files", plant: linked(text("/proc/self/fd"), "task", "z"), sentence: "symbolic link"},
		{name: "a link that loops", plant: linked(text(".."), "task", "d", "loop"), sentence: "symbolic link"},
		{name: "a link to itself", plant: linked(text("z"), "task", "z"), sentence: "symbolic link"},
		{name: "two links to each other", plant: func(w *world) {
			w.link("y", string(workflow), "task", "z")
			w.link("z", string(workflow), "task", "y")
		}, sentence: "symbolic link"},
		{name: "a dangling link", plant: linked(text("nowhere"), "task", "z"), sentence: "symbolic link"},
		{name: "a dangling link to outside", plant: linked(at("outside", "new"), "task", "z"), sentence: "symbolic link"},
		{name: "the step's directory is a link to outside", plant: linked(at("outside", "task"), "task"), sentence: "symbolic link"},
		{name: "the step's directory is a link to another workflow's", plant: linked(text("../"+string(neighbor)+"/task"), "task"), sentence: "symbolic link"},
		{name: "the step's directory is a link to another of its own", plant: linked(text("other"), "task"), sentence: "symbolic link"},
		{name: "the workflow's directory is a link to outside", plant: linked(at("outside")), sentence: "symbolic link"},
		{name: "the workflow's directory is a link to another workflow's", plant: linked(text(string(neighbor))), sentence: "symbolic link"},
		{name: "the workflow's directory is a link to one whose name begins alike", plant: linked(text(string(workflow) + "2")), sentence: "symbolic link"},
		{name: "the workflow's directory is a link to the root", plant: linked(text(".")), sentence: "symbolic link"},

		// Hard links are plain files, whatever else they are.
		{name: "a hard link to a file outside", plant: func(w *world) {
			w.write(w.beside("outside", "shared"), "shared")
			if err := errors.Join(os.RemoveAll(w.own("task")), os.Mkdir(w.own("task"), 0o755), os.Link(w.beside("outside", "shared"), w.own("task", "shared"))); err != nil {
				w.t.Fatal(err)
			}
		}, want: map[string]bool{"shared": true}},

		// Planted meanwhile.
		{name: "a file becomes a link after the listing began", during: linked(at("outside", "task", "a"), "task", "a"), sentence: `"a"`},
		{name: "a file becomes a link at the first upload", uploading: linked(at("outside", "task", "f", "b"), "task", "f", "b"), sentence: "f/b"},
		{name: "a directory becomes a link at the first upload", uploading: linked(at("outside", "task", "f"), "task", "f"), sentence: "changed while it was staged"},
		{name: "a directory becomes a link to another workflow's at the first upload", uploading: linked(text("../../"+string(neighbor)+"/task/f"), "task", "f"), sentence: "changed while it was staged"},
		{name: "the step's directory becomes a link at the first upload", uploading: linked(at("outside", "task"), "task"), sentence: "changed while it was staged"},
		{name: "the step's directory becomes another one at the first upload", uploading: func(w *world) {
			if err := errors.Join(os.Rename(w.own("task"), w.own("kept")), os.Rename(w.own("other"), w.own("task"))); err != nil {
				w.t.Error(err)
			}
		}, sentence: "changed while it was staged"},
		{name: "the workflow's directory becomes a link at the first upload", uploading: linked(text(string(neighbor))), sentence: "changed while it was staged"},
		{name: "a file becomes a hard link at the first upload", uploading: func(w *world) {
			if err := errors.Join(os.Remove(w.own("task", "f", "b")), os.Link(w.own("other", "f", "b"), w.own("task", "f", "b"))); err != nil {
				w.t.Error(err)
			}
		}, sentence: "f/b"},

		// Texts. What is refused by its text is refused before lakeFS is asked for anything.
		{name: "..", directory: func(w *world) string { return w.own() + "/task/../../../outside/task" }, unasked: true, sentence: ".. segments"},
		{name: ".. and back", directory: func(w *world) string { return w.own() + "/other/../task" }, unasked: true, sentence: ".. segments"},
		{name: ".. at the end", directory: func(w *world) string { return w.own() + "/task/.." }, unasked: true, sentence: ".. segments"},
		{name: "outside", directory: at("outside", "task"), unasked: true, sentence: "is not below"},
		{name: "beside the root", directory: at("root2", string(workflow), "task"), unasked: true, sentence: "is not below"},
		{name: "without the root", directory: at(string(workflow), "task"), unasked: true, sentence: "is not below"},
		{name: "another workflow's", directory: at("root", string(neighbor), "task"), unasked: true, sentence: "is not below"},
		{name: "a workflow's whose name begins alike", directory: at("root", string(workflow)+"2", "task"), unasked: true, sentence: "is not below"},
		{name: "the workflow's own directory", directory: at("root", string(workflow)), unasked: true, sentence: "is not below"},
		{name: "the workflow's own directory with a slash", directory: func(w *world) string { return w.own() + "/" }, unasked: true, sentence: "is not below"},
		{name: "the root", directory: at("root"), unasked: true, sentence: "is not below"},
		{name: "the file system's root", directory: text("/"), unasked: true, sentence: "source.directory"},
		{name: "two slashes", directory: func(w *world) string { return w.own() + "//task" }, unasked: true, sentence: "empty"},
		{name: "two slashes first", directory: func(w *world) string { return "/" + w.own("task") }, unasked: true, sentence: "empty"},
		{name: "a dot", directory: func(w *world) string { return w.own() + "/./task" }, unasked: true, sentence: ". or .."},
		{name: "a dot at the end", directory: func(w *world) string { return w.own() + "/task/." }, unasked: true, sentence: ". or .."},
		{name: "a NUL", directory: func(w *world) string { return w.own() + "/task\x00/../../outside" }, unasked: true, sentence: "source.directory"},
		{name: "relative", directory: text("task"), unasked: true, sentence: "not an absolute path"},
		{name: "relative and up", directory: text("../outside/task"), unasked: true, sentence: "not an absolute path"},
		{name: "a home", directory: text("~/outside"), unasked: true, sentence: "not an absolute path"},
		{name: "a URL", directory: func(w *world) string { return "file://" + w.beside("outside", "task") }, unasked: true, sentence: "not an absolute path"},
		{name: "backslashes", directory: func(w *world) string { return w.root + `\` + string(workflow) + `\task` }, unasked: true, sentence: "is not below"},
		{name: "nothing", directory: text(""), unasked: true, sentence: "is empty"},
		{name: "a backslash is a letter like any other", directory: func(w *world) string { return w.own() + `/..\..\outside\task` }, sentence: "does not exist"},
		{name: "so is a percent sign", directory: func(w *world) string { return w.own() + "/%2e%2e/%2e%2e/outside/task" }, sentence: "does not exist"},
		{name: "what is not UTF-8 is another name", directory: func(w *world) string { return w.own() + "/\xff\xfe" }, sentence: "does not exist"},
		{name: "a slash at the end", directory: func(w *world) string { return w.own("task") + "/" }, want: all(files)},
		{name: "a missing one", directory: func(w *world) string { return w.own("missing") }, sentence: "does not exist"},
		{name: "a file", directory: func(w *world) string { return w.own("task", "a") }, sentence: "not a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{"data/old": "1", "data2/x": "1", "data.json": "1"})
			if c.plant != nil {
				c.plant(w)
			}
			w.guard()
			w.wire.meets = once(func(r *http.Request) bool {
				plant := c.during
				if c.uploading != nil {
					plant = c.uploading
				}
				if plant == nil || (c.uploading != nil && !(r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/branches"))) {
					return false
				}
				plant(w)
				return true
			})
			directory := plain
			if c.directory != nil {
				directory = c.directory
			}
			result, err := w.stage(directory(w), nil)
			w.intact(c.name)
			if c.want != nil {
				if err != nil {
					t.Fatal(err)
				}
				staged := map[string]bool{}
				for path := range lakefstest.Tree(t, w.lake, w.repo, result.Staged.Commit) {
					if name, ok := strings.CutPrefix(path, "data/"); ok {
						staged[name] = true
					}
				}
				if diff := cmp.Diff(c.want, staged); diff != "" {
					t.Errorf("staged (-want +got):\n%s", diff)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.sentence) || result.Output() != nil {
				t.Errorf("got %v, output %v; want %q", err, result.Output(), c.sentence)
			}
			if sent := w.wire.count(""); c.unasked && sent != 0 {
				t.Errorf("%d requests, want none", sent)
			}
			if c.uploading == nil && w.wire.writes() != 0 {
				t.Errorf("%d writes, want none", w.wire.writes())
			}
		})
	}
}

func all(names []string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// once asks until it has been answered with true. It answers no request itself.
func once(meets func(*http.Request) bool) func(*http.Request) *http.Response {
	var mu sync.Mutex
	done := false
	return func(r *http.Request) *http.Response {
		mu.Lock()
		defer mu.Unlock()
		done = done || meets(r)
		return nil
	}
}

// Ids are Conductor's, and still no way out: one that is no name leads nowhere.
func TestWorkflowsWhoseIdsAreNoNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		id        txn.WorkflowID
		directory []string
	}{
		{"", []string{"root", string(neighbor), "task"}},
		{".", []string{"root", string(neighbor), "task"}},
		{"..", []string{"outside", "task"}},
		{neighbor + "/task", []string{"root", string(neighbor), "task", "d"}},
		{"../root/" + neighbor, []string{"root", string(neighbor), "task"}},
		{"../outside", []string{"outside", "task"}},
	} {
		t.Run(strings.ReplaceAll(string(c.id), "/", "|"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{"data/a": "1"})
			w.guard()
			result, err := w.stageOf(c.id, w.beside(c.directory...), nil)
			if err == nil || result.Output() != nil || w.wire.writes() != 0 {
				t.Errorf("stage: %v, output %v", err, result.Output())
			}
			downloaded, err := w.downloader.Run(t.Context(), w.task(c.id, txn.TypeCheckout, map[string]any{}), attempt{})
			w.tell(downloaded.Output(), err)
			if err == nil || downloaded.Output() != nil {
				t.Errorf("checkout: %v, output %v", err, downloaded.Output())
			}
			w.intact(string(c.id))
		})
	}
}

// A prefix is a part of the repository by its whole segments, and what is no such
// part is refused before lakeFS is asked for anything.
func TestStageStaysInItsPrefix(t *testing.T) {
	t.Parallel()
	beside := map[string]string{
		"data": "1", "data.json": "1", "data2/a": "1", "dat/a": "1", "a": "1", "d/a": "1", "_lakefs_actions/x.yaml": "1", "_lakefs_actions2/a": "1", "data//a": "1", "data/../a": "1", "/data/a": "1",
	}
	for prefix, refused := range map[string]bool{
		"data": false, "data/": false,
		"": true, "/": true, "null": true, "data/null": true, "data/day=": true, "day=/x": true, "data/day=null": true,
		"..": true, "../": true, "data/..": true, "data/../data2": true, "/data": true, "//": true, "data//": true, "data//a": true, "./data": true, "data/.": true, "data/./a": true,
		"data\x00": true, "_lakefs_actions": true, "_lakefs_actions/": true, "_lakefs_actions/sub": true, strings.Repeat("x", 1025): true,
		`..\data2`: false, "%2e%2e": false, "_lakefs_actions2": false,
	} {
		t.Run(strings.ReplaceAll(prefix[:min(len(prefix), 20)], "/", "|"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, beside)
			w.guard()
			result, err := w.stage(w.own("task"), map[string]any{"prefix": prefix})
			w.intact(prefix)
			if refused {
				if !errors.As(err, new(*txn.TerminalError)) || w.wire.count("") != 0 {
					t.Errorf("got %v after %d requests, want it refused before any", err, w.wire.count(""))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want, own := map[string]string{}, strings.TrimSuffix(prefix, "/")+"/"
			for path, content := range beside {
				if !strings.HasPrefix(path, own) {
					want[path] = content
				}
			}
			for _, name := range files {
				want[own+name] = w.inside
			}
			if diff := cmp.Diff(want, lakefstest.Tree(t, w.lake, w.repo, result.Staged.Commit)); diff != "" {
				t.Errorf("the staged tree (-want +got):\n%s", diff)
			}
		})
	}
}

// The root itself may be moved away under a worker that runs: it works on in the
// directory that it has opened, wherever the name leads by then.
func TestRootThatIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"data/a": "1"})
	moved := w.beside("moved")
	swap := func() {
		if err := errors.Join(os.Rename(w.root, moved), os.Symlink("outside", w.root)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(w.beside("outside", string(ended)), 0o755); err != nil {
		t.Fatal(err)
	}
	w.write(w.beside("outside", string(workflow), "task", "a"), w.outside)
	w.write(w.in(string(ended), "task", "a"), w.others)
	w.guard()
	swap()
	_, staged := w.stage(w.own("task"), nil)
	_, checked := w.checkout()
	swept := w.sweep()
	if err := errors.Join(os.Remove(w.root), os.Rename(moved, w.root)); err != nil {
		t.Fatal(err)
	}
	w.intact("the root is another one")
	if staged != nil || checked != nil || swept.Deleted != 1 {
		t.Errorf("%v, %v, %+v", staged, checked, swept)
	}
	if _, err := os.Stat(w.in(string(ended))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the ended workflow's directory: %v", err)
	}
	if left, err := filepath.Glob(w.own("checkout-*", "a")); err != nil || len(left) != 1 {
		t.Errorf("checked out %q, %v", left, err)
	}
}

// Bytes of an input that are not UTF-8 lead to no file of another name.
func TestInputThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"data/old": "1"})
	w.write(w.own("\xff", "a"), w.elsewhere)
	w.guard()
	task := w.task(workflow, txn.TypeStage, map[string]any{"source": map[string]any{"directory": w.own("BYTE")}})
	task.Input = json.RawMessage(strings.Replace(string(task.Input), "BYTE", "\xff", 1))
	result, err := w.stager.Run(t.Context(), task, attempt{})
	w.tell(result.Output(), err)
	w.intact("a byte that is not UTF-8")
	if err == nil || w.wire.writes() != 0 {
		t.Errorf("%v after %d writes", err, w.wire.writes())
	}
}
