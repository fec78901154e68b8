package stack

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Options of a stack; the zero value is what tests use.
type Options struct {
	// Dir holds the servers' data. Empty: a temporary folder, removed by Stop.
	Dir string
	// LogDir holds the servers' logs. Empty: inside the data's folder.
	LogDir string
	// Detach lets the servers outlive this process.
	Detach bool
	// Redis lets Conductor keep what it has in a Redis with an append-only file, so
	// that it can be restarted; without it, what it has ends with it.
	Redis bool
	// Progress gets a line for what takes long. Nil: nowhere.
	Progress io.Writer
}

// Stack is a running Conductor and a running lakeFS.
type Stack struct {
	Conductor *Server
	LakeFS    *Server
	// Redis is nil unless it was asked for.
	Redis *Server
	Servers

	dir       string
	temporary bool
}

// Start brings both servers up. On an error nothing is left behind.
func Start(ctx context.Context, opts Options) (_ *Stack, err error) {
	if opts.Progress == nil {
		opts.Progress = io.Discard
	}
	bin, err := Prefetch(ctx, opts.Progress)
	if err != nil {
		return nil, err
	}
	st := &Stack{dir: opts.Dir, Servers: Servers{ConductorVersion: bin.ConductorVersion}}
	if st.dir == "" {
		st.temporary = true
		if st.dir, err = os.MkdirTemp("", "perago-stack-"); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			_ = st.Stop()
		}
	}()
	if st.dir, err = filepath.Abs(st.dir); err != nil {
		return nil, err
	}
	logDir := opts.LogDir
	if logDir == "" {
		logDir = st.dir
	}
	st.ImportDir, st.BlocksDir = filepath.Join(st.dir, "import"), filepath.Join(st.dir, "lakefs", "blocks")
	for _, dir := range []string{logDir, st.ImportDir, filepath.Join(st.dir, "tmp")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	// At most 20 characters: lakeFS's S3 gateway takes no longer ones.
	st.AccessKeyID = "perago-" + randomHex(6)
	st.SecretAccessKey = randomHex(20)
	st.LakeFS = lakeFSServer(bin, st.dir, filepath.Join(logDir, "lakefs.log"), st.Servers)
	store := inMemory
	if opts.Redis {
		st.Redis = redisServer(st.dir, filepath.Join(logDir, "redis.log"))
		st.Redis.Detach = opts.Detach
		if err := st.Redis.Start(ctx); err != nil {
			return nil, err
		}
		store = onRedis(st.Redis)
	}
	st.Conductor = conductorServer(bin, st.dir, filepath.Join(logDir, "conductor.log"), store)
	st.LakeFS.Detach, st.Conductor.Detach = opts.Detach, opts.Detach

	failed := make(chan error, 2)
	for _, s := range []*Server{st.LakeFS, st.Conductor} {
		go func() { failed <- s.Start(ctx) }()
	}
	if err := errors.Join(<-failed, <-failed); err != nil {
		return nil, err
	}
	st.LakeFSURL, st.ConductorURL = st.LakeFS.URL(), st.Conductor.URL()
	return st, nil
}

// Dir is the folder that holds the servers' data.
func (st *Stack) Dir() string { return st.dir }

// Pids are the process ids of the servers that run.
func (st *Stack) Pids() []int {
	var pids []int
	for _, s := range []*Server{st.Conductor, st.LakeFS, st.Redis} {
		if s == nil {
			continue
		}
		if pid := s.Pid(); pid != 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Stop ends the servers and removes the temporary folder. It returns an error
// if a server had ended by itself before.
func (st *Stack) Stop() error {
	stopped := make(chan error, 2)
	for _, s := range []*Server{st.Conductor, st.LakeFS} {
		go func() {
			if s == nil {
				stopped <- nil
				return
			}
			stopped <- s.Stop()
		}()
	}
	err := errors.Join(<-stopped, <-stopped)
	if st.Redis != nil {
		err = errors.Join(err, st.Redis.Stop()) // Conductor, which uses it, has ended
	}
	if st.temporary {
		err = errors.Join(err, os.RemoveAll(st.dir))
	}
	return err
}

// lakeFSServer has its data in dir. settings (NAME=value) stand behind those that
// every lakeFS here has, and hold against them.
func lakeFSServer(bin Binaries, dir, logPath string, keys Servers, settings ...string) *Server {
	data := filepath.Join(dir, "lakefs")
	encrypt := randomHex(16)
	return NewServer(ServerConfig{
		Name:         "lakeFS",
		LogPath:      logPath,
		StartTimeout: 2 * time.Minute,
		Command: func(port int) *exec.Cmd {
			cmd := exec.Command(bin.LakeFS, "run")
			cmd.Dir = dir
			cmd.Env = append(baseEnv(dir),
				"LAKEFS_LISTEN_ADDRESS="+fmt.Sprintf("127.0.0.1:%d", port),
				"LAKEFS_DATABASE_TYPE=local",
				"LAKEFS_DATABASE_LOCAL_PATH="+filepath.Join(data, "db"),
				"LAKEFS_BLOCKSTORE_TYPE=local",
				"LAKEFS_BLOCKSTORE_LOCAL_PATH="+keys.BlocksDir,
				"LAKEFS_BLOCKSTORE_LOCAL_IMPORT_ENABLED=true",
				"LAKEFS_BLOCKSTORE_LOCAL_ALLOWED_EXTERNAL_PREFIXES="+keys.ImportDir,
				// The default is a folder in the home directory, which two
				// servers would share.
				"LAKEFS_COMMITTED_LOCAL_CACHE_DIR="+filepath.Join(data, "cache"),
				"LAKEFS_AUTH_ENCRYPT_SECRET_KEY="+encrypt,
				"LAKEFS_INSTALLATION_USER_NAME=admin",
				"LAKEFS_INSTALLATION_ACCESS_KEY_ID="+keys.AccessKeyID,
				"LAKEFS_INSTALLATION_SECRET_ACCESS_KEY="+keys.SecretAccessKey,
				"LAKEFS_STATS_ENABLED=false",
			)
			cmd.Env = append(cmd.Env, settings...)
			return cmd
		},
		Ready: func(ctx context.Context, port int, _ []byte) error {
			base := fmt.Sprintf("http://127.0.0.1:%d", port)
			if err := getOK(ctx, base+"/_health", "", ""); err != nil {
				return err
			}
			// Only our own server knows these keys.
			return getOK(ctx, base+"/api/v1/user", keys.AccessKeyID, keys.SecretAccessKey)
		},
	})
}

// inMemory are the settings of a Conductor that keeps nothing.
var inMemory = []string{"--conductor.db.type=memory", "--conductor.queue.type=memory"}

// conductorServer keeps what it has as store says (--name=value: one that is given
// twice would count as a list).
func conductorServer(bin Binaries, dir, logPath string, store []string) *Server {
	return NewServer(ServerConfig{
		Name:         "Conductor",
		LogPath:      logPath,
		StartTimeout: 5 * time.Minute, // a JVM on a machine that also compiles
		Command: func(port int) *exec.Cmd {
			cmd := exec.Command(javaCommand(), slices.Concat([]string{"-Xmx1g",
				// Half the processor time until it is up: it lives for minutes,
				// not long enough for the second compiler to pay.
				"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
				"-Djava.io.tmpdir=" + filepath.Join(dir, "tmp"),
			}, bin.conductorProgram(), []string{
				fmt.Sprintf("--server.port=%d", port),
				"--server.address=127.0.0.1",
				"--loadSample=false",
				"--conductor.indexing.enabled=false",
				"--conductor.grpc-server.enabled=false",
				// How late a timeout may be; the default of 30 s would make
				// every test of a lease long.
				"--conductor.app.workflow-offset-timeout=2s",
			})...)
			cmd.Args = append(cmd.Args, store...)
			cmd.Dir = dir
			cmd.Env = baseEnv(dir)
			return cmd
		},
		Ready: func(ctx context.Context, port int, log []byte) error {
			// The log line says that the port is this process's.
			if !strings.Contains(string(log), fmt.Sprintf("Tomcat started on port(s): %d ", port)) {
				return errors.New("its web server has not started yet")
			}
			return getOK(ctx, fmt.Sprintf("http://127.0.0.1:%d/health", port), "", "")
		},
	})
}

// baseEnv is small on purpose: both servers read settings from variables and
// from files in the home directory, and those of the person at the keyboard
// are not meant for them.
func baseEnv(dir string) []string {
	env := []string{"HOME=" + dir, "TMPDIR=" + filepath.Join(dir, "tmp")}
	for _, name := range []string{"PATH", "JAVA_HOME", "LANG"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func javaCommand() string {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		return filepath.Join(home, "bin", "java")
	}
	return "java"
}

func getOK(ctx context.Context, url, user, password string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return nil
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
