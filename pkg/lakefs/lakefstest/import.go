package lakefstest

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// imported is what became of an import. The first look at it finds it at work.
type imported struct {
	looked bool
	result map[string]any
}

// startImport imports from local://<absolute path>/, as lakeFS does on its local
// store: names that begin with a dot are left out.
func (s *Server) startImport(request *http.Request, body []byte) (answer, *refuse) {
	r, b, refused := s.branch(request)
	if refused != nil {
		return answer{}, refused
	}
	in, refused := parse[struct {
		Paths []struct {
			Path        string `json:"path"`
			Destination string `json:"destination"`
			Type        string `json:"type"`
		} `json:"paths"`
		Commit struct {
			Message  string            `json:"message"`
			Metadata map[string]string `json:"metadata"`
		} `json:"commit"`
	}](body)
	if refused != nil {
		return answer{}, refused
	}
	if len(in.Paths) != 1 || in.Paths[0].Type != "common_prefix" {
		return answer{}, refusef(http.StatusNotImplemented, "the memory server imports one prefix")
	}
	from := in.Paths[0]
	if strings.HasPrefix(from.Path, r.namespace) || strings.HasPrefix(r.namespace, from.Path) {
		return answer{}, refusef(http.StatusBadRequest, "import path (%s) in repository namespace (%s) is prohibited", from.Path, r.namespace)
	}
	s.runs++
	id := fmt.Sprintf("import-%d", s.runs)
	entries, err := s.localEntries(from.Path)
	if err != nil {
		s.imports[id] = &imported{result: map[string]any{
			"completed": false, "update_time": time.Now(), "error": map[string]string{"message": "import error: error on ingest: " + err.Error()},
		}}
		return answer{http.StatusAccepted, map[string]string{"id": id}}, nil
	}
	next := map[string]*entry{}
	for path, e := range r.trees[r.commits[b.head].MetaRangeID].entries {
		// By the text alone: data also replaces data2/.
		if !strings.HasPrefix(path, from.Destination) {
			next[path] = e
		}
	}
	for path, e := range entries {
		next[from.Destination+path] = e
	}
	metadata := map[string]string{".lakefs.merge.strategy": "source-wins"}
	for key, value := range in.Commit.Metadata {
		metadata[key] = value
	}
	c := r.add(commit{
		Parents: []string{b.head}, Message: in.Commit.Message, Metadata: metadata, CreationDate: time.Now().Unix(), Committer: "memory",
		MetaRangeID: r.keep(newTree(next)).id,
	})
	b.head = c.ID
	s.imports[id] = &imported{result: map[string]any{
		"completed": true, "update_time": time.Now(), "ingested_objects": len(entries), "metarange_id": c.MetaRangeID, "commit": c,
	}}
	return answer{http.StatusAccepted, map[string]string{"id": id}}, nil
}

func (s *Server) importStatus(request *http.Request, _ []byte) (answer, *refuse) {
	if _, refused := s.repository(request); refused != nil {
		return answer{}, refused
	}
	found := s.imports[request.URL.Query().Get("id")]
	switch {
	case found == nil:
		return answer{}, refusef(http.StatusNotFound, "not found")
	case !found.looked:
		found.looked = true
		return answer{http.StatusOK, map[string]any{"completed": false, "update_time": found.result["update_time"], "ingested_objects": 0}}, nil
	}
	return answer{http.StatusOK, found.result}, nil
}

// localEntries are the files below a local prefix. Two imports of the same file
// are the same object.
func (s *Server) localEntries(uri string) (map[string]*entry, error) {
	directory, ok := strings.CutPrefix(uri, "local://")
	if !ok {
		return nil, fmt.Errorf("creating object-store walker on path %s: expected storage type local: invalid address", uri)
	}
	all := map[string]*entry{}
	err := filepath.WalkDir(directory, func(path string, found fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != directory && strings.HasPrefix(found.Name(), "."):
			if found.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case found.IsDir():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(directory, path)
		all[filepath.ToSlash(name)] = &entry{data: data, checksum: s.etag(data), address: "local://" + path, modified: time.Now().Unix()}
		return err
	})
	return all, err
}
