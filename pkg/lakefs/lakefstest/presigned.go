package lakefstest

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// storeHost is where the memory server's object store is, as far as a URL says. It
// is the same handler.
const storeHost = "store.memory"

// DefaultPreSignExpiry is for how long a URL holds where nothing else was said.
const DefaultPreSignExpiry = 15 * time.Minute

func (s *Server) config(*http.Request, []byte) (answer, *refuse) {
	storage := "local"
	if s.PreSign {
		storage = "s3"
	}
	return answer{http.StatusOK, map[string]any{
		"storage_config": map[string]any{"blockstore_type": storage, "pre_sign_support": s.PreSign, "import_support": true},
		"version_config": map[string]any{"version": "memory"},
	}}, nil
}

// sign is the HMAC with which the server knows its own addresses and its store
// knows the server's URLs.
func (s *Server) sign(parts ...string) string {
	mac := hmac.New(sha256.New, []byte(s.secret))
	for _, part := range parts {
		fmt.Fprintf(mac, "%q ", part)
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// physicalAddress gives an address for one object. Neither the branch nor the path
// is looked at before it is linked.
func (s *Server) physicalAddress(request *http.Request, _ []byte) (answer, *refuse) {
	r, refused := s.repository(request)
	if refused != nil {
		return answer{}, refused
	}
	s.objects++
	key := fmt.Sprintf("data/%020d/%020d", 0, s.objects)
	key += "," + s.sign(r.id, request.PathValue("branch"), request.URL.Query().Get("path"), key)
	result := map[string]any{"physical_address": r.namespace + "/" + key}
	if request.URL.Query().Get("presign") == "true" {
		if !s.PreSign {
			return answer{}, refusef(http.StatusInternalServerError, "operation not supported")
		}
		expiry := s.PreSignExpiry
		if expiry == 0 {
			expiry = DefaultPreSignExpiry
		}
		until := time.Now().Add(expiry)
		address := url.URL{Scheme: "http", Host: storeHost, Path: storePath + r.namespace[len("local://"):] + "/" + key}
		address.RawQuery = s.query(address.Path, until)
		result["presigned_url"], result["presigned_url_expiry"] = address.String(), until.Unix()
	}
	return answer{http.StatusOK, result}, nil
}

// query is what makes a URL of the store hold until a time.
func (s *Server) query(path string, until time.Time) string {
	at := strconv.FormatInt(until.UnixNano(), 10)
	return url.Values{"X-Amz-Expires": {at}, "X-Amz-Signature": {s.sign(path, at)}}.Encode()
}

// Expired is a URL that the server signed, as it would be had its time run out.
func (s *Server) Expired(signed string) (string, error) {
	address, err := url.Parse(signed)
	if err == nil {
		address.RawQuery = s.query(address.Path, time.Now().Add(-time.Minute))
	}
	return address.String(), err
}

const storePath = "/store/"

// putInStore is the object store's side of an upload: it knows nobody and trusts
// the URL.
func (s *Server) putInStore(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, code, message string) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		_ = xml.NewEncoder(w).Encode(struct {
			XMLName xml.Name `xml:"Error"`
			Code    string
			Message string
		}{Code: code, Message: message})
	}
	query := r.URL.Query()
	at := query.Get("X-Amz-Expires")
	until, err := strconv.ParseInt(at, 10, 64)
	switch {
	case r.Method != http.MethodPut:
		refuse(http.StatusMethodNotAllowed, "MethodNotAllowed", "the store in memory takes PUT alone")
		return
	case err != nil || query.Get("X-Amz-Signature") != s.sign(r.URL.Path, at):
		refuse(http.StatusForbidden, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
		return
	case time.Now().UnixNano() > until:
		refuse(http.StatusForbidden, "AccessDenied", "Request has expired")
		return
	}
	data, err := io.ReadAll(r.Body)
	if err != nil || r.ContentLength >= 0 && int64(len(data)) != r.ContentLength {
		refuse(http.StatusBadRequest, "IncompleteBody", "You did not provide the number of bytes specified by the Content-Length HTTP header")
		return
	}
	s.mu.Lock()
	s.blocks[strings.TrimPrefix(r.URL.Path, storePath)] = data
	s.mu.Unlock()
	w.Header().Set("ETag", strconv.Quote(s.etag(data)))
	w.WriteHeader(http.StatusOK)
}

// etag is what the store says of some bytes: their MD5, unless ETag says otherwise.
func (s *Server) etag(data []byte) string {
	if s.ETag != nil {
		return s.ETag(data)
	}
	sum := md5.Sum(data)
	return hex.EncodeToString(sum[:])
}

// linkAddress makes what is at an address an object, and believes what it is told
// about it.
func (s *Server) linkAddress(request *http.Request, body []byte) (answer, *refuse) {
	r, refused := s.repository(request)
	if refused != nil {
		return answer{}, refused
	}
	in, refused := parse[struct {
		Checksum  string `json:"checksum"`
		SizeBytes int64  `json:"size_bytes"`
		Staging   struct {
			PhysicalAddress string `json:"physical_address"`
		} `json:"staging"`
		Metadata json.RawMessage `json:"user_metadata"`
	}](body)
	if refused != nil {
		return answer{}, refused
	}
	var metadata map[string]string
	if string(in.Metadata) == "null" || len(in.Metadata) > 0 && json.Unmarshal(in.Metadata, &metadata) != nil {
		return answer{}, refusef(http.StatusBadRequest, "request body has an error: doesn't match schema #/components/schemas/StagingMetadata: Error at \"/user_metadata\"")
	}
	name, path := request.PathValue("branch"), request.URL.Query().Get("path")
	key, inside := strings.CutPrefix(in.Staging.PhysicalAddress, r.namespace+"/")
	if !inside {
		return answer{}, refusef(http.StatusNotImplemented, "the memory server links addresses of its own only")
	}
	plain, signature, signed := strings.Cut(key, ",")
	if !signed || signature != s.sign(r.id, name, path, plain) {
		return answer{}, refusef(http.StatusBadRequest, "invalid address signature: address is not in the storage namespace")
	}
	checksum := strings.Trim(in.Checksum, `" `)
	if checksum == "" {
		return answer{}, refusef(http.StatusBadRequest, "checksum is required")
	}
	return s.stage(request, path, &entry{
		checksum: checksum, linked: &link{key: r.namespace[len("local://"):] + "/" + key, size: in.SizeBytes},
		address: key, metadata: metadata, modified: time.Now().Unix(),
	}, http.StatusOK)
}

// link is where a linked entry's bytes are, in the server's blocks, and what was
// said about their number.
type link struct {
	key  string
	size int64
}

func (e *entry) size() int64 {
	if e.linked != nil {
		return e.linked.size
	}
	return int64(len(e.data))
}
