package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	pollInterval = 50 * time.Millisecond
	portAttempts = 5
)

// errPortTaken: somebody else listened on the port between our choosing it and
// the server's binding it.
var errPortTaken = errors.New("the port was taken")

// ServerConfig says how to run one server. Name, LogPath, Command and Ready are
// required.
type ServerConfig struct {
	Name    string // for messages
	LogPath string // gets the server's output, after what is there already
	// Command makes the command that serves on the given port of 127.0.0.1. It
	// is called for each start; its output and its session are set here.
	Command func(port int) *exec.Cmd
	// Ready returns nil when this very process serves: a stranger's server on a
	// port that we lost would answer a health check as well. log is what the
	// process has written so far.
	Ready func(ctx context.Context, port int, log []byte) error
	// StartTimeout bounds Start, one minute if 0.
	StartTimeout time.Duration
	// Grace is how long Stop waits after SIGTERM, 15 s if 0.
	Grace time.Duration
	// Detach lets the server outlive this process.
	Detach bool
	// StopSignal asks it to end in order, SIGTERM if 0; KillSignal ends it as a crash
	// would, SIGKILL if 0.
	StopSignal, KillSignal syscall.Signal
}

// Server is one server as a child process in its own session. It may be
// stopped and started again on the same port and the same data. It is made for
// both real servers and serves as well for any other, such as a worker with its
// health listener. Its methods may be called from several goroutines.
type Server struct {
	ServerConfig
	choosePort func() (int, error)

	mu   sync.Mutex
	port int // 0 until the first start succeeded
	proc *process
	exit int // of the last run that ended under Stop or Kill
}

// process is one run of a server.
type process struct {
	pid   int
	done  chan struct{}    // closed when it has ended and was waited for
	state *os.ProcessState // how it ended; read after done
}

// NewServer does not start it.
func NewServer(config ServerConfig) *Server {
	if config.StartTimeout == 0 {
		config.StartTimeout = time.Minute
	}
	if config.Grace == 0 {
		config.Grace = 15 * time.Second
	}
	if config.StopSignal == 0 {
		config.StopSignal = syscall.SIGTERM
	}
	if config.KillSignal == 0 {
		config.KillSignal = syscall.SIGKILL
	}
	return &Server{ServerConfig: config, choosePort: FreePort}
}

// URL is the server's address without a path, for example
// http://127.0.0.1:8000. It stays the same over Stop and Start.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("http://127.0.0.1:%d", s.port)
}

// Pid is the process id, 0 when the server does not run.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.pid
}

// ExitCode is how the last run ended that Stop or Kill ended: 0 for a clean
// exit, -1 when a signal ended it.
func (s *Server) ExitCode() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exit
}

// Start starts the server and returns when it serves. The first start chooses
// a free port, later ones use the same. On an error no process is left.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		return fmt.Errorf("%s runs already, pid %d", s.Name, s.proc.pid)
	}
	if s.port != 0 {
		return s.startOn(ctx, s.port)
	}
	var err error
	for range portAttempts {
		var port int
		if port, err = s.choosePort(); err != nil {
			return err
		}
		if err = s.startOn(ctx, port); err == nil {
			s.port = port
			return nil
		}
		if !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

func (s *Server) startOn(ctx context.Context, port int) error {
	log, err := os.OpenFile(s.LogPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor
	begin, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	cmd := s.Command(port)
	cmd.Stdout, cmd.Stderr = log, log
	proc, err := startProcess(cmd, s.Detach)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}
	if err := s.waitReady(ctx, proc, port, begin); err != nil {
		proc.kill()
		return err
	}
	s.proc = proc
	return nil
}

func (s *Server) waitReady(ctx context.Context, proc *process, port int, begin int64) error {
	ctx, cancel := context.WithTimeout(ctx, s.StartTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var last error
	for {
		ended := false
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s did not come up on port %d (%w; last seen: %v); its log ends:\n%s",
				s.Name, port, ctx.Err(), last, tail(s.logFrom(begin)))
		case <-proc.done:
			ended = true
		case <-tick.C:
		}
		log := s.logFrom(begin)
		// Conductor stays alive with no listener when its port is taken, so
		// the exit of the process is not enough to see it.
		if bytes.Contains(log, []byte("already in use")) {
			return fmt.Errorf("%s on port %d: %w", s.Name, port, errPortTaken)
		}
		if ended {
			return fmt.Errorf("%s ended while starting (%s); its log ends:\n%s", s.Name, proc.state, tail(log))
		}
		attempt, cancelAttempt := context.WithTimeout(ctx, 2*time.Second)
		last = s.Ready(attempt, port, log)
		cancelAttempt()
		if last == nil {
			return nil
		}
	}
}

// Stop ends the server: StopSignal, and after a grace SIGKILL for its whole
// process group. It returns an error if the server had ended by itself before.
// A server that does not run is no error.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	proc := s.proc
	if proc == nil {
		return nil
	}
	s.proc = nil
	select {
	case <-proc.done:
		s.exit = proc.state.ExitCode()
		return fmt.Errorf("%s had ended by itself (%s); its log ends:\n%s", s.Name, proc.state, tail(s.logFrom(0)))
	default:
	}
	s.end(proc, s.StopSignal)
	return nil
}

// Kill ends the server with KillSignal, as a crash would.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		s.end(s.proc, s.KillSignal)
		s.proc = nil
	}
}

// end sends the signal, and SIGKILL to what lives longer than the grace.
func (s *Server) end(proc *process, sig syscall.Signal) {
	proc.signal(sig)
	select {
	case <-proc.done:
	case <-time.After(s.Grace):
	}
	proc.kill()
	s.exit = proc.state.ExitCode()
}

func (s *Server) logFrom(offset int64) []byte {
	b, err := os.ReadFile(s.LogPath)
	if err != nil || int64(len(b)) < offset {
		return nil
	}
	return b[offset:]
}

// startProcess starts cmd in its own session, so that a Ctrl-C on the terminal
// reaches only us and we end the children in order. Unless detached, the
// kernel kills the child when we are killed ourselves; that signal is bound to
// the thread that started the child, hence a goroutine with a thread of its own.
func startProcess(cmd *exec.Cmd, detach bool) (*process, error) {
	cmd.SysProcAttr = sysProcAttr(cmd.SysProcAttr, detach)
	proc := &process{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			proc.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // its error says what the state says
		proc.state = cmd.ProcessState
		close(proc.done)
	}()
	return proc, <-started
}

// signal goes to the process group. A group is never reused while one of its
// processes lives or its leader was not waited for.
func (p *process) signal(sig syscall.Signal) {
	_ = syscall.Kill(-p.pid, sig)
}

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// FreePort asks the kernel for a free port of 127.0.0.1. It may be taken again
// before it is used: a caller has to be ready for that.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// tail is the last lines of a log, short enough for an error message.
func tail(log []byte) string {
	const maxBytes, maxLines = 4096, 30
	if len(log) > maxBytes {
		log = log[len(log)-maxBytes:]
		if i := bytes.IndexByte(log, '\n'); i >= 0 {
			log = log[i+1:]
		}
	}
	lines := strings.Split(strings.TrimRight(string(log), "\n"), "\n")
	if len(lines) > maxLines {
		lines = lines[len(lines)-maxLines:]
	}
	return strings.Join(lines, "\n")
}
