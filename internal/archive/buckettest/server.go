// Package buckettest runs a real S3 server for tests, on a free port of the
// loopback interface, over a folder of its own.
//
// It owns the life of that process. The server is versitygw; `make test` builds
// it. A machine without it fails the test, it does not skip it.
package buckettest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Version is that of the server; the Makefile names it, too.
const Version = "v1.8.0"

const (
	bucket = "audit"
	access = "test-access-key"
	secret = "test-secret-key-0123456789"
)

// startLimit is far above what a loaded machine needs.
const startLimit = 20 * time.Second

// Server is one server with one bucket.
type Server struct {
	Dir string // what is in the bucket, one file for each object
	// Addr is host:port.
	Addr string
}

// Start runs a server until the test ends, and sets the keys for it in the
// environment of the process.
func Start(t testing.TB) *Server {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", access)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	_, here, _, _ := runtime.Caller(0)
	program := filepath.Join(filepath.Dir(here), "../../../.bin/versitygw-"+Version)
	_, err := os.Stat(program)
	require.NoError(t, err, "versitygw is missing: run make test, which builds it")

	root := t.TempDir()
	s := &Server{Dir: filepath.Join(root, bucket), Addr: freeAddr(t)}
	require.NoError(t, os.Mkdir(s.Dir, 0o700))
	cmd := exec.Command(program, "--port", s.Addr, "--access", access, "--secret", secret, "--quiet", "posix", root)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for until := time.Now().Add(startLimit); ; {
		c, err := net.DialTimeout("tcp", s.Addr, time.Second)
		if err == nil {
			require.NoError(t, c.Close())
			return s
		}
		require.True(t, time.Now().Before(until), "versitygw listens")
		<-time.After(20 * time.Millisecond)
	}
}

// Address is the bucket as the gateway's setting names it.
func (s *Server) Address(prefix string) string {
	return "s3://" + bucket + "/" + prefix + "?endpoint=http://" + s.Addr + "&region=us-east-1"
}

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
