package doctor

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"perago/pkg/txn"
)

// Worker is one of the three workers, which may each have a key of their own.
type Worker string

// The workers that have a policy.
const (
	StageWorker   Worker = "stage"
	PublishWorker Worker = "publish"
	CleanupWorker Worker = "cleanup"
)

// Workers are all of them.
func Workers() []Worker { return []Worker{StageWorker, PublishWorker, CleanupWorker} }

//go:embed policies/*.json
var policies embed.FS

// Scope is what a policy is for: its places in capitals.
type Scope struct {
	Repository txn.Repository
	Branch     txn.Branch
	Prefix     string
	// Storage is the beginning of the object-store addresses that are imported;
	// empty where nothing is.
	Storage string
}

// statement is one of a policy's, as lakeFS takes it.
type statement struct {
	Effect   string   `json:"effect"`
	Action   []string `json:"action"`
	Resource string   `json:"resource"`
}

type policy struct {
	Statement []statement `json:"statement"`
}

// The beginnings of resources.
const (
	arn     = "arn:lakefs:fs:::"
	storage = "namespace/"
)

func policyOf(worker Worker, scope Scope) (p policy, err error) {
	text, err := policies.ReadFile("policies/" + string(worker) + ".json")
	if err != nil {
		return p, fmt.Errorf("there is no policy for %q; the workers are stage, publish and cleanup", worker)
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("the policy for %s: %w", worker, err)
	}
	fill := strings.NewReplacer("REPOSITORY", string(scope.Repository), "BRANCH", string(scope.Branch), "PREFIX", scope.Prefix, "STORAGE", scope.Storage)
	p.Statement = slices.DeleteFunc(p.Statement, func(s statement) bool {
		// Left open it would be every address.
		return scope.Storage == "" && strings.HasPrefix(s.Resource, arn+storage)
	})
	for i, s := range p.Statement {
		p.Statement[i].Resource = fill.Replace(s.Resource)
	}
	return p, nil
}

// Policy is a worker's least-privilege policy for a scope, as lakeFS takes it.
// Where nothing is imported it does not allow to.
func Policy(worker Worker, scope Scope) ([]byte, error) {
	p, err := policyOf(worker, scope)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(p)
	return text.Bytes(), err
}

// Permissions are what a worker's policy allows, one for each action and
// resource, each with something that it covers in the place of its pattern.
func Permissions(worker Worker, scope Scope) ([]txn.Permission, error) {
	p, err := policyOf(worker, scope)
	if err != nil {
		return nil, err
	}
	var all []txn.Permission
	for _, s := range p.Statement {
		if s.Effect != "allow" {
			continue
		}
		resource := strings.TrimPrefix(s.Resource, arn)
		permission := txn.Permission{}
		if address, ok := strings.CutPrefix(resource, storage); ok {
			permission.Repository, permission.Path = scope.Repository, example(scope.Prefix+"*")
			permission.Storage = strings.TrimSuffix(address, "*")
		} else if of, ok := strings.CutPrefix(resource, "repository/"+string(scope.Repository)); ok {
			permission.Repository = scope.Repository
			switch kind, name, _ := strings.Cut(strings.TrimPrefix(of, "/"), "/"); kind {
			case "branch":
				permission.Branch = txn.Branch(strings.TrimSuffix(name, "*"))
				if permission.Branch == "" {
					// A history is asked for by its commit's id, as if that was a branch.
					permission.Branch = anyBranch
				}
			case "object":
				permission.Path = example(name)
			}
		}
		for _, action := range s.Action {
			permission.Action = action
			all = append(all, permission)
		}
	}
	return all, nil
}

// anyBranch stands for all branches.
var anyBranch = txn.Branch(strings.Repeat("0", 64))

// example is a path that a pattern covers.
func example(pattern string) string {
	if pattern == txn.ActionsPrefix+"*" {
		return txn.FenceFile
	}
	return strings.TrimSuffix(pattern, "*") + "asked-for-by-doctor"
}
