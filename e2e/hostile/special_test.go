package hostile

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"
)

// special are answers that only some calls have.
var special = []answer{
	anotherType,
	dangling,
	growing,
	fabricated,
	idle,
	notKept,
}

// idle says that a write is done, as an honest server would, and does nothing.
var idle = answer{
	name: "done, and it is not",
	fits: func(c call, _ reply) bool { return !c.reads() && !c.polls() },
	say: func(s *saying) (*http.Response, error) {
		if s.lie.acts {
			return s.good.response(s.request), nil
		}
		return s.lie.like.response(s.request), nil
	},
}

// notKept is an upload that is answered with what was sent, and is not kept.
var notKept = answer{
	name: "an upload that is not kept",
	fits: func(c call, _ reply) bool { return c.kind == "POST lakefs /branches/*/objects" },
	say: func(s *saying) (*http.Response, error) {
		sum := md5.Sum(s.body)
		return s.reply(http.StatusCreated, string(asJSON(object{
			"path": s.request.URL.Query().Get("path"), "path_type": "object", "size_bytes": len(s.body), "checksum": hex.EncodeToString(sum[:]),
			"physical_address": "mem://x", "mtime": 1,
		}))), nil
	},
}

// anotherType hands out a task of another type than was polled: the server has given
// it to this worker, and everything about it is right but for that.
var anotherType = answer{
	name:  "a task of another type",
	fits:  func(c call, _ reply) bool { return c.polls() },
	acted: false,
	say: func(s *saying) (*http.Response, error) {
		asked := s.request.URL.Path[strings.LastIndex(s.request.URL.Path, "/")+1:]
		for kind := range leases {
			if string(kind) == asked {
				continue
			}
			request := s.request.Clone(s.request.Context())
			request.URL.Path = strings.ReplaceAll(request.URL.Path, asked, string(kind))
			good, err := s.liar.honestly(request, nil)
			if err != nil {
				return nil, err
			}
			if len(good.body) > len("[]") {
				return good.response(s.request), nil
			}
		}
		return s.reply(http.StatusOK, "[]"), nil
	},
}

// dangling answers a merge with a commit that is all that it should be, and that
// the branch does not hold.
var dangling = answer{
	name: "a commit that is not on the branch",
	fits: func(c call, _ reply) bool { return strings.Contains(c.kind, "/merge/") },
	say: func(s *saying) (*http.Response, error) {
		lake := s.liar.lake
		var merge struct {
			Metadata map[string]string `json:"metadata"`
		}
		if err := json.Unmarshal(s.body, &merge); err != nil {
			return nil, err
		}
		name := "aside-" + merge.Metadata["perago.execution_id"]
		lake.ActionsOff = true
		defer func() { lake.ActionsOff = false }()
		do := func(path string, body []byte) *httptest.ResponseRecorder {
			request := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
			request.Header = s.request.Header
			recorder := httptest.NewRecorder()
			lake.ServeHTTP(recorder, request)
			return recorder
		}
		repository, _, _ := strings.Cut(s.request.URL.Path, "/refs/")
		do(repository+"/branches", asJSON(object{"name": name, "source": merge.Metadata["perago.expected_head"], "hidden": true}))
		made := do(strings.TrimSuffix(s.request.URL.Path, string(target))+name, s.body)
		return s.reply(made.Code, made.Body.String()), nil
	},
}

// fabricated answers a write with an id that nothing has.
var fabricated = answer{
	name: "an id of nothing",
	fits: func(c call, like reply) bool { return !c.reads() && bytes.Contains(like.body, []byte(`"id"`)) },
	say: func(s *saying) (*http.Response, error) {
		return s.reply(s.lie.like.status, hexes.ReplaceAllString(string(s.lie.like.body), strings.Repeat("f", 64))), nil
	},
}

// growing is a listing whose pages never end, and each is as it should be.
var growing = answer{
	name:     "pages that never end",
	unending: true,
	fits:     func(c call, like reply) bool { return bytes.Contains(like.body, []byte(`"pagination"`)) },
	say: func(s *saying) (*http.Response, error) {
		time.Sleep(100 * time.Millisecond)
		var list struct {
			Pagination object   `json:"pagination"`
			Results    []object `json:"results"`
		}
		if err := json.Unmarshal(s.good.body, &list); err != nil || len(list.Results) == 0 {
			list.Results = []object{{"path": prefix, "path_type": "object", "size_bytes": 1, "checksum": "x", "id": "perago", "commit_id": s.liar.foreign, "run_id": "", "hook_run_id": ""}}
		}
		last := list.Results[len(list.Results)-1]
		after := s.request.URL.Query().Get("after")
		for _, name := range []string{"path", "id", "run_id", "hook_run_id"} {
			if _, there := last[name]; there {
				last[name] = fmt.Sprintf("%sz", max(after, fmt.Sprint(last[name])))
			}
		}
		return s.reply(http.StatusOK, string(asJSON(object{"pagination": object{"has_more": true}, "results": []object{last}}))), nil
	},
}
