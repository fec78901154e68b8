package lakefstest

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"perago/pkg/txn"
)

// store writes files where lakeFS can import from, and gives the URI of their
// directory.
func (s *suite) store(files map[string]string) txn.ImportSource {
	s.Helper()
	directory, err := os.MkdirTemp(s.subject.ImportDirectory, "contract")
	s.no(err)
	s.Cleanup(func() { s.no(os.RemoveAll(directory)) })
	for name, content := range files {
		full := filepath.Join(directory, name)
		s.no(os.MkdirAll(filepath.Dir(full), 0o755))
		s.no(os.WriteFile(full, []byte(content), 0o644))
	}
	return txn.ImportSource("local://" + directory + "/")
}

func (s *suite) imports() {
	repo, first := NewRepository(s, s.client, map[string]string{"data/old": "o", "data": "a file", "data.json": "j", "data2/z": "z"})
	s.branch(repo, "b", first)
	source := s.store(map[string]string{"a": "one", "sub/b": "two", "zero": "", "sp ace%41+é": "x"})
	commit, err := s.client.Import(s.Context(), repo, "b", source, "data/", "imported", map[string]string{"k": "v"})
	s.no(err)
	s.equal(commit.Parents, []txn.CommitID{first})
	s.equal([]any{commit.Message, commit.Metadata["k"]}, []any{"imported", "v"})
	s.equal(s.head(repo, "b"), commit.ID)
	s.equal(s.head(repo, DefaultBranch), first)
	s.equal(s.read(repo, commit.ID), commit)
	s.equal(Tree(s, s.client, repo, commit.ID), map[string]string{
		"data": "a file", "data.json": "j", "data2/z": "z", "data/a": "one", "data/sub/b": "two", "data/zero": "", "data/sp ace%41+é": "x",
	})
	_, err = s.client.Import(s.Context(), repo, "no-such-branch", source, "data/", "m", nil)
	s.refused(err, txn.ErrNotFound)
}

func (s *suite) importUnchanged() {
	repo, first := NewRepository(s, s.client, nil)
	source := s.store(map[string]string{"a": "one", "sub/b": "two"})
	var trees []txn.MetaRangeID
	for _, name := range []txn.Branch{"b1", "b2"} {
		s.branch(repo, name, first)
		commit, err := s.client.Import(s.Context(), repo, name, source, "data/", "m", map[string]string{"branch": string(name)})
		s.no(err)
		trees = append(trees, commit.MetaRange)
	}
	s.equal(trees[1], trees[0])
	again, err := s.client.Import(s.Context(), repo, "b1", source, "data/", "again", nil)
	s.no(err)
	s.equal(again.MetaRange, trees[0])
}

func (s *suite) importSiblings() {
	repo, first := NewRepository(s, s.client, map[string]string{"w2/z": "z", "v": "v"})
	s.branch(repo, "b", first)
	source := s.store(map[string]string{"a": "one"})
	var started struct {
		ID string `json:"id"`
	}
	answer := s.status(202, "id", "POST", at(repo, "/branches/b/import"), nil, object{
		"paths":  []object{{"path": source, "destination": "w", "type": "common_prefix"}},
		"commit": object{"message": "m"},
	})
	s.no(json.Unmarshal([]byte(answer), &started))
	for {
		status := s.status(200, "", "GET", at(repo, "/branches/b/import"), url.Values{"id": {started.ID}}, nil)
		if strings.Contains(status, `"completed":true`) {
			break
		}
		if strings.Contains(status, `"error"`) || s.Context().Err() != nil {
			s.Fatal(status)
		}
		time.Sleep(50 * time.Millisecond) // the pace of asking
	}
	tree := Tree(s, s.client, repo, s.head(repo, "b"))
	if _, there := tree["w2/z"]; there || tree["v"] != "v" {
		s.Fatalf("%q", tree)
	}
	// So the client refuses it.
	_, err := s.client.Import(s.Context(), repo, "b", source, "w", "m", nil)
	if err == nil {
		s.Fatal("imported into a destination without its slash")
	}
}

func (s *suite) importHidden() {
	repo, first := NewRepository(s, s.client, nil)
	s.branch(repo, "b", first)
	commit, err := s.client.Import(s.Context(), repo, "b", s.store(map[string]string{"a": "one", ".hidden": "h", ".dir/x": "x", "sub/.y": "y"}), "data/", "m", nil)
	s.no(err)
	s.equal(Tree(s, s.client, repo, commit.ID), map[string]string{"data/a": "one"})
}

func (s *suite) importErrors() {
	repo, first := NewRepository(s, s.client, map[string]string{"data/a": "1"})
	s.branch(repo, "b", first)
	for source, part := range map[txn.ImportSource]string{
		s.store(nil) + "missing/": "no such file or directory",
		"s3://bucket/path/":       "expected storage type local",
	} {
		_, err := s.client.Import(s.Context(), repo, "b", source, "data/", "m", nil)
		s.refused(err, txn.ErrRefused)
		if !strings.Contains(err.Error(), part) {
			s.Fatalf("%v does not say %q", err, part)
		}
	}
	_, err := s.client.Import(s.Context(), repo, "b", txn.ImportSource("local://"+string(repo)+"/x/"), "data/", "m", nil)
	s.refused(err, txn.ErrRefused)
	s.equal(s.head(repo, "b"), first)
	// Nothing below the prefix is no error, and empties it.
	commit, err := s.client.Import(s.Context(), repo, "b", s.store(nil), "data/", "m", nil)
	s.no(err)
	s.equal(len(Tree(s, s.client, repo, commit.ID)), 0)
}

// stats shows by what an object that lakeFS wrote is told from an imported one.
func (s *suite) stats() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "one"})
	s.branch(repo, "b", first)
	source := s.store(map[string]string{"b": "two"})
	commit, err := s.client.Import(s.Context(), repo, "b", source, "data/", "m", nil)
	s.no(err)
	for path, want := range map[string]bool{"a": true, "data/b": false} {
		stat := s.status(200, "physical_address", "GET", at(repo, "/refs/%s/objects/stat", commit.ID), url.Values{"path": {path}}, nil)
		if own := regexp.MustCompile(`"physical_address":"[^"]*/data/[0-9a-v]{20}/[0-9a-v]{20}"`).MatchString(stat); own != want {
			s.Fatal(stat)
		}
		for object, err := range s.client.Objects(s.Context(), repo, commit.ID, txn.Prefix(path)) {
			s.no(err)
			known, err := s.client.MD5Known(s.Context(), repo, commit.ID, object)
			s.no(err)
			s.equal(known, want)
			object.Checksum = strings.Repeat("0", 32)
			if _, err := s.client.MD5Known(s.Context(), repo, commit.ID, object); err == nil {
				s.Fatal("an object of another checksum is the same")
			}
		}
	}
	s.refused(second(s.client.MD5Known(s.Context(), repo, commit.ID, txn.Object{Path: "no", Checksum: "x"})), txn.ErrNotFound)
}
