package stack

import (
	"bytes"
	"cmp"
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
	// Store is where Conductor keeps what it has. Empty: PostgreSQL, in which it can
	// serve many clients.
	Store Store
	// Progress gets a line for what takes long. Nil: nowhere.
	Progress io.Writer
}

// Store is where a Conductor keeps what it has. A version that has only its own
// memory and Redis uses its memory where another store than Redis is asked for; what
// it has then ends with it.
type Store string

const (
	// PostgreSQL is a database of the stack's own, which has to be installed.
	PostgreSQL Store = "PostgreSQL"
	// SQLite is a file. It needs no other program, and answers many clients at once
	// with SQLITE_BUSY.
	SQLite Store = "SQLite"
	// Redis has an append-only file, and has to be installed.
	Redis Store = "Redis"
)

// Stack is a running Conductor and a running lakeFS.
type Stack struct {
	Conductor *Server
	LakeFS    *Server
	// Database is the server that Conductor keeps what it has in; nil where that is
	// a file or its own memory.
	Database *Server
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
	store, err := st.startStore(ctx, bin, opts, logDir)
	if err != nil {
		return nil, err
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
	said, err := askVersion(ctx, st.ConductorURL)
	if err != nil {
		return nil, err
	}
	// A jar may hide its version, and an old server does not say it.
	st.ConductorVersion = cmp.Or(said, st.ConductorVersion, "unknown")
	if sentence := unknownVersion(st.ConductorVersion); sentence != "" {
		fmt.Fprintln(opts.Progress, sentence)
	}
	return st, nil
}

// An index is of PostgreSQL and SQLite. Whether there is one has to be said: versions
// differ in what they take for granted, and none starts with two or with none of the
// right kind.
const (
	withIndex = "--conductor.indexing.enabled=true"
	noIndex   = "--conductor.indexing.enabled=false"
)

// startStore starts what Conductor keeps things in, and returns its settings for it.
func (st *Stack) startStore(ctx context.Context, bin Binaries, opts Options, logDir string) (settings []string, err error) {
	switch {
	case opts.Store == Redis:
		st.Database = redisServer(st.dir, filepath.Join(logDir, "redis.log"))
		settings = []string{"--conductor.db.type=redis_standalone", "--conductor.queue.type=redis_standalone", noIndex}
	case bin.conductor.memoryOnly:
		return []string{"--conductor.db.type=memory", "--conductor.queue.type=memory", noIndex}, nil
	case opts.Store == SQLite:
		return onSQLite(st.dir), nil
	case opts.Store != "" && opts.Store != PostgreSQL:
		return nil, fmt.Errorf("the store of Conductor is %s, %s or %s, not %q", PostgreSQL, SQLite, Redis, opts.Store)
	default:
		database, err := newPostgres(ctx, st.dir, filepath.Join(logDir, "postgres.log"))
		if err != nil {
			return nil, err
		}
		database.Detach = opts.Detach
		if err := database.Start(ctx); err != nil {
			return nil, err
		}
		st.Database = database.Server
		return database.settings(), nil
	}
	st.Database.Detach = opts.Detach
	if err := st.Database.Start(ctx); err != nil {
		return nil, err
	}
	return append(settings, onRedis(st.Database)...), nil
}

// Dir is the folder that holds the servers' data.
func (st *Stack) Dir() string { return st.dir }

// Pids are the process ids of the servers that run.
func (st *Stack) Pids() []int {
	var pids []int
	for _, s := range []*Server{st.Conductor, st.LakeFS, st.Database} {
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
	if st.Database != nil {
		err = errors.Join(err, st.Database.Stop()) // Conductor, which uses it, has ended
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

// EnvScriptSeconds is the variable in which Conductor reads scriptSeconds.
const EnvScriptSeconds = "CONDUCTOR_SCRIPT_MAX_EXECUTION_SECONDS"

// scriptSeconds is how long a Conductor that has GraalJS lets it take for the condition
// of a loop. Its default of 4 s is not enough for the first one on a busy machine, and
// then it fails the workflow.
const scriptSeconds = 60

// conductorServer keeps what it has as store says (--name=value: one that is given
// twice would count as a list).
func conductorServer(bin Binaries, dir, logPath string, store []string) *Server {
	return NewServer(ServerConfig{
		Name:         "Conductor",
		LogPath:      logPath,
		StartTimeout: 5 * time.Minute, // a JVM on a machine that also compiles
		Command: func(port int) *exec.Cmd {
			cmd := exec.Command(bin.Java.Command, "-Xmx1g",
				// Half the processor time until it is up: it lives for minutes,
				// not long enough for the second compiler to pay.
				"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
				"-Djava.io.tmpdir="+filepath.Join(dir, "tmp"),
				"-Dpolyglot.engine.WarnInterpreterOnly=false",
				"-jar", bin.ConductorJar,
				fmt.Sprintf("--server.port=%d", port),
				"--server.address=127.0.0.1",
				"--loadSample=false",
				"--conductor.grpc-server.enabled=false",
				// Without this 3.21.14 looks for an Elasticsearch.
				"--conductor.elasticsearch.version=0",
				"--conductor.integrations.ai.enabled=false",
				"--conductor.scheduler.enabled=false",
				// How late a timeout may be; the default of 30 s would make
				// every test of a lease long.
				"--conductor.app.workflow-offset-timeout=2s",
			)
			cmd.Args = append(cmd.Args, store...)
			cmd.Dir = dir
			cmd.Env = append(baseEnv(dir), fmt.Sprintf("%s=%d", EnvScriptSeconds, scriptSeconds))
			return cmd
		},
		Ready: func(ctx context.Context, port int, log []byte) error {
			// The log line says that the port is this process's.
			if !servesOn(log, port) {
				return errors.New("its web server has not started yet")
			}
			return getOK(ctx, fmt.Sprintf("http://127.0.0.1:%d/health", port), "", "")
		},
	})
}

// servesOn reports whether Conductor's log says that it serves on the port. Older
// versions write "port(s): ".
func servesOn(log []byte, port int) bool {
	started := bytes.ReplaceAll(log, []byte("port(s): "), []byte("port "))
	return bytes.Contains(started, fmt.Appendf(nil, "Tomcat started on port %d ", port))
}

// onSQLite are the settings of a Conductor that keeps what it has in a file of dir.
func onSQLite(dir string) []string {
	return []string{
		// A writer waits for another for as long as this instead of failing at once.
		"--spring.datasource.url=jdbc:sqlite:" + filepath.Join(dir, "conductor.db") + "?busy_timeout=15000&journal_mode=WAL",
		"--conductor.db.type=sqlite",
		"--conductor.queue.type=sqlite",
		"--conductor.indexing.type=sqlite",
		withIndex,
	}
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
