package lakefstest

import (
	"maps"
	"net/http"
	"slices"
)

// retention is the garbage collection rules of a repository, and their JSON form.
type retention struct {
	Default  int             `json:"default_retention_days"`
	Branches []retentionRule `json:"branches"`
}

type retentionRule struct {
	Branch string `json:"branch_id"`
	Days   int    `json:"retention_days"`
}

func (s *Server) getRetention(request *http.Request, _ []byte) (answer, *refuse) {
	r, refused := s.repository(request)
	switch {
	case refused != nil:
		return answer{}, refused
	case r.retention == nil:
		return answer{}, refusef(http.StatusNotFound, "not found")
	}
	return answer{http.StatusOK, r.retention}, nil
}

func (s *Server) setRetention(request *http.Request, body []byte) (answer, *refuse) {
	r, refused := s.repository(request)
	if refused != nil {
		return answer{}, refused
	}
	rules, refused := parse[retention](body)
	if refused != nil {
		return answer{}, refused
	}
	r.retention = &rules
	if rules.Default == 0 && len(rules.Branches) == 0 {
		r.retention = nil // nothing to say is no rules
	}
	return answer{http.StatusNoContent, nil}, nil
}

func (s *Server) diffBranch(request *http.Request, _ []byte) (answer, *refuse) {
	_, b, refused := s.branch(request)
	if refused != nil {
		return answer{}, refused
	}
	p := pageOf(slices.Sorted(maps.Keys(b.staging)), request.URL.Query())
	changes := []any{}
	for _, name := range p.names {
		changes = append(changes, map[string]any{"path": name, "path_type": "object", "type": "added"})
	}
	return results(changes, p.more, p.last()), nil
}
