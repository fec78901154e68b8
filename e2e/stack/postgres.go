package stack

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// postgresRole owns the database. PostgreSQL does not run as root, so where the tests
// do, it runs as the system's user of the same name.
const postgresRole = "postgres"

// Postgres is a PostgreSQL with a database of its own for Conductor.
type Postgres struct {
	*Server
	password string
}

// newPostgres makes a database below dir. It keeps its data through a restart, but
// not through a crash of the machine: nothing here has to survive that, and waiting
// for the disk would make each test slower.
func newPostgres(ctx context.Context, dir, logPath string) (*Postgres, error) {
	programs, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	credential, err := postgresCredential()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "postgres")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	password, passwordFile := randomHex(20), filepath.Join(data, "password")
	if err := os.WriteFile(passwordFile, []byte(password+"\n"), 0o600); err != nil {
		return nil, err
	}
	if credential != nil {
		uid, gid := int(credential.Uid), int(credential.Gid)
		// The user has to come through the folder to its data.
		if err := errors.Join(os.Chmod(dir, 0o711), os.Chown(data, uid, gid), os.Chown(passwordFile, uid, gid)); err != nil {
			return nil, err
		}
	}
	run := func(program string, arguments ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(programs, program), arguments...)
		cmd.Dir, cmd.Env = data, baseEnv(data)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
		return cmd
	}
	create := run("initdb", "--pgdata="+filepath.Join(data, "data"), "--username="+postgresRole, "--pwfile="+passwordFile,
		"--auth=scram-sha-256", "--no-locale", "--encoding=UTF8", "--no-sync")
	if err := errors.Join(runQuietly(create), os.Remove(passwordFile)); err != nil {
		return nil, fmt.Errorf("a database in %s, which the user of PostgreSQL has to reach: %w", data, err)
	}
	return &Postgres{password: password, Server: NewServer(ServerConfig{
		Name: "PostgreSQL", LogPath: logPath, StartTimeout: time.Minute,
		// It would wait for its clients to leave on SIGTERM. And after a SIGKILL its
		// processes live on for a moment in groups of their own and keep it from
		// starting again; SIGQUIT ends all of them at once, in no order.
		StopSignal: syscall.SIGINT, KillSignal: syscall.SIGQUIT,
		Command: func(port int) *exec.Cmd {
			return run("postgres", "-D", filepath.Join(data, "data"), "-h", "127.0.0.1", "-p", strconv.Itoa(port),
				"-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off")
		},
		Ready: func(_ context.Context, _ int, log []byte) error {
			if !bytes.Contains(log, []byte("database system is ready to accept connections")) {
				return errors.New("it does not accept connections yet")
			}
			return nil
		},
	})}, nil
}

// settings are those of a Conductor that keeps what it has there.
func (p *Postgres) settings() []string {
	return []string{
		"--spring.datasource.url=jdbc:postgresql://" + strings.TrimPrefix(p.URL(), "http://") + "/postgres",
		"--spring.datasource.username=" + postgresRole,
		"--spring.datasource.password=" + p.password,
		"--conductor.db.type=postgres",
		"--conductor.queue.type=postgres",
		"--conductor.indexing.type=postgres",
		withIndex,
		"--conductor.workflow-execution-lock.type=postgres",
		"--conductor.app.workflowExecutionLockEnabled=true",
	}
}

// postgresPrograms is the folder of initdb and postgres. Debian's packages put it
// into no PATH, and may have several versions: the newest is taken.
func postgresPrograms() (string, error) {
	folders, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // its only error is a bad pattern
	version := func(folder string) int {
		number, _ := strconv.Atoi(filepath.Base(filepath.Dir(folder)))
		return number
	}
	slices.SortFunc(folders, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
	if path, err := exec.LookPath("postgres"); err == nil {
		folders = slices.Insert(folders, 0, filepath.Dir(path))
	}
	for _, folder := range folders {
		if _, err := os.Stat(filepath.Join(folder, "initdb")); err == nil {
			return folder, nil
		}
	}
	return "", errors.New("PostgreSQL, which keeps what Conductor has in the tests, is not installed; run `make deps`")
}

// postgresCredential is whose process PostgreSQL is: nil for our own.
func postgresCredential() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	found, err := user.Lookup(postgresRole)
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root: %w", err)
	}
	uid, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(found.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
