package stack

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// OnS3 is a lakeFS whose objects are in an S3 server, for what needs one: uploads
// that go to the store itself, imports from it. It has no Conductor.
type OnS3 struct {
	// Servers has lakeFS's address and keys, nothing else.
	Servers
	LakeFS *Server
	S3     *Server
	// Bucket is where repositories may have their data: s3://<Bucket>/<name>.
	Bucket string

	// store has the keys of the S3 server.
	store     Servers
	dir       string
	temporary bool
}

// The bucket, and the region that every request is signed for.
const (
	s3Bucket = "perago"
	s3Region = "us-east-1"
)

// StartOnS3 brings both up, lakeFS with settings that it does not have otherwise
// (NAME=value). On an error nothing is left behind. Of the options it takes the
// directories and the progress.
func StartOnS3(ctx context.Context, opts Options, settings ...string) (_ *OnS3, err error) {
	if opts.Progress == nil {
		opts.Progress = io.Discard
	}
	bin, err := Prefetch(ctx, opts.Progress)
	if err != nil {
		return nil, err
	}
	st := &OnS3{Bucket: s3Bucket, dir: opts.Dir}
	if st.dir == "" {
		st.temporary = true
		if st.dir, err = os.MkdirTemp("", "perago-s3-"); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			_ = st.Stop()
		}
	}()
	logDir := opts.LogDir
	if logDir == "" {
		logDir = st.dir
	}
	for _, dir := range []string{logDir, filepath.Join(st.dir, "tmp"), st.BucketDir(), filepath.Join(st.dir, "metadata")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	st.AccessKeyID, st.SecretAccessKey = "perago-"+randomHex(6), randomHex(20)
	st.store = Servers{AccessKeyID: "store-" + randomHex(6), SecretAccessKey: randomHex(20)}
	st.S3 = s3Server(bin, st.dir, filepath.Join(logDir, "s3.log"), st.store)
	if err := st.S3.Start(ctx); err != nil {
		return nil, err
	}
	st.LakeFS = lakeFSServer(bin, st.dir, filepath.Join(logDir, "lakefs.log"), st.Servers, append([]string{
		"LAKEFS_BLOCKSTORE_TYPE=s3",
		"LAKEFS_BLOCKSTORE_S3_ENDPOINT=" + st.S3.URL(),
		"LAKEFS_BLOCKSTORE_S3_FORCE_PATH_STYLE=true",
		"LAKEFS_BLOCKSTORE_S3_DISCOVER_BUCKET_REGION=false",
		"LAKEFS_BLOCKSTORE_S3_REGION=" + s3Region,
		"LAKEFS_BLOCKSTORE_S3_CREDENTIALS_ACCESS_KEY_ID=" + st.store.AccessKeyID,
		"LAKEFS_BLOCKSTORE_S3_CREDENTIALS_SECRET_ACCESS_KEY=" + st.store.SecretAccessKey,
	}, settings...)...)
	if err := st.LakeFS.Start(ctx); err != nil {
		return nil, err
	}
	st.LakeFSURL = st.LakeFS.URL()
	return st, nil
}

// RequireOnS3 is StartOnS3 for one test, which stops it when it ends.
func RequireOnS3(t testing.TB, settings ...string) *OnS3 {
	t.Helper()
	// The context of the test ends before its cleanups.
	st, err := StartOnS3(context.WithoutCancel(t.Context()), Options{Dir: t.TempDir(), Progress: t.Output()}, settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Stop(); err != nil {
			t.Error(err)
		}
	})
	return st
}

// BucketDir is the bucket as a directory: its objects are the files.
func (st *OnS3) BucketDir() string { return filepath.Join(st.dir, "s3", st.Bucket) }

// Stop ends both servers and removes the temporary folder. It returns an error if
// a server had ended by itself before.
func (st *OnS3) Stop() error {
	var err error
	for _, s := range []*Server{st.LakeFS, st.S3} {
		if s != nil {
			err = errors.Join(err, s.Stop())
		}
	}
	if st.temporary {
		err = errors.Join(err, os.RemoveAll(st.dir))
	}
	return err
}

func s3Server(bin Binaries, dir, logPath string, keys Servers) *Server {
	return NewServer(ServerConfig{
		Name:    "S3",
		LogPath: logPath,
		Grace:   5 * time.Second,
		Command: func(port int) *exec.Cmd {
			cmd := exec.Command(bin.S3, "--port", fmt.Sprintf("127.0.0.1:%d", port), "--region", s3Region, "--quiet", "--keep-alive",
				// Not in extended attributes, which not every file system has.
				"posix", "--sidecar", filepath.Join(dir, "metadata"), filepath.Join(dir, "s3"))
			cmd.Dir = dir
			cmd.Env = append(baseEnv(dir), "ROOT_ACCESS_KEY="+keys.AccessKeyID, "ROOT_SECRET_KEY="+keys.SecretAccessKey)
			return cmd
		},
		Ready: func(ctx context.Context, port int, _ []byte) error {
			// Only our own server knows these keys.
			return getOK(ctx, signS3(fmt.Sprintf("http://127.0.0.1:%d", port), keys, http.MethodGet, "", time.Now(), time.Minute), "", "")
		},
	})
}

// Sign makes the URL with which anybody may send one object to the bucket (PUT),
// or do what else the method says, from a time on and for so long: a URL of
// Signature Version 4 in the query, such as lakeFS makes.
func (st *OnS3) Sign(method, key string, from time.Time, holds time.Duration) string {
	return signS3(st.S3.URL(), st.store, method, key, from, holds)
}

func signS3(server string, keys Servers, method, key string, from time.Time, holds time.Duration) string {
	at := from.UTC().Format("20060102T150405Z")
	scope := at[:8] + "/" + s3Region + "/s3/aws4_request"
	address, _ := url.Parse(server + "/") // our own
	address = address.JoinPath(s3Bucket, key)
	query := url.Values{
		"X-Amz-Algorithm":     {"AWS4-HMAC-SHA256"},
		"X-Amz-Credential":    {keys.AccessKeyID + "/" + scope},
		"X-Amz-Date":          {at},
		"X-Amz-Expires":       {strconv.Itoa(int(holds.Seconds()))},
		"X-Amz-SignedHeaders": {"host"},
	}.Encode()
	canonical := strings.Join([]string{method, address.EscapedPath(), query, "host:" + address.Host, "", "host", "UNSIGNED-PAYLOAD"}, "\n")
	sum := sha256.Sum256([]byte(canonical))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", at, scope, hex.EncodeToString(sum[:])}, "\n")
	secret := "AWS4" + keys.SecretAccessKey
	for _, part := range []string{at[:8], s3Region, "s3", "aws4_request", text} {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(part))
		secret = string(mac.Sum(nil))
	}
	address.RawQuery = query + "&X-Amz-Signature=" + hex.EncodeToString([]byte(secret))
	return address.String()
}

// Expired is a URL that lakeFS signed, as it would be had its time run out.
func (st *OnS3) Expired(signed string) (string, error) {
	address, err := url.Parse(signed)
	if err != nil {
		return "", err
	}
	key, ok := strings.CutPrefix(address.Path, "/"+st.Bucket+"/")
	if !ok {
		return "", fmt.Errorf("%s is not in the bucket", address.Path)
	}
	return st.Sign(http.MethodPut, key, time.Now().Add(-time.Hour), time.Minute), nil
}
