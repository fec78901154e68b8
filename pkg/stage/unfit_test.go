package stage_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/stage"
	"perago/pkg/txn"
)

// An import of objects that a checkout of ours would refuse is refused, by the key,
// and nothing is put out that a publish could take.
func TestStage_RefusesImportsThatNoCheckoutCouldDownload(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// keys are what the object store holds below the imported prefix.
		keys     []string
		unfit    string
		sentence string
	}{
		"the marker of the folder itself": {[]string{"", "a"}, "", "is empty"},
		"the marker of a folder below":    {[]string{"a", "sub/", "sub/b"}, "sub/", "empty segment"},
		"two slashes":                     {[]string{"a", "sub//b"}, "sub//b", "empty segment"},
		"a way out":                       {[]string{"../b", "a"}, "../b", "segment .."},
		"a dot":                           {[]string{"./b"}, "./b", "segment ."},
		"an object that is a folder too":  {[]string{"a", "a.b", "a/b"}, "a/b", `"a" is an object too`},
		"a name that is too long":         {[]string{strings.Repeat("n", 256)}, strings.Repeat("n", 256), "more than the 255"},
		"a NUL":                           {[]string{"a\x00b"}, "a\x00b", "NUL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, map[string]string{"data/old": "1"})
			uri := b.store(map[string]string{"x": "x"})
			// A file system has no such names, so the import's commit gets them here.
			held := map[string]string{}
			for _, key := range c.keys {
				held["data/"+key] = ""
			}
			b.stager.Lake = importing{b.stager.Lake, b, held}
			result, err := b.stager.Run(t.Context(), b.importTask(uri, nil), &attempt{})
			var terminal *txn.TerminalError
			if !errors.As(err, &terminal) || !strings.HasPrefix(err.Error(), "source.import: ") || terminal.Field != "source.import" || !strings.Contains(err.Error(), fmt.Sprintf("holds the object %q", c.unfit)) || !strings.Contains(err.Error(), c.sentence) || result.Output() != nil {
				t.Errorf("got %v, output %v", err, result.Output())
			}
		})
	}
}

// A directory that is missing is named with the host that looked for it and the task's
// domain: it may have been written on another one.
func TestStage_MissingDirectoryNamesHostAndDomain(t *testing.T) {
	t.Parallel()
	for domain, want := range map[string]string{
		"host-a": "does not exist: \"" + string(workflow) + "/gone\" on host worker-7, where this task of domain host-a came to; was it written on another host?",
		"":       "on host worker-7, where this task without a domain came to; was it written on another host?",
	} {
		b := newBench(t, map[string]string{"data/a": "1"})
		b.stager.Host = "worker-7"
		task := b.task(filepath.Join(b.root, string(workflow), "gone"), nil)
		task.Domain = domain
		_, err := b.stager.Run(t.Context(), task, &attempt{})
		if err == nil || !strings.Contains(err.Error(), want) || errors.As(err, new(*txn.TerminalError)) {
			t.Errorf("domain %q: got %v, want %q", domain, err, want)
		}
		if n := b.wire.count(http.MethodPost, ""); n != 0 {
			t.Errorf("%d writes", n)
		}
	}
}

// importing is a lake whose imports bring these objects.
type importing struct {
	stage.Lake
	b    *bench
	held map[string]string
}

func (l importing) Import(ctx context.Context, repository txn.Repository, branch txn.Branch, _ txn.ImportSource, destination txn.Prefix, message string, metadata map[string]string) (txn.Commit, error) {
	if err := l.b.lake.DeleteObjects(ctx, repository, branch, []string{string(destination) + "old"}); err != nil {
		return txn.Commit{}, err
	}
	lakefstest.Put(l.b.t, l.b.lake, repository, branch, l.held)
	return l.b.lake.CreateCommit(ctx, repository, branch, message, metadata)
}
