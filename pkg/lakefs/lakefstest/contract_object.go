package lakefstest

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"perago/pkg/txn"
)

func (s *suite) upload() {
	repo, first := NewRepository(s, s.client, nil)
	s.branch(repo, "b", first)
	for path, text := range map[string]string{"some": "some bytes\x00\xff", "none": ""} {
		got, err := s.client.Upload(s.Context(), repo, "b", path, Text(text))
		s.no(err)
		sum := md5.Sum([]byte(text))
		s.equal(got, txn.Object{Path: path, Size: int64(len(text)), Checksum: hex.EncodeToString(sum[:])})
	}
	commit, err := s.client.CreateCommit(s.Context(), repo, "b", "m", nil)
	s.no(err)
	s.equal(Tree(s, s.client, repo, commit.ID), map[string]string{"some": "some bytes\x00\xff", "none": ""})
	for object, err := range s.client.Objects(s.Context(), repo, commit.ID, "none") {
		s.no(err)
		s.equal(object, txn.Object{Path: "none", Size: 0, Checksum: "d41d8cd98f00b204e9800998ecf8427e"})
	}
}

func (s *suite) paths() {
	repo, first := NewRepository(s, s.client, nil)
	files := map[string]string{}
	for _, path := range []string{
		"sp ace", "pl+us", "pc%41", "100%.csv", "h#x", "q?x", "a&b", "a;b", "col=1/x", "тест/данные", "emo😀", " lead", "trail ",
		"it's", `qu"ote`, `back\slash`, "com,ma", "col:on", "st*r", "{b}", "$d", "@at", "tilde~1", "new\nline", "tab\t", ".hidden",
		"e\u0301", "\u00e9", "d/.../x",
	} {
		files[path] = "content of " + path
	}
	commit := s.on(repo, "b", first, files)
	s.equal(Tree(s, s.client, repo, commit.ID), files)
	// Each alone as a prefix, which is escaped the same way.
	for path := range files {
		var got []string
		for object, err := range s.client.Objects(s.Context(), repo, commit.ID, txn.Prefix(path)) {
			s.no(err)
			got = append(got, object.Path)
		}
		if !slices.Contains(got, path) {
			s.Errorf("the listing of %q has %q", path, got)
		}
	}
	// And each is found to be removed.
	paths := slices.Sorted(maps.Keys(files))
	s.no(s.client.DeleteObjects(s.Context(), repo, "b", paths[1:]))
	rest, err := s.client.CreateCommit(s.Context(), repo, "b", "all but one", nil)
	s.no(err)
	s.equal(Tree(s, s.client, repo, rest.ID), map[string]string{paths[0]: files[paths[0]]})
}

func (s *suite) hostilePaths() {
	repo, first := NewRepository(s, s.client, nil)
	files := map[string]string{}
	for _, path := range []string{"a/../b", "/abs", "a//b", "d/", "./x", "..", "nul\x00x"} {
		files[path] = "content of " + path
	}
	commit := s.on(repo, "b", first, files)
	s.equal(Tree(s, s.client, repo, commit.ID), files)
	// A name that is not UTF-8 is taken too, but shown as another one; the client
	// refuses to write it.
	s.status(201, `bad\ufffd`, "POST", at(repo, "/branches/b/objects"), url.Values{"path": {"bad\xff"}}, "x")
	if _, err := s.client.Upload(s.Context(), repo, "b", "bad\xff", Text("x")); !errors.Is(err, txn.ErrRefused) {
		s.Errorf("upload of a path that is not UTF-8: %v", err)
	}
}

func (s *suite) longPaths() {
	repo, first := NewRepository(s, s.client, nil)
	s.branch(repo, "b", first)
	for path, fits := range map[string]bool{
		strings.Repeat("a", 1024): true, strings.Repeat("a", 1025): false,
		strings.Repeat("é", 512): true, strings.Repeat("é", 513): false,
	} {
		_, err := s.client.Upload(s.Context(), repo, "b", path, Text("x"))
		if fits != (err == nil) || err != nil && !errors.Is(err, txn.ErrRefused) {
			s.Errorf("a path of %d bytes: %v", len(path), err)
		}
	}
}

func (s *suite) uploadMissing() {
	repo, _ := NewRepository(s, s.client, nil)
	s.refused(second(s.client.Upload(s.Context(), repo, "missing", "x", Text("x"))), txn.ErrNotFound)
}

func (s *suite) pages() {
	repo, first := NewRepository(s, s.client, nil)
	s.branch(repo, "b", first)
	const count = 1050
	paths := make([]string, count)
	for i := range paths {
		// Escaping matters in the token between two pages as well.
		paths[i] = "p/" + strconv.Itoa(i) + " +%41&é"
	}
	s.parallel(16, count, func(i int) error {
		return second(s.client.Upload(s.Context(), repo, "b", paths[i], Text("x")))
	})
	commit, err := s.client.CreateCommit(s.Context(), repo, "b", "many", nil)
	s.no(err)
	slices.Sort(paths)
	list := func(commit txn.CommitID) (got []string) {
		for object, err := range s.client.Objects(s.Context(), repo, commit, "p/") {
			s.no(err)
			got = append(got, object.Path)
		}
		return got
	}
	s.equal(list(commit.ID), paths)
	// More paths than one bulk delete takes.
	s.no(s.client.DeleteObjects(s.Context(), repo, "b", paths[5:]))
	rest, err := s.client.CreateCommit(s.Context(), repo, "b", "few", nil)
	s.no(err)
	s.equal(list(rest.ID), paths[:5])
}

func (s *suite) parallel(workers, count int, do func(i int) error) {
	s.Helper()
	var wait sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		wait.Go(func() {
			for i := w; i < count && errs[w] == nil; i += workers {
				errs[w] = do(i)
			}
		})
	}
	wait.Wait()
	s.no(errors.Join(errs...))
}

func (s *suite) prefix() {
	repo, first := NewRepository(s, s.client, map[string]string{"data/a": "1", "data.json": "2", "data2/z": "3", "other": "4"})
	for prefix, want := range map[txn.Prefix][]string{
		"": {"data.json", "data/a", "data2/z", "other"}, "data": {"data.json", "data/a", "data2/z"}, "data/": {"data/a"}, "nothing": nil,
	} {
		var got []string
		for object, err := range s.client.Objects(s.Context(), repo, first, prefix) {
			s.no(err)
			got = append(got, object.Path)
		}
		s.equal(got, want)
	}
}

func (s *suite) listingOfCommit() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	s.branch(repo, "b", first)
	Put(s, s.client, repo, "b", map[string]string{"b": "2"})
	s.equal(Tree(s, s.client, repo, first), map[string]string{"a": "1"})
	for _, err := range s.client.Objects(s.Context(), repo, txn.CommitID(strings.Repeat("0", 64)), "") {
		s.refused(err, txn.ErrNotFound)
	}
}

func (s *suite) objectMissing() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1"})
	s.refused(second(s.client.ReadObject(s.Context(), repo, first, "missing")), txn.ErrNotFound)
}

func (s *suite) bulkDelete() {
	repo, first := NewRepository(s, s.client, map[string]string{"a": "1", "b": "2"})
	s.branch(repo, "b", first)
	paths := make([]string, 1001)
	for i := range paths {
		paths[i] = strconv.Itoa(i)
	}
	s.status(400, "1000", "POST", at(repo, "/branches/b/objects/delete"), nil, object{"paths": paths})
	s.status(200, `"errors":[]`, "POST", at(repo, "/branches/b/objects/delete"), nil, object{"paths": append(paths[:999], "a")})
	commit, err := s.client.CreateCommit(s.Context(), repo, "b", "m", nil)
	s.no(err)
	s.equal(Tree(s, s.client, repo, commit.ID), map[string]string{"b": "2"})
}

func (s *suite) bulkDeleteMissing() {
	repo, _ := NewRepository(s, s.client, nil)
	// So a bulk delete that succeeds proves nothing about the branch.
	s.no(s.client.DeleteObjects(s.Context(), repo, "missing", []string{"a"}))
	s.no(s.client.DeleteObjects(s.Context(), NewName(s), "missing", []string{"a"}))
}
