// Package redistest runs a real redis-server for tests, on a free port of the
// loopback interface, in a folder of its own.
//
// It owns the life of that process: start, stop, kill, pause, resume, start
// again on the same port with the same data. It knows nothing of what is stored
// there, and it never stands in for Redis: a fake would agree with our own
// misreadings. A machine without redis-server fails the test, it does not skip
// it.
package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startLimit bounds one start of the server; stopLimit one orderly stop. Both
// are far above what a loaded machine needs and end a test that would hang.
const (
	startLimit = 20 * time.Second
	stopLimit  = 10 * time.Second
)

// Durable is the configuration of a Redis that may back a gateway as it stands:
// every write is in the append-only file before it is answered.
func Durable() []string { return []string{"appendonly yes", "appendfsync always"} }

// Server is one redis-server process that can be stopped and started again.
// Its methods may be called from one goroutine at a time.
type Server struct {
	dir    string
	port   int
	config []string

	sentinel bool
	clock    *shifted // nil: the machine's

	mu   sync.Mutex
	proc *process // nil while stopped
}

// Start runs a redis-server with the given configuration lines (as in
// redis.conf, such as "maxmemory 2mb") and stops it when the test ends. Nothing
// is persisted unless a line asks for it.
func Start(t testing.TB, config ...string) *Server {
	t.Helper()
	s, err := Launch(t.TempDir(), config...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Launch is [Start] for a TestMain, which has no testing.TB: dir must exist and
// the caller must end the server with [Server.Kill].
func Launch(dir string, config ...string) (*Server, error) {
	return launch(&Server{dir: dir, config: config})
}

func launch(s *Server) (*Server, error) {
	// A free port is only known to have been free, so try again if it was taken
	// in between.
	var err error
	for range 5 {
		if s.port, err = freePort(); err != nil {
			return nil, err
		}
		if err = s.Start(); err == nil || errors.Is(err, exec.ErrNotFound) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// Addr is host:port, the same over the whole life of the server.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is the address as a redis:// URL.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Dir is the folder with the server's data.
func (s *Server) Dir() string { return s.dir }

// Start runs a stopped server again, on the same port with the same data, and
// returns when it accepts connections and has loaded its data.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		return errors.New("start redis-server: already running")
	}
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		return fmt.Errorf("redis-server is not installed, and these tests need a real one (Debian: apt-get install redis-server): %w", err)
	}
	conf := filepath.Join(s.dir, "redis.conf")
	if err := os.WriteFile(conf, []byte(s.configFile()), 0o600); err != nil {
		return fmt.Errorf("write redis.conf: %w", err)
	}
	said, args := accepts, []string(nil)
	if s.sentinel {
		said, args = "Sentinel ID is", []string{"--sentinel"}
	}
	env, err := s.clock.environ()
	if err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	p, err := run(bin, conf, said, env, args...)
	if err != nil {
		return err
	}
	s.proc = p
	return nil
}

func (s *Server) configFile() string {
	if s.sentinel {
		return strings.Join(append([]string{"bind 127.0.0.1", "port " + strconv.Itoa(s.port), "dir " + s.dir}, s.config...), "\n") + "\n"
	}
	lines := []string{
		"bind 127.0.0.1",
		"port " + strconv.Itoa(s.port),
		"dir " + s.dir,
		"daemonize no",
		`save ""`,
		"maxmemory-policy noeviction",
	}
	return strings.Join(append(lines, s.config...), "\n") + "\n"
}

// Stop ends the server in good order, as `redis-cli shutdown` does: what it was
// configured to persist is on disk. Stopping a stopped server is no error.
func (s *Server) Stop() error { return s.end(syscall.SIGTERM) }

// Kill ends the server at once, as a crash would. Killing a stopped server is
// no error.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

func (s *Server) end(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	p := s.proc
	s.proc = nil
	defer s.clock.clean(p.cmd.Process.Pid)
	return p.end(sig)
}

// Pause freezes the server (SIGSTOP): its sockets stay open, nothing answers.
func (s *Server) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on with what its buffers hold.
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return errors.New("signal redis-server: not running")
	}
	return s.proc.cmd.Process.Signal(sig)
}

// Flush deletes everything, scripts included, so that subtests can share a
// server one after the other.
func (s *Server) Flush() error {
	for _, command := range []string{"FLUSHALL", "SCRIPT FLUSH"} {
		if _, err := s.Do(context.Background(), strings.Fields(command)...); err != nil {
			return fmt.Errorf("flush redis: %w", err)
		}
	}
	return nil
}

// Do sends one command over a connection of its own and returns the reply's
// first line without its type mark (a bulk reply: its content). It is meant for
// a test's set-up, in place of a client.
func (s *Server) Do(ctx context.Context, args ...string) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(stopLimit)); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return "", err
	}
	return readReply(bufio.NewReader(conn))
}

func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return "", errors.New("empty reply")
	}
	switch kind, rest := line[0], line[1:]; kind {
	case '-':
		return "", errors.New(rest)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return "", err
		}
		buf := make([]byte, n)
		_, err = io.ReadFull(r, buf)
		return string(buf), err
	default:
		return rest, nil
	}
}

// Configure adds configuration lines that hold from the next start on.
func (s *Server) Configure(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = append(s.config[:len(s.config):len(s.config)], lines...)
}
