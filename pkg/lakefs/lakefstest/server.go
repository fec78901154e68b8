package lakefstest

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"perago/pkg/credential"
	"perago/pkg/lakefs"
)

// Server is a lakeFS in memory, as an http.Handler. The contract holds it to
// what the real server does. Make one with NewServer.
type Server struct {
	// Hook, when it is set, is asked in the place of the script of each hook in
	// an action file of a merge's source commit; an error refuses the merge with
	// its text. It is asked under the server's lock.
	Hook func(actionFile []byte, merge PreMerge) error
	// ActionsOff is a lakeFS that was told to run no actions.
	ActionsOff bool
	// PreSign is a lakeFS on an S3 store, whose URLs it signs for PreSignExpiry; 0 is
	// DefaultPreSignExpiry. The store is in memory as well.
	PreSign       bool
	PreSignExpiry time.Duration
	// ETag is what the store says of some bytes, for URLs and imports; nil is their
	// MD5. A store that encrypts with keys says something else of the same form.
	ETag func(data []byte) string

	key, secret string
	mux         *http.ServeMux

	mu           sync.Mutex
	repositories map[string]*repository
	// namespaces are the storage namespaces in use.
	namespaces map[string]bool
	// imports are those that were started, by their ids.
	imports map[string]*imported
	// blocks are what is in the object store, by key.
	blocks  map[string][]byte
	objects int
	runs    int64
	// policy is what the key is held to; nil is everything.
	policy []Statement
}

// PreMerge is what a pre-merge hook sees.
type PreMerge struct {
	Repository string
	Branch     string
	// Source is the commit that is merged, Commit the one that would land.
	Source   string
	Commit   string
	Parents  []string
	Metadata map[string]string
}

// NewServer makes an empty server.
func NewServer() *Server {
	s := &Server{
		key: "memory-access-key-id", secret: "memory-secret-access-key",
		repositories: map[string]*repository{}, namespaces: map[string]bool{}, imports: map[string]*imported{},
		blocks: map[string][]byte{},
	}
	s.routes()
	return s
}

// Config is how a client reaches the server, through its Transport.
func (s *Server) Config() lakefs.Config {
	return lakefs.Config{Endpoint: "http://lakefs.memory", AccessKeyID: credential.New(s.key), SecretAccessKey: credential.New(s.secret)}
}

// Transport carries requests to the server without a socket. The request is
// read from its text form, as a server on the network reads it.
func (s *Server) Transport() http.RoundTripper { return inProcess{s} }

// Client is a client of the server.
func (s *Server) Client(t testing.TB) *lakefs.Client {
	t.Helper()
	client, err := lakefs.New(s.Config(), s.Transport())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

type inProcess struct{ handler http.Handler }

func (p inProcess) RoundTrip(request *http.Request) (*http.Response, error) {
	body := request.Body
	if body == nil {
		body = http.NoBody
	}
	defer body.Close()
	ctx := request.Context()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	address, err := url.ParseRequestURI(request.URL.RequestURI())
	if err != nil {
		return nil, err
	}
	received := request.Clone(ctx)
	received.URL, received.RequestURI, received.Host = address, request.URL.RequestURI(), request.URL.Host
	counted := &counter{Reader: body}
	received.Body = io.NopCloser(counted)
	recorder := httptest.NewRecorder()
	p.handler.ServeHTTP(recorder, received)
	switch {
	case ctx.Err() != nil:
		// The caller is gone: what the server did stays done.
		return nil, ctx.Err()
	case counted.err != nil:
		return nil, counted.err
	case request.ContentLength > 0 && counted.n > request.ContentLength:
		return nil, fmt.Errorf("http: ContentLength=%d with Body length %d", request.ContentLength, counted.n)
	}
	response := recorder.Result()
	response.Request = request
	return response, nil
}

// counter keeps the error of a body: in a network it is the client that has it.
type counter struct {
	io.Reader
	n   int64
	err error
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

// refuse is a refusal in lakeFS's words.
type refuse struct {
	status  int
	message string
}

func refusef(status int, format string, arguments ...any) *refuse {
	return &refuse{status: status, message: fmt.Sprintf(format, arguments...)}
}

// answer is a body with the status of success.
type answer struct {
	status int
	body   any
}

// handler answers a request, already authenticated. body has been read.
type handler func(s *Server, r *http.Request, body []byte) (answer, *refuse)

const api = "/api/v1"

func (s *Server) routes() {
	s.mux = http.NewServeMux()
	for pattern, handle := range map[string]handler{
		"GET /user":                      (*Server).user,
		"GET /config":                    (*Server).config,
		"GET /repositories":              (*Server).listRepositories,
		"POST /repositories":             (*Server).createRepository,
		"GET /repositories/{repository}": (*Server).getRepository,
		"GET /repositories/{repository}/settings/branch_protection":        (*Server).protection,
		"PUT /repositories/{repository}/settings/branch_protection":        (*Server).protect,
		"GET /repositories/{repository}/settings/gc_rules":                 (*Server).getRetention,
		"PUT /repositories/{repository}/settings/gc_rules":                 (*Server).setRetention,
		"GET /repositories/{repository}/branches/{branch}/diff":            (*Server).diffBranch,
		"GET /repositories/{repository}/branches":                          (*Server).listBranches,
		"POST /repositories/{repository}/branches":                         (*Server).createBranch,
		"GET /repositories/{repository}/branches/{branch}":                 (*Server).getBranch,
		"DELETE /repositories/{repository}/branches/{branch}":              (*Server).deleteBranch,
		"POST /repositories/{repository}/branches/{branch}/commits":        (*Server).commit,
		"POST /repositories/{repository}/branches/{branch}/objects":        (*Server).upload,
		"POST /repositories/{repository}/branches/{branch}/objects/delete": (*Server).deleteObjects,
		"GET /repositories/{repository}/branches/{branch}/staging/backing": (*Server).physicalAddress,
		"PUT /repositories/{repository}/branches/{branch}/staging/backing": (*Server).linkAddress,
		"POST /repositories/{repository}/branches/{branch}/import":         (*Server).startImport,
		"GET /repositories/{repository}/branches/{branch}/import":          (*Server).importStatus,
		"POST /repositories/{repository}/tags":                             (*Server).createTag,
		"GET /repositories/{repository}/commits/{reference}":               (*Server).getCommit,
		"POST /repositories/{repository}/branches/{branch}/revert":         (*Server).revert,
		"GET /repositories/{repository}/refs/{reference}/commits":          (*Server).log,
		"GET /repositories/{repository}/refs/{reference}/objects/ls":       (*Server).listObjects,
		"GET /repositories/{repository}/refs/{reference}/objects":          (*Server).getObject,
		"GET /repositories/{repository}/refs/{reference}/objects/stat":     (*Server).statObject,
		"GET /repositories/{repository}/refs/{reference}/diff/{right}":     (*Server).diffCommits,
		"POST /repositories/{repository}/refs/{reference}/merge/{branch}":  (*Server).merge,
		"GET /repositories/{repository}/actions/runs":                      (*Server).listRuns,
		"GET /repositories/{repository}/actions/runs/{run}/hooks":          (*Server).listHookRuns,
	} {
		method, route, _ := strings.Cut(pattern, " ")
		s.mux.HandleFunc(method+" "+api+route, func(w http.ResponseWriter, r *http.Request) { s.handle(w, r, handle) })
	}
	s.mux.HandleFunc(storePath, s.putInStore)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusNotImplemented, map[string]string{"message": "the memory server has no " + r.Method + " " + r.URL.Path})
	})
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) handle(w http.ResponseWriter, r *http.Request, handle handler) {
	key, secret, given := r.BasicAuth()
	known := subtle.ConstantTimeCompare([]byte(key+"\x00"+secret), []byte(s.key+"\x00"+s.secret)) == 1
	if !known {
		if !given && r.URL.Path == api+"/user" {
			// Asked without credentials the real server answers with nobody.
			writeJSON(w, http.StatusOK, map[string]any{"user": map[string]any{"id": "", "creation_date": 0}})
			return
		}
		writeJSON(w, http.StatusUnauthorized, map[string]string{"message": "error authenticating request"})
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		writeJSON(w, http.StatusInternalServerError, map[string]string{"message": err.Error()})
		return
	}
	if s.forbidden(w, r, body) {
		return
	}
	s.mu.Lock()
	result, refused := handle(s, r, body)
	s.mu.Unlock()
	if refused != nil {
		writeJSON(w, refused.status, map[string]string{"message": refused.message})
		return
	}
	if versioned, ok := result.body.(withVersion); ok {
		w.Header().Set("ETag", versioned.version)
		result.body = versioned.body
	}
	switch body := result.body.(type) {
	case nil:
		w.WriteHeader(result.status)
	case string:
		w.WriteHeader(result.status)
		_, _ = io.WriteString(w, body)
	case []byte:
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(result.status)
		_, _ = w.Write(body)
	default:
		writeJSON(w, result.status, body)
	}
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func parse[T any](body []byte) (value T, refused *refuse) {
	if err := json.Unmarshal(body, &value); err != nil {
		return value, refusef(http.StatusBadRequest, "request body has an error: %v", err)
	}
	return value, nil
}

type repository struct {
	id, namespace, defaultBranch string
	created                      int64
	branches                     map[string]*branch
	tags                         map[string]string
	commits                      map[string]*commit
	trees                        map[string]*tree
	// protected are patterns of branch names.
	protected []string
	// retention is nil where there are no rules.
	retention *retention
	// readOnly is only said, and not held to.
	readOnly bool
	runs     []*actionRun
}

type branch struct {
	head   string
	hidden bool
	// staging are the uncommitted changes; a nil entry removes its path.
	staging map[string]*entry
}

// commit is also its JSON form.
type commit struct {
	ID           string            `json:"id"`
	Parents      []string          `json:"parents"`
	MetaRangeID  string            `json:"meta_range_id"`
	Message      string            `json:"message"`
	Metadata     map[string]string `json:"metadata"`
	CreationDate int64             `json:"creation_date"`
	Committer    string            `json:"committer"`
	Generation   int               `json:"generation"`
}

// entry is one object. Two with the same content are the same to a merge or a
// commit, but not to a tree's id, which knows where each is stored.
type entry struct {
	data []byte
	// linked is where they are instead, of an object that went to the store by itself.
	linked   *link
	checksum string
	// address is relative to the repository's storage namespace, or a whole URI.
	address  string
	metadata map[string]string
	modified int64
}

func same(a, b *entry) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.checksum == b.checksum && a.size() == b.size() && maps.Equal(a.metadata, b.metadata)
}

// tree is immutable. Its id is the hash of what is in it, so equal trees are
// one; the tree of a repository's first commit is "" instead.
type tree struct {
	id      string
	paths   []string
	entries map[string]*entry
}

func newTree(entries map[string]*entry) *tree {
	t := &tree{entries: entries}
	for p := range entries {
		t.paths = append(t.paths, p)
	}
	slices.Sort(t.paths)
	hash := sha256.New()
	for _, p := range t.paths {
		fmt.Fprintf(hash, "%q %s %s %q\n", p, entries[p].checksum, entries[p].address, entries[p].metadata)
	}
	t.id = hex.EncodeToString(hash.Sum(nil))
	return t
}

func (r *repository) keep(t *tree) *tree {
	if known, ok := r.trees[t.id]; ok {
		return known
	}
	r.trees[t.id] = t
	return t
}

// add makes a commit known. Its id is the hash of all it says, with its date in
// whole seconds: equal commits are one.
func (r *repository) add(c commit) *commit {
	if c.Metadata == nil {
		c.Metadata = map[string]string{}
	}
	if c.Parents == nil {
		c.Parents = []string{}
	}
	c.Generation = 1
	for _, p := range c.Parents {
		c.Generation = max(c.Generation, r.commits[p].Generation+1)
	}
	c.ID = ""
	text, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(text)
	c.ID = hex.EncodeToString(sum[:])
	r.commits[c.ID] = &c
	return &c
}

func (s *Server) user(*http.Request, []byte) (answer, *refuse) {
	return answer{http.StatusOK, map[string]any{"user": map[string]any{"id": "memory", "creation_date": 0}}}, nil
}

var (
	repositoryName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{2,62}$`)
	branchName     = regexp.MustCompile(`^\w[-\w]*$`)
)

func (s *Server) createRepository(_ *http.Request, body []byte) (answer, *refuse) {
	in, refused := parse[struct {
		Name             string `json:"name"`
		StorageNamespace string `json:"storage_namespace"`
		DefaultBranch    string `json:"default_branch"`
		ReadOnly         bool   `json:"read_only"`
	}](body)
	switch {
	case refused != nil:
		return answer{}, refused
	case !repositoryName.MatchString(in.Name):
		return answer{}, refusef(http.StatusBadRequest, "request body has an error: %q is no name", in.Name)
	case s.repositories[in.Name] != nil:
		return answer{}, refusef(http.StatusConflict, "error creating repository: not unique")
	case !strings.HasPrefix(in.StorageNamespace, "local://"):
		return answer{}, refusef(http.StatusBadRequest, "failed to create repository: invalid namespace")
	case s.namespaces[in.StorageNamespace]:
		return answer{}, refusef(http.StatusBadRequest, "failed to create repository: storage namespace already in use")
	}
	if in.DefaultBranch == "" {
		in.DefaultBranch = "main"
	}
	r := &repository{
		id: in.Name, namespace: in.StorageNamespace, defaultBranch: in.DefaultBranch, readOnly: in.ReadOnly, created: time.Now().Unix(),
		branches: map[string]*branch{}, commits: map[string]*commit{}, trees: map[string]*tree{"": newTree(nil)},
	}
	first := r.add(commit{Message: "Repository created", CreationDate: r.created})
	r.branches[in.DefaultBranch] = &branch{head: first.ID, staging: map[string]*entry{}}
	s.repositories[in.Name], s.namespaces[in.StorageNamespace] = r, true
	return answer{http.StatusCreated, r.show()}, nil
}

func (r *repository) show() any {
	return map[string]any{"id": r.id, "storage_namespace": r.namespace, "default_branch": r.defaultBranch, "creation_date": r.created, "read_only": r.readOnly}
}

func (s *Server) repository(request *http.Request) (*repository, *refuse) {
	if r := s.repositories[request.PathValue("repository")]; r != nil {
		return r, nil
	}
	return nil, refusef(http.StatusNotFound, "repository not found")
}

func (s *Server) branch(request *http.Request) (*repository, *branch, *refuse) {
	r, refused := s.repository(request)
	if refused != nil {
		return nil, nil, refused
	}
	if b := r.branches[request.PathValue("branch")]; b != nil {
		return r, b, nil
	}
	return r, nil, refusef(http.StatusNotFound, "branch not found")
}

func (r *repository) isProtected(branch string) bool {
	return slices.ContainsFunc(r.protected, func(pattern string) bool {
		ok, _ := path.Match(pattern, branch)
		return ok
	})
}

func (s *Server) getRepository(request *http.Request, _ []byte) (answer, *refuse) {
	r, refused := s.repository(request)
	if refused != nil {
		return answer{}, refused
	}
	return answer{http.StatusOK, r.show()}, nil
}

func (s *Server) protection(request *http.Request, _ []byte) (answer, *refuse) {
	r, refused := s.repository(request)
	if refused != nil {
		return answer{}, refused
	}
	rules := []map[string]string{}
	for _, pattern := range r.protected {
		rules = append(rules, map[string]string{"pattern": pattern})
	}
	return answer{http.StatusOK, withVersion{r.protectionVersion(), rules}}, nil
}

// withVersion is a body whose version is in the answer's header.
type withVersion struct {
	version string
	body    any
}

// protectionVersion is "" where there is no rule.
func (r *repository) protectionVersion() string {
	if len(r.protected) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(r.protected, "\n")))
	return hex.EncodeToString(sum[:])
}

func (s *Server) protect(request *http.Request, body []byte) (answer, *refuse) {
	r, refused := s.repository(request)
	if refused != nil {
		return answer{}, refused
	}
	rules, refused := parse[[]struct {
		Pattern string `json:"pattern"`
	}](body)
	if refused != nil {
		return answer{}, refused
	}
	if match := request.Header["If-Match"]; len(match) > 0 {
		switch match[0] {
		case "":
			return answer{}, refusef(http.StatusBadRequest, "Invalid format for parameter If-Match: parameter 'If-Match' is empty, can't bind its value")
		case r.protectionVersion():
		default:
			return answer{}, refusef(http.StatusPreconditionFailed, "Precondition failed")
		}
	}
	r.protected = nil
	for _, rule := range rules {
		r.protected = append(r.protected, rule.Pattern)
	}
	slices.Sort(r.protected)
	return answer{http.StatusNoContent, nil}, nil
}

// page is one page of a listing whose names are sorted.
type page struct {
	names []string
	more  bool
}

const (
	defaultPage = 100
	largestPage = 1000
)

func amount(query url.Values) int {
	n, _ := strconv.Atoi(query.Get("amount"))
	switch {
	case n <= 0:
		return defaultPage
	case n > largestPage:
		return largestPage
	}
	return n
}

func pageOf(names []string, query url.Values) page {
	prefix, after, limit := query.Get("prefix"), query.Get("after"), amount(query)
	at, _ := slices.BinarySearch(names, prefix)
	var p page
	for _, name := range names[at:] {
		switch {
		case !strings.HasPrefix(name, prefix):
			return p
		case after != "" && name <= after:
		case len(p.names) == limit:
			p.more = true
			return p
		default:
			p.names = append(p.names, name)
		}
	}
	return p
}

// results is the JSON form of a page. last is its last entry's token.
func results[T any](items []T, more bool, last string) answer {
	if items == nil {
		items = []T{}
	}
	if !more {
		last = ""
	}
	return answer{http.StatusOK, map[string]any{
		"pagination": map[string]any{"has_more": more, "next_offset": last, "results": len(items), "max_per_page": largestPage},
		"results":    items,
	}}
}

func (p page) last() string {
	if len(p.names) == 0 {
		return ""
	}
	return p.names[len(p.names)-1]
}

func (s *Server) listRepositories(request *http.Request, _ []byte) (answer, *refuse) {
	p := pageOf(slices.Sorted(maps.Keys(s.repositories)), request.URL.Query())
	records := []any{}
	for _, name := range p.names {
		records = append(records, s.repositories[name].show())
	}
	return results(records, p.more, p.last()), nil
}

type refRecord struct {
	ID       string `json:"id"`
	CommitID string `json:"commit_id"`
}

func (s *Server) listBranches(request *http.Request, _ []byte) (answer, *refuse) {
	r, refused := s.repository(request)
	if refused != nil {
		return answer{}, refused
	}
	query := request.URL.Query()
	var names []string
	for name, b := range r.branches {
		if !b.hidden || query.Get("show_hidden") == "true" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	p := pageOf(names, query)
	var refs []refRecord
	for _, name := range p.names {
		refs = append(refs, refRecord{name, r.branches[name].head})
	}
	return results(refs, p.more, p.last()), nil
}

func (s *Server) createBranch(request *http.Request, body []byte) (answer, *refuse) {
	r, refused := s.repository(request)
	if refused != nil {
		return answer{}, refused
	}
	in, refused := parse[struct {
		Name   string `json:"name"`
		Source string `json:"source"`
		Hidden bool   `json:"hidden"`
	}](body)
	if refused != nil {
		return answer{}, refused
	}
	if !branchName.MatchString(in.Name) {
		return answer{}, refusef(http.StatusBadRequest, "argument branch: branch id: invalid value: validation error: branch id must consist of letters, digits, underscores and dashes, and cannot start with a dash")
	}
	if r.branches[in.Name] != nil {
		return answer{}, refusef(http.StatusConflict, "branch already exists: not unique")
	}
	source := r.resolve(in.Source)
	if source == nil {
		return answer{}, refusef(http.StatusNotFound, "source reference '%s': not found", in.Source)
	}
	r.branches[in.Name] = &branch{head: source.ID, hidden: in.Hidden, staging: map[string]*entry{}}
	return answer{http.StatusCreated, source.ID}, nil
}

func (s *Server) getBranch(request *http.Request, _ []byte) (answer, *refuse) {
	_, b, refused := s.branch(request)
	if refused != nil {
		return answer{}, refused
	}
	return answer{http.StatusOK, refRecord{request.PathValue("branch"), b.head}}, nil
}

func (s *Server) deleteBranch(request *http.Request, _ []byte) (answer, *refuse) {
	r, _, refused := s.branch(request)
	if refused != nil {
		return answer{}, refused
	}
	name := request.PathValue("branch")
	if name == r.defaultBranch {
		return answer{}, refusef(http.StatusForbidden, "cannot delete repository default branch")
	}
	delete(r.branches, name)
	return answer{http.StatusNoContent, nil}, nil
}

// createTag takes any name.
func (s *Server) createTag(request *http.Request, body []byte) (answer, *refuse) {
	r, refused := s.repository(request)
	if refused != nil {
		return answer{}, refused
	}
	in, refused := parse[struct {
		ID  string `json:"id"`
		Ref string `json:"ref"`
	}](body)
	if refused != nil {
		return answer{}, refused
	}
	c := r.resolve(in.Ref)
	if c == nil {
		return answer{}, refusef(http.StatusNotFound, "ref not found")
	}
	if r.tags == nil {
		r.tags = map[string]string{}
	}
	r.tags[in.ID] = c.ID
	return answer{http.StatusCreated, refRecord{in.ID, c.ID}}, nil
}

// resolve finds the commit of a branch, a tag, a commit id or its beginning, with ~n
// behind it; nil when there is none.
func (r *repository) resolve(reference string) *commit {
	base, steps, stepped := strings.Cut(reference, "~")
	c := r.base(base)
	if !stepped {
		return c
	}
	n, err := strconv.Atoi(steps)
	if err != nil {
		return nil
	}
	for ; c != nil && n > 0; n-- {
		if len(c.Parents) == 0 {
			return nil
		}
		c = r.commits[c.Parents[0]]
	}
	return c
}

func (r *repository) base(name string) *commit {
	if b := r.branches[name]; b != nil {
		return r.commits[b.head]
	}
	if id, ok := r.tags[name]; ok {
		return r.commits[id]
	}
	if c := r.commits[name]; c != nil {
		return c
	}
	var found *commit
	for id, c := range r.commits {
		if name != "" && strings.HasPrefix(id, name) {
			if found != nil {
				return nil
			}
			found = c
		}
	}
	return found
}

func (s *Server) getCommit(request *http.Request, _ []byte) (answer, *refuse) {
	r, refused := s.repository(request)
	if refused != nil {
		return answer{}, refused
	}
	c := r.resolve(request.PathValue("reference"))
	if c == nil {
		return answer{}, refusef(http.StatusNotFound, "commit not found")
	}
	return answer{http.StatusOK, c}, nil
}

func (s *Server) log(request *http.Request, _ []byte) (answer, *refuse) {
	r, refused := s.repository(request)
	if refused != nil {
		return answer{}, refused
	}
	query := request.URL.Query()
	if query.Get("first_parent") != "true" {
		return answer{}, refusef(http.StatusNotImplemented, "the memory server's log follows first parents only")
	}
	c := r.resolve(request.PathValue("reference"))
	if c == nil {
		return answer{}, refusef(http.StatusNotFound, "ref: not found")
	}
	named := func(parameter string) (string, *refuse) {
		text := query.Get(parameter)
		if text == "" {
			return "", nil
		}
		if at := r.resolve(text); at != nil {
			return at.ID, nil
		}
		return "", refusef(http.StatusNotFound, "%s: not found", parameter)
	}
	stopAt, refused := named("stop_at")
	if refused != nil {
		return answer{}, refused
	}
	after, refused := named("after")
	if refused != nil {
		return answer{}, refused
	}
	limit := amount(query)
	var commits []*commit
	for skipping := after != ""; c != nil; {
		if !skipping {
			if len(commits) == limit {
				return results(commits, true, commits[limit-1].ID), nil
			}
			commits = append(commits, c)
			if c.ID == stopAt {
				break
			}
		} else if c.ID == after {
			skipping = false
		}
		if len(c.Parents) == 0 {
			break
		}
		c = r.commits[c.Parents[0]]
	}
	return results(commits, false, ""), nil
}

func (s *Server) upload(request *http.Request, body []byte) (answer, *refuse) {
	if kind, parameters, err := mime.ParseMediaType(request.Header.Get("Content-Type")); err == nil && kind == "multipart/form-data" {
		file, err := multipart.NewReader(bytes.NewReader(body), parameters["boundary"]).NextPart()
		if err != nil || file.FormName() != "content" {
			return answer{}, refusef(http.StatusInternalServerError, "multipart upload missing key 'content'")
		}
		if body, err = io.ReadAll(file); err != nil {
			return answer{}, refusef(http.StatusInternalServerError, "%v", err)
		}
	}
	s.objects++
	sum := md5.Sum(body)
	return s.stage(request, request.URL.Query().Get("path"), &entry{
		data: body, checksum: hex.EncodeToString(sum[:]), address: fmt.Sprintf("data/%020d/%020d", 0, s.objects), modified: time.Now().Unix(),
	}, http.StatusCreated)
}

// stage makes an entry the uncommitted object of a path.
func (s *Server) stage(request *http.Request, key string, e *entry, status int) (answer, *refuse) {
	r, b, refused := s.branch(request)
	name := request.PathValue("branch")
	switch {
	case r != nil && b == nil:
		return answer{}, refusef(http.StatusNotFound, "branch '%s' not found", name)
	case refused != nil:
		return answer{}, refused
	case key == "":
		return answer{}, refusef(http.StatusBadRequest, "parameter \"path\" in query has an error: empty value is not allowed")
	case len(key) > 1024:
		return answer{}, refusef(http.StatusBadRequest, "argument path: invalid value: validation error: %d is above maximum length (1024)", len(key))
	case r.isProtected(name):
		return answer{}, refusef(http.StatusForbidden, "cannot write to protected branch")
	}
	b.staging[key] = e
	return answer{status, e.show(r, key)}, nil
}

func (e *entry) show(r *repository, key string) map[string]any {
	address := e.address
	if !strings.Contains(address, "://") {
		address = r.namespace + "/" + address
	}
	return map[string]any{
		"path": key, "path_type": "object", "checksum": e.checksum, "size_bytes": e.size(), "mtime": e.modified,
		"physical_address": address, "content_type": "application/octet-stream",
	}
}

func (s *Server) deleteObjects(request *http.Request, body []byte) (answer, *refuse) {
	in, refused := parse[struct {
		Paths []string `json:"paths"`
	}](body)
	if refused != nil {
		return answer{}, refused
	}
	if len(in.Paths) > 1000 {
		return answer{}, refusef(http.StatusBadRequest, "request size exceeded, max paths is set to 1000")
	}
	errs := []map[string]any{}
	// A missing repository or branch is not an error here, as if its objects were
	// missing one by one.
	if r, b, refused := s.branch(request); refused == nil {
		parent := r.trees[r.commits[b.head].MetaRangeID]
		for _, key := range in.Paths {
			switch {
			case r.isProtected(request.PathValue("branch")):
				errs = append(errs, map[string]any{"path": key, "status_code": http.StatusForbidden, "message": "cannot write to protected branch"})
			case parent != nil && parent.entries[key] != nil:
				b.staging[key] = nil
			default:
				delete(b.staging, key)
			}
		}
	}
	return answer{http.StatusOK, map[string]any{"errors": errs}}, nil
}

// read is the tree of a reference, which has to be a commit here: nothing reads
// the uncommitted objects of a branch.
func (s *Server) read(request *http.Request) (*repository, *tree, *refuse) {
	r, refused := s.repository(request)
	if refused != nil {
		return nil, nil, refused
	}
	reference := request.PathValue("reference")
	if r.branches[reference] != nil {
		return nil, nil, refusef(http.StatusNotImplemented, "the memory server reads objects of commits only")
	}
	c := r.resolve(reference)
	if c == nil {
		return nil, nil, refusef(http.StatusNotFound, "not found")
	}
	t := r.trees[c.MetaRangeID]
	if t == nil {
		return nil, nil, refusef(http.StatusGone, "No data")
	}
	return r, t, nil
}

func (s *Server) listObjects(request *http.Request, _ []byte) (answer, *refuse) {
	r, t, refused := s.read(request)
	if refused != nil {
		return answer{}, refused
	}
	p := pageOf(t.paths, request.URL.Query())
	var items []any
	for _, key := range p.names {
		items = append(items, t.entries[key].show(r, key))
	}
	return results(items, p.more, p.last()), nil
}

// diffCommits compares two trees whole: a three-dot diff, lakeFS's default, is not
// built.
func (s *Server) diffCommits(request *http.Request, _ []byte) (answer, *refuse) {
	_, left, refused := s.read(request)
	if refused != nil {
		return answer{}, refused
	}
	query := request.URL.Query()
	if query.Get("type") != "two_dot" {
		return answer{}, refusef(http.StatusNotImplemented, "the memory server has two-dot diffs only")
	}
	r := s.repositories[request.PathValue("repository")]
	commit := r.resolve(request.PathValue("right"))
	if commit == nil {
		return answer{}, refusef(http.StatusNotFound, "not found")
	}
	right := r.trees[commit.MetaRangeID]
	var changed []string
	for _, path := range slices.Concat(left.paths, right.paths) {
		if !same(left.entries[path], right.entries[path]) {
			changed = append(changed, path)
		}
	}
	slices.Sort(changed)
	p := pageOf(slices.Compact(changed), query)
	var items []any
	for _, path := range p.names {
		kind := "changed"
		switch {
		case left.entries[path] == nil:
			kind = "added"
		case right.entries[path] == nil:
			kind = "removed"
		}
		items = append(items, map[string]any{"path": path, "path_type": "object", "type": kind})
	}
	return results(items, p.more, p.last()), nil
}

func (s *Server) getObject(request *http.Request, _ []byte) (answer, *refuse) {
	_, t, refused := s.read(request)
	if refused != nil {
		return answer{}, refused
	}
	e := t.entries[request.URL.Query().Get("path")]
	if e == nil {
		return answer{}, refusef(http.StatusNotFound, "not found")
	}
	data := e.data
	if e.linked != nil {
		var there bool
		if data, there = s.blocks[e.linked.key]; !there {
			return answer{}, refusef(http.StatusGone, "No data")
		}
	}
	return answer{http.StatusOK, data}, nil
}

func (s *Server) statObject(request *http.Request, _ []byte) (answer, *refuse) {
	r, t, refused := s.read(request)
	if refused != nil {
		return answer{}, refused
	}
	key := request.URL.Query().Get("path")
	e := t.entries[key]
	if e == nil {
		return answer{}, refusef(http.StatusNotFound, "not found")
	}
	result := e.show(r, key)
	result["metadata"] = e.metadata
	return answer{http.StatusOK, result}, nil
}

func (s *Server) commit(request *http.Request, body []byte) (answer, *refuse) {
	r, b, refused := s.branch(request)
	if refused != nil {
		return answer{}, refused
	}
	in, refused := parse[struct {
		Message    string            `json:"message"`
		Metadata   map[string]string `json:"metadata"`
		AllowEmpty bool              `json:"allow_empty"`
		Date       *int64            `json:"date"`
	}](body)
	if refused != nil {
		return answer{}, refused
	}
	if r.isProtected(request.PathValue("branch")) {
		return answer{}, refusef(http.StatusForbidden, "cannot commit to protected branch")
	}
	made := commit{Parents: []string{b.head}, Message: in.Message, Metadata: in.Metadata, CreationDate: time.Now().Unix(), Committer: "memory"}
	if in.Date != nil {
		made.CreationDate = *in.Date
	}
	if source := request.URL.Query().Get("source_metarange"); source != "" {
		if len(b.staging) > 0 {
			return answer{}, refusef(http.StatusBadRequest, "cannot use source MetaRange on a branch with uncommitted changes")
		}
		made.MetaRangeID = source
	} else {
		parent := r.trees[r.commits[b.head].MetaRangeID]
		if parent == nil {
			return answer{}, refusef(http.StatusGone, "No data")
		}
		next, changed := map[string]*entry{}, false
		for p, e := range parent.entries {
			next[p] = e
		}
		for p, e := range b.staging {
			switch {
			case same(parent.entries[p], e):
			case e == nil:
				delete(next, p)
				changed = true
			default:
				next[p] = e
				changed = true
			}
		}
		if !changed && !in.AllowEmpty {
			return answer{}, refusef(http.StatusBadRequest, "commit: no changes")
		}
		t := newTree(next)
		if _, refused := actionsOf(t); refused != nil && !s.ActionsOff {
			return answer{}, refusef(refused.status, "prepare-commit hook aborted, run id 'memory': %s", refused.message)
		}
		made.MetaRangeID = r.keep(t).id
	}
	c := r.add(made)
	b.head, b.staging = c.ID, map[string]*entry{}
	return answer{http.StatusCreated, c}, nil
}

func (s *Server) merge(request *http.Request, body []byte) (answer, *refuse) {
	r, b, refused := s.branch(request)
	if refused != nil {
		return answer{}, refused
	}
	if len(body) == 0 {
		body = []byte("{}") // what lakeFS takes it for
	}
	in, refused := parse[struct {
		Message     string            `json:"message"`
		Metadata    map[string]string `json:"metadata"`
		SquashMerge bool              `json:"squash_merge"`
		AllowEmpty  bool              `json:"allow_empty"`
		Strategy    string            `json:"strategy"`
	}](body)
	name, reference := request.PathValue("branch"), request.PathValue("reference")
	switch {
	case refused != nil:
		return answer{}, refused
	case in.Strategy != "":
		return answer{}, refusef(http.StatusNotImplemented, "the memory server merges without a strategy only")
	case len(b.staging) > 0:
		return answer{}, refusef(http.StatusBadRequest, "uncommitted changes (dirty branch)")
	}
	source, destination := r.resolve(reference), r.commits[b.head]
	if source == nil {
		return answer{}, refusef(http.StatusNotFound, "update branch %s: get commit by ref %s: not found", name, reference)
	}
	base := r.mergeBase(source, destination)
	if source.MetaRangeID == base.MetaRangeID && !in.AllowEmpty {
		return answer{}, refusef(http.StatusBadRequest, "update branch %s: no changes", name)
	}
	metaRange := source.MetaRangeID
	if destination.MetaRangeID != base.MetaRangeID {
		for _, c := range []*commit{source, destination, base} {
			if r.trees[c.MetaRangeID] == nil {
				return answer{}, refusef(http.StatusGone, "No data")
			}
		}
		merged, ok := mergeTrees(r.trees[source.MetaRangeID], r.trees[destination.MetaRangeID], r.trees[base.MetaRangeID])
		if !ok {
			return answer{http.StatusConflict, map[string]string{"reference": ""}}, nil
		}
		metaRange = r.keep(merged).id
	}
	made := commit{
		Parents: []string{destination.ID}, MetaRangeID: metaRange, Message: in.Message, Committer: "memory",
		Metadata: map[string]string{".lakefs.merge.strategy": "default"}, CreationDate: time.Now().Unix(),
	}
	for k, v := range in.Metadata {
		made.Metadata[k] = v
	}
	made.Metadata[".lakefs.merge.strategy"] = "default"
	if made.Message == "" {
		made.Message = fmt.Sprintf("Merge '%s' into '%s'", reference, name)
	}
	if !in.SquashMerge {
		made.Parents = append(made.Parents, source.ID)
	}
	// The commit is there before its hook is asked, and stays when it refuses.
	c := r.add(made)
	if refused := s.runHooks(r, name, source, c); refused != nil {
		return answer{}, refused
	}
	b.head = c.ID
	return answer{http.StatusOK, map[string]string{"reference": c.ID}}, nil
}

// mergeBase is the latest commit that both come from. Every commit of a
// repository comes from its first.
func (r *repository) mergeBase(a, b *commit) *commit {
	ancestors := func(from *commit) map[string]*commit {
		seen := map[string]*commit{from.ID: from}
		for queue := []*commit{from}; len(queue) > 0; queue = queue[1:] {
			for _, p := range queue[0].Parents {
				if seen[p] == nil {
					seen[p] = r.commits[p]
					queue = append(queue, r.commits[p])
				}
			}
		}
		return seen
	}
	var base *commit
	others := ancestors(b)
	for id, c := range ancestors(a) {
		if others[id] != nil && (base == nil || c.Generation > base.Generation) {
			base = c
		}
	}
	return base
}

// revert undoes one commit of the branch's history. What it says of itself is the
// commit it undoes: none of that commit's metadata is copied.
func (s *Server) revert(request *http.Request, body []byte) (answer, *refuse) {
	r, b, refused := s.branch(request)
	if refused != nil {
		return answer{}, refused
	}
	in, refused := parse[struct {
		Ref          string `json:"ref"`
		ParentNumber int    `json:"parent_number"`
	}](body)
	if refused != nil {
		return answer{}, refused
	}
	undone := r.resolve(in.Ref)
	switch {
	case undone == nil:
		return answer{}, refusef(http.StatusNotFound, "get commit from ref %s: not found", in.Ref)
	case len(b.staging) > 0:
		return answer{}, refusef(http.StatusBadRequest, "uncommitted changes (dirty branch)")
	case in.ParentNumber < 0 || in.ParentNumber > 1 || len(undone.Parents) != 1:
		return answer{}, refusef(http.StatusNotImplemented, "the memory server reverts commits with one parent only")
	}
	head := r.commits[b.head]
	before := r.trees[r.commits[undone.Parents[0]].MetaRangeID]
	made, ok := mergeTrees(before, r.trees[head.MetaRangeID], r.trees[undone.MetaRangeID])
	switch {
	case !ok:
		return answer{}, refusef(http.StatusConflict, "conflict found")
	case r.keep(made).id == head.MetaRangeID:
		return answer{}, refusef(http.StatusBadRequest, "no changes")
	}
	b.head = r.add(commit{Parents: []string{b.head}, MetaRangeID: made.id, Message: "Revert " + undone.ID, CreationDate: time.Now().Unix()}).ID
	return answer{http.StatusNoContent, nil}, nil
}

// mergeTrees is the three-way merge, path by path; false is a conflict.
func mergeTrees(source, destination, base *tree) (*tree, bool) {
	merged := map[string]*entry{}
	for _, paths := range [][]string{source.paths, destination.paths, base.paths} {
		for _, p := range paths {
			theirs, ours, before := source.entries[p], destination.entries[p], base.entries[p]
			take := theirs
			switch {
			case same(theirs, before):
				take = ours
			case same(ours, before), same(theirs, ours):
			default:
				return nil, false
			}
			if take != nil {
				merged[p] = take
			}
		}
	}
	return newTree(merged), true
}
