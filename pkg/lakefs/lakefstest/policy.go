package lakefstest

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Statement is one of a policy's, as lakeFS writes it.
type Statement struct {
	Effect   string   `json:"effect"`
	Action   []string `json:"action"`
	Resource string   `json:"resource"`
}

// Restrict holds the server's key to a policy; nil lets it do everything, as the
// one user of an open-source lakeFS may.
//
// No real server was asked: the open-source one has no policies. What each call
// needs, and the answers, are those of lakeFS 1.84.0's pkg/api/controller.go.
func (s *Server) Restrict(policy []Statement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policy = policy
}

// need is one action on one resource, which is below "arn:lakefs:fs:::".
type need struct{ action, resource string }

// needsOf is what a request needs; its pattern is the route's.
func needsOf(request *http.Request, body []byte) []need {
	repository := "repository/" + request.PathValue("repository")
	branch := repository + "/branch/" + request.PathValue("branch")
	object := repository + "/object/" + request.URL.Query().Get("path")
	method, route, _ := strings.Cut(request.Pattern, " ")
	switch strings.TrimPrefix(method+" "+strings.TrimPrefix(route, api), "") {
	case "GET /repositories":
		return []need{{"fs:ListRepositories", "*"}}
	case "GET /repositories/{repository}":
		return []need{{"fs:ReadRepository", repository}}
	case "GET /repositories/{repository}/settings/branch_protection":
		return []need{{"branches:GetBranchProtectionRules", repository}}
	case "GET /repositories/{repository}/settings/gc_rules":
		return []need{{"retention:GetGarbageCollectionRules", repository}}
	case "GET /repositories/{repository}/branches":
		return []need{{"fs:ListBranches", repository}}
	case "POST /repositories/{repository}/branches":
		var in struct {
			Name string `json:"name"`
		}
		_ = json.Unmarshal(body, &in)
		return []need{{"fs:CreateBranch", repository + "/branch/" + in.Name}}
	case "GET /repositories/{repository}/branches/{branch}":
		return []need{{"fs:ReadBranch", branch}}
	case "DELETE /repositories/{repository}/branches/{branch}":
		return []need{{"fs:DeleteBranch", branch}}
	case "GET /repositories/{repository}/branches/{branch}/diff":
		return []need{{"fs:ListObjects", repository}}
	case "POST /repositories/{repository}/branches/{branch}/revert":
		return []need{{"fs:RevertBranch", branch}}
	case "POST /repositories/{repository}/branches/{branch}/commits", "POST /repositories/{repository}/refs/{reference}/merge/{branch}":
		return []need{{"fs:CreateCommit", branch}}
	case "POST /repositories/{repository}/branches/{branch}/objects":
		return []need{{"fs:WriteObject", object}}
	case "POST /repositories/{repository}/branches/{branch}/objects/delete":
		var in struct {
			Paths []string `json:"paths"`
		}
		_ = json.Unmarshal(body, &in)
		var all []need
		for _, path := range in.Paths {
			all = append(all, need{"fs:DeleteObject", repository + "/object/" + path})
		}
		return all
	case "POST /repositories/{repository}/branches/{branch}/import":
		var in struct {
			Paths []struct {
				Path        string `json:"path"`
				Destination string `json:"destination"`
			} `json:"paths"`
		}
		_ = json.Unmarshal(body, &in)
		all := []need{{"fs:WriteObject", branch}, {"fs:CreateCommit", branch}}
		for _, path := range in.Paths {
			all = append(all, need{"fs:ImportFromStorage", "namespace/" + path.Path}, need{"fs:WriteObject", repository + "/object/" + path.Destination})
		}
		return all
	case "GET /repositories/{repository}/branches/{branch}/import":
		return []need{{"fs:ReadBranch", branch}}
	case "GET /repositories/{repository}/commits/{reference}":
		return []need{{"fs:ReadCommit", repository}}
	case "GET /repositories/{repository}/refs/{reference}/commits":
		return []need{{"fs:ReadBranch", repository + "/branch/" + request.PathValue("reference")}}
	case "GET /repositories/{repository}/refs/{reference}/objects/ls", "GET /repositories/{repository}/refs/{reference}/diff/{right}":
		return []need{{"fs:ListObjects", repository}}
	case "GET /repositories/{repository}/refs/{reference}/objects", "GET /repositories/{repository}/refs/{reference}/objects/stat":
		return []need{{"fs:ReadObject", object}}
	case "GET /repositories/{repository}/actions/runs", "GET /repositories/{repository}/actions/runs/{run}/hooks":
		return []need{{"ci:ReadAction", repository}}
	case "GET /repositories/{repository}/branches/{branch}/staging/backing", "PUT /repositories/{repository}/branches/{branch}/staging/backing":
		return []need{{"fs:WriteObject", object}}
	case "GET /user", "GET /config":
		return nil
	}
	return []need{{"a call that package lakefstest has no permission for: " + request.Pattern, repository}}
}

func (s *Server) permits(n need) bool {
	resource := n.resource
	if resource != "*" {
		resource = "arn:lakefs:fs:::" + resource
	}
	matching := func(effect string) bool {
		return slices.ContainsFunc(s.policy, func(one Statement) bool {
			return one.Effect == effect && matches(one.Resource, resource) &&
				slices.ContainsFunc(one.Action, func(action string) bool { return matches(action, n.action) })
		})
	}
	return matching("allow") && !matching("deny")
}

// matches reports whether a pattern of a policy covers a text: * is any
// characters, ? is one.
func matches(pattern, text string) bool {
	expression := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
	return regexp.MustCompile("(?s)^" + expression + "$").MatchString(text)
}

// forbidden answers a request that the policy refuses, and reports whether it did.
func (s *Server) forbidden(w http.ResponseWriter, request *http.Request, body []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.policy == nil {
		return false
	}
	for _, n := range needsOf(request, body) {
		if s.permits(n) {
			continue
		}
		writeJSON(w, http.StatusUnauthorized, map[string]string{"message": "insufficient permissions"})
		if n.action == "fs:DeleteObject" {
			// lakeFS goes on: behind its refusal of one path it writes its answer for
			// all of them. What the key may delete it would delete; here nothing is.
			_ = json.NewEncoder(w).Encode(map[string]any{"errors": []any{map[string]any{"status_code": 401, "message": "Unauthorized"}}})
		}
		return true
	}
	return false
}
