//go:build unix

package secrets_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"perago/pkg/conductor/conductortest"
	"perago/pkg/lakefs/lakefstest"
)

// pair is a key id and its secret.
type pair struct{ key, secret string }

// servers are a lakeFS, its object store, a Conductor and a collector of traces, in
// memory and on sockets of their own. Where the name of a repository says so they
// fail, and when they fail they say again all that they were asked with.
type servers struct {
	t                     *testing.T
	lake, server, collect *httptest.Server
	memory                *lakefstest.Server
	conductor             *conductortest.Server
	dir                   string

	mu sync.Mutex
	// lakeKeys and conductorKeys are those that are let in.
	lakeKeys, conductorKeys []pair
	token                   string
	// signed are the signatures of the URLs that the lakeFS has signed.
	signed []string
	// repeated is what was said again, in whichever form.
	repeated strings.Builder
	asked    atomic.Int64
}

func newServers(t *testing.T, dir, token string) *servers {
	t.Helper()
	s := &servers{t: t, memory: lakefstest.NewServer(), conductor: conductortest.New(nil), dir: dir, token: token}
	s.memory.PreSign, s.memory.ActionsOff = true, true
	s.lake = httptest.NewServer(http.HandlerFunc(s.serveLake))
	s.server = httptest.NewServer(http.HandlerFunc(s.serveConductor))
	s.collect = httptest.NewServer(http.HandlerFunc(s.serveCollector))
	for _, one := range []*httptest.Server{s.lake, s.server, s.collect} {
		t.Cleanup(one.Close)
		t.Cleanup(one.CloseClientConnections)
	}
	return s
}

// keep adds to a file of what the servers were given.
func (s *servers) keep(name string, content []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := filepath.Join(s.dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		var file *os.File
		if file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
			_, err = file.Write(append(content, '\n'))
			_ = file.Close()
		}
	}
	if err != nil {
		s.t.Error(err)
	}
}

// again is a text in the forms in which servers, gateways and frameworks write it.
func again(text string) string {
	quoted, _ := json.Marshal(text)
	return strings.Join([]string{text, string(quoted), fmt.Sprintf("%q", text), url.QueryEscape(text), url.PathEscape(text), html.EscapeString(text)}, " ")
}

// repeat is what a server that fails says of a request.
func (s *servers) repeat(r *http.Request, body []byte) string {
	said := "who asks " + r.Method + " " + r.URL.String() + " with " + r.Header.Get("Authorization") + "?"
	if key, secret, ok := r.BasicAuth(); ok {
		said += " " + again(key) + " " + again(secret) + " " + again(key+":"+secret)
	}
	if token := r.Header.Get("X-Authorization"); token != "" {
		said += " " + again(token)
	}
	if bytes.Contains(body, []byte("keySecret")) {
		var asked struct{ KeyID, KeySecret string }
		_ = json.Unmarshal(body, &asked)
		said += " " + string(body) + " " + again(string(body)) + " " + again(asked.KeyID) + " " + again(asked.KeySecret)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repeated.WriteString(said + "\n")
	return said
}

// answer fails a request in one of the ways; it reports false for none.
func (s *servers) answer(how string, w http.ResponseWriter, r *http.Request, body []byte) bool {
	message := func(status int, text string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"status": status, "message": text, "instance": "hostile", "retryable": false})
	}
	switch how {
	case "401":
		message(http.StatusUnauthorized, s.repeat(r, body))
	case "403":
		message(http.StatusForbidden, s.repeat(r, body))
	case "500":
		message(http.StatusInternalServerError, s.repeat(r, body))
	case "page":
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprintf(w, "<html><body>%s</body></html>", s.repeat(r, body))
	case "text":
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, s.repeat(r, body))
	case "garbled":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "{%q:", s.repeat(r, body))
	case "redirect":
		w.Header().Set("Location", "http://elsewhere.invalid/?asked="+url.QueryEscape(s.repeat(r, body)))
		w.WriteHeader(http.StatusTemporaryRedirect)
	default:
		return false
	}
	return true
}

// basePath is in front of lakeFS's API: what names a server's address holds it.
func (s *servers) serveLake(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if strings.HasPrefix(r.URL.Path, "/store/") {
		s.serveStore(w, r)
		return
	}
	r.URL.Path, r.URL.RawPath = strings.TrimPrefix(r.URL.Path, "/"+marker), ""
	key, secret, _ := r.BasicAuth()
	s.mu.Lock()
	known := false
	for _, one := range s.lakeKeys {
		known = known || one == pair{key, secret}
	}
	s.mu.Unlock()
	if !known {
		s.answer("401", w, r, body)
		return
	}
	_, repository, _ := strings.Cut(r.URL.Path, "/repositories/"+marker+"-")
	repository, rest, _ := strings.Cut(repository, "/")
	how, late := strings.CutPrefix(repository, "late-")
	// A late one fails what would write on a staging branch, or merge.
	if rest != "" && (!late || r.Method != http.MethodGet && (strings.Contains(rest, "perago-") || strings.Contains(rest, "/merge/"))) && s.answer(how, w, r, body) {
		return
	}
	config := s.memory.Config()
	r.SetBasicAuth(config.AccessKeyID.Reveal(), config.SecretAccessKey.Reveal())
	recorder := httptest.NewRecorder()
	s.memory.ServeHTTP(recorder, r)
	answer := recorder.Body.String()
	if strings.Contains(r.URL.Path, "/staging/backing") && r.Method == http.MethodGet {
		var at struct {
			URL string `json:"presigned_url"`
		}
		if json.Unmarshal([]byte(answer), &at) == nil {
			if address, err := url.Parse(at.URL); err == nil && at.URL != "" {
				s.mu.Lock()
				s.signed = append(s.signed, address.Query().Get("X-Amz-Signature"))
				s.mu.Unlock()
			}
		}
		answer = strings.ReplaceAll(answer, "http://store.memory", s.lake.URL)
		if how == "address" {
			// An answer to another question, with a secret in it.
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, answer)
			return
		}
	}
	for name, values := range recorder.Header() {
		if name != "Content-Length" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(recorder.Code)
	_, _ = io.WriteString(w, answer)
}

// serveStore is the object store. It refuses what is of a repository whose name says
// so, and repeats the URL as such stores do.
func (s *servers) serveStore(w http.ResponseWriter, r *http.Request) {
	s.keep("store/requests", fmt.Appendf(nil, "%s %s %v", r.Method, r.URL.Path, r.Header))
	if strings.Contains(r.URL.Path, marker+"-store") {
		query := r.URL.Query()
		said := "The request signature we calculated does not match: " + r.URL.String() + " " + again(r.URL.RawQuery) + " " + again(query.Get("X-Amz-Signature"))
		s.mu.Lock()
		s.repeated.WriteString(said + "\n")
		s.mu.Unlock()
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "<Error><Code>SignatureDoesNotMatch</Code><Message>%s</Message><SignatureProvided>%s</SignatureProvided></Error>", html.EscapeString(said), query.Get("X-Amz-Signature"))
		return
	}
	s.memory.ServeHTTP(w, r)
}

func (s *servers) serveConductor(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if strings.HasSuffix(r.URL.Path, "/token") {
		var asked struct{ KeyID, KeySecret string }
		_ = json.Unmarshal(body, &asked)
		s.mu.Lock()
		known := false
		for _, one := range s.conductorKeys {
			known = known || one == pair{asked.KeyID, asked.KeySecret}
		}
		s.mu.Unlock()
		if !known {
			s.answer([]string{"401", "403", "text"}[s.asked.Add(1)%3], w, r, body)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"token": s.token})
		return
	}
	if r.Header.Get("X-Authorization") != s.token {
		s.answer("401", w, r, body)
		return
	}
	// Now and then it fails, a poll above all.
	if n := s.asked.Add(1); strings.Contains(r.URL.Path, "/poll/") && n%5 == 0 || n%41 == 0 {
		s.answer([]string{"401", "500", "redirect", "text", "garbled", "page"}[n/5%6], w, r, body)
		return
	}
	if r.Method == http.MethodPost && r.URL.Path == "/api/tasks" {
		s.keep("conductor/updates", body)
	}
	if strings.HasSuffix(r.URL.Path, "/log") {
		s.keep("conductor/task_log", body)
	}
	s.conductor.ServeHTTP(w, r)
}

// serveCollector takes some traces and refuses others.
func (s *servers) serveCollector(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.keep("traces/sent", body)
	if s.asked.Add(1)%2 == 0 {
		said := "who sends " + fmt.Sprint(r.Header["Api-Key"]) + " " + again(r.Header.Get("Api-Key"))
		s.mu.Lock()
		s.repeated.WriteString(said + "\n")
		s.mu.Unlock()
		http.Error(w, said, http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// basic is the header that a pair is sent in.
func (p pair) basic() string {
	return base64.StdEncoding.EncodeToString([]byte(p.key + ":" + p.secret))
}
