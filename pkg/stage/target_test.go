package stage_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"perago/pkg/fence"
	"perago/pkg/txn"
)

// What publish would refuse after the upload is refused before the first byte, and
// costs one read of the branch and one of the hook file.
func TestStage_RefusesATargetThatCannotBePublishedTo(t *testing.T) {
	t.Parallel()
	known := string(fence.File())
	for _, c := range []struct {
		name string
		// held is the action file of the input ref; "" is none.
		held            string
		require         bool
		branch          txn.Branch
		field, sentence string
		files           int
	}{
		{name: "no such branch", branch: "mian", field: "workspace.branch", sentence: "holds no branch mian; correct the name, or create the branch, and start a new workflow"},
		{name: "no such branch, and the fence is required", branch: "mian", require: true, held: known, field: "workspace.branch", sentence: "holds no branch mian"},
		{name: "no fence", branch: "main", require: true, field: "workspace.ref", sentence: " holds no _lakefs_actions/perago-publish-fence.yaml, and PERAGO_REQUIRE_HARD_FENCE is set; run `perago fence install lakefs://", files: 1},
		{name: "another fence", branch: "main", require: true, held: known + "# edited\n", field: "workspace.ref", sentence: "is not the one that this version knows", files: 2},
		{name: "an older fence", branch: "main", require: true, held: strings.Replace(known, "version", "Version", 1), field: "workspace.ref", sentence: "is not the one that this version knows", files: 2},
		{name: "the fence", branch: "main", require: true, held: known, files: 1},
		{name: "no fence, and none is required", branch: "main"},
	} {
		for source, more := range map[string]map[string]any{
			"a directory":         nil,
			"an import":           {"source": map[string]any{"import": "local://" + t.TempDir() + "/"}, "allow_empty": true},
			"a change of nothing": {"allow_empty": true, "prefix": "empty/"},
		} {
			t.Run(c.name+"/"+source, func(t *testing.T) {
				t.Parallel()
				files := map[string]string{"data/a": "1"}
				if c.held != "" {
					files[txn.FenceFile] = c.held
				}
				b := newBench(t, files)
				b.stager.RequireHardFence, b.stager.FenceFile, b.stager.AllowedImports = c.require, []byte(known), txn.ImportList{"*"}
				content := map[string]string{"a": "2"}
				if source == "a change of nothing" {
					content = nil
				}
				directory := b.write(content)
				all := map[string]any{"workspace": txn.Workspace{Repository: b.repo, Branch: c.branch, RefType: "commit", Ref: b.first}}
				for name, value := range more {
					all[name] = value
				}
				result, err := b.stager.Run(t.Context(), b.task(directory, all), &attempt{})
				if n := b.wire.count(http.MethodGet, "/branches/"+string(c.branch)); n != 1 {
					t.Errorf("the branch was read %d times, want once", n)
				}
				if n := b.wire.count(http.MethodGet, "/objects"); n != c.files {
					t.Errorf("the hook file was read %d times, want %d", n, c.files)
				}
				if c.sentence == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				var terminal *txn.TerminalError
				if !errors.As(err, &terminal) || terminal.Field != c.field || !strings.Contains(err.Error(), c.sentence) || result.Output() != nil {
					t.Errorf("got %v, output %v; want %s with %q", err, result.Output(), c.field, c.sentence)
				}
				if n := b.wire.writes() + b.wire.count(http.MethodGet, "/objects/ls"); n != 0 {
					t.Errorf("%d writes and listings, want none", n)
				}
			})
		}
	}
}

// A read that fails is no word about the branch, and a read-only step needs none.
func TestStage_TargetThatCannotBeReadIsNoRefusal(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"data/a": "1"})
	next := b.wire.next
	b.wire.next = roundTripper(func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/branches/main") {
			return nil, errors.New("connection refused")
		}
		return next.RoundTrip(r)
	})
	_, err := b.stager.Run(t.Context(), b.task(b.write(map[string]string{"a": "2"}), nil), &attempt{})
	if !errors.Is(err, txn.ErrRetryable) || errors.As(err, new(*txn.TerminalError)) || b.wire.writes() != 0 {
		t.Errorf("got %v after %d writes", err, b.wire.writes())
	}
	task := b.task("", map[string]any{"read_only": true, "source": nil})
	task.Input = []byte(strings.Replace(string(task.Input), `"source":null,`, "", 1))
	if _, err := b.stager.Run(t.Context(), task, &attempt{}); err != nil {
		t.Errorf("a read-only step: %v", err)
	}
}

// One garbled answer is no word about the hook file: the task would end for good.
func TestStage_AGarbledHookFileIsReadAgain(t *testing.T) {
	t.Parallel()
	known := string(fence.File())
	for _, c := range []struct {
		name    string
		answers []string // in place of the first readings
		failed  bool
	}{
		{"once", []string{"<html>"}, false},
		{"in two ways", []string{"<html>", ""}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, map[string]string{"data/a": "1", txn.FenceFile: known})
			b.stager.RequireHardFence, b.stager.FenceFile = true, []byte(known)
			next, answers := b.wire.next, c.answers
			b.wire.next = roundTripper(func(r *http.Request) (*http.Response, error) {
				response, err := next.RoundTrip(r)
				if err == nil && len(answers) > 0 && strings.HasSuffix(r.URL.Path, "/objects") {
					response.Body.Close()
					response.Body, response.ContentLength = io.NopCloser(strings.NewReader(answers[0])), int64(len(answers[0]))
					answers = answers[1:]
				}
				return response, err
			})
			_, err := b.stager.Run(t.Context(), b.task(b.write(map[string]string{"a": "2"}), nil), &attempt{})
			if (err != nil) != c.failed || errors.As(err, new(*txn.TerminalError)) || len(answers) > 0 {
				t.Errorf("%v, %d answers left; want it failed: %v", err, len(answers), c.failed)
			}
		})
	}
}
